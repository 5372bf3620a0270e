//! Rows that gather and scatter along a dimension: `out[i][j] = input[index[i][j]][j]` and its transposes.

use super::address::{
    addressed, apart, at_least_1d, converted, corner, everywhere, filled_up, fresh, int64, is_in_place, through,
    widened,
};
use super::apply;
use super::args::{Arg, Args, Read};
use super::index::indices;
use super::op::Rule::{Composite as C, Structured as S, Update as U};
use super::op::{FUNCTION, INPLACE, METHOD, OUT, Outputs, op};
use super::structured::{Context, Save, Structured};
use super::update::Update;
use crate::autograd::node::Grads;
use crate::backend::cpu::index::{self, Combine};
use crate::dtype::DType;
use crate::error::{Error, Result, bail};
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout, wrap_dim};
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;
use std::sync::Arc;

/// An index out of range along `dim`.
#[cold]
fn refusal(op: &'static str, index: i64, dim: usize, layout: &Layout) -> Error {
    let size = layout.sizes.get(dim).copied().unwrap_or(1);
    Error::runtime(
        op,
        format!(
            "index {index} is out of bounds for dimension {dim} with size {size}\n{op}: the tensor has shape {:?}",
            layout.sizes
        ),
    )
}

/// Whether `inner` is no larger than `outer` in all dimensions but one.
fn fits(inner: &[usize], outer: &[usize], but: Option<usize>) -> bool {
    inner.iter().zip(outer).enumerate().all(|(d, (i, o))| Some(d) == but || i <= o)
}

fn gather_forward(a: &Args) -> Result<Outputs> {
    let op = "gather";
    let (body, index) = (a.tensor(0)?.body(), a.tensor(2)?);
    let dim = wrap_dim(op, a.int(1)?, body.layout.rank())?;
    let out = fresh(op, &index.sizes(), body.dtype)?;
    // An empty index may be of any dtype.
    if index.numel() > 0 {
        let index = int64(op, index, |_| Error::runtime(op, "gather(): Expected dtype int32/int64 for index"))?;
        let (over, from) = (at_least_1d(&index.layout), at_least_1d(&body.layout));
        if over.rank() != from.rank() {
            bail!(runtime op, "Index tensor must have the same number of dimensions as input tensor");
        }
        if let Some(d) = (0..over.rank()).find(|&d| d != dim && over.sizes[d] > from.sizes[d]) {
            bail!(runtime op, "Size does not match at dimension {d} expected index {:?} to be no larger than self {:?} apart from dimension {dim}", index.layout.sizes, body.layout.sizes);
        }
        let (source, along) = addressed(&body.layout, dim, &over.sizes, false);
        let target = at_least_1d(&out.layout);
        index::gather(&through(&out, &target), &through(&body, &source), &through(&index, &over), along)
            .map_err(|i| refusal(op, i, dim, &body.layout))?;
    }
    Ok(smallvec![Tensor::from_body(out)])
}

/// The checked operands of a scatter.
pub(super) struct Scatter {
    pub dim: usize,
    pub index: Arc<Body>,
    /// What is scattered.
    pub from: Arc<Body>,
    /// Where it lies, over the index space.
    pub from_layout: Layout,
}

