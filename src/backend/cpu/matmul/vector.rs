//! Products in which an operand is a vector: a matrix is read once, in the order of its memory where it has one, and every
//! path sums in the order that `drive::Order` names, whatever the strides.

use super::kernel;
use super::number::{DOT_LANES, DOT_RESULTS, Element, KC, Number, VECTOR_LANES};
use super::scratch::Scratch;
use super::{View, ViewMut, pack};

/// Columns of a row product whose lanes are kept at once. The lanes then spill to the second-level cache, which measures
/// faster than reading shorter pieces of more rows.
const ROW_COLUMNS: usize = 2048;
/// Rows of a pass of `kernel::row_update`.
const PASS: usize = 4;
/// Length of the runs that are copied before they are multiplied; a multiple of all lane counts.
const RUN: usize = 512;
/// Columns that share one pass over the vector.
const GROUP: usize = 4;
/// Multiply-adds between two questions whether to go on.
const CHECK: usize = 1 << 20;

/// A strided or narrow run as a contiguous run of accumulators: `src` itself where it is one, else copied to `copy`.
#[inline(always)]
unsafe fn run<E: Element, const FMA: bool>(
    view: &View<E>,
    i: usize,
    j: usize,
    len: usize,
    copy: *mut E::Acc,
) -> *const E::Acc {
    if E::SAME && view.col_stride == 1 {
        view.at(i, j).cast()
    } else {
        // SAFETY: the caller's promise: `view` covers the run, `copy` holds it.
        unsafe { pack::run::<E, FMA>(view.at(i, j), view.col_stride, copy, len) };
        copy
    }
}

/// `Order::Dot`: at most [`DOT_RESULTS`] results.
///
/// # Safety
/// As [`super::drive::product`].
pub(super) unsafe fn dots<E: Element, const FMA: bool>(
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
    cancel: &dyn Fn() -> bool,
) -> bool {
    let b = b.turned();
    if E::SAME && a.col_stride == 1 && b.col_stride == 1 && k <= CHECK {
        for i in 0..m {
            for j in 0..n {
                // SAFETY: `i < m` and `j < n`, and the runs are contiguous.
                unsafe {
                    let (x, column) = (a.at(i, 0).cast(), b.at(j, 0).cast());
                    let [sum] = kernel::folded_dots::<E::Acc, FMA, 1, DOT_LANES>(k, x, &[column]);
                    let c = c.at(i, j);
                    *c = E::narrow(if add { (*c).widen().add(sum) } else { sum });
                }
            }
        }
        return true;
    }
    let mut lanes = [[[E::Acc::ZERO; DOT_LANES]; 1]; DOT_RESULTS];
    let copied = |view: &View<E>, rows: usize| if E::SAME && view.col_stride == 1 { 0 } else { rows * RUN };
    let mut scratch = Scratch::<E::Acc>::take(copied(&a, m) + copied(&b, n));
    let (a_copy, b_copy) = (scratch.ptr(), scratch.ptr().wrapping_add(copied(&a, m)));
    // SAFETY: `i < m`, `j < n`, `start + len <= k`, and the copies hold `RUN` elements for each row.
    unsafe {
        for start in (0..k).step_by(RUN) {
            let len = (k - start).min(RUN);
            if start != 0 && start % (CHECK / 4) == 0 && cancel() {
                return false;
            }
            let mut columns = [std::ptr::null(); DOT_RESULTS];
            for (j, column) in columns.iter_mut().enumerate().take(n) {
                *column = run::<E, FMA>(&b, j, start, len, b_copy.wrapping_add(j * RUN));
            }
            for i in 0..m {
                let row = run::<E, FMA>(&a, i, start, len, a_copy.wrapping_add(i * RUN));
                for (j, &column) in columns.iter().enumerate().take(n) {
                    kernel::dots::<E::Acc, FMA, 1, DOT_LANES>(len, row, &[column], &mut lanes[i * n + j]);
                }
            }
        }
        for i in 0..m {
            for j in 0..n {
                let (c, sum) = (c.at(i, j), kernel::fold(lanes[i * n + j][0]));
                *c = E::narrow(if add { (*c).widen().add(sum) } else { sum });
            }
        }
    }
    true
}

