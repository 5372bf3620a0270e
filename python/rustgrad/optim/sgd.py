"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rustgrad.autograd.grad_mode import no_grad
from rustgrad.optim.optimizer import Closure, Optimizer, ParamsT, _check_flags, _check_lr, _gradient, _number

if TYPE_CHECKING:
    from rustgrad._core import Tensor

__all__ = ["SGD"]


class SGD(Optimizer):
    """`p -= lr * v` with `v = momentum * v + (1 - dampening) * g` and `g = grad + weight_decay * p`.

    Args:
        params: as for `Optimizer`.
        lr: the learning rate.
        momentum: how much of the last direction stays; the first step takes the gradient as it is.
        dampening: how much of the gradient is left out of the direction.
        weight_decay: the L2 penalty.
        nesterov: go along `g + momentum * v` (Sutskever et al. 2013).
        maximize: go up instead of down.
        foreach: accepted; there is one implementation.
        differentiable: not supported.
        fused: accepted; there is one implementation.

    Raises:
        ValueError: a setting is out of range.
        NotImplementedError: `differentiable` is set.

    State per parameter: `momentum_buffer`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        _check_lr(lr)
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        _check_flags(differentiable, fused, foreach)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (("nesterov", False), ("maximize", False), ("foreach", None), ("fused", False)):
                group.setdefault(name, value)

    @no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        loss = self._loss_of(closure)
        for group in self.param_groups:
            lr, momentum, decay = _number(group["lr"]), group["momentum"], group["weight_decay"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                grad = _gradient(param, group["maximize"])
                if decay != 0:
                    grad = grad.add(param, alpha=decay)
                if momentum != 0:
                    buffer = self.state[param].get("momentum_buffer")
                    if buffer is None:
                        buffer = self.state[param]["momentum_buffer"] = grad.detach().clone()
                    else:
                        buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
                    grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
                param.add_(grad, alpha=-lr)
        return loss
