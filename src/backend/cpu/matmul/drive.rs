//! Which path a product takes, and how it is cut into blocks that fit the caches. Everything that is summed is summed in
//! `kernel`; this file only decides what is next to what.

use super::kernel::Tile;
use super::number::{DOT_LANES, DOT_RESULTS, Element, KC, MC, Number, VECTOR_LANES};
use super::scratch::Scratch;
use super::{View, ViewMut, pack, small, vector};

/// Rows of the result that are kept as accumulators before they are narrowed to a type of fewer digits.
const NARROW_ROWS: usize = 4 * MC;
/// Up to this many rows, copying the right operand costs more than reading it in place.
const DIRECT_ROWS: usize = 48;
/// Bytes between the first and the last column of a block of the left operand up to which it is read in place.
const DIRECT_SPAN: usize = 16 << 10;

/// How the products of one element of the result are summed. A function of the shape alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Chains of `KC` multiply-adds, added in order.
    Chains,
    /// For a matrix times a vector: every `VECTOR_LANES` chains take turns, are folded, and the folded sums added in order.
    Vector,
    /// For results so few that the processor would wait for the chains: `DOT_LANES` chains take turns to the end.
    Dot,
}

impl Order {
    #[inline]
    pub(super) fn of(m: usize, k: usize, n: usize) -> Order {
        if m.saturating_mul(n) <= DOT_RESULTS && k >= 2 * DOT_LANES {
            Order::Dot
        } else if (m == 1 || n == 1) && k >= 4 * VECTOR_LANES {
            Order::Vector
        } else {
            Order::Chains
        }
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
        if order == Order::Dot {
            return vector::dots::<E, FMA>((m, k, n), a, b, c, add, cancel);
        }
        if order == Order::Chains && n <= small::COLUMNS && k <= small::DEPTH && m <= small::ROWS {
            small::small::<E, FMA>((m, k, n), a, b, c, add);
            return true;
        }
        // Either orientation sums the same products in the same order. Vectors run along the columns of `c`: prefer those
        // to be many, then contiguous.
        let turn = if m == 1 || n == 1 {
            n == 1 && m != 1
        } else if n <= 16 && m >= 4 * n {
            a.row_stride == 1 || n <= 2
        } else {
            c.row_stride == 1 && c.col_stride != 1
        };
        let (m, n, a, b, c) = if turn { (n, m, b.turned(), a.turned(), c.turned()) } else { (m, n, a, b, c) };
        match order {
            Order::Vector if b.col_stride == 1 => vector::row::<E, FMA, VECTOR_LANES>((k, n), a, b, c, add, cancel),
            Order::Vector => vector::columns::<E, FMA>((k, n), a, b, c, add, cancel),
            _ if m == 1 && b.col_stride == 1 => vector::row::<E, FMA, 1>((k, n), a, b, c, add, cancel),
            _ => blocks::<E, FMA>((m, k, n), a, b, c, add, cancel),
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
    let col_stride = c.col_stride;
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
                    if add {
                        for i in 0..mt {
                            let c = c.at(i0 + i, j0).cast_const();
                            pack::run::<E, FMA>(c, col_stride, sums_at.add(i * nt), nt);
                        }
                    }
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
                                    add: p0 != 0 || add,
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
                        pack::narrow::<E, FMA>(sums, c.at(i0 + i, j0), col_stride, nt);
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
