//! Functions over blocks of f64. What lives here: the loops, and which elements leave the vector path. What must not: the
//! numerics (`kernel64`, `power`, `special`, `libm`).
//!
//! At most 2 ulp (`erfc` 2.5, `erfcx` 5; the gamma, zeta and inverse error functions about 1e-14, away from their zeros)
//! over the whole range, denormals, zeros, infinities and NaN included; the sign of zero is kept.

pub use super::rounding::double::{floor_div, nextafter, remainder};
use super::{kernel64, power, special};

/// Defines block functions of one argument from the formula of one element.
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident($x:ident) = $value:expr;)+) => {$(
        $(#[$doc])*
        ///
        /// # Panics
        /// If the slices differ in length.
        #[inline(always)]
        pub fn $name<const FMA: bool>(x: &[f64], out: &mut [f64]) {
            assert_eq!(x.len(), out.len());
            for (out, &$x) in out.iter_mut().zip(x) {
                *out = $value;
            }
        }
    )+};
}

/// The same for functions whose formula holds up to a limit: the elements beyond it are computed again, one by one.
macro_rules! unary_within {
    ($($(#[$doc:meta])* $name:ident($x:ident) = $value:expr, beyond $limit:expr, $slow:expr;)+) => {$(
        $(#[$doc])*
        ///
        /// # Panics
        /// If the slices differ in length.
        #[inline(always)]
        pub fn $name<const FMA: bool>(x: &[f64], out: &mut [f64]) {
            assert_eq!(x.len(), out.len());
            let mut beyond = false;
            for (out, &$x) in out.iter_mut().zip(x) {
                *out = $value;
                beyond |= $x.abs() > $limit;
            }
            if beyond {
                for (out, &x) in out.iter_mut().zip(x) {
                    if x.abs() > $limit {
                        *out = $slow(x);
                    }
                }
            }
        }
    )+};
}

/// Defines block functions of two arguments.
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident($x:ident, $y:ident) = $value:expr;)+) => {$(
        $(#[$doc])*
        ///
        /// # Panics
        /// If the slices differ in length.
        #[inline(always)]
        pub fn $name<const FMA: bool>(x: &[f64], y: &[f64], out: &mut [f64]) {
            assert_eq!((x.len(), y.len()), (out.len(), out.len()));
            for ((out, &$x), &$y) in out.iter_mut().zip(x).zip(y) {
                *out = $value;
            }
        }
    )+};
}

unary! {
    /// `e^x`.
    exp(v) = kernel64::exp::<FMA>(v);
    /// `2^x`.
    exp2(v) = kernel64::exp2::<FMA>(v);
    /// `e^x - 1`, accurate near zero.
    expm1(v) = kernel64::expm1::<FMA>(v);
    /// The natural logarithm; `-inf` at both zeros, NaN below.
    log(v) = kernel64::log::<FMA>(v);
    /// The logarithm to base 2.
    log2(v) = kernel64::log2::<FMA>(v);
    /// The logarithm to base 10.
    log10(v) = kernel64::log10::<FMA>(v);
    /// `log(1 + x)`, accurate near zero; `-inf` at -1, NaN below.
    log1p(v) = kernel64::log1p::<FMA>(v);
    /// The arc sine; NaN outside [-1, 1].
    asin(v) = libm::asin(v);
    /// The arc cosine; NaN outside [-1, 1].
    acos(v) = libm::acos(v);
    /// The arc tangent.
    atan(v) = libm::atan(v);
    /// The hyperbolic sine.
    sinh(v) = kernel64::sinh::<FMA>(v);
    /// The hyperbolic cosine.
    cosh(v) = kernel64::cosh::<FMA>(v);
    /// The hyperbolic tangent.
    tanh(v) = kernel64::tanh::<FMA>(v);
    /// The inverse hyperbolic sine.
    asinh(v) = libm::asinh(v);
    /// The inverse hyperbolic cosine; NaN below 1.
    acosh(v) = if v < 1.0 { f64::NAN } else { libm::acosh(v) };
    /// The inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.
    atanh(v) = libm::atanh(v);
    /// The error function.
    erf(v) = kernel64::erf::<FMA>(v);
    /// `1 - erf(x)`, accurate where that is tiny.
    erfc(v) = libm::erfc(v);
    /// `e^(x^2) erfc(x)`, which neither underflows nor overflows for positive `x`.
    erfcx(v) = kernel64::erfcx::<FMA>(v);
    /// `1 / (1 + e^-x)`, without overflow.
    sigmoid(v) = kernel64::sigmoid::<FMA>(v);
    /// The inverse of `erf`; infinite at -1 and 1, NaN outside.
    erfinv(v) = special::erfinv(v);
    /// The inverse of the normal distribution function; infinite at 0 and 1, NaN outside [0, 1].
    ndtri(v) = special::ndtri(v);
    /// `log |gamma(x)|`; `+inf` at the poles.
    lgamma(v) = special::lgamma(v);
    /// The logarithmic derivative of gamma; `-inf` at 0, `+inf` at -0, NaN at the negative integers.
    digamma(v) = special::digamma(v);
}

unary_within! {
    /// The sine.
    sin(v) = kernel64::sin::<FMA>(v), beyond kernel64::TRIG_LIMIT, libm::sin;
    /// The cosine.
    cos(v) = kernel64::cos::<FMA>(v), beyond kernel64::TRIG_LIMIT, libm::cos;
    /// The tangent.
    tan(v) = kernel64::tan::<FMA>(v), beyond kernel64::TRIG_LIMIT, libm::tan;
}

binary! {
    /// `x^y` with C's special values: 1 for `y = 0` or `x = 1` whatever the other, NaN for a negative `x` and a fraction `y`.
    pow(v, w) = power::pow::<FMA>(v, w);
    /// The angle of the point `(y, x)`, first argument the ordinate, with its quadrant and the signs of zeros.
    atan2(v, w) = libm::atan2(v, w);
    /// `sqrt(x^2 + y^2)` without overflow; infinite if either is.
    hypot(v, w) = libm::hypot(v, w);
    /// The remainder of `x / y` truncated, with the sign of `x`; exact. NaN for `y = 0` or infinite `x`.
    fmod(v, w) = libm::fmod(v, w);
    /// The `n`-th derivative of digamma at `x`; first argument `n`, a non-negative integer as a float (else NaN).
    polygamma(v, w) = special::polygamma(v, w);
    /// Hurwitz's zeta function, `sum over k >= 0 of (q + k)^-s`; arguments `s`, `q`. NaN for `s < 1`, `+inf` at `s = 1` and at `q = 0, -1, ...`.
    zeta(v, w) = special::zeta(v, w);
}
