//! Differences of neighbours along a dimension, integrals by the trapezoid rule, and the two comparisons that answer with
//! one truth value. All are compositions.

use super::args::{Arg, Args, Read};
use super::op::Rule::Composite as C;
use super::op::{FUNCTION, METHOD, OUT, Outputs, op};
use super::reduce::{dim, multiply};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::Dims;
use crate::tensor::Tensor;
use smallvec::smallvec;

/// All but the last, and all but the first element along a dimension.
fn neighbours(t: &Tensor, along: usize) -> Result<(Tensor, Tensor)> {
    let n = t.sizes()[along].saturating_sub(1) as i64;
    let part = |start: i64| t.narrow(along as i64, Scalar::Int(start), n);
    Ok((part(0)?, part(if n > 0 { 1 } else { 0 })?))
}

/// `diff`: arguments `(input, n, dim, prepend, append)`.
fn diff(a: &Args) -> Result<Outputs> {
    let op = "diff";
    let t = a.tensor(0)?;
    let n = a.int(1)?;
    if t.rank() == 0 {
        bail!(runtime op, "diff expects input to be at least one-dimensional");
    }
    if n < 0 {
        bail!(runtime op, "order must be non-negative but got {n}");
    }
    let along = dim(op, a, 2, t.rank())?;
    for (i, what) in [(3, "prepend"), (4, "append")] {
        let Some(more) = a.opt_tensor(i).map(Tensor::sizes) else { continue };
        if more.len() != t.rank() {
            bail!(runtime op, "diff expects {what} to have the same number of dimensions as input, but got {} and {}", more.len(), t.rank());
        }
        if let Some(d) = (0..more.len()).find(|&d| d != along && more[d] != t.sizes()[d]) {
            bail!(runtime op, "diff expects the shape of tensor to prepend or append to match that of input except along the differencing dimension; input.size({d}) = {}, but got tensor.size({d}) = {}", t.sizes()[d], more[d]);
        }
    }
    if n == 0 {
        return Ok(smallvec![t.copy()?]);
    }
    let parts: Vec<Tensor> = [a.opt_tensor(3), Some(t), a.opt_tensor(4)].into_iter().flatten().cloned().collect();
    let mut out = if parts.len() > 1 { Tensor::cat(parts, along as i64)? } else { t.clone() };
    for _ in 0..n.min(out.sizes()[along] as i64) {
        let (left, right) = neighbours(&out, along)?;
        out = if out.dtype() == DType::Bool { right.logical_xor(&left)? } else { right.sub(&left)? };
    }
    Ok(smallvec![out])
}

/// The distances of sample points `x`, seen beside the areas along a dimension of `y`.
fn steps(op: &'static str, y: &Tensor, x: &Tensor, along: usize) -> Result<Tensor> {
    let n = y.sizes()[along];
    let matches = |have: usize| -> Result<()> {
        if have != n {
            bail!(runtime op, "{op}: There must be one `x` value for each sample point");
        }
        Ok(())
    };
    if x.rank() == 0 {
        bail!(runtime op, "{op}: There must be one `x` value for each sample point");
    }
    let x = if x.rank() == 1 {
        matches(x.numel())?;
        let mut beside = Dims::filled(1, y.rank());
        beside[along] = n;
        x.reshape(&beside)?
    } else if x.rank() < y.rank() {
        let mut padded = Dims::filled(1, y.rank() - x.rank());
        x.sizes().iter().for_each(|&s| padded.push(s));
        x.reshape(&padded)?
    } else {
        x.clone()
    };
    let own = along + x.rank() - y.rank();
    matches(x.sizes()[own])?;
    let (left, right) = neighbours(&x, own)?;
    right.sub(&left)
}

/// The dimension of the samples, which may be no truth values.
fn checked(op: &'static str, a: &Args, dim_at: usize, x: Option<usize>) -> Result<usize> {
    let y = a.tensor(0)?;
    let along = dim(op, a, dim_at, y.rank())?;
    if y.rank() == 0 {
        bail!(index op, "Dimension specified as {} but tensor has no dimensions", a.int(dim_at)?);
    }
    let points = x.and_then(|i| a.opt_tensor(i));
    if y.dtype() == DType::Bool || points.is_some_and(|x| x.dtype() == DType::Bool) {
        let what = if points.is_some() { "`x` or `y`" } else { "`y`" };
        bail!(runtime op, "{op}: received a bool input for {what}, but bool is not supported");
    }
    Ok(along)
}

/// Twice the areas under the samples `y`, at distances `step`.
fn areas(op: &'static str, a: &Args, dim_at: usize, x: Option<usize>) -> Result<(Tensor, usize)> {
    let y = a.tensor(0)?;
    let along = checked(op, a, dim_at, x)?;
    let (left, right) = neighbours(y, along)?;
    let both = left.add(&right)?;
    Ok(match x {
        Some(i) => (both.mul(&steps(op, y, a.tensor(i)?, along)?)?, along),
        None => (both.mul(a.number(1)?)?, along),
    })
}

