//! Gradients as the outputs want them that they are for: of their shape and dtype.

use crate::autograd::node::{Edge, NodeRef};
use crate::error::{Error, Result};
use crate::ops;
use crate::shape::expandable;
use crate::tensor::Tensor;

/// Makes a gradient fit the output it belongs to: reduced if it is broadcast, cast if it is of another dtype.
#[inline]
pub(super) fn fit(node: &NodeRef, k: usize, edge: &Edge, mut grad: Tensor) -> Result<Tensor> {
    let Some(meta) = edge.node().and_then(|n| n.outputs.get(edge.nr as usize)) else { return Ok(grad) };
    let fits = grad.look(|body| body.layout.sizes == meta.sizes && body.dtype == meta.dtype);
    if fits { Ok(grad) } else { misfit(node, k, &meta.sizes, meta.dtype, grad) }
}

#[cold]
fn misfit(node: &NodeRef, k: usize, sizes: &[usize], dtype: crate::DType, mut grad: Tensor) -> Result<Tensor> {
    if grad.sizes()[..] != *sizes {
        if !expandable(sizes, &grad.sizes()) {
            return Err(Error::runtime(
                "backward",
                format!(
                    "Function {} returned an invalid gradient at index {k} - got {:?} but expected shape compatible with {sizes:?}",
                    node.name(),
                    grad.sizes()
                ),
            ));
        }
        grad = ops::sum_to_size(&grad, sizes)?;
    }
    if grad.dtype() != dtype {
        grad = ops::to_dtype(&grad, dtype)?;
    }
    Ok(grad)
}
