"""Why a tensor has no gradient: what its state and the graph behind a result say, and what a run of a function shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rustgrad import _core
from rustgrad._core import Tensor
from rustgrad.graph._tracing import Reason, run_traced
from rustgrad.graph._walk import Line, functions, line_of

__all__ = ["Explanation", "explain_grad"]

_SHOWN = 20
"""Steps of a path that are printed: its two ends."""


@dataclass(frozen=True)
class Explanation:
    """Why `.grad` is None, or that it is not. `print` it."""

    reason: Reason
    """
    - `present`: there is a gradient;
    - `not_required`: `requires_grad` is False;
    - `not_differentiable`: the dtype has no gradients;
    - `not_leaf`: the tensor was computed, and `retain_grad()` was not called;
    - `no_history`: the result was computed from nothing that requires grad, as far as its graph tells;
    - `not_in_graph`: the result's graph does not lead to the tensor;
    - `excluded`: a backward went elsewhere, by its `inputs=` or as `autograd.grad`;
    - `freed`: a backward has passed, and the gradient was taken away since or never stored;
    - `not_run`: the graph leads to the tensor, and no backward has run.

    Of a function that was run:

    - `detached`, `no_grad`, `inference_mode`: there the history was lost;
    - `not_differentiable`: an operation computes what has no gradient, such as integers;
    - `left`: it went on as numbers or as a numpy array.
    """
    text: str
    """The answer in a sentence or two."""
    path: tuple[str, ...] = ()
    """The nodes from the result to the tensor, each with its line if that is known."""
    line: Line | None = None
    """The line that is to blame, if one is known."""

    def __str__(self) -> str:
        steps = [f"  {'-> ' if k else ''}{step}" for k, step in enumerate(self.path)]
        if len(steps) > _SHOWN:
            steps[_SHOWN // 2 : -_SHOWN // 2] = [f"  ... {len(steps) - _SHOWN} more"]
        return "\n".join([self.text, *(["from the result to the tensor:", *steps] if steps else [])])


def explain_grad(tensor: Tensor, loss: Tensor | Callable[[], Tensor]) -> Explanation:
    """Say why `tensor.grad` is None after, or before, a backward from `loss`.

    Args:
        tensor: what should have a gradient: mostly a parameter.
        loss: the result that `backward` starts from, whose graph is looked at; nothing is computed. Or a function that
            computes the result: it is called once, and the line is named in which the tensor's gradient is lost. What
            depends on the tensor is kept while it runs.

    Raises:
        TypeError: an argument that is neither, or a function that returns no tensor.

    Example:
        >>> import rustgrad as torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> torch.explain_grad(w, (w.detach() * 2).sum()).reason
        'no_history'
        >>> torch.explain_grad(w, lambda: (w.detach() * 2).sum()).reason
        'detached'
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"explain_grad(): tensor must be a Tensor, got {type(tensor).__name__}")
    if not isinstance(loss, Tensor) and not callable(loss):
        raise TypeError(f"explain_grad(): loss must be a Tensor or a function, got {type(loss).__name__}")
    found = _of_itself(tensor)
    if found is not None:
        return found
    return _by_graph(tensor, loss) if isinstance(loss, Tensor) else _by_running(tensor, loss)


def _by_running(tensor: Tensor, run: Callable[[], Tensor]) -> Explanation:
    result, losses = run_traced(tensor, run)
    if not losses:
        return _by_graph(tensor, result)
    first = losses[0]
    more = "" if len(losses) == 1 else f" So it is in {len(losses) - 1} more places."
    where = "at an unknown line" if first.line is None else f"at {first.line}"
    return Explanation(first.kind, _LOST[first.kind].format(what=first.what, where=where) + more, line=first.line)


_LOST: dict[Reason, str] = {
    "detached": "What was computed from the tensor is detached by {what} {where}: no gradient passes.",
    "no_grad": "{what} {where} ran under no_grad(), or with gradients switched off, and recorded nothing.",
    "inference_mode": "{what} {where} ran in inference mode and recorded nothing.",
    "not_differentiable": "{what} {where} has no gradient: it computes integers or truth values, or its result is marked as "
    "not differentiable.",
    "left": "What was computed from the tensor became numbers by {what} {where}: if the result depends on it, then by "
    "these, through which no gradient passes.",
}


