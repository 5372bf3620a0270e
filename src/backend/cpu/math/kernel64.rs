//! Branch-free f64 functions of one value, which LLVM turns into vector code inside a loop. What lives here: argument
//! reduction, polynomials and special values, at most 2 ulp. What must not: loops, table look-ups, calls into a C
//! library. `single` uses these too wherever f32 arithmetic would lose more than 2 ulp.
//!
//! Coefficients are minimax (Remez exchange at 50 digits), rounded to f64; the comment beside each set gives the
//! largest error after rounding. Constants split in two parts have a first part short enough for exact products.

use super::{at_least, at_most, estrin, fma};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E, PI};

/// 1.5 * 2^52: adding it rounds to an integer (ties to even) and leaves that integer in the low bits.
const TO_INTEGER: f64 = 6_755_399_441_055_744.0;
/// 2^52: or-ing an integer below it into its bits gives 2^52 plus that integer.
pub(super) const TWO_52: f64 = 4_503_599_627_370_496.0;

/// log 2 in 41 + 53 bits.
pub(super) const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fefa_4000);
pub(super) const LN_2_LOW: f64 = -1.723_944_452_561_483_5e-13;

/// The nearest integer to `x`, as a float and (modulo 2^51) in the low bits; `|x| < 2^51`.
#[inline(always)]
fn nearest(x: f64) -> (f64, u64) {
    let shifted = x + TO_INTEGER;
    (shifted - TO_INTEGER, shifted.to_bits())
}

/// `2^n` for the integer `n` in the low 12 bits, `-1022 <= n <= 1023`.
#[inline(always)]
fn power_of_two(n: u64) -> f64 {
    f64::from_bits((n << 52).wrapping_add(0x3ff0_0000_0000_0000))
}

/// `(expm1(r) - r) / r^2` for `|r| <= log(2) / 2`; error 2^-58.5.
#[inline(always)]
fn expm1_tail<const FMA: bool>(r: f64) -> f64 {
    estrin!(FMA, r;
        0.5, 0.166_666_666_666_666_7, 0.041_666_666_666_666_685, 0.008_333_333_333_326_112, 0.001_388_888_888_887_434_2,
        0.000_198_412_698_749_025_2, 2.480_158_734_747_06e-5, 2.755_725_529_634_540_2e-6, 2.755_725_278_869_035e-7,
        2.510_526_020_232_049_2e-8, 2.092_163_044_330_352_8e-9)
}

/// `2^n * e^r`, in two factors so that the one rounding of a denormal result is the last step.
#[inline(always)]
fn scaled_exp<const FMA: bool>(n: f64, n_bits: u64, r: f64) -> f64 {
    let e = 1.0 + fma::<FMA, _>(r * r, expm1_tail::<FMA>(r), r);
    let (_, half) = nearest(n * 0.5);
    e * power_of_two(half) * power_of_two(n_bits.wrapping_sub(half))
}

/// `e^(x + low)` for a `low` of at most 1e-4: callers that know the argument beyond f64 pass the rest.
#[inline(always)]
pub(super) fn exp_sum<const FMA: bool>(x: f64, low: f64) -> f64 {
    let x = at_least(at_most(x, 710.0), -746.0);
    let (n, n_bits) = nearest(x * LOG2_E);
    let r = fma::<FMA, _>(-n, LN_2_LOW, fma::<FMA, _>(-n, LN_2_HIGH, x)) + low;
    scaled_exp::<FMA>(n, n_bits, r)
}

#[inline(always)]
pub(super) fn exp<const FMA: bool>(x: f64) -> f64 {
    let x = at_least(at_most(x, 710.0), -746.0);
    let (n, n_bits) = nearest(x * LOG2_E);
    let r = fma::<FMA, _>(-n, LN_2_LOW, fma::<FMA, _>(-n, LN_2_HIGH, x));
    scaled_exp::<FMA>(n, n_bits, r)
}

/// `e^x` for `|x| <= 708`, where one factor will do.
#[inline(always)]
fn exp_normal<const FMA: bool>(x: f64) -> f64 {
    let (n, n_bits) = nearest(x * LOG2_E);
    let r = fma::<FMA, _>(-n, LN_2_LOW, fma::<FMA, _>(-n, LN_2_HIGH, x));
    (1.0 + fma::<FMA, _>(r * r, expm1_tail::<FMA>(r), r)) * power_of_two(n_bits)
}

