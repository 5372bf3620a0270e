//! Rows that put elements in order: sort, argsort, topk, kthvalue. Gradients go to the places the elements came from.

use super::address::{at_least_1d, fresh, through};
use super::apply;
use super::args::{Arg, Args, Read};
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, METHOD, OUT, Outputs, op};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::backend::cpu::sort::{Pick, order};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::shape::{Dims, wrap_dim};
use crate::storage::affordable;
use crate::tensor::Tensor;
use smallvec::smallvec;

/// Elements in order along a dimension, with their positions; `len` of them, or one and no dimension if `len` is `None`.
fn ordered(
    op: &'static str,
    t: &Tensor,
    dim: usize,
    descending: bool,
    pick: Pick,
    len: Option<usize>,
) -> Result<(Tensor, Tensor)> {
    let body = t.body();
    let from = at_least_1d(&body.layout);
    let mut sizes = from.sizes.clone();
    sizes[dim] = len.unwrap_or(1);
    let (values, indices) = (fresh(op, &sizes, body.dtype)?, fresh(op, &sizes, DType::I64)?);
    if !sizes.contains(&0) {
        order(&through(&body, &from), dim, descending, pick, &values.operand(), &indices.operand());
    }
    let mut shown: Dims = body.layout.sizes.clone();
    match len {
        Some(n) if !shown.is_empty() => shown[dim] = n,
        None if !shown.is_empty() => {
            shown.remove(dim);
        }
        _ => {}
    }
    let seen =
        |b: crate::tensor::Body| Tensor::from_body(b.with_layout(crate::shape::Layout::contiguous(shown.clone())));
    Ok((seen(values), seen(indices)))
}

/// The first `k` along a dimension, from the smallest or the largest on.
/// Bytes that an element takes while its row is put in order.
const ROW: usize = 16;

fn first(op: &'static str, t: &Tensor, dim: i64, descending: bool, k: Option<i64>) -> Result<Outputs> {
    let dim = wrap_dim(op, dim, t.rank())?;
    let n = t.sizes().get(dim).copied().unwrap_or(1);
    let k = match k {
        None => n,
        Some(k) if (0..=n as i64).contains(&k) => k as usize,
        Some(k) => bail!(runtime op, "selected index k out of range\n{op}: k is {k}, dimension {dim} has size {n}"),
    };
    affordable(op, n, ROW)?;
    let (values, indices) = ordered(op, t, dim, descending, Pick::First(k), Some(k))?;
    Ok(smallvec![values, indices])
}

/// Gradients go back to where the elements came from.
fn to_origin(c: &Context<'_>, dim: i64) -> Result<Grads> {
    Ok(smallvec![c.when(0, |g| super::zeros(c.sizes(0), g.dtype())?.scatter(dim, c.output(1)?, g))?])
}

