"""`rustgrad.explain_grad`: each way in which a gradient can be missing is told from the others."""

from __future__ import annotations

import linecache
import sys
import warnings
from collections.abc import Callable
from typing import Any

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
    with pytest.raises(TypeError, match=r"explain_grad\(\): loss must be a Tensor or a function, got float"):
        torch.explain_grad(parameter(), 1.0)  # type: ignore[arg-type]


def test_deep_graphs() -> None:
    w = parameter()
    y = w
    for _ in range(100_000):
        y = y + 1
    found = torch.explain_grad(w, y)
    assert len(found.path) == 100_001
    assert len(str(found).splitlines()) == 2 + 20 + 1 and "... 99981 more" in str(found)


# ---- functions that are run --------------------------------------------------------------------------------------------

Seeded = Callable[[torch.Tensor], torch.Tensor]


def detaches(w: torch.Tensor) -> torch.Tensor:
    h = w.exp()
    h = h.detach()  # here
    return (h * 2).sum()


def takes_data(w: torch.Tensor) -> torch.Tensor:
    h = w.exp().data
    return (h * 2).sum()  # here


def switches_off(w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        h = w.exp()
        h = h * w
    return (h * 2).sum()


def infers(w: torch.Tensor) -> torch.Tensor:
    h = w * 3
    with torch.inference_mode():
        return h.exp().sum()


def counts(w: torch.Tensor) -> torch.Tensor:
    hits = w.exp() > 0.5  # here
    return (hits * torch.ones(2, requires_grad=True)).sum()


def rounds_to_integers(w: torch.Tensor) -> torch.Tensor:
    h = w * 3
    whole = h.to(torch.int64)  # here
    return (whole * 2.0).sum()


def goes_through_numpy(w: torch.Tensor) -> torch.Tensor:
    h = w.exp()
    array = h.detach().numpy()  # here
    return (torch.from_numpy(array) * 2).sum()


def becomes_a_number(w: torch.Tensor) -> torch.Tensor:
    mean = w.exp().sum().item()  # here
    return (torch.ones(2, requires_grad=True) * mean).sum()


def detaches_in_place(w: torch.Tensor) -> torch.Tensor:
    h = w.exp()
    h.detach_()  # here
    return h.sum()


def copies_under_no_grad(w: torch.Tensor) -> torch.Tensor:
    buffer = torch.zeros(2)
    with torch.no_grad():
        buffer.copy_(w)  # here
    return buffer.sum()


LOST: dict[Seeded, tuple[str, str]] = {
    detaches: ("detached", "h = h.detach()"),
    takes_data: ("detached", "return (h * 2).sum()"),
    switches_off: ("no_grad", "h = w.exp()"),
    infers: ("inference_mode", "return h.exp().sum()"),
    counts: ("not_differentiable", "hits = w.exp() > 0.5"),
    rounds_to_integers: ("not_differentiable", "whole = h.to(torch.int64)"),
    goes_through_numpy: ("detached", "array = h.detach().numpy()"),
    becomes_a_number: ("left", "mean = w.exp().sum().item()"),
    detaches_in_place: ("detached", "h.detach_()"),
    copies_under_no_grad: ("no_grad", "buffer.copy_(w)"),
}


@pytest.mark.parametrize("seeded", LOST, ids=lambda seeded: seeded.__name__)
def test_the_line_of_a_seeded_mistake_is_named(seeded: Seeded) -> None:
    w = parameter()
    found = torch.explain_grad(w, lambda: seeded(w))
    reason, code = LOST[seeded]
    assert found.reason == reason
    assert found.line is not None and found.line.file == __file__ and found.line.function == seeded.__name__
    assert linecache.getline(__file__, found.line.number).split("#")[0].strip() == code
    assert f"{__file__}:{found.line.number}" in str(found)


class Doubled(torch.autograd.Function):
    """Runs operations in its forward, which record nothing and lose nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 2


def test_what_reaches_the_result_in_one_way_is_not_lost() -> None:
    w = parameter()
    assert torch.explain_grad(w, lambda: (Doubled.apply(w) * w.detach()).sum()).reason == "not_run"
    assert torch.explain_grad(w, lambda: (w.exp() * w.sum().item()).sum()).reason == "not_run"


def test_a_function_that_does_not_use_the_tensor() -> None:
    w, v = parameter(), parameter()
    found = torch.explain_grad(w, lambda: (v * 2).sum())
    assert found.reason == "not_in_graph" and found.line is None


def test_several_places_are_counted() -> None:
    w = parameter()
    found = torch.explain_grad(w, lambda: (w.detach() * (w > 0)).sum())
    assert "So it is in 1 more places" in str(found)


def test_nothing_watches_after_the_run_also_after_an_error() -> None:
    w, before = parameter(), sys.getprofile()

    def fails() -> torch.Tensor:
        w.exp()
        raise KeyError("of the function's own")

    with pytest.raises(KeyError, match="own"):
        torch.explain_grad(w, fails)
    assert sys.getprofile() is before
    with pytest.raises(TypeError, match=r"the function must return a Tensor, got int"):
        torch.explain_grad(w, lambda: 1)  # type: ignore[arg-type, return-value]
