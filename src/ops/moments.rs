//! Variance and standard deviation. Both passes run in float64, so that values far from zero lose nothing.

use super::args::{Arg, Args, Read};
use super::formula::Elementwise;
use super::op::Rule::{Composite as C, Elementwise as E, Structured as S};
use super::op::{FUNCTION, METHOD, OUT, Op, Outputs, op};
use super::reduce::{PerType, align, aligned, average, dims, divide, finish, restore, run};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::backend::Reduce;
use crate::dtype::{Compute, DType};
use crate::error::{Result, bail};
use crate::program::Sym;
use crate::scalar::Scalar;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;

/// What is wanted of the second moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Var,
    Std,
}

/// The correction in argument `i`; 1 (Bessel's) if it is not given.
fn correction(a: &(impl Read + ?Sized), i: usize) -> f64 {
    a.opt_number(i).map_or(1.0, Scalar::to_f64)
}

/// The mean and the sum of squared distances from it, over dimensions, aligned and in float64.
pub(super) fn central(op: &'static str, t: &Tensor, dims: &[usize]) -> Result<(Body, Body)> {
    static SQUARES: PerType = PerType::new();
    let x = t.body();
    let sizes = &x.layout.sizes;
    let (ty, wide) = (x.dtype.compute(), Compute::F64);
    let mean = average(op, t, dims, DType::F64)?;
    let squares = SQUARES.get(ty, &[ty, wide], &[], |x, _| (x[0].cast(Compute::F64) - x[1]).square());
    let squares = run(op, squares, sizes, &[&x, &mean], &[], (aligned(sizes, dims), DType::F64), Reduce::Sum)?;
    Ok((mean, squares))
}

/// A float64 statistic in another dtype: `formula` of it, of one number, through the compute type of the dtype.
pub(super) fn rounded(
    op: &'static str,
    cache: &[PerType; 2],
    from: &Body,
    numbers: &[Scalar],
    dtype: DType,
    formula: fn(Sym, &[Sym]) -> Sym,
) -> Result<Body> {
    let ty = dtype.compute();
    let wide = Compute::F64;
    let program = match ty {
        Compute::F64 => cache[0].with(wide, &[wide], &vec![wide; numbers.len()], |x, s| formula(x[0], s)),
        _ => cache[1].with(ty, &[wide], &vec![wide; numbers.len()], |x, s| formula(x[0], s).cast(Compute::F32)),
    };
    let sizes = &from.layout.sizes;
    run(op, program, sizes, &[from], numbers, (sizes.clone(), dtype), Reduce::Sum)
}

/// Variance or deviation, and the mean, of arguments `(input, dim, correction, keepdim)`.
fn moments(op: &'static str, a: &Args, want: Want) -> Result<(Tensor, Tensor)> {
    static VAR: [PerType; 2] = [const { PerType::new() }; 2];
    static STD: [PerType; 2] = [const { PerType::new() }; 2];
    static MEAN: [PerType; 2] = [const { PerType::new() }; 2];
    let t = a.tensor(0)?;
    let dtype = t.dtype();
    if !dtype.is_float() {
        let who = if op.ends_with("_mean") { op } else { "std and var" };
        bail!(runtime op, "{who} only support floating point and complex dtypes");
    }
    let sizes = t.sizes();
    let dims = dims(op, a, 1, sizes.len())?;
    let (mean, squares) = central(op, t, &dims)?;
    let n = dims.iter().map(|&d| sizes[d]).product::<usize>() as f64;
    let freedom = [Scalar::Float((n - correction(a, 2)).max(0.0))];
    let second = match want {
        Want::Var => rounded(op, &VAR, &squares, &freedom, dtype, |x, s| x / s[0])?,
        Want::Std => rounded(op, &STD, &squares, &freedom, dtype, |x, s| (x / s[0]).sqrt())?,
    };
    let mean = rounded(op, &MEAN, &mean, &[], dtype, |x, _| x)?;
    Ok((finish(second, &dims, a.bool(3)), finish(mean, &dims, a.bool(3))))
}

/// The gradient of a variance, given that of the (aligned) variance.
fn var_backward(c: &Context<'_>, g: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let x = c.input(0)?;
    let n = dims.iter().map(|&d| c.sizes(0)[d]).product::<usize>() as f64;
    let freedom = n - correction(c, 2);
    let over_all = c.opt_ints(1).is_none() || x.rank() == 0;
    g.var_gradient(&x, x.mean(dims, true)?, 2.0 / freedom, over_all && freedom <= 0.0)
}