op! {
    /// Elements in order along a dimension, and their positions. NaN counts as larger than everything. The order is
    /// stable: equal elements stay in theirs.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    SORT sort(self, dim: Int = -1, descending: Bool = false) -> Fields["values", "indices"] = "SortBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| first("sort", a.tensor(0)?, a.int(1)?, a.bool(2), None),
            backward: Some(|c| to_origin(c, c.int(1)?)),
            saves: &[Save::Output(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 5])), Arg::Int(-1), Arg::Bool(false)], smallvec![Arg::Tensor(s.t(&[3, 5])), Arg::Int(0), Arg::Bool(true)]];
    /// [`sort`](Tensor::sort) with `stable` said; it makes no difference.
    ///
    /// # Errors
    /// As `sort`.
    SORT_STABLE sort_stable as "sort" (self; stable: OptBool, dim: Int = -1, descending: Bool = false) -> Fields["values", "indices"] = "SortBackward1", METHOD | FUNCTION,
        S(Structured {
            forward: |a| first("sort", a.tensor(0)?, a.int(2)?, a.bool(3), None),
            backward: Some(|c| to_origin(c, c.int(2)?)),
            saves: &[Save::Output(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[4])), Arg::Bool(true), Arg::Int(0), Arg::Bool(true)]];
    /// The positions that would put a dimension in order; see [`sort`](Tensor::sort).
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    ARGSORT argsort(self, dim: Int = -1, descending: Bool = false; stable: Bool = false) -> Tensor = "", METHOD | FUNCTION,
        S(Structured {
            forward: |a| Ok(smallvec![first("argsort", a.tensor(0)?, a.int(1)?, a.bool(2), None)?.remove(1)]),
            backward: None,
            saves: &[],
        });
    /// The elements in ascending order along the first dimension.
    MSORT msort(self) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| {
            let args: Args = smallvec![a.arg(0).clone(), Arg::Int(0), Arg::Bool(false)];
            Ok(smallvec![apply::call(&SORT, &args)?.remove(0)])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[4, 2]))]];
    /// The `k` largest elements along a dimension (or the smallest, if `largest` is false) in order, and their positions;
    /// of equal ones those that come first. They are in order even if `sorted` is false.
    ///
    /// # Errors
    /// `RuntimeError` for a `k` outside the dimension, or a bool tensor; `IndexError` for a dimension that is not there.
    TOPK topk(self, k: Int, dim: Int = -1, largest: Bool = true, sorted: Bool = true) -> Fields["values", "indices"] = "TopkBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let t = a.tensor(0)?;
                if t.dtype() == DType::Bool {
                    bail!(runtime "topk", "topk does not support bool dtypes on CPU");
                }
                first("topk", t, a.int(2)?, a.bool(3), Some(a.int(1)?))
            },
            backward: Some(|c| to_origin(c, c.int(2)?)),
            saves: &[Save::Output(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 5])), Arg::Int(2), Arg::Int(1), Arg::Bool(true), Arg::Bool(true)]];
    /// The `k`-th smallest element along a dimension (counted from 1), and its position.
    ///
    /// # Errors
    /// `RuntimeError` for a `k` outside the dimension, `IndexError` for an empty or absent dimension,
    /// `NotImplementedError` for a bool tensor.
    KTHVALUE kthvalue(self, k: Int, dim: Int = -1, keepdim: Bool = false) -> Fields["values", "indices"] = "KthvalueBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let op = "kthvalue";
                let (t, k) = (a.tensor(0)?, a.int(1)?);
                let dim = wrap_dim(op, a.int(2)?, t.rank())?;
                let n = t.sizes().get(dim).copied().unwrap_or(1) as i64;
                affordable(op, n as usize, ROW)?;
                if n == 0 {
                    bail!(index op, "kthvalue(): Expected reduction dim {dim} to have non-zero size.");
                }
                if k < 1 || k > n {
                    bail!(runtime op, "kthvalue(): selected number k out of range for dimension {dim}");
                }
                if t.dtype() == DType::Bool {
                    bail!(not_implemented op, "\"kthvalue_cpu\" not implemented for 'Bool'");
                }
                let (values, indices) = ordered(op, t, dim, false, Pick::Nth(k as usize - 1), a.bool(3).then_some(1))?;
                Ok(smallvec![values, indices])
            },
            backward: Some(|c| {
                let dim = wrap_dim("kthvalue", c.int(2)?, c.sizes(0).len())?;
                Ok(smallvec![c.when(0, |g| {
                    let mut kept: Dims = c.sizes(0).into();
                    if !kept.is_empty() {
                        kept[dim] = 1;
                    }
                    super::zeros(c.sizes(0), g.dtype())?.scatter(dim as i64, c.output(1)?.view(&kept)?, g.view(&kept)?)
                })?])
            }),
            saves: &[Save::Output(1)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 5])), Arg::Int(2), Arg::Int(0), Arg::Bool(false)],
            smallvec![Arg::Tensor(s.t(&[3, 5])), Arg::Int(4), Arg::Int(1), Arg::Bool(true)],
        ];
}
