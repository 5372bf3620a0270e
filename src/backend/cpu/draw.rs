//! Random numbers into the memory of tensors: what `random` makes in slices is scaled, converted and stored here. Element
//! `i` depends on the generator, the first index and `i` alone, so that several threads may draw.

use super::element::{self, Element, with_element};
use super::elementwise::element_ptr;
use super::memory::FromScalar;
use super::random::Philox;
use crate::backend::Operand;
use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::storage::Guards;
use crate::threads;
use std::ops::Range;

/// A distribution with its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draw {
    /// Evenly in `[low, high)`.
    Uniform { low: f64, high: f64 },
    /// Normal.
    Normal { mean: f64, std: f64 },
    /// The exponential function of normal numbers.
    LogNormal { mean: f64, std: f64 },
    /// Exponential.
    Exponential { rate: f64 },
    /// Cauchy.
    Cauchy { median: f64, sigma: f64 },
    /// The number of trials up to the first success, each of probability `p`.
    Geometric { p: f64 },
    /// 1 with probability `p`, else 0.
    Bernoulli { p: f64 },
    /// Integers in `[low, high)`.
    Integers { low: i64, high: i64 },
}

/// Elements that are made at a time: whole groups of the generator.
const BLOCK: usize = 1024;

/// Fills row-major memory with the elements `first ..` of a distribution.
pub(crate) fn draw(to: &Operand<'_>, philox: Philox, first: u64, what: Draw) {
    let _guards = Guards::take([], [to.storage]);
    match (what, to.dtype) {
        (Draw::Integers { low, high }, _) => {
            blocks(to, 0i64, |out, at| philox.randint(out, first + at, low, high), Scalar::Int)
        }
        (Draw::Bernoulli { p }, _) => {
            blocks(to, 0u8, |out, at| philox.bernoulli(out, first + at, p), |b| Scalar::Bool(b != 0))
        }
        (
            Draw::Uniform { .. } | Draw::Normal { .. } | Draw::Exponential { .. },
            DType::F32 | DType::F16 | DType::BF16,
        ) => singles(to, philox, first, what),
        _ => blocks(to, 0f64, |out, at| doubles(out, philox, first + at, what), Scalar::Float),
    }
}

/// About how many nanoseconds a number takes.
const NS: f64 = 1.5;

/// Makes values in blocks and stores them one by one.
fn blocks<T: Copy + Sync>(
    to: &Operand<'_>,
    zero: T,
    make: impl Fn(&mut [T], u64) + Sync,
    scalar: impl Fn(T) -> Scalar + Sync,
) {
    threads::ranges(to.layout.numel(), BLOCK, NS, |range| {
        let mut block = [zero; BLOCK];
        for at in range.clone().step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(range.end - at)];
            make(block, at as u64);
            with_element!(to.dtype, E => {
                let out = element_ptr(to).cast::<E>();
                for (i, &x) in block.iter().enumerate() {
                    let element = E::store(<<E as Element>::Compute as FromScalar>::from_scalar(scalar(x)));
                    // SAFETY: inside the layout, whose memory the caller guards; ranges are apart.
                    unsafe { out.add(at + i).write(element) };
                }
            });
        }
    });
}

/// Values of float32 and of the half types, which are made in float32.
fn singles(to: &Operand<'_>, philox: Philox, first: u64, what: Draw) {
    threads::ranges(to.layout.numel(), BLOCK, NS, |range| singles_of(to, philox, first, what, range));
}

/// The same for a range of the elements.
fn singles_of(to: &Operand<'_>, philox: Philox, first: u64, what: Draw, range: Range<usize>) {
    // Uniform numbers have no more bits than the dtype holds, so that none is rounded up to the end of the range.
    let steps = match to.dtype {
        DType::F16 => (1u32 << 11) as f32,
        DType::BF16 => (1u32 << 8) as f32,
        _ => (1u32 << 24) as f32,
    };
    let mut block = [0f32; BLOCK];
    for at in range.clone().step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(range.end - at)];
        let index = first + at as u64;
        match what {
            Draw::Uniform { low, high } => {
                philox.uniform_f32(block, index);
                let (low, high) = (low as f32, high as f32);
                let exact = to.dtype == DType::F32;
                for x in block.iter_mut() {
                    let u = if exact { *x } else { (*x * steps).floor() / steps };
                    let y = u * (high - low) + low;
                    *x = if y < high { y } else { low };
                }
            }
            Draw::Normal { mean, std } => {
                philox.normal_f32(block, index);
                let (mean, std) = (mean as f32, std as f32);
                block.iter_mut().for_each(|x| *x = *x * std + mean);
            }
            Draw::Exponential { rate } => philox.exponential_f32(block, index, rate),
            _ => unreachable!("only what draw sends here"),
        }
        let out = element_ptr(to).wrapping_add(at * to.dtype.size());
        // SAFETY: the block's place inside the layout, whose memory the caller guards; ranges are apart.
        unsafe { element::store(to.dtype, block.as_ptr().cast(), block.len(), out, 1) };
    }
}

/// Values in double precision.
fn doubles(out: &mut [f64], philox: Philox, index: u64, what: Draw) {
    match what {
        Draw::Uniform { low, high } => {
            philox.uniform_f64(out, index);
            out.iter_mut().for_each(|x| {
                let y = *x * (high - low) + low;
                *x = if y < high { y } else { low };
            });
        }
        Draw::Normal { mean, std } => {
            philox.normal_f64(out, index);
            out.iter_mut().for_each(|x| *x = *x * std + mean);
        }
        Draw::LogNormal { mean, std } => {
            philox.normal_f64(out, index);
            out.iter_mut().for_each(|x| *x = libm::exp(*x * std + mean));
        }
        Draw::Exponential { rate } => philox.exponential_f64(out, index, rate),
        Draw::Cauchy { median, sigma } => {
            philox.uniform_f64(out, index);
            // The middle of each step, which is never an end of the range, where the tangent is infinite.
            let half_step = 0.5 / (1u64 << 53) as f64;
            out.iter_mut().for_each(|x| *x = median + sigma * libm::tan(std::f64::consts::PI * (*x + half_step - 0.5)));
        }
        Draw::Geometric { p } => {
            philox.exponential_f64(out, index, -libm::log1p(-p));
            out.iter_mut().for_each(|x| *x = x.ceil().max(1.0));
        }
        Draw::Bernoulli { .. } | Draw::Integers { .. } => unreachable!("these are not made of floats"),
    }
}
