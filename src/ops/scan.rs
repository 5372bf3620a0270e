//! Running sums and products along a dimension. Derivatives of running products are linear
//! recurrences, whose derivatives are linear recurrences again: exact where elements are zero, in linear time, to any order.

use super::args::{Arg, Args, Read};
use super::formula::Elementwise;
use super::op::Rule::{Composite as C, Elementwise as E, Structured as S};
use super::op::{FUNCTION, INPLACE, METHOD, OUT, Outputs, op};
use super::reduce::{dim, fresh, row_major, sum_dtype};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::backend::cpu::scan::{self, Scan};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::program::Sym;
use crate::scalar::Scalar;
use crate::shape::Layout;
use crate::storage::Guards;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;

/// The scan of a tensor, converted to `dtype` first, along dimension argument 1.
fn running(op: &'static str, a: &Args, dtype: DType, how: Scan, reverse: bool) -> Result<Outputs> {
    let t = a.tensor(0)?;
    let along = dim(op, a, 1, t.rank())?;
    let x = row_major(op, &super::to_dtype(t, dtype)?)?;
    let y = fresh(op, x.layout.sizes.clone(), dtype)?;
    {
        let _guards = Guards::take([&x.storage], []);
        scan::running(&x.operand(), &y.operand(), along, how, reverse);
    }
    Ok(smallvec![Tensor::from_body(y)])
}

/// The gradient of a running product: each factor's is the product before it times what follows.
fn product_backward(c: &Context<'_>, reverse: bool) -> Result<Grads> {
    Ok(smallvec![c.when(0, |g| {
        let x = super::to_dtype(&c.input(0)?, g.dtype())?;
        let before = c.output(0)?.shift(c.int(1)?, reverse, 1.0)?;
        let after = x.recurrence(g, c.int(1)?, !reverse, true)?;
        super::to_dtype(&before.mul(&after)?, c.dtype(0))
    })?])
}

/// Part of a body along a dimension, `n` elements from `start` on.
fn part(body: &Body, dim: usize, start: usize, n: usize) -> Body {
    let mut layout: Layout = body.layout.clone();
    if dim < layout.rank() {
        layout.sizes[dim] = n;
        layout.offset = (layout.offset as isize + start as isize * layout.strides[dim]) as usize;
    }
    body.with_layout(layout)
}

