//! Exponentials, logarithms, trigonometric and hyperbolic functions, element by element. What needs a series of its own
//! (gamma, error functions, their inverses) is among the special functions.

use super::activation::logistic;
use super::formula::{Elementwise, F};
use super::op::Rule::Elementwise as E;
use super::op::{EVERYWHERE, FUNCTION, INPLACE_FUNCTION, METHOD, NN, OUT, SPECIAL, op};
use crate::program::Sym;

/// `a - b`, but 0 for equal infinities, which is where the difference of logarithms is taken anyway.
fn difference(a: Sym, b: Sym) -> Sym {
    let equal = a.eq(b).and(a.abs().eq(a.literal(f64::INFINITY)));
    Sym::select(equal, a.zero(), a) - Sym::select(equal, a.zero(), b)
}

/// The larger of two operands and minus their distance.
fn larger(f: &F) -> (Sym, Sym) {
    let (a, b) = (f.x(0), f.x(1));
    let d = difference(a, b);
    let first = d.gt(d.zero());
    (Sym::select(a.is_nan().or(first), a, b), Sym::select(first, -d, d))
}

/// Each operand's share of the sum, as a logistic function of how far it is ahead.
fn shares(f: &F, g: Sym, scale: f64) -> Vec<Option<Sym>> {
    let d = difference(f.x(0), f.x(1)) * scale;
    vec![Some(g * logistic(d)), Some(g * logistic(-d))]
}

op! {
    /// e to the power of x.
    EXP exp(self) -> Tensor = "ExpBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).exp()).saves_result());
    /// 2 to the power of x.
    EXP2 exp2(self) -> Tensor = "Exp2Backward0", EVERYWHERE | INPLACE_FUNCTION | SPECIAL,
        E(Elementwise::float(|f| f.x(0).exp2()).saves_result());
    /// `exp(x) - 1`, exact near 0.
    EXPM1 expm1(self) -> Tensor = "Expm1Backward0", EVERYWHERE | INPLACE_FUNCTION | SPECIAL,
        E(Elementwise::float(|f| f.x(0).expm1()).saves_result());
    /// Natural logarithm; -inf at 0, NaN below.
    LOG log(self) -> Tensor = "LogBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).log()).domain(&[(0.2, 3.0)]));
    /// Logarithm to base 2; -inf at 0, NaN below.
    LOG2 log2(self) -> Tensor = "Log2Backward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).log2()).domain(&[(0.2, 3.0)]));
    /// Logarithm to base 10; -inf at 0, NaN below.
    LOG10 log10(self) -> Tensor = "Log10Backward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0).log10()).domain(&[(0.2, 3.0)]));
    /// `log(1 + x)`, exact near 0.
    LOG1P log1p(self) -> Tensor = "Log1PBackward0", EVERYWHERE | INPLACE_FUNCTION | SPECIAL,
        E(Elementwise::float(|f| f.x(0).log1p()).domain(&[(-0.7, 3.0)]));
    /// `log(exp(input) + exp(other))` without overflow. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for integers.
    LOGADDEXP logaddexp(self, other: Tensor) -> Tensor = "LogaddexpBackward0", METHOD | FUNCTION | OUT,
        E(Elementwise::float_only(|f| {
            let (high, d) = larger(f);
            high + d.exp().log1p()
        }).vjp(|f, _, g| shares(f, g, 1.0)));
    /// `log2(2^input + 2^other)` without overflow. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for integers.
    LOGADDEXP2 logaddexp2(self, other: Tensor) -> Tensor = "Logaddexp2Backward0", METHOD | FUNCTION | OUT,
        E(Elementwise::float_only(|f| {
            let (high, d) = larger(f);
            high + d.exp2().log1p() * std::f64::consts::LOG2_E
        }).vjp(|f, _, g| shares(f, g, std::f64::consts::LN_2)));
    /// Sine of radians.
    SIN sin(self) -> Tensor = "SinBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).sin()));
    /// Cosine of radians.
    COS cos(self) -> Tensor = "CosBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).cos()));
    /// Tangent of radians.
    TAN tan(self) -> Tensor = "TanBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0).tan()).saves_result().domain(&[(-1.2, 1.2)]));
    /// The angle, in radians, whose sine is x; NaN outside `[-1, 1]`.
    ASIN asin(self) -> Tensor = "AsinBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).asin()).domain(&[(-0.9, 0.9)]));
    /// The angle, in radians, whose cosine is x; NaN outside `[-1, 1]`.
    ACOS acos(self) -> Tensor = "AcosBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).acos()).domain(&[(-0.9, 0.9)]));
    /// The angle, in radians, whose tangent is x.
    ATAN atan(self) -> Tensor = "AtanBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).atan()));
    /// The angle of the point `(other, input)`, in radians. At the origin the gradient is 0. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    ATAN2 atan2(self, other: Tensor) -> Tensor = "Atan2Backward0", EVERYWHERE, E(Elementwise::float(|f| f.x(0).atan2(f.x(1))));
    /// Hyperbolic sine.
    SINH sinh(self) -> Tensor = "SinhBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).sinh()));
    /// Hyperbolic cosine.
    COSH cosh(self) -> Tensor = "CoshBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).cosh()));
    /// Hyperbolic tangent.
    TANH tanh(self) -> Tensor = "TanhBackward0", EVERYWHERE | INPLACE_FUNCTION | NN, E(Elementwise::float(|f| f.x(0).tanh()).saves_result());
    /// Inverse hyperbolic sine.
    ASINH asinh(self) -> Tensor = "AsinhBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float(|f| f.x(0).asinh()));
    /// Inverse hyperbolic cosine; NaN below 1.
    ACOSH acosh(self) -> Tensor = "AcoshBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0).acosh()).domain(&[(1.2, 4.0)]));
    /// Inverse hyperbolic tangent; NaN outside `[-1, 1]`.
    ATANH atanh(self) -> Tensor = "AtanhBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0).atanh()).domain(&[(-0.85, 0.85)]));
}
