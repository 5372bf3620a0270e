"""`rustgrad.autograd.graph`: the graph from Python: nodes, edges, hooks on saved values and on several gradients at once."""

from __future__ import annotations

import contextlib
import threading
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
    "Node",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
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

    nodes = [get_gradient_edge(t).node for t in tensors]
    waiting: dict[int, tuple[list[Tensor | None], list[int]]] = {}

    def collect(place: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            task = _core._current_graph_task_id()
            with lock:
                if task not in waiting:
                    expected = sum(map(_core._will_engine_execute_node, nodes))
                    waiting[task] = ([None] * len(nodes), [expected])
                grads, missing = waiting[task]
                grads[place] = grad
                missing[0] -= 1
                if missing[0]:
                    return
                del waiting[task]
            fn(grads)  # type: ignore[arg-type]

        return hook

    return _MultiHandle([t.register_hook(collect(place)) for place, t in enumerate(tensors)])