/// A row times a matrix whose columns are contiguous, or whose strides have no order: `Order::Vector`.
///
/// # Safety
/// As [`super::drive::product`] with `m == 1`.
pub(super) unsafe fn columns<E: Element, const FMA: bool>(
    (k, n): (usize, usize),
    x: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
    cancel: &dyn Fn() -> bool,
) -> bool {
    const BLOCK: usize = KC * VECTOR_LANES;
    let b = b.turned();
    // The vector is copied as a whole if at all: every column needs it.
    let x_len = if E::SAME && x.col_stride == 1 { 0 } else { k };
    let mut scratch = Scratch::<E::Acc>::take(x_len + GROUP * RUN);
    let mut work = 0;
    // SAFETY: `j + g < n` or is brought back below, `p + len <= k`, and the scratch holds the vector and `GROUP` runs.
    unsafe {
        let (x_copy, b_copy) = (scratch.ptr(), scratch.ptr().add(x_len));
        let x = run::<E, FMA>(&x, 0, 0, k, x_copy);
        for j in (0..n).step_by(GROUP) {
            work += GROUP * k;
            if work >= CHECK && j != 0 {
                work = 0;
                if cancel() {
                    return false;
                }
            }
            let mut sums: [E::Acc; GROUP] =
                std::array::from_fn(|g| if add { (*c.at(0, (j + g).min(n - 1))).widen() } else { E::Acc::ZERO });
            for p0 in (0..k).step_by(BLOCK) {
                let end = k.min(p0 + BLOCK);
                // Columns past the last one repeat it.
                let column = |g: usize| (j + g).min(n - 1);
                let folded = if E::SAME && b.col_stride == 1 {
                    let rows = std::array::from_fn(|g| b.at(column(g), p0).cast());
                    kernel::folded_dots::<E::Acc, FMA, GROUP, VECTOR_LANES>(end - p0, x.add(p0), &rows)
                } else {
                    let mut lanes = [[E::Acc::ZERO; VECTOR_LANES]; GROUP];
                    for p in (p0..end).step_by(RUN) {
                        let len = (end - p).min(RUN);
                        let rows = std::array::from_fn(|g| {
                            let copy = b_copy.wrapping_add(g * RUN);
                            run::<E, FMA>(&b, column(g), p, len, copy)
                        });
                        kernel::dots::<E::Acc, FMA, GROUP, VECTOR_LANES>(len, x.add(p), &rows, &mut lanes);
                    }
                    lanes.map(kernel::fold)
                };
                for (sum, folded) in sums.iter_mut().zip(folded) {
                    *sum = if add || p0 != 0 { sum.add(folded) } else { folded };
                }
            }
            for (g, &sum) in sums.iter().enumerate().take(n - j) {
                *c.at(0, j + g) = E::narrow(sum);
            }
        }
    }
    true
}

/// A row times a matrix whose rows are contiguous: `Order::Vector` with `L = VECTOR_LANES`, `Order::Chains` with `L = 1`.
///
/// # Safety
/// As [`super::drive::product`] with `m == 1`; `b.col_stride` is 1.
pub(super) unsafe fn row<E: Element, const FMA: bool, const L: usize>(
    (k, n): (usize, usize),
    x: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
    cancel: &dyn Fn() -> bool,
) -> bool {
    let part = n.min(ROW_COLUMNS);
    let narrow = if E::SAME { 0 } else { PASS };
    let mut scratch = Scratch::<E::Acc>::take((1 + L + narrow) * part + narrow);
    // SAFETY: the regions of the scratch lie one behind the other; rows stay below `k` and columns below `n`.
    unsafe {
        let sums = scratch.ptr();
        let lanes = sums.add(part);
        let (b_copy, x_copy) = (lanes.add(L * part), lanes.add((L + narrow) * part));
        for j0 in (0..n).step_by(part) {
            let nc = (n - j0).min(part);
            if add {
                pack::run::<E, FMA>(c.at(0, j0).cast_const(), c.col_stride, sums, nc);
            }
            for p0 in (0..k).step_by(L * KC) {
                let end = k.min(p0 + L * KC);
                if (p0 | j0) != 0 && cancel() {
                    return false;
                }
                let lanes = std::slice::from_raw_parts_mut(lanes.cast::<std::mem::MaybeUninit<E::Acc>>(), L * nc);
                lanes.fill(std::mem::MaybeUninit::new(E::Acc::ZERO));
                let lanes = std::slice::from_raw_parts_mut(lanes.as_mut_ptr().cast::<E::Acc>(), L * nc);
                for p in (p0..end).step_by(PASS * L) {
                    for (l, lane) in lanes.chunks_exact_mut(nc).enumerate() {
                        // The rows of this lane in this pass: p + l, p + l + L, ...
                        let first = p + l;
                        let rows = end.saturating_sub(first).div_ceil(L).min(PASS);
                        if rows == 0 {
                            break;
                        }
                        let (x, b) =
                            (View { col_stride: x.col_stride * L as isize, ..x.skip(0, first) }, b.skip(first, j0));
                        if E::SAME {
                            let (x_ptr, b_ptr) = (x.ptr.cast::<E::Acc>(), b.ptr.cast::<E::Acc>());
                            let b_row = b.row_stride * L as isize;
                            kernel::row_update::<E::Acc, FMA>(rows, x_ptr, x.col_stride, b_ptr, b_row, lane);
                        } else {
                            for i in 0..rows {
                                *x_copy.add(i) = (*x.at(0, i)).widen();
                                pack::run::<E, FMA>(b.at(i * L, 0), 1, b_copy.add(i * nc), nc);
                            }
                            kernel::row_update::<E::Acc, FMA>(rows, x_copy, 1, b_copy, nc as isize, lane);
                        }
                    }
                }
                // The fold of `kernel::fold`, for all columns at once.
                let mut width = L / 2;
                while width > 0 {
                    let (low, high) = lanes.split_at_mut(width * nc);
                    for (low, high) in low.iter_mut().zip(high) {
                        *low = low.add(*high);
                    }
                    width /= 2;
                }
                for (j, &lane) in lanes.iter().enumerate().take(nc) {
                    let sum = sums.add(j);
                    *sum = if add || p0 != 0 { (*sum).add(lane) } else { lane };
                }
            }
            pack::narrow::<E, FMA>(sums, c.at(0, j0), c.col_stride, nc);
        }
    }
    true
}
