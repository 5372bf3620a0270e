//! Special functions of one f64: gamma, zeta and inverse error functions. What lives here: scalar code with branches and
//! loops, relative error about 1e-14 away from the zeros of each function, PyTorch's values at poles. What must not:
//! anything hot enough to be worth vector code (`kernel64`).

use super::{fma, horner, power};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `log |gamma(x)|`; `+inf` at the poles and at both infinities.
pub(super) fn lgamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// `B_2k / 2k` for k = 1 ..= 8, the asymptotic series of digamma.
const DIGAMMA_SERIES: [f64; 8] = [
    1.0 / 12.0,
    -1.0 / 120.0,
    1.0 / 252.0,
    -1.0 / 240.0,
    1.0 / 132.0,
    -691.0 / 32_760.0,
    1.0 / 12.0,
    -3_617.0 / 8_160.0,
];

/// The logarithmic derivative of gamma. `-inf` at 0, `+inf` at -0, NaN at the other poles and at `-inf`.
pub(super) fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.floor() {
            return f64::NAN;
        }
        return digamma_positive(1.0 - x) - PI / (PI * (x - x.round())).tan();
    }
    digamma_positive(x)
}

fn digamma_positive(x: f64) -> f64 {
    if x < 1.0 {
        return digamma_near_root(x + 1.0) - 1.0 / x;
    }
    if x <= 2.0 {
        return digamma_near_root(x);
    }
    let mut y = x;
    let mut shift = 0.0;
    while y < 10.0 {
        shift += 1.0 / y;
        y += 1.0;
    }
    let z = 1.0 / (y * y);
    let series = z * DIGAMMA_SERIES.iter().rev().fold(0.0, |sum, c| sum * z + c);
    libm::log(y) - 0.5 / y - series - shift
}

/// Digamma on [1, 2] as `(x - root) * p(x)`, so that it keeps its relative accuracy around the root. The root comes in
/// two parts; error of the polynomial 2^-52.7.
fn digamma_near_root(x: f64) -> f64 {
    const FMA: bool = false;
    const ROOT: f64 = 1.461_632_144_968_362_2;
    const ROOT_LOW: f64 = 9.549_995_429_965_697e-17;
    let p = horner!(FMA, x - 1.5;
        0.951_055_876_031_832_8, -0.423_627_421_281_457_2, 0.240_542_484_240_777_68, -0.148_404_923_054_873_85,
        0.094_988_724_454_483_89, -0.061_922_133_189_610_93, 0.040_760_833_835_893_316,
        -0.026_975_800_065_104_517, 0.017_907_251_827_882_4, -0.011_908_145_890_573_164,
        0.007_926_953_795_623_5, -0.005_280_909_430_906_797, 0.003_518_923_096_627_524_3,
        -0.002_337_513_385_845_294_3, 0.001_557_101_095_033_930_1, -0.001_077_830_279_070_686_2,
        0.000_721_728_908_876_549_9, -0.000_354_475_229_221_695_86, 0.000_230_243_891_079_157_11,
        -0.000_378_633_955_685_488_4, 0.000_257_273_903_639_391_15);
    ((x - ROOT) - ROOT_LOW) * p
}

/// The derivative of digamma; `+inf` at the poles.
pub(super) fn trigamma(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return f64::NAN;
    }
    if x <= 0.0 {
        if x == x.floor() {
            return f64::INFINITY;
        }
        let s = (PI * (x - x.round())).sin() / PI;
        return 1.0 / (s * s) - trigamma(1.0 - x);
    }
    let mut y = x;
    let mut shift = 0.0;
    while y < 10.0 {
        shift += 1.0 / (y * y);
        y += 1.0;
    }
    let z = 1.0 / (y * y);
    // The series of digamma with its terms multiplied by 2k.
    let series = DIGAMMA_SERIES.iter().enumerate().rev().fold(0.0, |sum, (k, c)| sum * z + c * (2 * k + 2) as f64);
    shift + (1.0 + z * series) / y + 0.5 * z
}

