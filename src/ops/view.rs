//! View operations: the same memory under another layout. Results share storage and version counter with the base, which
//! they know, so that in-place changes of either reach the history of both.

use super::args::{Args, Read};
use super::op::{Op, Outputs};
use super::structured::{Context, record};
use crate::autograd::mode;
use crate::autograd::node::Grads;
use crate::error::Result;
use crate::shape::Layout;
use crate::tensor::{Body, Creation, Tensor};
use smallvec::SmallVec;

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
    let creation = match (rule.multiple, recording) {
        (true, _) => Creation::Multiple(op.node),
        (false, false) => Creation::NoGrad,
        (false, true) => Creation::Plain,
    };
    let outputs: Outputs = layouts.into_iter().map(|layout| Tensor::from_body(body.with_layout(layout))).collect();
    for out in &outputs {
        if input.is_inference() {
            out.mark_inference();
        } else {
            out.set_view(input, creation);
        }
    }
    if recording && input.requires_grad() {
        record(op, args, Some(&body.layout), rule.backward, &[], &outputs)?;
    }
    Ok(outputs)
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
    let out = Tensor::from_body(body.with_layout(layout));
    if input.is_inference() {
        out.mark_inference();
    } else {
        out.set_view(input, if recording { Creation::Plain } else { Creation::NoGrad });
    }
    if recording && input.requires_grad() {
        record(op, &args(), Some(&body.layout), rule.backward, &[], std::slice::from_ref(&out))?;
    }
    Ok(out)
}
