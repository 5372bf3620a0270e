//! The fast path of small calls: one or two tensors of one float dtype and shape, plain in memory, go from the operator to
//! the kernel without binding, promotion, broadcasting or waiting. Whatever is not like that takes the ordinary road.

use super::node::record_quick;
use super::spec::{Elementwise, Given, Key, Spec};
use crate::autograd::mode;
use crate::backend::{Sink, Source};
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::op::Op;
use crate::scalar::Scalar;
use crate::shape::Layout;
use crate::storage::Storage;
use crate::tensor::{Body, State, Tensor};
use smallvec::smallvec;
use std::sync::Arc;

/// The most elements for which locks are held while the kernel runs.
const SMALL: usize = 1 << 14;

/// `a op b`; nothing if it has to take the ordinary road.
#[inline]
pub(crate) fn binary(op: &'static Op, rule: &'static Elementwise, a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
    let records = mode::is_grad_enabled() && (a.requires_grad() | b.requires_grad());
    let spec = |dtype: DType| {
        let operands = || smallvec![Given::Tensor(dtype); 2];
        rule.common(op, (dtype == DType::F64) as usize, || key(operands(), dtype))
    };
    if a.is(b) {
        let state = a.state();
        let body = &state.body;
        if !is_plain(body) {
            return Ok(None);
        }
        let spec = spec(body.dtype);
        let sources = [guarded(body), guarded(body)];
        let Some(storage) = compute(spec, body.layout.numel(), body.dtype, &sources, &[])? else { return Ok(None) };
        drop(sources);
        return finish(spec, records, &[(a, &state), (a, &state)], &[], storage);
    }
    let ascending = a.id() < b.id();
    let (mut low, mut high) = if ascending { (a.state(), b.state()) } else { (b.state(), a.state()) };
    let (x, y): (&mut State, &mut State) = if ascending { (&mut low, &mut high) } else { (&mut high, &mut low) };
    let alike = x.body.dtype == y.body.dtype && x.body.layout.sizes == y.body.layout.sizes;
    if !(alike && is_plain(&x.body) && is_plain(&y.body)) {
        return Ok(None);
    }
    let (n, dtype) = (x.body.layout.numel(), x.body.dtype);
    let spec = spec(dtype);
    let Some(storage) = compute(spec, n, dtype, &[source(x), source(y)], &[])? else { return Ok(None) };
    finish(spec, records, &[(a, x), (b, y)], &[], storage)
}

/// `a op number`; nothing if it has to take the ordinary road.
#[inline]
pub(crate) fn with_number(
    op: &'static Op,
    rule: &'static Elementwise,
    a: &Tensor,
    number: Scalar,
) -> Result<Option<Tensor>> {
    let records = mode::is_grad_enabled() && a.requires_grad();
    let mut state = a.state();
    if !is_plain(&state.body) {
        return Ok(None);
    }
    let (n, dtype) = (state.body.layout.numel(), state.body.dtype);
    let operands = || smallvec![Given::Tensor(dtype), Given::Number];
    let spec = rule.common(op, 2 | (dtype == DType::F64) as usize, || key(operands(), dtype));
    let Some(storage) = compute(spec, n, dtype, &[source(&mut state)], &[number])? else { return Ok(None) };
    finish(spec, records, &[(a, &state)], &[number], storage)
}

fn key(operands: smallvec::SmallVec<[Given; 4]>, common: DType) -> Key {
    Key { operands, numbers: 0, variant: 0, common, averaged: false }
}

/// Whether a body is small, and its memory is what kernels of its type work on.
#[inline]
pub(super) fn is_plain(body: &Body) -> bool {
    matches!(body.dtype, DType::F32 | DType::F64) && body.layout.is_contiguous() && body.layout.numel() <= SMALL
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
    if spec.outputs[0] != dtype {
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
        return record_quick(spec, operands, scalars, out).map(Some);
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
