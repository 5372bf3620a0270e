//! Comparisons, tests of single numbers, logic and bit operations, element by element. Nothing here has a gradient; the
//! in-place forms, which write truth values over numbers, have the gradient zero.

use super::args::{Args, Read};
use super::formula::{Accept, Elementwise, F};
use super::op::Rule::{Composite as C, Elementwise as E};
use super::op::{EVERYWHERE, FUNCTION, METHOD, OUT, op};
use crate::dtype::{Compute, DType};
use crate::error::{Result, bail};
use crate::program::Sym;
use crate::tensor::Tensor;
use smallvec::smallvec;

fn is_inf(f: &F) -> Sym {
    f.x(0).abs().eq(f.literal(f64::INFINITY))
}

/// A test of floats that integers never pass.
fn float_test(f: &F, test: fn(&F) -> Sym) -> Sym {
    if f.ty.is_float() { test(f) } else { Sym::constant(Compute::Bool, 0.0) }
}

const INTEGERS: Accept = Accept { bool: false, int: true, float: false };

/// PyTorch's refusals; integers are compared in float64.
fn is_close(a: &Args) -> Result<Tensor> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    if x.dtype() != y.dtype() {
        bail!(runtime "isclose", "{} did not match {}", x.dtype().legacy(), y.dtype().legacy());
    }
    for (k, name) in [(2, "rtol"), (3, "atol")] {
        let tolerance = a.float(k)?;
        if tolerance < 0.0 || tolerance.is_nan() {
            bail!(runtime "isclose", "{name} must be greater than or equal to zero, but got {tolerance}");
        }
    }
    let wide = |t: &Tensor| if t.dtype().is_float() { Ok(t.clone()) } else { super::to_dtype(t, DType::F64) };
    crate::autograd::no_grad(|| wide(x)?.is_near(&wide(y)?, a.float(2)?, a.float(3)?, a.bool(4)))
}

