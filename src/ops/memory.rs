//! Operations that choose a tensor's memory: `resize_`, `set_`; and `fill_diagonal_`, which exists in place only.

use super::args::{Arg, Read, kinds};
use super::op::Rule::InPlace;
use super::op::{INPLACE, op};
use super::selection::FILL_IN_PLACE;
use super::{apply, copy, formula, inplace};
use crate::autograd::mode;
use crate::autograd::node::Edge;
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout, checked_numel};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor, Version};
use smallvec::smallvec;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

op! {
    /// Gives the tensor itself another shape, row-major: over the memory it has if that is enough, else over new memory that
    /// begins with a copy of the old. Elements that are new are not specified. Views keep the old memory.
    ///
    /// # Errors
    /// `RuntimeError` if the tensor requires a gradient, or for a negative size.
    RESIZE_ resize_ as "resize"(self, size: Ints) -> Tensor = "", INPLACE,
        InPlace(|op, a| resize(op.rust, a.tensor(0)?, a.ints(1)?));
    /// Makes the tensor see the memory of `source`, in its shape; without one, it becomes empty. Views keep the old memory.
    ///
    /// # Errors
    /// `RuntimeError` for another dtype, and where the tensor may not be modified in place.
    SET_ set_ as "set"(self, source: OptTensor = None) -> Tensor = "", INPLACE,
        InPlace(|op, a| set(op.rust, a.tensor(0)?, a.opt_tensor(1)));
    /// Every element of the main diagonal becomes a number. If `wrap`, the diagonal of a matrix with more rows than columns
    /// begins again at the left after each end, one row skipped.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two dimensions, and for more than two of different sizes.
    FILL_DIAGONAL_ fill_diagonal_ as "fill_diagonal"(self, fill_value: Number, wrap: Bool = false) -> Tensor = "", INPLACE,
        InPlace(|_, a| fill_diagonal(a.tensor(0)?, a.number(1)?, a.bool(2)));
}

fn resize(op: &'static str, t: &Tensor, size: &[i64]) -> Result<()> {
    if t.requires_grad() {
        bail!(runtime op, "cannot resize variables that require grad");
    }
    if let Some(bad) = size.iter().find(|s| **s < 0) {
        bail!(runtime op, "Trying to create tensor with negative dimension {bad}: {size:?}");
    }
    let body = t.body();
    let sizes: Dims = size.iter().map(|&s| s as usize).collect();
    let (n, width) = (checked_numel(op, &sizes)?, body.dtype.size());
    let layout = Layout { offset: body.layout.offset, ..Layout::contiguous(sizes) };
    let have = body.storage.bytes() / width - body.layout.offset;
    if n <= have {
        if layout.sizes != body.layout.sizes {
            t.publish(body.with_layout(layout));
            body.bump_version();
        }
        return Ok(());
    }
    let row = |n: usize, offset: usize| Layout { offset, ..Layout::contiguous([n][..].into()) };
    let fresh = Body::new(Storage::zeroed(op, n.saturating_mul(width))?, Layout { offset: 0, ..layout }, body.dtype);
    copy::convert(op, &body.with_layout(row(have, body.layout.offset)), &fresh.with_layout(row(have, 0)))?;
    t.publish(Body { version: next_version(&body), ..fresh });
    Ok(())
}

/// A counter of its own that goes on where that of a body is.
fn next_version(body: &Body) -> Version {
    Version::Own(Arc::new(AtomicU32::new(body.version().wrapping_add(1))))
}

fn set(op: &'static str, t: &Tensor, source: Option<&Tensor>) -> Result<()> {
    let involved = t.requires_grad() || source.is_some_and(Tensor::requires_grad);
    let records = mode::is_grad_enabled() && involved;
    inplace::check_history(op, t, records)?;
    let body = t.body();
    let fresh = match source {
        None => Body::new(Storage::uninit(op, 0)?, Layout::contiguous([0][..].into()), body.dtype),
        Some(source) => (*source.body()).clone(),
    };
    if fresh.dtype != body.dtype {
        bail!(runtime op, "Could not set tensor of type {} to a tensor of type {}", fresh.dtype.c_name(), body.dtype.c_name());
    }
    let edges = [Some(t), source].into_iter().map(|t| t.map_or(Ok(Edge::NONE), Tensor::edge));
    let edges = if records { Some(edges.collect::<Result<_>>()?) } else { None };
    t.publish(Body { version: next_version(&body), ..fresh });
    if let Some(edges) = edges {
        t.set_history(Edge::new(formula::not_implemented("set_", edges, &t.body()), 0));
    }
    Ok(())
}

fn fill_diagonal(t: &Tensor, value: Scalar, wrap: bool) -> Result<()> {
    let layout = t.body().layout.clone();
    let sizes = &layout.sizes;
    if sizes.len() < 2 {
        bail!(runtime "fill_diagonal_", "dimensions must larger than 1");
    }
    if sizes.len() > 2 && sizes.iter().any(|&s| s != sizes[0]) {
        bail!(runtime "fill_diagonal_", "all dimensions of input must be of equal length\nfill_diagonal_: got shape {sizes:?}");
    }
    let shortest = sizes.iter().copied().min().unwrap_or(0);
    let step: isize = layout.strides.iter().sum();
    let mut offset = layout.offset;
    let mut rows = sizes[0];
    // One diagonal; wrapped, one more for each further piece of the matrix that is as high as it is wide.
    loop {
        let length = shortest.min(rows);
        let part = t.as_strided(
            kinds::Ints([length as i64][..].into()),
            kinds::Ints([step as i64][..].into()),
            offset as i64,
        )?;
        apply::call_in_place(&FILL_IN_PLACE, &smallvec![Arg::Tensor(part), Arg::Number(value)])?;
        let skipped = shortest + 1;
        if !(wrap && sizes.len() == 2 && rows > skipped) {
            return Ok(());
        }
        rows -= skipped;
        offset = offset.wrapping_add_signed(skipped as isize * layout.strides[0]);
    }
}
