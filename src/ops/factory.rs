//! Tensors made from nothing: the few that Rust code needs everywhere.

use crate::backend::cpu::memory::set_element;
use crate::dtype::DType;
use crate::error::Result;
use crate::scalar::Scalar;
use crate::shape::{Layout, checked_numel};
use crate::storage::{Guards, Storage};
use crate::tensor::{Body, Tensor};
use crate::threads::Stoppable;

/// A tensor of zeros.
///
/// # Errors
/// `RuntimeError` if the sizes overflow or memory runs out.
pub fn zeros(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let n = checked_numel("zeros", sizes)?;
    let bytes = n.saturating_mul(dtype.size());
    Ok(Tensor::from_body(Body::new(Storage::zeroed("zeros", bytes)?, Layout::contiguous(sizes.into()), dtype)))
}

/// A tensor of ones.
///
/// # Errors
/// As [`zeros`].
pub fn ones(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    full(sizes, Scalar::Int(1), dtype)
}

/// A tensor of one value.
///
/// # Errors
/// As [`zeros`].
pub fn full(sizes: &[usize], value: Scalar, dtype: DType) -> Result<Tensor> {
    let n = checked_numel("full", sizes)?;
    let bytes = n.saturating_mul(dtype.size());
    let body = Body::new(Storage::uninit("full", bytes)?, Layout::contiguous(sizes.into()), dtype);
    if n == 1 {
        // Nobody else holds the memory yet.
        set_element(&body.storage, 0, dtype, value);
    } else {
        let _fresh = Stoppable::fresh_if_long(n);
        fill(&body, value)?;
    }
    Ok(Tensor::from_body(body))
}

/// Zeros of the shape and dtype of a tensor.
///
/// # Errors
/// As [`zeros`].
pub fn zeros_like(t: &Tensor) -> Result<Tensor> {
    zeros(&t.sizes(), t.dtype())
}

/// Writes one value to all elements.
pub(crate) fn fill(body: &Body, value: Scalar) -> Result<()> {
    if body.layout.numel() == 0 {
        return Ok(());
    }
    if body.layout.numel() == 1 {
        let _guards = Guards::take([], [&body.storage]);
        set_element(&body.storage, body.layout.offset, body.dtype, value);
        return Ok(());
    }
    let one = Storage::uninit("fill_", 8)?;
    set_element(&one, 0, body.dtype, value);
    let source = Body::new(one, Layout::contiguous(Default::default()), body.dtype);
    crate::backend::cpu::index::fill(&body.operand(), &source.operand());
    Ok(())
}
