//! Selections along a dimension, which tell where the value stands: extremes, running extremes, medians, modes. The
//! gradient goes to that place alone.

use super::args::{Arg, Args, Read};
use super::op::Rule::Structured as S;
use super::op::{FUNCTION, METHOD, OUT, Outputs, op};
use super::reduce::{align, check_not_empty, dim, finish, fresh, row_major};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::backend::Operand;
use crate::backend::cpu::rank::Rank;
use crate::backend::cpu::{arg, rank, scan};
use crate::dtype::{DType, DType::Bool};
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout};
use crate::storage::Guards;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;

/// Runs a kernel that selects one value of each slice along a dimension: values and places, both aligned.
fn select(
    op: &'static str,
    x: &Body,
    along: usize,
    kernel: impl FnOnce(&Operand<'_>, &Operand<'_>, &Operand<'_>, usize),
) -> Result<(Body, Body)> {
    let to = super::reduce::aligned(&x.layout.sizes, &[along]);
    let (values, places) = (fresh(op, to.clone(), x.dtype)?, fresh(op, to, DType::I64)?);
    {
        let _guards = Guards::take([&x.storage], []);
        kernel(&x.operand(), &values.operand(), &places.operand(), along);
    }
    Ok((values, places))
}

/// A row `(input, dim, keepdim) -> (values, indices)`.
fn along(
    op: &'static str,
    a: &Args,
    kernel: impl FnOnce(&Operand<'_>, &Operand<'_>, &Operand<'_>, usize),
) -> Result<Outputs> {
    let t = a.tensor(0)?;
    let along = dim(op, a, 1, t.rank())?;
    check_not_empty(
        if op == "nanmedian" { "median" } else { op },
        &t.sizes(),
        if t.rank() > 0 { std::slice::from_ref(&along) } else { &[] },
        true,
    )?;
    let (values, places) = select(op, &*row_major(op, t)?, along, kernel)?;
    Ok(smallvec![finish(values, &[along], a.bool(2)), finish(places, &[along], a.bool(2))])
}

/// A row `(input) -> value` over all elements, with the place as a second, hidden result of the kernel.
fn over_all(op: &'static str, t: &Tensor, rank: Rank) -> Result<Tensor> {
    if t.numel() == 0 {
        // What NaN becomes in an integer, there as here.
        let none = match t.dtype() {
            DType::I32 => Scalar::Int(i64::from(i32::MIN)),
            d if d.is_float() => Scalar::Float(f64::NAN),
            _ => Scalar::Int(i64::MIN),
        };
        return super::full(&[], none, t.dtype());
    }
    let (values, _) = select(op, &flat(op, t)?, 0, |x, v, p, d| rank::select(x, v, p, d, rank))?;
    Ok(finish(values, &[0], false))
}

/// All elements in a row.
fn flat(op: &'static str, t: &Tensor) -> Result<Body> {
    let body = row_major(op, t)?;
    let layout = Layout { offset: body.layout.offset, ..Layout::contiguous([body.layout.numel()][..].into()) };
    Ok(body.with_layout(layout))
}

/// `argmax` and `argmin`: of all elements without `dim`.
fn place(op: &'static str, a: &Args, largest: bool) -> Result<Outputs> {
    let t = a.tensor(0)?;
    if t.dtype() == Bool {
        bail!(runtime op, "{op}(): does not support bool input");
    }
    let keepdim = a.bool(2);
    let kernel = |x: &Operand<'_>, v: &Operand<'_>, p: &Operand<'_>, d| arg::extreme(x, v, p, d, largest);
    if a.opt_int(1).is_some() {
        let mut outputs = along(op, a, kernel)?;
        return Ok(smallvec![outputs.remove(1)]);
    }
    if t.numel() == 0 {
        bail!(index op, "{op}(): Expected reduction dim to be specified for input.numel() == 0.");
    }
    let (_, places) = select(op, &flat(op, t)?, 0, kernel)?;
    let shape = if keepdim { Dims::filled(1, t.rank()) } else { Dims::new() };
    Ok(smallvec![Tensor::from_body(places.with_layout(Layout::contiguous(shape)))])
}

/// `cummax` and `cummin`.
fn running(op: &'static str, a: &Args, largest: bool) -> Result<Outputs> {
    let t = a.tensor(0)?;
    let along = dim(op, a, 1, t.rank())?;
    let x = row_major(op, t)?;
    let sizes = &x.layout.sizes;
    let (values, places) = (fresh(op, sizes.clone(), x.dtype)?, fresh(op, sizes.clone(), DType::I64)?);
    {
        let _guards = Guards::take([&x.storage], []);
        scan::extremes(&x.operand(), &values.operand(), &places.operand(), along, largest);
    }
    Ok(smallvec![Tensor::from_body(values), Tensor::from_body(places)])
}

/// Zeros of `sizes` with each gradient at the place its value came from.
fn put_back(g: &Tensor, places: &Tensor, sizes: &[usize], along: i64) -> Result<Tensor> {
    super::zeros(sizes, g.dtype())?.scatter_add(along, places, g)
}

/// The gradient of a row `(input, dim, keepdim) -> (values, indices)`.
fn along_backward(c: &Context<'_>) -> Result<Grads> {
    Ok(smallvec![c.when(0, |g| {
        let sizes = c.sizes(0);
        let along = dim("max", c, 1, sizes.len())?;
        let aligned = |t: &Tensor| align(t, sizes, &[along], c.bool(2));
        put_back(&aligned(g)?, &aligned(&c.output(1)?)?, sizes, along as i64)
    })?])
}

/// The gradient of a running extreme.
fn running_backward(c: &Context<'_>) -> Result<Grads> {
    Ok(smallvec![c.when(0, |g| put_back(g, &c.output(1)?, c.sizes(0), c.int(1)?))?])
}

/// The gradient of a median over all elements: shared evenly by the elements that equal it.
fn over_all_backward(c: &Context<'_>) -> Result<Grads> {
    let all: Dims = (0..c.sizes(0).len()).collect();
    Ok(smallvec![super::reduce::share(c, c.grad(0), 0, &all, false, true)?])
}

fn median_dtype(op: &'static str, kernel: &str, a: &Args) -> Result<()> {
    if a.tensor(0)?.dtype() == Bool {
        bail!(not_implemented op, "\"{kernel}\" not implemented for 'Bool'");
    }
    Ok(())
}

macro_rules! samples {
    () => {
        |s| {
            vec![
                smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Int(1), Arg::Bool(false)],
                smallvec![Arg::Tensor(s.t(&[2, 5])), Arg::Int(-1), Arg::Bool(true)],
            ]
        }
    };
    (running) => {
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(1)], smallvec![Arg::Tensor(s.t(&[3, 2])), Arg::Int(0)]]
    };
}

