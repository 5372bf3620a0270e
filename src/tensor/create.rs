//! Tensors from Rust values, and the default dtype.

use super::read::Value;
use super::{Body, Tensor};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::{Layout, checked_numel};
use crate::storage::Storage;
use std::sync::atomic::{AtomicU8, Ordering};

static DEFAULT: AtomicU8 = AtomicU8::new(DType::F32 as u8);

/// The dtype of floats that do not say theirs; float32 unless changed.
#[inline]
pub fn default_dtype() -> DType {
    DType::ALL[DEFAULT.load(Ordering::Relaxed) as usize]
}

/// Sets the dtype of floats that do not say theirs.
///
/// # Errors
/// `TypeError` for a dtype that is no floating point type.
pub fn set_default_dtype(dtype: DType) -> Result<()> {
    if !dtype.is_float() {
        bail!(type_ "set_default_dtype", "only floating-point types are supported as the default type");
    }
    DEFAULT.store(dtype as u8, Ordering::Relaxed);
    Ok(())
}

impl Tensor {
    /// A tensor of the given sizes over a copy of `values`, row-major.
    ///
    /// # Errors
    /// `RuntimeError` if the number of values is not that of the sizes.
    pub fn from_slice<T: Value>(values: &[T], sizes: &[usize]) -> Result<Tensor> {
        let n = checked_numel("tensor", sizes)?;
        if n != values.len() {
            bail!(runtime "tensor", "shape '{sizes:?}' is invalid for input of size {}", values.len());
        }
        let storage = Storage::uninit("tensor", n * T::DTYPE.size())?;
        T::write(values, &storage);
        Ok(Tensor::from_body(Body::new(storage, Layout::contiguous(sizes.into()), T::DTYPE)))
    }

    /// A 0-d tensor of a number.
    ///
    /// # Errors
    /// `RuntimeError` if memory runs out.
    pub fn scalar(value: impl Into<Scalar>, dtype: DType) -> Result<Tensor> {
        crate::ops::full(&[], value.into(), dtype)
    }
}

macro_rules! from_number {
    ($($t:ty),*) => { $(
        impl From<$t> for Tensor {
            /// A 0-d tensor: floats in the default dtype, integers in int64.
            fn from(value: $t) -> Tensor {
                let value = Scalar::from(value);
                Tensor::scalar(value, value.dtype(default_dtype())).expect("a 0-d tensor lives in its own header")
            }
        }
    )* };
}
from_number!(bool, i32, i64, f32, f64);
