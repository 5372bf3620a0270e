//! Looking things up: places in sorted sequences, membership, rows of tables. Kernels take their guards themselves.

use super::element::{Element, with_element};
use super::elementwise::element_ptr;
use super::shared::{Lowest, Shared};
use super::sort::{Ordered, sorted_keys};
use crate::backend::Operand;
use crate::storage::Guards;
use crate::threads;

/// For each of `values`, where it would go in its sorted sequence: before equals, or behind them if `right`. All operands
/// are row-major; `sequences` holds one sequence for all, or one for each row of `values`; `sorter` (int64), if given, says
/// in which order a sequence is sorted. `to` is int64. NaN goes last.
///
/// # Errors
/// The first entry of `sorter` that is out of range.
pub(crate) fn searchsorted(
    to: &Operand<'_>,
    values: &Operand<'_>,
    sequences: &Operand<'_>,
    sorter: Option<&Operand<'_>>,
    right: bool,
) -> Result<(), i64> {
    let _guards =
        Guards::take([values.storage, sequences.storage].into_iter().chain(sorter.map(|s| s.storage)), [to.storage]);
    let length = sequences.layout.sizes.last().copied().unwrap_or(0);
    let shared = sequences.layout.rank() == 1;
    let row = if shared { usize::MAX } else { values.layout.sizes.last().copied().unwrap_or(1).max(1) };
    let n = values.layout.numel();
    let out = Shared(element_ptr(to).cast::<i64>());
    let bad = Lowest::new();
    with_element!(values.dtype, E => {
        let (val, seq) = (Shared(element_ptr(values).cast::<E>()), Shared(element_ptr(sequences).cast::<E>()));
        let order = sorter.map(|s| Shared(element_ptr(s).cast::<i64>()));
        threads::ranges(n, 64, STEP * (length + 2).ilog2() as f64, |range| {
            let (out, val, seq, order) = (out.get(), val.get(), seq.get(), order.map(Shared::get));
            let find = |i: usize| -> Result<usize, i64> {
                let start = i / row * length;
                // SAFETY: inside the row-major operands, guarded; an entry of the sorter is checked before it is used.
                unsafe {
                    let x = val.add(i).read().load();
                    let at = |j: usize| -> Result<_, i64> {
                        let j = match order {
                            None => j,
                            Some(order) => {
                                let k = order.add(start + j).read();
                                if k < 0 || k >= length as i64 { return Err(k) }
                                k as usize
                            }
                        };
                        Ok(seq.add(start + j).read().load())
                    };
                    let (mut low, mut high) = (0, length);
                    while low < high {
                        let middle = low + (high - low) / 2;
                        let m = at(middle)?;
                        // Written so that NaN, on either side, moves on.
                        #[allow(clippy::neg_cmp_op_on_partial_ord, reason = "NaN compares false")]
                        #[allow(clippy::nonminimal_bool, reason = "NaN: not larger is something else than smaller or equal")]
                        let before = if right { !(m > x) } else { !(m >= x) };
                        if before { low = middle + 1 } else { high = middle }
                    }
                    Ok(low)
                }
            };
            for i in range {
                match find(i) {
                    // SAFETY: inside the result; ranges are apart.
                    Ok(place) => unsafe { out.add(i).write(place as i64) },
                    Err(entry) => return bad.put(i, entry),
                }
            }
        });
    });
    bad.result()
}

/// About how many nanoseconds a step of a search takes.
const STEP: f64 = 3.0;

/// Whether all entries are at least 0 and below `n`.
pub(crate) fn all_below(of: &Operand<'_>, n: usize) -> bool {
    let _guards = Guards::take([of.storage], []);
    let src = element_ptr(of).cast::<i64>();
    // SAFETY: a row-major int64 operand, guarded.
    (0..of.layout.numel()).all(|i| (unsafe { src.add(i).read() } as u64) < n as u64)
}

/// For each of `elements` whether it is among `tests`, or whether it is not if `invert`. Row-major operands of one dtype;
/// `to` is bool. NaN is among nothing.
pub(crate) fn isin(to: &Operand<'_>, elements: &Operand<'_>, tests: &Operand<'_>, invert: bool) {
    let _guards = Guards::take([elements.storage, tests.storage], [to.storage]);
    let keys = sorted_keys(tests);
    let out = Shared(element_ptr(to));
    with_element!(elements.dtype, E => {
        let src = Shared(element_ptr(elements).cast::<E>());
        threads::ranges(elements.layout.numel(), 64, STEP * (keys.len() + 2).ilog2() as f64, |range| {
            let (src, out) = (src.get(), out.get());
            for i in range {
                // SAFETY: inside both row-major operands, guarded; ranges are apart.
                unsafe {
                    let found = keys.binary_search(&src.add(i).read().key()).is_ok();
                    out.add(i).write((found != invert) as u8);
                }
            }
        });
    });
}

/// Scales the rows of a matrix that `rows` names so that their `p`-norm is at most `limit`, each once.
///
/// # Errors
/// The first row out of range, before anything is written.
pub(crate) fn renorm_rows(matrix: &Operand<'_>, rows: &Operand<'_>, limit: f64, p: f64) -> Result<(), i64> {
    let _guards = Guards::take([rows.storage], [matrix.storage]);
    let (height, width) = (matrix.layout.sizes[0], matrix.layout.sizes[1]);
    let (down, across) = (matrix.layout.strides[0], matrix.layout.strides[1]);
    let idx = element_ptr(rows).cast::<i64>();
    // SAFETY: a row-major int64 operand, guarded.
    let mut wanted: Vec<i64> = (0..rows.layout.numel()).map(|i| unsafe { idx.add(i).read() }).collect();
    if let Some(&bad) = wanted.iter().find(|&&r| r < 0 || r >= height as i64) {
        return Err(bad);
    }
    wanted.sort_unstable();
    wanted.dedup();
    with_element!(matrix.dtype, E => {
        let start = Shared(element_ptr(matrix).cast::<E>());
        threads::ranges(wanted.len(), 1, 2.0 * width as f64, |range| {
            for &r in &wanted[range] {
                // SAFETY: a checked row, columns inside the layout; guarded, and each row is wanted once.
                let place = |j: usize| unsafe { start.get().offset(r as isize * down + j as isize * across) };
                // SAFETY: as above.
                let norm = norm((0..width).map(|j| RealValue::real(unsafe { place(j).read() }.load())), p);
                if norm > limit {
                    let scale = limit / (norm + 1e-7);
                    for j in 0..width {
                        // SAFETY: as above.
                        unsafe { place(j).write(E::store(RealValue::scaled(place(j).read().load(), scale))) };
                    }
                }
            }
        });
    });
    Ok(())
}

fn norm(values: impl Iterator<Item = f64>, p: f64) -> f64 {
    if p == f64::INFINITY {
        values.fold(0.0, |m, v| if v.abs() > m || v.is_nan() { v.abs() } else { m })
    } else if p == 2.0 {
        values.map(|v| v * v).sum::<f64>().sqrt()
    } else if p == 0.0 {
        values.filter(|v| *v != 0.0).count() as f64
    } else {
        values.map(|v| v.abs().powf(p)).sum::<f64>().powf(1.0 / p)
    }
}

/// Compute types as reals.
trait RealValue: Copy {
    fn real(self) -> f64;
    fn scaled(self, by: f64) -> Self;
}
macro_rules! real_value {
    ($($t:ty)*) => { $(impl RealValue for $t {
        fn real(self) -> f64 { self as f64 }
        fn scaled(self, by: f64) -> $t { (self as f64 * by) as $t }
    })* };
}
real_value!(f32 f64 i64 u8);
