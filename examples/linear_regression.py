"""Fits a line by hand: parameters are plain tensors, `backward` gives their gradients, the step is written out.

python examples/linear_regression.py
"""

from __future__ import annotations

import rustgrad as torch


def main() -> None:
    torch.manual_seed(0)
    # Points on y = 3 x - 2, each a little off.
    x = torch.linspace(-1, 1, 101, dtype=torch.float64)
    y = 3 * x - 2 + 0.1 * torch.sin(40 * x)

    slope = torch.zeros((), dtype=torch.float64, requires_grad=True)
    offset = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for step in range(201):
        loss = ((slope * x + offset - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            for parameter in (slope, offset):
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss.item():.6f}  y = {slope.item():+.4f} x {offset.item():+.4f}")

    # The gradient is zero at the least-squares solution, which has a closed form.
    exact = ((x * y).mean() - x.mean() * y.mean()) / ((x * x).mean() - x.mean() ** 2)
    print(f"slope {slope.item():.4f}, least squares says {exact.item():.4f}")


if __name__ == "__main__":
    main()
