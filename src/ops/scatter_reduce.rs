//! `scatter_reduce`: elements brought together by index and summed, multiplied, averaged, or the extreme one taken.

use super::address::{at_least_1d, converted, fresh};
use super::apply;
use super::args::{Arg, Args, Read};
use super::copy;
use super::op::Rule::Structured as S;
use super::op::{FUNCTION, INPLACE, METHOD, OUT, Outputs, op};
use super::scatter::{Scatter, combine, prepare, run, source_grad};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::backend::cpu::index::Combine;
use crate::dtype::{Category, DType};
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;
use std::sync::Arc;

const OP: &str = "scatter_reduce";

/// What the elements of one place become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Sum,
    Prod,
    Mean,
    Max,
    Min,
}

fn how(name: &str) -> Result<How> {
    Ok(match name {
        "sum" => How::Sum,
        "prod" => How::Prod,
        "mean" => How::Mean,
        "amax" => How::Max,
        "amin" => How::Min,
        other => bail!(runtime OP, "reduce argument must be either sum, prod, mean, amax or amin, got {other}"),
    })
}

impl How {
    fn combine(self) -> Combine {
        match self {
            How::Sum | How::Mean => Combine::Add,
            How::Prod => Combine::Mul,
            How::Max => Combine::Max,
            How::Min => Combine::Min,
        }
    }

    /// What changes nothing when it is combined.
    fn neutral(self, dtype: DType) -> Scalar {
        let bits = 8 * dtype.size() as u32;
        let (low, high) = match (dtype, dtype.category()) {
            (_, Category::Float) => (Scalar::Float(f64::NEG_INFINITY), Scalar::Float(f64::INFINITY)),
            (_, Category::Bool) => (Scalar::Bool(false), Scalar::Bool(true)),
            (DType::U8, _) => (Scalar::Int(0), Scalar::Int(255)),
            _ => (Scalar::Int(i64::MIN >> (64 - bits)), Scalar::Int(i64::MAX >> (64 - bits))),
        };
        match self {
            How::Sum | How::Mean => Scalar::Int(0),
            How::Prod => Scalar::Int(1),
            How::Max => low,
            How::Min => high,
        }
    }
}

/// One element for all places of a scatter.
fn uniform(s: &Scatter, value: Scalar, dtype: DType) -> Result<Scatter> {
    let from = super::full(&[], value, dtype)?.body();
    let from_layout = super::address::everywhere(&from.layout, &s.from_layout.sizes);
    Ok(Scatter { dim: s.dim, index: s.index.clone(), from, from_layout })
}

/// How many elements meet at each place, at least 1, in the shape of `like`.
fn members(s: &Scatter, like: &Body, include_self: bool) -> Result<Body> {
    let counts = super::full(&like.layout.sizes, Scalar::Int(include_self as i64), DType::I64)?;
    combine(OP, &counts.body(), uniform(s, Scalar::Int(1), DType::I64)?, Combine::Add, false)?;
    let counts = if include_self { counts } else { counts.clamp_min(Scalar::Int(1))? };
    Ok((*counts.body()).clone())
}

fn forward(a: &Args) -> Result<Outputs> {
    let how = how(a.str(4))?;
    let include_self = a.bool(5);
    let input = a.tensor(0)?.body();
    let Some(s) = prepare(OP, &input, a)? else {
        return Ok(smallvec![Tensor::from_shared(copy::duplicate(OP, &input)?)]);
    };
    // Half types are summed and divided in float32, and rounded once.
    let dtype = if input.dtype.is_half() { DType::F32 } else { input.dtype };
    let out = fresh(OP, &input.layout.sizes, dtype)?;
    copy::convert(OP, &input, &out)?;
    let part = Arc::new(s.from.with_layout(s.from_layout.clone()));
    let from = converted(OP, part, dtype)?;
    let s = Scatter { from_layout: at_least_1d(&from.layout), from, ..s };
    if !include_self {
        run(OP, &out, &uniform(&s, how.neutral(dtype), dtype)?, None, false)?;
    }
    run(OP, &out, &s, Some(how.combine()), false)?;
    let mut result = Tensor::from_body(out.clone());
    if how == How::Mean {
        let counts = Tensor::from_body(members(&s, &out, include_self)?);
        let counts = super::to_dtype(&counts, dtype)?;
        result = if dtype.is_float() { result.true_divide(&counts)? } else { result.div_floor(&counts)? };
    }
    Ok(smallvec![super::to_dtype(&result, input.dtype)?])
}

/// A gradient that reaches the first operand: all of it, or only where nothing was brought.
fn kept(c: &Context<'_>, g: &Tensor) -> Result<Tensor> {
    if c.bool(5) { Ok(g.clone()) } else { g.scatter_value(c.int(1)?, c.index(2)?, Scalar::Int(0)) }
}

fn backward(c: &Context<'_>) -> Result<Grads> {
    let Some(grad) = c.grad(0) else { return Ok(smallvec![None, None]) };
    match how(c.str(4))? {
        How::Sum => Ok(smallvec![c.when(0, |g| kept(c, g))?, c.when(1, |g| source_grad(c, g))?]),
        How::Mean => {
            let counts = counts(c, &grad)?;
            let share = grad.true_divide(&counts)?;
            let own = if c.needs(0) { Some(kept(c, &share)?) } else { None };
            Ok(smallvec![own, c.when(1, |_| source_grad(c, &share))?])
        }
        How::Max | How::Min => extreme_backward(c, &grad),
        How::Prod => product_backward(c, &grad),
    }
}

