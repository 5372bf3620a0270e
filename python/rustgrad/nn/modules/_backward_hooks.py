"""What makes backward hooks of modules fire: identity nodes at a module's two boundaries, and the hooks on them.

`Boundary` serves one call of one module. The old hooks, which sit on the last operation instead, are at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rustgrad import _core
from rustgrad._core import Tensor
from rustgrad.autograd.function import Function

if TYPE_CHECKING:
    from rustgrad.nn.modules._calling import Hooked

__all__ = ["Boundary", "attach_legacy"]

_Grads: TypeAlias = tuple[Tensor | None, ...]


class BackwardHookFunction(Function):
    """Passes tensors on unchanged: one node in which the gradients of all of them meet."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors themselves."""
        ctx.mark_non_differentiable(*(tensor for tensor in tensors if not tensor.requires_grad))
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        """The gradients themselves."""
        return grads


class _Side:
    """The tensors among a module's inputs or outputs, and how many values there are in all."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.count = len(values)
        self.places = [place for place, value in enumerate(values) if isinstance(value, Tensor)]

    def spread(self, grads: Sequence[Tensor | None]) -> _Grads:
        """One entry a value, None where the value is no tensor."""
        spread: list[Tensor | None] = [None] * self.count
        for place, grad in zip(self.places, grads, strict=True):
            spread[place] = grad
        return tuple(spread)

    def gather(self, grads: Sequence[Tensor | None]) -> _Grads:
        """The entries of the tensors."""
        return tuple(grads[place] for place in self.places)


def _joined(values: tuple[Any, ...], side: _Side) -> tuple[tuple[Any, ...], Any]:
    """`values` with their tensors led through one node, and the node; None where nothing needs a gradient."""
    tensors = [values[place] for place in side.places]
    if not (_core.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return values, None
    passed = BackwardHookFunction.apply(*tensors)
    node = next(_core._grad_fn(tensor) for tensor in passed if tensor.requires_grad)
    changed = list(values)
    for place, tensor in zip(side.places, passed, strict=True):
        changed[place] = tensor
    kind = type(values)  # a named tuple takes its fields one by one
    return (kind(*changed) if hasattr(kind, "_fields") else kind(changed)), node


class Boundary:
    """The two nodes around one call of a module, and the hooks that they run.

    Backward reaches the node at the outputs first: its hooks see, and may replace, the gradients of the outputs. The node
    at the inputs comes once all their gradients are in; if there is none, its hooks run at the outputs too.
    """

    def __init__(
        self, module: Hooked, hooks: Sequence[Callable[..., Any]], pre_hooks: Sequence[Callable[..., Any]]
    ) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.inputs = self.outputs = _Side(())
        self.has_input_node = False
        self.grad_outputs: _Grads | None = None

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call `forward` with."""
        self.inputs = _Side(args)
        args, node = _joined(args, self.inputs)
        if node is not None:
            self.has_input_node = True
            node.register_hook(self._at_inputs)
        return args

    def leave(self, result: Any) -> Any:
        """What the call returns."""
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                f"but received {type(result)}",
                stacklevel=5,
            )
            return result
        values = (result,) if isinstance(result, Tensor) else result
        self.outputs = _Side(values)
        values, node = _joined(values, self.outputs)
        if node is not None:
            node.register_hook(self._at_outputs)
        return values[0] if isinstance(result, Tensor) else values

    def _at_outputs(self, _: _Grads, grads: _Grads) -> _Grads:
        grad_outputs = self.outputs.spread(grads)
        for hook in self.pre_hooks:
            replaced = hook(self.module, grad_outputs)
            if replaced is None:
                continue
            if len(replaced) != self.outputs.count:
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, "
                    f"got {len(replaced)}, but expected {self.outputs.count}"
                )
            grad_outputs = replaced
        if self.has_input_node:
            self.grad_outputs = grad_outputs
        else:
            self._without_inputs(grad_outputs)
        return self.outputs.gather(grad_outputs)

    def _without_inputs(self, grad_outputs: _Grads) -> None:
        if self.hooks:
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module outputs since no "
                "inputs require gradients.",
                stacklevel=2,
            )
        for hook in self.hooks:
            replaced = hook(self.module, (None,) * self.inputs.count, grad_outputs)
            if replaced is not None and not (isinstance(replaced, tuple) and all(grad is None for grad in replaced)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None "
                    "or None for all gradients."
                )

    def _at_inputs(self, grads: _Grads, _: _Grads) -> _Grads | None:
        if self.grad_outputs is None:
            return None  # the gradient came past the outputs: a second derivative, or a tensor kept from inside
        grad_inputs = self.inputs.spread(grads)
        for hook in self.hooks:
            replaced = hook(self.module, grad_inputs, self.grad_outputs)
            if replaced is None:
                continue
            if len(replaced) != self.inputs.count:
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, "
                    f"got {len(replaced)}, but expected {self.inputs.count}"
                )
            grad_inputs = replaced
        self.grad_outputs = None
        return self.inputs.gather(grad_inputs)


# ---- the old hooks -------------------------------------------------------------------------------------------------


class _Bound:
    """A hook of a node that gives the module to a hook of a module."""

    def __init__(self, hook: Callable[..., Any], module: Hooked) -> None:
        self.hook = hook
        self.module = module

    def __call__(self, grad_inputs: _Grads, grad_outputs: _Grads) -> Any:
        return self.hook(self.module, grad_inputs, grad_outputs)


def _first_tensor(value: Any) -> Any:
    while not isinstance(value, Tensor):
        value = (
            next(part for part in value.values() if isinstance(part, Tensor)) if isinstance(value, dict) else value[0]
        )
    return value


def _all_tensors(values: Any) -> bool:
    return isinstance(values, Tensor) or (
        isinstance(values, tuple) and all(isinstance(value, Tensor) for value in values)
    )


def _nodes(values: Any) -> set[Any]:
    tensors = (values,) if isinstance(values, Tensor) else values
    return {_core._grad_fn(tensor) for tensor in tensors} - {None}


def attach_legacy(module: Hooked, hooks: Sequence[Callable[..., Any]], args: tuple[Any, ...], result: Any) -> None:
    """Put the hooks of `register_backward_hook` on the operation that made the (first) output, and say what they miss."""
    node: Any = _core._grad_fn(_first_tensor(result))
    if node is None:
        return
    for hook in hooks:
        node.register_hook(_Bound(hook, module))
    if not _all_tensors(result):
        where, missing = (
            "on a Module that does not return a single Tensor or a tuple of Tensors",
            "some of the grad_output",
        )
    elif not _all_tensors(args):
        where, missing = (
            "on a Module that does not take as input a single Tensor or a tuple of Tensors",
            "some of the grad_input",
        )
    elif _nodes(result) != {node}:
        where, missing = "when outputs are generated by different autograd Nodes", "some grad_output"
    elif _nodes(args) != {previous for previous, _ in node.next_functions}:
        where, missing = "when the forward contains multiple autograd Nodes", "some grad_input"
    else:
        return
    hook_name = "non-full backward hooks" if where.startswith("on") else "a non-full backward hook"
    warnings.warn(
        f"Using {hook_name} {where} is deprecated and will be removed in future versions. "
        f"This hook will be missing {missing}. "
        "Please use register_full_backward_hook to get the documented behavior.",
        FutureWarning,
        stacklevel=5,
    )
