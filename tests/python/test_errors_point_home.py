"""Errors name the line they come from: which saved, which changed, which made the first NaN, in which module."""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from collections.abc import Callable

import pytest

import rustgrad as torch
from rustgrad import nn

F = nn.functional
inf, nan = float("inf"), float("nan")


def line_of(function: Callable[..., object], text: str) -> str:
    """`line 12` of this file, where `text` stands in `function`."""
    lines, first = inspect.getsourcelines(function)
    return f"line {first + next(k for k, line in enumerate(lines) if text in line)}, in "


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes)


SHAPES = {
    "add": lambda: ones(2, 3) + ones(2, 2),
    "mul": lambda: ones(4).mul(ones(3)),
    "div": lambda: torch.div(ones(4), ones(3)),
    "pow": lambda: ones(4) ** ones(3),
    "maximum": lambda: torch.maximum(ones(4), ones(3)),
    "where": lambda: torch.where(ones(2) > 0, ones(3), ones(4)),
    "lt": lambda: ones(4) < ones(3),
    "matmul": lambda: ones(2, 3) @ ones(2, 3),
    "mm": lambda: torch.mm(ones(2, 3), ones(2, 3)),
    "bmm": lambda: torch.bmm(ones(1, 2, 3), ones(1, 2, 3)),
    "dot": lambda: torch.dot(ones(2), ones(3)),
    "addmm": lambda: torch.addmm(ones(2), ones(2, 3), ones(2, 3)),
    "linear": lambda: F.linear(ones(2, 3), ones(4, 5)),
    "cat": lambda: torch.cat([ones(2, 3), ones(3, 2)]),
    "stack": lambda: torch.stack([ones(2), ones(3)]),
    "view": lambda: ones(2, 3).view(4),
    "reshape": lambda: ones(2, 3).reshape(4),
    "expand": lambda: ones(2, 3).expand(4, 3),
    "gather": lambda: torch.gather(ones(2, 2), 0, torch.zeros(2, dtype=torch.int64)),
    "add_": lambda: ones(2).add_(ones(3)),
    "copy_": lambda: ones(2).copy_(ones(3)),
}