/// `e^x` with relative error 2^-44, zero or infinite where f32 is: for f32 results.
#[inline(always)]
pub(super) fn exp_for_f32<const FMA: bool>(x: f64) -> f64 {
    let x = at_least(at_most(x, 700.0), -700.0);
    let (n, n_bits) = nearest(x * LOG2_E);
    let r = fma::<FMA, _>(-n, LN_2, x);
    let p = estrin!(FMA, r;
        0.499_999_999_999_549_2, 0.166_666_666_666_338_45, 0.041_666_666_786_639_39, 0.008_333_333_363_342_885,
        0.001_388_883_900_760_570_3, 0.000_198_411_927_310_090_97, 2.486_793_839_378_818e-5, 2.763_272_656_646_457e-6);
    (1.0 + fma::<FMA, _>(r * r, p, r)) * power_of_two(n_bits)
}

#[inline(always)]
pub(super) fn exp2<const FMA: bool>(x: f64) -> f64 {
    let x = at_least(at_most(x, 1025.0), -1076.0);
    let (n, n_bits) = nearest(x);
    scaled_exp::<FMA>(n, n_bits, (x - n) * LN_2)
}

/// A quarter of `expm1(x)`, which stays finite for as long as `sinh` and `cosh` do.
#[inline(always)]
fn quarter_expm1<const FMA: bool>(x: f64) -> f64 {
    let y = at_least(at_most(x, 710.6), -60.0);
    let (n, n_bits) = nearest(y * LOG2_E);
    let high = fma::<FMA, _>(-n, LN_2_HIGH, y);
    let low = n * LN_2_LOW;
    let r = high - low;
    let lost = (high - r) - low;
    let e = r + fma::<FMA, _>(r * r, expm1_tail::<FMA>(r), lost);
    let scale = power_of_two(n_bits.wrapping_sub(2));
    fma::<FMA, _>(scale, e, scale - 0.25)
}

#[inline(always)]
pub(super) fn expm1<const FMA: bool>(x: f64) -> f64 {
    let result = 4.0 * quarter_expm1::<FMA>(x);
    if x.abs() < 1e-17 { x } else { result }
}