op! {
    /// Whether equal, elementwise. Operands broadcast; NaN equals nothing.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    EQ eq(self, other: Operand) -> Tensor = "EqBackward0", EVERYWHERE, E(Elementwise::comparison(|f| f.x(0).eq(f.x(1))));
    /// Whether different, elementwise. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    NE ne(self, other: Operand) -> Tensor = "NeBackward0", EVERYWHERE, E(Elementwise::comparison(|f| f.x(0).ne(f.x(1))));
    /// Whether smaller, elementwise. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    LT lt(self, other: Operand) -> Tensor = "LtBackward0", EVERYWHERE, E(Elementwise::comparison(|f| f.x(0).lt(f.x(1))));
    /// Whether smaller or equal, elementwise. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    LE le(self, other: Operand) -> Tensor = "LeBackward0", EVERYWHERE, E(Elementwise::comparison(|f| f.x(0).le(f.x(1))));
    /// Whether larger, elementwise. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    GT gt(self, other: Operand) -> Tensor = "GtBackward0", EVERYWHERE, E(Elementwise::comparison(|f| f.x(0).gt(f.x(1))));
    /// Whether larger or equal, elementwise. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    GE ge(self, other: Operand) -> Tensor = "GeBackward0", EVERYWHERE, E(Elementwise::comparison(|f| f.x(0).ge(f.x(1))));
    /// Whether `|input - other| <= atol + rtol * |other|`, elementwise; equal infinities are close, NaN is close to NaN with
    /// `equal_nan`. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, dtypes differ, or a tolerance is negative.
    ISCLOSE isclose(self, other: Tensor, rtol: Float = 1e-05, atol: Float = 1e-08, equal_nan: Bool = false) -> Tensor = "", METHOD | FUNCTION,
        C(|a| Ok(smallvec![is_close(a)?])),
        |s| vec![smallvec![s.t(&[2, 3]).into(), s.t(&[3]).into(), 0.5.into(), 0.1.into(), true.into()]];
    /// [`isclose`](Self::isclose) of floats.
    IS_NEAR is_near as "isclose"(self, other: Tensor, rtol: Float, atol: Float, equal_nan: Bool) -> Tensor = "", 0,
        E(Elementwise::comparison(|f| {
            let (x, y) = (f.x(0), f.x(1));
            let distance = (x - y).abs();
            let near = distance.le(f.n(1) + (f.n(0) * y).abs()).and(distance.lt(f.literal(f64::INFINITY)));
            let close = x.eq(y).or(near);
            if f.variant == 1 { close.or(x.is_nan().and(y.is_nan())) } else { close }
        }).variant(|a| Ok(a.bool(4) as u8)).accept(Accept { bool: false, int: false, float: true }).numbers(&[0.5, 0.1]));
    /// Whether NaN, elementwise.
    ISNAN isnan(self) -> Tensor = "", METHOD | FUNCTION, E(Elementwise::comparison(|f| float_test(f, |f| f.x(0).is_nan())));
    /// Whether infinite, elementwise.
    ISINF isinf(self) -> Tensor = "", METHOD | FUNCTION, E(Elementwise::comparison(|f| float_test(f, is_inf)));
    /// Whether neither infinite nor NaN, elementwise.
    ISFINITE isfinite(self) -> Tensor = "", METHOD | FUNCTION,
        E(Elementwise::comparison(|f| match f.ty.is_float() {
            true => f.x(0).abs().lt(f.literal(f64::INFINITY)),
            false => Sym::constant(Compute::Bool, 1.0),
        }));
    /// Whether -inf, elementwise.
    ISNEGINF isneginf(self) -> Tensor = "", METHOD | FUNCTION | OUT,
        E(Elementwise::comparison(|f| float_test(f, |f| f.x(0).eq(f.literal(f64::NEG_INFINITY)))));
    /// Whether +inf, elementwise.
    ISPOSINF isposinf(self) -> Tensor = "", METHOD | FUNCTION | OUT,
        E(Elementwise::comparison(|f| float_test(f, |f| f.x(0).eq(f.literal(f64::INFINITY)))));
    /// True for every element: there are no complex numbers here.
    ISREAL isreal(self) -> Tensor = "", METHOD | FUNCTION, E(Elementwise::comparison(|_| Sym::constant(Compute::Bool, 1.0)));
    /// Whether both are non-zero, elementwise. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    LOGICAL_AND logical_and(self, other: Tensor) -> Tensor = "LogicalAndBackward0", EVERYWHERE, E(Elementwise::logical(|f| f.x(0).and(f.x(1))));
    /// Whether one or both are non-zero, elementwise. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    LOGICAL_OR logical_or(self, other: Tensor) -> Tensor = "LogicalOrBackward0", EVERYWHERE, E(Elementwise::logical(|f| f.x(0).or(f.x(1))));
    /// Whether just one is non-zero, elementwise. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    LOGICAL_XOR logical_xor(self, other: Tensor) -> Tensor = "LogicalXorBackward0", EVERYWHERE, E(Elementwise::logical(|f| f.x(0).xor(f.x(1))));
    /// Whether zero, elementwise.
    LOGICAL_NOT logical_not(self) -> Tensor = "LogicalNotBackward0", EVERYWHERE, E(Elementwise::logical(|f| f.x(0).not()));
    /// Bitwise and, logical for truth values. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for floats.
    BITWISE_AND bitwise_and(self, other: Operand) -> Tensor = "", EVERYWHERE, E(Elementwise::bits(|f| f.x(0).and(f.x(1))));
    /// Bitwise and of a number and a tensor.
    ///
    /// # Errors
    /// `NotImplementedError` for floats.
    BITWISE_AND_OF bitwise_and_of as "bitwise_and"(input: Number, other: Tensor) -> Tensor = "", FUNCTION | OUT,
        E(Elementwise::bits(|f| f.n(0).and(f.x(0))).promoting(1));
    /// Bitwise or, logical for truth values. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for floats.
    BITWISE_OR bitwise_or(self, other: Operand) -> Tensor = "", EVERYWHERE, E(Elementwise::bits(|f| f.x(0).or(f.x(1))));
    /// Bitwise or of a number and a tensor.
    ///
    /// # Errors
    /// `NotImplementedError` for floats.
    BITWISE_OR_OF bitwise_or_of as "bitwise_or"(input: Number, other: Tensor) -> Tensor = "", FUNCTION | OUT,
        E(Elementwise::bits(|f| f.n(0).or(f.x(0))).promoting(1));
    /// Bitwise exclusive or, logical for truth values. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for floats.
    BITWISE_XOR bitwise_xor(self, other: Operand) -> Tensor = "", EVERYWHERE, E(Elementwise::bits(|f| f.x(0).xor(f.x(1))));
    /// Bitwise exclusive or of a number and a tensor.
    ///
    /// # Errors
    /// `NotImplementedError` for floats.
    BITWISE_XOR_OF bitwise_xor_of as "bitwise_xor"(input: Number, other: Tensor) -> Tensor = "", FUNCTION | OUT,
        E(Elementwise::bits(|f| f.n(0).xor(f.x(0))).promoting(1));
    /// All bits flipped, logical for truth values.
    ///
    /// # Errors
    /// `NotImplementedError` for floats.
    BITWISE_NOT bitwise_not(self) -> Tensor = "", EVERYWHERE, E(Elementwise::bits(|f| f.x(0).not()));
    /// Bits shifted up; all gone past the width. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for anything but integers.
    BITWISE_LEFT_SHIFT bitwise_left_shift(self, other: Operand) -> Tensor = "", EVERYWHERE,
        E(Elementwise::bits(|f| f.x(0).shl(f.x(1))).accept(INTEGERS));
    /// Bits of a number shifted up by each element.
    ///
    /// # Errors
    /// `NotImplementedError` for anything but integers.
    BITWISE_LEFT_SHIFT_OF bitwise_left_shift_of as "bitwise_left_shift"(input: Number, other: Tensor) -> Tensor = "", FUNCTION | OUT,
        E(Elementwise::bits(|f| f.n(0).shl(f.x(0))).accept(INTEGERS).promoting(1));
    /// Bits shifted down, the sign kept. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for anything but integers.
    BITWISE_RIGHT_SHIFT bitwise_right_shift(self, other: Operand) -> Tensor = "", EVERYWHERE,
        E(Elementwise::bits(|f| f.x(0).shr(f.x(1))).accept(INTEGERS));
    /// Bits of a number shifted down by each element.
    ///
    /// # Errors
    /// `NotImplementedError` for anything but integers.
    BITWISE_RIGHT_SHIFT_OF bitwise_right_shift_of as "bitwise_right_shift"(input: Number, other: Tensor) -> Tensor = "", FUNCTION | OUT,
        E(Elementwise::bits(|f| f.n(0).shr(f.x(0))).accept(INTEGERS).promoting(1));
}
