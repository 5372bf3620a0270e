//! `x^y`, for f32 results and for f64. What lives here: the logarithm in twice the precision of f64 that the latter needs,
//! and the special values of C's `pow`, which both share. What must not: loops, branches.

use super::kernel64::{
    LN_2_HIGH, LN_2_LOW, TWO_52, exp_for_f32, exp_sum, leading_bits, log_domain, log_for_f32, split,
};
use super::{estrin, fma};

/// `x^y` for arguments that are exact in f32, good to about 2^-36.
#[inline(always)]
pub(super) fn pow_for_f32<const FMA: bool>(x: f64, y: f64) -> f64 {
    with_special_values(x, y, exp_for_f32::<FMA>(y * log_for_f32::<FMA>(x.abs())))
}

/// `x^y` within about 1 ulp.
#[inline(always)]
pub(super) fn pow<const FMA: bool>(x: f64, y: f64) -> f64 {
    let (log, log_low) = precise_log::<FMA>(x.abs());
    let (exponent, low) = product::<FMA>(y, log);
    let low = fma::<FMA, _>(y, log_low, low);
    // Far outside the range of exp, where the product may have overflowed, the low part is not a number.
    let low = if exponent.abs() < 1000.0 { low } else { 0.0 };
    with_special_values(x, y, exp_sum::<FMA>(exponent, low))
}

/// `a * b` as a sum of two, exact as long as nothing over- or underflows.
#[inline(always)]
fn product<const FMA: bool>(a: f64, b: f64) -> (f64, f64) {
    let high = a * b;
    if FMA {
        return (high, a.mul_add(b, -high));
    }
    // Dekker's: all four products of halves are exact.
    let (a1, b1) = (leading_bits(a), leading_bits(b));
    let (a2, b2) = (a - a1, b - b1);
    (high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2)
}

/// `a + b` as a sum of two, exact for `|a| >= |b|` and for `a = 0`.
#[inline(always)]
fn sum(a: f64, b: f64) -> (f64, f64) {
    let high = a + b;
    (high, b - (high - a))
}

/// `log x` of a non-negative `x` as a sum of two, error about 2^-65 of it.
///
/// As in `kernel64`, `log(1 + f) = 2 atanh(s) = 2s + 2/3 s^3 + s^5 p(s^2)` with `s = f / (2 + f)`; the first two terms are
/// sums of two floats, from the third on f64 is enough.
#[inline(always)]
fn precise_log<const FMA: bool>(x: f64) -> (f64, f64) {
    const TWO_THIRDS: (f64, f64) = (2.0 / 3.0, 3.700_743_415_417_188e-17);
    let (e, f, _) = split::<true>(x);

    let below = 2.0 + f;
    let below_low = f - (below - 2.0);
    let s = f / below;
    let (back, back_low) = product::<FMA>(s, below);
    let s_low = (((f - back) - back_low) - s * below_low) / below;

    let (z, z_low) = product::<FMA>(s, s);
    let z_low = fma::<FMA, _>(2.0 * s, s_low, z_low);
    let (cube, cube_low) = product::<FMA>(s, z);
    let cube_low = fma::<FMA, _>(s, z_low, fma::<FMA, _>(s_low, z, cube_low));
    let (second, second_low) = product::<FMA>(cube, TWO_THIRDS.0);
    let second_low = fma::<FMA, _>(cube, TWO_THIRDS.1, fma::<FMA, _>(cube_low, TWO_THIRDS.0, second_low));
    // Error 2^-65.5 of 2 s.
    let p = estrin!(FMA, z;
        0.400_000_000_000_022_9, 0.285_714_285_700_837_07, 0.222_222_225_228_848_3, 0.181_817_840_975_033_48,
        0.153_867_701_967_224_44, 0.132_565_085_224_374_07, 0.131_992_821_940_998_34);
    let rest = fma::<FMA, _>(cube * z, p, second_low);

    let (log, lost) = sum(2.0 * s, second);
    let low = fma::<FMA, _>(2.0, s_low, rest) + lost;
    let (log, lost) = sum(e * LN_2_HIGH, log);
    let low = fma::<FMA, _>(e, LN_2_LOW, low) + lost;
    let (log, low) = sum(log, low);

    let normal = (x > 0.0) & (x < f64::INFINITY);
    (log_domain(x, log), if normal { low } else { 0.0 })
}

/// `magnitude`, which is `|x|^y`, with the sign that belongs to it, and what C's `pow` gives where it is not a number.
#[inline(always)]
fn with_special_values(x: f64, y: f64, magnitude: f64) -> f64 {
    let (ax, ay) = (x.abs(), y.abs());
    // Below 2^52 adding that rounds to an integer; above, every float is one, from 2^53 on an even one.
    let small = ay < TWO_52;
    let shifted = ay + TWO_52;
    let integer = !small | (shifted - TWO_52 == ay);
    let parity = if small { shifted } else { ay }.to_bits() << 63;
    let odd = integer & (ay < 2.0 * TWO_52);
    let sign = if odd { parity & x.to_bits() } else { 0 };
    let signed = f64::from_bits(magnitude.to_bits() ^ sign);
    // `&` and `|` rather than `&&` and `||` throughout: no branches.
    let complex = !integer & (x < 0.0) & (ax < f64::INFINITY);
    let value = if complex { f64::NAN } else { signed };
    let one = (x == 1.0) | (y == 0.0) | ((x == -1.0) & (ay == f64::INFINITY));
    if one { 1.0 } else { value }
}
