//! Reductions that combine elements: sums, means, products, extremes, truth. A reduction is a Program whose values are
//! combined while they are stored; where a value stands (`argmax`), order statistics, moments and norms have files of
//! their own.

use super::args::{Arg, Args, Read, kinds};
use super::formula::{Elementwise, Reduced};
use super::op::Rule::{Composite as C, Elementwise as E, Structured as S};
use super::op::{FUNCTION, METHOD, OUT, Outputs, SPECIAL, op};
use super::structured::{Context, Save, Structured};
use crate::autograd::mode;
use crate::autograd::node::Grads;
use crate::backend::{Executable, Operand, Reduce};
use crate::dtype::{Category, Compute, DType};
use crate::error::{Result, bail};
use crate::program::{Sym, trace};
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout, checked_numel, numel, wrap_dim, wrap_dims};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor, default_dtype};
use smallvec::{SmallVec, smallvec};
use std::sync::{Arc, OnceLock};

/// One Program per compute type of its operands, traced on first use.
pub(super) struct PerType([OnceLock<Executable>; 4]);

impl PerType {
    pub(super) const fn new() -> PerType {
        PerType([const { OnceLock::new() }; 4])
    }

    /// The Program of `formula` over inputs of the given types.
    pub(super) fn get(
        &self,
        key: Compute,
        inputs: &[Compute],
        scalars: &[Compute],
        formula: fn(&[Sym], &[Sym]) -> Sym,
    ) -> &Executable {
        self.with(key, inputs, scalars, formula)
    }

    /// [`get`](Self::get) for a formula that is always the same though its type does not say so.
    pub(super) fn with(
        &self,
        key: Compute,
        inputs: &[Compute],
        scalars: &[Compute],
        formula: impl FnOnce(&[Sym], &[Sym]) -> Sym,
    ) -> &Executable {
        self.0[key as usize].get_or_init(|| Executable::new(trace(inputs, scalars, |x, s| vec![formula(x, s)])))
    }
}

/// Fresh memory of a shape.
pub(super) fn fresh(op: &'static str, sizes: Dims, dtype: DType) -> Result<Body> {
    let n = checked_numel(op, &sizes)?;
    Ok(Body::new(Storage::uninit(op, n * dtype.size())?, Layout::contiguous(sizes), dtype))
}

/// A tensor's elements row-major: its own body, or that of a copy.
pub(super) fn row_major(op: &'static str, t: &Tensor) -> Result<Arc<Body>> {
    let body = t.body();
    if body.layout.is_contiguous() { Ok(body) } else { super::contiguous(op, &body) }
}

/// Runs a Program over `sizes` into fresh memory of shape `to`, combining values that fall together.
pub(super) fn run(
    op: &'static str,
    program: &Executable,
    sizes: &[usize],
    inputs: &[&Body],
    scalars: &[Scalar],
    (to, dtype): (Dims, DType),
    how: Reduce,
) -> Result<Body> {
    let out = fresh(op, to, dtype)?;
    let inputs: SmallVec<[Operand<'_>; 4]> = inputs.iter().map(|b| b.operand()).collect();
    program.run(op, sizes, &inputs, scalars, &[out.operand()], how)?;
    Ok(out)
}

/// Sizes with the given dimensions reduced to 1.
pub(super) fn aligned(sizes: &[usize], dims: &[usize]) -> Dims {
    sizes.iter().enumerate().map(|(d, &s)| if dims.contains(&d) { 1 } else { s }).collect()
}

/// A reduced result of aligned shape as the caller wants it: with the reduced dimensions or without.
pub(super) fn finish(aligned: Body, dims: &[usize], keepdim: bool) -> Tensor {
    if keepdim {
        return Tensor::from_body(aligned);
    }
    let sizes = aligned.layout.sizes.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, &s)| s).collect();
    Tensor::from_body(Body { layout: Layout::contiguous(sizes), ..aligned })
}

/// Reduces dimensions, computing in the compute type of `dtype`, in which the result is.
pub(super) fn reduce(
    op: &'static str,
    body: &Body,
    dims: &[usize],
    keepdim: bool,
    dtype: DType,
    how: Reduce,
) -> Result<Tensor> {
    let sizes = &body.layout.sizes;
    if dims.len() == sizes.len() && !keepdim {
        return total(op, body, dtype, how);
    }
    let out = run(op, reader(body.dtype, dtype), sizes, &[body], &[], (aligned(sizes, dims), dtype), how)?;
    Ok(finish(out, dims, keepdim))
}

