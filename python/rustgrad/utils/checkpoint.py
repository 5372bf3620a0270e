"""`rustgrad.utils.checkpoint`: less memory for more work. What a function saved for backward is not kept but computed again.

Without re-entering the engine (`use_reentrant=False`, to be preferred), values saved inside the function are replaced by
tickets through `saved_tensors_hooks`; the first ticket that backward presents runs the function again, and what that run
saves, in the same order, is handed out. The graph is the function's own.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import rustgrad as torch
from rustgrad import _core
from rustgrad.autograd import Function, backward, enable_grad, no_grad
from rustgrad.autograd.graph import saved_tensors_hooks

if TYPE_CHECKING:
    from rustgrad._core import Tensor

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]

_NAME = "torch.utils.checkpoint"
_early_stop: bool | None = None


class CheckpointError(RuntimeError):
    """The function did not save the same when it ran again."""


class _Enough(Exception):
    """Raised out of the second run when everything that backward wants is there."""


class _Ticket:
    """What the graph keeps in the place of a value."""

    __slots__ = ("__weakref__", "place")

    def __init__(self, place: int) -> None:
        self.place = place


def noop_context_fn() -> tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]:
    """The contexts of the first and of the second run if none are given: nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Within this context, whether second runs end as soon as all is there, whatever `checkpoint` was told."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


def _described(value: Tensor) -> dict[str, Any]:
    return {"shape": value.shape, "dtype": value.dtype, "device": value.device}


def _apart(value: Any) -> Any:
    """A tensor cut off from the graph it came from, otherwise as it was."""
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, _core.Tensor) else value


@contextlib.contextmanager
def _random_state(state: Tensor | None) -> Iterator[None]:
    """The random numbers as they were before the first run."""
    if state is None:
        yield
        return
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(now)


class _Frame:
    """One call of a checkpointed function: what it takes to run it again, and what the second runs have brought."""

    def __init__(self, run: Callable[[], Any], early_stop: bool, check: bool) -> None:
        self.run = run
        self.early_stop = early_stop
        self.check = check
        self.tickets: list[ReferenceType[_Ticket]] = []
        self.forward: list[dict[str, Any]] = []
        # By backward, so that one that keeps the graph is followed by another that computes anew.
        self.values: dict[int, WeakKeyDictionary[_Ticket, Tensor]] = {}

    def pack(self, value: Tensor) -> _Ticket:
        ticket = _Ticket(len(self.tickets))
        self.tickets.append(ref(ticket))
        self.forward.append(_described(value))
        return ticket

    def unpack(self, ticket: _Ticket) -> Tensor:
        task = _core._current_graph_task_id()
        # Outside of a backward (somebody looks at the graph) every look computes.
        if task < 0 or task not in self.values:
            self.values = {task: self._again()}
        values = self.values[task]
        if task < 0:
            self.values = {}
        if ticket not in values:
            raise CheckpointError(
                f"{_NAME}: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.forward)}\n"
                f"Number of tensors saved during recomputation: {len(values)}"
            )
        return values[ticket]

    def _again(self) -> WeakKeyDictionary[_Ticket, Tensor]:
        values: WeakKeyDictionary[_Ticket, Tensor] = WeakKeyDictionary()
        found: list[dict[str, Any]] = []
        wanted = len(self.tickets)

        def pack(value: Tensor) -> Tensor:
            place = len(found)
            found.append(_described(value))
            ticket = self.tickets[place]() if place < wanted else None
            if ticket is not None:
                values[ticket] = value.detach()
            if self.early_stop and len(found) == wanted:
                raise _Enough
            return value

        with saved_tensors_hooks(pack, lambda value: value), enable_grad(), contextlib.suppress(_Enough):
            self.run()
        if len(found) != wanted and self.check:
            raise CheckpointError(
                f"{_NAME}: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {wanted}\n"
                f"Number of tensors saved during recomputation: {len(found)}"
            )
        pairs = enumerate(zip(self.forward, found, strict=False))
        differing = [(k, first, second) for k, (first, second) in pairs if first != second]
        if differing and self.check:
            lines = [
                f"tensor at position {k}:\nsaved metadata: {first}\nrecomputed metadata: {second}"
                for k, first, second in differing
            ]
            raise CheckpointError(
                f"{_NAME}: Recomputed values for the following tensors have different metadata than during the "
                "forward pass.\n" + "\n".join(lines)
            )
        return values


