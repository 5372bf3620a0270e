//! The inner loops of a matrix product: the register tile, the row update and the dot product. Each is one generic body,
//! written so that LLVM keeps its arrays in vector registers, and compiled twice on x86-64. No blocking, no packing and no
//! choice of path here.

use super::number::Number;

/// Whether the build of the kernels that fuses multiply and add may run here: AVX2, FMA and F16C on x86-64; always on AArch64.
#[inline]
pub(super) fn has_fma() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        cfg!(target_arch = "aarch64")
    }
}

/// Nothing, but a loop that contains it is not vectorised as a loop. Integer sums may be reordered, and LLVM then prefers to
/// gather along the loop over keeping rows in registers, which is five times slower.
#[inline(always)]
fn keep_order() {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    // SAFETY: there are no instructions.
    unsafe {
        std::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}

/// One register tile: `c[rows, cols] (+)= a[rows, kc] @ b[kc, cols]`.
pub(super) struct Tile<T> {
    pub kc: usize,
    pub a: *const T,
    pub a_row: isize,
    pub a_col: isize,
    /// A row of `b` is contiguous and as wide as the tile, whatever `cols` is.
    pub b: *const T,
    pub b_row: isize,
    pub c: *mut T,
    pub c_row: isize,
    pub c_col: isize,
    /// Rows and columns that exist; the tile computes more where they are fewer, and throws those away.
    pub rows: usize,
    pub cols: usize,
    /// Whether to add to `c` instead of overwriting it.
    pub add: bool,
}

/// Computes one [`Tile`]: each element is one chain of multiply-adds over `kc`, starting from zero.
///
/// # Safety
/// The tile's pointers reach what it describes (of `a` only `rows` rows are read), `c` overlaps neither operand, and the
/// processor has what `FMA` says.
#[inline(always)]
pub(super) unsafe fn tile<T: Number, const FMA: bool, const MR: usize, const NR: usize>(tile: &Tile<T>) {
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the caller's promise.
        return unsafe { tile_avx2::<T, MR, NR>(tile) };
    }
    // SAFETY: the caller's promise.
    unsafe { tile_portable::<T, FMA, MR, NR>(tile) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile_avx2<T: Number, const MR: usize, const NR: usize>(tile: &Tile<T>) {
    // SAFETY: the caller's promise.
    unsafe { tile_body::<T, true, MR, NR>(tile) }
}

#[inline(never)]
unsafe fn tile_portable<T: Number, const FMA: bool, const MR: usize, const NR: usize>(tile: &Tile<T>) {
    // SAFETY: the caller's promise.
    unsafe { tile_body::<T, FMA, MR, NR>(tile) }
}

#[inline(always)]
unsafe fn tile_body<T: Number, const FMA: bool, const MR: usize, const NR: usize>(t: &Tile<T>) {
    let mut sums = [[T::ZERO; NR]; MR];
    // Rows past the last one repeat it: no read leaves the matrix.
    let row: [*const T; MR] = std::array::from_fn(|i| t.a.wrapping_offset(i.min(t.rows - 1) as isize * t.a_row));
    for p in 0..t.kc as isize {
        keep_order();
        // SAFETY: `p < kc`; the pointers reach the tile by the caller's promise.
        unsafe {
            let b = *t.b.offset(p * t.b_row).cast::<[T; NR]>();
            for i in 0..MR {
                let a = *row[i].offset(p * t.a_col);
                for j in 0..NR {
                    sums[i][j] = sums[i][j].mul_add::<FMA>(a, b[j]);
                }
            }
        }
    }
    // SAFETY: rows below `rows` and columns below `cols` of `c` are writable by the caller's promise.
    unsafe {
        if t.cols == NR && t.c_col == 1 {
            for (i, sums) in sums.iter().enumerate() {
                if i < t.rows {
                    let c = t.c.offset(i as isize * t.c_row).cast::<[T; NR]>();
                    if t.add {
                        let old = *c;
                        *c = std::array::from_fn(|j| old[j].add(sums[j]));
                    } else {
                        *c = *sums;
                    }
                }
            }
        } else {
            // A copy, so that indexing by a variable does not force the sums themselves out of registers.
            let mut spilled = [[T::ZERO; NR]; MR];
            for i in 0..MR {
                for j in 0..NR {
                    spilled[i][j] = sums[i][j];
                }
            }
            for (i, row) in spilled.iter().enumerate().take(t.rows) {
                let c = t.c.offset(i as isize * t.c_row);
                if t.c_col == 1 {
                    store_short(row.as_ptr(), c, t.cols, t.add);
                } else {
                    for (j, &sum) in row.iter().enumerate().take(t.cols) {
                        let c = c.offset(j as isize * t.c_col);
                        *c = if t.add { (*c).add(sum) } else { sum };
                    }
                }
            }
        }
    }
}

/// `dst[..n] (+)= src[..n]` for `n < 64`, in runs of powers of two: no loop, and no call of `memcpy`.
///
/// # Safety
/// `src[..n]` is readable and `dst[..n]` writable, apart from it, and readable if `add`.
#[inline(always)]
pub(super) unsafe fn store_short<T: Number>(src: *const T, dst: *mut T, n: usize, add: bool) {
    debug_assert!(n < 64);
    let mut done = 0;
    // SAFETY: the runs of the set bits of `n` sum to `n`.
    unsafe {
        store_run::<T, 32>(src, dst, n, &mut done, add);
        store_run::<T, 16>(src, dst, n, &mut done, add);
        store_run::<T, 8>(src, dst, n, &mut done, add);
        store_run::<T, 4>(src, dst, n, &mut done, add);
        store_run::<T, 2>(src, dst, n, &mut done, add);
        store_run::<T, 1>(src, dst, n, &mut done, add);
    }
}

#[inline(always)]
unsafe fn store_run<T: Number, const W: usize>(src: *const T, dst: *mut T, n: usize, done: &mut usize, add: bool) {
    if n & W != 0 {
        // SAFETY: the caller's promise: `done + W <= n`.
        unsafe {
            let new = *src.add(*done).cast::<[T; W]>();
            let dst = dst.add(*done).cast::<[T; W]>();
            *dst = if add {
                let old = *dst;
                std::array::from_fn(|i| old[i].add(new[i]))
            } else {
                new
            };
        }
        *done += W;
    }
}

/// `sums[j] += x[p] * b[p, j]` for `p` in order: the same chains as [`tile`] of one row, for a `b` too wide for registers
/// whose rows are contiguous.
///
/// # Safety
/// `x[p * x_stride]` and `b[p * b_row + j]` are readable for all `p < kc` and `j < sums.len()`, and the processor has what
/// `FMA` says.
#[inline(always)]
pub(super) unsafe fn row_update<T: Number, const FMA: bool>(
    kc: usize,
    x: *const T,
    x_stride: isize,
    b: *const T,
    b_row: isize,
    sums: &mut [T],
) {
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the caller's promise.
        return unsafe { row_update_avx2(kc, x, x_stride, b, b_row, sums) };
    }
    // SAFETY: the caller's promise.
    unsafe { row_update_body::<T, FMA>(kc, x, x_stride, b, b_row, sums) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn row_update_avx2<T: Number>(
    kc: usize,
    x: *const T,
    x_stride: isize,
    b: *const T,
    b_row: isize,
    sums: &mut [T],
) {
    // SAFETY: the caller's promise.
    unsafe { row_update_body::<T, true>(kc, x, x_stride, b, b_row, sums) }
}

#[inline(always)]
unsafe fn row_update_body<T: Number, const FMA: bool>(
    kc: usize,
    x: *const T,
    x_stride: isize,
    b: *const T,
    b_row: isize,
    sums: &mut [T],
) {
    const WIDE: usize = 16;
    let mut p = 0;
    // Four rows a pass: the sums are loaded and stored once for four multiply-adds, and four streams are few enough to prefetch.
    while p < kc {
        let rows = (kc - p).min(4);
        // SAFETY: `p + i < kc` for `i < rows`, and `j < sums.len()` below.
        unsafe {
            let b = b.offset(p as isize * b_row);
            let x: [T; 4] = std::array::from_fn(|i| *x.offset((p + i.min(rows - 1)) as isize * x_stride));
            let mut j = 0;
            if rows == 4 {
                let (chunks, _) = sums.as_chunks_mut::<WIDE>();
                for chunk in chunks {
                    for (i, &x) in x.iter().enumerate() {
                        let b = *b.offset(i as isize * b_row + j as isize).cast::<[T; WIDE]>();
                        for l in 0..WIDE {
                            chunk[l] = chunk[l].mul_add::<FMA>(x, b[l]);
                        }
                    }
                    j += WIDE;
                }
            }
            for (j, sum) in sums.iter_mut().enumerate().skip(j) {
                for (i, &x) in x.iter().enumerate().take(rows) {
                    *sum = sum.mul_add::<FMA>(x, *b.offset(i as isize * b_row + j as isize));
                }
            }
        }
        p += rows;
    }
}

/// `lanes[r][i % L] += x[i] * rows[r][i]` for `i < n` in order.
///
/// # Safety
/// `x[..n]` and all `rows[r][..n]` are readable, and the processor has what `FMA` says.
#[inline(always)]
pub(super) unsafe fn dots<T: Number, const FMA: bool, const R: usize, const L: usize>(
    n: usize,
    x: *const T,
    rows: &[*const T; R],
    lanes: &mut [[T; L]; R],
) {
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the caller's promise.
        return unsafe { dots_avx2(n, x, rows, lanes) };
    }
    // SAFETY: the caller's promise.
    unsafe { dots_body::<T, FMA, R, L>(n, x, rows, lanes) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dots_avx2<T: Number, const R: usize, const L: usize>(
    n: usize,
    x: *const T,
    rows: &[*const T; R],
    lanes: &mut [[T; L]; R],
) {
    // SAFETY: the caller's promise.
    unsafe { dots_body::<T, true, R, L>(n, x, rows, lanes) }
}

#[inline(always)]
unsafe fn dots_body<T: Number, const FMA: bool, const R: usize, const L: usize>(
    n: usize,
    x: *const T,
    rows: &[*const T; R],
    lanes: &mut [[T; L]; R],
) {
    let rows = *rows;
    let mut sums = *lanes;
    let whole = n / L * L;
    let mut i = 0;
    while i < whole {
        // SAFETY: `i + L <= n`.
        unsafe {
            let x = *x.add(i).cast::<[T; L]>();
            for r in 0..R {
                let row = *rows[r].add(i).cast::<[T; L]>();
                for l in 0..L {
                    sums[r][l] = sums[r][l].mul_add::<FMA>(x[l], row[l]);
                }
            }
        }
        i += L;
    }
    *lanes = sums;
    for (lanes, row) in lanes.iter_mut().zip(rows) {
        for (l, sum) in lanes.iter_mut().enumerate().take(n - whole) {
            // SAFETY: `whole + l < n`.
            *sum = unsafe { sum.mul_add::<FMA>(*x.add(whole + l), *row.add(whole + l)) };
        }
    }
}

/// The folded sums of [`dots`] from zero: for runs that are in memory as a whole.
///
/// # Safety
/// As [`dots`].
#[inline(always)]
pub(super) unsafe fn folded_dots<T: Number, const FMA: bool, const R: usize, const L: usize>(
    n: usize,
    x: *const T,
    rows: &[*const T; R],
) -> [T; R] {
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the caller's promise.
        return unsafe { folded_dots_avx2::<T, R, L>(n, x, rows) };
    }
    // SAFETY: the caller's promise.
    unsafe { folded_dots_body::<T, FMA, R, L>(n, x, rows) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn folded_dots_avx2<T: Number, const R: usize, const L: usize>(
    n: usize,
    x: *const T,
    rows: &[*const T; R],
) -> [T; R] {
    // SAFETY: the caller's promise.
    unsafe { folded_dots_body::<T, true, R, L>(n, x, rows) }
}

#[inline(always)]
unsafe fn folded_dots_body<T: Number, const FMA: bool, const R: usize, const L: usize>(
    n: usize,
    x: *const T,
    rows: &[*const T; R],
) -> [T; R] {
    let mut lanes = [[T::ZERO; L]; R];
    // SAFETY: the caller's promise.
    unsafe { dots_body::<T, FMA, R, L>(n, x, rows, &mut lanes) };
    lanes.map(fold)
}

/// The sum of the lanes, a power of two of them: the upper half is added to the lower until one is left.
#[inline(always)]
pub(super) fn fold<T: Number, const L: usize>(mut lanes: [T; L]) -> T {
    let mut width = L / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = lanes[i].add(lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}
