//! Order statistics of slices along a dimension: medians and modes, with the index where the value stands. NaN sorts last.

use super::slices::{Slices, with_compute};
use crate::backend::Operand;
use std::cmp::Ordering;

/// Which value of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rank {
    /// The lower median; NaN if there is one.
    Median,
    /// The lower median of what is not NaN.
    NanMedian,
    /// The most frequent value, the smallest of several.
    Mode,
}

/// The value of that rank in each slice of `x` along `dim`, and its index. `values` (in the dtype of `x`) and `places`
/// (int64) have size 1 there; the slices of `x` are not empty. All contiguous, guarded by the caller.
pub(crate) fn select(x: &Operand<'_>, values: &Operand<'_>, places: &Operand<'_>, dim: usize, rank: Rank) {
    with_compute!(x.dtype, T => {
        Slices::along(dim, [x], [values, places]).each_with(Vec::new, |order, p| {
            // SAFETY: T is the compute type of input and values, i64 that of places.
            let (x, values, places) = unsafe { (p.input::<T>(0), p.output::<T>(0), p.output::<i64>(1)) };
            order.clear();
            order.extend(x.iter().zip(0..).map(|(&v, k)| (v, k)));
            (values[0], places[0]) = find(order, rank);
        });
    });
}

#[allow(clippy::eq_op, reason = "NaN is what differs from itself")]
fn is_nan<T: PartialEq>(v: &T) -> bool {
    v != v
}

/// Ascending by value, NaN last, then by index: a total order.
fn compare<T: PartialOrd>(a: &(T, i64), b: &(T, i64)) -> Ordering {
    let values = a.0.partial_cmp(&b.0).unwrap_or_else(|| is_nan(&a.0).cmp(&is_nan(&b.0)));
    values.then(a.1.cmp(&b.1))
}

fn find<T: PartialOrd + Copy>(order: &mut [(T, i64)], rank: Rank) -> (T, i64) {
    let n = order.len();
    match rank {
        Rank::Median if order.iter().any(|(v, _)| is_nan(v)) => {
            order.iter().copied().find(|(v, _)| is_nan(v)).unwrap_or(order[0])
        }
        Rank::Median => nth(order, (n - 1) / 2),
        Rank::NanMedian => {
            let numbers = order.iter().filter(|(v, _)| !is_nan(v)).count();
            nth(order, numbers.saturating_sub(1) / 2)
        }
        Rank::Mode => mode(order),
    }
}

fn nth<T: PartialOrd + Copy>(order: &mut [(T, i64)], k: usize) -> (T, i64) {
    *order.select_nth_unstable_by(k, compare).1
}

/// The most frequent value with its last index.
fn mode<T: PartialOrd + Copy>(order: &mut [(T, i64)]) -> (T, i64) {
    order.sort_unstable_by(compare);
    let mut best = (0, order[0]);
    for run in order.chunk_by(|a, b| a.0 == b.0) {
        if run.len() > best.0 {
            best = (run.len(), run[run.len() - 1]);
        }
    }
    best.1
}
