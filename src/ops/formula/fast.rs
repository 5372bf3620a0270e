//! The operators' fast path: two tensors of one float dtype and shape, or a tensor and a number, go from the operator to
//! the kernel without binding, promotion or broadcasting. Everything else takes the ordinary road.

use super::node::quick_node;
use super::run::execute;
use super::spec::{Elementwise, Given, Key, Spec};
use crate::autograd::mode;
use crate::autograd::node::Edge;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::apply;
use crate::ops::args::{Arg, Args};
use crate::ops::op::Op;
use crate::scalar::Scalar;
use crate::storage::Storage;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;
use std::sync::Arc;

/// `a op b`.
#[inline]
pub(crate) fn binary(op: &'static Op, rule: &'static Elementwise, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (x, y) = (a.body(), b.body());
    let plain = x.dtype == y.dtype
        && matches!(x.dtype, DType::F32 | DType::F64)
        && x.layout.sizes == y.layout.sizes
        && x.layout.is_contiguous()
        && y.layout.is_contiguous();
    if !plain {
        let args: Args = smallvec![Arg::Tensor(a.clone()), Arg::Tensor(b.clone())];
        return apply::call_into(op, args);
    }
    let dtype = x.dtype;
    let key =
        || Key { operands: smallvec![Given::Tensor(dtype); 2], numbers: 0, variant: 0, common: dtype, averaged: false };
    let spec = rule.common_ref(op, (dtype == DType::F64) as usize, key);
    let records = mode::is_grad_enabled() && (a.requires_grad() || b.requires_grad());
    let bodies = [x, y];
    let out = compute(spec, &bodies, &[])?;
    finish(spec, records, &[a, b], &bodies, &[], out)
}

/// `a op number`.
#[inline]
pub(crate) fn binary_number(op: &'static Op, rule: &'static Elementwise, a: &Tensor, number: Scalar) -> Result<Tensor> {
    let x = a.body();
    if !(matches!(x.dtype, DType::F32 | DType::F64) && x.layout.is_contiguous()) {
        let args: Args = smallvec![Arg::Tensor(a.clone()), Arg::Number(number)];
        return apply::call_into(op, args);
    }
    let dtype = x.dtype;
    let key = || Key {
        operands: smallvec![Given::Tensor(dtype), Given::Number],
        numbers: 0,
        variant: 0,
        common: dtype,
        averaged: false,
    };
    let spec = rule.common_ref(op, 2 | (dtype == DType::F64) as usize, key);
    let records = mode::is_grad_enabled() && a.requires_grad();
    let bodies = [x];
    let out = compute(spec, &bodies, &[number])?;
    finish(spec, records, &[a], &bodies, &[number], out)
}

/// Runs the program on operands of one contiguous shape.
#[inline]
fn compute(spec: &Spec, bodies: &[Arc<Body>], scalars: &[Scalar]) -> Result<Body> {
    let (layout, dtype) = (&bodies[0].layout, spec.outputs[0]);
    let storage = Storage::uninit(spec.op, layout.numel() * dtype.size())?;
    let mut layout = layout.clone();
    layout.offset = 0;
    let out = Body::new(storage, layout, dtype);
    execute(spec, &bodies[0].layout.sizes, bodies, scalars, std::slice::from_ref(&out))?;
    Ok(out)
}

#[inline]
fn finish(
    spec: &Arc<Spec>,
    records: bool,
    tensors: &[&Tensor],
    bodies: &[Arc<Body>],
    scalars: &[Scalar],
    out: Body,
) -> Result<Tensor> {
    let out = Arc::new(out);
    if records {
        let node = quick_node(spec, tensors, bodies, scalars, &out)?;
        return Ok(Tensor::with_edge(out, Edge::new(node, 0)));
    }
    let out = Tensor::from_shared(out);
    if mode::is_inference_mode() {
        out.mark_inference();
    }
    Ok(out)
}
