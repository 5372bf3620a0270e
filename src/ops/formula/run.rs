//! Running an elementwise row: promotion, checks, the choice of a specialisation, results, and the graph node.

use super::fast;
use super::node::record;
use super::spec::{Elementwise, Given, Key, Promote, Reduced, Spec};
use crate::autograd::mode;
use crate::backend::{Executable, Operand};
use crate::dtype::{Category, Compute, DType, Promotion};
use crate::error::{Result, bail};
use crate::ops::args::{Arg, Args};
use crate::ops::inplace;
use crate::ops::op::{Op, Outputs};
use crate::program::trace;
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout, broadcast, checked_numel, expandable, numel};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor, default_dtype};
use crate::threads::Stoppable;
use smallvec::{SmallVec, smallvec};
use std::sync::{Arc, OnceLock};

/// A call whose operands are sorted out.
pub(super) struct Prepared {
    pub spec: &'static Spec,
    pub tensors: SmallVec<[Tensor; 3]>,
    pub bodies: SmallVec<[Arc<Body>; 3]>,
    pub scalars: SmallVec<[Scalar; 2]>,
    pub sizes: Dims,
    pub reduced: Option<Reduced>,
}

/// Runs a row out of place.
pub(crate) fn forward(op: &'static Op, rule: &'static Elementwise, args: &Args) -> Result<Outputs> {
    if let Some(out) = fast::call(op, rule, args)? {
        return Ok(smallvec![out]);
    }
    let call = prepare(op, rule, args)?;
    let outputs = match &call.reduced {
        Some(to) => smallvec![combine(&call, to)?],
        None => {
            let outputs = results(call.spec, &call.sizes, &call.bodies, &[None])?;
            execute(call.spec, &call.sizes, &call.bodies, &call.scalars, &outputs)?;
            outputs
        }
    };
    finish(call, outputs)
}

/// Sums the formula's values into a smaller result.
fn combine(call: &Prepared, to: &Reduced) -> Result<Body> {
    static QUOTIENT: [OnceLock<Executable>; 2] = [const { OnceLock::new() }; 2];
    let (spec, dtype) = (call.spec, call.spec.outputs[0]);
    let n = checked_numel(spec.op, &to.aligned)?;
    let fresh = |dtype: DType| {
        Ok(Body::new(Storage::uninit(spec.op, n * dtype.size())?, Layout::contiguous(to.aligned.clone()), dtype))
    };
    let (sum, out) = match to.divisor {
        None => (None, fresh(dtype)?),
        // Half types are divided before they are rounded.
        Some(_) if dtype.is_half() => (Some(fresh(DType::F32)?), fresh(dtype)?),
        Some(_) => (None, fresh(dtype)?),
    };
    let sum = sum.as_ref().unwrap_or(&out);
    execute(spec, &call.sizes, &call.bodies, &call.scalars, std::slice::from_ref(sum))?;
    if let Some(divisor) = to.divisor {
        let ty = dtype.compute();
        let slot = &QUOTIENT[(ty == Compute::F64) as usize];
        let quotient = slot.get_or_init(|| Executable::new(trace(&[ty], &[ty], |x, s| vec![x[0] / s[0]])));
        quotient.run(
            spec.op,
            &to.aligned,
            &[sum.operand()],
            &[Scalar::Float(divisor)],
            &[out.operand()],
            Spec::REDUCE,
        )?;
    }
    Ok(out.with_layout(Layout::contiguous(to.shape.clone())))
}

/// Wraps results and records the node.
fn finish(call: Prepared, outputs: SmallVec<[Body; 2]>) -> Result<Outputs> {
    let outputs: Outputs = outputs.into_iter().map(Tensor::from_body).collect();
    let requires_grad = mode::is_grad_enabled() && call.tensors.iter().any(Tensor::requires_grad);
    if requires_grad {
        let aligned = call.reduced.as_ref().map(|r| &r.aligned);
        record(call.spec, &call.sizes, aligned, &call.tensors, &call.bodies, &call.scalars, &outputs)?;
    } else if mode::is_inference_mode() {
        outputs.iter().for_each(Tensor::mark_inference);
    }
    Ok(outputs)
}

