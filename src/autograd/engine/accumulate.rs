//! The end of every path: adding a gradient to a leaf's `.grad`.

use crate::autograd::held::{Held, Visit};
use crate::autograd::hooks::snapshot;
use crate::autograd::mode;
use crate::autograd::node::{Backward, Call, Grads, Meta, Node, NodeRef};
use crate::error::Result;
use crate::few::MostlyOne;
use crate::ops;
use crate::shape::Layout;
use crate::tensor::{Body, Tensor};
use std::borrow::Cow;
use std::sync::Arc;

/// Accumulates into a leaf, which it owns; the leaf knows it weakly.
pub struct AccumulateGrad {
    leaf: Tensor,
}

impl AccumulateGrad {
    /// The node for a leaf with its body. [`Tensor::edge`] makes it on demand and finds it again while it lives.
    pub(crate) fn node(leaf: &Tensor, body: &Body) -> NodeRef {
        let meta = Meta { sizes: body.layout.sizes.clone(), dtype: body.dtype };
        Node::shared_first(MostlyOne::One(meta), AccumulateGrad { leaf: leaf.clone() })
    }
}

impl Backward for AccumulateGrad {
    fn name(&self) -> Cow<'static, str> {
        "AccumulateGrad".into()
    }

    fn leaf(&self) -> Option<&Tensor> {
        Some(&self.leaf)
    }

    fn held(&self, visit: &mut Visit<'_>) {
        visit(Held::Tensor(&self.leaf));
    }

    fn backward(&self, _: &Call<'_>, mut grads: Grads) -> Result<Grads> {
        // The leaf may have been told since that it needs no gradient.
        if self.leaf.requires_grad() {
            if let Some(grad) = grads[0].take() {
                accumulate(&self.leaf, grad)?;
            }
            if let Some(hooks) = self.leaf.extra().hooks.existing() {
                for (_, hook) in snapshot(&hooks.post) {
                    hook.call(&self.leaf)?;
                }
            }
        }
        Ok(Grads::new())
    }
}

/// Adds a gradient to a tensor's `.grad`: the first is taken over if nobody else holds it, later ones are added in place;
/// with `create_graph` both happen out of place, so that they can be differentiated.
pub(super) fn accumulate(leaf: &Tensor, grad: Tensor) -> Result<()> {
    let differentiable = mode::is_grad_enabled() && grad.requires_grad();
    let mut slot = leaf.extra().grad.lock();
    let new = match &*slot {
        None if differentiable => grad.copy()?,
        None => first(grad, leaf)?,
        Some(old) if !mode::is_grad_enabled() => {
            ops::add_assign(old, &grad)?;
            return Ok(());
        }
        Some(old) => ops::sum_of(old, &grad)?,
    };
    let old = slot.replace(new);
    drop(slot);
    drop(old);
    Ok(())
}

/// A gradient as one that nothing leads to.
fn without_history(grad: Tensor) -> Tensor {
    if grad.requires_grad() { grad.detach() } else { grad }
}

/// What becomes of the first gradient: `.grad` as it is if nobody else sees its memory and it lies as the leaf does, unless the
/// thread does not ask for that; else its copy.
fn first(mut grad: Tensor, leaf: &Tensor) -> Result<Tensor> {
    let wanted = {
        let leaf = &leaf.state().body;
        let lies_well = |layout: &Layout| {
            if leaf.layout.is_dense() { layout.strides == leaf.layout.strides } else { layout.is_contiguous() }
        };
        let can_be_taken = |body: &mut Arc<Body>| {
            let alone = Arc::strong_count(body) == 1 && body.storage.is_unique();
            let fits = body.layout.offset == 0 && body.dtype == leaf.dtype;
            alone && fits && (lies_well(&body.layout) || !mode::enforces_grad_layout())
        };
        if !grad.is_view() && grad.own_body().is_some_and(can_be_taken) {
            None
        } else {
            Some(ops::dense_like(&leaf.layout))
        }
    };
    match wanted {
        None => Ok(without_history(grad)),
        Some(layout) => ops::copy_in_layout(grad, layout),
    }
}