#[inline(always)]
pub(super) fn sigmoid<const FMA: bool>(x: f64) -> f64 {
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
pub(super) fn tanh<const FMA: bool>(x: f64) -> f64 {
    let e = expm1::<FMA>(2.0 * at_most(x.abs(), 22.0));
    let sum = e + 2.0;
    let quotient = e / sum;
    // As in `sigmoid`; here 1 / sum is half of 1 less the quotient. For larger e it hardly matters.
    let lost = if e < 2.0 { e - (sum - 2.0) } else { 0.0 };
    let reciprocal = fma::<FMA, _>(-0.5, quotient, 0.5);
    fma::<FMA, _>(-quotient, lost * reciprocal, quotient).copysign(x)
}

#[inline(always)]
pub(super) fn sinh<const FMA: bool>(x: f64) -> f64 {
    let t = x.abs();
    let half = 2.0 * quarter_expm1::<FMA>(t);
    // Beyond the cap the quotient, which is next to 1/2, no longer matters; infinite over infinite would.
    let capped = at_most(half, 1e300);
    let result = half + capped / (2.0 * capped + 1.0);
    let result = if t < 1e-17 { t } else { result };
    result.copysign(x)
}

/// `sinh` with relative error 2^-33: for f32 results.
#[inline(always)]
pub(super) fn sinh_for_f32<const FMA: bool>(x: f64) -> f64 {
    let t = x.abs();
    let e = exp_for_f32::<FMA>(t);
    let far = 0.5 * (e - 1.0 / e);
    let near = fma::<FMA, _>(t * t * (1.0 / 6.0), t, t);
    let result = if t < 0.004 { near } else { far };
    result.copysign(x)
}

/// `cosh` with relative error 2^-44: for f32 results.
#[inline(always)]
pub(super) fn cosh_for_f32<const FMA: bool>(x: f64) -> f64 {
    let e = exp_for_f32::<FMA>(x.abs());
    0.5 * (e + 1.0 / e)
}

#[inline(always)]
pub(super) fn cosh<const FMA: bool>(x: f64) -> f64 {
    let half = fma::<FMA, _>(2.0, quarter_expm1::<FMA>(x.abs()), 0.5);
    half + 0.25 / half
}

/// A positive finite `x` as `2^e * (1 + f)` with `sqrt(1/2) <= 1 + f < sqrt(2)`: `(e, f, 2^-e)`.
/// The power is right for `-1022 <= e <= 1022` and normal `x` only.
#[inline(always)]
pub(super) fn split<const DENORMALS: bool>(x: f64) -> (f64, f64, f64) {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const MANTISSA: u64 = 0x000f_ffff_ffff_ffff;
    let tiny = DENORMALS && x < f64::MIN_POSITIVE;
    let normal = if tiny { x * TWO_52 } else { x };
    let bits = normal.to_bits().wrapping_add(ONE - SQRT_HALF);
    let biased = bits >> 52;
    let bias = if tiny { TWO_52 + 1075.0 } else { TWO_52 + 1023.0 };
    let e = f64::from_bits(biased | TWO_52.to_bits()) - bias;
    let m = f64::from_bits((bits & MANTISSA).wrapping_add(SQRT_HALF));
    (e, m - 1.0, f64::from_bits(2046_u64.wrapping_sub(biased) << 52))
}

/// `log(1 + f) = f - (half_square - tail)` for `1 + f` as `split` gives it: `(half_square, tail)`. FreeBSD's scheme
/// (`e_log.c`): with `s = f / (2 + f)`, `log(1 + f) = 2 atanh(s)`; error of the polynomial 2^-58 of `2 s`.
#[inline(always)]
fn log1p_parts<const FMA: bool>(f: f64) -> (f64, f64) {
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * estrin!(FMA, z;
        0.666_666_666_666_673_5, 0.399_999_999_994_074_65, 0.285_714_287_441_458_44, 0.222_221_983_780_616_5,
        0.181_835_751_848_686_75, 0.153_137_553_156_186_7, 0.147_990_700_956_323_2);
    let half_square = 0.5 * f * f;
    (half_square, s * (half_square + r))
}

/// `e log 2 + log(1 + f)`.
#[inline(always)]
fn log_sum<const FMA: bool>(e: f64, f: f64) -> f64 {
    let (half_square, tail) = log1p_parts::<FMA>(f);
    fma::<FMA, _>(e, LN_2_HIGH, f - (half_square - fma::<FMA, _>(e, LN_2_LOW, tail)))
}

/// The logarithm of an argument for which the formula, whose value is `result`, may not hold.
#[inline(always)]
pub(super) fn log_domain(x: f64, result: f64) -> f64 {
    let low = if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    // Infinity and NaN are their own logarithms.
    let high = if x < f64::INFINITY { result } else { x };
    if x <= 0.0 { low } else { high }
}

#[inline(always)]
pub(super) fn log<const FMA: bool>(x: f64) -> f64 {
    let (e, f, _) = split::<true>(x);
    log_domain(x, log_sum::<FMA>(e, f))
}

/// `e * unit + log(1 + f) * factor`, the two constants each in a short first part and a rest.
#[inline(always)]
fn log_in_base<const FMA: bool>(x: f64, unit: (f64, f64), factor: (f64, f64)) -> f64 {
    let (e, f, _) = split::<true>(x);
    let (half_square, tail) = log1p_parts::<FMA>(f);
    // 21 bits of the logarithm make an exact product with the short part of the factor.
    let high = f64::from_bits((f - half_square).to_bits() & 0xffff_ffff_0000_0000);
    let low = (f - high) - half_square + tail;
    let whole = e * unit.0;
    let leading = high * factor.0;
    let sum = whole + leading;
    let lost = (whole - sum) + leading;
    let rest = fma::<FMA, _>(low, factor.0, fma::<FMA, _>(low + high, factor.1, e * unit.1));
    log_domain(x, sum + (lost + rest))
}

#[inline(always)]
pub(super) fn log2<const FMA: bool>(x: f64) -> f64 {
    log_in_base::<FMA>(x, (1.0, 0.0), (f64::from_bits(0x3ff7_1547_0000_0000), 3.768_874_985_636_099e-7))
}

#[inline(always)]
pub(super) fn log10<const FMA: bool>(x: f64) -> f64 {
    let unit = (f64::from_bits(0x3fd3_4413_509f_8000), -8.532_344_317_057_107e-14);
    log_in_base::<FMA>(x, unit, (f64::from_bits(0x3fdb_cb7b_0000_0000), 1.969_927_233_546_362_7e-8))
}

#[inline(always)]
pub(super) fn log1p<const FMA: bool>(x: f64) -> f64 {
    let u = 1.0 + x;
    let (e, f, scale) = split::<false>(u);
    // (1 + x) / 2^e - 1 without the rounding of 1 + x; from 2^60 on, where 2^-e runs out of range, it has none.
    let exact = fma::<FMA, _>(x, scale, scale - 1.0);
    let f = if e < 60.0 { exact } else { f };
    log_domain(u, log_sum::<FMA>(e, f)).copysign(x)
}

/// `|x|` up to which `sin`, `cos` and `tan` reduce their argument exactly: the products below must not round.
pub(super) const TRIG_LIMIT: f64 = 1_048_576.0;

/// `x - n pi/2` for the nearest integer `n`, as a sum of two, and that `n` in the low bits. pi/2 comes in
/// 33 + 33 + 33 + 53 bits, so that the products with `n < 2^20` are exact with or without FMA.
#[inline(always)]
fn quarter_turns(x: f64) -> (f64, f64, u64) {
    let (n, n_bits) = nearest(x * FRAC_2_PI);
    let first = x - n * f64::from_bits(0x3ff9_21fb_5440_0000);
    let part = n * f64::from_bits(0x3dd0_b461_1a60_0000);
    let second = first - part;
    let lost = (first - second) - part;
    let part = n * f64::from_bits(0x3ba3_198a_2e00_0000);
    let third = second - part;
    let lost = ((second - third) - part) + (lost - n * 8.478_427_660_368_9e-32);
    (third, lost, n_bits)
}

/// `((sin(r) - r) / r^3, (cos(r) - 1 + r^2 / 2) / r^4)` of `z = r^2` for `|r| <= pi/4`; errors 2^-57 and 2^-60.
#[inline(always)]
fn sin_cos_tails<const FMA: bool>(z: f64) -> (f64, f64) {
    let s = estrin!(FMA, z;
        -0.166_666_666_666_666_32, 0.008_333_333_333_322_413, -0.000_198_412_698_298_076_86,
        2.755_731_369_188_298_3e-6, -2.505_075_811_061_794_6e-8, 1.589_679_542_027_411e-10);
    let c = estrin!(FMA, z;
        0.041_666_666_666_666_6, -0.001_388_888_888_887_412_5, 2.480_158_728_948_215_7e-5,
        -2.755_731_435_232_489e-7, 2.087_572_327_209_438_7e-9, -1.135_964_774_166_605_5e-11);
    (s, c)
}

/// Sine and cosine of `r + low`, where `|r| <= pi/4` and `low` is below its last place; each as a large and a small part.
#[inline(always)]
fn sin_cos_small<const FMA: bool>(r: f64, low: f64) -> ([f64; 2], [f64; 2]) {
    let z = r * r;
    let (s, c) = sin_cos_tails::<FMA>(z);
    let half = 0.5 * z;
    let sine = [r, fma::<FMA, _>(r * z, s, fma::<FMA, _>(-half, low, low))];
    // 1 - z/2 with what its rounding loses.
    let leading = 1.0 - half;
    let cosine = [leading, fma::<FMA, _>(z * z, c, ((1.0 - leading) - half) - r * low)];
    (sine, cosine)
}

/// Right for `|x| <= TRIG_LIMIT`.
#[inline(always)]
pub(super) fn sin<const FMA: bool>(x: f64) -> f64 {
    let (r, low, n) = quarter_turns(x.abs());
    let (s, c) = sin_cos_small::<FMA>(r, low);
    let value = if n & 1 == 0 { s[0] + s[1] } else { c[0] + c[1] };
    let sign = (x.to_bits() & (1 << 63)) ^ ((n & 2) << 62);
    f64::from_bits(value.to_bits() ^ sign)
}

/// Right for `|x| <= TRIG_LIMIT`.
#[inline(always)]
pub(super) fn cos<const FMA: bool>(x: f64) -> f64 {
    let (r, low, n) = quarter_turns(x.abs());
    let (s, c) = sin_cos_small::<FMA>(r, low);
    let value = if n & 1 == 0 { c[0] + c[1] } else { s[0] + s[1] };
    f64::from_bits(value.to_bits() ^ ((n.wrapping_add(1) & 2) << 62))
}

/// Right for `|x| <= TRIG_LIMIT`.
#[inline(always)]
pub(super) fn tan<const FMA: bool>(x: f64) -> f64 {
    let (r, low, n) = quarter_turns(x.abs());
    let (s, c) = sin_cos_small::<FMA>(r, low);
    let odd = n & 1 != 0;
    let above = if odd { c } else { s };
    let below = if odd { s } else { c };
    let (numerator, denominator) = (above[0] + above[1], below[0] + below[1]);
    let quotient = numerator / denominator;
    // What the two sums lost would bring the error past 2 ulp.
    let lost = ((above[0] - numerator) + above[1]) - quotient * ((below[0] - denominator) + below[1]);
    let value = quotient + lost / denominator;
    let sign = (x.to_bits() & (1 << 63)) ^ ((n & 1) << 63);
    f64::from_bits(value.to_bits() ^ sign)
}

/// `tan` to a few ulp of f64 for `|x| <= TRIG_LIMIT`: for f32 results.
#[inline(always)]
pub(super) fn tan_for_f32<const FMA: bool>(x: f64) -> f64 {
    let (r, _, n) = quarter_turns(x.abs());
    let z = r * r;
    let (s, c) = sin_cos_tails::<FMA>(z);
    let (s, c) = (fma::<FMA, _>(r * z, s, r), 1.0 + fma::<FMA, _>(z * z, c, -0.5 * z));
    let (above, below) = if n & 1 != 0 { (c, s) } else { (s, c) };
    let sign = (x.to_bits() & (1 << 63)) ^ ((n & 1) << 63);
    f64::from_bits((above / below).to_bits() ^ sign)
}

/// `e^(t^2) erfc(t)` for `t >= 0`: `(1 + 2t) erfcx(t)` is smooth in `w = (t - K) / (t + K)` all the way to infinity
/// (M. M. Shepherd and J. G. Laframboise, Math. Comp. 36 (1981) 249); error 2^-53.
#[inline(always)]
pub(super) fn erfcx_positive<const FMA: bool>(t: f64) -> f64 {
    const K: f64 = 3.75;
    let w = 1.0 - 2.0 * K / (t + K);
    let p = estrin!(FMA, w;
        1.237_512_630_837_827_7, -0.140_240_598_585_546_97, 0.003_585_415_485_464_774, 0.082_276_738_490_146_76,
        -0.108_803_930_141_765_84, 0.092_304_321_160_336_31, -0.058_693_398_589_310_68, 0.028_362_277_419_458_234,
        -0.009_746_579_561_252_086, 0.001_755_625_849_503_157_3, 0.000_293_713_684_324_294_4,
        -0.000_290_154_066_555_445_4, 5.164_903_004_580_583e-5, 2.238_420_217_651_379_6e-5,
        -1.144_398_003_890_531_4e-5, -9.734_958_807_892_958e-7, 1.751_370_493_806_483_4e-6,
        -5.729_041_371_697_588_4e-8, -2.583_853_007_310_848e-7, 2.331_457_214_650_541e-8, 3.848_519_445_544_623_3e-8,
        -3.764_785_738_938_86e-9, -5.100_738_991_113_599_5e-9, 3.147_458_331_839_735e-10, 4.128_128_003_120_732_3e-10);
    p / (1.0 + 2.0 * t)
}

/// The first 26 bits of `x`: products of two such are exact.
#[inline(always)]
pub(super) fn leading_bits(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0xffff_ffff_f800_0000)
}