/// Reduces all dimensions; see [`reduce`].
pub(super) fn total(op: &'static str, body: &Body, dtype: DType, how: Reduce) -> Result<Tensor> {
    let out = Body::new(Storage::uninit(op, dtype.size())?, Layout::contiguous(Dims::new()), dtype);
    let read = reader(body.dtype, dtype);
    read.run(op, &body.layout.sizes, &[body.operand()], &[], &[out.operand()], how)?;
    Ok(Tensor::from_body(out))
}

/// The Program that reads values of one dtype as another's compute type.
fn reader(from: DType, to: DType) -> &'static Executable {
    static READS: [[OnceLock<Executable>; 4]; 4] = [const { [const { OnceLock::new() }; 4] }; 4];
    let (from, to) = (from.compute(), to.compute());
    READS[from as usize][to as usize].get_or_init(|| Executable::new(trace(&[from], &[], |x, _| vec![x[0].cast(to)])))
}

/// The dtype of a sum: that asked for, int64 for integers, else the input's.
pub(super) fn sum_dtype(input: DType, asked: Option<DType>) -> DType {
    asked.unwrap_or(if input.category() == Category::Float { input } else { DType::I64 })
}

/// A gradient (or any reduced result) with the reduced dimensions put back as 1.
pub(super) fn align(t: &Tensor, sizes: &[usize], dims: &[usize], keepdim: bool) -> Result<Tensor> {
    if keepdim || sizes.is_empty() { Ok(t.clone()) } else { t.reshape(&aligned(sizes, dims)) }
}

/// A gradient of a reduced result, seen in the shape of the input and in its dtype: dimensions put back, then expanded.
pub(super) fn restore(grad: &Tensor, sizes: &[usize], dims: &[usize], keepdim: bool, dtype: DType) -> Result<Tensor> {
    spread(&align(grad, sizes, dims, keepdim)?, sizes, dtype)
}

/// A gradient expanded to the shape of the input, in its dtype.
fn spread(grad: &Tensor, sizes: &[usize], dtype: DType) -> Result<Tensor> {
    if !mode::is_grad_enabled() {
        // What nobody differentiates needs no history, and a view is nothing but another layout.
        let body = &grad.state().body;
        if body.dtype == dtype {
            let strides = body.layout.broadcast_strides(sizes);
            let layout = Layout { sizes: sizes.into(), strides, offset: body.layout.offset };
            return Ok(Tensor::from_body(body.with_layout(layout)));
        }
    }
    super::to_dtype(grad, dtype)?.expand(ints(sizes))
}

/// Sizes or dimensions as an argument.
pub(super) fn ints(sizes: &[usize]) -> kinds::Ints {
    kinds::Ints(sizes.iter().map(|&s| s as i64).collect())
}

/// The dimensions that argument `i` names, all of them if it is not given or empty.
pub(super) fn dims(op: &'static str, a: &(impl Read + ?Sized), i: usize, rank: usize) -> Result<Dims> {
    match a.arg(i) {
        Arg::Int(d) => wrap_dims(op, &[*d], rank),
        _ => wrap_dims(op, a.opt_ints(i).unwrap_or(&[]), rank),
    }
}

/// Refuses to reduce nothing where the reduction has no identity.
pub(super) fn check_not_empty(op: &'static str, sizes: &[usize], dims: &[usize], named: bool) -> Result<()> {
    let dims: SmallVec<[i64; 6]> = dims.iter().map(|&d| d as i64).collect();
    check_not_empty_as(op, sizes, named.then_some(&dims))
}

/// The same for dimensions as the caller named them, whose numbers the message repeats.
fn check_not_empty_as(op: &'static str, sizes: &[usize], dims: Option<&[i64]>) -> Result<()> {
    if numel(sizes) > 0 {
        return Ok(());
    }
    let Some(dims) = dims else {
        bail!(runtime op, "{op}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.");
    };
    let wrap = |d: i64| if d < 0 { d + sizes.len() as i64 } else { d } as usize;
    if let Some(d) = dims.iter().find(|&&d| sizes.get(wrap(d)) == Some(&0)) {
        bail!(index op, "{op}(): Expected reduction dim {d} to have non-zero size.");
    }
    Ok(())
}

