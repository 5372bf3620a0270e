//! The fast path of small calls: one or two tensors of one float dtype and shape, plain in memory, go from the operator to
//! the kernel without binding, promotion, broadcasting or waiting. Whatever is not like that takes the ordinary road.

use super::node::record_quick;
use super::spec::{Elementwise, Given, Key, Spec};
use crate::autograd::mode;
use crate::backend::{Sink, Source};
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::args::{Arg, Args};
use crate::ops::op::Op;
use crate::scalar::Scalar;
use crate::shape::Layout;
use crate::storage::Storage;
use crate::tensor::{Body, State, Tensor};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// The most elements for which locks are held while the kernel runs.
const SMALL: usize = 1 << 14;

/// A call with bound arguments; nothing if it has to take the ordinary road.
#[inline]
pub(super) fn call(op: &'static Op, rule: &'static Elementwise, args: &Args) -> Result<Option<Tensor>> {
    let (a, second) = match &args[..] {
        [Arg::Tensor(a)] => (a, None),
        [Arg::Tensor(a), second @ (Arg::Tensor(_) | Arg::Number(_))] if op.params[1].kind.is_operand() => {
            (a, Some(second))
        }
        _ => return Ok(None),
    };
    let dtype = a.dtype();
    if !(dtype.is_float() && rule.accept.float && rule.reduce.is_none()) {
        return Ok(None);
    }
    (rule.check)(args, dtype)?;
    let variant = (rule.variant)(args)?;
    if variant > 1 {
        return Ok(None);
    }
    match second {
        Some(Arg::Tensor(b)) => binary(op, rule, variant, a, b),
        Some(Arg::Number(number)) => unary(op, rule, variant, a, Some(*number)),
        _ => unary(op, rule, variant, a, None),
    }
}

/// `a op b`, for a variant of the row that has a slot of its own (0 or 1); nothing if it has to take the ordinary road.
#[inline]
pub(crate) fn binary(
    op: &'static Op,
    rule: &'static Elementwise,
    variant: u8,
    a: &Tensor,
    b: &Tensor,
) -> Result<Option<Tensor>> {
    let Some(records) = mode::records_plainly() else { return Ok(None) };
    let records = records && (a.records_gradient()? | b.records_gradient()?);
    let spec = |dtype: DType| {
        let key = || key(smallvec![Given::Tensor(dtype); 2], variant, dtype);
        rule.common(op, slot(variant, false, dtype), key)
    };
    if a.is(b) {
        let state = a.state();
        let body = &state.body;
        let Some(n) = plain(body) else { return Ok(None) };
        let spec = spec(body.dtype);
        let sources = [guarded(body), guarded(body)];
        let Some(storage) = compute(spec, n, body.dtype, &sources, &[])? else { return Ok(None) };
        drop(sources);
        return finish(spec, records, &[(a, &state), (a, &state)], &[], storage);
    }
    let ascending = a.id() < b.id();
    let (mut low, mut high) = if ascending { (a.state(), b.state()) } else { (b.state(), a.state()) };
    let (x, y): (&mut State, &mut State) = if ascending { (&mut low, &mut high) } else { (&mut high, &mut low) };
    let alike = x.body.dtype == y.body.dtype && x.body.layout.sizes == y.body.layout.sizes;
    if !(alike && y.body.layout.is_contiguous()) {
        return Ok(None);
    }
    let Some(n) = plain(&x.body) else { return Ok(None) };
    let dtype = x.body.dtype;
    let spec = spec(dtype);
    let Some(storage) = compute(spec, n, dtype, &[source(x), source(y)], &[])? else { return Ok(None) };
    finish(spec, records, &[(a, x), (b, y)], &[], storage)
}

/// `op a`, or `a op number`; as [`binary`].
#[inline]
pub(crate) fn unary(
    op: &'static Op,
    rule: &'static Elementwise,
    variant: u8,
    a: &Tensor,
    number: Option<Scalar>,
) -> Result<Option<Tensor>> {
    let Some(records) = mode::records_plainly() else { return Ok(None) };
    let records = records && a.records_gradient()?;
    let mut state = a.state();
    let Some(n) = plain(&state.body) else { return Ok(None) };
    let dtype = state.body.dtype;
    let key = || {
        let given = [Some(Given::Tensor(dtype)), number.map(|_| Given::Number)];
        key(given.into_iter().flatten().collect(), variant, dtype)
    };
    let spec = rule.common(op, slot(variant, number.is_some(), dtype), key);
    let scalars = number.as_slice();
    let Some(storage) = compute(spec, n, dtype, &[source(&mut state)], scalars)? else { return Ok(None) };
    finish(spec, records, &[(a, &state)], scalars, storage)
}

