"""`rustgrad.explain_grad`: each way in which a gradient can be missing is told from the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

import rustgrad as torch
from rustgrad import graph

pytestmark = pytest.mark.row("B2.explain_grad")

Case = tuple[torch.Tensor, torch.Tensor]


def parameter() -> torch.Tensor:
    return torch.ones(2, requires_grad=True)


def after_backward() -> Case:
    w = parameter()
    loss = w.exp().sum()
    loss.backward()
    return w, loss


def frozen() -> Case:
    w = parameter()
    return torch.ones(2), (w * torch.ones(2)).sum()


def indices() -> Case:
    return torch.arange(2), parameter().sum()


def computed() -> Case:
    w = parameter() * 0.1
    loss = w.exp().sum()
    loss.backward()
    return w, loss


def compared() -> Case:
    w = parameter()
    return w, (w > 0).sum()


def nothing_recorded() -> Case:
    w = parameter()
    with torch.no_grad():
        return w, w.exp().sum()


def unused() -> Case:
    return parameter(), parameter().sum()


def half_detached() -> Case:
    w, v = parameter(), parameter()
    return w, (w.detach() * v).sum()


def other_inputs() -> Case:
    w, v = parameter(), parameter()
    loss = (w.exp() + v).exp().sum()
    loss.backward(inputs=[v])
    return w, loss


def reset() -> Case:
    w, loss = after_backward()
    w.grad = None
    return w, loss


def not_yet() -> Case:
    w = parameter()
    return w, w.exp().sum()


def not_yet_retained() -> Case:
    w = parameter().exp()
    w.retain_grad()
    return w, w.sum()


def itself() -> Case:
    w = torch.ones((), requires_grad=True)
    return w, w


REASONS: dict[Callable[[], Case], tuple[str, str]] = {
    after_backward: ("present", "not None"),
    frozen: ("not_required", "requires_grad_()"),
    indices: ("not_differentiable", "torch.int64"),
    computed: ("not_leaf", "retain_grad()"),
    compared: ("no_history", "torch.int64"),
    nothing_recorded: ("no_history", "no_grad()"),
    unused: ("not_in_graph", "was not used"),
    half_detached: ("not_in_graph", "detached on the way"),
    other_inputs: ("excluded", "inputs="),
    reset: ("freed", "zero_grad()"),
    not_yet: ("not_run", "call backward()"),
    not_yet_retained: ("not_run", "call backward()"),
    itself: ("not_run", "call backward()"),
}


@pytest.mark.parametrize("case", REASONS, ids=lambda case: case.__name__)
def test_the_reason_is_named(case: Callable[[], Case]) -> None:
    w, loss = case()
    reason, words = REASONS[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # .grad of what is no leaf warns when it is read
        found = torch.explain_grad(w, loss)
    assert found.reason == reason
    assert words in str(found)


def test_the_path_leads_from_the_result_to_the_tensor() -> None:
    w = parameter()
    loss = (w.exp() * 2).sum()
    found = torch.explain_grad(w, loss)
    names = [step.split(" at ")[0] for step in found.path]
    assert names == ["SumBackward0", "MulBackward0", "ExpBackward0", "AccumulateGrad"]
    assert str(found).count("-> ") == 3
    assert graph.explain_grad(loss, loss.sin()).path  # also to what was computed


def test_a_leaf_in_the_same_memory_is_pointed_at() -> None:
    w = parameter()
    twin = w.detach().requires_grad_()
    assert "Another tensor in the same memory was used" in str(torch.explain_grad(w, twin.sum()))
    assert "Another" not in str(torch.explain_grad(w, parameter().sum()))


def test_tensors_of_inference_mode() -> None:
    with torch.inference_mode():
        w = torch.ones(2)
    found = torch.explain_grad(w, parameter().sum())
    assert found.reason == "not_required" and "inference mode" in found.text


def test_looking_changes_nothing() -> None:
    w, loss = not_yet()
    torch.explain_grad(w, loss)
    loss.backward()
    assert w.grad is not None


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"explain_grad\(\): tensor must be a Tensor, got str"):
        torch.explain_grad("w", parameter().sum())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"explain_grad\(\): loss must be a Tensor, got float"):
        torch.explain_grad(parameter(), 1.0)  # type: ignore[arg-type]


def test_deep_graphs() -> None:
    w = parameter()
    y = w
    for _ in range(100_000):
        y = y + 1
    found = torch.explain_grad(w, y)
    assert len(found.path) == 100_001
    assert len(str(found).splitlines()) == 2 + 20 + 1 and "... 99981 more" in str(found)
