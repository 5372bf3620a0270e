"""`Parameter` and `Buffer`: tensors that a `Module` registers when they are assigned to one of its attributes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

from rustgrad import _core
from rustgrad._core import Tensor

__all__ = ["Buffer", "Parameter"]


class _ParameterType(type(Tensor)):  # type: ignore[misc]  # the metaclass of the extension's class
    """Makes a tensor subclass that carries the mark `_is_param` an instance of `Parameter`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False):
            return True
        return bool(super().__instancecheck__(instance))


class Parameter(Tensor, metaclass=_ParameterType):
    """A tensor that is learnt.

    Args:
        data: the values; the parameter shares their memory. Default: an empty tensor.
        requires_grad: whether gradients are computed for it, also when made under `no_grad`.

    Raises:
        RuntimeError: `requires_grad=True` for a dtype that is not floating point.

    Example:
        >>> import rustgrad as torch
        >>> torch.nn.Parameter(torch.zeros(2))
        Parameter containing:
        tensor([0., 0.], requires_grad=True)
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = _core.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            made: Parameter = Tensor._make_subclass(cls, data, requires_grad)
            return made
        # Another subclass stays what it is, and is marked instead.
        marked: Any = data.detach().requires_grad_(requires_grad)
        kept = type(marked) is type(data)
        if not kept:
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} "
                "requires that detach() returns an instance of the same type, "
                f"but return type {type(marked).__name__} was found instead."
            )
        marked._is_param = True
        return cast(Parameter, marked)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A parameter of its own memory, without `.grad` and hooks."""
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.data.clone(), self.requires_grad)
        copy: Parameter = memo[id(self)]
        return copy

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_parameter, (self.data, self.requires_grad, OrderedDict(), dict(self.__dict__) or None)


def _rebuild_parameter(
    data: Tensor, requires_grad: bool, hooks: OrderedDict[int, Any], attributes: dict[str, Any] | None = None
) -> Parameter:
    """What unpickling a parameter calls. `hooks` is always empty: hooks are not pickled."""
    parameter = Parameter(data, requires_grad)
    if attributes:
        parameter.__dict__.update(attributes)
    return parameter


class _BufferType(type(Tensor)):  # type: ignore[misc]  # the metaclass of the extension's class
    """Makes every tensor that carries the mark `_is_buffer` an instance of `Buffer`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False):
            return True
        return bool(super().__instancecheck__(instance))


class Buffer(Tensor, metaclass=_BufferType):
    """A tensor that belongs to a module's state but is not learnt.

    Args:
        data: the values; the buffer shares their memory. Default: an empty tensor.
        persistent: whether the buffer is part of the module's `state_dict`.

    The object made is a plain tensor with a mark, so that operations treat it like any other.
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = _core.empty(0)
        marked: Any = data.detach().requires_grad_(data.requires_grad)
        marked.persistent = persistent
        marked._is_buffer = True
        return cast(Buffer, marked)
