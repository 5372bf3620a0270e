"""That the replay of the golden values can fail: wrong results, wrong gradients and wrong positions are all seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_golden import GOLDEN

import golden_compare
import rustgrad as torch


class Doctored:
    """rustgrad with some functions replaced."""

    def __init__(self, **replaced: Any) -> None:
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def sample(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first sample of an operator that has second gradients, or the first."""
    found = list(GOLDEN.samples(name=name))
    return next(((op, s) for op, s in found if "vjp2" in s), found[0])


def complaints(name: str, **replaced: Any) -> list[str]:
    return golden_compare.failures(Doctored(**replaced), GOLDEN, *sample(name))


def forward_complaints(name: str, **replaced: Any) -> list[str]:
    """The same for results alone, of a function that cuts the graph."""
    op, s = sample(name)
    forward = {key: value for key, value in s.items() if key not in ("vjp", "vjp2")}
    return golden_compare.failures(Doctored(**replaced), GOLDEN, op, forward)


def test_the_right_function_passes() -> None:
    assert complaints("exp") == []


def test_a_wrong_result_is_seen() -> None:
    (first, *_) = complaints("exp", exp=lambda x: torch.exp(x) * (1 + 1e-6))
    assert first.startswith("result 0: ")


def test_a_wrong_gradient_is_seen() -> None:
    # The right values with the derivative 1.
    wrong = complaints("exp", exp=lambda x: torch.exp(x.detach()) + (x - x.detach()))
    assert wrong[0].startswith("gradient of tensor 0: ")


def test_a_wrong_second_gradient_is_seen() -> None:
    # The right values and the right gradient, which is taken for a constant.
    wrong = complaints("exp", exp=lambda x: torch.exp(x.detach()) * (1 + x - x.detach()))
    assert wrong, "nothing seen"
    assert all(text.startswith("second gradient of tensor 0: ") for text in wrong)


def test_a_result_cut_from_the_graph_is_seen() -> None:
    assert complaints("exp", exp=lambda x: torch.exp(x).detach())[0].startswith("raised ")


def test_a_wrong_dtype_and_a_missing_result_are_seen() -> None:
    assert "dtype float32" in complaints("floor", floor=lambda x: torch.floor(x).float())[0]
    alone = complaints("topk", topk=lambda *a, **k: torch.topk(*a, **k).values)[0]
    assert "1 results, expected 2" in alone or "has no field 'values'" in alone
    bare = complaints("topk", topk=lambda *a, **k: tuple(torch.topk(*a, **k)))
    assert bare == ["the result has no field 'values'", "the result has no field 'indices'"]


def test_factors_are_held_to_what_they_must_do() -> None:
    # Factors made by numpy, whose signs are its own.
    def factors(a: Any, mode: str = "reduced", scale: float = 1.0) -> SignedQR:
        q, r = np.linalg.qr(a.detach().numpy(), mode if mode != "r" else "reduced")
        return SignedQR(*(torch.from_numpy(np.ascontiguousarray(scale * f)) for f in (q, r)))

    flipped = SimpleNamespace(qr=lambda *a, **k: factors(*a, **k, scale=-1.0))
    assert forward_complaints("linalg.qr", linalg=flipped) == []
    scaled = SimpleNamespace(qr=lambda *a, **k: factors(*a, **k, scale=2.0))
    assert any("orthonormal" in text for text in complaints("linalg.qr", linalg=scaled))


class SignedQR(tuple[Any, Any]):
    def __new__(cls, q: Any, r: Any) -> SignedQR:
        return super().__new__(cls, (q, r))

    Q = property(lambda self: self[0])
    R = property(lambda self: self[1])


@pytest.mark.parametrize(
    ("name", "positions", "passes"),
    [
        ("argmax", 0, True),  # the equal maxima stand at 0 and 2
        ("argmax", 2, True),
        ("argmax", 1, False),
        ("argmax", 4, False),
        ("argsort", [1, 3, 0, 2], True),
        ("argsort", [3, 1, 2, 0], True),
        ("argsort", [1, 1, 0, 2], False),  # the right values, and a position twice
        ("argsort", [0, 2, 1, 3], False),
    ],
)
def test_positions_may_differ_among_equals_only(name: str, positions: Any, passes: bool) -> None:
    values = torch.tensor([7.0, 1.0, 7.0, 1.0])
    want = {"argmax": np.array(0), "argsort": np.array([1, 3, 0, 2])}[name]
    described = {"args": [{"tensor": 0}], "kwargs": {}}
    wrong = golden_compare._compare_positions(name, described, [values], np.array(positions), want)
    assert (wrong is None) == passes, wrong


def test_zeros_and_none_are_equal_gradients() -> None:
    x = torch.zeros(2)
    assert golden_compare._compare_gradient(None, np.zeros(2, np.float32), x, 1.0) is None
    assert golden_compare._compare_gradient(torch.zeros(2), None, x, 1.0) is None
    assert golden_compare._compare_gradient(None, np.ones(2, np.float32), x, 1.0)
    assert golden_compare._compare_gradient(torch.ones(2), None, x, 1.0)


def test_absence_is_seen() -> None:
    op, _ = sample("exp")
    assert golden_compare.resolves(torch, op)
    assert not golden_compare.resolves(torch, op | {"path": "no_such_function"})
    assert not golden_compare.resolves(torch, op | {"call": "method", "path": "no_such_method"})
