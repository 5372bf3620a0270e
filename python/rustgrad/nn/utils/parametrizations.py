"""Ready-made parametrizations. How they are attached and taken off is in `parametrize.py`."""

from __future__ import annotations

from typing import Any

from rustgrad import linalg
from rustgrad._core import Tensor
from rustgrad.nn.modules.module import Module
from rustgrad.nn.utils import parametrize

__all__ = ["weight_norm"]


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
