"""Custom functions: a forward and a backward written in Python, as one node of the graph.

The context that both get is the node's own Python object, so what is set on it lives as long as the node does.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rustgrad import _core

if TYPE_CHECKING:
    from rustgrad._core import Tensor

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "FunctionMeta",
    "InplaceFunction",
    "once_differentiable",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class FunctionCtx:
    """What `forward`, `setup_context` and `backward` of a custom function share."""

    to_save: Sequence[Tensor | None] | None = None
    dirty_tensors: Sequence[Tensor] = ()
    non_differentiable: Sequence[Tensor] = ()
    materialize_grads: bool = True
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for `backward`, where they are `saved_tensors`. A later call replaces an earlier one.

        `apply` raises a `TypeError` if the call is recorded and something else than a tensor or None is to be kept.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for `jvp`. They are kept as any attribute is."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare that inputs were modified in place. Each must be returned."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare that outputs have no gradient. `backward` still gets an argument for each, of zeros."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether undefined gradients reach `backward` as zeros (the default) or as None."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to `save_for_backward`; none before `forward` has returned.

        Raises:
            RuntimeError: one was modified in place since, or the graph has been freed.
        """
        return _core._function_saved(self)

    @property
    def saved_variables(self) -> tuple[Tensor | None, ...]:
        """An old name of `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors


class BackwardCFunction(FunctionCtx, _core.Node):
    """The class of the nodes of custom functions; each function has a subclass, named after it."""

    _forward_cls: type[Function]

    def name(self) -> str:
        """The name of the function with `Backward` after it; also while `forward` runs."""
        return type(self).__name__

    __repr__ = object.__repr__

    def apply(self, *grads: Tensor | None) -> Any:
        """Run the function's `backward` by hand."""
        return self._run_backward(grads)

    def _run_backward(self, grads: tuple[Tensor | None, ...]) -> Any:
        cls = self._forward_cls
        backward, vjp = cls.backward, cls.vjp
        if backward is not Function.backward and vjp is not Function.vjp:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. "
                "You should only implement one of them."
            )
        return (vjp if vjp is not Function.vjp else backward)(self, *grads)


class FunctionMeta(type):
    """Gives each custom function the class of its nodes."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        body = {"_forward_cls": cls, "__module__": __name__}
        cls._backward_cls = type(f"{name}Backward", (BackwardCFunction,), body)


class Function(metaclass=FunctionMeta):
    """A differentiable function of your own.

    Write `forward(ctx, *args)` and `backward(ctx, *grads)` as static methods, or `forward(*args)` with
    `setup_context(ctx, inputs, output)`, and call the function by `apply`.

    Example:
        >>> import rustgrad as torch
        >>> class Cube(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x**3
        ...
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return 3 * x**2 * grad
        >>> x = torch.tensor(2.0, requires_grad=True)
        >>> Cube.apply(x).backward()
        >>> x.grad
        tensor(12.)
    """

    _backward_cls: type[BackwardCFunction]
    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. "
            "Please use new-style autograd function with static forward method. "
            "(Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs. Runs without recording history."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Put what `backward` needs on the context, after a `forward` that has no `ctx` argument."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """From the gradient of each output compute that of each argument of `forward`; None where there is none."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name of `backward`."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The forward derivative."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the function. Only tensors that are arguments themselves are tracked, not those inside lists."""
        ctx = cls._backward_cls()
        together = cls.setup_context is Function.setup_context
        if kwargs or (not together and _has_defaults(cls.forward)):
            args, kwargs = _bind(cls.forward, (ctx, *args) if together else args, kwargs)
            args = args[1:] if together else args

        def run() -> Any:
            if together:
                return cls.forward(ctx, *args, **kwargs)
            output = cls.forward(*args, **kwargs)
            cls.setup_context(ctx, args, output)
            return output

        return _core._function_apply(ctx, args, run)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        """The batching rule."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )


class InplaceFunction(Function):
    """An old base of functions that change an input; `mark_dirty` says so, and any `Function` may call it."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


def _has_defaults(forward: Callable[..., Any]) -> bool:
    """Whether a call may leave arguments out. What is no plain function may have any signature."""
    plain = getattr(forward, "__func__", forward)
    return not hasattr(plain, "__code__") or bool(plain.__defaults__) or hasattr(plain, "__wrapped__")


def _bind(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call by position where they have one, defaults included, so that each has its gradient's place."""
    import inspect  # would be most of this package's import time

    try:
        bound = inspect.signature(forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return args, kwargs  # the call itself says what is wrong with them
    bound.apply_defaults()
    return bound.args, bound.kwargs


def once_differentiable(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """Mark a `backward` whose result must not be differentiated: doing so raises."""

    @functools.wraps(fn)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        recording = _core.is_grad_enabled()
        _core._set_grad_enabled(False)
        try:
            outputs: Any = fn(*args, **kwargs)
        finally:
            _core._set_grad_enabled(recording)
        requires = recording and any(isinstance(a, _core.Tensor) and a.requires_grad for a in args)
        if not requires:
            return outputs  # type: ignore[no-any-return]
        many = isinstance(outputs, tuple)
        refused = tuple(
            _core._refuse_second(t) if isinstance(t, _core.Tensor) else t for t in (outputs if many else (outputs,))
        )
        return refused if many else refused[0]  # type: ignore[return-value]

    return wrapper
