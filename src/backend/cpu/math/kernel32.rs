//! Branch-free f32 functions of one value in f32 arithmetic, which LLVM turns into vector code inside a loop. What lives
//! here: the functions hot enough to be worth a second body beside the f64 one, at most 2 ulp. What must not: loops,
//! table look-ups, calls into a C library.
//!
//! Coefficients are minimax (Remez exchange at 50 digits), rounded to f32; the comment beside each set gives the
//! largest error after rounding. Constants split in parts have leading parts short enough for exact products.

use super::{at_least, at_most, fma, horner};
use std::f32::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E, PI};

/// 1.5 * 2^23: adding it rounds to an integer (ties to even) and leaves that integer in the low bits.
const TO_INTEGER: f32 = 12_582_912.0;
/// log 2 in 15 + 24 bits.
const LN_2_HIGH: f32 = f32::from_bits(0x3f31_7200);
const LN_2_LOW: f32 = 1.428_606_8e-6;
/// How far the float nearest to pi/2 lies above it.
const FRAC_PI_2_EXCESS: f32 = 4.371_139e-8;

/// The nearest integer to `x`, as a float and (modulo 2^22) in the low bits; `|x| < 2^22`.
#[inline(always)]
fn nearest(x: f32) -> (f32, u32) {
    let shifted = x + TO_INTEGER;
    (shifted - TO_INTEGER, shifted.to_bits())
}

/// `2^n` for the integer `n` in the low 9 bits, `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two(n: u32) -> f32 {
    f32::from_bits((n << 23).wrapping_add(0x3f80_0000))
}

/// `(expm1(r) - r) / r^2` for `|r| <= log(2) / 2`; error 2^-27.8.
#[inline(always)]
fn expm1_tail<const FMA: bool>(r: f32) -> f32 {
    horner!(FMA, r; 0.5, 0.166_666_67, 0.041_666_463, 0.008_333_286, 0.001_393_373_2, 0.000_199_077_05)
}

/// `2^n * e^r`, in two factors so that the one rounding of a denormal result is the last step.
#[inline(always)]
fn scaled_exp<const FMA: bool>(n: u32, r: f32) -> f32 {
    let e = 1.0 + fma::<FMA, _>(r * r, expm1_tail::<FMA>(r), r);
    let n = (n << 9).cast_signed() >> 9;
    let half = n >> 1;
    e * power_of_two(half.cast_unsigned()) * power_of_two((n - half).cast_unsigned())
}

/// `x = n log 2 + r`: `(n, n in the low bits, r)`; `|x| <= 151`.
#[inline(always)]
fn reduce_exp<const FMA: bool>(x: f32) -> (f32, u32, f32) {
    let (n, n_bits) = nearest(x * LOG2_E);
    (n, n_bits, fma::<FMA, _>(-n, LN_2_LOW, fma::<FMA, _>(-n, LN_2_HIGH, x)))
}

#[inline(always)]
pub(super) fn exp<const FMA: bool>(x: f32) -> f32 {
    let (_, n_bits, r) = reduce_exp::<FMA>(at_least(at_most(x, 89.0), -104.0));
    scaled_exp::<FMA>(n_bits, r)
}

/// `e^x` for `-87 <= x <= 88`, where one factor will do.
#[inline(always)]
fn exp_normal<const FMA: bool>(x: f32) -> f32 {
    let (_, n_bits, r) = reduce_exp::<FMA>(x);
    (1.0 + fma::<FMA, _>(r * r, expm1_tail::<FMA>(r), r)) * power_of_two(n_bits)
}

#[inline(always)]
pub(super) fn exp2<const FMA: bool>(x: f32) -> f32 {
    let x = at_least(at_most(x, 129.0), -151.0);
    let (n, n_bits) = nearest(x);
    scaled_exp::<FMA>(n_bits, (x - n) * LN_2)
}