fn trapezoid(a: &Args, dim_at: usize, x: Option<usize>) -> Result<Outputs> {
    if x.is_none() {
        // All samples, less half of the first and the last.
        let y = a.tensor(0)?;
        let along = checked("trapezoid", a, dim_at, None)?;
        let sum = y.sum(along, false)?;
        if y.sizes()[along] == 0 {
            return Ok(smallvec![super::zeros(&sum.sizes(), y.dtype())?]);
        }
        let ends = y.select(along as i64, 0i64)?.add(&y.select(along as i64, -1i64)?)?;
        return Ok(smallvec![sum.sub(&multiply(&ends, 0.5)?)?.mul(a.number(1)?)?]);
    }
    let (twice, along) = areas("trapezoid", a, dim_at, x)?;
    let offset = twice.rank() - a.tensor(0)?.rank();
    Ok(smallvec![multiply(&twice.sum(along + offset, false)?, 0.5)?])
}

fn cumulative(a: &Args, dim_at: usize, x: Option<usize>) -> Result<Outputs> {
    let (twice, along) = areas("cumulative_trapezoid", a, dim_at, x)?;
    let offset = twice.rank() - a.tensor(0)?.rank();
    Ok(smallvec![multiply(&twice, 0.5)?.cumsum((along + offset) as i64)?])
}

op! {
    /// The `n`-th difference of neighbours along a dimension, `prepend` and `append` taken as part of it; exclusive or for
    /// bools.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d input, a negative `n`, and for shapes that do not fit; `IndexError` for the dimension.
    DIFF diff(self, n: Int = 1, dim: Int = -1, prepend: OptTensor = None, append: OptTensor = None) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(diff),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(2), Arg::Int(-1), Arg::None, Arg::None],
            smallvec![Arg::Tensor(s.t(&[3, 2])), Arg::Int(1), Arg::Int(0), Arg::Tensor(s.t(&[1, 2])), Arg::Tensor(s.t(&[2, 2]))],
        ];
    /// The integral of samples along a dimension at points `x` by the trapezoid rule.
    ///
    /// # Errors
    /// `RuntimeError` if there is not one point for each sample.
    TRAPEZOID_AT trapezoid_at as "trapezoid"(y: Tensor, x: Tensor, dim: Int = -1) -> Tensor = "", FUNCTION,
        C(|a| trapezoid(a, 2, Some(1))),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Tensor(s.t(&[4])), Arg::Int(-1)],
            smallvec![Arg::Tensor(s.t(&[3, 2])), Arg::Tensor(s.t(&[3, 2])), Arg::Int(0)],
        ];
    /// The integral of samples along a dimension at distances of `dx` by the trapezoid rule.
    ///
    /// # Errors
    /// `IndexError` for the dimension.
    TRAPEZOID trapezoid(y: Tensor; dx: Number = 1, dim: Int = -1) -> Tensor = "", FUNCTION,
        C(|a| trapezoid(a, 2, None)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Number(Scalar::Float(0.5)), Arg::Int(0)]];
    /// The running integral of samples along a dimension at points `x` by the trapezoid rule.
    ///
    /// # Errors
    /// `RuntimeError` if there is not one point for each sample.
    CUMULATIVE_TRAPEZOID_AT cumulative_trapezoid_at as "cumulative_trapezoid"(y: Tensor, x: Tensor, dim: Int = -1) -> Tensor = "", FUNCTION,
        C(|a| cumulative(a, 2, Some(1))),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Tensor(s.t(&[2, 4])), Arg::Int(-1)]];
    /// The running integral of samples along a dimension at distances of `dx` by the trapezoid rule.
    ///
    /// # Errors
    /// `IndexError` for the dimension.
    CUMULATIVE_TRAPEZOID cumulative_trapezoid(y: Tensor; dx: Number = 1, dim: Int = -1) -> Tensor = "", FUNCTION,
        C(|a| cumulative(a, 2, None)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Number(Scalar::Float(0.5)), Arg::Int(0)]];
    /// Whether two tensors have the same sizes and equal elements; NaN equals nothing.
    EQUAL equal(self, other: Tensor) -> Bool = "", METHOD | FUNCTION,
        C(|a| {
            let (x, y) = (a.tensor(0)?, a.tensor(1)?);
            Ok(smallvec![if x.sizes() == y.sizes() { x.eq(y)?.all((), false)? } else { Tensor::from(false) }])
        });
    /// Whether all elements of two tensors, which broadcast, are [close](Self::isclose).
    ///
    /// # Errors
    /// As [`isclose`](Self::isclose).
    ALLCLOSE allclose(self, other: Tensor, rtol: Float = 1e-5, atol: Float = 1e-8, equal_nan: Bool = false) -> Bool = "", METHOD | FUNCTION,
        C(|a| Ok(smallvec![a.tensor(0)?.isclose(a.tensor(1)?, a.float(2)?, a.float(3)?, a.bool(4))?.all((), false)?]));
}
