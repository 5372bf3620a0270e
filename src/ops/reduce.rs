//! Reductions.

use super::args::{Arg, Args, Read, kinds};
use super::op::Rule::Structured as S;
use super::op::{FUNCTION, METHOD, OUT, Outputs, op};
use super::structured::Structured;
use crate::backend::{Executable, Reduce};
use crate::dtype::{Category, DType};
use crate::error::Result;
use crate::program::trace;
use crate::shape::{Dims, Layout, checked_numel, wrap_dims};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;
use std::sync::OnceLock;

/// Reduces dimensions, computing in the compute type of `dtype`, in which the result is.
pub(super) fn reduce(op: &'static str, t: &Tensor, dims: &[usize], keepdim: bool, dtype: DType, how: Reduce) -> Result<Tensor> {
    static READS: [[OnceLock<Executable>; 4]; 4] = [const { [const { OnceLock::new() }; 4] }; 4];
    let body = t.body();
    let (from, to) = (body.dtype.compute(), dtype.compute());
    let read = READS[from as usize][to as usize].get_or_init(|| Executable::new(trace(&[from], &[], |x, _| vec![x[0].cast(to)])));
    let sizes = &body.layout.sizes;
    let kept: Dims = sizes.iter().enumerate().map(|(d, &s)| if dims.contains(&d) { 1 } else { s }).collect();
    let n = checked_numel(op, &kept)?;
    let full = Body::new(Storage::uninit(op, n * dtype.size())?, Layout::contiguous(kept), dtype);
    read.run(op, sizes, &[body.operand()], &[], &[full.operand()], how)?;
    if keepdim {
        return Ok(Tensor::from_body(full));
    }
    let squeezed: Dims = sizes.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, &s)| s).collect();
    Ok(Tensor::from_body(Body::new(full.storage, Layout::contiguous(squeezed), dtype)))
}

/// The dtype of a sum: that asked for, int64 for integers, else the input's.
pub(super) fn sum_dtype(t: &Tensor, asked: Option<DType>) -> DType {
    asked.unwrap_or_else(|| if t.dtype().category() == Category::Float { t.dtype() } else { DType::I64 })
}

/// A gradient of a reduced result, seen in the shape of the input: dimensions put back, then expanded.
pub(super) fn restore(grad: &Tensor, sizes: &[usize], dims: &[usize], keepdim: bool) -> Result<Tensor> {
    let mut grad = grad.clone();
    if !keepdim && !sizes.is_empty() {
        let with_ones: Dims = sizes.iter().enumerate().map(|(d, &s)| if dims.contains(&d) { 1 } else { s }).collect();
        grad = grad.view(&with_ones)?;
    }
    grad.expand(kinds::Ints(sizes.iter().map(|&s| s as i64).collect()))
}

fn sum_forward(a: &Args) -> Result<Outputs> {
    let t = a.tensor(0)?;
    let dims = wrap_dims("sum", a.opt_ints(1).unwrap_or(&[]), t.rank())?;
    Ok(smallvec![reduce("sum", t, &dims, a.bool(2), sum_dtype(t, a.opt_dtype(3)), Reduce::Sum)?])
}

op! {
    /// The sum over dimensions (all if `dim` is not given), pairwise. Integers and bools sum to int64 unless `dtype` says
    /// otherwise; half types accumulate in float32.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there, `RuntimeError` for one named twice.
    SUM sum(self, dim: OptInts = None, keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "SumBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: sum_forward,
            backward: Some(|c| {
                let dims = wrap_dims("sum", c.opt_ints(1).unwrap_or(&[]), c.sizes(0).len())?;
                Ok(smallvec![c.when(0, |g| restore(&super::to_dtype(&g, c.dtype(0))?, c.sizes(0), &dims, c.bool(2)))?])
            }),
            saves: &[],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([1][..].into()), Arg::Bool(true), Arg::None],
            smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([0, -1][..].into()), Arg::Bool(false), Arg::None],
        ];
}
