//! Which path a product takes, and how it is cut into blocks that fit the caches. Everything that is summed is summed in
//! `kernel`; this file only decides what is next to what.

use super::kernel::{self, Tile};
use super::number::{Element, KC, LANES, MC, Number};
use super::scratch::Scratch;
use super::{View, ViewMut, pack};

/// Rows of the result that are kept as accumulators before they are narrowed to a type of fewer digits.
const NARROW_ROWS: usize = 4 * MC;
/// Columns of a row product that are kept as accumulators: 8 KiB of f32 stay in the first-level cache.
const ROW_COLUMNS: usize = 2048;
/// Length of the parts of a dot product, a multiple of `LANES`.
const DOT_PART: usize = 2048;
/// Up to this many rows, copying the right operand costs more than reading it in place.
const DIRECT_ROWS: usize = 48;
/// Bytes between the first and the last column of a block of the left operand up to which it is read in place.
const DIRECT_SPAN: usize = 16 << 10;

/// How the products of one element of the result are summed. A function of the shape alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Chains of `KC` multiply-adds, added in order.
    Chains,
    /// `LANES` interleaved sums: for results so few that one chain each would leave the processor waiting.
    Lanes,
}

impl Order {
    pub(super) fn of(m: usize, k: usize, n: usize) -> Order {
        if m.saturating_mul(n) <= 4 && k >= 2 * LANES { Order::Lanes } else { Order::Chains }
    }
}

/// Computes `c[m, n] (+)= a[m, k] @ b[k, n]`; false if cancelled, and then `c` holds unspecified numbers.
///
/// # Safety
/// The views cover the shape, `c` overlaps neither operand nor itself, and the processor has what `FMA` says.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn product<E: Element, const FMA: bool>(
    order: Order,
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
    cancel: &dyn Fn() -> bool,
) -> bool {
    if m == 0 || n == 0 {
        return true;
    }
    // SAFETY: the caller's promise; a transposed view of the transposed shape covers the same elements.
    unsafe {
        if k == 0 {
            if !add {
                zero(m, n, c);
            }
            return true;
        }
        if order == Order::Lanes {
            return dots::<E, FMA>((m, k, n), a, b, c, add, cancel);
        }
        // Either orientation sums the same products in the same order. Vectors run along the columns of `c`: prefer those
        // to be many, then contiguous.
        let turn = if m == 1 || n == 1 {
            n == 1 && m != 1
        } else if n <= 4 && m >= 16 {
            a.row_stride == 1 || n <= 2
        } else {
            c.row_stride == 1 && c.col_stride != 1
        };
        let (m, n, a, b, c) = if turn { (n, m, b.turned(), a.turned(), c.turned()) } else { (m, n, a, b, c) };
        if m == 1 && b.col_stride == 1 && n >= E::Acc::NR {
            row::<E, FMA>((k, n), a, b, c, add, cancel)
        } else {
            blocks::<E, FMA>((m, k, n), a, b, c, add, cancel)
        }
    }
}

unsafe fn zero<E: Element>(m: usize, n: usize, c: ViewMut<E>) {
    for i in 0..m {
        for j in 0..n {
            // SAFETY: `i < m` and `j < n`.
            unsafe { *c.at(i, j) = E::narrow(E::Acc::ZERO) };
        }
    }
}