#[inline(always)]
pub(super) fn expm1<const FMA: bool>(x: f32) -> f32 {
    let y = at_least(at_most(x, 89.0), -30.0);
    let (n, n_bits) = nearest(y * LOG2_E);
    let high = fma::<FMA, _>(-n, LN_2_HIGH, y);
    let low = n * LN_2_LOW;
    let r = high - low;
    let lost = (high - r) - low;
    let e = r + fma::<FMA, _>(r * r, expm1_tail::<FMA>(r), lost);
    // 2^(n-1) instead of 2^n: the latter overflows just below the largest argument.
    let scale = power_of_two(n_bits.wrapping_sub(1));
    let result = fma::<FMA, _>(scale, e, scale - 0.5) * 2.0;
    if x.abs() < 1e-8 { x } else { result }
}

#[inline(always)]
pub(super) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    let e = exp::<FMA>(-x.abs());
    let positive = x >= 0.0;
    let sum = 1.0 + e;
    let quotient = if positive { 1.0 } else { e } / sum;
    // The rounding of the sum would bring the error past 2 ulp; 1 / sum is the quotient, or 1 less the quotient.
    let lost = e - (sum - 1.0);
    let reciprocal = if positive { quotient } else { 1.0 - quotient };
    fma::<FMA, _>(-quotient, lost * reciprocal, quotient)
}

#[inline(always)]
pub(super) fn tanh<const FMA: bool>(x: f32) -> f32 {
    let t = x.abs();
    let z = t * t;
    // (tanh(t) / t - 1) / t^2 for t <= 0.625; error 2^-32.5.
    let p = horner!(FMA, z;
        -0.333_333_3, 0.133_332_22, -0.053_948_462, 0.021_708_751, -0.008_195_098, 0.002_157_652_3);
    let near = fma::<FMA, _>(t * z, p, t);
    let far = 1.0 - 2.0 / (exp_normal::<FMA>(2.0 * at_most(t, 10.0)) + 1.0);
    let result = if t < 0.625 { near } else { far };
    result.copysign(x)
}

/// A positive finite `x` as `2^e * (1 + f)` with `sqrt(1/2) <= 1 + f < sqrt(2)`: `(e, f, 2^-e)`.
/// The power is right for `-126 <= e <= 126` and normal `x` only.
#[inline(always)]
fn split<const DENORMALS: bool>(x: f32) -> (f32, f32, f32) {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    const ONE: u32 = 0x3f80_0000;
    const MANTISSA: u32 = 0x007f_ffff;
    const TWO_23: f32 = 8_388_608.0;
    let tiny = DENORMALS && x < f32::MIN_POSITIVE;
    let normal = if tiny { x * TWO_23 } else { x };
    let bits = normal.to_bits().wrapping_add(ONE - SQRT_HALF);
    let biased = (bits >> 23).cast_signed();
    let e = (biased - if tiny { 150 } else { 127 }) as f32;
    let m = f32::from_bits((bits & MANTISSA).wrapping_add(SQRT_HALF));
    (e, m - 1.0, f32::from_bits((254 - biased).cast_unsigned() << 23))
}

/// `e log 2 + log(1 + f)`; error of the polynomial 2^-29.7 of `log(1 + f)`.
#[inline(always)]
fn log_sum<const FMA: bool>(e: f32, f: f32) -> f32 {
    let p = horner!(FMA, f;
        0.333_333_13, -0.250_000_8, 0.200_021_15, -0.166_641_82, 0.142_168_21, -0.124_678_81, 0.119_658_42,
        -0.113_526_136, 0.062_036_738);
    let z = f * f;
    let tail = fma::<FMA, _>(z * f, p, e * LN_2_LOW);
    let sum = f + fma::<FMA, _>(-0.5, z, tail);
    fma::<FMA, _>(e, LN_2_HIGH, sum)
}

/// The logarithm of an argument for which the formula, whose value is `result`, may not hold.
#[inline(always)]
fn log_domain(x: f32, result: f32) -> f32 {
    let low = if x == 0.0 { f32::NEG_INFINITY } else { f32::NAN };
    // Infinity and NaN are their own logarithms.
    let high = if x < f32::INFINITY { result } else { x };
    if x <= 0.0 { low } else { high }
}

