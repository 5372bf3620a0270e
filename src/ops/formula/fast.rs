//! The fast path of small calls: one or two tensors of one float dtype and shape, plain in memory, go from the operator to
//! the kernel without binding, promotion, broadcasting or waiting. Whatever is not like that takes the ordinary road.

use super::node::record_quick;
use super::spec::{Elementwise, Given, Key, Spec};
use crate::autograd::mode;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::op::Op;
use crate::scalar::Scalar;
use crate::storage::{Reading, Storage};
use crate::tensor::{Body, State, Tensor};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The most elements for which locks are held while the kernel runs.
const SMALL: usize = 1 << 14;

/// `a op b`; nothing if it has to take the ordinary road.
#[inline]
pub(crate) fn binary(op: &'static Op, rule: &'static Elementwise, a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
    let records = mode::is_grad_enabled() && (a.requires_grad() | b.requires_grad());
    let same = a.is(b);
    let ascending = a.id() <= b.id();
    let first = if ascending { a } else { b }.state();
    let second = if same { None } else { Some(if ascending { b } else { a }.state()) };
    let second_or_same = second.as_deref().unwrap_or(&first);
    let (x, y): (&State, &State) = if ascending { (&first, second_or_same) } else { (second_or_same, &first) };
    let dtype = x.body.dtype;
    if !(is_plain(&x.body) && is_plain(&y.body) && dtype == y.body.dtype && x.body.layout.sizes == y.body.layout.sizes) {
        return Ok(None);
    }
    let key =
        || Key { operands: smallvec![Given::Tensor(dtype); 2], numbers: 0, variant: 0, common: dtype, averaged: false };
    let spec = rule.common(op, (dtype == DType::F64) as usize, key);
    let (Some(reading_x), Some(reading_y)) = (reading(x), reading(y)) else { return Ok(None) };
    let Some(out) = compute(spec, &x.body, &[first_byte(&x.body), first_byte(&y.body)], &[])? else { return Ok(None) };
    drop((reading_x, reading_y));
    if !records {
        return Ok(Some(unrecorded(out)));
    }
    record_quick(spec, &[(a, x), (b, y)], &[], out).map(Some)
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
    let state = a.state();
    let x: &State = &state;
    if !is_plain(&x.body) {
        return Ok(None);
    }
    let dtype = x.body.dtype;
    let key = || Key {
        operands: smallvec![Given::Tensor(dtype), Given::Number],
        numbers: 0,
        variant: 0,
        common: dtype,
        averaged: false,
    };
    let spec = rule.common(op, 2 | (dtype == DType::F64) as usize, key);
    let Some(reading) = reading(x) else { return Ok(None) };
    let Some(out) = compute(spec, &x.body, &[first_byte(&x.body)], &[number])? else { return Ok(None) };
    drop(reading);
    if !records {
        return Ok(Some(unrecorded(out)));
    }
    record_quick(spec, &[(a, x)], &[number], out).map(Some)
}

/// Whether a body is small, and its memory is what kernels of its type work on.
#[inline]
pub(super) fn is_plain(body: &Body) -> bool {
    matches!(body.dtype, DType::F32 | DType::F64)
        && body.layout.is_contiguous()
        && body.layout.numel() <= SMALL
        && !body.storage.is_foreign()
}

#[inline]
pub(super) fn first_byte(body: &Body) -> *const u8 {
    body.storage.ptr().wrapping_add(body.layout.offset * body.dtype.size())
}

/// The right to read a tensor whose state is locked: none is needed where nobody else can reach the memory. Nothing if
/// somebody is writing it.
#[inline]
fn reading(state: &State) -> Option<Option<Reading<'_>>> {
    // Who wants a snapshot of the body waits for the lock that we hold.
    if Arc::strong_count(&state.body) == 1 && state.body.storage.is_unique() {
        // What the last other owner wrote is seen.
        fence(Ordering::Acquire);
        return Some(None);
    }
    Reading::try_take(&state.body.storage).map(Some)
}

/// Runs the program on operands of the shape of `like`.
#[inline]
fn compute(spec: &Spec, like: &Body, inputs: &[*const u8], scalars: &[Scalar]) -> Result<Option<Arc<Body>>> {
    let dtype = like.dtype;
    if spec.outputs[0] != dtype {
        return Ok(None);
    }
    let n = like.layout.numel();
    let storage = Storage::uninit(spec.op, n * dtype.size())?;
    // SAFETY: the operands are plain, of this dtype, and may be read (see `reading`); the output was just allocated.
    if !unsafe { spec.executable.run_plain(n, inputs, scalars, &[storage.ptr()]) } {
        return Ok(None);
    }
    let mut layout = like.layout.clone();
    layout.offset = 0;
    Ok(Some(Arc::new(Body::new(storage, layout, dtype))))
}

#[inline]
fn unrecorded(out: Arc<Body>) -> Tensor {
    let out = Tensor::from_shared(out);
    if mode::is_inference_mode() {
        out.mark_inference();
    }
    out
}

/// A gradient's own memory as the place of the next gradient: what the engine hands from node to node is often seen by
/// nobody else, and may be overwritten.
pub(super) struct Reused {
    bytes: [u64; Reused::BYTES / 8],
    to: *mut u8,
}

impl Reused {
    /// Above this size an allocation costs little beside the work.
    const BYTES: usize = 64;

    /// The memory of a plain gradient, if it is small and nobody else can reach it; its values are put aside.
    #[inline]
    pub(super) fn of(grad: &mut Tensor) -> Option<Reused> {
        let state = grad.state_mut()?;
        let body = Arc::get_mut(&mut state.body)?;
        let bytes = body.layout.numel() * body.dtype.size();
        if bytes > Reused::BYTES || !body.storage.is_unique() || body.layout.offset != 0 {
            return None;
        }
        fence(Ordering::Acquire);
        let to = body.storage.ptr();
        let mut reused = Reused { bytes: [0; Reused::BYTES / 8], to };
        // SAFETY: `bytes` bytes of memory that only we can reach, to a buffer of at least that size.
        unsafe { std::ptr::copy_nonoverlapping(to, reused.bytes.as_mut_ptr().cast(), bytes) };
        Some(reused)
    }

    /// Where the values are read from.
    #[inline]
    pub(super) fn from(&self) -> *const u8 {
        self.bytes.as_ptr().cast()
    }

    /// Where the new values go.
    #[inline]
    pub(super) fn to(&self) -> *mut u8 {
        self.to
    }
}

/// Guards on saved values, taken without waiting; nothing if one is being written.
#[inline]
pub(super) fn read_all<'a>(bodies: impl Iterator<Item = &'a Body>) -> Option<SmallVec<[Reading<'a>; 3]>> {
    let mut held = SmallVec::new();
    for body in bodies {
        held.push(Reading::try_take(&body.storage)?);
    }
    Some(held)
}
