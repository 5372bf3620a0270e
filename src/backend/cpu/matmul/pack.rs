//! Copies of parts of the operands in the layout that the register tile reads fastest, widened on the way. No arithmetic.

use super::View;
use super::kernel::store_short;
use super::number::{Element, KC, Number};

/// Copies `b[..kc, ..cols]` to `panel[p * width + j]`, with zeros in the columns from `cols` to `width`.
///
/// # Safety
/// The view covers `kc` rows and `cols <= width` columns; `panel` holds `kc * width` elements and `stage` `KC * width`, apart
/// from each other and from `b`; `kc <= KC`; the processor has what `FMA` says.
#[inline(always)]
pub(super) unsafe fn panel<E: Element, const FMA: bool>(
    b: View<E>,
    kc: usize,
    cols: usize,
    width: usize,
    panel: *mut E::Acc,
    stage: *mut E::Acc,
) {
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the caller's promise.
        return unsafe { panel_avx2(b, kc, cols, width, panel, stage) };
    }
    // SAFETY: the caller's promise.
    unsafe { panel_body::<E, FMA>(b, kc, cols, width, panel, stage) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn panel_avx2<E: Element>(
    b: View<E>,
    kc: usize,
    cols: usize,
    width: usize,
    panel: *mut E::Acc,
    stage: *mut E::Acc,
) {
    // SAFETY: the caller's promise.
    unsafe { panel_body::<E, true>(b, kc, cols, width, panel, stage) }
}

#[inline(always)]
unsafe fn panel_body<E: Element, const FMA: bool>(
    b: View<E>,
    kc: usize,
    cols: usize,
    width: usize,
    panel: *mut E::Acc,
    stage: *mut E::Acc,
) {
    // SAFETY: all indices stay below `kc`, `cols` and `width`; the caller vouches for the rest.
    unsafe {
        if b.row_stride == 1 && b.col_stride != 1 {
            // Columns are contiguous: widen them one by one, then turn blocks of them.
            let (columns, stride) = if E::SAME {
                (b.ptr.cast::<E::Acc>(), b.col_stride)
            } else {
                for j in 0..cols {
                    E::widen_run::<FMA>(b.at(0, j), 1, stage.add(j * KC), kc);
                }
                (stage.cast_const(), KC as isize)
            };
            transpose::<E::Acc, FMA>(columns, stride, kc, cols, width, panel);
        } else if cols == width && width == E::Acc::NR && b.col_stride == 1 {
            // The length is a constant here, so each row is a few vector moves.
            for p in 0..kc {
                E::widen_run::<FMA>(b.at(p, 0), 1, panel.add(p * E::Acc::NR), E::Acc::NR);
            }
        } else if E::SAME && b.col_stride == 1 && cols < width {
            for p in 0..kc {
                store_short(b.at(p, 0).cast::<E::Acc>(), panel.add(p * width), cols, false);
            }
        } else {
            for p in 0..kc {
                E::widen_run::<FMA>(b.at(p, 0), b.col_stride, panel.add(p * width), cols);
            }
        }
        for p in 0..if cols < width { kc } else { 0 } {
            for j in cols..width {
                *panel.add(p * width + j) = E::Acc::ZERO;
            }
        }
    }
}

/// `dst[p * width + j] = src[j * stride + p]` for `p < kc`, `j < cols`.
#[inline(always)]
unsafe fn transpose<T: Number, const FMA: bool>(
    src: *const T,
    stride: isize,
    kc: usize,
    cols: usize,
    width: usize,
    dst: *mut T,
) {
    // Whole blocks go through registers; `done` rows and columns are finished that way.
    let mut done = (0, 0);
    #[cfg(target_arch = "x86_64")]
    if FMA && matches!(size_of::<T>(), 4 | 8) {
        let side = 32 / size_of::<T>();
        done = (kc / side * side, cols / side * side);
        for j in (0..done.1).step_by(side) {
            for p in (0..done.0).step_by(side) {
                // SAFETY: the block lies within `kc` and `cols`, which the caller vouches for; on x86-64 `FMA` implies AVX2.
                unsafe {
                    let src = src.offset(j as isize * stride + p as isize);
                    let dst = dst.add(p * width + j);
                    if side == 8 {
                        x86::transpose_8x8(src.cast(), stride, dst.cast(), width);
                    } else {
                        x86::transpose_4x4(src.cast(), stride, dst.cast(), width);
                    }
                }
            }
        }
    }
    for j in 0..cols {
        for p in if j < done.1 { done.0 } else { 0 }..kc {
            // SAFETY: `p < kc` and `j < cols`.
            unsafe { *dst.add(p * width + j) = *src.offset(j as isize * stride + p as isize) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Square transposes in registers. The loads and stores are those of the float type of the same size: bits only.
    use std::arch::x86_64::*;

    /// # Safety
    /// Eight runs of eight elements, `stride` apart, are readable, eight runs `width` apart are writable; AVX2 is there.
    #[inline(always)]
    pub(super) unsafe fn transpose_8x8(src: *const f32, stride: isize, dst: *mut f32, width: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            // Halves of rows j and j + 4 share a register, so that no step crosses the 128-bit halves after the loads.
            let load = |j: isize, half: isize| {
                let low = _mm256_castps128_ps256(_mm_loadu_ps(src.offset(j * stride + half)));
                _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(src.offset((j + 4) * stride + half)))
            };
            for half in [0, 4] {
                let (r0, r1, r2, r3) = (load(0, half), load(1, half), load(2, half), load(3, half));
                let (t0, t1) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
                let (t2, t3) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
                let dst = dst.add(half as usize * width);
                _mm256_storeu_ps(dst, _mm256_shuffle_ps::<0b01_00_01_00>(t0, t2));
                _mm256_storeu_ps(dst.add(width), _mm256_shuffle_ps::<0b11_10_11_10>(t0, t2));
                _mm256_storeu_ps(dst.add(2 * width), _mm256_shuffle_ps::<0b01_00_01_00>(t1, t3));
                _mm256_storeu_ps(dst.add(3 * width), _mm256_shuffle_ps::<0b11_10_11_10>(t1, t3));
            }
        }
    }

    /// # Safety
    /// Four runs of four elements, `stride` apart, are readable, four runs `width` apart are writable; AVX2 is there.
    #[inline(always)]
    pub(super) unsafe fn transpose_4x4(src: *const f64, stride: isize, dst: *mut f64, width: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let load = |j: isize, half: isize| {
                let low = _mm256_castpd128_pd256(_mm_loadu_pd(src.offset(j * stride + half)));
                _mm256_insertf128_pd::<1>(low, _mm_loadu_pd(src.offset((j + 2) * stride + half)))
            };
            for half in [0, 2] {
                let (r0, r1) = (load(0, half), load(1, half));
                let dst = dst.add(half as usize * width);
                _mm256_storeu_pd(dst, _mm256_unpacklo_pd(r0, r1));
                _mm256_storeu_pd(dst.add(width), _mm256_unpackhi_pd(r0, r1));
            }
        }
    }
}

/// Copies `a[..rows, ..kc]` widened to `dst` and returns the strides of the copy: rows stay rows where they are contiguous
/// in `a`, else the copy is transposed, so that both sides of the copy are runs.
///
/// # Safety
/// The view covers `rows` rows and `kc` columns; `dst` holds `rows * kc` elements apart from them; the processor has what
/// `FMA` says.
#[inline(always)]
pub(super) unsafe fn block<E: Element, const FMA: bool>(
    a: View<E>,
    rows: usize,
    kc: usize,
    dst: *mut E::Acc,
) -> (isize, isize) {
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the caller's promise.
        return unsafe { block_avx2(a, rows, kc, dst) };
    }
    // SAFETY: the caller's promise.
    unsafe { block_body::<E, FMA>(a, rows, kc, dst) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn block_avx2<E: Element>(a: View<E>, rows: usize, kc: usize, dst: *mut E::Acc) -> (isize, isize) {
    // SAFETY: the caller's promise.
    unsafe { block_body::<E, true>(a, rows, kc, dst) }
}

#[inline(always)]
unsafe fn block_body<E: Element, const FMA: bool>(
    a: View<E>,
    rows: usize,
    kc: usize,
    dst: *mut E::Acc,
) -> (isize, isize) {
    // SAFETY: all indices stay below `rows` and `kc`; the caller vouches for the rest.
    unsafe {
        if a.col_stride == 1 {
            for i in 0..rows {
                E::widen_run::<FMA>(a.at(i, 0), 1, dst.add(i * kc), kc);
            }
            (kc as isize, 1)
        } else {
            for p in 0..kc {
                E::widen_run::<FMA>(a.at(0, p), a.row_stride, dst.add(p * rows), rows);
            }
            (1, rows as isize)
        }
    }
}

/// `dst[i * stride] = narrow(sums[i])` for `i < n`.
///
/// # Safety
/// `sums[..n]` is readable and all `dst[i * stride]` are writable; the processor has what `FMA` says.
#[inline(always)]
pub(super) unsafe fn narrow<E: Element, const FMA: bool>(sums: *const E::Acc, dst: *mut E, stride: isize, n: usize) {
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the caller's promise.
        return unsafe { narrow_avx2(sums, dst, stride, n) };
    }
    // SAFETY: the caller's promise.
    unsafe { narrow_body::<E, FMA>(sums, dst, stride, n) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn narrow_avx2<E: Element>(sums: *const E::Acc, dst: *mut E, stride: isize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { narrow_body::<E, true>(sums, dst, stride, n) }
}

#[inline(always)]
unsafe fn narrow_body<E: Element, const FMA: bool>(sums: *const E::Acc, dst: *mut E, stride: isize, n: usize) {
    for i in 0..n {
        // SAFETY: `i < n`.
        unsafe { *dst.offset(i as isize * stride) = E::narrow(*sums.add(i)) };
    }
}

/// `dst[i] = widen(src[i * stride])` for `i < n`.
///
/// # Safety
/// As [`Element::widen_run`].
#[inline(always)]
pub(super) unsafe fn run<E: Element, const FMA: bool>(src: *const E, stride: isize, dst: *mut E::Acc, n: usize) {
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the caller's promise.
        return unsafe { run_avx2(src, stride, dst, n) };
    }
    // SAFETY: the caller's promise.
    unsafe { E::widen_run::<FMA>(src, stride, dst, n) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<E: Element>(src: *const E, stride: isize, dst: *mut E::Acc, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { E::widen_run::<true>(src, stride, dst, n) }
}
