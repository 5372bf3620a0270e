"""Dtypes and devices of modules: `Movable` is the half of `Module` that replaces the data of all parameters and buffers.

Registration and traversal are in `module.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from rustgrad import _core
from rustgrad._core import Tensor, device, dtype
from rustgrad.autograd.grad_mode import no_grad
from rustgrad.nn.parameter import Parameter

if TYPE_CHECKING:
    from rustgrad.nn.modules.module import Module

__all__ = ["Movable"]


def _parse_to(
    args: tuple[Any, ...],
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    tensor: Tensor | None = None,
    memory_format: Any = None,
) -> tuple[Any, Any, bool, Any]:
    """The arguments of `Module.to` as (device, dtype, non_blocking, memory_format); `None` means "as it is"."""
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        tensor = rest.pop(0)
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    else:
        if rest and (rest[0] is None or not isinstance(rest[0], (_core.dtype, bool))):
            device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], _core.dtype)):
            dtype = rest.pop(0)
    if rest and isinstance(rest[0], bool):
        non_blocking = rest.pop(0)
    if rest:
        raise TypeError(f"to() received an invalid combination of arguments: unexpected {rest[0]!r}")
    if isinstance(device, str):
        device = _core.device(device)
    if device is not None and not isinstance(device, _core.device):
        raise TypeError(f"to() received an invalid combination of arguments: {type(device).__name__} is not a device")
    return device, dtype, non_blocking, memory_format


class Movable:
    """Casting and moving, for a tree of modules."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    # A variable, as `Module` has it as a method.
    children: Callable[[], Iterator[Module]]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the data of every parameter, of its gradient, and every buffer by `fn` of it."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for param in self._parameters.values():
            if param is None:
                continue
            grad = param.grad
            with no_grad():
                applied = fn(param)
                if applied is param:
                    continue
                # The gradient is off the parameter while the two disagree in dtype or device.
                param.grad = None
                param.data = applied
                if grad is not None:
                    grad.data = fn(grad)
                    param.grad = grad
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move parameters and buffers to a device, and the floating-point ones to a dtype, in place.

        Called as `to(device=None, dtype=None, non_blocking=False)`, `to(dtype)`, `to(tensor)` or
        `to(memory_format=...)`, which holds for what has 4 or 5 dimensions.

        Raises:
            TypeError: the dtype is not floating point.
        """
        where, kind, non_blocking, layout = _parse_to(args, **kwargs)
        if kind is not None and not (kind.is_floating_point or kind.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={kind}")

        def move(tensor: Tensor) -> Tensor:
            goal = kind if kind is not None and tensor.is_floating_point() else tensor.dtype
            place = tensor.device if where is None else where
            if layout is not None and tensor.dim() in (4, 5):
                return tensor.to(place, goal, non_blocking, memory_format=layout)
            return tensor.to(place, goal, non_blocking)

        return self._apply(move)

    def cpu(self) -> Self:
        """Move parameters and buffers to the CPU."""
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self, device: device | int | None = None) -> Self:
        """Move parameters and buffers to a GPU of NVIDIA's.

        Raises:
            AssertionError: always, where there is a parameter or buffer.
        """

        def move(tensor: Tensor) -> Tensor:
            tensor.cuda(device)  # raises: a build that has such a device will return something
            return tensor

        return self._apply(move)

    def type(self, dst_type: dtype | str) -> Self:
        """Cast all parameters and buffers, also integer ones, to `dst_type`."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def _cast(self, kind: dtype) -> Self:
        return self._apply(lambda tensor: tensor.to(kind) if tensor.is_floating_point() else tensor)

    def float(self) -> Self:
        """Cast floating-point parameters and buffers to float32."""
        return self._cast(_core.float32)

    def double(self) -> Self:
        """Cast floating-point parameters and buffers to float64."""
        return self._cast(_core.float64)

    def half(self) -> Self:
        """Cast floating-point parameters and buffers to float16."""
        return self._cast(_core.float16)

    def bfloat16(self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16."""
        return self._cast(_core.bfloat16)

    def to_empty(self, *, device: device | str | None, recurse: bool = True) -> Self:
        """Give parameters and buffers fresh, uninitialised memory on `device`."""
        return self._apply(lambda tensor: _core.empty_like(tensor, device=device), recurse=recurse)