/// Runs a row into its first operand (`add_`).
pub(crate) fn in_place(op: &'static Op, rule: &'static Elementwise, args: &Args) -> Result<Tensor> {
    let mut call = prepare(op, rule, args)?;
    let target = call.tensors[0].clone();
    let body = call.bodies[0].clone();
    let result = call.spec.outputs[0];
    if !result.can_cast(body.dtype) {
        bail!(runtime op.rust, "result type {} can't be cast to the desired output type {}", result.legacy(), body.dtype.legacy());
    }
    if call.sizes != body.layout.sizes {
        bail!(runtime op.rust, "output with shape {:?} doesn't match the broadcast shape {:?}", body.layout.sizes, call.sizes);
    }
    let records = mode::is_grad_enabled() && call.tensors.iter().any(Tensor::requires_grad);
    inplace::check(op.rust, &target, records)?;
    inplace::check_overlap(op.rust, &body, &call.bodies[1..])?;
    let history = if records && body.dtype.is_float() {
        keep_what_is_read(&mut call, &body)?;
        Some(super::node::edges(call.spec, &call.tensors)?)
    } else {
        None
    };
    execute_into(call.spec, &call.sizes, &call.bodies, &call.scalars, &body)?;
    body.bump_version();
    if let Some(edges) = history {
        super::node::record_in_place(
            call.spec,
            edges,
            &call.sizes,
            &call.tensors,
            &call.bodies,
            &call.scalars,
            &target,
            &body,
        )?;
    }
    Ok(target)
}

/// Puts a copy in the place of each operand that is the memory about to be overwritten (the target, or another handle to it)
/// and that backward reads.
fn keep_what_is_read(call: &mut Prepared, target: &Body) -> Result<()> {
    let mut kept: Option<Arc<Body>> = None;
    for k in 0..call.bodies.len() {
        let operand = &call.bodies[k];
        let overwritten = operand.storage.same(&target.storage) && operand.layout == target.layout;
        if overwritten && super::node::reads_input(call.spec, &call.tensors, k as u16) {
            let copy = match kept.take() {
                Some(copy) => copy,
                None => crate::ops::copy::duplicate(call.spec.op, target)?,
            };
            call.bodies[k] = copy.clone();
            kept = Some(copy);
        }
    }
    Ok(())
}

/// Runs a row into a tensor given as `out=`.
pub(crate) fn into_out(op: &'static Op, rule: &'static Elementwise, args: &Args, out: &Tensor) -> Result<()> {
    let call = prepare(op, rule, args)?;
    inplace::check_out(op.rust, out, &call.tensors)?;
    let result = call.spec.outputs[0];
    if !result.can_cast(out.dtype()) {
        bail!(runtime op.rust, "result type {} can't be cast to the desired output type {}", result.legacy(), out.dtype().legacy());
    }
    inplace::resize_out(op.rust, out, &call.sizes)?;
    let body = out.body();
    inplace::check_overlap(op.rust, &body, &call.bodies)?;
    execute_into(call.spec, &call.sizes, &call.bodies, &call.scalars, &body)?;
    body.bump_version();
    Ok(())
}

