"""Layers that only change the shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rustgrad.nn.modules.module import Module

if TYPE_CHECKING:
    from rustgrad._core import Tensor

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Makes the dimensions `start_dim` to `end_dim` (both included) one; by default all but the batch."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """(N, a, b, ...) to (N, a * b * ...), for the default dimensions."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits the dimension `dim` into dimensions of the sizes `unflattened_size`, one of which may be -1.

    Raises:
        TypeError: `unflattened_size` is no sequence of ints.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but found type {type(unflattened_size).__name__}"
            )
        for place, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, "
                    f"but found element of type {type(size).__name__} at pos {place}"
                )
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """(N, a * b) to (N, a, b), for `dim` 1 and sizes (a, b)."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
