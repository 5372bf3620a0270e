"""`save` and `load`: PyTorch's file format, a zip archive of one pickle (`data.pkl`) and the raw bytes of each storage.

Files go both ways between rustgrad and PyTorch. A file is read as data: by default it cannot make the reader import or
call anything but the few functions listed here, whatever it says. The pickle machine itself is in `_unpickler.py`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import pickle
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, TypeAlias, cast

from rustgrad import _core
from rustgrad._core import Tensor, device, dtype
from rustgrad._rebuild import check_layout, dtype_name
from rustgrad._size import Size
from rustgrad._unpickler import Callable as Allowed
from rustgrad._unpickler import Unpickler, UnpicklingError, check_key
from rustgrad.nn.parameter import Parameter

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]

FileLike: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
MapLocation: TypeAlias = "Callable[[Any, str], Any] | device | str | Mapping[str, str] | None"

_STORAGE_NAMES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}
_ALIGNMENT = 64


# ---- names in a pickle -----------------------------------------------------------------------------------------------


def _known_dtypes() -> dict[str, dtype]:
    named = {name: getattr(_core, name, None) for name in _STORAGE_NAMES}
    return {name: kind for name, kind in named.items() if isinstance(kind, dtype)}


class _Global:
    """A name that is written into a pickle although no such module is loaded: one of PyTorch's."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} is only a name")


@functools.cache
def _torch(name: str, module: str = "torch") -> _Global:
    return _Global(module, name)


class _Storage:
    """The memory of tensors in a file: its bytes, read when a tensor first needs them, and what it becomes."""

    def __init__(self, read: Callable[[], bytes], kind: dtype | None, elements: int, where: device | None) -> None:
        self._read = read
        self._kind = kind  # None: untyped, counted in bytes
        self._elements = elements
        self._where = where
        self._made: dict[dtype, Tensor] = {}

    def tensor(self, kind: dtype | None, offset: Any, sizes: Any, strides: Any) -> Tensor:
        """A tensor over this storage; tensors of one dtype share their memory as they did when they were saved."""
        kind = kind or self._kind
        if kind is None:
            raise UnpicklingError("a tensor over an untyped storage needs a dtype")
        total = self._elements * (1 if self._kind is None else self._kind.itemsize)
        elements = total // kind.itemsize
        layout = check_layout(sizes, strides, offset, elements)
        whole = self._made.get(kind)
        if whole is None:
            data = self._read()
            if len(data) < total:
                raise UnpicklingError(f"a storage of {total} bytes has only {len(data)} in the file")
            whole = _core._tensor_from_bytes(data[:total], kind, (elements,), (1,), 0)
            if self._where is not None:
                whole = whole.to(self._where)
            self._made[kind] = whole
        # detach(): over the same memory, but not a view of the tensor that stands for the whole storage.
        return whole.as_strided(*layout).detach()


def _set_requires_grad(tensor: Tensor, requires_grad: Any) -> Tensor:
    if requires_grad is not True:
        return tensor
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise UnpicklingError(f"a tensor of {tensor.dtype} cannot require grad")
    return tensor.requires_grad_(True)


def _rebuild_tensor(storage: Any, offset: Any, sizes: Any, strides: Any, kind: dtype | None = None) -> Tensor:
    if not isinstance(storage, _Storage):
        raise UnpicklingError(f"a tensor needs a storage, not a {type(storage).__name__}")
    return storage.tensor(kind, offset, sizes, strides)