/// How many elements met at each place, as PyTorch divides by: the result is a constant.
fn counts(c: &Context<'_>, like: &Tensor) -> Result<Tensor> {
    let index = c.index(2)?;
    let start = super::full(&like.sizes(), Scalar::Int(c.bool(5) as i64), like.dtype())?;
    let ones = super::full(&index.sizes(), Scalar::Int(1), like.dtype())?;
    let counts = start.scatter_add(c.int(1)?, index, ones)?;
    if c.bool(5) { Ok(counts) } else { counts.clamp_min(Scalar::Int(1)) }
}

/// Each of the elements that are the extreme one gets an equal share.
fn extreme_backward(c: &Context<'_>, grad: &Tensor) -> Result<Grads> {
    let (dim, index) = (c.int(1)?, c.index(2)?);
    let (own, source, result) = (c.input(0)?.detach(), c.input(1)?.detach(), c.output(0)?.detach());
    let dtype = grad.dtype();
    let own_is = super::to_dtype(&own.eq(&result)?, dtype)?;
    let source_is = super::to_dtype(&corner(&source, &index.sizes())?.eq(result.gather(dim, &index)?)?, dtype)?;
    let winners = own_is.scatter_add(dim, &index, &source_is)?;
    let share = grad.true_divide(&winners)?;
    let to_own = if c.needs(0) { Some(kept(c, &share.mul(&own_is)?)?) } else { None };
    let to_source = if c.needs(1) {
        let part = share.gather(dim, &index)?.mul(&source_is)?;
        Some(super::address::filled_up(&part, c.sizes(1))?)
    } else {
        None
    };
    Ok(smallvec![to_own, to_source])
}

/// The product of the others, without dividing by zero: where an element is the only zero of its place, the product is
/// taken again with 1 in its stead.
fn product_backward(c: &Context<'_>, grad: &Tensor) -> Result<Grads> {
    let (dim, index, include_self) = (c.int(1)?, c.index(2)?, c.bool(5));
    let (own, whole, result) = (c.input(0)?, c.input(1)?, c.output(0)?);
    let source = corner_of(&whole, &index.sizes())?;
    let again = |own: &Tensor, source: &Tensor| -> Result<Tensor> {
        let args: Args = smallvec![
            Arg::Tensor(own.clone()),
            Arg::Int(dim),
            Arg::Tensor(index.clone()),
            Arg::Tensor(source.clone()),
            Arg::Str("prod".into()),
            Arg::Bool(include_self),
        ];
        apply::call_into(&SCATTER_REDUCE, args)
    };
    let to_own = if c.needs(0) {
        let others = own.masked_fill(own.detach().eq(Scalar::Int(0))?, Scalar::Int(1))?;
        Some(kept(c, &grad.mul(&again(&others, &source)?)?.true_divide(&others)?)?)
    } else {
        None
    };
    let to_source = if c.needs(1) {
        let is_zero = source.detach().eq(Scalar::Int(0))?;
        let zeros = super::to_dtype(&is_zero, grad.dtype())?;
        let met = super::zeros(&grad.sizes(), grad.dtype())?.scatter_add(dim, &index, &zeros)?.gather(dim, &index)?;
        let alone = is_zero.logical_and(&met.eq(Scalar::Int(1))?)?;
        let without = again(&own, &source.masked_fill(&alone, Scalar::Int(1))?)?;
        let for_zero = grad.mul(&without)?.gather(dim, &index)?;
        let filled = source.masked_fill(&is_zero, Scalar::Int(1))?;
        let for_others = grad.mul(&result)?.gather(dim, &index)?.true_divide(&filled)?;
        let part = Tensor::where_(&alone, &for_zero, &for_others)?;
        Some(super::address::filled_up(&part, c.sizes(1))?)
    } else {
        None
    };
    Ok(smallvec![to_own, to_source])
}

/// The part of a source that indices of that shape read; differentiable.
fn corner_of(source: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    let mut part = source.clone();
    for (d, &size) in sizes.iter().enumerate() {
        if part.sizes()[d] != size {
            part = part.slice(d as i64, 0, size as i64, 1)?;
        }
    }
    Ok(part)
}

/// As [`corner_of`], unrecorded.
fn corner(source: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    corner_of(&source.detach(), sizes)
}

op! {
    /// Brings elements of `src` together by index, as [`scatter_add`](Tensor::scatter_add) does, and reduces them:
    /// `reduce` is `"sum"`, `"prod"`, `"mean"`, `"amax"` or `"amin"`. What stood at a place takes part if `include_self`;
    /// places to which nothing is brought keep what they had. Half types are computed in float32 and rounded once.
    ///
    /// # Errors
    /// As `scatter`, and `RuntimeError` for another `reduce`.
    SCATTER_REDUCE scatter_reduce(self, dim: Int, index: Index, src: Tensor, reduce: Str; include_self: Bool = true) -> Tensor = "ScatterReduceBackward0", METHOD | FUNCTION | INPLACE | OUT,
        S(Structured {
            forward,
            backward: Some(backward),
            saves: &[Save::Input(0), Save::Input(1), Save::Index(2), Save::Output(0)],
        }),
        |s| {
            let mut all = Vec::new();
            for reduce in ["sum", "prod", "mean", "amax", "amin"] {
                for include in [true, false] {
                    let index = s.ints(&[2, 5], 0, 4);
                    all.push(smallvec![
                        Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Tensor(index), Arg::Tensor(s.t(&[2, 6])),
                        Arg::Str(reduce.into()), Arg::Bool(include),
                    ]);
                }
            }
            all
        };
}