/// `t^2` as a sum of two, to twice the precision of f64.
#[inline(always)]
pub(super) fn square<const FMA: bool>(t: f64) -> (f64, f64) {
    if FMA {
        let high = t * t;
        (high, t.mul_add(t, -high))
    } else {
        let short = leading_bits(t);
        (short * short, (t - short) * (t + short))
    }
}

/// `erfc(t)` for `1 <= t <= 6`, to the precision of `erf(t)`: an absolute 2^-57.
#[inline(always)]
fn erfc_far<const FMA: bool>(t: f64) -> f64 {
    const K: f64 = 3.0;
    let w = 1.0 - 2.0 * K / (t + K);
    let p = estrin!(FMA, w; 0.179_001_151_181_351_5, -0.326_233_560_046_000_8, 0.245_603_801_663_964_67, -0.150_115_936_311_605_72, 0.071_665_850_749_100_59, -0.024_392_322_367_066_607, 0.004_270_382_779_823_813, 0.000_713_271_941_392_285_7, -0.000_580_884_930_153_933_4, 7.667_157_490_626_327e-5, 0.000_103_163_388_179_348_3, 1.527_344_557_146_359_7e-5);
    exp_normal::<FMA>(-t * t) * p
}

/// `erf(t)` for `|t| <= 1`; error 2^-54.8.
#[inline(always)]
fn erf_small<const FMA: bool>(t: f64) -> f64 {
    let z = t * t;
    let p = estrin!(FMA, z;
        0.128_379_167_095_512_56, -0.376_126_389_031_835_2, 0.112_837_916_709_441_85, -0.026_866_170_643_111_53,
        0.005_223_977_606_118_88, -0.000_854_832_592_932_979, 0.000_120_552_935_772_728_78, -1.492_471_230_802_971_9e-5,
        1.644_713_163_568_048_4e-6, -1.620_631_419_630_994_6e-7, 1.371_098_210_848_245_1e-8, -7.779_471_406_957_415e-10);
    fma::<FMA, _>(t, p, t)
}