/// Checks the arguments `(self, dim, index, source)`; `None` if there is nothing to scatter.
pub(super) fn prepare(op: &'static str, to: &Body, a: &Args) -> Result<Option<Scatter>> {
    let dim = wrap_dim(op, a.int(1)?, to.layout.rank())?;
    let index = a.tensor(2)?;
    // An empty index may be of any dtype.
    let index = if index.numel() == 0 {
        index.body()
    } else {
        int64(op, index, |_| Error::runtime(op, "scatter(): Expected dtype int32/int64 for index"))?
    };
    let (over, target) = (at_least_1d(&index.layout), at_least_1d(&to.layout));
    let source = match a.arg(3) {
        Arg::Tensor(t) => t.body(),
        _ => super::full(&[], a.number(3)?, to.dtype)?.body(),
    };
    let is_tensor = matches!(a.arg(3), Arg::Tensor(_));
    if source.dtype != to.dtype {
        bail!(runtime op, "scatter(): Expected self.dtype to be equal to src.dtype\n{op}: {} and {}", to.dtype, source.dtype);
    }
    if index.layout.numel() == 0 {
        return Ok(None);
    }
    let from = at_least_1d(&source.layout);
    if over.rank() != target.rank() {
        bail!(runtime op, "Index tensor must have the same number of dimensions as self tensor");
    }
    if is_tensor && over.rank() != from.rank() {
        bail!(runtime op, "Index tensor must have the same number of dimensions as src tensor");
    }
    let in_source = !is_tensor || fits(&over.sizes, &from.sizes, None);
    if !fits(&over.sizes, &target.sizes, Some(dim)) || !in_source {
        let and = if is_tensor {
            format!(" and to be no larger size than src {:?}", source.layout.sizes)
        } else {
            String::new()
        };
        bail!(runtime op, "Expected index {:?} to be no larger than self {:?} apart from dimension {dim}{and}", index.layout.sizes, to.layout.sizes);
    }
    let (index, source) = (apart(op, to, index)?, apart(op, to, source)?);
    let from_layout =
        if is_tensor { corner(&source.layout, &over.sizes) } else { everywhere(&source.layout, &over.sizes) };
    Ok(Some(Scatter { dim, index, from: source, from_layout }))
}

/// Scatters, replacing (`how` is `None`) or combining.
pub(super) fn run(op: &'static str, to: &Body, s: &Scatter, how: Option<Combine>, check_first: bool) -> Result<()> {
    let over = at_least_1d(&s.index.layout);
    let (target, along) = addressed(&to.layout, s.dim, &over.sizes, false);
    let (target, source, index) = (through(to, &target), through(&s.from, &s.from_layout), through(&s.index, &over));
    let run = || {
        if check_first {
            index::check(&index, along)?;
        }
        match how {
            None => index::scatter(&target, &source, &index, along),
            Some(how) => index::scatter_with(how, &target, &source, &index, along),
        }
    };
    run().map_err(|i| refusal(op, i, s.dim, &to.layout))
}

/// Scatters combining, in float32 for half types.
pub(super) fn combine(op: &'static str, to: &Body, s: Scatter, how: Combine, check_first: bool) -> Result<()> {
    let Scatter { dim, index, from, from_layout } = s;
    // Only the corner that is scattered, so that widening it costs no more than need be.
    let part = Arc::new(from.with_layout(from_layout));
    widened(op, to, part, |to, from| {
        let s = Scatter { dim, index, from: Arc::new(from.clone()), from_layout: from.layout.clone() };
        run(op, to, &s, Some(how), check_first)
    })
}

fn scatter_write(to: &Body, a: &Args) -> Result<()> {
    match prepare("scatter", to, a)? {
        Some(s) => run("scatter", to, &s, None, is_in_place(to, a)?),
        None => Ok(()),
    }
}

fn scatter_combine_write(to: &Body, a: &Args) -> Result<()> {
    let how = match a.str(4) {
        "add" => Combine::Add,
        "multiply" => Combine::Mul,
        _ => bail!(runtime "scatter", "reduce argument must be either add or multiply."),
    };
    match prepare("scatter", to, a)? {
        Some(s) => combine("scatter", to, s, how, is_in_place(to, a)?),
        None => Ok(()),
    }
}

fn no_derivative(_: &Context<'_>) -> Result<Grads> {
    bail!(runtime "scatter", "derivative for aten::scatter is not implemented\nscatter(reduce=...): use scatter_reduce, which has one")
}

fn scatter_add_write(to: &Body, a: &Args) -> Result<()> {
    match prepare("scatter_add", to, a)? {
        Some(s) => combine("scatter_add", to, s, Combine::Add, is_in_place(to, a)?),
        None => Ok(()),
    }
}