#[inline(always)]
pub(super) fn log<const FMA: bool>(x: f32) -> f32 {
    let (e, f, _) = split::<true>(x);
    log_domain(x, log_sum::<FMA>(e, f))
}

#[inline(always)]
pub(super) fn log1p<const FMA: bool>(x: f32) -> f32 {
    let u = 1.0 + x;
    let (e, f, scale) = split::<false>(u);
    // (1 + x) / 2^e - 1 without the rounding of 1 + x; from 2^60 on, where 2^-e runs out of range, it has none.
    let exact = fma::<FMA, _>(x, scale, scale - 1.0);
    let f = if e < 60.0 { exact } else { f };
    log_domain(u, log_sum::<FMA>(e, f)).copysign(x)
}

/// `|x|` up to which `sin` and `cos` reduce exactly enough: without FMA, the products below must not round.
pub(super) const fn trig_limit(fused: bool) -> f32 {
    if fused { 100_000.0 } else { 8192.0 }
}

/// `x - n pi/2` for the nearest integer `n`, and that `n` in the low bits. Without FMA, pi/2 comes in 11 + 11 + 11 + 24
/// bits, so that the leading products with `n < 2^13` are exact.
#[inline(always)]
fn quarter_turns<const FMA: bool>(x: f32) -> (f32, u32) {
    let (n, n_bits) = nearest(x * FRAC_2_PI);
    let r = if FMA {
        let r = fma::<FMA, _>(-n, FRAC_PI_2, x);
        let r = fma::<FMA, _>(n, FRAC_PI_2_EXCESS, r);
        fma::<FMA, _>(n, 1.715_124_5e-15, r)
    } else {
        let first = x - n * f32::from_bits(0x3fc9_0000);
        let second = first - n * f32::from_bits(0x39fd_a000);
        let part = n * f32::from_bits(0x33a2_2000);
        let third = second - part;
        // What the last subtraction, the only one to round, has lost.
        third + (((second - third) - part) - n * 2.563_344e-12)
    };
    (r, n_bits)
}

/// Sine and cosine of `|r| <= pi/4`; errors 2^-28 and 2^-33.
#[inline(always)]
fn sin_cos_small<const FMA: bool>(r: f32) -> (f32, f32) {
    let z = r * r;
    let s = horner!(FMA, z; -0.166_666_55, 0.008_332_19, -0.000_195_184_05);
    let c = horner!(FMA, z; 0.041_666_646, -0.001_388_730_1, 2.443_067e-5);
    (fma::<FMA, _>(r * z, s, r), 1.0 + fma::<FMA, _>(z * z, c, -0.5 * z))
}

/// Right for `|x| <= trig_limit(FMA)`.
#[inline(always)]
pub(super) fn sin<const FMA: bool>(x: f32) -> f32 {
    let (r, n) = quarter_turns::<FMA>(x.abs());
    let (s, c) = sin_cos_small::<FMA>(r);
    let value = if n & 1 == 0 { s } else { c };
    let sign = (x.to_bits() & (1 << 31)) ^ ((n & 2) << 30);
    f32::from_bits(value.to_bits() ^ sign)
}

/// Right for `|x| <= trig_limit(FMA)`.
#[inline(always)]
pub(super) fn cos<const FMA: bool>(x: f32) -> f32 {
    let (r, n) = quarter_turns::<FMA>(x.abs());
    let (s, c) = sin_cos_small::<FMA>(r);
    let value = if n & 1 == 0 { c } else { s };
    f32::from_bits(value.to_bits() ^ ((n.wrapping_add(1) & 2) << 30))
}

