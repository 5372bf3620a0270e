"""`Variable`: the name that tensors with a history had once. It makes tensors, and every tensor is one."""

from __future__ import annotations

import warnings
from typing import Any

from rustgrad import _core

__all__ = ["Variable"]


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
