"""Layers that are one product with a learnt matrix, and the layer that does nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rustgrad import _core
from rustgrad.nn import functional as F
from rustgrad.nn import init
from rustgrad.nn.modules.module import Module
from rustgrad.nn.parameter import Parameter

if TYPE_CHECKING:
    from rustgrad._core import Tensor, device, dtype

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input. Takes and ignores any arguments when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """`input` itself."""
        return input


class Linear(Module):
    """`x @ weight.T + bias`.

    Args:
        in_features: the size of the last dimension of the input.
        out_features: the size of the last dimension of the output.
        bias: whether to add a learnt bias.
        device: where to make the parameters.
        dtype: their dtype.

    Shapes: input (*, in_features), output (*, out_features), `weight` (out_features, in_features), `bias`
    (out_features). Weight and bias start uniform over +-1/sqrt(in_features).
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: device | str | None = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(_core.empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(_core.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        # With a = sqrt(5) the bound of kaiming_uniform_ is 1/sqrt(in_features), as for the bias.
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """(*, in_features) to (*, out_features)."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """`y[k] = x1 @ weight[k] @ x2 + bias[k]`.

    Args:
        in1_features: the size of the last dimension of the first input; at least 1.
        in2_features: the size of the last dimension of the second input.
        out_features: the size of the last dimension of the output.
        bias: whether to add a learnt bias.
        device: where to make the parameters.
        dtype: their dtype.

    Shapes: inputs (*, in1_features) and (*, in2_features), output (*, out_features).

    Raises:
        ValueError: `in1_features` is not positive.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: device | str | None = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(_core.empty((out_features, in1_features, in2_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(_core.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, uniform over +-1/sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """(*, in1_features) and (*, in2_features) to (*, out_features)."""
        out: Tensor = F.bilinear(input1, input2, self.weight, self.bias)
        return out

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
