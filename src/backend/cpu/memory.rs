//! Single elements and plain vectors in and out of CPU memory.

use super::element::{Element, with_element};
use crate::dtype::{Compute, DType};
use crate::scalar::Scalar;
use crate::storage::Storage;

/// The element at position `at` of a storage seen as `dtype`. The caller guards the storage if others may write it.
///
/// # Panics
/// If the position lies outside the storage.
pub(crate) fn element(storage: &Storage, at: usize, dtype: DType) -> Scalar {
    assert!((at + 1) * dtype.size() <= storage.bytes(), "element {at} of a storage of {} bytes", storage.bytes());
    with_element!(dtype, E => {
        // SAFETY: inside the storage; any bytes are a value of every element type.
        let value = unsafe { storage.ptr().cast::<E>().add(at).read_unaligned().load() };
        scalar(dtype, |c| match c {
            Compute::F32 | Compute::F64 => Scalar::Float(ToF64::to_f64(value)),
            Compute::I64 => Scalar::Int(ToF64::to_i64(value)),
            Compute::Bool => Scalar::Bool(ToF64::to_i64(value) != 0),
        })
    })
}

fn scalar(dtype: DType, f: impl FnOnce(Compute) -> Scalar) -> Scalar {
    f(dtype.compute())
}

/// Writes one element, converted to `dtype`, at position `at`. The caller holds an exclusive guard.
///
/// # Panics
/// If the position lies outside the storage.
pub(crate) fn set_element(storage: &Storage, at: usize, dtype: DType, value: Scalar) {
    assert!((at + 1) * dtype.size() <= storage.bytes(), "element {at} of a storage of {} bytes", storage.bytes());
    with_element!(dtype, E => {
        let value = <<E as Element>::Compute as FromScalar>::from_scalar(value);
        // SAFETY: inside the storage, under the caller's guard.
        unsafe { storage.ptr().cast::<E>().add(at).write_unaligned(E::store(value)) };
    })
}

/// Copies values to the start of a fresh storage.
///
/// # Panics
/// If they do not fit.
pub(crate) fn write<T: Copy>(values: &[T], storage: &Storage) {
    assert!(size_of_val(values) <= storage.bytes(), "values do not fit the storage");
    // SAFETY: the storage is large enough and aligned for every element type, and does not overlap a Rust slice.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), storage.ptr().cast(), values.len()) };
}

/// Copies values out of a storage.
///
/// # Panics
/// If the range lies outside the storage.
pub(crate) fn read<T: Copy>(storage: &Storage, offset: usize, n: usize) -> Vec<T> {
    if n == 0 {
        return Vec::new(); // An empty view may begin past the end.
    }
    assert!((offset + n) * size_of::<T>() <= storage.bytes(), "values outside the storage");
    let mut out: Vec<T> = Vec::with_capacity(n);
    // SAFETY: inside the storage; `T` is one of the element types, for which any bytes are a value; `out` has room.
    unsafe {
        std::ptr::copy_nonoverlapping(storage.ptr().cast::<T>().add(offset), out.as_mut_ptr(), n);
        out.set_len(n);
    }
    out
}

/// Compute types as numbers.
trait ToF64 {
    fn to_f64(self) -> f64;
    fn to_i64(self) -> i64;
}

/// Numbers as compute types.
pub(crate) trait FromScalar {
    fn from_scalar(s: Scalar) -> Self;
}

macro_rules! numbers {
    ($($t:ty, $s:ident => $e:expr;)*) => { $(
        impl ToF64 for $t {
            fn to_f64(self) -> f64 { self as f64 }
            fn to_i64(self) -> i64 { self as i64 }
        }
        impl FromScalar for $t {
            fn from_scalar($s: Scalar) -> $t { $e }
        }
    )* };
}
numbers! {
    f32, s => s.to_f64() as f32;
    f64, s => s.to_f64();
    i64, s => s.to_i64();
    u8, s => s.to_bool() as u8;
}