/// The gradient of what was scattered.
pub(super) fn source_grad(c: &Context<'_>, g: &Tensor) -> Result<Tensor> {
    filled_up(&g.gather(c.int(1)?, c.index(2)?)?, c.sizes(1))
}

op! {
    /// Elements along a dimension by index: for `dim = 0`, `out[i][j] = input[index[i][j]][j]`. `index` has as many
    /// dimensions as the input and is no larger in all others.
    ///
    /// # Errors
    /// `RuntimeError` for an index out of range (negative ones are), of another dtype than int64 or int32, or too large.
    GATHER gather(self, dim: Int, index: Index) -> Tensor = "GatherBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: gather_forward,
            backward: Some(|c| {
                Ok(smallvec![c.when(0, |g| super::zeros(c.sizes(0), g.dtype())?.scatter_add(c.int(1)?, c.index(2)?, g))?])
            }),
            saves: &[Save::Index(2)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Tensor(s.ints(&[2, 5], 0, 4))],
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(0), Arg::Tensor(s.ints(&[2, 4], 0, 3))],
        ];
    /// Replaces elements along a dimension by index: for `dim = 0`, `out[index[i][j]][j] = src[i][j]`. Of several elements
    /// for one place the last stays, and each gets the gradient of the place, as in PyTorch.
    ///
    /// # Errors
    /// `RuntimeError` for an index out of range, of another dtype, or too large for `self` or `src`; for other dtypes.
    SCATTER scatter(self, dim: Int, index: Index, src: Tensor) -> Tensor = "ScatterBackward0", METHOD | FUNCTION | INPLACE | OUT,
        U(Update {
            write: scatter_write,
            backward: |c| {
                let kept = c.when(0, |g| g.scatter_value(c.int(1)?, c.index(2)?, Scalar::Int(0)))?;
                Ok(smallvec![kept, c.when(1, |g| source_grad(c, g))?])
            },
            saves: &[Save::Index(2)],
        }),
        |s| {
            let index = Tensor::from_slice(&[0i64, 3, 2, 1], &[2, 2]).expect("a sample fits in memory");
            vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Tensor(index), Arg::Tensor(s.t(&[2, 3]))]]
        };
    /// [`scatter`](Tensor::scatter) with one number for all places.
    ///
    /// # Errors
    /// As `scatter`.
    SCATTER_VALUE scatter_value as "scatter" (self, dim: Int, index: Index, value: Number) -> Tensor = "ScatterBackward1", METHOD | FUNCTION | INPLACE | OUT,
        U(Update {
            write: scatter_write,
            backward: |c| Ok(smallvec![c.when(0, |g| g.scatter_value(c.int(1)?, c.index(2)?, Scalar::Int(0)))?]),
            saves: &[Save::Index(2)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Tensor(s.ints(&[2, 3], 0, 4)), Arg::Number(Scalar::Float(0.5))]];
    /// [`scatter`](Tensor::scatter) that adds (`reduce="add"`) or multiplies (`"multiply"`). Has no derivative, as in
    /// PyTorch; [`scatter_reduce`](Tensor::scatter_reduce) has.
    ///
    /// # Errors
    /// As `scatter`, and for another `reduce`.
    SCATTER_COMBINE scatter_combine as "scatter" (self, dim: Int, index: Index, src: Tensor, reduce: Str) -> Tensor = "NotImplemented", METHOD | FUNCTION | INPLACE | OUT,
        U(Update { write: scatter_combine_write, backward: no_derivative, saves: &[] });
    /// [`scatter_combine`](Tensor::scatter_combine) with one number for all places.
    ///
    /// # Errors
    /// As `scatter_combine`.
    SCATTER_COMBINE_VALUE scatter_combine_value as "scatter" (self, dim: Int, index: Index, value: Number, reduce: Str) -> Tensor = "NotImplemented", METHOD | FUNCTION | INPLACE | OUT,
        U(Update { write: scatter_combine_write, backward: no_derivative, saves: &[] });
    /// Adds elements along a dimension by index: for `dim = 0`, `out[index[i][j]][j] += src[i][j]`. Contributions to one
    /// place add up in the order of `src`, in float32 for half types.
    ///
    /// # Errors
    /// As [`scatter`](Tensor::scatter).
    SCATTER_ADD scatter_add(self, dim: Int, index: Index, src: Tensor) -> Tensor = "ScatterAddBackward0", METHOD | FUNCTION | INPLACE | OUT,
        U(Update {
            write: scatter_add_write,
            backward: |c| {
                Ok(smallvec![c.grad(0).filter(|_| c.needs(0)), c.when(1, |g| source_grad(c, g))?])
            },
            saves: &[Save::Index(2)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Tensor(s.ints(&[2, 3], 0, 4)), Arg::Tensor(s.t(&[3, 3]))]];
    /// Elements by index with `input` and `indices` broadcast against one another in all dimensions but `dim`; without
    /// `dim`, positions in row-major order. Indices wrap around, as in PyTorch.
    ///
    /// # Errors
    /// `RuntimeError` for indices that are not int64, for ranks that differ, for shapes that do not broadcast.
    TAKE_ALONG_DIM take_along_dim(self, indices: Index, dim: OptInt = None) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(take_along_dim),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(indices(&[0, 3, -1, 2, 2, 1]).view([1, 6]).expect("a sample")), Arg::Int(1)],
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(indices(&[0, 11, 5])), Arg::None],
        ];
}