/// The mean over dimensions in `dtype`, aligned: the sum divided once, before half types are rounded.
pub(super) fn average(op: &'static str, t: &Tensor, dims: &[usize], dtype: DType) -> Result<Body> {
    static QUOTIENT: PerType = PerType::new();
    let ty = dtype.compute();
    let sum = reduce(op, &t.body(), dims, true, ty.dtype(), Reduce::Sum)?.body();
    let n = dims.iter().map(|&d| t.sizes()[d]).product::<usize>() as f64;
    let sizes = &sum.layout.sizes;
    let quotient = QUOTIENT.get(ty, &[ty], &[ty], |x, s| x[0] / s[0]);
    run(op, quotient, sizes, &[&sum], &[Scalar::Float(n)], (sizes.clone(), dtype), Reduce::Sum)
}

fn mean(a: &Args, dims: &[usize], keepdim: bool, dtype: Option<DType>) -> Result<Outputs> {
    let t = a.tensor(0)?;
    let dtype = dtype.unwrap_or(t.dtype());
    if !dtype.is_float() {
        let (which, verb) = if t.dtype() == dtype { ("Input", "infer") } else { ("Optional", "use") };
        bail!(runtime "mean", "mean(): could not {verb} output dtype. {which} dtype must be either a floating point or complex dtype. Got: {}", dtype.legacy());
    }
    Ok(smallvec![finish(average("mean", t, dims, dtype)?, dims, keepdim)])
}

/// The gradient of a mean.
fn mean_backward(c: &Context<'_>, dims: &[usize], keepdim: bool) -> Result<Grads> {
    let n = dims.iter().map(|&d| c.sizes(0)[d]).product::<usize>() as f64;
    Ok(smallvec![c.when(0, |g| restore(
        &divide(&super::to_dtype(g, c.dtype(0))?, n)?,
        c.sizes(0),
        dims,
        keepdim,
        c.dtype(0)
    ))?])
}

/// A tensor divided by a number.
pub(super) fn divide(t: &Tensor, by: f64) -> Result<Tensor> {
    super::apply::binary_number(&super::elementwise::DIV, t, Scalar::Float(by))
}

/// A tensor multiplied by a number.
pub(super) fn multiply(t: &Tensor, by: f64) -> Result<Tensor> {
    super::apply::binary_number(&super::elementwise::MUL, t, Scalar::Float(by))
}

/// `amax` and its kin.
fn extreme(
    op: &'static str,
    a: &Args,
    dims: &[usize],
    named: Option<&[i64]>,
    keepdim: bool,
    how: Reduce,
) -> Result<Tensor> {
    let t = a.tensor(0)?;
    check_not_empty_as(op, &t.sizes(), named)?;
    let body = t.body();
    reduce(op, &body, dims, keepdim, body.dtype, how)
}

/// The gradient of an extreme: shared evenly by the elements that equal it. `nan`: whether NaN equals NaN here.
pub(super) fn share(
    c: &Context<'_>,
    grad: Option<Tensor>,
    result: usize,
    dims: &[usize],
    keepdim: bool,
    nan: bool,
) -> Result<Option<Tensor>> {
    let (Some(g), true) = (grad, c.needs(0)) else { return Ok(None) };
    let x = c.input(0)?;
    let sizes = x.sizes();
    let extreme = align(&c.output(result)?, &sizes, dims, keepdim)?.detach();
    let x = x.detach();
    let count = x.count_equal(&extreme, ints(dims), nan)?;
    Ok(Some(align(&g, &sizes, dims, keepdim)?.share_equal(&x, &extreme, &count, nan)?))
}

/// All dimensions of the input of a full reduction.
fn all(rank: usize) -> Dims {
    (0..rank).collect()
}

