//! Products so small that choosing a path and copying blocks would cost more than the product: what must be copied goes to
//! the stack, and tiles of at most four rows run over it. The sums are chains, as in the general path.

use super::kernel::{self, Tile, store_short};
use super::number::{Element, Number};
use super::{View, ViewMut, pack};

/// Most rows, columns and depth that [`small`] takes.
pub(super) const ROWS: usize = 16;
pub(super) const COLUMNS: usize = 8;
pub(super) const DEPTH: usize = 16;

/// `c[m, n] (+)= a[m, k] @ b[k, n]`.
///
/// # Safety
/// As [`super::drive::product`], with a shape of at most `ROWS`, `DEPTH` and `COLUMNS`, no side of which is 0.
#[inline(always)]
pub(super) unsafe fn small<E: Element, const FMA: bool>(
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
) {
    // SAFETY: the caller's promise, and the width is at least `n`.
    unsafe {
        match n {
            1 => columns::<E, FMA, 1>((m, k, n), a, b, c, add),
            2 => columns::<E, FMA, 2>((m, k, n), a, b, c, add),
            3 | 4 => columns::<E, FMA, 4>((m, k, n), a, b, c, add),
            _ => columns::<E, FMA, 8>((m, k, n), a, b, c, add),
        }
    }
}

/// [`small`] with `n <= W`: finds, or makes, rows of `b` that are contiguous and `W` wide.
unsafe fn columns<E: Element, const FMA: bool, const W: usize>(
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
) {
    // SAFETY: `p < k <= DEPTH` and `n <= W`.
    unsafe {
        if E::SAME && n == W && (W == 1 || b.col_stride == 1) {
            return rows::<E, FMA, W>((m, k, n), a, b.ptr.cast(), b.row_stride, c, add);
        }
        let mut panel = [[E::Acc::ZERO; W]; DEPTH];
        for (p, row) in panel.iter_mut().enumerate().take(k) {
            if E::SAME && b.col_stride == 1 {
                store_short(b.at(p, 0).cast::<E::Acc>(), row.as_mut_ptr(), n, false);
            } else {
                pack::run::<E, FMA>(b.at(p, 0), b.col_stride, row.as_mut_ptr(), n);
            }
        }
        rows::<E, FMA, W>((m, k, n), a, panel.as_ptr().cast(), W as isize, c, add);
    }
}

/// Runs the tiles, on copies of `a` and `c` where these are not accumulators.
#[inline(always)]
unsafe fn rows<E: Element, const FMA: bool, const W: usize>(
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: *const E::Acc,
    b_row: isize,
    c: ViewMut<E>,
    add: bool,
) {
    // SAFETY: `i < m <= ROWS`, `k <= DEPTH` and `n <= W`; pointers are cast between `E` and `E::Acc` where these are one type.
    unsafe {
        if E::SAME {
            let a = View { ptr: a.ptr.cast(), row_stride: a.row_stride, col_stride: a.col_stride };
            let c = ViewMut { ptr: c.ptr.cast(), row_stride: c.row_stride, col_stride: c.col_stride };
            return tiles::<E::Acc, FMA, W>((m, k, n), a, b, b_row, c, add);
        }
        let mut a_copy = [[E::Acc::ZERO; DEPTH]; ROWS];
        let mut sums = [[E::Acc::ZERO; W]; ROWS];
        for i in 0..m {
            pack::run::<E, FMA>(a.at(i, 0), a.col_stride, a_copy[i].as_mut_ptr(), k);
            if add {
                pack::run::<E, FMA>(c.at(i, 0).cast_const(), c.col_stride, sums[i].as_mut_ptr(), n);
            }
        }
        let a = View { ptr: a_copy.as_ptr().cast(), row_stride: DEPTH as isize, col_stride: 1 };
        let whole = ViewMut { ptr: sums.as_mut_ptr().cast(), row_stride: W as isize, col_stride: 1 };
        tiles::<E::Acc, FMA, W>((m, k, n), a, b, b_row, whole, add);
        for (i, sums) in sums.iter().enumerate().take(m) {
            pack::narrow::<E, FMA>(sums.as_ptr(), c.at(i, 0), c.col_stride, n);
        }
    }
}

#[inline(always)]
unsafe fn tiles<T: Number, const FMA: bool, const W: usize>(
    (m, k, n): (usize, usize, usize),
    a: View<T>,
    b: *const T,
    b_row: isize,
    c: ViewMut<T>,
    add: bool,
) {
    for i in (0..m).step_by(4) {
        let rows = (m - i).min(4);
        let tile = Tile {
            kc: k,
            a: a.at(i, 0),
            a_row: a.row_stride,
            a_col: a.col_stride,
            b,
            b_row,
            c: c.at(i, 0),
            c_row: c.row_stride,
            c_col: c.col_stride,
            rows,
            cols: n,
            add,
        };
        // SAFETY: the tile lies within the shape.
        unsafe {
            match rows {
                1 => kernel::tile::<T, FMA, 1, W>(&tile),
                2 => kernel::tile::<T, FMA, 2, W>(&tile),
                _ => kernel::tile::<T, FMA, 4, W>(&tile),
            }
        }
    }
}