/// The path of [`Order::Lanes`].
unsafe fn dots<E: Element, const FMA: bool>(
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
    cancel: &dyn Fn() -> bool,
) -> bool {
    let b = b.turned();
    let mut lanes = [[E::Acc::ZERO; LANES]; 4];
    let direct = |view: &View<E>| E::SAME && view.col_stride == 1;
    let part = k.min(DOT_PART);
    let copied = |view: &View<E>, rows: usize| if direct(view) { 0 } else { rows * part };
    let mut scratch = Scratch::<E::Acc>::take(copied(&a, m) + copied(&b, n));
    let (a_copy, b_copy) = (scratch.ptr(), scratch.ptr().wrapping_add(copied(&a, m)));
    for start in (0..k).step_by(DOT_PART) {
        let len = (k - start).min(DOT_PART);
        if start != 0 && cancel() {
            return false;
        }
        // Row `i` of a view from `start` on, as a run.
        // SAFETY (of the calls): `i` is below the view's rows, `start + len <= k`, and the copies hold `part` elements a row.
        let run = |view: &View<E>, i: usize, copy: *mut E::Acc| unsafe {
            if direct(view) {
                view.at(i, start).cast::<E::Acc>()
            } else {
                let copy = copy.add(i * part);
                pack::run::<E, FMA>(view.at(i, start), view.col_stride, copy, len);
                copy.cast_const()
            }
        };
        let mut columns = [std::ptr::null(); 4];
        for (j, column) in columns.iter_mut().enumerate().take(n) {
            *column = run(&b, j, b_copy);
        }
        for i in 0..m {
            let row = run(&a, i, a_copy);
            for (j, &column) in columns.iter().enumerate().take(n) {
                // SAFETY: both runs hold `len` elements.
                unsafe { kernel::dot::<E::Acc, FMA>(len, row, column, &mut lanes[i * n + j]) };
            }
        }
    }
    for i in 0..m {
        for j in 0..n {
            let sum = kernel::fold(lanes[i * n + j]);
            // SAFETY: `i < m` and `j < n`.
            unsafe {
                let c = c.at(i, j);
                *c = E::narrow(if add { (*c).widen().add(sum) } else { sum });
            }
        }
    }
    true
}

/// One row times a matrix whose rows are contiguous: streams the matrix once, in the order of memory.
unsafe fn row<E: Element, const FMA: bool>(
    (k, n): (usize, usize),
    x: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
    cancel: &dyn Fn() -> bool,
) -> bool {
    /// Rows of `b` that are widened at once.
    const ROWS: usize = 8;
    let part = n.min(ROW_COLUMNS);
    let widened = if E::SAME { 0 } else { KC + ROWS * part };
    let mut scratch = Scratch::<E::Acc>::take(2 * part + widened);
    let sums = scratch.ptr();
    // SAFETY: the four regions of the scratch lie one behind the other; rows stay below `k` and columns below `n`.
    unsafe {
        let (chain, x_copy) = (sums.add(part), sums.add(2 * part));
        let b_copy = x_copy.add(if E::SAME { 0 } else { KC });
        for j0 in (0..n).step_by(ROW_COLUMNS) {
            let nc = (n - j0).min(ROW_COLUMNS);
            for p0 in (0..k).step_by(KC) {
                let kc = (k - p0).min(KC);
                if (p0 | j0) != 0 && cancel() {
                    return false;
                }
                // The first link of the chain is the sum itself; later ones are summed apart and then added.
                let link = if p0 == 0 { sums } else { chain };
                for j in 0..nc {
                    *link.add(j) = E::Acc::ZERO;
                }
                let link = std::slice::from_raw_parts_mut(link, nc);
                if E::SAME {
                    let (x, b) = (x.skip(0, p0), b.skip(p0, j0));
                    let (x_ptr, b_ptr) = (x.ptr.cast::<E::Acc>(), b.ptr.cast::<E::Acc>());
                    kernel::row_update::<E::Acc, FMA>(kc, x_ptr, x.col_stride, b_ptr, b.row_stride, link);
                } else {
                    pack::run::<E, FMA>(x.at(0, p0), x.col_stride, x_copy, kc);
                    for p in (0..kc).step_by(ROWS) {
                        let rows = (kc - p).min(ROWS);
                        for i in 0..rows {
                            pack::run::<E, FMA>(b.at(p0 + p + i, j0), 1, b_copy.add(i * nc), nc);
                        }
                        kernel::row_update::<E::Acc, FMA>(rows, x_copy.add(p), 1, b_copy, nc as isize, link);
                    }
                }
                if p0 != 0 {
                    for (j, &link) in link.iter().enumerate() {
                        *sums.add(j) = (*sums.add(j)).add(link);
                    }
                }
            }
            pack::narrow::<E, FMA>(sums, c.at(0, j0), c.col_stride, nc, add);
        }
    }
    true
}