fn take_along_dim(a: &Args) -> Result<Outputs> {
    let op = "take_along_dim";
    let (t, index) = (a.tensor(0)?, a.tensor(1)?);
    if index.dtype() != DType::I64 {
        bail!(runtime op, "torch.take_along_dim(): dtype of indices should be Long but got {}", index.dtype().legacy());
    }
    let Some(dim) = a.opt_int(2) else {
        let (flat, line) = (t.reshape([-1i64])?, index.reshape([-1i64])?);
        let around = wrapped(op, &line, flat.numel())?;
        return apply::call(&GATHER, &smallvec![Arg::Tensor(flat), Arg::Int(0), Arg::Tensor(around)]);
    };
    if t.rank() == 0 {
        bail!(index op, "Dimension specified as {dim} but tensor has no dimensions");
    }
    if t.rank() != index.rank() {
        bail!(runtime op, "torch.take_along_dim(): input and indices should have the same number of dimensions, but got {} dimensions for input, and {} dimensions for indices", t.rank(), index.rank());
    }
    let dim = wrap_dim(op, dim, t.rank())?;
    let (have, want) = (t.sizes(), index.sizes());
    let (mut input_others, mut index_others) = (have.clone(), want.clone());
    (input_others[dim], index_others[dim]) = (1, 1);
    let common = crate::shape::broadcast(op, &input_others, &index_others)?;
    let with = |n: usize| -> Dims {
        let mut sizes = common.clone();
        sizes[dim] = n;
        sizes
    };
    let input = super::address::expand(t, &with(have[dim]))?;
    let around = super::address::expand(&wrapped(op, index, have[dim])?, &with(want[dim]))?;
    apply::call(&GATHER, &smallvec![Arg::Tensor(input), Arg::Int(dim as i64), Arg::Tensor(around)])
}

/// Indices brought into `[0, n)` by whole turns.
fn wrapped(op: &'static str, t: &Tensor, n: usize) -> Result<Tensor> {
    let mut values: Vec<i64> = converted(op, t.body(), DType::I64).map(Tensor::from_shared)?.to_vec()?;
    if n > 0 {
        values.iter_mut().for_each(|i| *i = i.rem_euclid(n as i64));
    }
    Tensor::from_slice(&values, &t.sizes())
}