/// The gradient from those of the second moment (result 0) and, if there is one, of the mean (result 1).
fn backward(c: &Context<'_>, want: Want) -> Result<Grads> {
    if !c.needs(0) {
        return Ok(smallvec![None]);
    }
    let (sizes, keepdim) = (c.sizes(0), c.bool(3));
    let dims = dims("var", c, 1, sizes.len())?;
    let second = match c.grad(0) {
        Some(g) => {
            let g = align(&g, sizes, &dims, keepdim)?;
            let g = if want == Want::Std { g.std_gradient(align(&c.output(0)?, sizes, &dims, keepdim)?)? } else { g };
            Some(var_backward(c, &g, &dims)?)
        }
        None => None,
    };
    let mean = match c.grad(1) {
        Some(g) => {
            let n = dims.iter().map(|&d| sizes[d]).product::<usize>() as f64;
            Some(restore(&divide(&g, n)?, sizes, &dims, keepdim, c.dtype(0))?)
        }
        None => None,
    };
    Ok(smallvec![match (second, mean) {
        (Some(a), Some(b)) => Some(super::sum_of(&a, &b)?),
        (a, b) => a.or(b),
    }])
}

/// The row with `unbiased` as the row with `correction`: arguments `(input, dim, unbiased, keepdim)`, the middle two being
/// optional.
fn unbiased(row: &'static Op, a: &Args, dim: Arg, flag: usize, keepdim: bool) -> Result<Outputs> {
    let correction = Scalar::Int(a.bool(flag) as i64);
    super::apply::call(row, &smallvec![a[0].clone(), dim, Arg::Number(correction), Arg::Bool(keepdim)])
}

/// `cov`: arguments `(input, correction, fweights, aweights)`.
fn cov(a: &Args) -> Result<Outputs> {
    let op = "cov";
    let t = a.tensor(0)?;
    if t.rank() > 2 {
        bail!(runtime op, "cov(): expected input to have two or fewer dimensions but got an input with {} dimensions", t.rank());
    }
    if t.dtype() == DType::Bool {
        bail!(runtime op, "cov(): bool dtype is not supported for input");
    }
    let x = if t.rank() < 2 { t.reshape(&[1, t.numel()][..])? } else { t.clone() };
    let n = x.sizes()[1];
    let (counts, weights) = (a.opt_tensor(2), a.opt_tensor(3));
    for (w, what) in [(counts, "fweights"), (weights, "aweights")] {
        let Some(w) = w else { continue };
        if w.rank() > 1 {
            bail!(runtime op, "cov(): expected {what} to have one or fewer dimensions but got {what} with {} dimensions", w.rank());
        }
        if w.numel() != n {
            bail!(runtime op, "cov(): expected {what} to have the same numel as there are observations in the input but got {} != {n}", w.numel());
        }
        let fits =
            if what == "fweights" { !w.dtype().is_float() && w.dtype() != DType::Bool } else { w.dtype().is_float() };
        if !fits {
            let kind = if what == "fweights" { "integral" } else { "floating point" };
            bail!(runtime op, "cov(): expected {what} to have {kind} dtype but got {what} with {} dtype", w.dtype().legacy());
        }
    }
    let both = match (counts, weights) {
        (Some(c), Some(w)) => Some(c.mul(w)?),
        (c, w) => c.or(w).cloned(),
    };
    let correction = a.int(1)? as f64;
    // Means and the divisor, as tensors where weights have a gradient.
    let (centred, weighed, divisor) = match both {
        None => {
            let mean = divide(&x.sum(1usize, true)?, n as f64)?;
            let centred = x.sub(&mean)?;
            (centred.clone(), centred, Tensor::from((n as f64 - correction).max(0.0)))
        }
        Some(w) => {
            let total = w.sum_all()?;
            let centred = x.sub(&x.mul(&w)?.sum(1usize, true)?.true_divide(&total)?)?;
            let lost = match weights {
                Some(aw) => w.mul(aw)?.sum_all()?.true_divide(&total)?.mul(correction)?,
                None => Tensor::from(correction),
            };
            (centred.clone(), centred.mul(&w)?, total.sub(&lost)?.clamp_min(0.0)?)
        }
    };
    let c = centred.mm(&weighed.t()?)?;
    Ok(smallvec![c.true_divide(&divisor)?.squeeze()?])
}