/// Above 1/2, `asin(t) = pi/2 - 2 asin(sqrt((1 - t) / 2))`: `(t > 1/2, s, tail)` where `s + tail` is the arc sine of `t`
/// or of that root; error 2^-31.7.
#[inline(always)]
fn asin_parts<const FMA: bool>(t: f32) -> (bool, f32, f32) {
    let big = t > 0.5;
    let z = if big { 0.5 - 0.5 * t } else { t * t };
    let s = if big { z.sqrt() } else { t };
    let p = horner!(FMA, z; 0.166_666_6, 0.075_005_21, 0.044_513_635, 0.031_836_055, 0.014_329_189, 0.037_673_127);
    (big, s, s * z * p)
}

#[inline(always)]
pub(super) fn asin<const FMA: bool>(x: f32) -> f32 {
    let (big, s, tail) = asin_parts::<FMA>(x.abs());
    let double = 2.0 * s;
    let leading = FRAC_PI_2 - double;
    let lost = (FRAC_PI_2 - leading) - double;
    let large = leading + (lost - fma::<FMA, _>(2.0, tail, FRAC_PI_2_EXCESS));
    let result = if big { large } else { s + tail };
    result.copysign(x)
}

#[inline(always)]
pub(super) fn acos<const FMA: bool>(x: f32) -> f32 {
    let (big, s, tail) = asin_parts::<FMA>(x.abs());
    let p = s + tail;
    let small = FRAC_PI_2 - (p.copysign(x) + FRAC_PI_2_EXCESS);
    let double = 2.0 * p;
    let large = if x < 0.0 { PI - (double + 2.0 * FRAC_PI_2_EXCESS) } else { double };
    if big { large } else { small }
}

#[inline(always)]
pub(super) fn atan<const FMA: bool>(x: f32) -> f32 {
    let t = x.abs();
    let inverted = t > 1.0;
    let q = if inverted { 1.0 / t } else { t };
    let z = q * q;
    // (atan(q) / q - 1) / q^2 for q <= 1; error 2^-28.7.
    let p = horner!(FMA, z;
        -0.333_333_02, 0.199_986_26, -0.142_650_92, 0.109_566_58, -0.084_164_61, 0.058_178_104, -0.031_394_556,
        0.011_029_073, -0.001_818_756);
    let a = fma::<FMA, _>(q * z, p, q);
    let result = if inverted { FRAC_PI_2 - (a + FRAC_PI_2_EXCESS) } else { a };
    result.copysign(x)
}

#[inline(always)]
pub(super) fn erf<const FMA: bool>(x: f32) -> f32 {
    let t = x.abs();
    // erf(t) / t - 1 for t <= 0.93; error 2^-30.1.
    let p = horner!(FMA, t * t;
        0.128_379_17, -0.376_126_32, 0.112_836_97, -0.026_860_1, 0.005_203_290_4, -0.000_816_961_1, 8.480_922_4e-5);
    let near = fma::<FMA, _>(t, p, t);
    // -log(erfc(t)) / t - 1 for 0.92 <= t <= 4, where erf rounds to 1; error 2^-30.3 of erf.
    let u = at_most(t, 4.0);
    let q = horner!(FMA, u;
        0.128_648_49, 0.635_151_3, 0.106_236_845, -0.023_762_02, 0.003_642_429_6, -0.000_322_794_02, 1.123_001_5e-5);
    let far = 1.0 - exp_normal::<FMA>(-fma::<FMA, _>(u, q, u));
    let result = if t < 0.925 { near } else { far };
    result.copysign(x)
}

/// `sqrt(x^2 + y^2)`, by way of f64, where nothing overflows.
#[inline(always)]
pub(super) fn hypot<const FMA: bool>(x: f32, y: f32) -> f32 {
    let (wide_x, wide_y) = (f64::from(x), f64::from(y));
    let length = fma::<FMA, _>(wide_x, wide_x, wide_y * wide_y).sqrt() as f32;
    // Infinite even beside NaN.
    let infinite = x.abs() == f32::INFINITY || y.abs() == f32::INFINITY;
    if infinite { f32::INFINITY } else { length }
}
