"""Where a gradient is lost: a function is run, and each operation is looked at as it happens.

What depends on the tensor by its value is followed from operation to operation; where the history of what goes in leads to
the tensor and the history of what comes out does not, there it was lost. That `detach`, `numpy` and the like were called is
learnt from the interpreter's profiler, since they are no operations.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, TypeAlias

import rustgrad
from rustgrad import _core
from rustgrad._core import Tensor
from rustgrad.graph._walk import Line, inputs_first, tensors_in

__all__ = ["Loss", "Reason", "run_traced"]

Reason: TypeAlias = Literal[
    "present",
    "not_required",
    "not_differentiable",
    "not_leaf",
    "no_history",
    "not_in_graph",
    "excluded",
    "freed",
    "not_run",
    "detached",
    "no_grad",
    "inference_mode",
    "left",
]
"""Why a gradient is missing; `Explanation.reason` says what each means."""

_PACKAGE = str(Path(rustgrad.__file__).parent)
_SHARING = ("detach", "numpy", "__array__", "__dlpack__")
"""Methods whose result lies in the same memory and has no history."""
_LEAVING = ("item", "tolist", "__array__", "numpy", "__float__", "__int__", "__bool__", "__index__")
"""Methods that give numbers."""


class Loss(NamedTuple):
    """Where a value that depends on the tensor lost its history, or left for Python's numbers."""

    kind: Reason
    what: str
    """The operation or method."""
    line: Line | None


@dataclass(eq=False)
class _Event:
    """An operation that read something which depends on the tensor. It keeps what it names, so that no id is reused."""

    op: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    line: Line | None
    recording: bool
    inference: bool
    led_in: bool
    """Whether the history of an input led to the tensor."""
    led_out: bool
    """Whether that of an output did, right after the operation."""


class _Tracer:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.makers: dict[int, _Event] = {}
        """The operation that last wrote a tensor, by the tensor's id."""
        self.calls: list[tuple[str, Tensor, Line | None]] = []
        """Methods of `_SHARING` and `_LEAVING`, and of `detach_`, that were called on what depends on the tensor."""
        self._target, _ = _core._gradient_edge(tensor)
        self._leads: dict[Any, bool] = {}
        self._memory: dict[int, Tensor] = {tensor.data_ptr(): tensor}

    def leads(self, value: Tensor) -> bool:
        """Whether the history of a tensor leads to the one that is asked about."""
        if value is self.tensor:
            return True
        if not value.requires_grad:
            return False
        root, _ = _core._gradient_edge(value)
        for node in inputs_first(root, self._leads.__contains__):
            sources = (source for source, _ in node.next_functions if source is not None)
            self._leads[node] = node is self._target or any(self._leads[source] for source in sources)
        return self._leads[root]

    def depends(self, value: Tensor, line: Line | None) -> bool:
        """Whether the value was computed from the tensor's."""
        if id(value) in self.makers or self.leads(value):
            return True
        source = self._memory.get(value.data_ptr()) if value.numel() else None
        if source is None:
            return False
        # No operation made it, and it lies in memory of what depends on the tensor: it was detached.
        called = [(name, at) for name, of, at in self.calls if name in _SHARING and of.data_ptr() == value.data_ptr()]
        name, at = called[-1] if called else (".data or detach()", line)
        self._note(_Event(name, [source], [value], at, True, False, self.leads(source), False))
        return True

    def see(self, op: str, inputs: Any, outputs: Any, location: tuple[str, int, str, str | None] | None) -> None:
        """Called after each operation."""
        given, made = list(tensors_in(inputs)), list(tensors_in(outputs))
        line = None if location is None else Line(*location[:3])
        # Each is looked at, not only the first.
        if sum(self.depends(value, line) for value in given):
            led_in = any(map(self.leads, given))
            led_out = any(map(self.leads, made))
            recording, inference = _core.is_grad_enabled(), _core.is_inference_mode_enabled()
            self._note(_Event(op, given, made, line, recording, inference, led_in, led_out))

    def profile(self, frame: FrameType, event: str, function: Any) -> None:
        """Called by the interpreter around each call of a function."""
        if event != "c_call":
            return
        name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
        if isinstance(owner, Tensor) and (name in _SHARING or name in _LEAVING or name == "detach_"):
            line = _line_of(frame)
            if self.depends(owner, line):
                self.calls.append((name, owner, line))

    def losses(self, result: Tensor) -> Iterator[Loss]:
        """Where what went into a result lost its history, nearest to the result first."""
        queue, seen = deque([result]), {id(result)}
        while queue:
            event = self.makers.get(id(queue.popleft()))
            if event is None:
                continue
            if event.led_out and not any(map(self.leads, event.outputs)):
                yield self._cut_later(event)
                continue
            if event.led_in and not event.led_out:
                yield _classify(event)
            for value in event.inputs:
                if id(value) not in seen and not self.leads(value):
                    seen.add(id(value))
                    queue.append(value)

    def departures(self) -> Iterator[Loss]:
        """Where what depends on the tensor was turned into numbers."""
        return (Loss("left", name, line) for name, _, line in self.calls if name in _LEAVING)

    def _cut_later(self, event: _Event) -> Loss:
        """`detach_()` of what an operation had made with history."""
        made = [
            (name, line) for name, of, line in self.calls if name == "detach_" and any(of is o for o in event.outputs)
        ]
        name, line = made[-1] if made else ("detach_", event.line)
        return Loss("detached", name, line)

    def _note(self, event: _Event) -> None:
        for value in event.outputs:
            self.makers[id(value)] = event
            if value.numel():
                self._memory.setdefault(value.data_ptr(), value)


def _classify(event: _Event) -> Loss:
    kind: Reason = "not_differentiable"
    if event.op in _SHARING or "detach" in event.op:
        kind = "detached"
    elif event.inference:
        kind = "inference_mode"
    elif not event.recording:
        kind = "no_grad"
    return Loss(kind, event.op, event.line)


def _line_of(frame: FrameType | None) -> Line | None:
    """The line of the user's that a frame runs for."""
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


@contextlib.contextmanager
def _watching(tracer: _Tracer) -> Iterator[None]:
    before = sys.getprofile()
    _core._push_observer(tracer.see)
    sys.setprofile(tracer.profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        _core._pop_observer()


def run_traced(tensor: Tensor, run: Callable[[], Tensor]) -> tuple[Tensor, list[Loss]]:
    """The result of `run()` and, if its history does not lead to the tensor, where that was lost, in the order of the run.

    What is computed from the tensor is kept until the function has returned.

    Raises:
        TypeError: the function returns no tensor.
    """
    tracer = _Tracer(tensor)
    with _watching(tracer):
        result = run()
    if not isinstance(result, Tensor):
        raise TypeError(f"explain_grad(): the function must return a Tensor, got {type(result).__name__}")
    if tracer.leads(result):
        return result, []
    return result, list(tracer.losses(result))[::-1] or list(tracer.departures())
