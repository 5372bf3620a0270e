"""`rustgrad.nn.init`: filling parameters before training.

Every function changes its tensor in place, records no graph, and returns the tensor. The random ones draw from
`generator` or from the default generator.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

from rustgrad.autograd.grad_mode import no_grad

if TYPE_CHECKING:
    from rustgrad._core import Generator, Tensor

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_P = ParamSpec("_P")


def _initializer(func: Callable[_P, Tensor]) -> Callable[_P, Tensor]:
    """Run `func` without recording a graph. Cheaper than the general decorator, which must cope with generators."""

    @functools.wraps(func)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Tensor:
        with no_grad():
            return func(*args, **kwargs)

    return call


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights should grow to keep the variance through an activation.

    Args:
        nonlinearity: the name of the function in `rustgrad.nn.functional`.
        param: the negative slope for `leaky_relu` (default 0.01).

    Raises:
        ValueError: an unknown name, or a slope that is no number.
    """
    if nonlinearity in ("linear", "sigmoid") or nonlinearity in _CONVOLUTIONS:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


_CONVOLUTIONS = frozenset(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))


def _fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output depends on, and how many outputs an input feeds, for a weight (out, in, *kernel)."""
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def _empty_warning(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=4)
        return True
    return False


@_initializer
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform over [`a`, `b`)."""
    return tensor.uniform_(a, b, generator=generator)


@_initializer
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with the given mean and standard deviation."""
    return tensor.normal_(mean, std, generator=generator)


@_initializer
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal, restricted to [`a`, `b`] (absolute bounds, not multiples of `std`), by inverting the distribution."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=3,
        )

    def cumulative(x: float) -> float:
        return (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0

    low, high = cumulative(a), cumulative(b)
    tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
    return tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(a, b)


@_initializer
def constant_(tensor: Tensor, val: float) -> Tensor:
    """All `val`."""
    return tensor.fill_(val)


@_initializer
def ones_(tensor: Tensor) -> Tensor:
    """All 1."""
    return tensor.fill_(1.0)


@_initializer
def zeros_(tensor: Tensor) -> Tensor:
    """All 0."""
    return tensor.zero_()


@_initializer
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix.

    Raises:
        ValueError: the tensor has not 2 dimensions.
    """
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    tensor.zero_()
    tensor.diagonal().fill_(1.0)
    return tensor


@_initializer
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The convolution kernel (out, in, *kernel) that hands its input through, in each of `groups`.

    Raises:
        ValueError: the tensor has not 3, 4 or 5 dimensions, or the groups do not divide its first.
    """
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.size(0) % groups:
        raise ValueError("dim 0 must be divisible by groups")
    out_per_group = tensor.size(0) // groups
    centre = tuple(size // 2 for size in tensor.shape[2:])
    tensor.zero_()
    for group in range(groups):
        for channel in range(min(out_per_group, tensor.size(1))):
            tensor[(group * out_per_group + channel, channel, *centre)] = 1.0
    return tensor


@_initializer
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform over +-`gain` * sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return tensor.uniform_(-bound, bound, generator=generator)


@_initializer
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with standard deviation `gain` * sqrt(2 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    std = gain * math.sqrt(2.0 / sum(_fans(tensor)))
    return tensor.normal_(0.0, std, generator=generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _fans(tensor)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan_in if mode == "fan_in" else fan_out)


@_initializer
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform over +-gain * sqrt(3 / fan) (He et al. 2015).

    Args:
        tensor: a weight (out, in, *kernel).
        a: the negative slope of `leaky_relu`.
        mode: "fan_in" keeps the variance in the forward pass, "fan_out" in the backward pass.
        nonlinearity: what follows, as for `calculate_gain`.
        generator: where to draw from.

    Raises:
        ValueError: fewer than 2 dimensions, an unknown mode or nonlinearity.
    """
    if _empty_warning(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor.uniform_(-bound, bound, generator=generator)


@_initializer
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal with standard deviation gain / sqrt(fan) (He et al. 2015); arguments as for `kaiming_uniform_`."""
    if _empty_warning(tensor):
        return tensor
    return tensor.normal_(0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator=generator)


@_initializer
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Normal with `std`, then a fraction `sparsity` of the rows set to 0 in every column (Martens 2010).

    Raises:
        ValueError: the tensor has not 2 dimensions.
    """
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    tensor.normal_(0.0, std, generator=generator)
    # The places of the smallest of random keys are a random choice of places, for all columns at once.
    keys = tensor.new_empty((rows, columns)).uniform_(generator=generator)
    return tensor.scatter_(0, keys.argsort(dim=0)[:zeros], 0.0)
