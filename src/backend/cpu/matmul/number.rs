//! The arithmetic a matrix product needs, per element type: what an element widens to, how products accumulate, and which
//! register tile suits the width. No loops over matrices here, and no pointers to a caller's memory but one run of elements.

use half::{bf16, f16};

use super::kernel::{self, Tile};

/// Rows that one block of the left operand covers.
pub(super) const MC: usize = 96;
/// Length of one link of the summation chain: products `256 i .. 256 (i + 1)` are summed on their own, then added to the
/// result. It fixes the rounding of every product; changing it changes results in the last bits.
pub(super) const KC: usize = 256;
/// Interleaved chains of a matrix-vector product: one AVX2 register of f32.
pub(super) const VECTOR_LANES: usize = 8;
/// Interleaved chains of a dot product: enough to hide the latency of a multiply-add.
pub(super) const DOT_LANES: usize = 32;
/// Up to this many results are computed as dot products.
pub(super) const DOT_RESULTS: usize = 4;

/// A type that products accumulate in.
pub(super) trait Number: Copy + 'static {
    /// The neutral element of `add`.
    const ZERO: Self;
    /// Columns of the register tile: two AVX2 registers.
    const NR: usize;
    /// Columns of one block of the right operand: `KC x NC` elements are half a megabyte.
    const NC: usize = 32 * Self::NR;

    /// `self + a * b`, rounded once if `FMA`. Set it only where the code is compiled for processors that fuse: elsewhere
    /// `mul_add` is a library call.
    fn mul_add<const FMA: bool>(self, a: Self, b: Self) -> Self;

    /// `self + other`.
    fn add(self, other: Self) -> Self;

    /// Runs the register tile of `rows` (1, 2, 4 or 6) rows and `NR`, or if `half` `NR / 2`, columns.
    ///
    /// # Safety
    /// As [`kernel::tile`].
    unsafe fn tile<const FMA: bool>(rows: usize, half: bool, tile: &Tile<Self>);
}

macro_rules! number {
    ($type:ty, $nr:literal, $zero:expr, |$c:ident, $a:ident, $b:ident| $fused:expr, $plain:expr, $add:expr) => {
        impl Number for $type {
            const ZERO: Self = $zero;
            const NR: usize = $nr;

            #[inline(always)]
            fn mul_add<const FMA: bool>(self, $a: Self, $b: Self) -> Self {
                let $c = self;
                if FMA { $fused } else { $plain }
            }

            #[inline(always)]
            fn add(self, $b: Self) -> Self {
                let $a = self;
                $add
            }

            #[inline(always)]
            unsafe fn tile<const FMA: bool>(rows: usize, half: bool, tile: &Tile<Self>) {
                // SAFETY: the caller's promise is the callee's.
                unsafe {
                    match (rows, half) {
                        (6, false) => kernel::tile::<Self, FMA, 6, $nr>(tile),
                        (4, false) => kernel::tile::<Self, FMA, 4, $nr>(tile),
                        (2, false) => kernel::tile::<Self, FMA, 2, $nr>(tile),
                        (_, false) => kernel::tile::<Self, FMA, 1, $nr>(tile),
                        (6, true) => kernel::tile::<Self, FMA, 6, { $nr / 2 }>(tile),
                        (4, true) => kernel::tile::<Self, FMA, 4, { $nr / 2 }>(tile),
                        (2, true) => kernel::tile::<Self, FMA, 2, { $nr / 2 }>(tile),
                        (_, true) => kernel::tile::<Self, FMA, 1, { $nr / 2 }>(tile),
                    }
                }
            }
        }
    };
    (int $type:ty, $nr:literal) => {
        number!(
            $type,
            $nr,
            0,
            |c, a, b| c.wrapping_add(a.wrapping_mul(b)),
            c.wrapping_add(a.wrapping_mul(b)),
            a.wrapping_add(b)
        );
    };
}

number!(f32, 16, 0.0, |c, a, b| a.mul_add(b, c), c + a * b, a + b);
number!(f64, 8, 0.0, |c, a, b| a.mul_add(b, c), c + a * b, a + b);
number!(int i16, 32);
number!(int i32, 16);
number!(int i64, 8);

/// A truth value, 0 or 1: the product is `and`, the sum is `or`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Truth(u8);

number!(Truth, 64, Truth(0), |c, a, b| Truth(c.0 | a.0 & b.0), Truth(c.0 | a.0 & b.0), Truth(a.0 | b.0));

