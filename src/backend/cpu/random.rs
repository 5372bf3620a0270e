//! Random numbers from a counter: value `i` of a fill is a function of the seed, the offset and `i` alone, so a fill may be cut
//! into pieces, on any threads, and gives the same bits; and as only IEEE operations without contraction are used, on any
//! processor. Here live the generator, its state and the fills of slices; what a tensor is, or a default generator, is not
//! known here.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), Philox 4x32-10.

mod distribution;
#[cfg(test)]
mod tests;

use crate::threads;
use distribution::{Bernoulli, Bits64, Distribution, Exponential32, Exponential64, Integer, Normal32, Normal64};
use distribution::{Uniform32, Uniform64, WideInteger};

/// Blocks that are computed side by side; the fixed width of a group, not of this processor's registers.
const LANES: usize = 8;
/// Elements that one group may hold at most: four words of 32 bits for each lane.
const GROUP: u64 = 4 * LANES as u64;

/// A group of blocks: `words[w][lane]` is word `w` of one block, in the low half of 64 bits.
type Words = [[u64; LANES]; 4];

/// Where in the counter's upper half a kind of number takes its blocks from: no two kinds share one, although all count
/// elements by the same offset.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Stream {
    Uniform32,
    Uniform64,
    Normal32,
    Normal64,
    Exponential32,
    Exponential64,
    Integer,
    WideInteger,
    Bernoulli,
    Permutation,
}

/// The generator Philox 4x32-10: a keyed bijection of 128-bit counters. Distinct counters give independent blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Philox {
    key: u64,
}

impl Philox {
    /// The generator of that seed.
    #[inline]
    pub const fn new(seed: u64) -> Philox {
        Philox { key: seed }
    }

    /// The block of four words at a counter whose lower 64 bits are `counter` and whose upper are `stream`.
    #[inline]
    pub fn block(&self, counter: u64, stream: u64) -> [u32; 4] {
        rounds::<1>(self.key, [counter], stream).map(|[word]| word as u32)
    }

    /// The blocks at `LANES * group ..`.
    #[inline(always)]
    fn group(&self, group: u64, stream: u64) -> Words {
        let first = group.wrapping_mul(LANES as u64);
        rounds(self.key, std::array::from_fn(|lane| first.wrapping_add(lane as u64)), stream)
    }

    /// Fills with floats in `[0, 1)`, multiples of 2^-24.
    pub fn uniform_f32(&self, out: &mut [f32], start_index: u64) {
        self.fill(out, start_index, Stream::Uniform32, &Uniform32);
    }

    /// Fills with floats in `[0, 1)`, multiples of 2^-53.
    pub fn uniform_f64(&self, out: &mut [f64], start_index: u64) {
        self.fill(out, start_index, Stream::Uniform64, &Uniform64);
    }

    /// Fills with standard normal numbers (Box and Muller 1958). Finite; their magnitude is at most 6.8.
    pub fn normal_f32(&self, out: &mut [f32], start_index: u64) {
        self.fill(out, start_index, Stream::Normal32, &Normal32);
    }

    /// Fills with standard normal numbers (Box and Muller 1958). Finite; their magnitude is at most 9.5.
    pub fn normal_f64(&self, out: &mut [f64], start_index: u64) {
        self.fill(out, start_index, Stream::Normal64, &Normal64);
    }

    /// Fills with exponentially distributed numbers of rate `lambda`. For a positive rate they are positive unless they
    /// underflow.
    pub fn exponential_f32(&self, out: &mut [f32], start_index: u64, lambda: f64) {
        self.fill(out, start_index, Stream::Exponential32, &Exponential32 { rate: lambda as f32 });
    }

    /// [`Philox::exponential_f32`] in double precision.
    pub fn exponential_f64(&self, out: &mut [f64], start_index: u64, lambda: f64) {
        self.fill(out, start_index, Stream::Exponential64, &Exponential64 { rate: lambda });
    }

    /// Fills with integers from `low` up to, not including, `high`; if `high <= low`, with `low`. No value's probability is
    /// off by more than one part in 2^32.
    pub fn randint(&self, out: &mut [i64], start_index: u64, low: i64, high: i64) {
        // The difference of two i64 fits u64.
        let range = if high > low { high.wrapping_sub(low) as u64 } else { 1 };
        if range <= 1 << 32 {
            self.fill(out, start_index, Stream::Integer, &Integer { low, range });
        } else {
            self.fill(out, start_index, Stream::WideInteger, &WideInteger { low, range });
        }
    }

    /// Fills with 1 where an event of probability `p` happens, else 0: never if `p` is 0 (or less, or NaN), always if it is 1
    /// (or more). The probability is exact to 2^-64.
    pub fn bernoulli(&self, out: &mut [u8], start_index: u64, p: f64) {
        // The probability in units of 2^-64; the cast saturates, and NaN becomes 0.
        let threshold = (p * 2f64.powi(64)) as u128;
        match u64::try_from(threshold) {
            Ok(threshold) => self.fill(out, start_index, Stream::Bernoulli, &Bernoulli { threshold }),
            Err(_) => out.fill(1),
        }
    }