/// The `n`-th derivative of digamma, `n` a non-negative integer (else NaN).
pub(super) fn polygamma(n: f64, x: f64) -> f64 {
    if n == 0.0 {
        return digamma(x);
    }
    if n == 1.0 {
        return trigamma(x);
    }
    if !(n > 0.0 && n == n.floor()) || n == f64::INFINITY {
        return f64::NAN;
    }
    let sign = if n % 2.0 == 0.0 { -1.0 } else { 1.0 };
    let zeta = zeta(n + 1.0, x);
    if n > 170.0 || zeta.abs() < f64::MIN_POSITIVE {
        // n! overflows, or zeta underflows, where their product need not.
        if x > 1.0 && x < f64::INFINITY {
            return sign * polygamma_by_product(n, x);
        }
        if zeta == 0.0 {
            return sign * 0.0;
        }
    }
    sign * libm::tgamma(n + 1.0) * zeta
}

/// `n! zeta(n + 1, x)` for `x > 1` with the powers of `x` divided out factor by factor.
fn polygamma_by_product(n: f64, x: f64) -> f64 {
    let s = n + 1.0;
    let mut sum = 1.0;
    let mut k = 1.0;
    let end = zeta_start(s);
    while x + k <= end {
        let term = 1.0 / raise(1.0 + k / x, s);
        sum += term;
        if term < f64::EPSILON * 0.01 * sum {
            break;
        }
        k += 1.0;
    }
    if x + k > end {
        let a = x + k;
        sum += zeta_remainder(s, a) / raise(1.0 + k / x, s);
    }
    let mut product = sum / x;
    let mut i = 1.0;
    while i <= n && product != 0.0 && product < f64::INFINITY {
        product *= i / x;
        i += 1.0;
    }
    product
}

/// `B_2j / (2j)!` for j = 1 ..= 12, the Euler-Maclaurin series.
const EULER_MACLAURIN: [f64; 12] = [
    0.083_333_333_333_333_33,
    -0.001_388_888_888_888_889,
    3.306_878_306_878_307e-5,
    -8.267_195_767_195_768e-7,
    2.087_675_698_786_81e-8,
    -5.284_190_138_687_493e-10,
    1.338_253_653_068_467_9e-11,
    -3.389_680_296_322_582_7e-13,
    8.586_062_056_277_845e-15,
    -2.174_868_698_558_062e-16,
    5.509_002_828_360_229_5e-18,
    -1.395_446_468_581_252_3e-19,
];

/// From where on the Euler-Maclaurin series for `sum k^-s` converges to the last bit.
fn zeta_start(s: f64) -> f64 {
    10.0 + s
}

/// `a^s`; by repeated squaring, an order of magnitude faster, where that loses no more than a few ulp.
fn raise(a: f64, s: f64) -> f64 {
    if s != s.floor() || s > 16.0 {
        return power::pow::<false>(a, s);
    }
    let mut square = a;
    let mut left = s as u32;
    let mut product = 1.0;
    while left > 0 {
        if left & 1 == 1 {
            product *= square;
        }
        square *= square;
        left >>= 1;
    }
    product
}

/// `a^s * sum over k >= 0 of (a + k)^-s`, for `a >= zeta_start(s)`.
fn zeta_remainder(s: f64, a: f64) -> f64 {
    let mut factor = s / a;
    let mut series = 0.0;
    for (c, j) in EULER_MACLAURIN.iter().zip((1..).step_by(2).map(f64::from)) {
        let term = c * factor;
        series += term;
        if term.abs() < f64::EPSILON * 0.01 * series.abs() {
            break;
        }
        factor *= ((s + j) / a) * ((s + j + 1.0) / a);
    }
    a / (s - 1.0) + 0.5 + series
}

/// Hurwitz's zeta function, `sum over k >= 0 of (q + k)^-s`. NaN for `s < 1`, `+inf` at `s = 1` and at the poles
/// `q = 0, -1, ...`; other negative `q` need an integer `s`.
pub(super) fn zeta(s: f64, q: f64) -> f64 {
    if s.is_nan() || q.is_nan() || s < 1.0 {
        return f64::NAN;
    }
    if s == 1.0 {
        return f64::INFINITY;
    }
    if q <= 0.0 {
        return zeta_negative(s, q);
    }
    if s == f64::INFINITY {
        return if q < 1.0 { f64::INFINITY } else { f64::from(q == 1.0) };
    }
    if q == f64::INFINITY {
        return 0.0;
    }
    zeta_from(s, q)
}