@pytest.mark.row("B2.shape_errors")
@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_error_names_operation_shapes_and_line(name: str) -> None:
    call = SHAPES[name]
    with pytest.raises(RuntimeError) as caught:
        call()
    first, *rest = str(caught.value).splitlines()
    text = "\n".join(rest)
    assert "rustgrad" not in first
    assert re.search(rf"in the call {name.rstrip('_')}\(.*float32 \[\d", text), text
    assert f'File "{__file__}", line {call.__code__.co_firstlineno}, in ' in text


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(3, 4)
        self.stages = nn.Sequential(nn.ReLU(), nn.Linear(5, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stages(self.fc1(x))


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


@pytest.mark.row("B2.shape_errors")
def test_a_shape_error_names_the_module() -> None:
    with pytest.raises(RuntimeError) as caught:
        Outer()(ones(2, 3))
    text = str(caught.value)
    assert text.startswith("mat1 and mat2 shapes cannot be multiplied (2x4 and 5x2)")
    assert "in module Outer.inner.stages.1: Linear(in_features=5, out_features=2, bias=True)" in text
    assert line_of(Inner.forward, "self.stages(") + "Inner.forward" in text


@pytest.mark.row("B2.inplace_blame", "A11.version_message")
def test_a_version_error_names_both_lines() -> None:
    def train() -> None:
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        z = y.exp()
        y.mul_(3)
        z.add_(1)  # changes what exp saved
        z.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        train()
    text = str(caught.value)
    assert text.startswith(
        "one of the variables needed for gradient computation has been modified by an inplace operation"
    )
    saved, changed = text.split("changed in place, last, by")
    assert line_of(train, "y.exp()") in saved and "z = y.exp()" in saved
    assert line_of(train, "z.add_(1)") in changed and "z.add_(1)" in changed


@pytest.mark.row("B2.inplace_blame")
def test_a_version_error_names_the_line_that_stepped_the_optimiser() -> None:
    def train() -> None:
        net = nn.Linear(2, 2)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        hidden = net(net(ones(1, 2)))
        hidden.sum().backward(retain_graph=True)
        optimiser.step()
        hidden.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        train()
    saved, changed = str(caught.value).split("changed in place, last, by")
    assert line_of(train, "net(net(") in saved
    assert line_of(train, "optimiser.step()") in changed


@pytest.mark.row("B2.inplace_blame")
def test_setting_an_element_and_data_of_a_view_are_blamed_too() -> None:
    def change() -> None:
        x = torch.ones(3, requires_grad=True)
        y = x.sigmoid()
        y[0] = 5.0
        y.sum().backward()

    with pytest.raises(RuntimeError, match=re.escape(line_of(change, "y[0] = 5.0"))):
        change()


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")


@pytest.mark.row("B2.traceback_notes", "A2.exceptions")
def test_an_error_in_backward_carries_the_forward_line() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = Broken.apply(x)
        return y * 2

    with pytest.raises(KeyError) as caught:
        forward(torch.ones(2, requires_grad=True)).sum().backward()
    assert caught.value.args == ("mine",)
    (note,) = caught.value.__notes__
    assert "BrokenBackward" in note and line_of(forward, "Broken.apply") in note and "y = Broken.apply(x)" in note
    assert "mine" in "".join(traceback.format_exception(caught.value))


@pytest.mark.row("B2.traceback_notes")
def test_errors_of_hooks_and_freed_graphs_carry_it_too() -> None:
    def forward() -> torch.Tensor:
        x = torch.ones(2, requires_grad=True)
        return x.exp()

    y = forward()
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time") as freed:
        y.sum().backward()
    assert line_of(forward, "x.exp()") in freed.value.__notes__[0]

    y = forward()
    y.register_hook(lambda grad: grad[:1])
    with pytest.raises(RuntimeError, match="changed the size") as hook:
        y.sum().backward()
    assert "ExpBackward0" in hook.value.__notes__[0]


@pytest.mark.row("B2.nonfinite")
def test_the_line_of_a_nan_in_backward_is_named() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x.sqrt()
        return (y * 0).sum()

    x = torch.tensor([4.0, 0.0], requires_grad=True)
    with torch.trace_nonfinite(), pytest.raises(RuntimeError) as caught:
        forward(x).backward()
    text = str(caught.value)
    assert re.match(r"SqrtBackward0 produced NaN at index \[1\] of the gradient of its input 0", text), text
    assert line_of(forward, "x.sqrt()") in text
    assert "saved result: torch.float32 [2] (all finite; min 0.0000e0, max 2.0000e0" in text


@pytest.mark.row("B2.nonfinite")
@pytest.mark.parametrize(
    ("name", "call"),
    {
        "exp": lambda x: x.exp(),
        "log": lambda x: (x - 1000).log(),
        "div": lambda x: x / (x - 1000),
        "mul": lambda x: (x * 1e30) * (x * 1e30),
        "sqrt": lambda x: (-x).sqrt(),
        "matmul": lambda x: (x * 1e30) @ (x * 1e30),
        "mul_": lambda x: (x * 1e30).mul_(1e30),
        "half": lambda x: (x * 1000).half(),
        "sum": lambda x: (x * 1e35).sum(),
    }.items(),
)
def test_forward_names_the_producer(name: str, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.full((4,), 1000.0)
    with torch.trace_nonfinite(), pytest.raises(RuntimeError) as caught:
        call(x) + 1
    text = str(caught.value)
    assert re.match(rf"{name.rstrip('_')} produced (inf|-inf|NaN) at index \[0?\] of its result", text), text
    assert f"line {call.__code__.co_firstlineno}, in " in text


@pytest.mark.row("B2.nonfinite")
def test_what_passes_a_value_on_is_not_to_blame() -> None:
    x = torch.tensor([inf, nan, -inf], requires_grad=True)
    with torch.trace_nonfinite():
        y = x * 2 + 1
        masked = torch.ones(2).masked_fill(torch.tensor([True, False]), -inf)
        filled = torch.full((2,), nan)
        y.sum().backward()
    assert masked[0] == -inf and filled.isnan().all()
    assert x.grad is not None and x.grad.tolist() == [2, 2, 2]


@pytest.mark.row("B2.nonfinite")
def test_it_can_look_at_one_direction_alone_and_leaves_no_trace() -> None:
    x = torch.zeros(1, requires_grad=True)
    with torch.trace_nonfinite(backward=False):
        x.sqrt().sum().backward()
        with pytest.raises(RuntimeError, match="log produced -inf"):
            torch.log(x)
    with torch.trace_nonfinite(forward=False):
        assert torch.log(x).item() == -inf
        with pytest.raises(RuntimeError, match="SqrtBackward0 produced inf"):
            x.sqrt().sum().backward()
    assert torch.log(x).item() == -inf  # no longer watched

    @torch.trace_nonfinite()
    def watched() -> torch.Tensor:
        return torch.log(x)

    with pytest.raises(RuntimeError, match="log produced"):
        watched()


@pytest.mark.row("B2.nonfinite")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_inside_of_custom_functions_and_hooks_is_looked_at() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return (x.sqrt() * 0).sum()

    x = torch.zeros(2, requires_grad=True)
    for use_reentrant in (True, False):
        with torch.trace_nonfinite(), pytest.raises(RuntimeError, match="SqrtBackward0 produced NaN") as caught:
            torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=use_reentrant).backward()
        assert line_of(inner, "x.sqrt()") in str(caught.value)
    y = torch.ones(2, requires_grad=True)
    y.register_hook(lambda grad: grad / (grad * 0))
    with torch.trace_nonfinite(), pytest.raises(RuntimeError, match="div produced inf"):
        (y * 2).sum().backward()


@pytest.mark.row("B2.nonfinite")
def test_what_is_no_truth_value_is_refused() -> None:
    for wrong in ("x", 5, None):
        with pytest.raises(TypeError, match="forward and backward are True or False"):
            torch.trace_nonfinite(wrong)


@pytest.mark.row("B2.nonfinite")
def test_results_are_the_same_while_watched() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(5, 4)

    def gradients() -> list[list[float]]:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        (first,) = torch.autograd.grad(loss, [net[0].weight], create_graph=True)
        first.pow(2).sum().backward()
        return [p.grad.flatten().tolist() for p in net.parameters() if p.grad is not None]

    plain = gradients()
    with torch.trace_nonfinite():
        assert gradients() == plain


@pytest.mark.row("A9.undefined_gradients")
@pytest.mark.parametrize("f", [torch.relu, torch.abs, F.leaky_relu, F.relu6, lambda x: torch.clamp(x, -1, 1)])
def test_a_derivative_that_is_constant_has_gradient_zero(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    y = x * 2  # a node that zero passes through
    (first,) = torch.autograd.grad(f(y).sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), x, retain_graph=True)[0].tolist() == [0, 0, 0]
    first.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 0]


@pytest.mark.row("A9.undefined_gradients")
def test_zero_meets_infinity_without_becoming_nan() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    root = x.sqrt()  # its derivative at 0 is infinite
    (first,) = torch.autograd.grad(torch.relu(root).sum(), root, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [0, 0]


@pytest.mark.row("A9.undefined_gradients")
def test_hooks_and_custom_functions_see_zero_as_zeros() -> None:
    seen: list[object] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            seen.append(grad.tolist())
            return grad * 2

    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y = Double.apply(x)
    z = y + 1
    z.register_hook(lambda grad: seen.append(grad.tolist()))
    (first,) = torch.autograd.grad(torch.relu(z).sum(), z, create_graph=True)
    seen.clear()
    first.sum().backward()
    assert seen == [[0, 0], [0, 0]]
    assert x.grad is not None and x.grad.tolist() == [0, 0]


@pytest.mark.row("A9.undefined_gradients")
def test_what_a_gradient_does_not_depend_on_is_unused() -> None:
    x, y = torch.ones(2, requires_grad=True), torch.full((2,), 3.0, requires_grad=True)
    gx, _ = torch.autograd.grad((x * y).sum(), (x, y), create_graph=True)
    assert torch.autograd.grad(gx.sum(), (x, y), allow_unused=True)[0] is None


def test_a_line_costs_no_warning_and_no_frame() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.ones(2, requires_grad=True)
        exec(compile("y = x * 2", "<generated>", "exec"), {"x": x}, namespace := {})
    assert torch._core._node_location(namespace["y"].grad_fn) == ("<generated>", 1, "<module>", None)
