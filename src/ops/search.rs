//! Rows that look elements up and count them: nonzero, unique, searchsorted, bincount, isin, histc. None has a derivative.

use super::address::{converted, fresh};
use super::apply;
use super::args::{Arg, Args, Read};
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, METHOD, OUT, Outputs, op};
use super::structured::{Context, Structured};
use crate::autograd::node::Grads;
use crate::backend::cpu::{count, mask, search, sort};
use crate::dtype::{Category, DType, Promotion};
use crate::error::{Error, Result, bail};
use crate::shape::{Dims, Layout, Strides, numel, wrap_dim};
use crate::storage::affordable;
use crate::tensor::{Body, Tensor, default_dtype};
use smallvec::smallvec;
use std::sync::Arc;

fn nonzero_forward(a: &Args) -> Result<Outputs> {
    let body = a.tensor(0)?.body();
    let as_tuple = a.bool(1);
    // A 0-d tensor has coordinates only as a tuple, where it counts as a vector.
    let layout = if as_tuple { super::address::at_least_1d(&body.layout) } else { body.layout.clone() };
    let rank = layout.rank();
    let (storage, n) = mask::nonzero("nonzero", &super::address::through(&body, &layout))?;
    let columns = Body::new(storage, Layout::contiguous(Dims::filled(n, 1)), DType::I64);
    if as_tuple {
        let column = |k: usize| Layout { offset: k * n, ..columns.layout.clone() };
        // Each with memory of its own, as PyTorch's are no views of one another.
        return (0..rank)
            .map(|k| Ok(Tensor::from_shared(super::contiguous("nonzero", &columns.with_layout(column(k)))?)))
            .collect();
    }
    let layout = Layout { sizes: [n, rank][..].into(), strides: Strides::from_slice(&[1, n as isize]), offset: 0 };
    Ok(smallvec![Tensor::from_body(columns.with_layout(layout))])
}

/// A tensor in row-major order, in a dtype.
fn dense(op: &'static str, t: &Tensor, dtype: DType) -> Result<Arc<Body>> {
    let body = converted(op, t.body(), dtype)?;
    if body.layout.is_contiguous() { Ok(body) } else { super::contiguous(op, &body) }
}

/// What `unique` and its kin return: values, and what was asked for.
fn grouped(values: Tensor, g: sort::Groups, shape: &[usize], inverse: bool, counts: bool) -> Result<Outputs> {
    let mut out: Outputs = smallvec![values];
    if inverse {
        out.push(Tensor::from_slice(&g.group, shape)?);
    }
    if counts {
        out.push(Tensor::from_slice(&g.count, &[g.count.len()])?);
    }
    Ok(out)
}

/// Distinct elements of the flattened tensor.
fn unique_flat(op: &'static str, a: &Args, neighbours_only: bool, inverse: bool, counts: bool) -> Result<Outputs> {
    let t = a.tensor(0)?;
    let body = dense(op, t, t.dtype())?;
    let n = body.layout.numel();
    let g = sort::groups(&body.operand(), n, 1, neighbours_only, inverse);
    let flat = Tensor::from_body(
        body.with_layout(Layout { offset: body.layout.offset, ..Layout::contiguous(Dims::filled(n, 1)) }),
    );
    let values = flat.index_select(0, Tensor::from_slice(&g.first, &[g.first.len()])?)?;
    grouped(values, g, &t.sizes(), inverse, counts)
}