#[inline(always)]
pub(super) fn erf<const FMA: bool>(x: f64) -> f64 {
    let t = x.abs();
    let far = 1.0 - erfc_far::<FMA>(at_most(t, 6.0));
    let result = if t < 1.0 { erf_small::<FMA>(t) } else { far };
    result.copysign(x)
}

/// `erfcx` for f64, relative error about 4e-16; overflows to `+inf` below about -26.6.
#[inline(always)]
pub(super) fn erfcx<const FMA: bool>(x: f64) -> f64 {
    let t = x.abs();
    let right = erfcx_positive::<FMA>(t);
    // The polynomial rounds to just below.
    let right = if t < 1e-17 { 1.0 } else { right };
    let (high, low) = square::<FMA>(at_most(t, 27.0));
    let left = 2.0 * exp_sum::<FMA>(high, low) - right;
    if x < 0.0 { left } else { right }
}

/// `erfcx(t)` for `t >= 0` with relative error 2^-32: for f32 results.
#[inline(always)]
fn erfcx_positive_for_f32<const FMA: bool>(t: f64) -> f64 {
    const K: f64 = 2.0;
    let w = 1.0 - 2.0 * K / (t + K);
    let p = estrin!(FMA, w;
        1.276_978_381_443_549_4, -0.092_763_822_474_541_6, -0.166_030_385_470_064_6, 0.164_051_125_391_425_88,
        -0.054_220_231_527_854_54, -0.008_032_331_101_744_396, 0.008_724_378_333_932_704, 0.001_263_238_589_533_311_4,
        -0.001_463_372_580_047_037_2, -0.000_434_293_575_588_666_56, 0.000_220_495_340_379_090_3,
        0.000_124_463_517_453_982_12, -1.944_170_478_390_651e-5, -1.879_704_370_246_739e-5,
        -2.403_021_279_172_624e-7);
    p / (1.0 + 2.0 * t)
}

