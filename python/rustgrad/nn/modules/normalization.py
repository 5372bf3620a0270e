"""Layers that normalise over the last dimensions of each example."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, SupportsIndex

from rustgrad import _core
from rustgrad.nn import functional as F
from rustgrad.nn import init
from rustgrad.nn.modules.module import Module
from rustgrad.nn.parameter import Parameter

if TYPE_CHECKING:
    from rustgrad._core import Tensor, device, dtype

__all__ = ["LayerNorm", "RMSNorm"]


def _as_shape(shape: SupportsIndex | Sequence[int]) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, Sequence) else (operator.index(shape),)


class LayerNorm(Module):
    """Zero mean and unit variance over the last dimensions, then a learnt scale and shift (Ba et al. 2016).

    Args:
        normalized_shape: the sizes of the dimensions to normalise over, or the size of the last one.
        eps: added to the variance.
        elementwise_affine: whether to learn a scale (and a shift).
        bias: whether to learn a shift.
        device: where to make the parameters.
        dtype: their dtype.

    Shapes: input and output (*, *normalized_shape); `weight` and `bias` of shape `normalized_shape`, 1 and 0 at first.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: SupportsIndex | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: device | str | None = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            made = Parameter(_core.empty(self.normalized_shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """(*, *normalized_shape) to the same shape."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """`x / sqrt(mean(x ** 2) + eps)` over the last dimensions, then a learnt scale (Zhang & Sennrich 2019).

    Args:
        normalized_shape: the sizes of the dimensions to normalise over, or the size of the last one.
        eps: added to the mean square. Default: the smallest step of the dtype.
        elementwise_affine: whether to learn a scale.
        device: where to make the parameter.
        dtype: its dtype.

    Shapes: input and output (*, *normalized_shape); `weight` of shape `normalized_shape`, 1 at first.
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: SupportsIndex | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: device | str | None = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        made = Parameter(_core.empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """(*, *normalized_shape) to the same shape."""
        out: Tensor = F.rms_norm(input, self.normalized_shape, self.weight, self.eps)
        return out

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
