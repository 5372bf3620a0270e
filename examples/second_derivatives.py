"""Gradients of gradients: derivatives of any order of one variable, a Hessian, and Newton's method on top of it.

python examples/second_derivatives.py
"""

from __future__ import annotations

import rustgrad as torch


def derivatives(order: int) -> list[float]:
    """sin and its derivatives at 1, each the gradient of the one before."""
    x = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    value = torch.sin(x)
    values = [value.item()]
    for _ in range(order):
        (value,) = torch.autograd.grad(value, x, create_graph=True)
        values.append(value.item())
    return values


def rosenbrock(p: torch.Tensor) -> torch.Tensor:
    """A curved valley whose floor is hard to follow downhill; least at (1, 1)."""
    x, y = p[0], p[1]
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


def gradient_and_hessian(p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    p = p.detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(rosenbrock(p), p, create_graph=True)
    rows = [torch.autograd.grad(gradient[i], p, retain_graph=True)[0] for i in range(len(p))]
    return gradient.detach(), torch.stack(rows)


def main() -> None:
    print("sin at 1 and its derivatives:", " ".join(f"{value:+.6f}" for value in derivatives(4)))

    point = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    for step in range(8):
        gradient, hessian = gradient_and_hessian(point)
        x, y = point.tolist()
        print(f"step {step}  ({x:+.6f}, {y:+.6f})  f = {rosenbrock(point).item():.3e}")
        if gradient.abs().max().item() < 1e-10:
            break
        # Newton's step: solve the two equations H d = g by hand (Cramer's rule).
        (a, b), (c, d) = hessian.tolist()
        g, h = gradient.tolist()
        determinant = a * d - b * c
        point = point - torch.tensor([g * d - b * h, a * h - c * g], dtype=torch.float64) / determinant


if __name__ == "__main__":
    main()
