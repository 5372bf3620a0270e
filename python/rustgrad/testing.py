"""`rustgrad.testing`: `assert_close`, with PyTorch's tolerances and a message that says where, and `make_tensor`."""

from __future__ import annotations

import cmath
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from rustgrad import _core
from rustgrad._core import Tensor, device, dtype

__all__ = ["assert_close", "make_tensor"]

# relative and absolute tolerance; 0 for dtypes that are not listed
_TOLERANCES: dict[dtype, tuple[float, float]] = {
    _core.float16: (1e-3, 1e-5),
    _core.bfloat16: (1.6e-2, 1e-5),
    _core.float32: (1.3e-6, 1e-5),
    _core.float64: (1e-7, 1e-7),
}


class _Comparison:
    """The settings of one `assert_close`, and the comparisons that use them."""

    def __init__(
        self,
        rtol: float | None,
        atol: float | None,
        equal_nan: bool,
        check_device: bool,
        check_dtype: bool,
        check_stride: bool,
        allow_subclasses: bool,
        msg: str | Callable[[str], str] | None,
    ) -> None:
        if (rtol is None) != (atol is None):
            absent = "atol" if atol is None else "rtol"
            raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {absent}.")
        self.given = None if rtol is None or atol is None else (rtol, atol)
        self.equal_nan = equal_nan
        self.check_device = check_device
        self.check_dtype = check_dtype
        self.check_stride = check_stride
        self.allow_subclasses = allow_subclasses
        self.msg = msg

    def fail(self, text: str, path: tuple[Any, ...]) -> NoReturn:
        if path:
            text += f"\n\nThe failure occurred for item {''.join(f'[{step!r}]' for step in path)}"
        if self.msg is not None:
            text = self.msg(text) if callable(self.msg) else self.msg
        raise AssertionError(text)

    def tolerances(self, *kinds: dtype) -> tuple[float, float]:
        """The given tolerances, or the wider of the defaults of the dtypes."""
        if self.given is not None:
            return self.given
        pairs = [_TOLERANCES.get(kind, (0.0, 0.0)) for kind in kinds]
        return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)

    def compare(self, actual: Any, expected: Any, path: tuple[Any, ...] = ()) -> None:
        if _is_sequence(actual) and _is_sequence(expected):
            if len(actual) != len(expected):
                self.fail(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", path)
            for place, (one, other) in enumerate(zip(actual, expected, strict=True)):
                self.compare(one, other, (*path, place))
        elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
            self.compare_mappings(actual, expected, path)
        elif actual is None or expected is None:
            if actual is not expected:
                self.fail(f"None mismatch: {actual} is not {expected}", path)
        elif isinstance(actual, bool) and isinstance(expected, bool):
            if actual is not expected:
                self.fail(f"Booleans mismatch: {actual} is not {expected}", path)
        elif _is_number(actual) and _is_number(expected):
            self.compare_numbers(actual, expected, path)
        elif _is_tensor_like(actual) and _is_tensor_like(expected):
            if not self.allow_subclasses and type(actual) is not type(expected):
                raise TypeError(
                    f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
                )
            self.compare_tensors(_core.as_tensor(actual), _core.as_tensor(expected), path)
        else:
            raise TypeError(
                f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
            )

    def compare_mappings(self, actual: Mapping[Any, Any], expected: Mapping[Any, Any], path: tuple[Any, ...]) -> None:
        if actual.keys() != expected.keys():
            missing = [key for key in expected if key not in actual]
            extra = [key for key in actual if key not in expected]
            self.fail(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\nAdditional keys in the actual mapping: {extra}",
                path,
            )
        for key in expected:
            self.compare(actual[key], expected[key], (*path, key))

    def compare_numbers(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        if self.check_dtype and type(actual) is not type(expected):
            self.fail(f"The (d)types do not match: {type(actual)} != {type(expected)}.", path)
        both_int = isinstance(actual, int) and isinstance(expected, int)
        rtol, atol = self.tolerances(_core.int64 if both_int else _core.float64)
        if actual == expected or (self.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
            return
        difference = abs(actual - expected)
        if cmath.isfinite(difference) and difference <= atol + rtol * abs(expected):
            return
        relative = difference / abs(expected) if expected else float("inf")
        self.fail(_scalar_text(actual, expected, difference, relative, rtol, atol), path)

    def compare_tensors(self, actual: Tensor, expected: Tensor, path: tuple[Any, ...]) -> None:
        self.check_attribute("shape", actual.shape, expected.shape, path)
        if self.check_device:
            self.check_attribute("device", actual.device, expected.device, path)
        if self.check_dtype:
            self.check_attribute("dtype", actual.dtype, expected.dtype, path)
        if self.check_stride:
            self.check_attribute("stride()", actual.stride(), expected.stride(), path)
        rtol, atol = self.tolerances(actual.dtype, expected.dtype)
        actual, expected = _comparable(actual, expected)
        close = _core.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if not bool(close.all()):
            self.fail(_tensor_text(actual, expected, close, rtol, atol), path)

    def check_attribute(self, name: str, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        if actual != expected:
            self.fail(f"The values for attribute '{name}' do not match: {actual} != {expected}.", path)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) and not isinstance(value, bool)


def _is_tensor_like(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    numpy = sys.modules.get("numpy")  # no array without numpy
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def _comparable(actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Both on the CPU and of one dtype, booleans and small integers as int64."""
    actual, expected = actual.detach().cpu(), expected.detach().cpu()
    kind = _core.promote_types(actual.dtype, expected.dtype)
    if not (kind.is_floating_point or kind.is_complex):
        kind = _core.int64
    return actual.to(kind), expected.to(kind)


def _allowed(tolerance: float, exact: bool) -> str:
    return "" if exact else f" (up to {tolerance} allowed)"


def _scalar_text(actual: Any, expected: Any, difference: Any, relative: Any, rtol: float, atol: float) -> str:
    exact = rtol == 0 and atol == 0
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{_allowed(atol, exact)}\n"
        f"Relative difference: {relative}{_allowed(rtol, exact)}"
    )


def _greatest(values: Tensor) -> tuple[Any, tuple[int, ...]]:
    """The greatest element and its index."""
    place = int(values.flatten().argmax().item())
    greatest = values.flatten()[place].item()
    index = []
    for size in reversed(values.shape):
        place, digit = divmod(place, size)
        index.append(digit)
    return greatest, tuple(reversed(index))


def _tensor_text(actual: Tensor, expected: Tensor, close: Tensor, rtol: float, atol: float) -> str:
    difference = (actual - expected).abs().masked_fill(close, 0)
    relative = (difference / expected.abs()).masked_fill(close, 0)
    greatest, at = _greatest(difference)
    greatest_relative, relative_at = _greatest(relative)
    if not actual.shape:
        return _scalar_text(actual.item(), expected.item(), greatest, greatest_relative, rtol, atol)
    exact = rtol == 0 and atol == 0
    wrong = int((~close).sum().item())
    return (
        f"Tensor-likes are not {'equal' if exact else 'close'}!\n\n"
        f"Mismatched elements: {wrong} / {close.numel()} ({wrong / close.numel():.1%})\n"
        f"Greatest absolute difference: {greatest} at index {at}{_allowed(atol, exact)}\n"
        f"Greatest relative difference: {greatest_relative} at index {relative_at}{_allowed(rtol, exact)}"
    )


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Check that `|actual - expected| <= atol + rtol * |expected|` holds for every element.

    Args:
        actual: a tensor, array or number, or a sequence or mapping of those.
        expected: the same with the values that are right.
        allow_subclasses: accept tensors of different classes.
        rtol: relative tolerance, together with `atol`. Defaults by dtype: float16 1e-3, bfloat16 1.6e-2,
            float32 1.3e-6, float64 1e-7, others 0.
        atol: absolute tolerance. Defaults: float64 1e-7, other floats 1e-5, others 0.
        equal_nan: whether NaN is close to NaN.
        check_device: whether devices must be the same.
        check_dtype: whether dtypes must be the same; the wider tolerance counts if they need not.
        check_layout: accepted; all tensors are strided.
        check_stride: whether strides must be the same.
        msg: a text to fail with, or a function from the usual text to it.

    Raises:
        AssertionError: something differs; the message names the greatest differences and where they are.
        TypeError: the inputs cannot be compared.
        ValueError: only one of the tolerances is given.
    """
    settings = _Comparison(rtol, atol, equal_nan, check_device, check_dtype, check_stride, allow_subclasses, msg)
    settings.compare(actual, expected)


def make_tensor(
    *shape: Any,
    dtype: dtype,
    device: device | str = "cpu",
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
) -> Tensor:
    """A tensor of random values.

    Args:
        shape: the sizes, as one sequence or as several numbers.
        dtype: its dtype.
        device: its device.
        low: the least value. Default: -9, or 0 for uint8 and bool.
        high: the bound that values stay below. Default: 9, or 10 for integers, 2 for bool.
        requires_grad: whether the result requires grad; floating point only.
        noncontiguous: give a result that is not contiguous, if it has at least two elements.
        exclude_zero: replace zeros: by 1 for integers, by the smallest normal number for floats.

    Raises:
        ValueError: `low` is not below `high`, or `requires_grad` is set for a dtype that cannot.
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    floating = dtype.is_floating_point
    if requires_grad and not floating:
        raise ValueError("`requires_grad=True` is only supported for floating point dtypes")
    natural = (-9, 9) if floating else (0, 2) if str(dtype) == "torch.bool" else (0 if dtype == _core.uint8 else -9, 10)
    least = natural[0] if low is None else low
    bound = natural[1] if high is None else high
    if not least < bound:
        raise ValueError(f"`low` must be less than `high`, but got {least} >= {bound}")
    if noncontiguous and sizes:
        sizes = (*sizes[:-1], 2 * sizes[-1])
    if floating:
        values = _core.empty(sizes, dtype=_core.float64).uniform_(least, bound).to(dtype)
    else:
        values = _core.randint(int(least), int(bound), sizes, dtype=_core.int64).to(dtype)
    values = values.to(device)
    if noncontiguous and sizes:
        values = values[..., ::2]
    if exclude_zero:
        values.masked_fill_(values == 0, _core._float_limits(dtype)[3] if floating else 1)
    return values.detach().requires_grad_(requires_grad)