class CheckpointFunction(Function):
    """The re-entrant way: one node, whose backward runs the function again and a backward of its own inside."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], state: Tensor | None, *args: Any) -> Any:
        ctx.run, ctx.state = run, state
        ctx.places = [k for k, a in enumerate(args) if isinstance(a, _core.Tensor)]
        ctx.others = [None if isinstance(a, _core.Tensor) else a for a in args]
        ctx.save_for_backward(*(args[k] for k in ctx.places))
        with no_grad():
            return run(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if not _core._is_checkpoint_valid():
            raise RuntimeError(
                f"When use_reentrant=True, {_NAME} is incompatible with .grad() or passing an `inputs` parameter to "
                ".backward(). To resolve this error, you can either set use_reentrant=False, or call .backward() "
                "without passing the `inputs` argument."
            )
        args = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = _apart(tensor)
        with _random_state(ctx.state), enable_grad():
            outputs = ctx.run(*args)
        if isinstance(outputs, _core.Tensor):
            outputs = (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if isinstance(o, _core.Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(a.grad if isinstance(a, _core.Tensor) else None for a in args))


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[
        [], tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]
    ] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call `function(*args, **kwargs)` and keep its inputs instead of what it saves for backward, which runs it again.

    Args:
        function: what to call. It should do the same each time.
        use_reentrant: whether backward runs a backward of its own inside (the old way, which needs an input that
            requires grad, and works with neither `autograd.grad` nor keyword arguments). To be said; `False` is better.
        context_fn: gives two contexts, for the first run and for the second.
        determinism_check: `"default"` compares shapes and dtypes of what both runs save, `"none"` does not.
        debug: accepted for PyTorch's callers.
        early_stop: end the second run as soon as everything that backward wants is there.
        preserve_rng_state: start the second run with the random state of the first.

    Raises:
        CheckpointError: from backward, if the second run saves something else than the first.
        ValueError: arguments that `use_reentrant=True` does not take, or an unknown `determinism_check`.
    """
    if use_reentrant is None:
        warnings.warn(
            f"{_NAME}: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, calling "
            "checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended, but if you "
            "need to preserve the current default behavior, you can pass use_reentrant=True.",
            stacklevel=2,
        )
        use_reentrant = True
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    state = torch.get_rng_state() if preserve_rng_state else None
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn:
            raise ValueError("Passing `context_fn` is only supported when use_reentrant=False.")
        if not any(isinstance(a, _core.Tensor) and a.requires_grad for a in args):
            warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
        return CheckpointFunction.apply(function, state, *args)
    first, second = context_fn()
    if not torch.is_grad_enabled():
        with first:
            return function(*args, **kwargs)

    def run() -> Any:
        with _random_state(state), second:
            return function(*map(_apart, args), **{name: _apart(value) for name, value in kwargs.items()})

    stop = early_stop if _early_stop is None else _early_stop
    frame = _Frame(run, stop, determinism_check == "default")
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: torch.nn.Sequential | Sequence[Callable[..., Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Call functions one after another, in `segments` parts, of which all but the last are checkpointed.

    Raises:
        ValueError: fewer functions than parts, or keyword arguments that `checkpoint` does not take.
    """
    modules = list(functions.children()) if isinstance(functions, torch.nn.Sequential) else list(functions)
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    size = len(modules) // segments
    if size == 0:
        raise ValueError(f"{len(modules)} functions cannot be divided into {segments} segments")

    def part(start: int, end: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for module in modules[start:end]:
                value = module(value)
            return value

        return run

    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(part(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return part(end, len(modules))(input)
