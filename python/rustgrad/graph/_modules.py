"""Which module made a node: a record of module calls, taken while they run.

Nodes have sequence numbers, which grow on each thread, and a module's hooks know when its `forward` begins and ends. So
what is noted at each of these moments is the number that the thread's next node will have; a node belongs to the call
that was innermost when the last note before its number was taken. Numbers are handed to threads in blocks, and a note
counts for its own block only, so what another thread makes meanwhile is not mistaken for a module's.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rustgrad import _core
from rustgrad.graph._walk import tensors_in

if TYPE_CHECKING:
    from types import TracebackType

    from rustgrad.nn import Module

__all__ = ["ModuleCall", "ModuleRecord", "record_modules"]


@dataclass(eq=False)
class ModuleCall:
    """One run of a module's `forward`."""

    path: str
    """The module's name in the model, `""` for the model itself; one that has several goes by the first."""
    kind: str
    """The name of its class."""
    parent: ModuleCall | None
    inputs: list[_core._StorageRef] = field(repr=False)
    """The memory of the tensors it was called with, known but not kept."""

    def is_within(self, path: str) -> bool:
        """Whether the call, or one around it, is of the module with this path."""
        call: ModuleCall | None = self
        while call is not None:
            if call.path == path:
                return True
            call = call.parent
        return False


@dataclass
class _Notes:
    """In one block of sequence numbers, up to `end`: from which number on which call was innermost."""

    end: int
    starts: list[int] = field(default_factory=list)
    calls: list[ModuleCall | None] = field(default_factory=list)


class ModuleRecord:
    """What `record_modules` recorded."""

    def __init__(self, model: Module) -> None:
        self.model = model
        self.calls: list[ModuleCall] = []
        """Every call, in the order in which they began."""
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._blocks: dict[int, _Notes] = {}  # by the first number; each is written by one thread alone
        self._thread = threading.local()

    @property
    def paths(self) -> list[str]:
        """The modules that were called, by path, in the order of their first call."""
        return list(dict.fromkeys(call.path for call in self.calls))

    def call_of(self, sequence: int) -> ModuleCall | None:
        """The innermost call in which the node with this `_sequence_nr()` was made; none if it was outside of all."""
        for start, notes in list(self._blocks.items()):
            if start <= sequence < notes.end:
                place = bisect_right(notes.starts, sequence) - 1
                return notes.calls[place] if place >= 0 else None
        return None

    def path_of(self, sequence: int) -> str | None:
        """The path of that call's module."""
        call = self.call_of(sequence)
        return None if call is None else call.path

    def _note(self, call: ModuleCall | None) -> None:
        """From now on `call` is innermost on this thread."""
        upcoming, start, end = _core._upcoming_sequence_nr()
        if start not in self._blocks:
            # The thread has changed to this block since the last note, and what was innermost then made its first nodes.
            self._blocks[start] = _Notes(end, [start], [getattr(self._thread, "innermost", None)])
        notes = self._blocks[start]
        notes.starts.append(upcoming)
        notes.calls.append(call)
        self._thread.innermost = call

    def _enter(self, module: Module, args: Any, kwargs: Any) -> None:
        running = self._thread.__dict__.setdefault("running", [])
        inputs = [_core._storage_of(tensor) for tensor in tensors_in([args, kwargs])]
        parent = running[-1][1] if running else None
        call = ModuleCall(self._paths[id(module)], type(module).__name__, parent, inputs)
        self.calls.append(call)
        running.append((module, call))
        self._note(call)

    def _leave(self, module: Module, args: Any, output: Any) -> None:
        running = self._thread.__dict__.setdefault("running", [])
        # Where an earlier hook raised, the call was never entered.
        if running and running[-1][0] is module:
            self._note(running.pop()[1].parent)


class record_modules:
    """Within this context, note which of `model`'s modules makes which nodes. Gives a `ModuleRecord`.

    Calls from several threads, nested, repeated and of modules that are shared are told apart. Modules that are added
    while it is open are not seen.

    Example:
        >>> import rustgrad as torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh())
        >>> with torch.graph.record_modules(model) as modules:
        ...     loss = model(torch.ones(4, 2)).sum()
        >>> modules.paths
        ['', '0', '1']
    """

    def __init__(self, model: Module) -> None:
        self.model = model

    def __enter__(self) -> ModuleRecord:
        record = ModuleRecord(self.model)
        self._hooks = ExitStack()
        for module in self.model.modules():
            # Before the other hooks and after them: what these compute is the module's too.
            before = module.register_forward_pre_hook(record._enter, prepend=True, with_kwargs=True)
            after = module.register_forward_hook(record._leave, always_call=True)
            self._hooks.callback(before.remove)
            self._hooks.callback(after.remove)
        return record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.close()
