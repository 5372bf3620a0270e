//! Softmax and its logarithm along a dimension, and their gradients: each slice is read once, worked on in cache, and
//! written once.

use super::reduce::sum;
use super::slices::{Float, Slices, row_kernel, with_float};
use crate::backend::Operand;

/// Values handled at a time.
const CHUNK: usize = 256;

/// `softmax` (or its logarithm) of `x` along `dim` into `y`; both contiguous and of one float dtype, guarded by the caller.
pub(crate) fn forward(x: &Operand<'_>, y: &Operand<'_>, dim: usize, log: bool) {
    with_float!(x.dtype, T => Slices::along(dim, [x], [y]).each(|p| {
        // SAFETY: T is the compute type of both.
        let (x, y) = unsafe { (p.input::<T>(0), p.output::<T>(0)) };
        if log { log_softmax::<T>(x, y) } else { softmax::<T>(x, y) }
    }));
}

/// The gradient of [`forward`] from the result `y` and its gradient `g` into `out`.
pub(crate) fn backward(g: &Operand<'_>, y: &Operand<'_>, out: &Operand<'_>, dim: usize, log: bool) {
    with_float!(g.dtype, T => Slices::along(dim, [g, y], [out]).each(|p| {
        // SAFETY: T is the compute type of all.
        let (g, y, out) = unsafe { (p.input::<T>(0), p.input::<T>(1), p.output::<T>(0)) };
        if log { log_softmax_backward::<T>(g, y, out) } else { softmax_backward::<T>(g, y, out) }
    }));
}

/// The largest value; NaN may or may not win.
#[inline(always)]
fn largest<T: Float>(x: &[T]) -> T {
    const LANES: usize = 16;
    let low = T::of_f64(f64::NEG_INFINITY);
    let mut lanes = [low; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        lanes.iter_mut().zip(chunk).for_each(|(m, &v)| *m = if v > *m { v } else { *m });
    }
    lanes.iter().chain(chunks.remainder()).fold(low, |m, &v| if v > m { v } else { m })
}

/// Writes `exp(x - shift)` to `y`.
#[inline(always)]
fn exp_shifted<T: Float, const FMA: bool>(x: &[T], shift: T, y: &mut [T]) {
    let mut shifted = [T::ZERO; CHUNK];
    for (x, y) in x.chunks(CHUNK).zip(y.chunks_mut(CHUNK)) {
        let shifted = &mut shifted[..x.len()];
        shifted.iter_mut().zip(x).for_each(|(s, &x)| *s = x - shift);
        T::exp::<FMA>(shifted, y);
    }
}

row_kernel! {
    fn softmax<T: Float, FMA>(x: &[T], y: &mut [T]) {
        exp_shifted::<T, FMA>(x, largest(x), y);
        let total = sum(y);
        y.iter_mut().for_each(|y| *y = *y / total);
    }
}

row_kernel! {
    fn log_softmax<T: Float, FMA>(x: &[T], y: &mut [T]) {
        let shift = largest(x);
        exp_shifted::<T, FMA>(x, shift, y);
        let mut log = [T::ZERO];
        T::log::<FMA>(&[sum(y)], &mut log);
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = x - shift - log[0]);
    }
}

row_kernel! {
    fn softmax_backward<T: Float, FMA>(g: &[T], y: &[T], out: &mut [T]) {
        out.iter_mut().zip(g.iter().zip(y)).for_each(|(o, (&g, &y))| *o = g * y);
        let total = sum(out);
        out.iter_mut().zip(g.iter().zip(y)).for_each(|(o, (&g, &y))| *o = y * (g - total));
    }
}

row_kernel! {
    fn log_softmax_backward<T: Float, FMA>(g: &[T], y: &[T], out: &mut [T]) {
        let total = sum(g);
        T::exp::<FMA>(y, out);
        out.iter_mut().zip(g).for_each(|(o, &g)| *o = g - *o * total);
    }
}
