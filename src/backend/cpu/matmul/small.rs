//! Products so small that choosing a path and copying blocks would cost more than the product. The sums are chains, as in
//! the general path.

use super::kernel::store_short;
use super::number::{Element, Number};
use super::{View, ViewMut};

/// Most rows, columns and depth that [`small`] takes.
pub(super) const ROWS: usize = 16;
pub(super) const COLUMNS: usize = 8;
pub(super) const DEPTH: usize = 16;

/// A product so small that looking for a path takes longer than any: the right operand goes to the stack, and tiles of four
/// rows and one run over it.
///
/// # Safety
/// The views cover the shape, `n <= COLUMNS`, `k <= DEPTH`, `c` overlaps neither operand, and the processor has what `FMA`
/// says.
#[inline(always)]
pub(super) unsafe fn small<E: Element, const FMA: bool>(
    shape: (usize, usize, usize),
    a: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
) {
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the caller's promise.
        return unsafe { small_avx2::<E>(shape, a, b, c, add) };
    }
    // SAFETY: the caller's promise.
    unsafe { small_body::<E, FMA>(shape, a, b, c, add) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn small_avx2<E: Element>(shape: (usize, usize, usize), a: View<E>, b: View<E>, c: ViewMut<E>, add: bool) {
    // SAFETY: the caller's promise.
    unsafe { small_body::<E, true>(shape, a, b, c, add) }
}

#[inline(always)]
unsafe fn small_body<E: Element, const FMA: bool>(
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
) {
    // SAFETY: the caller's promise, and the width is at least `n`.
    unsafe {
        match n {
            1 => small_width::<E, FMA, 1>((m, k, n), a, b, c, add),
            2 => small_width::<E, FMA, 2>((m, k, n), a, b, c, add),
            3 | 4 => small_width::<E, FMA, 4>((m, k, n), a, b, c, add),
            _ => small_width::<E, FMA, 8>((m, k, n), a, b, c, add),
        }
    }
}

#[inline(always)]
unsafe fn small_width<E: Element, const FMA: bool, const W: usize>(
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: View<E>,
    c: ViewMut<E>,
    add: bool,
) {
    // SAFETY: `p < k` and `j < n`.
    unsafe {
        if E::SAME && n == W && (W == 1 || b.col_stride == 1) {
            return small_panel::<E, FMA, W>((m, k, n), a, b.ptr.cast(), b.row_stride, c, add);
        }
        let mut panel = [[E::Acc::ZERO; W]; DEPTH];
        for (p, row) in panel.iter_mut().enumerate().take(k) {
            if E::SAME && b.col_stride == 1 {
                store_short(b.at(p, 0).cast::<E::Acc>(), row.as_mut_ptr(), n, false);
            } else {
                for (j, element) in row.iter_mut().enumerate().take(n) {
                    *element = (*b.at(p, j)).widen();
                }
            }
        }
        small_panel::<E, FMA, W>((m, k, n), a, panel.as_ptr().cast(), W as isize, c, add);
    }
}

/// Tiles over rows of `W` elements, `b_row` apart.
#[inline(always)]
unsafe fn small_panel<E: Element, const FMA: bool, const W: usize>(
    (m, k, n): (usize, usize, usize),
    a: View<E>,
    b: *const E::Acc,
    b_row: isize,
    c: ViewMut<E>,
    add: bool,
) {
    // SAFETY: `i < m`.
    unsafe {
        let mut i = 0;
        while i < m {
            let (a, c) = (a.skip(i, 0), ViewMut { ptr: c.at(i, 0), ..c });
            let rows = (m - i).min(4);
            match rows {
                1 => small_tile::<E, FMA, 1, W>((1, k, n), a, b, b_row, c, add),
                2 => small_tile::<E, FMA, 2, W>((2, k, n), a, b, b_row, c, add),
                _ => small_tile::<E, FMA, 4, W>((rows, k, n), a, b, b_row, c, add),
            }
            i += rows;
        }
    }
}

#[inline(always)]
unsafe fn small_tile<E: Element, const FMA: bool, const MR: usize, const W: usize>(
    (rows, k, n): (usize, usize, usize),
    a: View<E>,
    b: *const E::Acc,
    b_row: isize,
    c: ViewMut<E>,
    add: bool,
) {
    let mut sums = [[E::Acc::ZERO; W]; MR];
    // Rows past the last one repeat it.
    let row: [*const E; MR] = std::array::from_fn(|i| a.at(i.min(rows - 1), 0));
    // SAFETY: `p < k` and `j < n`, and a row of `b` holds `W` elements.
    unsafe {
        for p in 0..k as isize {
            let b = *b.offset(p * b_row).cast::<[E::Acc; W]>();
            for i in 0..MR {
                let a = (*row[i].offset(p * a.col_stride)).widen();
                for j in 0..W {
                    sums[i][j] = sums[i][j].mul_add::<FMA>(a, b[j]);
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            if i < rows {
                let c = ViewMut { ptr: c.at(i, 0), ..c };
                if E::SAME && c.col_stride == 1 {
                    store_short(sums.as_ptr(), c.ptr.cast::<E::Acc>(), n, add);
                } else {
                    for (j, &sum) in sums.iter().enumerate().take(n) {
                        let c = c.at(0, j);
                        *c = E::narrow(if add { (*c).widen().add(sum) } else { sum });
                    }
                }
            }
        }
    }
}
