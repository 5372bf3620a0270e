//! The one road that every operation takes: from bound arguments to results, with the graph node recorded by the rule.

use super::args::{Arg, Args, Read};
use super::op::{FromOutputs, Op, Outputs, Rule};
use super::{describe, formula, inplace, structured, update, view};
use crate::autograd::observe::{Observer, Unobserved, Watched, observer};
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use crate::threads::Stoppable;

/// Runs an operation.
///
/// # Errors
/// Whatever the row raises for bad shapes, dtypes and values.
pub fn call(op: &'static Op, args: &Args) -> Result<Outputs> {
    watched(op, args, false, || run(op, args))
}

fn run(op: &'static Op, args: &Args) -> Result<Outputs> {
    match &op.rule {
        Rule::Elementwise(rule) => formula::forward(op, rule, args),
        Rule::View(rule) => view::forward(op, rule, args),
        Rule::Structured(rule) => structured::forward(op, rule, args),
        Rule::Update(rule) => update::forward(op, rule, args),
        Rule::Composite(f) => f(args),
        Rule::InPlace(f) => {
            let _whole = Stoppable::never();
            f(op, args)?;
            Ok(smallvec::smallvec![args.tensor(0)?.clone()])
        }
    }
}

/// Runs an operation for a Rust method: defaults are filled in, and the results take the method's type.
pub fn call_into<T: FromOutputs>(op: &'static Op, args: Args) -> Result<T> {
    T::from_outputs(op, call(op, &with_defaults(op, args))?)
}

/// The arguments, with the defaults of those not given behind them.
pub fn with_defaults(op: &'static Op, mut args: Args) -> Args {
    for i in args.len()..op.params.len() {
        args.push(op.default(i));
    }
    args
}

/// Runs an operation into its first operand, as methods with a trailing underscore do, and returns that operand.
///
/// # Errors
/// As [`call`]; and where the operand may not be modified: a leaf that requires a gradient, some views, expanded memory, a
/// dtype or shape that the result does not fit.
pub fn call_in_place(op: &'static Op, args: &Args) -> Result<Tensor> {
    watched(op, args, true, || run_in_place(op, args))
}

fn run_in_place(op: &'static Op, args: &Args) -> Result<Tensor> {
    match &op.rule {
        Rule::Elementwise(rule) => formula::in_place(op, rule, args),
        Rule::View(rule) => view::in_place(op, rule, args),
        Rule::InPlace(f) => {
            let _whole = Stoppable::never();
            f(op, args)?;
            Ok(args.tensor(0)?.clone())
        }
        Rule::Update(rule) => update::in_place(op, rule, args),
        _ => {
            let Some(Arg::Tensor(target)) = args.first() else {
                bail!(type_ op.rust, "{}_(): expected a tensor", op.name)
            };
            let mut inner = args.clone();
            inner[0] = Arg::Tensor(inplace::shield(op.rust, target)?);
            let result: Tensor = Tensor::from_outputs(op, call(op, &inner)?)?;
            inplace::assign(op.rust, target, &result)?;
            Ok(target.clone())
        }
    }
}

/// Runs an operation into a tensor given as `out=`, which is resized if need be, and returns it.
///
/// # Errors
/// As [`call`]; and if an operand or `out` requires a gradient.
pub fn call_out(op: &'static Op, args: &Args, out: &Tensor) -> Result<Tensor> {
    watched(op, args, true, || run_out(op, args, out))
}

fn run_out(op: &'static Op, args: &Args, out: &Tensor) -> Result<Tensor> {
    match &op.rule {
        Rule::Elementwise(rule) if rule.reduce.is_none() => formula::into_out(op, rule, args, out)?,
        _ => {
            let tensors: Vec<Tensor> =
                args.iter().filter_map(|a| if let Arg::Tensor(t) = a { Some(t.clone()) } else { None }).collect();
            inplace::check_out(op.rust, out, &tensors)?;
            let result: Tensor = Tensor::from_outputs(op, call(op, args)?)?;
            if !result.dtype().can_cast(out.dtype()) {
                bail!(runtime op.rust, "Expected out tensor to have dtype {}, but got {} instead", result.dtype(), out.dtype());
            }
            inplace::resize_out(op.rust, out, &result.sizes())?;
            inplace::assign(op.rust, out, &result)?;
        }
    }
    Ok(out.clone())
}

/// Runs a call: an observer sees it, but not what it is composed of, and an error says which call it comes from.
#[inline]
fn watched<R: Results>(op: &'static Op, args: &Args, in_place: bool, run: impl FnOnce() -> Result<R>) -> Result<R> {
    let result = match observer() {
        None => run(),
        Some(observer) => observe(&*observer, op, args, in_place, run),
    };
    result.map_err(|e| e.in_call(|| describe::call(op, args)))
}

/// What a call returns, as an observer sees it.
trait Results {
    fn tensors(&self) -> &[Tensor];
}

impl Results for Outputs {
    fn tensors(&self) -> &[Tensor] {
        self
    }
}

impl Results for Tensor {
    fn tensors(&self) -> &[Tensor] {
        std::slice::from_ref(self)
    }
}

#[cold]
fn observe<R: Results>(
    observer: &dyn Observer,
    op: &'static Op,
    args: &Args,
    in_place: bool,
    run: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let _inside = Unobserved::new();
    let mut operands: Vec<Tensor> = Vec::new();
    for arg in args {
        match arg {
            Arg::Tensor(t) => operands.push(t.clone()),
            Arg::Tensors(list) => operands.extend_from_slice(list),
            Arg::OptTensors(list) => operands.extend(list.iter().flatten().cloned()),
            _ => {}
        }
    }
    let given_nonfinite = args.iter().any(|arg| match arg {
        Arg::Number(n) => !n.to_f64().is_finite(),
        Arg::Float(x) => !x.is_finite(),
        _ => false,
    });
    let text = || describe::call(op, args);
    let call = Watched { operation: op.name, text: &text, operands: &operands, given_nonfinite, in_place };
    let after = observer.operation(&call)?;
    let result = run()?;
    after(result.tensors())?;
    Ok(result)
}

/// An operator on two tensors, for rows of two operands without options.
pub fn binary(op: &'static Op, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match small_binary(op, a, b)? {
        Some(out) => Ok(out),
        None => call_into(op, smallvec::smallvec![Arg::Tensor(a.clone()), Arg::Tensor(b.clone())]),
    }
}

/// An operator on a tensor and a number.
pub fn binary_number(op: &'static Op, a: &Tensor, b: Scalar) -> Result<Tensor> {
    match small_binary_number(op, a, b)? {
        Some(out) => Ok(out),
        None => call_into(op, smallvec::smallvec![Arg::Tensor(a.clone()), Arg::Number(b)]),
    }
}

/// [`binary`] if the operands are small and plain, else nothing.
#[inline]
pub fn small_binary(op: &'static Op, a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
    let Rule::Elementwise(rule) = &op.rule else { return Ok(None) };
    formula::fast::binary(op, rule, 0, a, b)
}

/// [`binary_number`] if the operand is small and plain, else nothing.
#[inline]
pub fn small_binary_number(op: &'static Op, a: &Tensor, b: Scalar) -> Result<Option<Tensor>> {
    let Rule::Elementwise(rule) = &op.rule else { return Ok(None) };
    formula::fast::unary(op, rule, 0, a, Some(b))
}
