"""A pickle reader that cannot run code: it knows the opcodes that data needs, and calls only what it was given.

Python's own unpickler calls whatever a file names. This one makes containers, numbers, strings and bytes itself, looks
every name up in a table, and lets a file call nothing but `Callable` objects of that table. It knows no tensors
and no files.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable as CallableType
from pickle import UnpicklingError
from typing import Any, Final

__all__ = ["Callable", "Unpickler", "UnpicklingError", "check_key"]


class Callable:
    """Something that a file may call.

    Args:
        function: what is called.
        cls: a class whose instances a file may make with `NEWOBJ` and give state with `BUILD`; `None` for a function.
    """

    __slots__ = ("cls", "function")

    def __init__(self, function: CallableType[..., Any], cls: type | None = None) -> None:
        self.function = function
        self.cls = cls


class _Mark:
    """What the MARK opcode leaves on the stack."""


_MARK: Final = _Mark()
_ATOMS: Final = (str, int, float, complex, bytes, bool, type(None))
_MAX_PROTOCOL: Final = 5
_DAMAGE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error)


def check_key(key: Any) -> Any:
    """`key`, if it is fit for a dictionary or set.

    Only keys that hash in one step: a nest of tuples could take exponential time, an object run its own `__hash__`.

    Raises:
        UnpicklingError: it is not a number, string, bytes, `None`, or a flat tuple of these.
    """
    parts = key if isinstance(key, tuple) else (key,)
    if not all(type(part) in _ATOMS for part in parts):
        raise UnpicklingError(f"a {type(key).__name__} may not be a dictionary key or set element")
    return key


class Unpickler:
    """Reads one pickle.

    Args:
        data: the pickle.
        find_global: gives the object for a module and a name, or raises `UnpicklingError`.
        persistent_load: gives the object for a persistent id.
        classes: the classes whose instances may be given state.
    """

    def __init__(
        self,
        data: bytes,
        find_global: CallableType[[str, str], Any],
        persistent_load: CallableType[[Any], Any],
        classes: frozenset[type] = frozenset(),
    ) -> None:
        self._data = data
        self._place = 0
        self._find_global = find_global
        self._persistent_load = persistent_load
        self._classes = classes
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The object in the pickle.

        Raises:
            UnpicklingError: the data is damaged, or asks for something that is not allowed.
        """
        try:
            while True:
                code = self._take(1)[0]
                if code == _STOP:
                    if len(self._stack) != 1:
                        raise UnpicklingError("the pickle leaves nothing, or too much, on the stack")
                    return self._stack.pop()
                handler = _HANDLERS.get(code)
                if handler is None:
                    raise UnpicklingError(f"the pickle opcode {code:#04x} is not supported")
                handler(self)
        except UnpicklingError:
            raise
        except _DAMAGE as error:  # whatever damaged data does to an operation below, it is one kind of error outside
            raise UnpicklingError(f"the pickle is damaged ({type(error).__name__}: {error})") from error

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        end = self._place + count
        if count < 0 or end > len(self._data):
            raise UnpicklingError("the pickle ends too early")
        part = self._data[self._place : end]
        self._place = end
        return part

    def _line(self) -> str:
        end = self._data.find(b"\n", self._place)
        if end < 0:
            raise UnpicklingError("the pickle ends too early")
        text = self._data[self._place : end].decode("utf-8")
        self._place = end + 1
        return text

    def _unsigned(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _since_mark(self) -> list[Any]:
        for start in range(len(self._stack) - 1, -1, -1):
            if self._stack[start] is _MARK:
                items = self._stack[start + 1 :]
                del self._stack[start:]
                return items
        raise UnpicklingError("a MARK is missing")

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise UnpicklingError("the stack is empty")
        return self._stack.pop()

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise UnpicklingError("the stack is empty")
        return self._stack[-1]

    # ---- one method per kind of opcode ------------------------------------------------------------------------------

    def _protocol(self) -> None:
        version = self._take(1)[0]
        if version > _MAX_PROTOCOL:
            raise UnpicklingError(f"unsupported pickle protocol: {version}")

    def _frame(self) -> None:
        self._take(8)  # frames only help readers of streams

    def _push_signed(self) -> None:
        self._stack.append(int.from_bytes(self._take(4), "little", signed=True))

    def _push_long(self, width: int) -> None:
        self._stack.append(int.from_bytes(self._take(self._unsigned(width)), "little", signed=True))

    def _push_float(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def _push_text(self, width: int) -> None:
        self._stack.append(self._take(self._unsigned(width)).decode("utf-8", "surrogatepass"))

    def _push_bytes(self, width: int) -> None:
        self._stack.append(self._take(self._unsigned(width)))

    def _push_bytearray(self) -> None:
        self._stack.append(bytearray(self._take(self._unsigned(8))))

    def _tuple(self, count: int) -> None:
        items = [self._pop() for _ in range(count)]
        self._stack.append(tuple(reversed(items)))

    def _append(self) -> None:
        item = self._pop()
        self._extend_list([item])

    def _extend_list(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not list:
            raise UnpicklingError(f"elements are appended to a {type(target).__name__}")
        target.extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) not in (dict, OrderedDict):
            raise UnpicklingError(f"items are set in a {type(target).__name__}")
        if len(items) % 2:
            raise UnpicklingError("a dictionary key has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[check_key(key)] = value

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._set_items([key, value])

    def _dict(self) -> None:
        items = self._since_mark()
        self._stack.append({})
        self._set_items(items)

    def _add_items(self) -> None:
        items = self._since_mark()
        target = self._top()
        if type(target) is not set:
            raise UnpicklingError(f"elements are added to a {type(target).__name__}")
        target.update(map(check_key, items))

    def _pop_any(self) -> None:
        if not self._stack:
            raise UnpicklingError("the stack is empty")
        self._stack.pop()

    def _put(self, index: int) -> None:
        self._memo[index] = self._top()

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise UnpicklingError(f"the pickle refers to memo entry {index}, which was never made")
        self._stack.append(self._memo[index])

    def _global(self) -> None:
        module, name = self._line(), self._line()
        self._stack.append(self._find_global(module, name))

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if type(name) is not str or type(module) is not str:
            raise UnpicklingError("a global's module and name must be strings")
        self._stack.append(self._find_global(module, name))

    def _reduce(self) -> None:
        args, target = self._pop(), self._pop()
        if type(target) is not Callable or type(args) is not tuple:
            raise UnpicklingError(f"a {type(target).__name__} may not be called")
        self._stack.append(target.function(*args))

    def _new_object(self) -> None:
        args, target = self._pop(), self._pop()
        if type(target) is not Callable or target.cls is None or type(args) is not tuple:
            raise UnpicklingError(f"no instance of a {type(target).__name__} may be made")
        self._stack.append(target.cls.__new__(target.cls, *args))

    def _build(self) -> None:
        state = self._pop()
        target = self._top()
        if type(target) is OrderedDict:
            _set_attributes(target, state)
        elif type(target) in self._classes:
            if hasattr(target, "__setstate__"):
                target.__setstate__(state)
            else:
                _set_attributes(target, state)
        else:
            raise UnpicklingError(f"a {type(target).__name__} may not be given state")

    def _persistent_id(self) -> None:
        self._stack.append(self._persistent_load(self._pop()))


def _set_attributes(target: Any, state: Any) -> None:
    """Put `state` among the attributes of `target`, without hiding anything that its class defines."""
    if type(state) is not dict:
        raise UnpicklingError(f"state must be a dict, not a {type(state).__name__}")
    for name in state:
        if type(name) is not str or hasattr(type(target), name):
            raise UnpicklingError(f"the attribute {name!r} may not be set")
    target.__dict__.update(state)


_STOP: Final = ord(".")
_HANDLERS: Final[dict[int, CallableType[[Unpickler], None]]] = {
    0x80: Unpickler._protocol,
    0x95: Unpickler._frame,
    ord("("): lambda vm: vm._stack.append(_MARK),
    ord("0"): Unpickler._pop_any,
    ord("1"): lambda vm: vm._since_mark().clear(),
    ord("2"): lambda vm: vm._stack.append(vm._top()),
    ord("N"): lambda vm: vm._stack.append(None),
    0x88: lambda vm: vm._stack.append(True),
    0x89: lambda vm: vm._stack.append(False),
    ord("J"): Unpickler._push_signed,
    ord("K"): lambda vm: vm._stack.append(vm._unsigned(1)),
    ord("M"): lambda vm: vm._stack.append(vm._unsigned(2)),
    0x8A: lambda vm: vm._push_long(1),
    0x8B: lambda vm: vm._push_long(4),
    ord("G"): Unpickler._push_float,
    ord("X"): lambda vm: vm._push_text(4),
    0x8C: lambda vm: vm._push_text(1),
    0x8D: lambda vm: vm._push_text(8),
    ord("B"): lambda vm: vm._push_bytes(4),
    ord("C"): lambda vm: vm._push_bytes(1),
    0x8E: lambda vm: vm._push_bytes(8),
    0x96: Unpickler._push_bytearray,
    ord("]"): lambda vm: vm._stack.append([]),
    ord("a"): Unpickler._append,
    ord("e"): lambda vm: vm._extend_list(vm._since_mark()),
    ord("l"): lambda vm: vm._stack.append(vm._since_mark()),
    ord(")"): lambda vm: vm._stack.append(()),
    ord("t"): lambda vm: vm._stack.append(tuple(vm._since_mark())),
    0x85: lambda vm: vm._tuple(1),
    0x86: lambda vm: vm._tuple(2),
    0x87: lambda vm: vm._tuple(3),
    ord("}"): lambda vm: vm._stack.append({}),
    ord("d"): Unpickler._dict,
    ord("s"): Unpickler._set_item,
    ord("u"): lambda vm: vm._set_items(vm._since_mark()),
    0x8F: lambda vm: vm._stack.append(set()),
    0x90: Unpickler._add_items,
    0x91: lambda vm: vm._stack.append(frozenset(map(check_key, vm._since_mark()))),
    ord("q"): lambda vm: vm._put(vm._unsigned(1)),
    ord("r"): lambda vm: vm._put(vm._unsigned(4)),
    0x94: lambda vm: vm._put(len(vm._memo)),
    ord("h"): lambda vm: vm._get(vm._unsigned(1)),
    ord("j"): lambda vm: vm._get(vm._unsigned(4)),
    ord("c"): Unpickler._global,
    0x93: Unpickler._stack_global,
    ord("R"): Unpickler._reduce,
    0x81: Unpickler._new_object,
    ord("b"): Unpickler._build,
    ord("Q"): Unpickler._persistent_id,
}
