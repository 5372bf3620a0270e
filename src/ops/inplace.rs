//! In-place modification: who may be modified, and how the history of a tensor, of its base and of other views follows.

use super::copy;
use super::strided::{CopySlices, view_of};
use crate::autograd::node::{Edge, NodeRef};
use crate::autograd::{mode, watch};
use crate::error::{Result, bail};
use crate::shape::Dims;
use crate::storage::Storage;
use crate::tensor::{Body, Tensor};
use crate::threads::Stoppable;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Whether `target` may be modified in place now; asked before anything is written. `records` says whether the change
/// becomes part of the graph.
///
/// # Errors
/// `RuntimeError` in PyTorch's words.
pub(crate) fn check(op: &'static str, target: &Tensor, records: bool) -> Result<()> {
    let body = target.body();
    if !body.storage.is_writable() {
        bail!(value op, "the memory of this tensor is read-only (it was made from a read-only array); copy it before modifying it in place");
    }
    if body.layout.overlaps_itself() {
        bail!(runtime op, "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the tensor before performing the operation.\n{op}: the tensor has shape {:?} and strides {:?}", body.layout.sizes, body.layout.strides);
    }
    check_history(op, target, records)?;
    watch::before_write(target)
}

/// The part of [`check`] that looks at history and not at memory.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_history(op: &'static str, target: &Tensor, records: bool) -> Result<()> {
    if target.is_inference() && !mode::is_inference_mode() {
        bail!(runtime op, "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a normal tensor before doing inplace update.See https://github.com/pytorch/rfcs/pull/17 for more details.");
    }
    if records { target.check_recorded_change(op) } else { Ok(()) }
}

/// Refuses a write whose target shares some, but not all, elements with an operand: the result would depend on the order.
///
/// # Errors
/// `RuntimeError`.
pub(crate) fn check_overlap(op: &'static str, target: &Body, operands: &[Arc<Body>]) -> Result<()> {
    for o in operands.iter().filter(|o| o.storage.same(&target.storage)) {
        let same = o.layout == target.layout && o.dtype == target.dtype;
        let apart = match (o.layout.extent(), target.layout.extent()) {
            (Some((a, b)), Some((c, d))) => b <= c || d <= a,
            _ => true,
        };
        if !same && !apart && !interleaved(o, target) {
            bail!(runtime op, "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please clone() the tensor before performing the operation.");
        }
    }
    Ok(())
}

/// Whether two layouts walk the same strides and never meet (two columns of a matrix).
fn interleaved(a: &Body, b: &Body) -> bool {
    let step = a.layout.strides.iter().chain(b.layout.strides.iter()).fold(0usize, |g, &s| gcd(g, s.unsigned_abs()));
    step > 1 && !a.layout.offset.abs_diff(b.layout.offset).is_multiple_of(step)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Checks a tensor given as `out=`.
///
/// # Errors
/// `RuntimeError` if gradients are involved.
pub(crate) fn check_out(op: &'static str, out: &Tensor, operands: &[Tensor]) -> Result<()> {
    if mode::is_grad_enabled() && (out.requires_grad() || operands.iter().any(Tensor::requires_grad)) {
        bail!(runtime op, "{op}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.");
    }
    check(op, out, false)
}

/// Gives `out` the sizes of a result, with fresh memory if its own does not fit.
pub(crate) fn resize_out(op: &'static str, out: &Tensor, sizes: &Dims) -> Result<()> {
    let body = out.body();
    if body.layout.sizes == *sizes {
        return Ok(());
    }
    let layout = crate::shape::Layout::contiguous(sizes.clone());
    let bytes = layout.numel() * body.dtype.size();
    let mut fresh = Body::new(Storage::uninit(op, bytes)?, layout, body.dtype);
    fresh.version = body.version.clone();
    if let crate::tensor::Version::OfStorage = body.version {
        fresh.storage.birth_version().store(body.version(), Ordering::Release);
    }
    out.publish(fresh);
    Ok(())
}

/// A stand-in for `target` as an operand of an operation that is about to overwrite it: a copy with the same history if
/// the graph will keep it, else the tensor itself.
pub(crate) fn shield(op: &'static str, target: &Tensor) -> Result<Tensor> {
    if !(mode::is_grad_enabled() && target.dtype().is_float()) {
        return Ok(target.clone());
    }
    Ok(Tensor::with_history(copy::duplicate(op, &target.body())?, target.edge()?))
}

/// Writes `result` into `target`, whose history becomes that of `result`.
pub(crate) fn assign(op: &'static str, target: &Tensor, result: &Tensor) -> Result<()> {
    let (to, from) = (target.body(), result.body());
    let records = mode::is_grad_enabled() && (result.requires_grad() || target.requires_grad());
    check(op, target, records)?;
    if from.layout.sizes != to.layout.sizes {
        bail!(runtime op, "output with shape {:?} doesn't match the broadcast shape {:?}", to.layout.sizes, from.layout.sizes);
    }
    if !from.dtype.can_cast(to.dtype) {
        bail!(runtime op, "result type {} can't be cast to the desired output type {}", from.dtype.legacy(), to.dtype.legacy());
    }
    let _whole = Stoppable::never_if_long(to.layout.numel());
    copy::convert(op, &from, &to)?;
    to.bump_version();
    if records {
        let edge = if from.dtype == to.dtype { result.edge()? } else { copy::to_dtype(result, to.dtype)?.edge()? };
        if let Some(node) = edge.node() {
            rebase(target, node.clone(), edge.nr)?;
        }
    }
    Ok(())
}

/// Puts a node before `target`, which it has just modified. If `target` is a view, the base gets the node that carries the
/// change of a part, and the view's history is read off the base again.
pub(crate) fn rebase(target: &Tensor, node: NodeRef, nr: u32) -> Result<()> {
    let Some(view) = target.view_info() else {
        let old = target.grad_fn()?;
        let new = Edge::new(node, nr);
        target.set_history(new.clone());
        target.move_retain_grad(&old, &new);
        return Ok(());
    };
    if nr != 0 {
        bail!(runtime "backward", "an operation with several results may not modify a view in place");
    }
    let (base, body) = (&view.base, target.body());
    let old = base.grad_fn()?;
    let edge = Edge::new(CopySlices::node(base, &body, node)?, 0);
    base.set_history(edge.clone());
    base.move_retain_grad(&old, &edge);
    let old = target.grad_fn_as_is();
    view.version.store(target.version(), Ordering::Release);
    let new = view_of(base, &body, edge)?;
    target.set_history(new.clone());
    target.move_retain_grad(&old, &new);
    Ok(())
}