/// Sorts out operands and numbers, promotes, broadcasts, and finds the specialisation.
fn prepare(op: &'static Op, rule: &'static Elementwise, args: &Args) -> Result<Prepared> {
    let mut tensors: SmallVec<[Tensor; 3]> = SmallVec::new();
    let mut bodies: SmallVec<[Arc<Body>; 3]> = SmallVec::new();
    let mut scalars: SmallVec<[Scalar; 2]> = SmallVec::new();
    let mut sizes = Dims::new();
    let mut operands: SmallVec<[Given; 4]> = SmallVec::new();
    let mut numbers: SmallVec<[Scalar; 2]> = SmallVec::new();
    let mut promotion = Promotion::default();
    let default = default_dtype();
    for (param, arg) in op.params.iter().zip(args) {
        match (param.kind.is_operand(), arg) {
            (true, Arg::Tensor(t)) => {
                let body = t.body();
                if rule.mask != Some(operands.len()) {
                    promotion.tensor(body.dtype, body.layout.rank());
                }
                operands.push(Given::Tensor(body.dtype));
                sizes = if tensors.is_empty() {
                    body.layout.sizes.clone()
                } else {
                    broadcast(op.rust, &sizes, &body.layout.sizes)?
                };
                tensors.push(t.clone());
                bodies.push(body);
            }
            (true, Arg::None) => operands.push(Given::Absent),
            (true, arg) => {
                let number = number(arg)?;
                promotion.number(number.category(), default);
                operands.push(Given::Number);
                scalars.push(number);
            }
            (false, Arg::Number(_) | Arg::Float(_) | Arg::Int(_)) => {
                let number = number(arg)?;
                if numbers.len() < rule.promoting {
                    promotion.number(number.category(), default);
                }
                numbers.push(number);
            }
            _ => {}
        }
    }
    let mut common = promotion.result(default);
    match (rule.promote, operands.first()) {
        (Promote::Float, _) if !common.is_float() => common = default,
        (Promote::First, Some(Given::Tensor(first))) => common = *first,
        _ => {}
    }
    (rule.check)(args, common)?;
    let accept = rule.accept;
    let accepted = match common.category() {
        _ if rule.promote == Promote::Logical => true,
        Category::Bool => accept.bool,
        Category::Int => accept.int,
        Category::Float => accept.float,
    };
    if !accepted {
        bail!(not_implemented op.rust, "\"{}_cpu\" not implemented for '{}'", op.name, common.legacy());
    }
    let variant = (rule.variant)(args)?;
    let n = numbers.len() as u8;
    scalars.extend(numbers);
    if common.category() == Category::Int {
        scalars.iter_mut().for_each(|s| *s = wrapped(*s, common));
    }
    let reduced = match rule.reduce {
        Some(reduce) => reduce(args, &sizes)?,
        None => None,
    };
    let divisor = reduced.as_ref().and_then(|r| r.divisor);
    if divisor.is_some() && !common.is_float() {
        bail!(runtime op.rust, "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {}", common.legacy());
    }
    scalars.extend(divisor.map(|n| Scalar::Float(1.0 / n)));
    let key = Key { operands, numbers: n, variant, common, averaged: divisor.is_some() };
    let spec = match slot(&key) {
        Some(slot) => rule.common(op, slot, || key),
        None => rule.specialise(op, key),
    };
    Ok(Prepared { spec, tensors, bodies, scalars, sizes, reduced })
}

/// An integer as a narrow dtype holds it, which is how PyTorch computes with it.
fn wrapped(s: Scalar, dtype: DType) -> Scalar {
    let n = s.to_i64();
    Scalar::Int(match dtype {
        DType::U8 => n as u8 as i64,
        DType::I8 => n as i8 as i64,
        DType::I16 => n as i16 as i64,
        DType::I32 => n as i32 as i64,
        _ => return s,
    })
}

fn number(arg: &Arg) -> Result<Scalar> {
    Ok(match arg {
        Arg::Number(s) => *s,
        Arg::Float(x) => Scalar::Float(*x),
        Arg::Int(n) => Scalar::Int(*n),
        Arg::Bool(b) => Scalar::Bool(*b),
        other => bail!(type_ "", "expected a number, got {other:?}"),
    })
}

/// The cache slot of a common call: tensors all float32 or all float64, the last operand possibly a number.
#[inline]
fn slot(key: &Key) -> Option<usize> {
    if key.variant > 1 || key.averaged || !matches!(key.common, DType::F32 | DType::F64) {
        return None;
    }
    let (last, first) = key.operands.split_last()?;
    let plain = first.iter().all(|g| *g == Given::Tensor(key.common));
    let number = match last {
        Given::Tensor(d) if *d == key.common => false,
        Given::Number => true,
        _ => return None,
    };
    plain.then(|| fast::slot(key.variant, number, key.common))
}

