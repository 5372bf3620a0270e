"""`rustgrad.autograd`: `backward` and `grad` with PyTorch's signatures, and the grad modes.

This file turns what the user may pass (one tensor, a sequence, a dict, nothing) into the tuples that the engine takes,
and the answer back into the shape that was asked for. Checks that look at a tensor are the engine's.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from rustgrad import _core
from rustgrad.autograd import function as function
from rustgrad.autograd import grad_mode as grad_mode
from rustgrad.autograd import graph as graph
from rustgrad.autograd import variable as variable
from rustgrad.autograd.function import Function as Function
from rustgrad.autograd.grad_mode import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from rustgrad.autograd.scheduler import scheduler_trace
from rustgrad.autograd.variable import Variable as Variable

if TYPE_CHECKING:
    from rustgrad._core import Tensor

__all__ = [
    "Function",
    "Variable",
    "backward",
    "enable_grad",
    "enforce_grad_layout_policy",
    "function",
    "grad",
    "grad_mode",
    "graph",
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "scheduler_trace",
    "set_grad_enabled",
    "set_multithreading_enabled",
    "variable",
]

is_multithreading_enabled = _core._is_multithreading_enabled

# A tensor, or anything else that names one output of one node (a gradient edge).
_Edge: TypeAlias = "Tensor | Any"
_Grads: TypeAlias = "Tensor | Sequence[Tensor | None] | None"


def _edges(value: _Edge | Sequence[_Edge]) -> tuple[Any, ...]:
    """One tensor or gradient edge, or a sequence of them, as a tuple. A gradient edge may itself be a tuple."""
    return (value,) if hasattr(value, "output_nr") else tuple(value)


def _input_edges(inputs: Any, caller: str) -> tuple[Any, ...]:
    edges = tuple(inputs.values()) if isinstance(inputs, Mapping) else _edges(inputs)
    if not edges:
        raise RuntimeError(f"`inputs` argument to `{caller}()` cannot be empty.")
    return edges


def _cotangents(grads: _Grads, outputs: tuple[Any, ...]) -> tuple[Tensor | None, ...]:
    """`grads` as one entry per output; `None` stands for the implicit 1 of a one-element output."""
    if grads is None:
        return (None,) * len(outputs)
    given = _edges(grads)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    return given


def backward(
    tensors: _Edge | Sequence[_Edge],
    grad_tensors: _Grads = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: _Grads = None,
    inputs: _Edge | Sequence[_Edge] | Mapping[str, Tensor] | None = None,
) -> None:
    """Compute the gradient of `tensors` and add it into the `.grad` of the leaves.

    Args:
        tensors: the outputs to differentiate, tensors or gradient edges.
        grad_tensors: the vector of the vector-Jacobian product, one entry per output, of the output's shape;
            may be left out (or `None`) for outputs with one element.
        retain_graph: keep what the graph saved for another backward. Default: the value of `create_graph`.
        create_graph: record the gradient computation too, so that it can be differentiated again.
        grad_variables: an old name of `grad_tensors`.
        inputs: accumulate only into these, which need not be leaves. Default: all leaves that require grad.

    Raises:
        RuntimeError: an output does not require grad; an output with several elements has no vector; the numbers of
            outputs and vectors, or their shapes, differ; `inputs` is empty; the graph was freed already.
    """
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. "
                "Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    targets = None if inputs is None else _input_edges(inputs, "backward")
    outputs = _edges(tensors)
    _core.backward(
        outputs,
        _cotangents(grad_tensors, outputs),
        create_graph if retain_graph is None else retain_graph,
        create_graph,
        targets,
    )


@overload
def grad(
    outputs: _Edge | Sequence[_Edge],
    inputs: Mapping[str, Tensor],
    grad_outputs: _Grads = ...,
    retain_graph: bool | None = ...,
    create_graph: bool = ...,
    only_inputs: bool = ...,
    allow_unused: bool | None = ...,
    is_grads_batched: bool = ...,
    materialize_grads: bool = ...,
) -> dict[str, Tensor]: ...
@overload
def grad(
    outputs: _Edge | Sequence[_Edge],
    inputs: _Edge | Sequence[_Edge],
    grad_outputs: _Grads = ...,
    retain_graph: bool | None = ...,
    create_graph: bool = ...,
    only_inputs: bool = ...,
    allow_unused: bool | None = ...,
    is_grads_batched: bool = ...,
    materialize_grads: bool = ...,
) -> tuple[Tensor, ...]: ...
def grad(
    outputs: _Edge | Sequence[_Edge],
    inputs: _Edge | Sequence[_Edge] | Mapping[str, Tensor],
    grad_outputs: _Grads = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...] | dict[str, Tensor]:
    """The gradients of the sum of `outputs` (weighted by `grad_outputs`) with respect to `inputs`; touches no `.grad`.

    Args:
        outputs: the outputs to differentiate, tensors or gradient edges.
        inputs: what to differentiate by: tensors (leaves or not), gradient edges, or a dict of tensors.
        grad_outputs: the vector of the vector-Jacobian product, as in `backward`.
        retain_graph: keep what the graph saved for another backward. Default: the value of `create_graph`.
        create_graph: record the gradient computation too.
        only_inputs: accepted for old callers; the gradients of `inputs` are always the only ones computed.
        allow_unused: return `None` for an input that the outputs do not depend on, instead of raising.
            Default: the value of `materialize_grads`.
        is_grads_batched: the first dimension of each of `grad_outputs` is a batch of vectors, and that of each result.
        materialize_grads: return zeros for inputs that the outputs do not depend on.

    Returns:
        One gradient per input in the order of `inputs`, each of its input's shape; a dict if `inputs` is one.

    Raises:
        RuntimeError: as for `backward`; an input does not require grad, or is unused and `allow_unused` is false.
        ValueError: `materialize_grads=True` with `allow_unused=False`.
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). "
            "To accumulate gradient for other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    targets = _input_edges(inputs, "grad")
    if materialize_grads and not all(isinstance(target, _core.Tensor) for target in targets):
        raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
    sources = _edges(outputs)
    vectors = _cotangents(grad_outputs, sources)
    retain = create_graph if retain_graph is None else retain_graph
    unused = materialize_grads if allow_unused is None else allow_unused
    if is_grads_batched:
        found = _batched_grad(sources, targets, vectors, retain, create_graph, unused, materialize_grads)
    else:
        found = _core.grad(sources, targets, vectors, retain, create_graph, unused, materialize_grads)
    if isinstance(inputs, Mapping):
        return dict(zip(inputs, cast("tuple[Tensor, ...]", found), strict=True))
    return cast("tuple[Tensor, ...]", found)


