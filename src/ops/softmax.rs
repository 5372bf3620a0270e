//! Softmax, its logarithm and its mirror image, each one fused kernel forward and backward.

use super::args::{Arg, Args, Read};
use super::formula::Elementwise;
use super::op::Rule::{Composite as C, Elementwise as E, Structured as S};
use super::op::{FUNCTION, METHOD, NN, OUT, Outputs, SPECIAL, op};
use super::reduce::{dim, fresh, ints, row_major};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::backend::cpu::softmax;
use crate::error::{Result, bail};
use crate::storage::Guards;
use crate::tensor::Tensor;
use smallvec::smallvec;

fn forward(op: &'static str, a: &Args, log: bool) -> Result<Outputs> {
    let t = a.tensor(0)?;
    let along = dim(op, a, 1, t.rank())?;
    if !t.dtype().is_float() && t.numel() > 0 {
        let last = if along + 1 >= t.rank() { "_lastdim" } else { "" };
        bail!(not_implemented op, "\"{op}{last}_kernel_impl\" not implemented for '{}'", t.dtype().legacy());
    }
    let x = row_major(op, t)?;
    let y = fresh(op, x.layout.sizes.clone(), x.dtype)?;
    {
        let _guards = Guards::take([&x.storage], []);
        softmax::forward(&x.operand(), &y.operand(), along, log);
    }
    Ok(smallvec![Tensor::from_body(y)])
}

/// The gradient by the fused kernel: arguments are the result's gradient and the result.
fn gradient(op: &'static str, a: &Args, log: bool) -> Result<Outputs> {
    let (g, y) = (row_major(op, a.tensor(0)?)?, row_major(op, a.tensor(1)?)?);
    let along = dim(op, a, 2, y.layout.rank())?;
    let out = fresh(op, y.layout.sizes.clone(), y.dtype)?;
    {
        let _guards = Guards::take([&g.storage, &y.storage], []);
        softmax::backward(&g.operand(), &y.operand(), &out.operand(), along, log);
    }
    Ok(smallvec![Tensor::from_body(out)])
}

/// The gradient of the softmax gradient `y * (g - sum(g * y))`.
fn softmax_second(c: &Context<'_>) -> Result<Grads> {
    let Some(h) = c.grad(0) else { return Ok(smallvec![None, None]) };
    let (g, y) = (c.input(0)?, c.input(1)?);
    let along = ints(&[dim("softmax", c, 2, y.rank())?]);
    let for_g = if c.needs(0) { Some(h.softmax_backward(&y, c.int(2)?)?) } else { None };
    let for_y = if c.needs(1) {
        let (s, t) = (g.sum_product(&y, along.clone())?, h.sum_product(&y, along)?);
        Some(h.mul(&g)?.sub(&h.mul(&s)?)?.sub(&g.mul(&t)?)?)
    } else {
        None
    };
    Ok(smallvec![for_g, for_y])
}

/// The gradient of the log-softmax gradient `g - exp(y) * sum(g)`.
fn log_softmax_second(c: &Context<'_>) -> Result<Grads> {
    let Some(h) = c.grad(0) else { return Ok(smallvec![None, None]) };
    let (g, y) = (c.input(0)?, c.input(1)?);
    let along = ints(&[dim("log_softmax", c, 2, y.rank())?]);
    let weighted = h.times_exp(&y)?;
    let for_g = if c.needs(0) { Some(h.sub(&weighted.sum(&along.0[..], true)?)?) } else { None };
    let for_y = if c.needs(1) { Some(weighted.mul(&g.sum(&along.0[..], true)?)?.neg()?) } else { None };
    Ok(smallvec![for_g, for_y])
}

/// A row's result for a tensor that is converted to the dtype asked for first. Arguments `(input, dim, dtype)`.
fn converted(row: &'static super::op::Op, t: &Tensor, a: &Args) -> Result<Outputs> {
    let t = match a.opt_dtype(2) {
        Some(dtype) => super::to_dtype(t, dtype)?,
        None => t.clone(),
    };
    super::apply::call(row, &smallvec![Arg::Tensor(t), a[1].clone()])
}

op! {
    /// `exp(input)` divided by its sum along a dimension, without overflow: positive numbers that sum to 1. A slice of
    /// nothing but -inf gives NaN, that slice alone. The input is converted to `dtype` first, if it is given.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there, `NotImplementedError` for integers and bools without a `dtype`.
    SOFTMAX softmax(self, dim: Int, dtype: OptDType = None) -> Tensor = "", METHOD | FUNCTION | SPECIAL | NN | OUT,
        C(|a| converted(&SOFTMAX_RAW, a.tensor(0)?, a)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(0), Arg::None], smallvec![Arg::Tensor(s.t(&[])), Arg::Int(-1), Arg::None]];
    /// The logarithm of [`softmax`](Self::softmax), accurate where that is tiny.
    ///
    /// # Errors
    /// As [`softmax`](Self::softmax).
    LOG_SOFTMAX log_softmax(self, dim: Int, dtype: OptDType = None) -> Tensor = "", METHOD | FUNCTION | SPECIAL | NN | OUT,
        C(|a| converted(&LOG_SOFTMAX_RAW, a.tensor(0)?, a)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(0), Arg::None], smallvec![Arg::Tensor(s.t(&[])), Arg::Int(-1), Arg::None]];
    /// [`softmax`](Self::softmax) of the negated input.
    ///
    /// # Errors
    /// As [`softmax`](Self::softmax).
    SOFTMIN softmin(self, dim: Int, dtype: OptDType = None) -> Tensor = "", NN,
        C(|a| converted(&SOFTMAX_RAW, &a.tensor(0)?.neg()?, a)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(1), Arg::None]];
    /// The kernel behind [`softmax`](Self::softmax).
    SOFTMAX_RAW softmax_raw(self, dim: Int) -> Tensor = "SoftmaxBackward0", 0,
        S(Structured {
            forward: |a| forward("softmax", a, false),
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.softmax_backward(&c.output(0)?, c.int(1)?))?])),
            saves: &[Save::Output(0)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Int(-1)], smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Int(1)]];
    /// The kernel behind [`log_softmax`](Self::log_softmax).
    LOG_SOFTMAX_RAW log_softmax_raw(self, dim: Int) -> Tensor = "LogSoftmaxBackward0", 0,
        S(Structured {
            forward: |a| forward("log_softmax", a, true),
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.log_softmax_backward(&c.output(0)?, c.int(1)?))?])),
            saves: &[Save::Output(0)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Int(-1)], smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Int(1)]];
    /// The gradient of softmax from that of its `result`.
    SOFTMAX_BACKWARD softmax_backward(self, result: Tensor, dim: Int) -> Tensor = "SoftmaxBackwardDataBackward0", 0,
        S(Structured {
            forward: |a| gradient("softmax", a, false),
            backward: Some(softmax_second),
            saves: &[Save::InputFor(0, 1), Save::Input(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Int(1)]];
    /// The gradient of log-softmax from that of its `result`.
    LOG_SOFTMAX_BACKWARD log_softmax_backward(self, result: Tensor, dim: Int) -> Tensor = "LogSoftmaxBackwardDataBackward0", 0,
        S(Structured {
            forward: |a| gradient("log_softmax", a, true),
            backward: Some(log_softmax_second),
            saves: &[Save::Input(0), Save::Input(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Int(1)]];
    /// `input * exp(x)`.
    TIMES_EXP times_exp(self, x: Tensor) -> Tensor = "TimesExpBackward0", 0, E(Elementwise::float(|f| f.x(0) * f.x(1).exp()));
}
