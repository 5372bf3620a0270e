//! Storage types and their conversion to and from compute types: widening loads and rounding or wrapping stores, for
//! contiguous and for strided memory. Memory is touched through raw pointers only.

use super::math;
use crate::dtype::DType;
use half::{bf16, f16};

/// A type that lies in memory.
pub(crate) trait Element: Copy {
    /// The type it is computed in.
    type Compute: Copy;
    fn load(self) -> Self::Compute;
    fn store(value: Self::Compute) -> Self;
}

/// A truth value in memory: any byte, read as `!= 0`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct BoolByte(u8);

impl Element for BoolByte {
    type Compute = u8;
    #[inline(always)]
    fn load(self) -> u8 {
        (self.0 != 0) as u8
    }
    #[inline(always)]
    fn store(value: u8) -> Self {
        BoolByte(value)
    }
}

macro_rules! element {
    ($($t:ty, $compute:ty, $x:ident => $load:expr, $y:ident => $store:expr;)*) => { $(
        impl Element for $t {
            type Compute = $compute;
            #[inline(always)]
            fn load(self) -> $compute { let $x = self; $load }
            #[inline(always)]
            fn store($y: $compute) -> $t { $store }
        }
    )* };
}
element! {
    u8, i64, x => x as i64, y => y as u8;
    i8, i64, x => x as i64, y => y as i8;
    i16, i64, x => x as i64, y => y as i16;
    i32, i64, x => x as i64, y => y as i32;
    i64, i64, x => x, y => y;
    f16, f32, x => x.to_f32(), y => f16::from_f32(y);
    bf16, f32, x => x.to_f32(), y => bf16::from_f32(y);
    f32, f32, x => x, y => y;
    f64, f64, x => x, y => y;
}

/// Runs `$body` with `$E` standing for the storage type of a dtype.
macro_rules! with_element {
    ($dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            $crate::dtype::DType::Bool => {
                type $E = $crate::backend::cpu::element::BoolByte;
                $body
            }
            $crate::dtype::DType::U8 => {
                type $E = u8;
                $body
            }
            $crate::dtype::DType::I8 => {
                type $E = i8;
                $body
            }
            $crate::dtype::DType::I16 => {
                type $E = i16;
                $body
            }
            $crate::dtype::DType::I32 => {
                type $E = i32;
                $body
            }
            $crate::dtype::DType::I64 => {
                type $E = i64;
                $body
            }
            $crate::dtype::DType::F16 => {
                type $E = half::f16;
                $body
            }
            $crate::dtype::DType::BF16 => {
                type $E = half::bf16;
                $body
            }
            $crate::dtype::DType::F32 => {
                type $E = f32;
                $body
            }
            $crate::dtype::DType::F64 => {
                type $E = f64;
                $body
            }
        }
    };
}
pub(crate) use with_element;

/// Reads `n` elements of `dtype`, `stride` elements apart, into a register.
///
/// # Safety
/// All `n` places must be readable, and `out` must have room for `n` values of the dtype's compute type.
pub(super) unsafe fn load(dtype: DType, ptr: *const u8, stride: isize, n: usize, out: *mut u8) {
    // SAFETY: the caller's promise; half conversions get slices of exactly the memory promised.
    unsafe {
        if stride == 1 && dtype.is_half() {
            let (src, dst) = (
                std::slice::from_raw_parts(ptr.cast::<u16>(), n),
                std::slice::from_raw_parts_mut(out.cast::<f32>(), n),
            );
            return if dtype == DType::F16 {
                math::half::f16_to_f32(src, dst)
            } else {
                math::half::bf16_to_f32(src, dst)
            };
        }
        with_element!(dtype, E => {
            let (src, dst) = (ptr.cast::<E>(), out.cast::<<E as Element>::Compute>());
            if stride == 1 {
                (0..n).for_each(|i| dst.add(i).write(src.add(i).read().load()));
            } else {
                (0..n).for_each(|i| dst.add(i).write(src.offset(i as isize * stride).read().load()));
            }
        })
    }
}

/// Writes `n` register values to elements of `dtype`, `stride` elements apart.
///
/// # Safety
/// As for [`load`], with the roles of the two pointers exchanged.
pub(super) unsafe fn store(dtype: DType, src: *const u8, n: usize, ptr: *mut u8, stride: isize) {
    // SAFETY: the caller's promise; half conversions get slices of exactly the memory promised.
    unsafe {
        if stride == 1 && dtype.is_half() {
            let (src, dst) = (
                std::slice::from_raw_parts(src.cast::<f32>(), n),
                std::slice::from_raw_parts_mut(ptr.cast::<u16>(), n),
            );
            return if dtype == DType::F16 {
                math::half::f32_to_f16(src, dst)
            } else {
                math::half::f32_to_bf16(src, dst)
            };
        }
        with_element!(dtype, E => {
            let (src, dst) = (src.cast::<<E as Element>::Compute>(), ptr.cast::<E>());
            if stride == 1 {
                (0..n).for_each(|i| dst.add(i).write(E::store(src.add(i).read())));
            } else {
                (0..n).for_each(|i| dst.offset(i as isize * stride).write(E::store(src.add(i).read())));
            }
        })
    }
}

/// Whether a dtype's memory is its register format, so that a kernel can work on it in place. Truth values are not: any
/// byte counts.
pub(super) fn is_direct(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::F32 | DType::F64)
}