/// `any` and `all`: truth of elements, combined; uint8 stays uint8.
fn truth(op: &'static str, a: &Args, how: Reduce) -> Result<Outputs> {
    static TRUTH: PerType = PerType::new();
    let body = a.tensor(0)?.body();
    let rank = body.layout.rank();
    let dims = match a.opt_ints(1) {
        // An empty list names no dimension here, unlike for sums.
        Some([]) => Dims::new(),
        Some(list) => wrap_dims(op, list, rank)?,
        None => all(rank),
    };
    let ty = body.dtype.compute();
    let truth = TRUTH.get(ty, &[ty], &[], |x, _| x[0].cast(Compute::Bool));
    let sizes = &body.layout.sizes;
    let out = run(op, truth, sizes, &[&body], &[], (aligned(sizes, &dims), DType::Bool), how)?;
    let out = finish(out, &dims, a.bool(2));
    Ok(smallvec![if body.dtype == DType::U8 { super::to_dtype(&out, DType::U8)? } else { out }])
}

fn logsumexp(a: &Args) -> Result<Outputs> {
    static PEAK: PerType = PerType::new();
    static SUM: PerType = PerType::new();
    static LOG: PerType = PerType::new();
    let op = "logsumexp";
    let t = a.tensor(0)?;
    let t = if t.dtype().is_float() { t.clone() } else { super::to_dtype(t, default_dtype())? };
    let x = t.body();
    let sizes = &x.layout.sizes;
    let dims = dims(op, a, 1, sizes.len())?;
    let to = aligned(sizes, &dims);
    let ty = x.dtype.compute();
    let wide = ty.dtype();
    let peak = PEAK.get(ty, &[ty], &[], |x, _| x[0]);
    let peak = run(op, peak, sizes, &[&x], &[], (to.clone(), wide), Reduce::Max)?;
    // An infinite peak is not subtracted: inf - inf would be NaN.
    fn finite(peak: Sym) -> Sym {
        Sym::select(peak.abs().eq(peak.literal(f64::INFINITY)), peak.zero(), peak)
    }
    let sum = SUM.get(ty, &[ty, ty], &[], |x, _| (x[0] - finite(x[1])).exp());
    let sum = run(op, sum, sizes, &[&x, &peak], &[], (to.clone(), wide), Reduce::Sum)?;
    let log = LOG.get(ty, &[ty, ty], &[], |x, _| x[0].log() + finite(x[1]));
    let out = run(op, log, &to, &[&sum, &peak], &[], (to.clone(), x.dtype), Reduce::Sum)?;
    Ok(smallvec![finish(out, &dims, a.bool(2))])
}

/// The index space of a row with a list of dimensions as argument `i`, which are kept as 1.
pub(super) fn over_dims(a: &Args, sizes: &[usize], i: usize) -> Result<Option<Reduced>> {
    let dims: Dims = a.ints(i)?.iter().map(|&d| d as usize).collect();
    Ok(Some(Reduced::over(sizes, &dims, true)))
}

fn equal(x: Sym, y: Sym, variant: u8) -> Sym {
    let same = x.eq(y);
    if variant == 0 { same } else { same.or(x.is_nan().and(y.is_nan())) }
}