def _batched_grad(
    outputs: tuple[Any, ...],
    inputs: tuple[Any, ...],
    vectors: tuple[Tensor | None, ...],
    retain_graph: bool,
    create_graph: bool,
    allow_unused: bool,
    materialize_grads: bool,
) -> tuple[Tensor | None, ...]:
    """One vector-Jacobian product per entry of the vectors' first dimension, stacked."""
    for position, (output, vector) in enumerate(zip(outputs, vectors, strict=True)):
        if vector is not None and isinstance(output, _core.Tensor) and vector.shape[1:] != output.shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                "dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{position}] has a shape of {vector.shape} and "
                f"output[{position}] has a shape of {output.shape}."
            )
    batch = {len(v) for v in vectors if v is not None}
    if len(batch) != 1 or any(v is None for v in vectors):
        raise RuntimeError(
            "is_grads_batched=True needs a grad_outputs for every output, all with the same first dimension."
        )
    (count,) = batch
    if count == 0:
        raise RuntimeError("is_grads_batched=True needs at least one vector in grad_outputs.")
    rows = [
        _core.grad(
            outputs,
            inputs,
            tuple(v[row] for v in vectors if v is not None),
            retain_graph or row + 1 < count,
            create_graph,
            allow_unused,
            materialize_grads,
        )
        for row in range(count)
    ]
    return tuple(None if column[0] is None else _core.stack(column) for column in zip(*rows, strict=True))
