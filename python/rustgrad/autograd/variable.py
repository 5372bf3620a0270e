"""`Variable`: the name that tensors with a history had long ago, and the door to the engine that is still found there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rustgrad import _core

if TYPE_CHECKING:
    from rustgrad._core import Tensor

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


class _VariableMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _core.Tensor)


class Variable(metaclass=_VariableMeta):
    """An old name of `Tensor`. `Variable(data, requires_grad)` is `data` detached."""

    _execution_engine = _Engine()

    def __new__(cls, data: Tensor, requires_grad: bool = False) -> Tensor:  # type: ignore[misc]  # a tensor, as ever
        """The values of a tensor without its history, sharing memory with it."""
        return data.detach().requires_grad_(requires_grad)