macro_rules! samples {
    () => {
        |s| {
            vec![
                smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::None, Arg::None, Arg::Bool(false)],
                smallvec![
                    Arg::Tensor(s.t(&[2, 3, 4])),
                    Arg::Ints([0, -1][..].into()),
                    Arg::Number(Scalar::Float(0.5)),
                    Arg::Bool(false)
                ],
                smallvec![
                    Arg::Tensor(s.t(&[3, 4])),
                    Arg::Ints([1][..].into()),
                    Arg::Number(Scalar::Int(0)),
                    Arg::Bool(true)
                ],
            ]
        }
    };
}

macro_rules! unbiased_samples {
    () => {
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Bool(false)]]
    };
    (dim) => {
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Ints([0][..].into()), Arg::Bool(true), Arg::Bool(true)]]
    };
}

op! {
    /// [`var`](Self::var) of all elements, divided by `n - 1` if `unbiased`, else by `n`.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    VAR_UNBIASED var_unbiased as "var"(self, unbiased: Bool) -> Tensor = "", METHOD | FUNCTION,
        C(|a| unbiased(&VAR, a, Arg::None, 1, false)), unbiased_samples!();
    /// [`var`](Self::var) over dimensions, divided by `n - 1` if `unbiased`, else by `n`.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    VAR_DIM var_dim as "var"(self, dim: OptInts, unbiased: Bool, keepdim: Bool = false) -> Tensor = "", METHOD | FUNCTION,
        C(|a| unbiased(&VAR, a, a[1].clone(), 2, a.bool(3))), unbiased_samples!(dim);
    /// The variance over dimensions (all for `None` or an empty list): squared distances from the mean, summed and divided
    /// by their number less `correction` (1 if not given). NaN or infinite where that leaves nothing to divide by.
    ///
    /// # Errors
    /// `RuntimeError` for integers and bools; for dimensions as [`sum`](Self::sum).
    VAR var(self, dim: OptInts = None; correction: OptNumber = None, keepdim: Bool = false) -> Tensor = "VarBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| Ok(smallvec![moments("var", a, Want::Var)?.0]),
            backward: Some(|c| backward(c, Want::Var)),
            saves: &[Save::Input(0)],
        }),
        samples!();
    /// [`std`](Self::std) of all elements, divided by `n - 1` if `unbiased`, else by `n`.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    STD_UNBIASED std_unbiased as "std"(self, unbiased: Bool) -> Tensor = "", METHOD | FUNCTION,
        C(|a| unbiased(&STD, a, Arg::None, 1, false)), unbiased_samples!();
    /// [`std`](Self::std) over dimensions, divided by `n - 1` if `unbiased`, else by `n`.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    STD_DIM std_dim as "std"(self, dim: OptInts, unbiased: Bool, keepdim: Bool = false) -> Tensor = "", METHOD | FUNCTION,
        C(|a| unbiased(&STD, a, a[1].clone(), 2, a.bool(3))), unbiased_samples!(dim);
    /// The standard deviation over dimensions: the square root of [`var`](Self::var). Its gradient where all values are
    /// equal is 0.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    STD std(self, dim: OptInts = None; correction: OptNumber = None, keepdim: Bool = false) -> Tensor = "StdBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| Ok(smallvec![moments("std", a, Want::Std)?.0]),
            backward: Some(|c| backward(c, Want::Std)),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        samples!();
    /// [`var_mean`](Self::var_mean) of all elements, divided by `n - 1` if `unbiased`, else by `n`.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    VAR_MEAN_UNBIASED var_mean_unbiased as "var_mean"(self, unbiased: Bool) -> Vec<Tensor> = "", FUNCTION,
        C(|a| unbiased(&VAR_MEAN, a, Arg::None, 1, false)), unbiased_samples!();
    /// [`var_mean`](Self::var_mean) over dimensions, divided by `n - 1` if `unbiased`, else by `n`.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    VAR_MEAN_DIM var_mean_dim as "var_mean"(self, dim: OptInts, unbiased: Bool, keepdim: Bool = false) -> Vec<Tensor> = "", FUNCTION,
        C(|a| unbiased(&VAR_MEAN, a, a[1].clone(), 2, a.bool(3))), unbiased_samples!(dim);
    /// The variance, as [`var`](Self::var) gives it, and the mean.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    VAR_MEAN var_mean(self, dim: OptInts = None; correction: OptNumber = None, keepdim: Bool = false) -> Vec<Tensor> = "VarMeanBackward0", FUNCTION,
        S(Structured {
            forward: |a| moments("var_mean", a, Want::Var).map(|(v, m)| smallvec![v, m]),
            backward: Some(|c| backward(c, Want::Var)),
            saves: &[Save::Input(0)],
        }),
        samples!();
    /// [`std_mean`](Self::std_mean) of all elements, divided by `n - 1` if `unbiased`, else by `n`.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    STD_MEAN_UNBIASED std_mean_unbiased as "std_mean"(self, unbiased: Bool) -> Vec<Tensor> = "", FUNCTION,
        C(|a| unbiased(&STD_MEAN, a, Arg::None, 1, false)), unbiased_samples!();
    /// [`std_mean`](Self::std_mean) over dimensions, divided by `n - 1` if `unbiased`, else by `n`.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    STD_MEAN_DIM std_mean_dim as "std_mean"(self, dim: OptInts, unbiased: Bool, keepdim: Bool = false) -> Vec<Tensor> = "", FUNCTION,
        C(|a| unbiased(&STD_MEAN, a, a[1].clone(), 2, a.bool(3))), unbiased_samples!(dim);
    /// The standard deviation, as [`std`](Self::std) gives it, and the mean.
    ///
    /// # Errors
    /// As [`var`](Self::var).
    STD_MEAN std_mean(self, dim: OptInts = None; correction: OptNumber = None, keepdim: Bool = false) -> Vec<Tensor> = "StdMeanBackward0", FUNCTION,
        S(Structured {
            forward: |a| moments("std_mean", a, Want::Std).map(|(v, m)| smallvec![v, m]),
            backward: Some(|c| backward(c, Want::Std)),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        samples!();
    /// The covariance matrix of variables (rows; a vector is one) over observations (columns), divided by their number less
    /// `correction`. Observations may be counted several times (`fweights`, integers) and weighed (`aweights`).
    ///
    /// # Errors
    /// `RuntimeError` for more than two dimensions and for weights that do not fit.
    COV cov(self; correction: Int = 1, fweights: OptTensor = None, aweights: OptTensor = None) -> Tensor = "", METHOD | FUNCTION,
        C(cov),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(1), Arg::None, Arg::None],
            smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(1), Arg::Tensor(s.ints(&[4], 1, 3)), Arg::Tensor(s.between(&[4], 0.2, 1.0))],
        ];
    /// The matrix of correlation coefficients of variables (rows; a vector is one) over observations (columns).
    ///
    /// # Errors
    /// `RuntimeError` for more than two dimensions.
    CORRCOEF corrcoef(self) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let t = a.tensor(0)?;
            if t.rank() > 2 {
                bail!(runtime "corrcoef", "corrcoef(): expected input to have two or fewer dimensions but got an input with {} dimensions", t.rank());
            }
            let c = cov(&smallvec![a[0].clone(), Arg::Int(1), Arg::None, Arg::None])?.remove(0);
            if c.rank() == 0 {
                return Ok(smallvec![c.true_divide(&c)?]);
            }
            let deviation = c.diagonal(0i64, 0i64, 1i64)?.sqrt()?;
            let c = c.true_divide(&deviation.unsqueeze(1i64)?)?.true_divide(&deviation)?;
            Ok(smallvec![c.clamp(-1i64, 1i64)?])
        }),
        |s| vec![s.tensors(&[&[2, 4]])];

    /// `input * (x - mean) * scale`: the gradient of a variance. Where no degree of freedom is left (`degenerate`), infinite,
    /// and NaN at the mean.
    VAR_GRADIENT var_gradient(self, x: Tensor, mean: Tensor, scale: Float, degenerate: Bool) -> Tensor = "VarBackwardBackward0", 0,
        E(Elementwise::float_only(|f| {
            let (g, x, mean) = (f.x(0), f.x(1), f.x(2));
            if f.variant == 0 {
                return g * f.n(0) * (x - mean);
            }
            g * Sym::select(x.eq(mean), x.literal(f64::NAN), x.literal(f64::INFINITY))
        })
        .variant(|a| Ok(a.bool(4) as u8))),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 1])), Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 1])), Arg::Float(0.7), Arg::Bool(false)]];
    /// `input / (2 * std)`, 0 where `std` is 0: from the gradient of a deviation to that of the variance.
    STD_GRADIENT std_gradient(self, std: Tensor) -> Tensor = "StdBackwardBackward0", 0,
        E(Elementwise::float_only(|f| {
            let (g, std) = (f.x(0), f.x(1));
            let none = std.eq(std.zero());
            let safe = Sym::select(none, std.literal(1.0), std);
            Sym::select(none, g.zero(), g) / (safe + safe)
        }));
}