op! {
    /// The largest element of each slice along a dimension, and where it is (the first of equal ones). NaN wins.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there or is empty.
    MAX_DIM max_dim as "max"(self, dim: Int, keepdim: Bool = false) -> Fields["values", "indices"] = "MaxBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| along("max", a, |x, v, p, d| arg::extreme(x, v, p, d, true)),
            backward: Some(along_backward),
            saves: &[Save::Output(1)],
        }),
        samples!();
    /// The smallest element of each slice along a dimension, and where it is (the first of equal ones). NaN wins.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there or is empty.
    MIN_DIM min_dim as "min"(self, dim: Int, keepdim: Bool = false) -> Fields["values", "indices"] = "MinBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| along("min", a, |x, v, p, d| arg::extreme(x, v, p, d, false)),
            backward: Some(along_backward),
            saves: &[Save::Output(1)],
        }),
        samples!();
    /// Where the largest element is: its index along `dim`, or without it among all elements in row-major order. The first
    /// of equal ones; NaN wins.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there or is empty, `RuntimeError` for bools.
    ARGMAX argmax(self, dim: OptInt = None, keepdim: Bool = false) -> Tensor = "", METHOD | FUNCTION | OUT,
        S(Structured { forward: |a| place("argmax", a, true), backward: None, saves: &[] });
    /// Where the smallest element is: its index along `dim`, or without it among all elements in row-major order. The first
    /// of equal ones; NaN wins.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there or is empty, `RuntimeError` for bools.
    ARGMIN argmin(self, dim: OptInt = None, keepdim: Bool = false) -> Tensor = "", METHOD | FUNCTION | OUT,
        S(Structured { forward: |a| place("argmin", a, false), backward: None, saves: &[] });
    /// The largest element so far along a dimension, and where it is (the last of equal ones). NaN stays once met.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    CUMMAX cummax(self, dim: Int) -> Fields["values", "indices"] = "CummaxBackward0", METHOD | FUNCTION,
        S(Structured { forward: |a| running("cummax", a, true), backward: Some(running_backward), saves: &[Save::Output(1)] }),
        samples!(running);
    /// The smallest element so far along a dimension, and where it is (the last of equal ones). NaN stays once met.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    CUMMIN cummin(self, dim: Int) -> Fields["values", "indices"] = "CumminBackward0", METHOD | FUNCTION,
        S(Structured { forward: |a| running("cummin", a, false), backward: Some(running_backward), saves: &[Save::Output(1)] }),
        samples!(running);
    /// The median of all elements, the lower of two; NaN if there is one, and of nothing. Equal ones share the gradient.
    ///
    /// # Errors
    /// `NotImplementedError` for bools.
    MEDIAN_ALL median_all as "median"(self) -> Tensor = "MedianBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                median_dtype("median", "median_cpu", a)?;
                Ok(smallvec![over_all("median", a.tensor(0)?, Rank::Median)?])
            },
            backward: Some(over_all_backward),
            saves: &[Save::Input(0), Save::Output(0)],
        });
    /// The median of each slice along a dimension, the lower of two, and where it is; NaN if there is one.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there or is empty, `NotImplementedError` for bools.
    MEDIAN median(self, dim: Int, keepdim: Bool = false) -> Fields["values", "indices"] = "MedianBackward1", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                median_dtype("median", "median_out", a)?;
                along("median", a, |x, v, p, d| rank::select(x, v, p, d, Rank::Median))
            },
            backward: Some(along_backward),
            saves: &[Save::Output(1)],
        }),
        samples!();
    /// The median of all elements that are not NaN, the lower of two. Equal ones share the gradient.
    ///
    /// # Errors
    /// `NotImplementedError` for bools.
    NANMEDIAN_ALL nanmedian_all as "nanmedian"(self) -> Tensor = "NanmedianBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                median_dtype("nanmedian", "median_cpu", a)?;
                Ok(smallvec![over_all("nanmedian", a.tensor(0)?, Rank::NanMedian)?])
            },
            backward: Some(over_all_backward),
            saves: &[Save::Input(0), Save::Output(0)],
        });
    /// The median of what is not NaN in each slice along a dimension, the lower of two, and where it is.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there or is empty, `NotImplementedError` for bools.
    NANMEDIAN nanmedian(self, dim: Int, keepdim: Bool = false) -> Fields["values", "indices"] = "NanmedianBackward1", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                median_dtype("nanmedian", "median_out", a)?;
                along("nanmedian", a, |x, v, p, d| rank::select(x, v, p, d, Rank::NanMedian))
            },
            backward: Some(along_backward),
            saves: &[Save::Output(1)],
        }),
        samples!();
    /// The most frequent value of each slice along a dimension (the smallest of several), and where it is last.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there or is empty.
    MODE mode(self, dim: Int = -1, keepdim: Bool = false) -> Fields["values", "indices"] = "ModeBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| along("mode", a, |x, v, p, d| rank::select(x, v, p, d, Rank::Mode)),
            backward: Some(along_backward),
            saves: &[Save::Output(1)],
        }),
        samples!();
}
