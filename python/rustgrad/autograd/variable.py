"""`Variable`: the name that tensors with a history had once. It makes tensors, and every tensor is one; and the door to
the engine that is still found there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from rustgrad import _core

__all__ = ["Variable"]


class _Engine:
    """What runs backwards."""

    @staticmethod
    def queue_callback(callback: Callable[[], Any], /) -> None:
        """Call a function when the backward that runs on this thread is done, before it returns.

        Functions are called in the order in which they were queued; one may queue others. An exception that one raises is
        the backward's. After a backward that fails none is called.

        Raises:
            RuntimeError: no backward runs on this thread.
        """
        _core._queue_callback(callback)

    @staticmethod
    def is_checkpoint_valid() -> bool:
        """Whether the backward that runs on this thread computes all gradients there are."""
        return _core._is_checkpoint_valid()


class VariableMeta(type):
    """Makes `isinstance(tensor, Variable)` true."""

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, _core.Tensor)


class Variable(metaclass=VariableMeta):
    """An old way to write a tensor: `Variable(data, requires_grad)` is another tensor on the memory of `data`.

    Args:
        data: a tensor, whose history is left behind. Default: an empty one.
        requires_grad: whether the result requires grad.
        volatile: had a meaning once; warns.

    Raises:
        TypeError: `data` is no tensor.
        RuntimeError: a dtype that has no gradient is to require one.
    """

    _execution_engine = _Engine()

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: Any = None) -> Any:
        if volatile is not None:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
                UserWarning,
                stacklevel=2,
            )
        if data is None:
            data = _core.empty(0)
        if not isinstance(data, _core.Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        if requires_grad and not data.is_floating_point():
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        return data.data.requires_grad_(requires_grad)