/// `erfc` with relative error 2^-30: for f32 results.
#[inline(always)]
pub(super) fn erfc_for_f32<const FMA: bool>(x: f64) -> f64 {
    let t = at_most(x.abs(), 20.0);
    let tail = exp_for_f32::<FMA>(-t * t) * erfcx_positive_for_f32::<FMA>(t);
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// `erfcx` with relative error 2^-30: for f32 results.
#[inline(always)]
pub(super) fn erfcx_for_f32<const FMA: bool>(x: f64) -> f64 {
    let t = x.abs();
    let right = erfcx_positive_for_f32::<FMA>(t);
    let u = at_most(t, 20.0);
    let left = 2.0 * exp_for_f32::<FMA>(u * u) - right;
    if x < 0.0 { left } else { right }
}

/// `log` of an argument that is not denormal, with relative error 2^-43: for f32 results.
#[inline(always)]
pub(super) fn log_for_f32<const FMA: bool>(x: f64) -> f64 {
    let (e, f, _) = split::<false>(x);
    let s = f / (2.0 + f);
    let z = s * s;
    let p = estrin!(FMA, z;
        0.666_666_666_758_931_7, 0.399_999_955_866_541_97, 0.285_721_132_530_291_13, 0.221_760_035_368_353_87,
        0.195_870_052_533_032_58);
    log_domain(x, fma::<FMA, _>(e, LN_2, fma::<FMA, _>(s * z, p, 2.0 * s)))
}

/// `asinh` with relative error 2^-42: for f32 results, as the next two.
#[inline(always)]
pub(super) fn asinh_for_f32<const FMA: bool>(x: f64) -> f64 {
    let t = x.abs();
    let z = t * t;
    let far = log_for_f32::<FMA>(t + (z + 1.0).sqrt());
    let near = fma::<FMA, _>(-t * z, 1.0 / 6.0, t);
    let result = if t < 0.001 { near } else { far };
    result.copysign(x)
}

#[inline(always)]
pub(super) fn acosh_for_f32<const FMA: bool>(x: f64) -> f64 {
    let result = log_for_f32::<FMA>(x + ((x - 1.0) * (x + 1.0)).sqrt());
    if x < 1.0 { f64::NAN } else { result }
}

#[inline(always)]
pub(super) fn atanh_for_f32<const FMA: bool>(x: f64) -> f64 {
    let t = x.abs();
    let far = 0.5 * log_for_f32::<FMA>((1.0 + t) / (1.0 - t));
    let near = fma::<FMA, _>(t * t * (1.0 / 3.0), t, t);
    let result = if t < 0.001 { near } else { far };
    result.copysign(x)
}

/// The angle of `(x, y)` with relative error 2^-34: for f32 results.
#[inline(always)]
pub(super) fn atan2_for_f32<const FMA: bool>(y: f64, x: f64) -> f64 {
    let (ay, ax) = (y.abs(), x.abs());
    let steep = ay > ax;
    let (above, below) = if steep { (ax, ay) } else { (ay, ax) };
    let ratio = above / below;
    let ratio = if (ax == 0.0) & (ay == 0.0) { 0.0 } else { ratio };
    let ratio = if (ax == f64::INFINITY) & (ay == f64::INFINITY) { 1.0 } else { ratio };
    let z = ratio * ratio;
    let p = estrin!(FMA, z;
        -0.333_333_322_353_359_6, 0.199_999_321_982_055_78, -0.142_842_508_775_923_42, 0.110_952_025_440_382_92,
        -0.089_887_924_856_819_04, 0.072_693_854_165_675_43, -0.054_704_508_121_529_05, 0.034_704_683_003_464_576,
        -0.016_471_475_584_189_404, 0.004_999_324_659_264_632, -0.000_711_306_217_931_226_8);
    let angle = fma::<FMA, _>(ratio * z, p, ratio);
    let angle = if steep { FRAC_PI_2 - angle } else { angle };
    let angle = if x.is_sign_negative() { PI - angle } else { angle };
    angle.copysign(y)
}

/// `fmod(x, y)` for `|x / y| < 2^51`, finite `y != 0`. Exact with FMA; without, if `x`, `y` and the quotient have at
/// most 53 bits together, as f32 arguments with a quotient below 2^29 do.
#[inline(always)]
pub(super) fn fmod<const FMA: bool>(x: f64, y: f64) -> f64 {
    let (ax, ay) = (x.abs(), y.abs());
    // The rounded quotient is off by at most 3/4, so the remainder lies within one |y| of its range.
    let n = (ax / ay + TWO_52) - TWO_52;
    let r = fma::<FMA, _>(-n, ay, ax);
    let r = if r < 0.0 { r + ay } else { r };
    r.copysign(x)
}
