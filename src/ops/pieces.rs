//! Cutting a tensor into pieces by count or by positions: what `tensor_split` and its relatives are composed of.

use super::op::Outputs;
use crate::error::{Result, bail};
use crate::shape::wrap_dim;
use crate::storage::affordable;
use crate::tensor::Tensor;

/// Bytes that a view takes, roughly, with all that hangs on it.
pub(super) const VIEW: usize = 512;

pub(super) fn split_evenly(op: &'static str, t: &Tensor, sections: i64, dim: i64) -> Result<Outputs> {
    check_splittable(op, t)?;
    let dim = wrap_dim(op, dim, t.rank())?;
    if sections <= 0 {
        bail!(runtime op, "number of sections must be larger than 0, got {sections}");
    }
    affordable(op, sections as usize, VIEW)?;
    let n = t.sizes()[dim] as i64;
    let (each, longer) = (n / sections, n % sections);
    let start = |k: i64| k * each + k.min(longer);
    (0..sections).map(|k| t.slice(dim as i64, start(k), start(k + 1), 1)).collect()
}

pub(super) fn split_at(op: &'static str, t: &Tensor, indices: &[i64], dim: i64) -> Result<Outputs> {
    check_splittable(op, t)?;
    let dim = wrap_dim(op, dim, t.rank())? as i64;
    let starts = std::iter::once(0).chain(indices.iter().copied());
    let ends = indices.iter().copied().map(Some).chain([None]);
    starts.zip(ends).map(|(start, end)| t.slice(dim, start, end, 1)).collect()
}

fn check_splittable(op: &'static str, t: &Tensor) -> Result<()> {
    if t.rank() == 0 {
        bail!(runtime op, "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims");
    }
    Ok(())
}

/// The least rank that `hsplit`, `vsplit` and `dsplit` take.
fn check_rank(op: &'static str, t: &Tensor) -> Result<()> {
    let least = match op {
        "hsplit" => 1,
        "vsplit" => 2,
        _ => 3,
    };
    if t.rank() < least {
        bail!(runtime op, "torch.{op} requires a tensor with at least {least} dimension, but got a tensor with {} dimensions!", t.rank());
    }
    Ok(())
}

pub(super) fn split_equally(op: &'static str, t: &Tensor, sections: i64, dim: usize) -> Result<Outputs> {
    check_rank(op, t)?;
    let n = t.sizes()[dim];
    if sections <= 0 || n as i64 % sections != 0 {
        bail!(runtime op, "torch.{op} attempted to split along dimension {dim}, but the size of the dimension {n} is not divisible by the split_size {sections}!");
    }
    split_evenly(op, t, sections, dim as i64)
}

pub(super) fn split_at_checked(op: &'static str, t: &Tensor, indices: &[i64], dim: usize) -> Result<Outputs> {
    check_rank(op, t)?;
    split_at(op, t, indices, dim as i64)
}