op! {
    /// The sum of all elements, pairwise. Integers and bools sum to int64 unless `dtype` says otherwise; half types
    /// accumulate in float32.
    SUM_ALL sum_all as "sum"(self; dtype: OptDType = None) -> Tensor = "SumBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let x = a.tensor(0)?.body();
                Ok(smallvec![total("sum", &x, sum_dtype(x.dtype, a.opt_dtype(1)), Reduce::Sum)?])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| spread(g, c.sizes(0), c.dtype(0)))?])),
            saves: &[],
        });
    /// The sum over dimensions (all for `None` or an empty list), pairwise. Integers and bools sum to int64 unless `dtype`
    /// says otherwise; half types accumulate in float32.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there, `RuntimeError` for one named twice.
    SUM sum(self, dim: OptInts, keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "SumBackward1", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let x = a.tensor(0)?.body();
                let (dims, dtype) = (dims("sum", a, 1, x.layout.rank())?, sum_dtype(x.dtype, a.opt_dtype(3)));
                Ok(smallvec![reduce("sum", &x, &dims, a.bool(2), dtype, Reduce::Sum)?])
            },
            backward: Some(|c| {
                let dims = dims("sum", c, 1, c.sizes(0).len())?;
                Ok(smallvec![c.when(0, |g| restore(g, c.sizes(0), &dims, c.bool(2), c.dtype(0)))?])
            }),
            saves: &[],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([1][..].into()), Arg::Bool(true), Arg::None],
            smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([0, -1][..].into()), Arg::Bool(false), Arg::None],
        ];
    /// The mean of all elements, NaN of none.
    ///
    /// # Errors
    /// `RuntimeError` for integers and bools without a floating point `dtype`.
    MEAN_ALL mean_all as "mean"(self; dtype: OptDType = None) -> Tensor = "MeanBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| mean(a, &all(a.tensor(0)?.rank()), false, a.opt_dtype(1)),
            backward: Some(|c| mean_backward(c, &all(c.sizes(0).len()), false)),
            saves: &[],
        });
    /// The mean over dimensions (all for `None` or an empty list), NaN of no elements.
    ///
    /// # Errors
    /// As [`sum`](Self::sum); `RuntimeError` for integers and bools without a floating point `dtype`.
    MEAN mean(self, dim: OptInts, keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "MeanBackward1", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| mean(a, &dims("mean", a, 1, a.tensor(0)?.rank())?, a.bool(2), a.opt_dtype(3)),
            backward: Some(|c| mean_backward(c, &dims("mean", c, 1, c.sizes(0).len())?, c.bool(2))),
            saves: &[],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([1][..].into()), Arg::Bool(true), Arg::None],
            smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([0, -1][..].into()), Arg::Bool(false), Arg::None],
        ];
    /// The sum of what is not NaN, over dimensions (all for `None` or an empty list).
    ///
    /// # Errors
    /// As [`sum`](Self::sum).
    NANSUM nansum(self, dim: OptInts = None, keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "NansumBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                static NUMBERS: PerType = PerType::new();
                let t = a.tensor(0)?;
                let dims = dims("nansum", a, 1, t.rank())?;
                let dtype = sum_dtype(t.dtype(), a.opt_dtype(3));
                if !t.dtype().is_float() || t.dtype().compute() != dtype.compute() {
                    let t = super::to_dtype(t, dtype)?;
                    return Ok(smallvec![reduce("nansum", &t.body(), &dims, a.bool(2), dtype, Reduce::Sum)?]);
                }
                let x = t.body();
                let ty = dtype.compute();
                let numbers = NUMBERS.get(ty, &[ty], &[], |x, _| Sym::select(x[0].is_nan(), x[0].zero(), x[0]));
                let sizes = &x.layout.sizes;
                let out = run("nansum", numbers, sizes, &[&x], &[], (aligned(sizes, &dims), dtype), Reduce::Sum)?;
                Ok(smallvec![finish(out, &dims, a.bool(2))])
            },
            backward: Some(|c| {
                let dims = dims("nansum", c, 1, c.sizes(0).len())?;
                Ok(smallvec![c.when(0, |g| {
                    let g = restore(g, c.sizes(0), &dims, c.bool(2), c.dtype(0))?;
                    g.where_number(c.input(0)?.detach())
                })?])
            }),
            saves: &[Save::Input(0)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([0, 2][..].into()), Arg::Bool(false), Arg::None]];
    /// The mean of what is not NaN, over dimensions (all for `None` or an empty list).
    ///
    /// # Errors
    /// As [`sum`](Self::sum); `RuntimeError` for integers and bools.
    NANMEAN nanmean(self, dim: OptInts = None, keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| {
            let t = a.tensor(0)?;
            if !t.dtype().is_float() {
                bail!(runtime "nanmean", "nanmean(): expected input to have floating point or complex dtype but got {}", t.dtype().legacy());
            }
            let sum: Tensor = super::apply::call_into(&NANSUM, a.clone())?;
            let dims = dims("nanmean", a, 1, t.rank())?;
            let detached = t.detach();
            let count = detached.count_equal(&detached, ints(&dims), false)?.reshape(&sum.sizes())?;
            let count = super::to_dtype(&count, sum.dtype())?;
            Ok(smallvec![super::apply::binary(&super::elementwise::DIV, &sum, &count)?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Ints([1][..].into()), Arg::Bool(true), Arg::None]];
    /// How many elements are not zero, over dimensions (all for `None` or an empty list), as int64.
    ///
    /// # Errors
    /// As [`sum`](Self::sum).
    COUNT_NONZERO count_nonzero(self, dim: OptInts = None) -> Tensor = "", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                static NONZERO: PerType = PerType::new();
                let x = a.tensor(0)?.body();
                let sizes = &x.layout.sizes;
                let dims = dims("count_nonzero", a, 1, sizes.len())?;
                let ty = x.dtype.compute();
                let nonzero = NONZERO.get(ty, &[ty], &[], |x, _| x[0].cast(Compute::Bool).cast(Compute::I64));
                let out = run("count_nonzero", nonzero, sizes, &[&x], &[], (aligned(sizes, &dims), DType::I64), Reduce::Sum)?;
                Ok(smallvec![finish(out, &dims, false)])
            },
            backward: None,
            saves: &[],
        });
    /// The product of all elements; integers and bools multiply to int64 unless `dtype` says otherwise. The gradient is
    /// exact where elements are zero.
    PROD_ALL prod_all as "prod"(self; dtype: OptDType = None) -> Tensor = "ProdBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let x = a.tensor(0)?.body();
                Ok(smallvec![total("prod", &x, sum_dtype(x.dtype, a.opt_dtype(1)), Reduce::Prod)?])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| {
                let x = super::to_dtype(&c.input(0)?, g.dtype())?;
                let others = x.reshape(-1i64)?.product_of_others(0)?.reshape(ints(c.sizes(0)))?;
                super::to_dtype(&super::apply::binary(&super::elementwise::MUL, g, &others)?, c.dtype(0))
            })?])),
            saves: &[Save::Input(0)],
        });
    /// The product over a dimension; integers and bools multiply to int64 unless `dtype` says otherwise. The gradient is
    /// exact where elements are zero.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    PROD prod(self, dim: Int, keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "ProdBackward1", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let x = a.tensor(0)?.body();
                let (dims, dtype) = (dims("prod", a, 1, x.layout.rank())?, sum_dtype(x.dtype, a.opt_dtype(3)));
                Ok(smallvec![reduce("prod", &x, &dims, a.bool(2), dtype, Reduce::Prod)?])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| {
                let dims = dims("prod", c, 1, c.sizes(0).len())?;
                let x = super::to_dtype(&c.input(0)?, g.dtype())?;
                let g = align(g, c.sizes(0), &dims, c.bool(2))?;
                let others = x.product_of_others(c.int(1)?)?;
                super::to_dtype(&super::apply::binary(&super::elementwise::MUL, &g, &others)?, c.dtype(0))
            })?])),
            saves: &[Save::Input(0)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Int(1), Arg::Bool(false), Arg::None]];
    /// The largest elements over dimensions (all for `None` or an empty list); NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// As [`sum`](Self::sum); `IndexError` or `RuntimeError` where there is nothing to choose from.
    AMAX amax(self, dim: OptInts = None, keepdim: Bool = false) -> Tensor = "AmaxBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let dims = dims("amax", a, 1, a.tensor(0)?.rank())?;
                Ok(smallvec![extreme("amax", a, &dims, a.opt_ints(1).filter(|d| !d.is_empty()), a.bool(2), Reduce::Max)?])
            },
            backward: Some(|c| {
                let dims = dims("amax", c, 1, c.sizes(0).len())?;
                Ok(smallvec![share(c, c.grad(0), 0, &dims, c.bool(2), false)?])
            }),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([0, 2][..].into()), Arg::Bool(false)],
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None, Arg::Bool(true)],
        ];
    /// The smallest elements over dimensions (all for `None` or an empty list); NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// As [`amax`](Self::amax).
    AMIN amin(self, dim: OptInts = None, keepdim: Bool = false) -> Tensor = "AminBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let dims = dims("amin", a, 1, a.tensor(0)?.rank())?;
                Ok(smallvec![extreme("amin", a, &dims, a.opt_ints(1).filter(|d| !d.is_empty()), a.bool(2), Reduce::Min)?])
            },
            backward: Some(|c| {
                let dims = dims("amin", c, 1, c.sizes(0).len())?;
                Ok(smallvec![share(c, c.grad(0), 0, &dims, c.bool(2), false)?])
            }),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([1][..].into()), Arg::Bool(true)]];
    /// The smallest and the largest element, of all or along a dimension; NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// As [`amax`](Self::amax).
    AMINMAX aminmax(self; dim: OptInt = None, keepdim: Bool = false) -> Fields["min", "max"] = "AminmaxBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let t = a.tensor(0)?;
                let (sizes, dims) = (t.sizes(), dims("aminmax", a, 1, t.rank())?);
                if a.opt_int(1).is_none() && t.numel() == 0 {
                    bail!(runtime "aminmax", "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.");
                }
                if let Some(d) = dims.iter().find(|&&d| sizes[d] == 0) {
                    bail!(index "aminmax", "aminmax: Expected reduction dim {d} to have non-zero size.");
                }
                let one = |how| reduce("aminmax", &t.body(), &dims, a.bool(2), t.dtype(), how);
                Ok(smallvec![one(Reduce::Min)?, one(Reduce::Max)?])
            },
            backward: Some(|c| {
                let dims = dims("aminmax", c, 1, c.sizes(0).len())?;
                let low = share(c, c.grad(0), 0, &dims, c.bool(2), false)?;
                let high = share(c, c.grad(1), 1, &dims, c.bool(2), false)?;
                Ok(smallvec![match (low, high) {
                    (Some(low), Some(high)) => Some(super::sum_of(&low, &high)?),
                    (low, high) => low.or(high),
                }])
            }),
            saves: &[Save::Input(0), Save::Output(0), Save::Output(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(1), Arg::Bool(false)]];
    /// The largest of all elements; NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// `RuntimeError` for a tensor without elements.
    MAX_ALL max_all as "max"(self) -> Tensor = "MaxBackward1", METHOD | FUNCTION,
        S(Structured {
            forward: |a| Ok(smallvec![extreme("max", a, &all(a.tensor(0)?.rank()), None, false, Reduce::Max)?]),
            backward: Some(|c| Ok(smallvec![share(c, c.grad(0), 0, &all(c.sizes(0).len()), false, true)?])),
            saves: &[Save::Input(0), Save::Output(0)],
        });
    /// The smallest of all elements; NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// `RuntimeError` for a tensor without elements.
    MIN_ALL min_all as "min"(self) -> Tensor = "MinBackward1", METHOD | FUNCTION,
        S(Structured {
            forward: |a| Ok(smallvec![extreme("min", a, &all(a.tensor(0)?.rank()), None, false, Reduce::Min)?]),
            backward: Some(|c| Ok(smallvec![share(c, c.grad(0), 0, &all(c.sizes(0).len()), false, true)?])),
            saves: &[Save::Input(0), Save::Output(0)],
        });
    /// The larger of two elements; NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    MAX_OTHER max_other as "max"(self, other: Tensor) -> Tensor = "MaximumBackward0", METHOD | FUNCTION | OUT,
        E(Elementwise::numeric(|f| f.x(0).maximum(f.x(1))));
    /// The smaller of two elements; NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    MIN_OTHER min_other as "min"(self, other: Tensor) -> Tensor = "MinimumBackward0", METHOD | FUNCTION | OUT,
        E(Elementwise::numeric(|f| f.x(0).minimum(f.x(1))));
    /// Whether all elements are not zero, over dimensions (all if not given; none for an empty list). Bool, uint8 for uint8.
    ///
    /// # Errors
    /// As [`sum`](Self::sum).
    ALL all(self, dim: OptInts = None, keepdim: Bool = false) -> Tensor = "", METHOD | FUNCTION | OUT,
        S(Structured { forward: |a| truth("all", a, Reduce::Min), backward: None, saves: &[] });
    /// Whether any element is not zero, over dimensions (all if not given; none for an empty list). Bool, uint8 for uint8.
    ///
    /// # Errors
    /// As [`sum`](Self::sum).
    ANY any(self, dim: OptInts = None, keepdim: Bool = false) -> Tensor = "", METHOD | FUNCTION | OUT,
        S(Structured { forward: |a| truth("any", a, Reduce::Max), backward: None, saves: &[] });
    /// `log(sum(exp(input)))` over dimensions, without overflow; -inf of no elements.
    ///
    /// # Errors
    /// As [`sum`](Self::sum).
    LOGSUMEXP logsumexp(self, dim: Ints, keepdim: Bool = false) -> Tensor = "LogsumexpBackward0", METHOD | FUNCTION | SPECIAL | OUT,
        S(Structured {
            forward: logsumexp,
            backward: Some(|c| {
                let dims = dims("logsumexp", c, 1, c.sizes(0).len())?;
                Ok(smallvec![c.when(0, |g| {
                    let g = align(g, c.sizes(0), &dims, c.bool(2))?;
                    let result = align(&c.output(0)?, c.sizes(0), &dims, c.bool(2))?;
                    g.times_exp_difference(&c.input(0)?, &result)
                })?])
            }),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([0, -1][..].into()), Arg::Bool(false)],
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Ints([1][..].into()), Arg::Bool(true)],
        ];
    /// The sum of the main diagonal of a matrix; integers sum to int64.
    ///
    /// # Errors
    /// `RuntimeError` for what is no matrix.
    TRACE trace(self) -> Tensor = "TraceBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let t = a.tensor(0)?;
                if t.rank() != 2 {
                    bail!(runtime "trace", "trace: expected a matrix, but got tensor with dim {}", t.rank());
                }
                if t.dtype() == DType::Bool {
                    bail!(not_implemented "trace", "\"trace\" not implemented for 'Bool'");
                }
                let diagonal = main_diagonal(&t.body());
                Ok(smallvec![reduce("trace", &diagonal.body(), &[0], false, sum_dtype(t.dtype(), None), Reduce::Sum)?])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| {
                let (rows, columns) = (c.sizes(0)[0], c.sizes(0)[1]);
                let n = rows.min(columns);
                let diagonal = g.expand(n)?;
                diagonal.as_strided_backward(ints(c.sizes(0)), ints(&[columns, 1]), ints(&[n]), ints(&[columns + 1]), 0)
            })?])),
            saves: &[],
        }),
        |s| vec![s.tensors(&[&[3, 4]]), s.tensors(&[&[3, 2]])];

    // What the derivatives above are written with.

    /// The sum over dimensions, kept as 1, of `input * other`: one pass, nothing written between.
    SUM_PRODUCT sum_product(self, other: Tensor, dims: Ints = ()) -> Tensor = "SumProductBackward0", 0,
        E(Elementwise::numeric(|f| f.x(0) * f.x(1)).reduce(|a, sizes| over_dims(a, sizes, 2))),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Tensor(s.t(&[3, 1])), Arg::Ints([0, 2][..].into())]];
    /// How many elements equal `other`, over dimensions kept as 1; `nan`: NaN equals NaN.
    COUNT_EQUAL count_equal(self, other: Tensor, dims: Ints = (), nan: Bool = false) -> Tensor = "", 0,
        E(Elementwise::numeric(|f| {
            let one = f.x(0).literal(1.0);
            Sym::select(equal(f.x(0), f.x(1), f.variant), one, one.zero())
        })
        .variant(|a| Ok(a.bool(3) as u8))
        .reduce(|a, sizes| over_dims(a, sizes, 2)));
    /// `input / count` where `x` equals `extreme`, else zero: the gradient of an extreme.
    SHARE_EQUAL share_equal(self, x: Tensor, extreme: Tensor, count: Tensor, nan: Bool) -> Tensor = "ShareBackward0", 0,
        E(Elementwise::float_only(|f| {
            let g = f.x(0);
            Sym::select(equal(f.x(1), f.x(2), f.variant), g, g.zero()) / f.x(3)
        })
        .variant(|a| Ok(a.bool(4) as u8)));
    /// `input` where `x` is a number, zero where it is NaN.
    WHERE_NUMBER where_number(self, x: Tensor) -> Tensor = "WhereNumberBackward0", 0,
        E(Elementwise::numeric(|f| Sym::select(f.x(1).is_nan(), f.x(0).zero(), f.x(0))));
    /// `input * exp(x - y)`.
    TIMES_EXP_DIFFERENCE times_exp_difference(self, x: Tensor, y: Tensor) -> Tensor = "TimesExpDifferenceBackward0", 0,
        E(Elementwise::float(|f| f.x(0) * (f.x(1) - f.x(2)).exp()));
}

/// A matrix' main diagonal, without history.
fn main_diagonal(m: &Body) -> Tensor {
    let (sizes, strides) = (&m.layout.sizes, &m.layout.strides);
    let layout = Layout {
        sizes: [sizes[0].min(sizes[1])][..].into(),
        strides: [strides[0] + strides[1]][..].into(),
        offset: m.layout.offset,
    };
    Tensor::from_body(m.with_layout(layout))
}

/// The dimension that argument `i` names.
pub(super) fn dim(op: &'static str, a: &(impl Read + ?Sized), i: usize, rank: usize) -> Result<usize> {
    wrap_dim(op, a.int(i)?, rank)
}