op! {
    /// The running sum along a dimension. Integers and bools sum to int64 unless `dtype` says otherwise; floats are carried
    /// in float64.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    CUMSUM cumsum(self, dim: Int; dtype: OptDType = None) -> Tensor = "CumsumBackward0", METHOD | FUNCTION | INPLACE | OUT,
        S(Structured {
            forward: |a| running("cumsum", a, sum_dtype(a.tensor(0)?.dtype(), a.opt_dtype(2)), Scan::Sum, false),
            backward: Some(|c| Ok(smallvec![c.when(0, |g| super::to_dtype(&g.cumsum_reverse(c.int(1)?)?, c.dtype(0)))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Int(1), Arg::None], smallvec![Arg::Tensor(s.t(&[])), Arg::Int(0), Arg::None]];
    /// The running product along a dimension. Integers and bools multiply to int64 unless `dtype` says otherwise; floats are
    /// carried in float64. The gradient is exact where elements are zero.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    CUMPROD cumprod(self, dim: Int; dtype: OptDType = None) -> Tensor = "CumprodBackward0", METHOD | FUNCTION | INPLACE | OUT,
        S(Structured {
            forward: |a| running("cumprod", a, sum_dtype(a.tensor(0)?.dtype(), a.opt_dtype(2)), Scan::Prod, false),
            backward: Some(|c| product_backward(c, false)),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(1), Arg::None], smallvec![Arg::Tensor(s.t(&[3, 2])), Arg::Int(0), Arg::None]];
    /// The logarithm of the running sum of `exp(input)` along a dimension, without overflow.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there, `NotImplementedError` for integers and bools.
    LOGCUMSUMEXP logcumsumexp(self, dim: Int) -> Tensor = "LogcumsumexpBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let dtype = a.tensor(0)?.dtype();
                if !dtype.is_float() {
                    bail!(not_implemented "logcumsumexp", "\"logcumsumexp_out_cpu\" not implemented for '{}'", dtype.legacy());
                }
                running("logcumsumexp", a, dtype, Scan::LogSum, false)
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| {
                // sum over i >= k of g[i] exp(x[k] - y[i]), as a recurrence over exp(y[k] - y[k + 1]) <= 1.
                let (x, y) = (c.input(0)?, c.output(0)?);
                let next = y.shift(c.int(1)?, true, f64::INFINITY)?;
                let after = y.exp_ratio(&next)?.recurrence(g, c.int(1)?, true, false)?;
                after.mul(&x.exp_ratio(&y)?)
            })?])),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(1)]];
    // What the derivatives above are written with.

    /// The running sum from the end of a dimension.
    CUMSUM_REVERSE cumsum_reverse(self, dim: Int) -> Tensor = "CumsumReverseBackward0", 0,
        S(Structured {
            forward: |a| running("cumsum", a, a.tensor(0)?.dtype(), Scan::Sum, true),
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.cumsum(c.int(1)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(1)]];
    /// The running product from the end of a dimension.
    CUMPROD_REVERSE cumprod_reverse(self, dim: Int) -> Tensor = "CumprodReverseBackward0", 0,
        S(Structured {
            forward: |a| running("cumprod", a, a.tensor(0)?.dtype(), Scan::Prod, true),
            backward: Some(|c| product_backward(c, true)),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(1)]];
    /// For each element the product of all others of its slice along a dimension.
    PRODUCT_OF_OTHERS product_of_others(self, dim: Int) -> Tensor = "", 0,
        C(|a| {
            let (x, along) = (a.tensor(0)?, a.int(1)?);
            let (before, after) = (x.cumprod(along)?.shift(along, false, 1.0)?, x.cumprod_reverse(along)?.shift(along, true, 1.0)?);
            Ok(smallvec![before.mul(&after)?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(1)]];
    /// The solution of `y[k] = b[k] + a[k] * y[k - 1]` along a dimension, `input` being `a`; from the end if `reverse`; with
    /// the `a` of the place before instead of `a[k]` if `shifted`.
    RECURRENCE recurrence(self, b: Tensor, dim: Int, reverse: Bool, shifted: Bool) -> Tensor = "RecurrenceBackward0", 0,
        S(Structured {
            forward: |a| {
                let op = "recurrence";
                let (x, b) = (row_major(op, a.tensor(0)?)?, row_major(op, a.tensor(1)?)?);
                let y = fresh(op, x.layout.sizes.clone(), x.dtype)?;
                let along = dim(op, a, 2, x.layout.rank())?;
                {
                    let _guards = Guards::take([&x.storage, &b.storage], []);
                    scan::recurrence(&x.operand(), &b.operand(), &y.operand(), along, a.bool(3), a.bool(4));
                }
                Ok(smallvec![Tensor::from_body(y)])
            },
            backward: Some(|c| {
                let Some(g) = c.grad(0) else { return Ok(smallvec![None, None]) };
                let (a, along, reverse, shifted) = (c.input(0)?, c.int(2)?, c.bool(3), c.bool(4));
                let for_b = a.recurrence(&g, along, !reverse, !shifted)?;
                let for_a = match c.needs(0) {
                    false => None,
                    true if shifted => Some(for_b.shift(along, !reverse, 0.0)?.mul(&c.output(0)?)?),
                    true => Some(for_b.mul(&c.output(0)?.shift(along, reverse, 0.0)?)?),
                };
                Ok(smallvec![for_a, Some(for_b)])
            }),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| [(false, false), (false, true), (true, false), (true, true)]
            .map(|(r, h)| smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Tensor(s.t(&[2, 4])), Arg::Int(1), Arg::Bool(r), Arg::Bool(h)])
            .into();
    /// Every slice moved one place along a dimension, towards the start if `reverse`; `fill` comes in, what leaves is lost.
    SHIFT shift(self, dim: Int, reverse: Bool, fill: Float) -> Tensor = "ShiftBackward0", 0,
        S(Structured {
            forward: |a| {
                let x = a.tensor(0)?.body();
                let along = dim("shift", a, 1, x.layout.rank())?;
                let n = x.layout.sizes.get(along).copied().unwrap_or(1);
                let out = fresh("shift", x.layout.sizes.clone(), x.dtype)?;
                if n > 0 {
                    let (from, to, gap) = if a.bool(2) { (1, 0, n - 1) } else { (0, 1, 0) };
                    super::factory::fill(&part(&out, along, gap, 1), Scalar::Float(a.float(3)?))?;
                    if n > 1 {
                        super::copy::convert("shift", &part(&x, along, from, n - 1), &part(&out, along, to, n - 1))?;
                    }
                }
                Ok(smallvec![Tensor::from_body(out)])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.shift(c.int(1)?, !c.bool(2), 0.0))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(1), Arg::Bool(true), Arg::Float(0.5)]];
    /// `exp(input - other)`, 1 where `other` is -inf: the ratio of two numbers given by their logarithms, the first of which
    /// is not larger.
    EXP_RATIO exp_ratio(self, other: Tensor) -> Tensor = "ExpRatioBackward0", 0,
        E(Elementwise::float(|f| {
            let (x, y) = (f.x(0), f.x(1));
            let none = y.eq(y.literal(f64::NEG_INFINITY));
            Sym::select(none, x.zero(), x - Sym::select(none, y.zero(), y)).exp()
        }));
}