    /// Fills with a random order of `0 .. out.len()`: algorithm P of Knuth, The Art of Computer Programming 3.4.2. It counts as
    /// `out.len()` elements from `start_index`, but cannot be filled in pieces.
    pub fn randperm(&self, out: &mut [i64], start_index: u64) {
        for (i, value) in out.iter_mut().enumerate() {
            *value = i as i64;
        }
        let mut words = [0u64; 128];
        let mut done = 0;
        while done < out.len() {
            if done.is_multiple_of(1 << 14) {
                threads::stop_if_wanted();
            }
            let part = (out.len() - done).min(words.len());
            let words = &mut words[..part];
            self.fill(words, start_index.wrapping_add(done as u64), Stream::Permutation, &Bits64);
            for (i, &word) in (done..).zip(words.iter()) {
                // Position `last` trades places with any that is not beyond it.
                let last = out.len() - 1 - i;
                out.swap(last, distribution::scale(word, last as u64 + 1) as usize);
            }
            done += part;
        }
    }

    /// Fills `out` with the elements `start_index ..` of a distribution.
    fn fill<T: Copy + Default, D: Distribution<N, Output = T>, const N: usize>(
        &self,
        out: &mut [T],
        start_index: u64,
        stream: Stream,
        distribution: &D,
    ) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { self.fill_avx2(out, start_index, stream, distribution) };
        }
        self.fill_body(out, start_index, stream, distribution);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn fill_avx2<T: Copy + Default, D: Distribution<N, Output = T>, const N: usize>(
        &self,
        out: &mut [T],
        start_index: u64,
        stream: Stream,
        distribution: &D,
    ) {
        self.fill_body(out, start_index, stream, distribution);
    }

    #[inline(always)]
    fn fill_body<T: Copy + Default, D: Distribution<N, Output = T>, const N: usize>(
        &self,
        out: &mut [T],
        start_index: u64,
        stream: Stream,
        distribution: &D,
    ) {
        let (mut group, skipped) = (start_index / N as u64, (start_index % N as u64) as usize);
        let edge = |part: &mut [T], group: u64, skipped: usize| {
            let mut whole = [T::default(); N];
            distribution.make(&self.group(group, stream as u64), &mut whole);
            part.copy_from_slice(&whole[skipped..skipped + part.len()]);
        };
        let mut rest = out;
        if skipped != 0 {
            let (part, others) = rest.split_at_mut((N - skipped).min(rest.len()));
            edge(part, group, skipped);
            rest = others;
            group = group.wrapping_add(1);
        }
        let (wholes, part) = rest.as_chunks_mut::<N>();
        for whole in wholes {
            distribution.make(&self.group(group, stream as u64), whole);
            group = group.wrapping_add(1);
        }
        if !part.is_empty() {
            edge(part, group, 0);
        }
    }
}

/// Philox 4x32-10 on `L` counters at once. The words stay in 64-bit lanes: their upper halves hold rests of products, which
/// the next multiplication does not look at, so nothing is shuffled or masked until the end.
#[inline(always)]
fn rounds<const L: usize>(key: u64, counters: [u64; L], stream: u64) -> [[u64; L]; 4] {
    const LOW: u64 = 0xffff_ffff;
    const MULTIPLIER: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let [mut a, mut b] = [counters, counters.map(|counter| counter >> 32)];
    let [mut c, mut d] = [[stream; L], [stream >> 32; L]];
    let mut keys = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        for lane in 0..L {
            let first = (a[lane] & LOW) * MULTIPLIER[0];
            let second = (c[lane] & LOW) * MULTIPLIER[1];
            a[lane] = (second >> 32) ^ b[lane] ^ u64::from(keys[0]);
            b[lane] = second;
            c[lane] = (first >> 32) ^ d[lane] ^ u64::from(keys[1]);
            d[lane] = first;
        }
        keys = [keys[0].wrapping_add(WEYL[0]), keys[1].wrapping_add(WEYL[1])];
    }
    [a, b, c, d].map(|word| word.map(|word| word & LOW))
}

/// What a random generator remembers: 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GeneratorState {
    /// The key of the [`Philox`] generator.
    pub seed: u64,
    /// The index of the first element that has not been handed out.
    pub offset: u64,
}

impl GeneratorState {
    /// The state of a generator just seeded.
    #[inline]
    pub const fn new(seed: u64) -> GeneratorState {
        GeneratorState { seed, offset: 0 }
    }

    /// The generator that belongs to the state.
    #[inline]
    pub const fn philox(&self) -> Philox {
        Philox::new(self.seed)
    }

    /// Hands out `n` elements: returns the index of the first. Whole groups are handed out, so that every fill begins with
    /// the first element of one.
    #[inline]
    pub fn reserve(&mut self, n: u64) -> u64 {
        let first = self.offset;
        self.offset = first.wrapping_add(n.div_ceil(GROUP).wrapping_mul(GROUP));
        first
    }

    /// The state as bytes: seed, then offset, little-endian.
    pub fn to_bytes(&self) -> [u8; 16] {
        ((u128::from(self.offset) << 64) | u128::from(self.seed)).to_le_bytes()
    }

    /// The state that [`GeneratorState::to_bytes`] wrote.
    pub fn from_bytes(bytes: [u8; 16]) -> GeneratorState {
        let both = u128::from_le_bytes(bytes);
        GeneratorState { seed: both as u64, offset: (both >> 64) as u64 }
    }
}