/// Fresh memory for the results. `targets[k]` is the shape of a reduced result. A full-size result lies in memory as the
/// first operand of its shape does.
pub(super) fn results(
    spec: &Spec,
    sizes: &Dims,
    inputs: &[Arc<Body>],
    targets: &[Option<Dims>],
) -> Result<SmallVec<[Body; 2]>> {
    let mut out = SmallVec::new();
    for (k, &dtype) in spec.outputs.iter().enumerate() {
        let layout = match targets.get(k) {
            Some(Some(target)) if target != sizes => Layout::contiguous(target.clone()),
            _ => like(sizes, inputs),
        };
        let n = checked_numel(spec.op, &layout.sizes)?;
        out.push(Body::new(Storage::uninit(spec.op, n * dtype.size())?, layout, dtype));
    }
    Ok(out)
}

#[inline]
fn like(sizes: &Dims, inputs: &[Arc<Body>]) -> Layout {
    let model = inputs.iter().map(|b| &b.layout).find(|l| l.sizes == *sizes);
    match model {
        Some(l) if !l.is_contiguous() && l.is_dense() => {
            Layout { sizes: sizes.clone(), strides: l.strides.clone(), offset: 0 }
        }
        _ => Layout::contiguous(sizes.clone()),
    }
}

/// Runs the program into fresh results.
#[inline]
pub(super) fn execute(
    spec: &Spec,
    sizes: &[usize],
    inputs: &[Arc<Body>],
    scalars: &[Scalar],
    outputs: &[Body],
) -> Result<()> {
    // Pushed one by one: this is the hot path, and collecting into a short list costs more than the rest of the call.
    let mut ins: SmallVec<[Operand<'_>; 4]> = SmallVec::new();
    for body in inputs {
        ins.push(body.operand());
    }
    let mut outs: SmallVec<[Operand<'_>; 2]> = SmallVec::new();
    for body in outputs {
        outs.push(body.operand());
    }
    let _fresh = Stoppable::fresh_if_long(numel(sizes));
    spec.executable.run(spec.op, sizes, &ins, scalars, &outs, Spec::REDUCE)
}

/// Runs the program into memory that is there already.
fn execute_into(spec: &Spec, sizes: &[usize], inputs: &[Arc<Body>], scalars: &[Scalar], out: &Body) -> Result<()> {
    let _whole = Stoppable::never_if_long(numel(sizes));
    let ins: SmallVec<[Operand<'_>; 4]> = inputs.iter().map(|b| b.operand()).collect();
    if out.dtype.compute() == spec.outputs[0].compute() {
        return spec.executable.run(spec.op, sizes, &ins, scalars, &[out.operand()], Spec::REDUCE);
    }
    // The result is of a lower category than the target's: compute it as it is, then convert.
    let temporary = results(spec, &sizes.into(), inputs, &[None])?;
    spec.executable.run(spec.op, sizes, &ins, scalars, &[temporary[0].operand()], Spec::REDUCE)?;
    crate::ops::copy::convert(spec.op, &temporary[0], out)
}

/// Runs a specialisation (a gradient) on tensors, recording it if grad mode is on. `targets` are the shapes of the results.
pub(super) fn apply(
    spec: &'static Spec,
    sizes: &Dims,
    tensors: SmallVec<[Tensor; 3]>,
    scalars: &[Scalar],
    targets: &[Option<Dims>],
) -> Result<Outputs> {
    let bodies: SmallVec<[Arc<Body>; 3]> = tensors.iter().map(Tensor::body).collect();
    debug_assert!(bodies.iter().all(|b| expandable(&b.layout.sizes, sizes)));
    let outputs = results(spec, sizes, &bodies, targets)?;
    execute(spec, sizes, &bodies, scalars, &outputs)?;
    let scalars = SmallVec::from_slice(scalars);
    finish(Prepared { spec, tensors, bodies, scalars, sizes: sizes.clone(), reduced: None }, outputs)
}
