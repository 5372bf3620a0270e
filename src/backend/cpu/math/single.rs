//! Functions over blocks of f32. What lives here: the loops, and which elements leave the vector path. What must not: the
//! numerics (`kernel32`, `kernel64`, `power`, `special`).
//!
//! At most 2 ulp over the whole range, denormals, zeros, infinities and NaN included; the sign of zero is kept.

pub use super::rounding::single::{floor_div, nextafter, remainder};
use super::{kernel32, kernel64, power, special};
use std::f64::consts::{LOG2_E, LOG10_E};

/// Defines block functions of one argument from the formula of one element.
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident($x:ident) = $value:expr;)+) => {$(
        $(#[$doc])*
        ///
        /// # Panics
        /// If the slices differ in length.
        #[inline(always)]
        pub fn $name<const FMA: bool>(x: &[f32], out: &mut [f32]) {
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
        pub fn $name<const FMA: bool>(x: &[f32], out: &mut [f32]) {
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
        pub fn $name<const FMA: bool>(x: &[f32], y: &[f32], out: &mut [f32]) {
            assert_eq!((x.len(), y.len()), (out.len(), out.len()));
            for ((out, &$x), &$y) in out.iter_mut().zip(x).zip(y) {
                *out = $value;
            }
        }
    )+};
}

unary! {
    /// `e^x`.
    exp(v) = kernel32::exp::<FMA>(v);
    /// `2^x`.
    exp2(v) = kernel32::exp2::<FMA>(v);
    /// `e^x - 1`, accurate near zero.
    expm1(v) = kernel32::expm1::<FMA>(v);
    /// The natural logarithm; `-inf` at both zeros, NaN below.
    log(v) = kernel32::log::<FMA>(v);
    /// The logarithm to base 2.
    log2(v) = (kernel64::log_for_f32::<FMA>(f64::from(v)) * LOG2_E) as f32;
    /// The logarithm to base 10.
    log10(v) = (kernel64::log_for_f32::<FMA>(f64::from(v)) * LOG10_E) as f32;
    /// `log(1 + x)`, accurate near zero; `-inf` at -1, NaN below.
    log1p(v) = kernel32::log1p::<FMA>(v);
    /// The arc sine; NaN outside [-1, 1].
    asin(v) = kernel32::asin::<FMA>(v);
    /// The arc cosine; NaN outside [-1, 1].
    acos(v) = kernel32::acos::<FMA>(v);
    /// The arc tangent.
    atan(v) = kernel32::atan::<FMA>(v);
    /// The hyperbolic sine.
    sinh(v) = kernel64::sinh_for_f32::<FMA>(f64::from(v)) as f32;
    /// The hyperbolic cosine.
    cosh(v) = kernel64::cosh_for_f32::<FMA>(f64::from(v)) as f32;
    /// The hyperbolic tangent.
    tanh(v) = kernel32::tanh::<FMA>(v);
    /// The inverse hyperbolic sine.
    asinh(v) = kernel64::asinh_for_f32::<FMA>(f64::from(v)) as f32;
    /// The inverse hyperbolic cosine; NaN below 1.
    acosh(v) = kernel64::acosh_for_f32::<FMA>(f64::from(v)) as f32;
    /// The inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.
    atanh(v) = kernel64::atanh_for_f32::<FMA>(f64::from(v)) as f32;
    /// The error function.
    erf(v) = kernel32::erf::<FMA>(v);
    /// `1 - erf(x)`, accurate where that is tiny.
    erfc(v) = kernel64::erfc_for_f32::<FMA>(f64::from(v)) as f32;
    /// `e^(x^2) erfc(x)`, which neither underflows nor overflows for positive `x`.
    erfcx(v) = kernel64::erfcx_for_f32::<FMA>(f64::from(v)) as f32;
    /// `1 / (1 + e^-x)`, without overflow.
    sigmoid(v) = kernel32::sigmoid::<FMA>(v);
    /// The inverse of `erf`; infinite at -1 and 1, NaN outside.
    erfinv(v) = special::erfinv(f64::from(v)) as f32;
    /// The inverse of the normal distribution function; infinite at 0 and 1, NaN outside [0, 1].
    ndtri(v) = special::ndtri(f64::from(v)) as f32;
    /// `log |gamma(x)|`; `+inf` at the poles.
    lgamma(v) = special::lgamma(f64::from(v)) as f32;
    /// The logarithmic derivative of gamma; `-inf` at 0, `+inf` at -0, NaN at the negative integers.
    digamma(v) = special::digamma(f64::from(v)) as f32;
}

unary_within! {
    /// The sine.
    sin(v) = kernel32::sin::<FMA>(v), beyond kernel32::trig_limit(FMA), libm::sinf;
    /// The cosine.
    cos(v) = kernel32::cos::<FMA>(v), beyond kernel32::trig_limit(FMA), libm::cosf;
    /// The tangent.
    tan(v) = kernel64::tan_for_f32::<FMA>(f64::from(v)) as f32, beyond kernel64::TRIG_LIMIT as f32, libm::tanf;
}

binary! {
    /// `x^y` with C's special values: 1 for `y = 0` or `x = 1` whatever the other, NaN for a negative `x` and a fraction `y`.
    pow(v, w) = power::pow_for_f32::<FMA>(f64::from(v), f64::from(w)) as f32;
    /// The angle of the point `(y, x)`, first argument the ordinate, with its quadrant and the signs of zeros.
    atan2(v, w) = kernel64::atan2_for_f32::<FMA>(f64::from(v), f64::from(w)) as f32;
    /// `sqrt(x^2 + y^2)` without overflow; infinite if either is.
    hypot(v, w) = kernel32::hypot::<FMA>(v, w);
    /// The `n`-th derivative of digamma at `x`; first argument `n`, a non-negative integer as a float (else NaN).
    polygamma(v, w) = special::polygamma(f64::from(v), f64::from(w)) as f32;
    /// Hurwitz's zeta function, `sum over k >= 0 of (q + k)^-s`; arguments `s`, `q`. NaN for `s < 1`, `+inf` at `s = 1` and at `q = 0, -1, ...`.
    zeta(v, w) = special::zeta(f64::from(v), f64::from(w)) as f32;
}

/// The remainder of `x / y` truncated, with the sign of `x`; exact. NaN for `y = 0` or infinite `x`.
///
/// # Panics
/// If the slices differ in length.
#[inline(always)]
pub fn fmod<const FMA: bool>(x: &[f32], y: &[f32], out: &mut [f32]) {
    assert_eq!((x.len(), y.len()), (out.len(), out.len()));
    // Where x, y and the quotient fill more than the 53 bits of a product in f64, or there is no quotient.
    let hard = |x: f32, y: f32| !(x.abs() < y.abs() * 536_870_912.0 && y.abs() < f32::INFINITY);
    let mut beyond = false;
    for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
        *out = kernel64::fmod::<FMA>(f64::from(x), f64::from(y)) as f32;
        beyond |= hard(x, y);
    }
    if beyond {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            if hard(x, y) {
                *out = libm::fmodf(x, y);
            }
        }
    }
}