def _rebuild_tensor_v2(
    storage: Any, offset: Any, sizes: Any, strides: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> Tensor:
    return _set_requires_grad(_rebuild_tensor(storage, offset, sizes, strides), requires_grad)


def _rebuild_tensor_v3(
    storage: Any, offset: Any, sizes: Any, strides: Any, requires_grad: Any, hooks: Any, kind: Any, metadata: Any = None
) -> Tensor:
    if not isinstance(kind, dtype):
        raise UnpicklingError(f"a tensor needs a dtype, not a {type(kind).__name__}")
    return _set_requires_grad(_rebuild_tensor(storage, offset, sizes, strides, kind), requires_grad)


def _rebuild_parameter(data: Any, requires_grad: Any, hooks: Any) -> Parameter:
    if not isinstance(data, Tensor):
        raise UnpicklingError(f"a parameter needs a tensor, not a {type(data).__name__}")
    return Parameter(data, bool(requires_grad))


def _with_attributes(tensor: Tensor, state: Any) -> Tensor:
    """`tensor` with the attributes that it had; those with a meaning of their own are refused."""
    if type(state) is not dict or any(type(name) is not str or hasattr(Tensor, name) for name in state):
        raise UnpicklingError("a tensor's attributes must be a dict of new names")
    tensor.__dict__.update(state)
    return tensor


def _rebuild_parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Tensor:
    return _with_attributes(_rebuild_parameter(data, requires_grad, hooks), state)


def _rebuild_from_type_v2(function: Any, kind: Any, args: Any, state: Any) -> Tensor:
    # The file's function is one of the table above, wrapped when the restricted reader hands it over.
    call = function.function if isinstance(function, Allowed) else function
    if call not in (_rebuild_tensor_v2, _rebuild_tensor_v3) or type(args) is not tuple:
        raise UnpicklingError("only plain tensors can be rebuilt with attributes")
    return _with_attributes(call(*args), state)


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    # How bytes are written in the old protocol 2.
    if type(text) is not str or encoding != "latin1":
        raise UnpicklingError("only latin1 text is taken for bytes")
    return text.encode("latin1")


def _items(value: Any) -> list[Any] | tuple[Any, ...]:
    # Only these: iterating over a tensor from a hostile file may never end.
    if type(value) not in (list, tuple):
        raise UnpicklingError(f"elements must come in a list, not in a {type(value).__name__}")
    return cast("list[Any] | tuple[Any, ...]", value)


def _ordered_dict(pairs: Any = ()) -> OrderedDict[Any, Any]:
    return OrderedDict((check_key(key), value) for key, value in map(_items, _items(pairs)))


def _set_of(items: Any = ()) -> set[Any]:
    return set(map(check_key, _items(items)))


def _size_of(sizes: Any = ()) -> Size:
    return Size(_items(sizes))


def _device_of(*args: Any) -> device:
    try:
        return _core.device(*args)
    except RuntimeError as error:
        raise UnpicklingError(f"the file names a device that is not known here ({error})") from error


def _functions() -> dict[tuple[str, str], Callable[..., Any]]:
    """The functions that a file may call, by the names that PyTorch gives them."""
    found: dict[tuple[str, str], Callable[..., Any]] = {
        ("collections", "OrderedDict"): _ordered_dict,
        ("_codecs", "encode"): _encode,
        ("torch", "Size"): _size_of,
        ("torch", "device"): _device_of,
        ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
        ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_v3,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter_with_state,
        ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type_v2,
    }
    for module in ("builtins", "__builtin__"):
        found[module, "set"] = _set_of
        found[module, "frozenset"] = lambda items=(): frozenset(_set_of(items))
        found[module, "complex"] = complex
        found[module, "bytearray"] = lambda data=b"": bytearray(bytes(data) if isinstance(data, (bytes, list)) else b"")
    return found


class _StorageType:
    """The class of a typed storage, as a persistent id names it; its dtype is `None` for the untyped one."""

    def __init__(self, kind: dtype | None) -> None:
        self.kind = kind


@functools.cache
def _table() -> dict[tuple[str, str], Any]:
    """All names that a file may use: functions, dtypes, storage classes, tensor classes."""
    table: dict[tuple[str, str], Any] = dict(_functions())
    for name, kind in _known_dtypes().items():
        table["torch", name] = kind
        table["torch", _STORAGE_NAMES[name]] = _StorageType(kind)
    for module in ("torch", "torch.storage"):
        table[module, "UntypedStorage"] = _StorageType(None)
    table["torch", "Tensor"] = Tensor
    table["torch.nn.parameter", "Parameter"] = Parameter
    return table


_user_globals: dict[tuple[str, str], Any] = {}


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let files that are loaded with `weights_only=True` use these classes or functions.

    Args:
        safe_globals: classes and functions, or pairs of one and the dotted name under which files know it.
    """
    for item in safe_globals:
        target, path = item if isinstance(item, tuple) else (item, f"{item.__module__}.{item.__qualname__}")
        module, _, name = path.rpartition(".")
        _user_globals[module, name] = target


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` added."""
    return list(_user_globals.values())


def clear_safe_globals() -> None:
    """Take back all that `add_safe_globals` added."""
    _user_globals.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """`add_safe_globals` for the length of a block."""
    before = dict(_user_globals)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _user_globals.clear()
        _user_globals.update(before)


# ---- writing ---------------------------------------------------------------------------------------------------------


class _Saved:
    """A storage on its way into a file."""

    def __init__(self, tensor: Tensor, key: str) -> None:
        self.data = tensor._storage_bytes()
        self.elements = len(self.data) // tensor.dtype.itemsize
        self.kind = dtype_name(tensor.dtype)
        self.where = sys.intern(str(tensor.device))  # one string, so that it is written once
        self.key = key


_PythonPickler: Any = pickle._Pickler  # the one written in Python: its `save` can be overridden


class _Pickler(_PythonPickler):  # type: ignore[misc]
    """Writes tensors as PyTorch does, and their storages as references."""

    dispatch = _PythonPickler.dispatch.copy()

    def __init__(self, file: IO[bytes], protocol: int) -> None:
        super().__init__(file, protocol)
        self.storages: dict[int, _Saved] = {}
        self._keep: list[Tensor] = []  # no storage may be freed, and its id reused, while the file is written

    def save_global_name(self, obj: _Global) -> None:
        self.write(b"c" + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    dispatch[_Global] = save_global_name

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Saved):
            return None
        return ("storage", _torch(_STORAGE_NAMES[obj.kind]), obj.key, obj.where, obj.elements)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return self._reduce_tensor(obj)
        if isinstance(obj, Size):
            return _torch("Size"), (tuple(obj),)
        if isinstance(obj, device):
            return _torch("device"), (obj.type,) if obj.index is None else (obj.type, obj.index)
        return NotImplemented

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if isinstance(obj, dtype):
            obj = _torch(dtype_name(obj))
        elif obj is Tensor:
            obj = _torch("Tensor")
        elif obj is Parameter:
            obj = _torch("Parameter", "torch.nn.parameter")
        return super().save(obj, save_persistent_id)

    def _reduce_tensor(self, tensor: Tensor) -> tuple[Any, ...]:
        attributes = dict(tensor.__dict__)
        hooks: OrderedDict[Any, Any] = OrderedDict()  # never written; PyTorch's functions expect the argument
        if isinstance(tensor, Parameter) and type(tensor) is not Tensor:
            data = tensor.data
            if attributes:
                rebuild = _torch("_rebuild_parameter_with_state", "torch._utils")
                return rebuild, (data, tensor.requires_grad, hooks, attributes)
            return _torch("_rebuild_parameter", "torch._utils"), (data, tensor.requires_grad, hooks)
        if dtype_name(tensor.dtype) not in _STORAGE_NAMES:
            raise pickle.PicklingError(f"tensors of {tensor.dtype} cannot be saved")
        args = (
            self._storage_of(tensor),
            tensor.storage_offset(),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.requires_grad,
            hooks,
        )
        rebuild = _torch("_rebuild_tensor_v2", "torch._utils")
        if attributes:
            return _torch("_rebuild_from_type_v2", "torch._tensor"), (rebuild, Tensor, args, attributes)
        return rebuild, args

    def _storage_of(self, tensor: Tensor) -> _Saved:
        identity = tensor._storage_id()
        if identity not in self.storages:
            self._keep.append(tensor)
            self.storages[identity] = _Saved(tensor, str(len(self.storages)))
        return self.storages[identity]


class _Archive:
    """A zip archive of uncompressed records whose data start at multiples of 64 bytes, so that they can be mapped."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file
        self._place = 0

    def add(self, name: str, data: bytes) -> None:
        record = zipfile.ZipInfo(f"archive/{name}")
        record.compress_type = zipfile.ZIP_STORED
        start = self._place + 30 + len(record.filename) + 4  # local header, name, header of the padding
        padding = -start % _ALIGNMENT
        record.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        self._file.writestr(record, data)
        self._place = start + padding + len(data)


def save(
    obj: Any,
    f: FileLike,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write an object with tensors in it to a file that `load` here and in PyTorch can read.

    Args:
        obj: tensors, and containers, numbers and strings around them; other objects are pickled by
            the name of their class.
        f: a path, or a file opened for writing bytes.
        pickle_module: accepted; Python's pickle is used.
        pickle_protocol: the version of the pickle; PyTorch reads all.

    Raises:
        ValueError: the old format without a zip archive is asked for.
        pickle.PicklingError: something in `obj` cannot be pickled.

    Tensors that share memory share it again after loading. The whole storage of a view is written.
    """
    if not _use_new_zipfile_serialization:
        raise ValueError("only the zip format of PyTorch 1.6 and later can be written")
    stream = io.BytesIO()
    pickler = _Pickler(stream, pickle_protocol)
    pickler.dump(obj)
    target = f if hasattr(f, "write") else os.fspath(cast("os.PathLike[str]", f))
    with zipfile.ZipFile(cast(Any, target), "w", zipfile.ZIP_STORED, allowZip64=True) as file:
        archive = _Archive(file)
        archive.add("data.pkl", stream.getvalue())
        archive.add(".format_version", b"1")
        archive.add(".storage_alignment", str(_ALIGNMENT).encode())
        if not _disable_byteorder_record:
            archive.add("byteorder", sys.byteorder.encode())
        for storage in pickler.storages.values():
            archive.add(f"data/{storage.key}", storage.data)
        archive.add("version", b"3\n")


# ---- reading ---------------------------------------------------------------------------------------------------------


class _Records:
    """The records of a file, checked so that reading them all cannot take more memory than the file has bytes."""

    def __init__(self, file: zipfile.ZipFile, size: int) -> None:
        entries = file.infolist()
        pickles = [entry.filename for entry in entries if entry.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise UnpicklingError("not a file written by torch.save: it has no data.pkl")
        self._file = file
        self._prefix = pickles[0].removesuffix("data.pkl")
        self._sizes = {entry.filename: entry.file_size for entry in entries}
        # Several entries may claim the same bytes of the file, or promise more than they are.
        if len(self._sizes) != len(entries) or sum(self._sizes.values()) > size:
            raise UnpicklingError("the archive's records overlap")
        if any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries):
            raise UnpicklingError("the archive has compressed or encrypted records, which torch.save never writes")

    def read(self, name: str) -> bytes:
        full = self._prefix + name
        if full not in self._sizes:
            raise UnpicklingError(f"the archive has no record {name!r}")
        return self._file.read(full)

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._sizes


class _CallersError(Exception):
    """Carries an exception of the caller's own function out of the machine that reports everything else as damage."""


class _Loader:
    """What a pickle's names and persistent ids mean for one file."""

    def __init__(self, records: _Records, map_location: MapLocation) -> None:
        self._records = records
        self._map_location = map_location
        self._storages: dict[str, _Storage] = {}

    def persistent_load(self, identity: Any) -> _Storage:
        if not (isinstance(identity, tuple) and len(identity) == 5 and identity[0] == "storage"):
            raise UnpicklingError("the file refers to something that is no storage")
        _, kind, key, location, elements = identity
        if not (isinstance(kind, _StorageType) and isinstance(key, str) and isinstance(location, str)):
            raise UnpicklingError("the file describes a storage wrongly")
        if isinstance(elements, bool) or not isinstance(elements, int) or elements < 0:
            raise UnpicklingError("a storage's number of elements must be an integer, and not negative")
        if key not in self._storages:
            read = functools.partial(self._records.read, f"data/{key}")
            self._storages[key] = storage = _Storage(read, kind.kind, elements, None)
            storage._where = self._device_for(storage, location)
        return self._storages[key]

    def _device_for(self, storage: _Storage, location: str) -> device | None:
        """Where a storage that was saved on `location` goes; `None` for the CPU."""
        wanted: Any = self._map_location
        if isinstance(wanted, Mapping):
            wanted = wanted.get(location, location)
        elif callable(wanted) and not isinstance(wanted, (str, device)):
            try:
                answer = wanted(storage, location)
                if answer is not storage and answer is not None:
                    raise TypeError("map_location may return the storage that it is given, or None")
            except Exception as error:
                raise _CallersError from error
            if answer is storage:
                return None
        if wanted is None or wanted == location or callable(wanted):
            place = _device_of(location)
        else:
            place = _core.device(wanted)
        if place.type == "cuda":
            raise RuntimeError(
                "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. "
                "Please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
            )
        return None if place.type == "cpu" else place

    def find_safe(self, module: str, name: str) -> Any:
        """The object for a name, wrapped if it may be called; nothing else is ever looked up."""
        if (module, name) in _user_globals:
            target = _user_globals[module, name]
            return Allowed(target, target if isinstance(target, type) else None)
        if (module, name) not in _table():
            raise UnpicklingError(
                f"Unsupported global: GLOBAL {module}.{name} was not an allowed global by default. If you trust it, "
                f"please use `torch.serialization.add_safe_globals([{name}])` to allow it."
            )
        found = _table()[module, name]
        return Allowed(found) if (module, name) in _functions() else found


class _TrustingUnpickler(pickle.Unpickler):
    """Python's own unpickler, for files that the user vouches for. PyTorch's names stand for ours."""

    def __init__(self, data: bytes, loader: _Loader) -> None:
        super().__init__(io.BytesIO(data))
        self._loader = loader

    def persistent_load(self, pid: Any) -> Any:
        return self._loader.persistent_load(pid)

    def find_class(self, module: str, name: str) -> Any:
        found = _table().get((module, name))
        if found is not None and module.partition(".")[0] == "torch":
            return found
        if module == "torch" or module.startswith("torch."):
            try:
                return getattr(importlib.import_module("rustgrad" + module.removeprefix("torch")), name)
            except (ImportError, AttributeError):
                raise UnpicklingError(f"the file needs {module}.{name}, which rustgrad does not have") from None
        return super().find_class(module, name)


def load(
    f: FileLike,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read an object that `save` here or in PyTorch (1.6 or later) wrote.

    Args:
        f: a path, or a file opened for reading bytes that can seek.
        map_location: where to put tensors: a device, a dictionary from saved to wanted devices, or a function
            of a storage and its device that returns the storage (for the CPU) or `None`. Default: as saved.
        pickle_module: accepted; not used.
        weights_only: read the file as data: tensors, containers, numbers, strings, and what `add_safe_globals` allows.
            Default: yes. With `False` the file may import and call anything: use it only for files that you trust.
        mmap: accepted; the file is read.

    Raises:
        pickle.UnpicklingError: the file is damaged, is no such file, or asks for something that is not allowed.
        RuntimeError: a tensor was saved on a device that is not here, and `map_location` does not say where to put it.

    Example:
        >>> import io
        >>> import rustgrad as torch
        >>> file = io.BytesIO()
        >>> torch.save({"w": torch.ones(2)}, file)
        >>> _ = file.seek(0)
        >>> torch.load(file)
        {'w': tensor([1., 1.])}
    """
    trusted = weights_only is False
    with contextlib.ExitStack() as stack:
        if hasattr(f, "read"):
            stream = cast("IO[bytes]", f)
        else:
            stream = stack.enter_context(open(cast("os.PathLike[str]", f), "rb"))
        try:
            size = stream.seek(0, io.SEEK_END)
            records = _Records(stack.enter_context(zipfile.ZipFile(stream)), size)
            order = records.read("byteorder").decode() if "byteorder" in records else "little"
            if order != sys.byteorder:
                raise UnpicklingError(
                    f"the file was written in {order!r} byte order, this machine has {sys.byteorder!r}"
                )
            loader = _Loader(records, map_location)
            data = records.read("data.pkl")
            if trusted:
                return _TrustingUnpickler(data, loader).load()
            classes = frozenset(target for target in _user_globals.values() if isinstance(target, type))
            return Unpickler(data, loader.find_safe, loader.persistent_load, classes).load()
        except _CallersError as carrier:
            raise cast(Exception, carrier.__cause__) from None
        except UnpicklingError as error:
            if trusted:
                raise
            raise UnpicklingError(f"Weights only load failed. {error}") from error
        except zipfile.BadZipFile as error:
            raise UnpicklingError(
                f"the file is no zip archive as torch.save writes it, or is damaged: {error}"
            ) from error
        except (OverflowError, NotImplementedError, ValueError, EOFError, struct.error) as error:
            raise UnpicklingError(f"the archive is damaged ({type(error).__name__}: {error})") from error
