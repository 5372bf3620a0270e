"""Limiting the size of gradients between backward and the optimiser's step. All functions work in place on `.grad`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterable
from typing import TypeAlias

from rustgrad import _core
from rustgrad._core import Tensor
from rustgrad.autograd.grad_mode import no_grad

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]

_Tensors: TypeAlias = Tensor | Iterable[Tensor]


def _listed(tensors: _Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters: _Tensors) -> list[Tensor]:
    return [p.grad for p in _listed(parameters) if p.grad is not None]


@no_grad()
def get_total_norm(
    tensors: _Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all elements of `tensors` taken as one vector.

    Args:
        tensors: one or several tensors.
        norm_type: the p of the norm; `inf` for the greatest absolute value.
        error_if_nonfinite: raise if the norm is infinite or NaN.
        foreach: accepted and not needed.

    Returns:
        A 0-dimensional tensor; 0.0 if there are no tensors.

    Raises:
        RuntimeError: the norm is not finite and `error_if_nonfinite` is set.
    """
    norms = [tensor.norm(float(norm_type)) for tensor in _listed(tensors)]
    if not norms:
        return _core.tensor(0.0)
    first = norms[0]
    total = _core.stack([norm.to(first.device) for norm in norms]).norm(float(norm_type))
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {float(norm_type)} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: _Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients of `parameters` by `max_norm / total_norm` if that is below 1."""
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for grad in _grads(parameters):
        grad.mul_(factor.to(grad.device))


@no_grad()
def clip_grad_norm_(
    parameters: _Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients by one factor so that their total norm is at most `max_norm`; returns the norm before.

    Raises:
        RuntimeError: the norm is not finite and `error_if_nonfinite` is set.
    """
    listed = _listed(parameters)
    if not listed and isinstance(parameters, Generator):
        # most likely one that was used up before
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", UserWarning, stacklevel=3)
    total = get_total_norm(_grads(listed), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(listed, max_norm, total)
    return total


def clip_grad_norm(
    parameters: _Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """An old name of `clip_grad_norm_`."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(parameters: _Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Hold every element of the gradients between `-clip_value` and `clip_value`."""
    limit = float(clip_value)
    for grad in _grads(parameters):
        grad.clamp_(-limit, limit)
