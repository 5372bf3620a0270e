//! Where extremes are: the largest or smallest value of each slice along a dimension and its index. The first of equal
//! values counts, and the first NaN before all.

use super::slices::{Slices, with_compute};
use crate::backend::Operand;

/// The extreme of `x` along `dim` and its index. `values` (in the dtype of `x`) and `places` (int64) have size 1 there; the
/// slices of `x` are not empty. All contiguous, guarded by the caller.
pub(crate) fn extreme(x: &Operand<'_>, values: &Operand<'_>, places: &Operand<'_>, dim: usize, largest: bool) {
    with_compute!(x.dtype, T => Slices::along(dim, [x], [values, places]).each(|p| {
        // SAFETY: T is the compute type of input and values, i64 that of places.
        let (x, values, places) = unsafe { (p.input::<T>(0), p.output::<T>(0), p.output::<i64>(1)) };
        let at = if largest { place(x, |a, b| a > b) } else { place(x, |a, b| a < b) };
        (values[0], places[0]) = (x[at], at as i64);
    }));
}

/// Index of the first NaN, else of the first value that no other beats. Two passes that vectorise beat one that cannot.
#[inline(always)]
#[allow(clippy::eq_op, reason = "NaN is what differs from itself")]
fn place<T: Copy + PartialEq>(x: &[T], beats: impl Fn(T, T) -> bool) -> usize {
    const LANES: usize = 16;
    let Some(&first) = x.first() else { return 0 };
    let (mut best, mut nan) = ([first; LANES], [false; LANES]);
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for j in 0..LANES {
            best[j] = if beats(chunk[j], best[j]) { chunk[j] } else { best[j] };
            nan[j] |= chunk[j] != chunk[j];
        }
    }
    let rest = chunks.remainder();
    let winner = best.iter().chain(rest).fold(first, |b, &v| if beats(v, b) { v } else { b });
    let position = if nan.iter().any(|n| *n) || rest.iter().any(|v| v != v) {
        x.iter().position(|v| v != v)
    } else {
        x.iter().position(|v| *v == winner)
    };
    position.unwrap_or(0)
}
