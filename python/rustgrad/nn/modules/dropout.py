"""Layers that drop elements or channels at random while training, and do nothing in evaluation mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rustgrad.nn import functional as F
from rustgrad.nn.modules.module import Module

if TYPE_CHECKING:
    from rustgrad._core import Tensor

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d"]


class _Dropout(Module):
    """The settings that all kinds share.

    Args:
        p: the probability of dropping, between 0 and 1.
        inplace: change the input instead of making a new tensor.

    Raises:
        ValueError: `p` is not between 0 and 1.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Sets each element to zero with probability `p` and scales the others by `1 / (1 - p)`. Any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """Drops whole channels of a (N, C, L) or (C, L) input."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """Drops whole channels of a (N, C, H, W) or (C, H, W) input."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """Drops whole channels of a (N, C, D, H, W) or (C, D, H, W) input."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.dropout3d(input, self.p, self.training, self.inplace)
