"""`Size`, the type of `Tensor.shape`: a tuple of ints that knows how many elements it describes.

Only the value type lives here. The extension builds instances with `tuple.__new__(Size, dims)`, so nothing in this file
may be needed to construct one from dimensions that are already known to be integers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex, overload

__all__ = ["Size"]


class Size(tuple[int, ...]):
    """The dimensions of a tensor.

    Slicing, concatenation and repetition give a `Size` again; everything else is as for `tuple`.

    Raises:
        TypeError: an item is not an integer.

    Example:
        >>> import rustgrad as torch
        >>> torch.Size([2, 3]).numel()
        6
    """

    __slots__ = ()

    def __new__(cls, dims: Iterable[SupportsIndex] = (), /) -> Size:
        items = []
        for position, dim in enumerate(dims):
            try:
                items.append(operator.index(dim))
            except TypeError:
                raise TypeError(
                    f"torch.Size() takes an iterable of 'int' (item {position} is '{type(dim).__name__}')"
                ) from None
        return super().__new__(cls, items)

    def numel(self) -> int:
        """The number of elements of a tensor of this size: the product of the dimensions, 1 for no dimension."""
        return math.prod(self)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> Size: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> int | Size:
        item = super().__getitem__(index)
        return tuple.__new__(Size, item) if isinstance(item, tuple) else item

    def __add__(self, other: Any, /) -> Size:
        if not isinstance(other, tuple):
            return NotImplemented
        return Size(tuple(self) + other)

    def __radd__(self, other: Any, /) -> Size:
        if not isinstance(other, tuple):
            return NotImplemented
        return Size(other + tuple(self))

    def __mul__(self, times: SupportsIndex, /) -> Size:
        return tuple.__new__(Size, tuple(self) * operator.index(times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(repr, self))}])"

    def __reduce__(self) -> tuple[type[Size], tuple[tuple[int, ...]]]:
        return Size, (tuple(self),)
