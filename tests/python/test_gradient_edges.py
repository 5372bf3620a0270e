"""Gradients at kinks, poles and ties: at each of these points PyTorch 2.13 gives the number in the table."""

import math

import pytest

import rustgrad as torch
from rustgrad.nn import functional as F

pytestmark = pytest.mark.row("A13.edges")

nan, inf = math.nan, math.inf

# name: (function, where, gradients of the sum by every argument)
EDGES = {
    "relu at 0": (F.relu, [[0.0]], [[0.0]]),
    "abs at 0": (torch.abs, [[0.0]], [[0.0]]),
    "sign": (torch.sign, [[2.0]], [[0.0]]),
    "round": (torch.round, [[1.5]], [[0.0]]),
    "floor": (torch.floor, [[1.0]], [[0.0]]),
    "sqrt at 0": (torch.sqrt, [[0.0]], [[inf]]),
    "norm at 0": (torch.norm, [[0.0, 0.0]], [[0.0, 0.0]]),
    "x**0 at 0": (lambda x: x**0, [[0.0]], [[0.0]]),
    "pow(0, 0)": (torch.pow, [[0.0], [0.0]], [[0.0], [0.0]]),
    "prod with one zero": (torch.prod, [[0.0, 2.0, 3.0]], [[6.0, 0.0, 0.0]]),
    "prod with two zeros": (torch.prod, [[0.0, 0.0, 3.0]], [[0.0, 0.0, 0.0]]),
    "max of ties": (torch.max, [[1.0, 1.0, 0.0]], [[0.5, 0.5, 0.0]]),
    "min of ties": (torch.min, [[1.0, 1.0, 3.0]], [[0.5, 0.5, 0.0]]),
    "amax of ties": (torch.amax, [[1.0, 1.0, 0.0]], [[0.5, 0.5, 0.0]]),
    "amin of ties": (torch.amin, [[1.0, 1.0, 3.0]], [[0.5, 0.5, 0.0]]),
    "median of ties": (torch.median, [[1.0, 1.0, 1.0]], [[1 / 3, 1 / 3, 1 / 3]]),
    "max(dim) of ties": (lambda x: x.max(0).values, [[1.0, 1.0]], [[1.0, 0.0]]),
    "maximum of equals": (torch.maximum, [[1.0], [1.0]], [[0.5], [0.5]]),
    "minimum of equals": (torch.minimum, [[1.0], [1.0]], [[0.5], [0.5]]),
    "clamp at both bounds": (lambda x: x.clamp(0, 1), [[0.0, 1.0]], [[1.0, 1.0]]),
    "hardtanh at both bounds": (F.hardtanh, [[-1.0, 1.0]], [[0.0, 0.0]]),
    "relu6 at both bounds": (F.relu6, [[0.0, 6.0]], [[0.0, 0.0]]),
    "leaky_relu at 0": (lambda x: F.leaky_relu(x, 0.25), [[0.0]], [[0.25]]),
    "elu at 0": (F.elu, [[0.0]], [[1.0]]),
    "hardswish at 3 and -3": (F.hardswish, [[3.0, -3.0]], [[1.0, 0.0]]),
    "silu at 0": (F.silu, [[0.0]], [[0.5]]),
    "huber at 1": (lambda x: F.huber_loss(x, torch.zeros(1)), [[1.0]], [[1.0]]),
    "smooth_l1 at 1": (lambda x: F.smooth_l1_loss(x, torch.zeros(1)), [[1.0]], [[1.0]]),
    "l1 at 0": (lambda x: F.l1_loss(x, torch.zeros(1)), [[0.0]], [[0.0]]),
    "std of equal values": (torch.std, [[2.0, 2.0]], [[0.0, 0.0]]),
    "acos at 1": (torch.acos, [[1.0]], [[-inf]]),
    "atan2(0, 0)": (torch.atan2, [[0.0], [0.0]], [[0.0], [-0.0]]),
    "xlogy(0, 0)": (torch.xlogy, [[0.0], [0.0]], [[0.0], [nan]]),
    "logsumexp of -inf": (lambda x: x.logsumexp(0), [[-inf, -inf]], [[nan, nan]]),
    "where leaks nan": (lambda x: torch.where(x > 0, x.log(), 0 * x), [[0.0]], [[nan]]),
    "fmod by the divisor": (torch.fmod, [[7.0, -7.0], [2.0, 2.0]], [[1.0, 1.0], [-3.0, 3.0]]),
    "remainder by the divisor": (torch.remainder, [[7.0, -7.0], [2.0, 2.0]], [[1.0, 1.0], [-3.0, 4.0]]),
    "sort routes": (lambda x: x.sort().values * torch.tensor([1.0, 2.0]), [[3.0, 1.0]], [[2.0, 1.0]]),
    "cummax routes": (lambda x: x.cummax(0).values, [[1.0, 1.0, 0.0]], [[1.0, 2.0, 0.0]]),
}


@pytest.mark.parametrize(("function", "at", "wanted"), EDGES.values(), ids=EDGES)
def test_gradient(function, at, wanted):
    leaves = [torch.tensor(values, requires_grad=True) for values in at]
    function(*leaves).sum().backward()
    got = [leaf.grad.tolist() for leaf in leaves]
    assert all(mine == pytest.approx(row, nan_ok=True) for mine, row in zip(got, wanted, strict=True)), got


def test_each_leaf_gets_a_gradient_of_its_own_dtype():
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    y = torch.ones(1, requires_grad=True)
    (x * y).sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (torch.float64, torch.float32)
