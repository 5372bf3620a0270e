"""`torch.tensor`: numbers, lists and tensors in lists, and what does not fit a dtype."""

from __future__ import annotations

import pytest

import rustgrad as torch

HUGE = 10**30


@pytest.mark.parametrize(
    ("data", "shape", "dtype", "values"),
    [
        ([1, 2.5, True], (3,), torch.float32, [1.0, 2.5, 1.0]),
        ([[1, 2], [3, 4]], (2, 2), torch.int64, [[1, 2], [3, 4]]),
        # A tensor of one element is a number, whatever its dimensions.
        ([torch.tensor([2.0]), 1.0], (2,), torch.float32, [2.0, 1.0]),
        ([1, torch.tensor([[2.0]]).double()], (2,), torch.float64, [1.0, 2.0]),
        ([[torch.tensor([2.0])], [torch.tensor(3.0)]], (2, 1), torch.float32, [[2.0], [3.0]]),
        ([torch.zeros(3), torch.ones(3)], (2, 3), torch.float32, [[0.0] * 3, [1.0] * 3]),
        # Integers beyond int64 are no error where floats are made of them.
        ([HUGE, 1.5], (2,), torch.float32, [1.0000000150474662e30, 1.5]),
        ([1.5, 2**64 - 1], (2,), torch.float32, [1.5, 2.0**64]),
    ],
)
def test_what_lists_become(data: object, shape: tuple[int, ...], dtype: torch.dtype, values: object) -> None:
    t = torch.tensor(data)
    assert (tuple(t.shape), t.dtype, t.tolist()) == (shape, dtype, values)


def test_many_numbers_keep_their_places() -> None:
    numbers = [k * 0.5 for k in range(200_001)]
    assert torch.tensor(numbers, dtype=torch.float64).tolist() == numbers
    assert torch.tensor([numbers[:3]] * 70_000).sum(0).tolist() == [0.0, 35_000.0, 70_000.0]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (float("nan"), torch.int64),
        (float("-inf"), torch.int32),
        (3e20, torch.int64),
        (1e10, torch.int32),
        (-200.5, torch.int8),
        (255.9, torch.uint8),
        (-1.5, torch.uint8),
        (300, torch.uint8),
        (2**31, torch.int32),
    ],
)
def test_what_does_not_fit_a_dtype_is_an_error(value: float, dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(RuntimeError, match=f"value cannot be converted to type {name} without overflow"):
        torch.tensor([0, value], dtype=dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "kept"),
    [(1.7, torch.int32, 1), (-1, torch.uint8, 255), (HUGE, torch.bool, True), (2**63, torch.float64, 2.0**63)],
)
def test_what_does(value: float, dtype: torch.dtype, kept: float) -> None:
    assert torch.tensor([value], dtype=dtype).tolist() == [kept]
    assert torch.tensor(value, dtype=dtype).item() == kept


def test_integers_that_are_too_long() -> None:
    for data in (2**63, [2**63], [True, HUGE]):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            torch.tensor(data)
    with pytest.raises(OverflowError, match="int too large to convert to float"):
        torch.tensor([10**400], dtype=torch.float32)


def test_tensors_among_numbers_have_one_element() -> None:
    with pytest.raises(ValueError, match="only one element tensors can be converted to Python scalars"):
        torch.tensor([1.0, torch.zeros(3)])
