"""`rustgrad.nn.functional`: the stateless layers and losses under PyTorch's names.

The operators themselves are the core's (`rustgrad._core._nn`) and are found here by name. What is written out below
only handles what is no numerics: `inplace`, training flags, deprecated arguments, warnings about shapes.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from rustgrad import _core
from rustgrad._core import _nn

if TYPE_CHECKING:
    from rustgrad._core import Tensor, dtype
    from rustgrad._core._nn import (
        cosine_similarity as cosine_similarity,
    )
    from rustgrad._core._nn import (
        gelu as gelu,
    )
    from rustgrad._core._nn import (
        hardshrink as hardshrink,
    )
    from rustgrad._core._nn import (
        layer_norm as layer_norm,
    )
    from rustgrad._core._nn import (
        linear as linear,
    )
    from rustgrad._core._nn import (
        logsigmoid as logsigmoid,
    )
    from rustgrad._core._nn import (
        normalize as normalize,
    )
    from rustgrad._core._nn import (
        one_hot as one_hot,
    )
    from rustgrad._core._nn import (
        pad as pad,
    )
    from rustgrad._core._nn import (
        prelu as prelu,
    )
    from rustgrad._core._nn import (
        softplus as softplus,
    )
    from rustgrad._core._nn import (
        softshrink as softshrink,
    )
    from rustgrad._core._nn import (
        softsign as softsign,
    )
    from rustgrad._core._nn import (
        tanhshrink as tanhshrink,
    )


def __getattr__(name: str) -> Any:
    """An operator of the core that needs no wrapper; found once, then an ordinary global."""
    if not name.startswith("_") and hasattr(_nn, name):
        found = globals()[name] = getattr(_nn, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    own = {name for name, value in globals().items() if callable(value) and not name.startswith("_")}
    return sorted(own | {name for name in dir(_nn) if not name.startswith("_")})


# ---- activations that PyTorch can also apply in place ----------------------------------------------------------------
# Each is elementwise: the result has the shape and dtype of `input`; with `inplace` it is `input` itself.


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """`max(x, 0)`; the derivative at 0 is 0."""
    return _nn.relu_(input) if inplace else _nn.relu(input)


def relu_(input: Tensor) -> Tensor:
    """`relu` in place."""
    return _nn.relu_(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """`min(max(x, 0), 6)`; the derivative at both ends is 0."""
    return _nn.relu6_(input) if inplace else _nn.relu6(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`x` above 0, `alpha * (exp(x) - 1)` below."""
    return _nn.elu_(input, alpha) if inplace else _nn.elu(input, alpha)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place."""
    return _nn.elu_(input, alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))`."""
    return _nn.celu_(input, alpha) if inplace else _nn.celu(input, alpha)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""
    return _nn.celu_(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The scaled `elu` whose fixed point has zero mean and unit variance (Klambauer et al. 2017)."""
    return _nn.selu_(input) if inplace else _nn.selu(input)


def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""
    return _nn.selu_(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`x` above 0, `negative_slope * x` below."""
    return _nn.leaky_relu_(input, negative_slope) if inplace else _nn.leaky_relu(input, negative_slope)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place."""
    return _nn.leaky_relu_(input, negative_slope)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """`x` held between `min_val` and `max_val`; the derivative at both ends is 0.

    Raises:
        ValueError: `min_val` is greater than `max_val`.
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _nn.hardtanh_(input, min_val, max_val) if inplace else _nn.hardtanh(input, min_val, max_val)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place."""
    return hardtanh(input, min_val, max_val, inplace=True)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * relu6(x + 3) / 6`."""
    return _nn.hardswish_(input) if inplace else _nn.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """`relu6(x + 3) / 6`."""
    return _nn.hardsigmoid_(input) if inplace else _nn.hardsigmoid(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * sigmoid(x)`, also called swish."""
    return _nn.silu_(input) if inplace else _nn.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * tanh(softplus(x))`."""
    return _nn.mish_(input) if inplace else _nn.mish(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`x` where it is greater than `threshold`, `value` elsewhere."""
    return _nn.threshold_(input, threshold, value) if inplace else _nn.threshold(input, threshold, value)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place."""
    return _nn.threshold_(input, threshold, value)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return input.tanh()


def sigmoid(input: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`."""
    return input.sigmoid()


# ---- softmax ---------------------------------------------------------------------------------------------------------


def _softmax_dim(name: str, ndim: int, dim: int | None, stacklevel: int) -> int:
    """`dim`, or the dimension that PyTorch guesses (with a warning) when none is given."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel + 1,
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None) -> Tensor:
    """`exp(x) / sum(exp(x))` along `dim`; computed in `dtype` if one is given."""
    return _nn.softmax(input, _softmax_dim("softmax", input.dim(), dim, _stacklevel), dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None) -> Tensor:
    """`log(softmax(x))` along `dim`, without overflow; computed in `dtype` if one is given."""
    return _nn.log_softmax(input, _softmax_dim("log_softmax", input.dim(), dim, _stacklevel), dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None) -> Tensor:
    """`softmax(-x)` along `dim`."""
    return _nn.softmax(-input, _softmax_dim("softmin", input.dim(), dim, _stacklevel), dtype=dtype)


# ---- dropout ---------------------------------------------------------------------------------------------------------


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set each element to zero with probability `p` and scale the others by `1 / (1 - p)`; nothing unless `training`.

    Raises:
        ValueError: `p` is not between 0 and 1.
    """
    _check_probability(p)
    return _nn.dropout_(input, p, training) if inplace else _nn.dropout(input, p, training)


def _channel_dropout(input: Tensor, p: float, training: bool, inplace: bool, spatial: int) -> Tensor:
    """`dropout` of whole channels: the last `spatial` dimensions are kept or dropped together."""
    _check_probability(p)
    if input.dim() not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"dropout{spatial}d: Expected {spatial + 1}D or {spatial + 2}D input, but received a {input.dim()}D input."
        )
    if not training or p == 0.0:
        return input
    keep = input.new_ones((*input.shape[: input.dim() - spatial], *(1,) * spatial))
    keep = _nn.dropout(keep, p, True)
    return input.mul_(keep) if inplace else input * keep


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of a (N, C, L) or (C, L) input."""
    return _channel_dropout(input, p, training, inplace, 1)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of a (N, C, H, W) or (C, H, W) input."""
    return _channel_dropout(input, p, training, inplace, 2)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of a (N, C, D, H, W) or (C, D, H, W) input."""
    return _channel_dropout(input, p, training, inplace, 3)


# ---- embedding -------------------------------------------------------------------------------------------------------


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` (V, D) at the indices `input` (*), as (*, D).

    Args:
        input: int64 or int32 indices below V.
        weight: the table; changed in place if `max_norm` is given.
        padding_idx: a row that gets no gradient; counted from the end if negative.
        max_norm: rows that are looked up and have a greater norm are first scaled down to this.
        norm_type: the p of that norm.
        scale_grad_by_freq: divide each row's gradient by how often it was looked up.
        sparse: accepted; the gradient is always dense.

    Raises:
        AssertionError: `padding_idx` is out of range.
        IndexError: an index is out of range.
    """
    if padding_idx is not None:
        rows = weight.size(0)
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    if max_norm is not None:
        _limit_rows(weight, input, max_norm, norm_type)
    return _nn.embedding(input, weight, padding_idx=padding_idx, scale_grad_by_freq=scale_grad_by_freq)


def _limit_rows(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of `weight` at `indices` down to a norm of at most `max_norm`, in place."""
    table = weight.detach()  # shares memory and version counter, so that backward notices the change
    used = indices.reshape(-1).unique()
    rows = table.index_select(0, used)
    norms = rows.norm(norm_type, 1, keepdim=True)
    table.index_copy_(0, used, _core.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows))


# ---- losses ----------------------------------------------------------------------------------------------------------
# `reduction` is "none", "mean" or "sum". `size_average` and `reduce` are its deprecated predecessors.


def _reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction to use; the deprecated flags win where they are given.

    Raises:
        ValueError: `reduction` is none of the known words.
    """
    if size_average is not None or reduce is not None:
        mean = size_average is None or size_average
        reduction = "none" if reduce is False else "mean" if mean else "sum"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
            stacklevel=4,
        )
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def _same_size(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The two operands of an elementwise loss, broadcast, with PyTorch's warning if they had to be."""
    if input.shape == target.shape:
        return input, target
    warnings.warn(
        f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). "
        "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
        stacklevel=3,
    )
    first, second = _core.broadcast_tensors(input, target)
    return first, second


def _weight(weight: Tensor | None) -> dict[str, Tensor]:
    return {} if weight is None else {"weight": weight}


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """`(input - target) ** 2`, weighted elementwise by `weight`, reduced."""
    reduction = _reduction(reduction, size_average, reduce)
    return _nn.mse_loss(*_same_size(input, target), reduction=reduction, **_weight(weight))


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """`|input - target|`, weighted elementwise by `weight`, reduced."""
    reduction = _reduction(reduction, size_average, reduce)
    return _nn.l1_loss(*_same_size(input, target), reduction=reduction, **_weight(weight))


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """`0.5 * d ** 2 / beta` where `d = |input - target|` is below `beta`, `d - 0.5 * beta` elsewhere, reduced."""
    reduction = _reduction(reduction, size_average, reduce)
    return _nn.smooth_l1_loss(*_same_size(input, target), reduction=reduction, beta=beta)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """`0.5 * d ** 2` where `d = |input - target|` is below `delta`, `delta * (d - 0.5 * delta)` elsewhere, reduced."""
    reduction = _reduction(reduction, None, None)
    return _nn.huber_loss(*_same_size(input, target), reduction=reduction, delta=delta, **_weight(weight))


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of the logits `input` (C), (N, C) or (N, C, d1, ...) and `target`: int64 classes (), (N) or
    (N, d1, ...), or probabilities of the shape of `input`. `mean` divides by the weight of the targets that count.
    """
    return _nn.cross_entropy(
        input,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=_reduction(reduction, size_average, reduce),
        label_smoothing=label_smoothing,
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of the int64 classes `target` under the log probabilities `input` (N, C, ...)."""
    return _nn.nll_loss(
        input,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=_reduction(reduction, size_average, reduce),
    )


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`-(t * log(p) + (1 - t) * log(1 - p))` of probabilities `input`, with logarithms held above -100, reduced.

    Raises:
        ValueError: the sizes of `input` and `target` differ.
    """
    reduction = _reduction(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. "
            "Please ensure they have the same size."
        )
    return _nn.binary_cross_entropy(input, target, weight=weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of `sigmoid(input)`, without overflow; `pos_weight` weighs the positive class.

    Raises:
        ValueError: the sizes of `input` and `target` differ.
    """
    reduction = _reduction(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    return _nn.binary_cross_entropy_with_logits(
        input, target, weight=weight, pos_weight=pos_weight, reduction=reduction
    )


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """`target * (log(target) - input)` of log probabilities `input`, reduced; "batchmean" divides by the batch."""
    if reduction == "batchmean" and size_average is None and reduce is None:
        total = _nn.kl_div(input, target, reduction="sum", log_target=log_target)
        return total / input.size(0) if input.dim() else total
    reduction = _reduction(reduction, size_average, reduce)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition.",
            stacklevel=2,
        )
    return _nn.kl_div(input, target, reduction=reduction, log_target=log_target)