/// Distinct slices along a dimension.
fn unique_slices(
    op: &'static str,
    a: &Args,
    dim: i64,
    neighbours_only: bool,
    inverse: bool,
    counts: bool,
) -> Result<Outputs> {
    let t = a.tensor(0)?;
    let sizes = t.sizes();
    if sizes.is_empty() {
        bail!(index op, "Dimension specified as {dim} but tensor has no dimensions");
    }
    let dim = wrap_dim(op, dim, sizes.len())?;
    match (sizes.iter().filter(|&&s| s == 0).count(), sizes[dim]) {
        (0, _) | (1, 0) => {}
        (1, _) => {
            bail!(runtime op, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
        }
        _ => bail!(runtime op, "Number of zero sized dimensions is more than one, so unique cannot be applied "),
    }
    let mut front: Vec<usize> = (0..sizes.len()).filter(|&d| d != dim).collect();
    front.insert(0, dim);
    let rows = dense(op, &t.permute(&front[..])?, t.dtype())?;
    let n = sizes[dim];
    let g = sort::groups(&rows.operand(), n, numel(&rows.layout.sizes[1..]), neighbours_only, inverse);
    let values = t.index_select(dim as i64, Tensor::from_slice(&g.first, &[g.first.len()])?)?;
    grouped(values, g, &[n], inverse, counts)
}

/// What a derivative that there is not raises.
macro_rules! underivable {
    ($name:literal) => {
        |_: &Context<'_>| -> Result<Grads> { bail!(not_implemented $name, "the derivative for '{}' is not implemented.", $name) }
    };
}

/// The dtype in which two operands are compared.
fn common(operands: [&Arg; 2]) -> DType {
    let mut p = Promotion::default();
    for arg in operands {
        match arg {
            Arg::Tensor(t) => p.tensor(t.dtype(), t.rank()),
            Arg::Number(s) => p.number(s.category(), default_dtype()),
            _ => {}
        }
    }
    p.result(default_dtype())
}

/// A tensor, or a number as a 0-d tensor, row-major in a dtype.
fn dense_operand(op: &'static str, arg: &Arg, dtype: DType) -> Result<Arc<Body>> {
    match arg {
        Arg::Tensor(t) => dense(op, t, dtype),
        Arg::Number(s) => Ok(super::full(&[], *s, dtype)?.body()),
        _ => bail!(type_ op, "{op}(): expected a tensor or a number"),
    }
}

/// Places of `values` in sorted sequences.
fn places(
    op: &'static str,
    values: &Arg,
    sequences: &Tensor,
    sorter: Option<&Tensor>,
    right: bool,
    int32: bool,
) -> Result<Outputs> {
    let dtype = common([values, &Arg::Tensor(sequences.clone())]);
    if dtype == DType::Bool {
        bail!(not_implemented op, "\"searchsorted_out_cpu\" not implemented for 'Bool'");
    }
    let (values, sequences) = (dense_operand(op, values, dtype)?, dense(op, sequences, dtype)?);
    let sorter = sorter.map(|s| dense(op, s, DType::I64)).transpose()?;
    let out = fresh(op, &values.layout.sizes, DType::I64)?;
    let sorter = sorter.as_ref().map(|s| s.operand());
    search::searchsorted(&out.operand(), &values.operand(), &sequences.operand(), sorter.as_ref(), right)
        .map_err(|_| Error::runtime(op, "torch.searchsorted(): sorter index out of range"))?;
    let out = Arc::new(out);
    Ok(smallvec![Tensor::from_shared(if int32 { converted(op, out, DType::I32)? } else { out })])
}

fn searchsorted(a: &Args) -> Result<Outputs> {
    let op = "searchsorted";
    let (sequences, values, sorter) = (a.tensor(0)?, a.arg(1), a.opt_tensor(5));
    let (have, want) = (sequences.sizes(), if let Arg::Tensor(t) = values { t.sizes() } else { Dims::new() });
    let right = match a.str(4) {
        "" => a.bool(3),
        "right" => true,
        "left" if a.bool(3) => {
            bail!(runtime op, "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True")
        }
        "left" => false,
        other => bail!(runtime op, "torch.searchsorted(): side can only be 'left' or 'right' but got {other}"),
    };
    if have.is_empty() {
        bail!(runtime op, "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension");
    }
    if want.is_empty() && have.len() != 1 {
        bail!(runtime op, "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we got boundaries tensor dim({}) and input value's dim(0) numel(1)", have.len());
    }
    if have.len() != 1 && (have.len() != want.len() || have[..have.len() - 1] != want[..want.len() - 1]) {
        bail!(runtime op, "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value tensor must match, but we got boundaries tensor {have:?} and input value tensor {want:?}");
    }
    if let Some(s) = sorter {
        if s.sizes() != have {
            bail!(runtime op, "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor {have:?}and got sorter tensor {:?}", s.sizes());
        }
        if s.dtype() != DType::I64 {
            bail!(runtime op, "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {}", s.dtype().legacy());
        }
        let dense = dense(op, s, DType::I64)?;
        if !search::all_below(&dense.operand(), have[have.len() - 1]) {
            bail!(runtime op, "torch.searchsorted(): sorter index out of range");
        }
    }
    places(op, values, sequences, sorter, right, a.bool(2))
}

fn bincount(a: &Args) -> Result<Outputs> {
    let op = "bincount";
    let (t, weights, least) = (a.tensor(0)?, a.opt_tensor(1), a.int(2)?);
    if t.rank() != 1 {
        bail!(runtime op, "bincount only supports 1-d non-negative integral inputs.");
    }
    if least < 0 {
        bail!(runtime op, "minlength should be >= 0");
    }
    if t.dtype().category() != Category::Int {
        bail!(not_implemented op, "\"bincount_cpu\" not implemented for '{}'", t.dtype().legacy());
    }
    if let Some(w) = weights
        && w.sizes() != t.sizes()
    {
        bail!(runtime op, "weights should be 1-d and have the same length as input");
    }
    let values = dense(op, t, DType::I64)?;
    let Some((low, high)) = count::extremes(&values.operand()) else {
        return Ok(smallvec![super::zeros(&[least as usize], DType::I64)?]);
    };
    if low < 0 {
        bail!(runtime op, "bincount only supports 1-d non-negative integral inputs.");
    }
    let dtype = match weights.map(Tensor::dtype) {
        None => DType::I64,
        Some(DType::F32) => DType::F32,
        Some(_) => DType::F64,
    };
    let out = super::zeros(&[(high as usize).saturating_add(1).max(least as usize)], dtype)?;
    let weights = weights.map(|w| dense(op, w, dtype)).transpose()?;
    let weights = weights.as_ref().map(|w| w.operand());
    count::bincount(&out.body().operand(), &values.operand(), weights.as_ref()).map_err(|v| {
        Error::runtime(
            op,
            format!("bincount only supports 1-d non-negative integral inputs.\nbincount: {v} appeared while counting"),
        )
    })?;
    Ok(smallvec![out])
}

fn isin(a: &Args) -> Result<Outputs> {
    let op = "isin";
    let (elements, tests) = (a.arg(0), a.arg(1));
    let dtype = common([elements, tests]);
    if dtype == DType::Bool {
        bail!(runtime op, "Unsupported input type encountered for isin(): Bool");
    }
    let (elements, tests) = (dense_operand(op, elements, dtype)?, dense_operand(op, tests, dtype)?);
    let out = fresh(op, &elements.layout.sizes, DType::Bool)?;
    search::isin(&out.operand(), &elements.operand(), &tests.operand(), a.bool(3));
    Ok(smallvec![Tensor::from_body(out)])
}

fn histc(a: &Args) -> Result<Outputs> {
    let op = "histc";
    let (t, bins) = (a.tensor(0)?, a.int(1)?);
    let (mut low, mut high) = (a.number(2)?.to_f64(), a.number(3)?.to_f64());
    if bins <= 0 {
        bail!(runtime op, "torch.histogram(): bins must be > 0, but got {bins} for dimension 0");
    }
    let dtype = t.dtype();
    if !dtype.is_float() {
        bail!(not_implemented op, "\"histogram_cpu\" not implemented for '{}'", dtype.legacy());
    }
    let body = dense(op, t, dtype.compute().dtype())?;
    if low == high
        && let Some(ends) = count::float_extremes(&body.operand())
    {
        (low, high) = ends;
    }
    if !low.is_finite() || !high.is_finite() {
        bail!(runtime op, "torch.histc: range of [{low}, {high}] is not finite");
    }
    if low > high {
        bail!(runtime op, "torch.histc: max must be larger than min");
    }
    if low == high {
        (low, high) = (low - 1.0, high + 1.0);
    }
    affordable(op, bins as usize, size_of::<f64>())?;
    let counts = count::histogram(&body.operand(), bins as usize, low, high);
    Ok(smallvec![super::to_dtype(&Tensor::from_slice(&counts, &[bins as usize])?, dtype)?])
}

op! {
    /// Coordinates of the elements that are not zero, in row-major order: a matrix with a row for each, or, if `as_tuple`,
    /// one vector for each dimension, as `x[...]` takes them.
    NONZERO nonzero(self; as_tuple: Bool = false) -> TupleIf[1] = "", METHOD | FUNCTION | OUT,
        S(Structured { forward: nonzero_forward, backward: None, saves: &[] });
    /// Coordinates of the elements that are not zero: a matrix with a row for each.
    ARGWHERE argwhere(self) -> Tensor = "", METHOD | FUNCTION,
        C(|a| apply::call(&NONZERO, &smallvec![a.arg(0).clone(), Arg::Bool(false)]));
    /// The distinct elements in ascending order (also if `sorted` is false), or the distinct slices along `dim`; then, if
    /// asked for, which of them each element is, and how often each occurs. NaN is distinct from itself.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there, `RuntimeError` for empty slices.
    UNIQUE unique(self, sorted: Bool = true, return_inverse: Bool = false, return_counts: Bool = false, dim: OptInt = None) -> TupleIf[2, 3] = "", METHOD | FUNCTION,
        C(|a| match a.arg(4) {
            Arg::None => apply::call(&UNIQUE2, &a[..4].iter().cloned().collect()),
            _ => apply::call(&UNIQUE_DIM, a),
        }),
        |_| Vec::new();
    /// `unique` of all elements; not differentiable, as in PyTorch.
    UNIQUE2 unique2 as "_unique2" (self, sorted: Bool = true, return_inverse: Bool = false, return_counts: Bool = false) -> Vec<Tensor> = "Unique2Backward0", 0,
        S(Structured {
            forward: |a| unique_flat("unique", a, false, a.bool(2), a.bool(3)),
            backward: Some(underivable!("_unique2")),
            saves: &[],
        });
    /// `unique` of slices; not differentiable, as in PyTorch.
    UNIQUE_DIM unique_dim(self, sorted: Bool = true, return_inverse: Bool = false, return_counts: Bool = false, dim: Int = 0) -> Vec<Tensor> = "UniqueDimBackward0", 0,
        S(Structured {
            forward: |a| unique_slices("unique", a, a.int(4)?, false, a.bool(2), a.bool(3)),
            backward: Some(underivable!("unique_dim")),
            saves: &[],
        });
    /// The elements without immediate repetitions, or the slices along `dim`; then, if asked for, which of them each
    /// element became, and the lengths of the runs.
    ///
    /// # Errors
    /// As [`unique`](Tensor::unique).
    UNIQUE_CONSECUTIVE unique_consecutive(self, return_inverse: Bool = false, return_counts: Bool = false, dim: OptInt = None) -> TupleIf[1, 2] = "UniqueConsecutiveBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| match a.opt_int(3) {
                None => unique_flat("unique_consecutive", a, true, a.bool(1), a.bool(2)),
                Some(dim) => unique_slices("unique_consecutive", a, dim, true, a.bool(1), a.bool(2)),
            },
            backward: Some(underivable!("unique_consecutive")),
            saves: &[],
        });
    /// For each value of `input` where it would go in a sorted sequence so that it stays sorted: before equals, or behind
    /// them if `right` (or `side="right"`). The sequence is a vector, or one for each row of `input`; `sorter` says in which
    /// order it is sorted. The result is int64, or int32 if `out_int32`.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit and for a bad `side` or `sorter`.
    SEARCHSORTED searchsorted(sorted_sequence: Tensor, input: Operand; out_int32: Bool = false, right: Bool = false, side: OptStr = None, sorter: OptTensor = None) -> Tensor = "", FUNCTION | OUT,
        S(Structured { forward: searchsorted, backward: None, saves: &[] });
    /// For each value of `input` its bucket among those that a sorted vector of boundaries separates; see
    /// [`searchsorted`](Tensor::searchsorted).
    ///
    /// # Errors
    /// `RuntimeError` if `boundaries` is no vector.
    BUCKETIZE bucketize(input: Operand, boundaries: Tensor; out_int32: Bool = false, right: Bool = false) -> Tensor = "", FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let boundaries = a.tensor(1)?;
                if boundaries.rank() != 1 {
                    bail!(runtime "bucketize", "boundaries tensor must be 1 dimension, but got dim({})", boundaries.rank());
                }
                places("bucketize", a.arg(0), boundaries, None, a.bool(3), a.bool(2))
            },
            backward: None,
            saves: &[],
        });
    /// How often each number occurs in a vector of non-negative integers, from 0 to the largest or `minlength - 1`; with
    /// `weights`, their sums, in float32 for float32 and in float64 for all others.
    ///
    /// # Errors
    /// `RuntimeError` for negative numbers, other shapes, a negative `minlength`; `NotImplementedError` for other dtypes.
    BINCOUNT bincount(self, weights: OptTensor = None, minlength: Int = 0) -> Tensor = "", METHOD | FUNCTION,
        S(Structured { forward: bincount, backward: None, saves: &[] });
    /// For each of `elements` whether it is among `test_elements`, or whether it is not if `invert`.
    ///
    /// # Errors
    /// `RuntimeError` for bool operands.
    ISIN isin(elements: Operand, test_elements: Operand; assume_unique: Bool = false, invert: Bool = false) -> Tensor = "", FUNCTION | OUT,
        S(Structured { forward: isin, backward: None, saves: &[] });
    /// Counts of elements in `bins` equal bins between `min` and `max`, or, if those are equal, between the smallest and the
    /// largest element. Elements outside and NaN are not counted.
    ///
    /// # Errors
    /// `RuntimeError` for bad bins or a range that is not finite; `NotImplementedError` for dtypes that are not floating.
    HISTC histc(self, bins: Int = 100, min: Number = 0, max: Number = 0) -> Tensor = "", METHOD | FUNCTION | OUT,
        S(Structured { forward: histc, backward: None, saves: &[] });
}

impl Tensor {
    /// Coordinates of the elements that are not zero, one vector for each dimension, as an advanced index takes them.
    ///
    /// # Errors
    /// `RuntimeError` if memory runs out.
    pub fn nonzero_as_tuple(&self) -> Result<Vec<Tensor>> {
        Ok(apply::call(&NONZERO, &smallvec![Arg::Tensor(self.clone()), Arg::Bool(true)])?.into_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Scalar;

    #[test]
    fn numbers_are_compared_in_the_promoted_dtype() {
        let t = Tensor::from_slice(&[1i64], &[1]).unwrap();
        assert_eq!(common([&Arg::Tensor(t.clone()), &Arg::Number(Scalar::Float(1.5))]), DType::F32);
        assert_eq!(common([&Arg::Tensor(t), &Arg::Number(Scalar::Int(1))]), DType::I64);
    }
}
