//! Operations that change a part of their first operand (scatter, index_put, copy_): one function writes the change, into
//! a copy when called out of place, into the operand's own memory when called in place. What is written where is the
//! rows' affair; who may be modified is `inplace`'s.

use super::args::{Arg, Args, Read};
use super::op::{Op, Outputs};
use super::structured::{Context, Save, record};
use super::{copy, inplace};
use crate::autograd::mode::{self, GradMode};
use crate::autograd::node::Grads;
use crate::error::{Result, bail};
use crate::tensor::{Body, Tensor};
use crate::threads::Stoppable;
use smallvec::smallvec;

/// An updating row.
pub struct Update {
    /// Checks the arguments, then writes the change into the body given, which is the first operand or a copy of it. If it
    /// fails, the first operand has not been touched.
    pub write: fn(&Body, &Args) -> Result<()>,
    /// Gradients of the tensor arguments, one per edge, from that of the result.
    pub backward: fn(&Context<'_>) -> Result<Grads>,
    /// What backward reads. The first operand and the result are not among it: in place they are one memory.
    pub saves: &'static [Save],
}

/// Runs an updating row on a copy of the first operand.
pub(super) fn forward(op: &'static Op, rule: &Update, args: &Args) -> Result<Outputs> {
    let out = Tensor::from_shared(copy::duplicate(op.rust, &args.tensor(0)?.body())?);
    {
        let (_mode, _fresh) = (GradMode::set(false), Stoppable::fresh());
        (rule.write)(&out.body(), args)?;
    }
    let mut outputs: Outputs = smallvec![out];
    if mode::is_grad_enabled() {
        record(op, args, None, rule.backward, rule.saves, &mut outputs)?;
    } else if mode::is_inference_mode() {
        outputs[0].mark_inference();
    }
    Ok(outputs)
}

/// Runs an updating row on the first operand itself, and returns it.
pub(super) fn in_place(op: &'static Op, rule: &Update, args: &Args) -> Result<Tensor> {
    let Some(Arg::Tensor(target)) = args.first() else { bail!(type_ op.rust, "{}_(): expected a tensor", op.name) };
    let records = mode::is_grad_enabled()
        && target.dtype().is_float()
        && args.iter().any(|a| match a {
            Arg::Tensor(t) => t.requires_grad(),
            _ => false,
        });
    inplace::check(op.rust, target, records)?;
    let body = target.body();
    // The history is read before the write moves the version on, and put in place after it.
    let history = if records {
        let mut stand_in = Tensor::from_shared(body.clone());
        record(op, args, None, rule.backward, rule.saves, std::slice::from_mut(&mut stand_in))?;
        stand_in.grad_fn_as_is()
    } else {
        Default::default()
    };
    {
        let (_mode, _whole) = (GradMode::set(false), Stoppable::never());
        (rule.write)(&body, args)?;
    }
    body.bump_version();
    if let Some(node) = history.node() {
        inplace::rebase(target, node.clone(), 0)?;
    }
    Ok(target.clone())
}
