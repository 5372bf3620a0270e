"""`rustgrad.testing`: what is close, and the messages, which are PyTorch 2.13's."""

import math

import pytest

import rustgrad as torch
from rustgrad.testing import assert_close, make_tensor

nan, inf = math.nan, math.inf
T = torch.tensor


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (T([1.0, 2.0]), T([1.0, 2.000001])), (T([inf, -inf]), T([inf, -inf])), (T([0.0]), T([9e-6])),
        (T([1, 2]), T([1, 2])),
        (1.0, 1.00000001), (3, 3), (True, True), (None, None), ([1.0, {"a": T([2.0])}], (1.0, {"a": T([2.0])})),
        (torch.ones(2, requires_grad=True), torch.ones(2)), (torch.zeros(0), torch.zeros(0)), (1 + 1j, 1 + 1j),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16) * 1.01),
    ],
)  # fmt: skip
def test_close(actual, expected):
    assert_close(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (T([1.0, 2.0, 3.0]), T([1.0, 2.1, 3.0]),
         "Tensor-likes are not close!\n\nMismatched elements: 1 / 3 (33.3%)\n"
         "Greatest absolute difference: 0.09999990463256836 at index (1,) (up to 1e-05 allowed)\n"
         "Greatest relative difference: 0.04761900380253792 at index (1,) (up to 1.3e-06 allowed)"),
        (T([[1.0, 2.0], [3.0, 0.0]]), T([[1.0, 2.0], [4.0, 1.0]]),
         "Tensor-likes are not close!\n\nMismatched elements: 2 / 4 (50.0%)\n"
         "Greatest absolute difference: 1.0 at index (1, 0) (up to 1e-05 allowed)\n"
         "Greatest relative difference: 1.0 at index (1, 1) (up to 1.3e-06 allowed)"),
        (T([1, 2]), T([1, 3]),
         "Tensor-likes are not equal!\n\nMismatched elements: 1 / 2 (50.0%)\n"
         "Greatest absolute difference: 1 at index (1,)\n"
         "Greatest relative difference: 0.3333333432674408 at index (1,)"),
        (T([nan]), T([nan]),
         "Tensor-likes are not close!\n\nMismatched elements: 1 / 1 (100.0%)\n"
         "Greatest absolute difference: nan at index (0,) (up to 1e-05 allowed)\n"
         "Greatest relative difference: nan at index (0,) (up to 1.3e-06 allowed)"),
        (T(1.0), T(2.0),
         "Scalars are not close!\n\nExpected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-05 allowed)\n"
         "Relative difference: 0.5 (up to 1.3e-06 allowed)"),
        (1, 2, "Scalars are not equal!\n\nExpected 2 but got 1.\nAbsolute difference: 1\nRelative difference: 0.5"),
        ([1.0, 2.0], [1.0, 3.0],
         "Scalars are not close!\n\nExpected 3.0 but got 2.0.\nAbsolute difference: 1.0 (up to 1e-07 allowed)\n"
         "Relative difference: 0.3333333333333333 (up to 1e-07 allowed)\n\nThe failure occurred for item [1]"),
        (torch.ones(2), torch.ones(3),
         "The values for attribute 'shape' do not match: torch.Size([2]) != torch.Size([3])."),
        (torch.ones(2), torch.ones(2, dtype=torch.float64),
         "The values for attribute 'dtype' do not match: torch.float32 != torch.float64."),
        ([1.0], [1.0, 2.0], "The length of the sequences mismatch: 1 != 2"),
        ({"a": 1}, {"b": 1}, "The keys of the mappings do not match:\nMissing keys in the actual mapping: ['b']\n"
                             "Additional keys in the actual mapping: ['a']"),
        (True, False, "Booleans mismatch: True is not False"),
        (1.0, 1, "The (d)types do not match: <class 'float'> != <class 'int'>."),
        ({"a": [T([1]), T([2])]}, {"a": [T([1]), T([3])]},
         "Tensor-likes are not equal!\n\nMismatched elements: 1 / 1 (100.0%)\n"
         "Greatest absolute difference: 1 at index (0,)\n"
         "Greatest relative difference: 0.3333333432674408 at index (0,)\n\nThe failure occurred for item ['a'][1]"),
    ],
)  # fmt: skip
def test_messages(actual, expected, message):
    with pytest.raises(AssertionError) as error:
        assert_close(actual, expected)
    assert str(error.value) == message


def test_options():
    one, two = torch.ones(2), torch.ones(2) * 2
    assert_close(T([nan]), T([nan]), equal_nan=True)
    assert_close(one, two, rtol=0, atol=1.0)
    assert_close(one, one.double(), check_dtype=False)
    assert_close(torch.ones(2, 2).t(), torch.ones(2, 2))
    with pytest.raises(AssertionError, match=r"attribute 'stride\(\)'"):
        assert_close(torch.ones(2, 2).t(), torch.ones(2, 2), check_stride=True)
    with pytest.raises(AssertionError, match="^mine$"):
        assert_close(one, two, msg="mine")
    with pytest.raises(AssertionError, match="^mine: Tensor-likes"):
        assert_close(one, two, msg=lambda text: f"mine: {text}")
    for given in ({"rtol": 1e-3}, {"atol": 1e-3}):
        with pytest.raises(ValueError, match="Both 'rtol' and 'atol' must be either specified or omitted"):
            assert_close(one, one, **given)
    for pair in (("a", "a"), (one, [1.0, 1.0]), (object(), object())):
        with pytest.raises(TypeError, match="No comparison pair was able to handle inputs of type"):
            assert_close(*pair)


def test_make_tensor():
    torch.manual_seed(0)
    t = make_tensor((50, 40), dtype=torch.float32, device="cpu")
    assert t.shape == (50, 40) and -9 <= t.min().item() < -8.5 and 8.5 < t.max().item() <= 9
    assert make_tensor(2, 3, dtype=torch.float64, device="cpu", requires_grad=True).requires_grad
    assert not make_tensor(4, 6, dtype=torch.float32, device="cpu", noncontiguous=True).is_contiguous()
    ints = make_tensor(1000, dtype=torch.int64, device="cpu", low=-1, high=2)
    assert set(ints.tolist()) == {-1, 0, 1}
    assert 0 not in make_tensor(1000, dtype=torch.int64, device="cpu", low=-1, high=2, exclude_zero=True).tolist()
    assert set(make_tensor(100, dtype=torch.bool, device="cpu").tolist()) == {True, False}
    with pytest.raises(ValueError, match="`low` must be less than `high`"):
        make_tensor(1, dtype=torch.float32, device="cpu", low=1, high=1)
    with pytest.raises(ValueError, match="only supported for floating point"):
        make_tensor(1, dtype=torch.int64, device="cpu", requires_grad=True)
