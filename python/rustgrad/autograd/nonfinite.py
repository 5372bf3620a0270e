"""Finding where NaN and infinity come from."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rustgrad import _core
from rustgrad.autograd.grad_mode import _ModeGuard

__all__ = ["trace_nonfinite"]


class trace_nonfinite(_ModeGuard):
    """Stops at the operation, or at the step of a backward, that makes NaN or infinity of finite values.

    What merely passes such a value on is not to blame and does not raise; nor does an operation that was given one as a
    number, as `masked_fill(mask, -inf)` is.

    Args:
        forward: look at the results of operations.
        backward: look at the gradients that nodes compute.

    Raises:
        TypeError: an argument is not a bool.
        RuntimeError: from the operation, or from `backward` or `grad`. It names the operation or node, the first index of
            such a value, the range of everything that went in, and the line of the program that called the operation (for a
            node: that recorded it).

    A context manager and a decorator. Thread-local. Everything is computed as without it, more slowly.

    Example:
        >>> import rustgrad as torch
        >>> x = torch.zeros(2, requires_grad=True)
        >>> with torch.trace_nonfinite():
        ...     (x.sqrt() * 0).sum().backward()
        Traceback (most recent call last):
        RuntimeError: SqrtBackward0 produced NaN at index [0] of the gradient of its input 0, ...
    """

    def __init__(self, forward: bool = True, backward: bool = True) -> None:
        super().__init__()
        if not (isinstance(forward, bool) and isinstance(backward, bool)):
            raise TypeError(
                f"trace_nonfinite: forward and backward are True or False, got {forward!r} and {backward!r}"
            )
        self._forward, self._backward = forward, backward

    def _clone(self) -> Self:
        return type(self)(self._forward, self._backward)

    def __enter__(self) -> None:
        _core._push_nonfinite_tracer(self._forward, self._backward)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _core._pop_observer()
