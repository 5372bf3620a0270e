"""AdamW: Adam whose weight decay does not pass through the averages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rustgrad.optim.adam import Adam
from rustgrad.optim.optimizer import ParamsT

if TYPE_CHECKING:
    from rustgrad._core import Tensor

__all__ = ["AdamW"]


class AdamW(Adam):
    """`Adam` with `decoupled_weight_decay` (Loshchilov & Hutter 2017); the decay is 0.01 unless given.

    Args:
        params: as for `Optimizer`.
        lr: the learning rate.
        betas: the decay of the averages of the gradient and of its square.
        eps: added to the denominator.
        weight_decay: the fraction, times `lr`, that each step takes away from a parameter.
        amsgrad: divide by the greatest average so far.
        maximize: go up instead of down.
        foreach: accepted; there is one implementation.
        capturable: accepted; steps are not captured.
        differentiable: not supported.
        fused: accepted; there is one implementation.

    Raises:
        ValueError: a setting is out of range.
        NotImplementedError: `differentiable` is set.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Files from before the option existed must not turn AdamW into Adam.
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
