"""`x[key]` and `x[key] = value` against numpy, and where PyTorch differs from numpy, as PyTorch has it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rustgrad as torch

Key = Any


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.float64).reshape(shape)


def slices(n: int) -> st.SearchStrategy[slice]:
    ends = st.none() | st.integers(-n - 2, n + 2)
    return st.builds(slice, ends, ends, st.none() | st.integers(1, 3))


@st.composite
def keys(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Key, ...]]:
    """A shape and a key for it: integers, slices, `None`, one `...`, and at most two arrays of integers or one mask."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    front = draw(st.integers(0, len(shape)))
    back = draw(st.integers(0, len(shape) - front))
    dots = back > 0 or draw(st.booleans())
    width = draw(st.integers(1, 3))
    arrays = 0

    def part(n: int, may_be_array: bool) -> Key:
        nonlocal arrays
        kind = draw(st.sampled_from(["int", "slice", "slice", "array", "mask"]))
        if kind == "int":
            return draw(st.integers(-n, n - 1))
        if kind == "array" and may_be_array and arrays < 2:
            arrays += 1
            rows = draw(st.sampled_from([(width,), (1,), (2, width)]))
            count = int(np.prod(rows))
            flat = draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count))
            return np.array(flat, dtype=np.int64).reshape(rows)
        if kind == "mask" and may_be_array and arrays == 0:
            arrays = 2
            return np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        return draw(slices(n))

    parts: list[Key] = []
    for n in shape[:front]:
        parts += [None] * draw(st.sampled_from([0, 0, 0, 1]))
        parts.append(part(n, True))
    # To numpy, a `...` that stands for nothing still keeps two arrays apart; not to PyTorch.
    behind = arrays == 0
    if dots:
        parts.append(Ellipsis)
    parts += [part(n, behind) for n in shape[len(shape) - back :]]
    return shape, tuple(parts)


def has_lone_int_beside_arrays(key: tuple[Key, ...]) -> bool:
    """numpy counts an integer beside arrays as one of them; PyTorch takes its slice first."""
    return any(isinstance(k, np.ndarray) for k in key) and any(isinstance(k, int) for k in key)


def as_tensors(key: tuple[Key, ...]) -> tuple[Key, ...]:
    return tuple(torch.from_numpy(k) if isinstance(k, np.ndarray) else k for k in key)


@settings(max_examples=300, deadline=None)
@given(keys())
def test_reading_is_numpys(shape_and_key: tuple[tuple[int, ...], tuple[Key, ...]]) -> None:
    shape, key = shape_and_key
    array = numbers(shape)
    tensor = torch.from_numpy(array)
    want = array[key]
    got = tensor[as_tensors(key)]
    if has_lone_int_beside_arrays(key):
        assert sorted(got.numpy().ravel().tolist()) == sorted(want.ravel().tolist())
    else:
        assert got.shape == want.shape
        np.testing.assert_array_equal(got.numpy(), want)


@settings(max_examples=300, deadline=None)
@given(keys(), st.booleans())
def test_writing_is_numpys(shape_and_key: tuple[tuple[int, ...], tuple[Key, ...]], one_number: bool) -> None:
    shape, key = shape_and_key
    array = numbers(shape)
    tensor = torch.from_numpy(array.copy())
    want = array.copy()
    target = tensor[as_tensors(key)]
    if one_number or has_lone_int_beside_arrays(key):
        want[key] = -1.0
        tensor[as_tensors(key)] = -1.0
    else:
        values = np.asarray(-1.0 - numbers(tuple(target.shape)))
        want[key] = values
        tensor[as_tensors(key)] = torch.from_numpy(values)
    np.testing.assert_array_equal(tensor.numpy(), want)


@settings(max_examples=100, deadline=None)
@given(keys())
def test_gradients_count_how_often_an_element_is_read(shape_and_key: tuple[tuple[int, ...], tuple[Key, ...]]) -> None:
    shape, key = shape_and_key
    array = numbers(shape)
    leaf = torch.from_numpy(array).requires_grad_()
    leaf[as_tensors(key)].sum().backward()
    want = np.zeros(shape)
    np.add.at(want, key, 1.0)
    np.testing.assert_array_equal(leaf.grad.numpy(), want)


def test_lists_and_arrays_are_indices_or_masks() -> None:
    x = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    assert x[[1, 0]].tolist() == [[3, 4, 5], [0, 1, 2]]
    assert x[[True, False]].tolist() == [[0, 1, 2]]
    assert x[np.array([1])].tolist() == [[3, 4, 5]]
    assert x[np.int64(1), 2].item() == 5
    assert x[range(2), [0, 1]].tolist() == [0, 4]
    assert x[[]].shape == (0, 3)
    assert x[torch.tensor(1)].tolist() == [3, 4, 5]
    assert x[: torch.tensor(1)].shape == (1, 3)
    assert x[0 : 2**70].shape == (2, 3)
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        assert x[[[0, 1], [0, 2]]].tolist() == [0, 5]
    with pytest.warns(UserWarning, match="uint8 is now deprecated"):
        assert x[torch.tensor([1, 0], dtype=torch.uint8)].tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("key", "error", "words"),
    [
        (1.5, IndexError, "only integers, slices"),
        ("a", IndexError, "only integers, slices"),
        (object(), IndexError, "only integers, slices"),
        ([0.5], IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
        (slice(0, 1.5), TypeError, "slice indices must be integers or None"),
        (slice(None, None, 0), ValueError, "slice step cannot be zero"),
        (slice(None, None, -1), ValueError, "step must be greater than zero"),
        (2, IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
        ((0, 0, 0), IndexError, "too many indices for tensor of dimension 2"),
    ],
)
def test_refusals(key: Key, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("(", r"\(")):
        torch.tensor([[0.0, 1.0], [2.0, 3.0]])[key]


def test_what_cannot_be_assigned() -> None:
    x = torch.tensor([0.0, 1.0])
    for value in ("a", None):
        with pytest.raises(TypeError, match="can't assign a"):
            x[0] = value
    counts = torch.tensor([1, 2])
    counts[0] = 2.7
    assert counts.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="value cannot be converted to type int64_t without overflow"):
        counts[0] = float("nan")


def test_no_warning_for_what_is_not_deprecated() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
        x[[0, 1]], x[(0, 1)], x[torch.tensor([0, 1]), torch.tensor([0, 1])], x[x > 1]
