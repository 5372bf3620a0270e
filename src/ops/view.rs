//! View operations: the same memory under another layout. Results share storage and version counter with the base, which
//! they know, so that in-place changes of either reach the history of both.

use super::args::{Arg, Args, Read};
use super::inplace;
use super::op::{Op, Outputs};
use super::structured::{Context, record, record_as};
use crate::autograd::mode;
use crate::autograd::node::Grads;
use crate::error::Result;
use crate::shape::Layout;
use crate::tensor::{Body, Creation, Tensor};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// Layouts of the results.
pub type Layouts = SmallVec<[Layout; 1]>;

/// A view row.
pub struct View {
    /// The layouts of the results, from that of the first argument.
    pub layouts: fn(&Layout, &Args) -> Result<Layouts>,
    /// The gradient of the first argument.
    pub backward: fn(&Context<'_>) -> Result<Grads>,
    /// Whether several views come back together; such views may not be modified in place.
    pub multiple: bool,
}

/// Runs a view row.
pub(super) fn forward(op: &'static Op, rule: &View, args: &Args) -> Result<Outputs> {
    let input = args.tensor(0)?;
    let body = input.body();
    let layouts = (rule.layouts)(&body.layout, args)?;
    let recording = mode::is_grad_enabled();
    let creation = Creation::now(rule.multiple);
    let mut outputs: Outputs = layouts.into_iter().map(|layout| Tensor::from_body(body.with_layout(layout))).collect();
    for out in &outputs {
        if input.is_inference() {
            out.mark_inference();
        } else {
            out.set_view(input, creation);
        }
    }
    if recording && input.requires_grad() {
        record(op, args, Some(&body.layout), rule.backward, &[], &mut outputs)?;
    }
    Ok(outputs)
}

/// Runs a view row in place: the tensor itself gets the layout, as `t_()` and `unsqueeze_()` do.
pub(super) fn in_place(op: &'static Op, rule: &View, args: &Args) -> Result<Tensor> {
    let target = args.tensor(0)?;
    let records = mode::is_grad_enabled() && target.requires_grad();
    inplace::check_history(op.rust, target, records)?;
    let body = target.body();
    let mut layouts = (rule.layouts)(&body.layout, args)?;
    let Some(layout) = layouts.pop() else { return Ok(target.clone()) };
    let fresh = body.with_layout(layout);
    let mut seen = Tensor::from_body(fresh.clone());
    if records {
        let mut inner = args.clone();
        inner[0] = Arg::Tensor(Tensor::with_history(body.clone(), target.edge()?));
        let name = in_place_name(op);
        record_as(name, op, &inner, Some(&body.layout), rule.backward, &[], std::slice::from_mut(&mut seen))?;
    }
    fresh.bump_version();
    target.publish(fresh);
    if records {
        if let Some(info) = target.view_info() {
            // The base has kept its values: what this view says of its history stays true.
            info.version.store(target.version(), Ordering::Release);
        }
        let old = target.grad_fn_as_is();
        let new = seen.grad_fn_as_is();
        target.set_history(new.clone());
        target.move_retain_grad(&old, &new);
    }
    Ok(target.clone())
}

/// The name of the node that a view row records in place: PyTorch counts in-place forms of views as overloads of their own.
fn in_place_name(op: &'static Op) -> &'static str {
    match op.rust {
        "t" => "TBackward1",
        "transpose" => "TransposeBackward1",
        "unsqueeze" => "UnsqueezeBackward1",
        "squeeze" => "SqueezeBackward3",
        "squeeze_dim" => "SqueezeBackward4",
        "squeeze_dims" => "SqueezeBackward5",
        _ => op.node,
    }
}

/// One view through a layout that the caller has worked out, as [`forward`] would make it; the row's arguments are asked for
/// only where a node records them.
pub(super) fn single(
    op: &'static Op,
    rule: &View,
    input: &Tensor,
    body: &Body,
    layout: Layout,
    args: impl FnOnce() -> Args,
) -> Result<Tensor> {
    let recording = mode::is_grad_enabled();
    let mut out = Tensor::from_body(body.with_layout(layout));
    if input.is_inference() {
        out.mark_inference();
    } else {
        out.set_view(input, Creation::now(false));
    }
    if recording && input.requires_grad() {
        record(op, &args(), Some(&body.layout), rule.backward, &[], std::slice::from_mut(&mut out))?;
    }
    Ok(out)
}