/// A stored element.
pub(super) trait Element: Copy + 'static {
    /// What it widens to; never narrower in the digits that survive `narrow`.
    type Acc: Number;
    /// Whether `Acc` is `Self`, so that kernels may read and write the caller's memory without conversion.
    const SAME: bool = false;

    /// The element as an accumulator.
    fn widen(self) -> Self::Acc;

    /// The accumulator rounded, or wrapped, to an element.
    fn narrow(sum: Self::Acc) -> Self;

    /// `dst[i] = widen(src[i * stride])` for `i < n`.
    ///
    /// # Safety
    /// All `src[i * stride]` are readable, `dst[..n]` is writable and apart from them, and the processor has what `FMA` says.
    #[inline(always)]
    unsafe fn widen_run<const FMA: bool>(src: *const Self, stride: isize, dst: *mut Self::Acc, n: usize) {
        if stride == 1 {
            for i in 0..n {
                // SAFETY: `i < n`.
                unsafe { *dst.add(i) = (*src.add(i)).widen() };
            }
        } else {
            for i in 0..n {
                // SAFETY: `i < n`.
                unsafe { *dst.add(i) = (*src.offset(i as isize * stride)).widen() };
            }
        }
    }
}

macro_rules! element {
    (same $($type:ty)*) => { $(
        impl Element for $type {
            type Acc = $type;
            const SAME: bool = true;
            #[inline(always)]
            fn widen(self) -> $type {
                self
            }
            #[inline(always)]
            fn narrow(sum: $type) -> $type {
                sum
            }
            #[inline(always)]
            unsafe fn widen_run<const FMA: bool>(src: *const $type, stride: isize, dst: *mut $type, n: usize) {
                // SAFETY: the caller's promise.
                unsafe {
                    if stride == 1 {
                        std::ptr::copy_nonoverlapping(src, dst, n);
                    } else {
                        for i in 0..n {
                            *dst.add(i) = *src.offset(i as isize * stride);
                        }
                    }
                }
            }
        }
    )* };
    (wrap $($type:ty)*) => { $(
        // The low byte of a sum of products depends on the low bytes of the factors alone.
        impl Element for $type {
            type Acc = i16;
            #[inline(always)]
            fn widen(self) -> i16 {
                i16::from(self)
            }
            #[inline(always)]
            fn narrow(sum: i16) -> $type {
                sum as $type
            }
        }
    )* };
}
element!(same f32 f64 i16 i32 i64);
element!(wrap i8 u8);

/// A byte that is true if it is not 0.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct BoolByte(u8);

impl Element for BoolByte {
    type Acc = Truth;
    #[inline(always)]
    fn widen(self) -> Truth {
        Truth(u8::from(self.0 != 0))
    }
    #[inline(always)]
    fn narrow(sum: Truth) -> BoolByte {
        BoolByte(sum.0)
    }
}

impl Element for bf16 {
    type Acc = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        // Unlike `bf16::to_f32` this does not quiet signalling NaNs (the arithmetic does), so it is one shift.
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn narrow(sum: f32) -> bf16 {
        bf16::from_f32(sum)
    }
}

impl Element for f16 {
    type Acc = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(sum: f32) -> f16 {
        f16::from_f32(sum)
    }

    #[inline(always)]
    unsafe fn widen_run<const FMA: bool>(src: *const f16, stride: isize, dst: *mut f32, n: usize) {
        let mut i = 0;
        #[cfg(target_arch = "x86_64")]
        if FMA {
            use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
            while i + 8 <= n {
                // SAFETY: eight elements remain, and on x86-64 `FMA` stands for AVX2, FMA and F16C.
                unsafe {
                    let eight = if stride == 1 {
                        _mm_loadu_si128(src.add(i).cast::<__m128i>())
                    } else {
                        let gathered: [f16; 8] = std::array::from_fn(|l| *src.offset((i + l) as isize * stride));
                        _mm_loadu_si128(gathered.as_ptr().cast::<__m128i>())
                    };
                    _mm256_storeu_ps(dst.add(i), _mm256_cvtph_ps(eight));
                }
                i += 8;
            }
        }
        while i < n {
            // SAFETY: `i < n`.
            unsafe { *dst.add(i) = (*src.offset(i as isize * stride)).to_f32() };
            i += 1;
        }
    }
}
