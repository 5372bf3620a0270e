"""Activations as layers: each calls the function of the same name in `rustgrad.nn.functional`.

All but the softmax family and `GLU` are elementwise: the output has the shape of the input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rustgrad import _core
from rustgrad.nn import functional as F
from rustgrad.nn import init
from rustgrad.nn.modules.module import Module
from rustgrad.nn.parameter import Parameter

if TYPE_CHECKING:
    from rustgrad._core import Tensor, device, dtype

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _InPlace(Module):
    """An activation without settings that can overwrite its input.

    Args:
        inplace: change the input instead of making a new tensor.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """`max(x, 0)`."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.relu(input, self.inplace)


class SELU(_InPlace):
    """The scaled `ELU` whose fixed point has zero mean and unit variance (Klambauer et al. 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.selu(input, self.inplace)


class SiLU(_InPlace):
    """`x * sigmoid(x)`, also called swish."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.silu(input, self.inplace)


class Mish(_InPlace):
    """`x * tanh(softplus(x))`."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.mish(input, self.inplace)


class Hardswish(_InPlace):
    """`x * relu6(x + 3) / 6`."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardsigmoid(_InPlace):
    """`relu6(x + 3) / 6`."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class LeakyReLU(_InPlace):
    """`x` above 0, `negative_slope * x` below."""

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(_InPlace):
    """`x` above 0, `alpha * (exp(x) - 1)` below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(_InPlace):
    """`max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class Hardtanh(_InPlace):
    """`x` held between `min_val` and `max_val`.

    Raises:
        AssertionError: `max_val` is not greater than `min_val`.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        if max_val <= min_val:
            raise AssertionError(f"max_val ({max_val}) must be greater than min_val ({min_val})")
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class ReLU6(Hardtanh):
    """`min(max(x, 0), 6)`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Threshold(_InPlace):
    """`x` where it is greater than `threshold`, `value` elsewhere."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """`x * Phi(x)` with the normal distribution function, or its "tanh" approximation (Hendrycks & Gimpel 2016)."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """`1 / (1 + exp(-x))`."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return input.sigmoid()


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return input.tanh()


class Softplus(Module):
    """`log(1 + exp(beta * x)) / beta`, and `x` itself where `beta * x` is above `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softsign(Module):
    """`x / (1 + |x|)`."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.softsign(input)


class LogSigmoid(Module):
    """`log(sigmoid(x))`, without overflow."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.logsigmoid(input)


class Tanhshrink(Module):
    """`x - tanh(x)`."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.tanhshrink(input)


class _Shrink(Module):
    """A shrinking activation with the half width `lambd` of its flat part."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink):
    """`x` where `|x| > lambd`, 0 elsewhere."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """`x` moved by `lambd` towards 0 where `|x| > lambd`, 0 elsewhere."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.softshrink(input, self.lambd)


class PReLU(Module):
    """`x` above 0, `weight * x` below, with a learnt slope (He et al. 2015).

    Args:
        num_parameters: 1, or the size of dimension 1 of the input for a slope per channel.
        init: the slope at first.
        device: where to make the parameter.
        dtype: its dtype.
    """

    weight: Parameter

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: device | str | None = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(_core.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The slope as it was at first."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """`a * sigmoid(b)` for the halves a and b of the input along `dim` (Dauphin et al. 2016)."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input with dimension `dim` halved."""
        out: Tensor = F.glu(input, self.dim)
        return out

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _AlongDim(Module):
    """A function along one dimension.

    Args:
        dim: the dimension whose elements are normalised together.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """`exp(x) / sum(exp(x))` along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """`Softmax` of `-x`."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """`log(softmax(x))` along `dim`, without overflow."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """`Softmax` over the channels of a (N, C, H, W) or (C, H, W) input.

    Raises:
        ValueError: the input has another number of dimensions.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)
