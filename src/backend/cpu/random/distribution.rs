//! From random words to numbers of a distribution, a group at a time. Every `make` is straight-line code over lanes, so that
//! LLVM vectorises it. No counters here.
//!
//! The logarithm, sine and cosine are series of their own because their arguments are not general: they come from integers,
//! in ranges known beforehand, and must give the same bits on every processor, so without fused multiply-add.

use super::{LANES, Words};

/// A distribution that makes `N` numbers from a group of words.
pub(super) trait Distribution<const N: usize> {
    type Output;
    fn make(&self, words: &Words, out: &mut [Self::Output; N]);
}

/// The two 64-bit words of each lane's block.
#[inline(always)]
fn words64(words: &Words) -> [[u64; LANES]; 2] {
    std::array::from_fn(|half| std::array::from_fn(|l| words[2 * half][l] | words[2 * half + 1][l] << 32))
}

/// Distributions whose elements each take one word.
macro_rules! per_word {
    ($($name:ident -> $type:ty: |$self:ident, $word:ident| $value:expr;)*) => { $(
        impl Distribution<{ 4 * LANES }> for $name {
            type Output = $type;
            #[inline(always)]
            fn make(&$self, words: &Words, out: &mut [$type; 4 * LANES]) {
                for (out, words) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(words) {
                    for l in 0..LANES {
                        let $word = words[l] as u32;
                        out[l] = $value;
                    }
                }
            }
        }
    )* };
}

/// Distributions whose elements each take two words.
macro_rules! per_two_words {
    ($($name:ident -> $type:ty: |$self:ident, $word:ident| $value:expr;)*) => { $(
        impl Distribution<{ 2 * LANES }> for $name {
            type Output = $type;
            #[inline(always)]
            fn make(&$self, words: &Words, out: &mut [$type; 2 * LANES]) {
                for (out, words) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(words64(words)) {
                    for l in 0..LANES {
                        let $word = words[l];
                        out[l] = $value;
                    }
                }
            }
        }
    )* };
}

/// The words themselves, in pairs.
pub(super) struct Bits64;
/// `[0, 1)` in steps of 2^-24.
pub(super) struct Uniform32;
/// `[0, 1)` in steps of 2^-53.
pub(super) struct Uniform64;
/// Exponential numbers.
pub(super) struct Exponential32 {
    pub rate: f32,
}
/// Exponential numbers.
pub(super) struct Exponential64 {
    pub rate: f64,
}
/// 1 with probability `threshold / 2^64`, else 0.
pub(super) struct Bernoulli {
    pub threshold: u64,
}
/// Integers `low .. low + range`, `range <= 2^32`.
pub(super) struct Integer {
    pub low: i64,
    pub range: u64,
}

per_word! {
    Uniform32 -> f32: |self, word| (word >> 8) as f32 * (1.0 / (1u32 << 24) as f32);
    Exponential32 -> f32: |self, word| minus_log_f32(word) / self.rate;
}

