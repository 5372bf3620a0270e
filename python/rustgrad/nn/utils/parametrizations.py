"""Ready-made parametrizations. How they are attached and taken off is in `parametrize.py`."""

from __future__ import annotations

from typing import Any

from rustgrad import _core, linalg
from rustgrad._core import Tensor
from rustgrad.autograd.grad_mode import no_grad
from rustgrad.nn.functional import normalize
from rustgrad.nn.modules.module import Module
from rustgrad.nn.utils import parametrize

__all__ = ["spectral_norm", "weight_norm"]


def _norm_except(tensor: Tensor, dim: int) -> Tensor:
    """The norm over all dimensions but `dim`, which stays with the others as 1s; over all, 0-dimensional, for -1."""
    if dim == -1:
        return tensor.norm()
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-tensor.dim()}, {tensor.dim() - 1}], but got {dim})"
        )
    others = [other for other in range(tensor.dim()) if other != dim % tensor.dim()]
    return linalg.vector_norm(tensor, 2, others, keepdim=True) if others else tensor.abs()


class _WeightNorm(Module):
    """`g * v / |v|`, with one norm a slice along `dim`."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / _norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return _norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn length and direction of a weight apart: `original0` has the norms, `original1` the directions.

    Salimans & Kingma 2016, "Weight Normalization". State dictionaries with the names that the older form used, `weight_g`
    and `weight_v`, can be loaded.

    Args:
        module: changed in place.
        name: the parameter.
        dim: the dimension along which each slice has a norm of its own. `None` or -1: one norm for all.

    Returns:
        `module`.

    Raises:
        ValueError: there is no such parameter.
        IndexError: there is no such dimension.
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for place, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{place}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    """`w / sigma`, with the greatest singular value estimated by power iteration; of a vector, `w / |w|`."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        dims = weight.dim()
        if not -dims <= dim < dims:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{dims}, {dims - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % dims
        self.eps = eps
        if dims > 1:
            self.n_power_iterations = n_power_iterations
            with no_grad():
                matrix = self._matrix(weight)
                for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                    start = _core.randn(size, dtype=weight.dtype)
                    self.register_buffer(name, normalize(start, dim=0, eps=eps))
            self._iterate(matrix, 15)  # as PyTorch starts

    def _matrix(self, weight: Tensor) -> Tensor:
        """`weight` with `dim` first and all others flattened."""
        return weight.movedim(self.dim, 0).flatten(1)

    @no_grad()
    def _iterate(self, matrix: Tensor, times: int) -> None:
        for _ in range(times):
            self._u.copy_(normalize(matrix.mv(self._v), dim=0, eps=self.eps))
            self._v.copy_(normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # Copies: the next call changes the buffers, and backward may come after it.
        sigma = self._u.clone().dot(matrix.mv(self._v.clone()))
        return weight / sigma

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its greatest singular value, which each reading in training mode estimates a little better.

    Miyato et al. 2018, "Spectral Normalization for Generative Adversarial Networks". Assigning a weight sets what is
    divided.

    Args:
        module: changed in place.
        name: the parameter or buffer; a vector is divided by its norm.
        n_power_iterations: steps of the power iteration at each reading in training mode.
        eps: the least norm that is divided by.
        dim: the dimension that counts outputs; all others are taken as one. Default: 0, 1 for transposed convolutions.

    Returns:
        `module`.

    Raises:
        ValueError: there is no such tensor, or `n_power_iterations` is not positive.
        IndexError: there is no such dimension.
    """
    weight = module._parameters.get(name, module._buffers.get(name))
    if weight is None:
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = int(any(kind.__name__.startswith("ConvTranspose") for kind in type(module).__mro__))
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
