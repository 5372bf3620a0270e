"""Adam: steps scaled by running averages of the gradient and of its square."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rustgrad import _core
from rustgrad._core import Tensor
from rustgrad.autograd.grad_mode import no_grad
from rustgrad.optim.optimizer import (
    Closure,
    Optimizer,
    ParamsT,
    _check_flags,
    _check_lr,
    _gradient,
    _number,
    _step_counter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Adam"]


class Adam(Optimizer):
    """Adam (Kingma & Ba 2014): `p -= lr * m / (1 - b1**t) / (sqrt(v / (1 - b2**t)) + eps)`.

    Args:
        params: as for `Optimizer`.
        lr: the learning rate.
        betas: b1 and b2, the decay of the averages of the gradient and of its square.
        eps: added to the denominator.
        weight_decay: the L2 penalty, or with `decoupled_weight_decay` the fraction (times `lr`) that a step takes.
        amsgrad: divide by the greatest average so far (Reddi et al. 2018).
        foreach: accepted; there is one implementation.
        maximize: go up instead of down.
        capturable: accepted; steps are not captured.
        differentiable: not supported.
        fused: accepted; there is one implementation.
        decoupled_weight_decay: decay the parameter itself, as `AdamW` does.

    Raises:
        ValueError: a setting is out of range.
        NotImplementedError: `differentiable` is set.

    State per parameter: `step` (a tensor), `exp_avg`, `exp_avg_sq`, and with `amsgrad` `max_exp_avg_sq`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _check_lr(lr)
        if not eps >= 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for place, beta in enumerate(betas):
            if not 0.0 <= _number(beta) < 1.0:
                raise ValueError(f"Invalid beta parameter at index {place}: {beta}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        _check_flags(differentiable, fused, foreach)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (
                ("amsgrad", False),
                ("maximize", False),
                ("foreach", None),
                ("capturable", False),
                ("differentiable", False),
                ("fused", None),
                ("decoupled_weight_decay", False),
            ):
                group.setdefault(name, value)
        for values in self.state.values():  # old files have a plain number
            if "step" in values and not isinstance(values["step"], Tensor):
                values["step"] = _step_counter().fill_(values["step"])

    def _state_of(self, param: Tensor, amsgrad: bool) -> dict[str, Tensor]:
        state = self.state[param]
        if not state:
            state["step"] = _step_counter()
            state["exp_avg"] = _core.zeros_like(param)
            state["exp_avg_sq"] = _core.zeros_like(param)
            if amsgrad:
                state["max_exp_avg_sq"] = _core.zeros_like(param)
        return state

    @no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        loss = self._loss_of(closure)
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._update(param, self._state_of(param, group["amsgrad"]), group)
        return loss

    @staticmethod
    def _update(param: Tensor, state: dict[str, Tensor], group: Mapping[str, Any]) -> None:
        lr, decay = _number(group["lr"]), group["weight_decay"]
        beta1, beta2 = (_number(beta) for beta in group["betas"])
        grad = _gradient(param, group["maximize"])
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        state["step"].add_(1)
        step = state["step"].item()
        if decay != 0:
            if group["decoupled_weight_decay"]:
                param.mul_(1 - lr * decay)
            else:
                grad = grad.add(param, alpha=decay)
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        if group["amsgrad"]:
            square = state["max_exp_avg_sq"].copy_(_core.maximum(state["max_exp_avg_sq"], square))
        # The same order of roundings as PyTorch's, so that a run can be continued by either.
        root = (square.sqrt() / math.sqrt(1 - beta2**step)).add_(group["eps"])
        param.addcdiv_(mean, root, value=-lr / (1 - beta1**step))
