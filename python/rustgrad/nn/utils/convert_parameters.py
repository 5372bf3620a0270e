"""Parameters as one flat vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from rustgrad import _core
from rustgrad._core import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _check_device(parameters: list[Tensor]) -> None:
    if len({str(p.device) for p in parameters}) > 1:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of `parameters`, one after the other, as one 1-dimensional tensor; differentiable.

    Raises:
        TypeError: the parameters are on different devices.
    """
    listed = list(parameters)
    _check_device(listed)
    return _core.cat([p.reshape(-1) for p in listed])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make consecutive slices of `vec` the data of `parameters`, which keep their shapes.

    Raises:
        TypeError: `vec` is no tensor, or the parameters are on different devices.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    listed = list(parameters)
    _check_device(listed)
    start = 0
    for param in listed:
        stop = start + param.numel()
        param.data = vec[start:stop].view_as(param).data
        start = stop