/// The sum itself; the terms below 10 + s one by one, the rest by Euler and Maclaurin.
fn zeta_from(s: f64, q: f64) -> f64 {
    let mut sum = 0.0;
    let mut a = q;
    let end = zeta_start(s);
    while a < end {
        let term = 1.0 / raise(a, s);
        sum += term;
        if a > 0.0 && term <= f64::EPSILON * 0.01 * sum {
            return sum;
        }
        a += 1.0;
    }
    sum + zeta_remainder(s, a) / raise(a, s)
}

fn zeta_negative(s: f64, q: f64) -> f64 {
    if q == q.floor() {
        return f64::INFINITY;
    }
    if s != s.floor() || s == f64::INFINITY {
        return f64::NAN;
    }
    if q > -20.0 {
        return zeta_from(s, q);
    }
    // Far out, the sum over all integers less the part below q.
    let above = q - q.floor();
    let below = zeta_from(s, 1.0 - above) - zeta_from(s, 1.0 - q);
    zeta_from(s, above) + if s % 2.0 == 0.0 { below } else { -below }
}

/// The normal quantile of `1/2 + q` where `|q| <= 0.425`. This and the next: algorithm AS 241, PPND16
/// (M. J. Wichura, Applied Statistics 37 (1988) 477), relative error about 1e-16.
fn quantile_centre(q: f64) -> f64 {
    const FMA: bool = false;
    let r = 0.180_625 - q * q;
    let above = horner!(FMA, r;
        3.387_132_872_796_366_5, 133.141_667_891_784_38, 1_971.590_950_306_551_3, 13_731.693_765_509_46,
        45_921.953_931_549_87, 67_265.770_927_008_7, 33_430.575_583_588_13, 2_509.080_928_730_122_7);
    let below = horner!(FMA, r;
        1.0, 42.313_330_701_600_91, 687.187_007_492_057_9, 5_394.196_021_424_751, 21_213.794_301_586_597,
        39_307.895_800_092_71, 28_729.085_735_721_943, 5_226.495_278_852_854);
    q * (above / below)
}

/// The normal quantile of `1 - p` where `p <= 0.075`.
fn quantile_tail(p: f64) -> f64 {
    const FMA: bool = false;
    if p == 0.0 {
        return f64::INFINITY;
    }
    let r = (-libm::log(p)).sqrt();
    if r <= 5.0 {
        let r = r - 1.6;
        let above = horner!(FMA, r;
        1.423_437_110_749_683_5, 4.630_337_846_156_546, 5.769_497_221_460_691, 3.647_848_324_763_204_5,
        1.270_458_252_452_368_4, 0.241_780_725_177_450_6, 0.022_723_844_989_269_184,
        0.000_774_545_014_278_341_4);
        let below = horner!(FMA, r;
        1.0, 2.053_191_626_637_759, 1.676_384_830_183_803_8, 0.689_767_334_985_1, 0.148_103_976_427_480_08,
        0.015_198_666_563_616_457, 0.000_547_593_808_499_534_5, 1.050_750_071_644_416_9e-09);
        above / below
    } else {
        let r = r - 5.0;
        let above = horner!(FMA, r;
        6.657_904_643_501_103, 5.463_784_911_164_114, 1.784_826_539_917_291_3, 0.296_560_571_828_504_87,
        0.026_532_189_526_576_124, 0.001_242_660_947_388_078_4, 2.711_555_568_743_487_6e-05,
        2.010_334_399_292_288_1e-07);
        let below = horner!(FMA, r;
        1.0, 0.599_832_206_555_888, 0.136_929_880_922_735_8, 0.014_875_361_290_850_615,
        0.000_786_869_131_145_613_3, 1.846_318_317_510_054_8e-05, 1.421_511_758_316_446e-07,
        2.044_263_103_389_939_7e-15);
        above / below
    }
}

/// The inverse of the normal distribution function; infinite at 0 and 1, NaN outside.
pub(super) fn ndtri(p: f64) -> f64 {
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        return quantile_centre(q);
    }
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if q < 0.0 { -quantile_tail(p) } else { quantile_tail(1.0 - p) }
}

/// The inverse of `erf`; infinite at -1 and 1, NaN outside.
pub(super) fn erfinv(x: f64) -> f64 {
    let t = x.abs();
    if t <= 0.85 {
        return quantile_centre(0.5 * x) * FRAC_1_SQRT_2;
    }
    if t > 1.0 {
        return f64::NAN;
    }
    (quantile_tail(0.5 - 0.5 * t) * FRAC_1_SQRT_2).copysign(x)
}
