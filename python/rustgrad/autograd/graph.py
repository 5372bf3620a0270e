"""`rustgrad.autograd.graph`: the graph from Python: nodes, edges, hooks on saved values and on several gradients at once."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rustgrad import _core
from rustgrad._core import Node as Node
from rustgrad.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from types import TracebackType

    from rustgrad._core import Tensor

__all__ = [
    "GradientEdge",
    "HeldObject",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "live_payloads",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_warn_on_accumulate_grad_stream_mismatch",
]


class GradientEdge(NamedTuple):
    """One output of one node: what `backward` and `grad` take where a tensor may be gone or changed in place since.

    `ownership_token` keeps alive what the node needs, if anything; it means nothing by itself.
    """

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor | GradientEdge) -> GradientEdge:
    """The edge that the gradient of `tensor` goes to: to its `grad_fn`, or to a leaf's accumulation.

    Raises:
        RuntimeError: the tensor does not require grad.
    """
    if isinstance(tensor, GradientEdge):
        return tensor
    node, output_nr = _core._gradient_edge(tensor)
    return GradientEdge(node, output_nr)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a change of the data that no operation made, so that backward finds values that are not what was saved.

    Raises:
        RuntimeError: an inference tensor.
    """
    for one in (tensor,) if isinstance(tensor, _core.Tensor) else tensor:
        _core._increment_version(one)


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Accepted for PyTorch's callers: no device here has several streams, so that there is nothing to warn of."""


_disabled = threading.local()


class saved_tensors_hooks:
    """Within this context, every value saved for backward goes through a pair of functions.

    Args:
        pack_hook: called once with each value when it is saved (detached, in grad mode off); what it returns is kept
            instead. It must not change the value in place.
        unpack_hook: called with what was kept each time backward needs the value; returns a tensor of the same shape
            and dtype.

    Only the innermost pair is used, on the thread that entered it.

    Raises:
        RuntimeError: on entry, if hooks are disabled (see `disable_saved_tensors_hooks`); from an operation, if
            `pack_hook` changes its argument.
        TypeError: from backward, if `unpack_hook` returns no tensor.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        message = getattr(_disabled, "message", None)
        if message is not None:
            raise RuntimeError(message)
        _core._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _core._pop_saved_tensors_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Within this context, values saved for backward wait in main memory, and go back to their device when needed.

    Args:
        pin_memory: accepted for PyTorch's callers; memory that is shared with a device is the backend's business.
        device_type: accepted for PyTorch's callers.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(value: Tensor) -> tuple[Any, Tensor]:
            # A copy, even from main memory: what is kept must not be what an in-place operation changes.
            return value.device, value.detach().clone()

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, value = packed
            return value.to(device)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within this context, entering `saved_tensors_hooks` raises `RuntimeError(error_message)`."""
    before = getattr(_disabled, "message", None)
    _disabled.message = error_message
    try:
        yield
    finally:
        _disabled.message = before


class _Kept:
    """A value saved while changes in place were allowed: where `unpack` finds it."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Tensor) -> None:
        self.value: Tensor | None = value


class _AllowMutationOnSavedContext:
    """What `allow_mutation_on_saved_tensors` gives its block. The graph owns what is kept; this only finds it."""

    def __init__(self) -> None:
        self._by_storage: dict[int, weakref.WeakSet[_Kept]] = {}

    def _pack(self, value: Tensor) -> _Kept:
        kept = _Kept(value)
        self._by_storage.setdefault(value._storage_id(), weakref.WeakSet()).add(kept)
        return kept

    @staticmethod
    def _unpack(kept: _Kept) -> Tensor:
        if kept.value is None:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"
                "in which the graph was originally recorded."
            )
        return kept.value

    def _before_write(self, target: Tensor) -> None:
        """Copy what was saved of the memory that is about to be written."""
        for kept in self._by_storage.pop(target._storage_id(), ()):
            if kept.value is not None:
                kept.value = kept.value.clone()

    def clear(self) -> None:
        """Forget everything saved so far: a backward that needs it raises `AssertionError`."""
        for saved in self._by_storage.values():
            for kept in saved:
                kept.value = None
        self._by_storage.clear()


_mutable = threading.local()


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_AllowMutationOnSavedContext]:
    """Within this context, values saved for backward may be changed in place: they are copied just before.

    Only values that are saved and changed inside, on the same thread, are treated so. The backward has to run inside, too.

    Yields:
        An object whose `clear()` lets go of everything that was saved.

    Raises:
        RuntimeError: contexts are nested.
        AssertionError: from a backward outside of the context.
    """
    if getattr(_mutable, "inside", False):
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _AllowMutationOnSavedContext()
    with saved_tensors_hooks(context._pack, context._unpack):
        _mutable.inside = True
        _core._set_write_watch(context._before_write)
        try:
            yield context
        finally:
            _core._set_write_watch(None)
            _mutable.inside = False
            context.clear()


class HeldObject(NamedTuple):
    """A Python object that the graph holds."""

    holder: str
    """The node, by name, or the leaf, by shape."""
    object: Any
    """The hook, context, packed value or metadata."""
    collectable: bool
    """Whether the garbage collector is told who holds it, so that a cycle through it is collected. It is not where several
    tensors or nodes that Python holds share the holder: keep fewer of them, or remove the hook."""


def live_payloads() -> list[HeldObject]:
    """The Python objects held by the graphs of all tensors and nodes that are alive: where to look for a leak."""
    wrappers = [item for item in gc.get_objects() if issubclass(type(item), _core.Tensor | _core.Node)]
    return [HeldObject(*held) for held in _core._live_payloads(wrappers)]


class _MultiHandle(RemovableHandle):
    """Removes the hooks of several tensors."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.id = RemovableHandle.next_id
        self.reserve(self.id)
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[[Sequence[Tensor | None]], None] | Callable[[Tensor], None],
    *,
    mode: Literal["all", "any"] = "all",
) -> RemovableHandle:
    """Call `fn` with the gradients of several tensors.

    Args:
        tensors: which all require grad.
        fn: called with a list of their gradients, `None` for those that the running backward does not compute
            (`mode="all"`), or with the first of them (`mode="any"`).
        mode: `"all"`: once in each backward, when all gradients that it computes are there. `"any"`: once in each
            backward, with the first.

    Returns:
        A handle whose `remove()` takes the hook away.

    Raises:
        ValueError: another mode.
        RuntimeError: a tensor does not require grad.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    if mode == "any":
        # Backwards that were seen; more than these never run inside one another at a time.
        seen: deque[int] = deque(maxlen=64)

        def first(grad: Tensor) -> None:
            task = _core._current_graph_task_id()
            with lock:
                if task in seen:
                    return
                seen.append(task)
            fn(grad)  # type: ignore[arg-type]

        return _MultiHandle([t.register_hook(first) for t in tensors])

    probes = [_core._gradient_probe(t) for t in tensors]
    waiting: dict[int, tuple[list[Tensor | None], list[int]]] = {}

    def collect(place: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            task = _core._current_graph_task_id()
            with lock:
                if task not in waiting:
                    expected = sum(probe.is_computed() for probe in probes)
                    waiting[task] = ([None] * len(probes), [expected])
                grads, missing = waiting[task]
                grads[place] = grad
                missing[0] -= 1
                if missing[0]:
                    return
                del waiting[task]
            fn(grads)  # type: ignore[arg-type]

        return hook

    return _MultiHandle([t.register_hook(collect(place)) for place, t in enumerate(tensors)])