/// The specialisation's place with its row, for operands of one float dtype and perhaps a number behind them.
#[inline]
pub(super) fn slot(variant: u8, number: bool, dtype: DType) -> usize {
    (variant as usize) << 2 | (number as usize) << 1 | (dtype == DType::F64) as usize
}

fn key(operands: SmallVec<[Given; 4]>, variant: u8, common: DType) -> Key {
    Key { operands, numbers: 0, variant, common, averaged: false }
}

/// The number of elements of a body that is small and whose memory is what kernels of its type work on.
#[inline]
pub(super) fn plain(body: &Body) -> Option<usize> {
    let plain = matches!(body.dtype, DType::F32 | DType::F64) && body.layout.is_contiguous();
    if plain { Some(body.layout.numel()).filter(|n| *n <= SMALL) } else { None }
}

/// The values of a tensor whose state is locked; nothing if somebody is writing them. Where nobody else can reach them no
/// guard is needed: who wants a snapshot of the body waits for the lock that we hold.
#[inline]
fn source(state: &mut State) -> Option<Source<'_>> {
    if Arc::strong_count(&state.body) == 1 && state.body.storage.is_unique() {
        let body = Arc::get_mut(&mut state.body)?;
        return Source::alone(&mut body.storage, body.layout.offset, body.layout.numel(), body.dtype);
    }
    guarded(&state.body)
}

/// The values of a body; nothing if somebody is writing them.
#[inline]
pub(super) fn guarded(body: &Body) -> Option<Source<'_>> {
    Source::guarded(&body.storage, body.layout.offset, body.layout.numel(), body.dtype)
}

/// Runs a program of one result, of the operands' dtype.
#[inline]
fn compute(
    spec: &Spec,
    n: usize,
    dtype: DType,
    inputs: &[Option<Source<'_>>],
    scalars: &[Scalar],
) -> Result<Option<Storage>> {
    if spec.outputs[0] != dtype || !spec.differentiable {
        return Ok(None);
    }
    let mut storage = Storage::uninit(spec.op, n * dtype.size())?;
    let ran = spec.executable.run_small(n, inputs, scalars, &mut [Sink::new(&mut storage, n, dtype)]);
    Ok(ran.then_some(storage))
}

/// The result, with its history; the operands' states are still locked.
#[inline]
fn finish(
    spec: &'static Spec,
    records: bool,
    operands: &[(&Tensor, &State)],
    scalars: &[Scalar],
    storage: Storage,
) -> Result<Option<Tensor>> {
    let like = &operands[0].1.body;
    let Layout { sizes, strides, .. } = &like.layout;
    let layout = Layout { sizes: sizes.clone(), strides: strides.clone(), offset: 0 };
    let out = Arc::new(Body::new(storage, layout, like.dtype));
    if records {
        if operands.iter().any(|(t, _)| t.is_inference()) {
            return Ok(None);
        }
        return Ok(record_quick(spec, operands, scalars, out));
    }
    let out = Tensor::from_shared(out);
    if mode::is_inference_mode() {
        out.mark_inference();
    }
    Ok(Some(out))
}

/// Above this size in bytes an allocation costs little beside the work.
const REUSED: usize = 64;

/// Puts a gradient's values aside, so that its memory can take those of the next gradient: what the engine hands from node
/// to node is often seen by nobody else. Nothing if others can reach it, if it is not small, or does not fit.
#[inline]
pub(super) fn reuse<'a>(
    grad: &'a mut Tensor,
    values: &mut [u64; REUSED / 8],
    fits: impl FnOnce(&Body) -> bool,
) -> Option<Sink<'a>> {
    let body = Arc::get_mut(&mut grad.state_mut()?.body)?;
    if !fits(body) || body.layout.offset != 0 {
        return None;
    }
    let (n, dtype) = (body.layout.numel(), body.dtype);
    if !body.storage.copy_out(n * dtype.size(), values) {
        return None;
    }
    Sink::new(&mut body.storage, n, dtype)
}