per_two_words! {
    Bits64 -> u64: |self, word| word;
    Uniform64 -> f64: |self, word| (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
    Exponential64 -> f64: |self, word| minus_log_f64(word) / self.rate;
    Bernoulli -> u8: |self, word| u8::from(word < self.threshold);
    Integer -> i64: |self, word| self.low.wrapping_add(scale_short(word, self.range) as i64);
}

/// `word * range / 2^64`, rounded down: uniform below `range` but for one part in `2^64 / range`.
#[inline(always)]
pub(super) fn scale(word: u64, range: u64) -> u64 {
    ((u128::from(word) * u128::from(range)) >> 64) as u64
}

/// [`scale`] for `range <= 2^32`, in 64-bit steps: `word = high 2^32 + low`, and no sum below overflows.
#[inline(always)]
fn scale_short(word: u64, range: u64) -> u64 {
    let (high, low) = (word >> 32, word & 0xffff_ffff);
    (high * range + ((low * range) >> 32)) >> 32
}

/// Integers `low .. low + range` of any range: all 128 bits of a block are scaled.
pub(super) struct WideInteger {
    pub low: i64,
    pub range: u64,
}

impl Distribution<LANES> for WideInteger {
    type Output = i64;
    #[inline(always)]
    fn make(&self, words: &Words, out: &mut [i64; LANES]) {
        let [low, high] = words64(words);
        for l in 0..LANES {
            let (rest, range) = (u128::from(scale(low[l], self.range)), u128::from(self.range));
            out[l] = self.low.wrapping_add(((u128::from(high[l]) * range + rest) >> 64) as i64);
        }
    }
}

/// Standard normal numbers: the first and second words of the blocks make the radius and angle of 8 points, the third and
/// fourth of 8 more.
pub(super) struct Normal32;

impl Distribution<{ 4 * LANES }> for Normal32 {
    type Output = f32;
    #[inline(always)]
    fn make(&self, words: &Words, out: &mut [f32; 4 * LANES]) {
        for (out, pair) in out.as_chunks_mut::<{ 2 * LANES }>().0.iter_mut().zip(words.as_chunks::<2>().0) {
            for l in 0..LANES {
                let radius = (2.0 * minus_log_f32(pair[0][l] as u32)).sqrt();
                let (sin, cos) = sin_cos_f32(pair[1][l] as u32);
                out[l] = radius * cos;
                out[LANES + l] = radius * sin;
            }
        }
    }
}

/// Standard normal numbers: each block makes the radius and angle of one point.
pub(super) struct Normal64;

impl Distribution<{ 2 * LANES }> for Normal64 {
    type Output = f64;
    #[inline(always)]
    fn make(&self, words: &Words, out: &mut [f64; 2 * LANES]) {
        let [radii, angles] = words64(words);
        for l in 0..LANES {
            let radius = (2.0 * minus_log_f64(radii[l])).sqrt();
            let (sin, cos) = sin_cos_f64(angles[l]);
            out[l] = radius * cos;
            out[LANES + l] = radius * sin;
        }
    }
}

/// `coefficients[0] + x * (coefficients[1] + x * ...)`.
macro_rules! polynomial {
    ($x:expr, $c:expr) => { $c };
    ($x:expr, $c:expr, $($rest:expr),+) => { $c + $x * polynomial!($x, $($rest),+) };
}

/// `-ln u` for `u = (word + 1/2) / 2^32`: positive and finite, and accurate at both ends, because where `u` is near 1 the
/// logarithm is taken of `1 - u`, which is known without cancellation.
///
/// `u = 2^e m` with `m` between the square roots of 1/2 and 2; `ln m = 2 artanh((m - 1) / (m + 1))` by Taylor's series.
#[inline(always)]
pub(super) fn minus_log_f32(word: u32) -> f32 {
    const UNIT: f32 = 1.0 / (1u64 << 32) as f32;
    let (u, rest) = ((word as f32 + 0.5) * UNIT, (!word as f32 + 0.5) * UNIT);
    let e = (u.to_bits() as i32 - std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32) >> 23;
    let m = f32::from_bits((u.to_bits() as i32 - (e << 23)) as u32);
    let above_one = if e == 0 { -rest } else { m - 1.0 };
    let s = above_one / (2.0 + above_one);
    let series = s * polynomial!(s * s, 2.0, 2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0);
    -(e as f32 * std::f32::consts::LN_2 + series)
}

/// [`minus_log_f32`] in double precision, of 64 bits.
#[inline(always)]
pub(super) fn minus_log_f64(word: u64) -> f64 {
    const UNIT: f64 = 1.0 / (1u128 << 64) as f64;
    let (u, rest) = ((word as f64 + 0.5) * UNIT, (!word as f64 + 0.5) * UNIT);
    // The exponent is all in the upper half of the bits, where the order of magnitudes is that of the integers.
    let high = (u.to_bits() >> 32) as i32;
    let e = (high - (std::f64::consts::FRAC_1_SQRT_2.to_bits() >> 32) as i32) >> 20;
    let m = f64::from_bits(u.to_bits().wrapping_sub((e as i64 as u64) << 52));
    let above_one = if e == 0 { -rest } else { m - 1.0 };
    let s = above_one / (2.0 + above_one);
    let series = s * polynomial!(
        s * s,
        2.0,
        2.0 / 3.0,
        2.0 / 5.0,
        2.0 / 7.0,
        2.0 / 9.0,
        2.0 / 11.0,
        2.0 / 13.0,
        2.0 / 15.0,
        2.0 / 17.0,
        2.0 / 19.0,
        2.0 / 21.0
    );
    -(f64::from(e) * std::f64::consts::LN_2 + series)
}

/// The sine and cosine of `quadrant` quarter turns plus the angle that has this sine and cosine.
macro_rules! turn {
    ($quadrant:expr, $sin:expr, $cos:expr) => {{
        let (sin, cos) = if $quadrant & 1 == 0 { ($sin, $cos) } else { ($cos, $sin) };
        let sin = if $quadrant & 2 == 0 { sin } else { -sin };
        (sin, if ($quadrant + 1) & 2 == 0 { cos } else { -cos })
    }};
}

/// Sine and cosine of `word / 2^32` turns: the nearest quarter turn apart, Taylor's series of an angle of at most pi / 4.
#[inline(always)]
pub(super) fn sin_cos_f32(word: u32) -> (f32, f32) {
    let quadrant = word.wrapping_add(1 << 29) >> 30;
    let x = word.wrapping_sub(quadrant << 30) as i32 as f32 * (std::f32::consts::FRAC_PI_2 / (1 << 30) as f32);
    let z = x * x;
    let sin = x * polynomial!(z, 1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362_880.0);
    let cos = polynomial!(z, 1.0, -0.5, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0, -1.0 / 3_628_800.0);
    turn!(quadrant, sin, cos)
}

/// [`sin_cos_f32`] in double precision, of `word / 2^64` turns; the last 10 bits of the word are not looked at.
#[inline(always)]
pub(super) fn sin_cos_f64(word: u64) -> (f64, f64) {
    let shifted = word.wrapping_add(1 << 61);
    let quadrant = shifted >> 62;
    // 52 bits of the rest behind the exponent of 1 are a float between 1 and 2, in quarter turns.
    let quarters = f64::from_bits((shifted << 2 >> 12) | 1f64.to_bits()) - 1.5;
    let x = quarters * std::f64::consts::FRAC_PI_2;
    let z = x * x;
    let sin = x * polynomial!(
        z,
        1.0,
        -1.0 / 6.0,
        1.0 / 120.0,
        -1.0 / 5040.0,
        1.0 / 362_880.0,
        -1.0 / 39_916_800.0,
        1.0 / 6_227_020_800.0,
        -1.0 / 1_307_674_368_000.0,
        1.0 / 355_687_428_096_000.0
    );
    let cos = polynomial!(
        z,
        1.0,
        -0.5,
        1.0 / 24.0,
        -1.0 / 720.0,
        1.0 / 40_320.0,
        -1.0 / 3_628_800.0,
        1.0 / 479_001_600.0,
        -1.0 / 87_178_291_200.0,
        1.0 / 20_922_789_888_000.0
    );
    turn!(quadrant, sin, cos)
}