/// The general path: blocks of the right operand are copied as panels as wide as the register tile, blocks of the left
/// operand are read in place or copied, and tiles run over both.
unsafe fn blocks<E: Element, const FMA: bool>(
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
    cancel: &dyn Fn() -> bool,
) -> bool {
    let nr = E::Acc::NR;
    let part_m = if E::SAME { m } else { m.min(NARROW_ROWS) };
    let part_n = n.min(E::Acc::NC);
    let part_k = k.min(KC);
    let direct_b = E::SAME && b.col_stride == 1 && m <= DIRECT_ROWS;
    let direct_a = E::SAME
        && (a.col_stride == 1 || a.col_stride.unsigned_abs().saturating_mul(part_k * size_of::<E>()) <= DIRECT_SPAN);
    // Regions of the scratch. The stage serves narrow types whose columns are contiguous.
    let panels = if direct_b { part_k * nr } else { part_k * part_n.next_multiple_of(nr) };
    let stage = if E::SAME { 0 } else { KC * nr };
    let block = if direct_a { 0 } else { m.min(MC) * part_k };
    let sums = if E::SAME { 0 } else { part_m * part_n };
    let mut scratch = Scratch::<E::Acc>::take(panels + stage + block + sums);
    let mut checked = false;
    // SAFETY: the regions lie one behind the other and hold what is written to them; rows, columns and depth stay below
    // `m`, `n` and `k`; pointers are cast between `E` and `E::Acc` only where these are one type.
    unsafe {
        let panels_at = scratch.ptr();
        let stage_at = panels_at.add(panels);
        let block_at = stage_at.add(stage);
        let sums_at = block_at.add(block);
        for i0 in (0..m).step_by(part_m) {
            let mt = (m - i0).min(part_m);
            for j0 in (0..n).step_by(E::Acc::NC) {
                let nt = (n - j0).min(E::Acc::NC);
                let (c_ptr, c_row, c_col) = if E::SAME {
                    (c.at(i0, j0).cast::<E::Acc>(), c.row_stride, c.col_stride)
                } else {
                    (sums_at, nt as isize, 1)
                };
                for p0 in (0..k).step_by(KC) {
                    let kc = (k - p0).min(KC);
                    for j in (0..nt).step_by(nr) {
                        let cols = (nt - j).min(nr);
                        if !direct_b || cols < nr {
                            let width = if 2 * cols <= nr { nr / 2 } else { nr };
                            let at = if direct_b { panels_at } else { panels_at.add(j * kc) };
                            pack::panel::<E, FMA>(b.skip(p0, j0 + j), kc, cols, width, at, stage_at);
                        }
                    }
                    for ic in (0..mt).step_by(MC) {
                        if checked && cancel() {
                            return false;
                        }
                        checked = true;
                        let mc = (mt - ic).min(MC);
                        let a = a.skip(i0 + ic, p0);
                        let (a_ptr, a_row, a_col) = if direct_a {
                            (a.ptr.cast::<E::Acc>(), a.row_stride, a.col_stride)
                        } else {
                            let (row, col) = pack::block::<E, FMA>(a, mc, kc, block_at);
                            (block_at.cast_const(), row, col)
                        };
                        for j in (0..nt).step_by(nr) {
                            let cols = (nt - j).min(nr);
                            let half = 2 * cols <= nr;
                            let (b_ptr, b_row) = if direct_b && cols == nr {
                                (b.at(p0, j0 + j).cast::<E::Acc>(), b.row_stride)
                            } else {
                                let width = if half { nr / 2 } else { nr };
                                (panels_at.add(if direct_b { 0 } else { j * kc }).cast_const(), width as isize)
                            };
                            let mut i = 0;
                            while i < mc {
                                let rows = rows_of_tile(mc - i);
                                let tile = Tile {
                                    kc,
                                    a: a_ptr.offset(i as isize * a_row),
                                    a_row,
                                    a_col,
                                    b: b_ptr,
                                    b_row,
                                    c: c_ptr.offset((ic + i) as isize * c_row + j as isize * c_col),
                                    c_row,
                                    c_col,
                                    rows: rows.min(mc - i),
                                    cols,
                                    add: p0 != 0 || (E::SAME && add),
                                };
                                E::Acc::tile::<FMA>(rows, half, &tile);
                                i += rows;
                            }
                        }
                    }
                }
                if !E::SAME {
                    for i in 0..mt {
                        let sums = sums_at.add(i * nt);
                        pack::narrow::<E, FMA>(sums, c.at(i0 + i, j0), c.col_stride, nt, add);
                    }
                }
            }
        }
    }
    true
}

/// The height of the next tile where `left` rows remain: never leaves a remainder that wastes more than one row of a tile.
#[inline]
fn rows_of_tile(left: usize) -> usize {
    match left {
        1 | 2 => left,
        3 | 4 | 7 | 8 => 4,
        _ => 6,
    }
}