def _of_itself(tensor: Tensor) -> Explanation | None:
    """What can be said without looking at a graph."""
    # `.grad` of other tensors that were computed warns when it is read.
    if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
        return Explanation("present", "The tensor has a gradient: .grad is not None.")
    if not tensor.is_floating_point():
        return Explanation(
            "not_differentiable", f"The tensor is of dtype {tensor.dtype}: only floating-point tensors have gradients."
        )
    if not tensor.requires_grad:
        return Explanation("not_required", f"The tensor does not require grad. {_without_grad(tensor)}")
    return None


def _without_grad(tensor: Tensor) -> str:
    if tensor.is_inference():
        return "It was made in inference mode, where nothing is recorded: make it outside, or clone() it."
    return (
        "If it is a parameter, call requires_grad_(); if it was computed, nothing that requires grad went into it, or "
        "that happened under no_grad(), or it was detached."
    )


def _by_graph(tensor: Tensor, loss: Tensor) -> Explanation:
    target, _ = _core._gradient_edge(tensor)
    if tensor is loss:
        path: list[Any] | None = [target]
    elif not loss.requires_grad:
        return Explanation("no_history", _no_history(loss))
    else:
        path = _path(_core._gradient_edge(loss)[0], target)
    if path is None:
        return Explanation("not_in_graph", _not_in_graph(tensor, loss))
    steps = tuple(map(_step, path))
    if not tensor.is_leaf and not tensor.retains_grad:
        line = line_of(target)
        made = f" (made by {_step(target)})"
        return Explanation(
            "not_leaf",
            f"The tensor was computed{made}, and only leaves keep their gradient: call retain_grad() on it before "
            "backward, or ask autograd.grad for its gradient. If it stands for a parameter, keep the leaf it was "
            "computed from, and compute it anew in each step.",
            steps,
            line,
        )
    kept = [_core._node_saved(node) for node in path]
    some_freed, some_left = any(saved is None for saved in kept), any(kept)
    if some_freed and some_left:
        return Explanation(
            "excluded",
            "A backward has run through a part of the path from the result to the tensor, and not through the rest: "
            "its inputs= left the tensor out, or it was autograd.grad for other tensors.",
            steps,
        )
    if some_freed:
        return Explanation(
            "freed",
            "A backward has run along the path from the result to the tensor, whose saved values are freed, and .grad "
            "is None since: it was reset (zero_grad() sets it to None), or the gradients went to autograd.grad, or "
            "inputs= left the tensor out. Another backward needs a new forward, or retain_graph=True in the first.",
            steps,
        )
    return Explanation(
        "not_run",
        "The graph leads from the result to the tensor, and no backward has run through it, or it has kept the graph and "
        ".grad was reset since: call backward() on the result.",
        steps,
    )


def _no_history(loss: Tensor) -> str:
    if not loss.is_floating_point():
        return (
            f"The result is of dtype {loss.dtype}: what computes integers or truth values (a comparison, argmax, a cast) "
            "has no gradient."
        )
    return (
        "The result has no history: nothing that requires grad went into it, or that happened under no_grad(), or it "
        "was detached, or came through numbers, numpy or an integer dtype on the way."
    )


def _not_in_graph(tensor: Tensor, loss: Tensor) -> str:
    text = "The graph of the result does not lead to the tensor: it was not used, or detached on the way"
    alias = _alias(tensor, loss)
    if alias is not None:
        return f"{text}. Another tensor in the same memory was used: {alias}, whose gradient it is."
    return f"{text}, or used under no_grad(), or through numbers, numpy or an integer dtype."


def _alias(tensor: Tensor, loss: Tensor) -> str | None:
    """A leaf of the graph that lies in the tensor's memory and is not the tensor."""
    memory = _core._storage_of(tensor).id
    for function in functions([_core._gradient_edge(loss)[0]]):
        leaf = getattr(function, "variable", None)
        if leaf is not None and _core._storage_of(leaf).id == memory:
            return f"a leaf of shape {list(leaf.shape)}, dtype {leaf.dtype}"
    return None


def _path(start: Any, target: Any) -> list[Any] | None:
    """A shortest way from node to node, both ends included."""
    came_from: dict[Any, Any] = {start: None}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if node is target:
            path = []
            while node is not None:
                path.append(node)
                node = came_from[node]
            return path[::-1]
        for source, _ in node.next_functions:
            if source is not None and source not in came_from:
                came_from[source] = node
                queue.append(source)
    return None


def _step(node: Any) -> str:
    line = line_of(node)
    name: str = node.name().rsplit("::", 1)[-1]
    return name if line is None else f"{name} at {line}"
