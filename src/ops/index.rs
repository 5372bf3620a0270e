//! Rows that read or write elements addressed by index: whole slices by a vector of indices, single elements by position,
//! advanced indices, masks. Gathering and scattering along a dimension is in `scatter.rs`, Python's `x[...]` in
//! `getitem.rs`.

use super::address::{
    Plan, addressed, apart, at_least_1d, converted, everywhere, expand, expanded, filled_up, fresh, int64, ints,
    is_in_place, long_only, mask_list, out_of_bounds, through, vector, widened,
};
use super::apply;
use super::args::{Arg, Args, Read};
use super::op::Rule::{Composite as C, Structured as S, Update as U};
use super::op::{FUNCTION, INPLACE, METHOD, OUT, Outputs, op};
use super::structured::{Context, Save, Structured};
use super::update::Update;
use crate::backend::cpu::index::{self, Along, Combine};
use crate::backend::cpu::mask;
use crate::dtype::DType;
use crate::error::{Error, Result, bail};
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout, broadcast, numel, wrap_dim};
use crate::storage::affordable;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;
use std::sync::Arc;

fn index_select_forward(a: &Args) -> Result<Outputs> {
    let op = "index_select";
    let (body, index) = (a.tensor(0)?.body(), a.tensor(2)?);
    let dim = wrap_dim(op, a.int(1)?, body.layout.rank())?;
    let index = int64(op, index, |_| Error::runtime(op, "index_select(): Expected dtype int32 or int64 for index"))?;
    if index.layout.rank() > 1 {
        bail!(index op, "index_select(): Index is supposed to be a vector");
    }
    let n = index.layout.numel();
    let scalar = body.layout.rank() == 0;
    if scalar && n != 1 {
        bail!(runtime op, "index_select(): Index to scalar can have only 1 value, got {n} value(s)");
    }
    let mut sizes = at_least_1d(&body.layout).sizes;
    sizes[dim] = n;
    let out = fresh(op, if scalar { &[] } else { &sizes }, body.dtype)?;
    let (from, along) = addressed(&body.layout, dim, &sizes, false);
    let to = at_least_1d(&out.layout);
    index::gather(
        &through(&out, &to),
        &through(&body, &from),
        &through(&index, &vector(&index.layout, dim, &sizes)),
        along,
    )
    .map_err(|i| {
        if dim == 0 {
            Error::index(
                op,
                format!("index out of range in self\nindex_select: index {i}, dimension 0 has size {}", along.size),
            )
        } else {
            Error::runtime(op, format!("INDICES element is out of DATA bounds, id={i} axis_dim={}", along.size))
        }
    })?;
    Ok(smallvec![Tensor::from_body(out)])
}

fn index_add_write(to: &Body, a: &Args) -> Result<()> {
    let op = "index_add";
    let (index, source, alpha) = (a.tensor(2)?, a.tensor(3)?, a.opt_number(4).unwrap_or(Scalar::Int(1)));
    let dim = wrap_dim(op, a.int(1)?, to.layout.rank())?;
    let (from, index_sizes) = (source.body(), index.sizes());
    if index_sizes.len() > 1 {
        bail!(index op, "index_add_(): Index is supposed to be a vector, but got dim: {} with type: {} and size: {index_sizes:?}", index_sizes.len(), index.dtype().legacy());
    }
    let index = int64(op, index, |d| {
        Error::runtime(op, format!("index_add_(): Expected dtype int32/int64 for index but got: {}", d.legacy()))
    })?;
    if from.dtype != to.dtype {
        bail!(runtime op, "index_add_(): self ({}) and source ({}) must have the same scalar type", to.dtype.legacy(), from.dtype.legacy());
    }
    let (have, want) = (&from.layout.sizes, &to.layout.sizes);
    if dim > 0 && dim >= have.len() {
        bail!(runtime op, "index_add_(): Indexing dim {dim} is out of bounds of the source tensor with dim {}", have.len());
    }
    let n = numel(&index_sizes);
    let along_dim = have.get(dim).copied().unwrap_or(1);
    let fits = have.len() == want.len() && (0..have.len()).all(|d| d == dim || have[d] == want[d]);
    if !fits {
        bail!(runtime op, "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = {want:?} source.shape = {have:?}");
    }
    if n != along_dim {
        bail!(runtime op, "index_add_(): Number of indices ({n}) should be equal to source.size(dim): ({along_dim}), for dim: {dim}");
    }
    let from = apart(op, to, from)?;
    let index = apart(op, to, index)?;
    let from = scaled(from, alpha)?;
    let check_first = is_in_place(to, a)?;
    widened(op, to, from, |to, from| {
        let source = at_least_1d(&from.layout);
        let (target, along) = addressed(&to.layout, dim, &source.sizes, false);
        let index_layout = vector(&index.layout, dim, &source.sizes);
        let index = through(&index, &index_layout);
        let run = || {
            if check_first {
                index::check(&index, along)?;
            }
            index::scatter_with(Combine::Add, &through(to, &target), &through(from, &source), &index, along)
        };
        run().map_err(|i| match to.layout.rank() {
            0 | 1 => Error::index(
                op,
                format!("index out of range in self\nindex_add: index {i}, dimension 0 has size {}", along.size),
            ),
            _ => Error::runtime(op, format!("index {i} is out of bounds for dimension {dim} with size {}", along.size)),
        })
    })
}

/// A body times a number of its category.
fn scaled(from: Arc<Body>, by: Scalar) -> Result<Arc<Body>> {
    if by == Scalar::Int(1) || by == Scalar::Float(1.0) {
        return Ok(from);
    }
    let by = match from.dtype {
        d if d.is_float() => Scalar::Float(by.to_f64()),
        DType::Bool => Scalar::Bool(by.to_bool()),
        _ => Scalar::Int(by.to_i64()),
    };
    Ok(apply::binary_number(&super::elementwise::MUL, &Tensor::from_shared(from), by)?.body())
}

fn index_copy_write(to: &Body, a: &Args) -> Result<()> {
    let op = "index_copy";
    let dim = wrap_dim(op, a.int(1)?, to.layout.rank())?;
    let (index, from) = (a.tensor(2)?, a.tensor(3)?.body());
    if index.rank() > 1 {
        bail!(index op, "index_copy_(): Index should have dimension 1 or 0 (got {})", index.rank());
    }
    let n = index.numel();
    let (have, want) = (&from.layout.sizes, &to.layout.sizes);
    if have.is_empty() && n != 1 {
        bail!(index op, "index_copy_(): When source is scalar, index should have one element (got {n})");
    }
    if !have.is_empty() && !want.is_empty() && have.len() != want.len() {
        bail!(index op, "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source dimensionality ({}), destination dimensionality ({})", have.len(), want.len());
    }
    let index = long_only(index, |d| {
        Error::runtime(op, format!("index_copy_(): Expected a long tensor for index, but got {}", d.legacy()))
    })?;
    if from.dtype != to.dtype {
        bail!(runtime op, "index_copy_(): self and source expected to have the same dtype, but got (self) {} and (source) {}", to.dtype.legacy(), from.dtype.legacy());
    }
    let slice =
        |sizes: &Dims| -> Dims { sizes.iter().enumerate().filter(|&(d, _)| d != dim).map(|(_, &s)| s).collect() };
    if slice(have) != slice(want) {
        let shown = |s: Dims| s.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        bail!(runtime op, "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: {} at dimension {dim} and source slice shape: {} at dimension 0.", shown(slice(want)), shown(slice(have)));
    }
    let along_dim = have.get(dim).copied().unwrap_or(1);
    if n != along_dim {
        bail!(index op, "index_copy_(): Number of indices ({n}) should be equal to source.size(dim) ({along_dim})");
    }
    let (from, index) = (apart(op, to, from)?, apart(op, to, index)?);
    let source = at_least_1d(&from.layout);
    scatter_slices(to, dim, &through(&from, &source), &index, false, is_in_place(to, a)?).map_err(|i| {
        Error::index(
            op,
            format!(
                "index_copy_(): index {i} is out of bounds for dimension {dim} with size {}",
                want.get(dim).unwrap_or(&1)
            ),
        )
    })
}

/// Writes `from` to the slices of `to` that a vector of indices names.
fn scatter_slices(
    to: &Body,
    dim: usize,
    from: &crate::backend::Operand<'_>,
    index: &Body,
    wrap: bool,
    check_first: bool,
) -> Result<(), i64> {
    let (target, along) = addressed(&to.layout, dim, &from.layout.sizes, wrap);
    let index_layout = vector(&index.layout, dim, &from.layout.sizes);
    let index = through(index, &index_layout);
    if check_first {
        index::check(&index, along)?;
    }
    index::scatter(&through(to, &target), from, &index, along)
}

fn index_fill_write(to: &Body, a: &Args) -> Result<()> {
    let op = "index_fill";
    let index = a.tensor(2)?;
    let value = match a.arg(3) {
        Arg::Tensor(t) if t.rank() != 0 => {
            bail!(runtime op, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).", t.rank())
        }
        Arg::Tensor(t) => converted(op, t.body(), to.dtype)?,
        _ => super::full(&[], a.number(3)?, to.dtype)?.body(),
    };
    let dim = wrap_dim(op, a.int(1)?, to.layout.rank())?;
    if index.rank() > 1 {
        bail!(runtime op, "Index has to be a vector/scalar");
    }
    let index =
        apart(op, to, long_only(index, |_| Error::index(op, "index_fill_(): Expected dtype int64 for index."))?)?;
    let mut sizes = at_least_1d(&to.layout).sizes;
    sizes[dim] = index.layout.numel();
    let source = everywhere(&value.layout, &sizes);
    scatter_slices(to, dim, &through(&value, &source), &index, true, is_in_place(to, a)?)
        .map_err(|i| out_of_bounds(op, i, dim, &to.layout))
}

fn index_put_write(to: &Body, a: &Args) -> Result<()> {
    let op = "index_put";
    let (indices, values, accumulate) = (a.opt_tensors(1)?, a.tensor(2)?.body(), a.bool(3));
    if values.dtype != to.dtype {
        bail!(runtime op, "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source.", to.dtype.legacy(), values.dtype.legacy());
    }
    let values = apart(op, to, values)?;
    if let ([Some(mask)], 1, false) = (indices, values.layout.numel(), accumulate)
        && matches!(mask.dtype(), DType::Bool | DType::U8)
        && mask.rank() > 0
        && to.layout.sizes.starts_with(&mask.sizes())
        && values.layout.rank() <= 1
    {
        let mask = apart(op, to, mask.body())?;
        let mut over = mask.layout.clone();
        over.sizes = to.layout.sizes.clone();
        (over.strides.len()..over.sizes.len()).for_each(|_| over.strides.push(0));
        mask::masked_fill(&to.operand(), &through(&mask, &over), &values.operand());
        return Ok(());
    }
    let check_first = is_in_place(to, a)?;
    let mut own = Vec::with_capacity(indices.len());
    for index in indices {
        own.push(index.as_ref().map(|t| apart(op, to, t.body()).map(Tensor::from_shared)).transpose()?);
    }
    if accumulate {
        return widened(op, to, values, |to, from| {
            Plan::new(op, &to.layout, &own)?.scatter(op, to, from, true, check_first)
        });
    }
    Plan::new(op, &to.layout, &own)?.scatter(op, to, &values, false, check_first)
}

fn take_forward(a: &Args) -> Result<Outputs> {
    let op = "take";
    let body = a.tensor(0)?.body();
    let index = long_only(a.tensor(1)?, |d| {
        Error::runtime(op, format!("take(): Expected a long tensor for index, but got {}", d.legacy()))
    })?;
    if body.layout.numel() == 0 && index.layout.numel() > 0 {
        bail!(index op, "take(): tried to take from an empty tensor");
    }
    let out = fresh(op, &index.layout.sizes, body.dtype)?;
    let places = flat_places(op, &body.layout, &index)?;
    let from = everywhere(&body.layout, &out.layout.sizes);
    index::gather(&out.operand(), &through(&body, &from), &places.operand(), Along::RESOLVED)
        .map_err(|i| flat_refusal(op, i, &body.layout))?;
    Ok(smallvec![Tensor::from_body(out)])
}

/// Offsets of the elements that stand at the given positions in row-major order.
fn flat_places(op: &'static str, layout: &Layout, index: &Body) -> Result<Body> {
    let places = fresh(op, &index.layout.sizes, DType::I64)?;
    index::resolve_flat(&places.operand(), &index.operand(), layout).map_err(|i| flat_refusal(op, i, layout))?;
    Ok(places)
}

#[cold]
fn flat_refusal(op: &'static str, index: i64, layout: &Layout) -> Error {
    Error::index(op, format!("out of range: tried to access index {index} on a tensor of {} elements.", layout.numel()))
}

fn put_write(to: &Body, a: &Args) -> Result<()> {
    let op = "put";
    let (index, from) = (a.tensor(1)?, a.tensor(2)?.body());
    let index = long_only(index, |d| {
        Error::runtime(op, format!("put_(): Expected a long tensor for index, but got {}", d.legacy()))
    })?;
    if from.dtype != to.dtype {
        bail!(runtime op, "put_(): self and source expected to have the same dtype, but got self.dtype = {} and source.dtype = {}", to.dtype.legacy(), from.dtype.legacy());
    }
    let (n, have) = (index.layout.numel(), from.layout.numel());
    if n != have {
        bail!(index op, "put_(): Expected source and index to have the same number of elements, but got source.numel() = {have}, index.numel() = {n}");
    }
    if to.layout.numel() == 0 && n > 0 {
        bail!(index op, "put_(): Tried to put elements into an empty tensor");
    }
    let (from, index) = (apart(op, to, from)?, apart(op, to, index)?);
    // Elements go in pairs by their order, whatever the two shapes.
    let from = if from.layout.is_contiguous() { from } else { super::contiguous(op, &from)? };
    let run = |to: &Body, from: &Body, add: bool| {
        let places = flat_places(op, &to.layout, &index)?;
        let line: Dims = Dims::filled(n, 1);
        let target = everywhere(&to.layout, &line);
        let source = Layout { offset: from.layout.offset, ..Layout::contiguous(line.clone()) };
        let order = Layout::contiguous(line);
        let (target, source, places) = (through(to, &target), through(from, &source), through(&places, &order));
        let done = if add {
            index::scatter_with(Combine::Add, &target, &source, &places, Along::RESOLVED)
        } else {
            index::scatter(&target, &source, &places, Along::RESOLVED)
        };
        done.map_err(|i| flat_refusal(op, i, &to.layout))
    };
    if a.bool(3) { widened(op, to, from, |to, from| run(to, from, true)) } else { run(to, &from, false) }
}

fn masked_select_forward(a: &Args) -> Result<Outputs> {
    let op = "masked_select";
    let (body, mask) = (a.tensor(0)?.body(), a.tensor(1)?.body());
    if mask.dtype != DType::Bool {
        bail!(runtime op, "masked_select: expected BoolTensor for mask");
    }
    // As many as may be selected: an expanded tensor can have more elements than anybody has time for.
    affordable(op, body.layout.numel().max(mask.layout.numel()), body.dtype.size())?;
    // PyTorch names the mask first.
    let sizes = broadcast(op, &mask.layout.sizes, &body.layout.sizes)?;
    let mask_layout = expanded(&mask, &sizes);
    let n = mask::count_true(&through(&mask, &mask_layout));
    let out = fresh(op, &[n], body.dtype)?;
    mask::masked_select(&out.operand(), &through(&body, &expanded(&body, &sizes)), &through(&mask, &mask_layout));
    Ok(smallvec![Tensor::from_body(out)])
}

fn masked_scatter_write(to: &Body, a: &Args) -> Result<()> {
    let op = "masked_scatter";
    let (mask, from) = (a.tensor(1)?.body(), a.tensor(2)?.body());
    if mask.dtype != DType::Bool {
        bail!(runtime op, "masked_scatter_ only supports boolean masks, but got mask with dtype {}", mask.dtype.legacy());
    }
    if from.dtype != to.dtype {
        bail!(runtime op, "masked_scatter: expected self and source to have same dtypes but got {} and {}", to.dtype.legacy(), from.dtype.legacy());
    }
    let wanted: Vec<i64> = to.layout.sizes.iter().map(|&s| s as i64).collect();
    let mask_layout = super::movement::expanded(&mask.layout, &wanted)?;
    let n = mask::count_true(&through(&mask, &mask_layout));
    if n > from.layout.numel() {
        bail!(runtime op, "Number of elements of source < number of ones in mask\nmasked_scatter: {} elements, {n} ones", from.layout.numel());
    }
    let shared = from.storage.same(&to.storage) || !from.layout.is_contiguous();
    let from = if shared { super::contiguous(op, &from)? } else { from };
    let mask = apart(op, to, mask)?;
    let mask_layout = expanded(&mask, &to.layout.sizes);
    mask::masked_scatter(&to.operand(), &through(&mask, &mask_layout), &from.operand());
    Ok(())
}

/// Zeros in a gradient where a mask of the same shape is true.
fn without_masked(grad: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let zero = super::zeros(&[], grad.dtype())?;
    grad.index_put(mask_list(&expand(mask, &grad.sizes())?), zero, false)
}

/// The slices that a filling has written, each once and counted from the start.
fn distinct(c: &Context<'_>) -> Result<Tensor> {
    let dim = wrap_dim("index_fill", c.int(1)?, c.sizes(0).len())?;
    let n = c.sizes(0).get(dim).copied().unwrap_or(1);
    super::zeros(&[n], DType::Bool)?.index_fill(0, c.index(2)?, Scalar::Bool(true))?.argwhere()?.reshape([-1i64])
}

op! {
    /// Slices of a dimension, in the order of a vector of indices.
    ///
    /// # Errors
    /// `IndexError` or `RuntimeError` for an index out of range (negative ones are), for an index tensor that is no
    /// vector or not of an integer dtype.
    INDEX_SELECT index_select(self, dim: Int, index: Index) -> Tensor = "IndexSelectBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: index_select_forward,
            backward: Some(|c| {
                Ok(smallvec![c.when(0, |g| super::zeros(c.sizes(0), g.dtype())?.index_add(c.int(1)?, c.index(2)?, g))?])
            }),
            saves: &[Save::Index(2)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Tensor(s.ints(&[5], 0, 4))]];
    /// Adds `alpha * source` to the slices of a dimension that a vector of indices names; several contributions to one
    /// slice add up in their order, in float32 for half types.
    ///
    /// # Errors
    /// `RuntimeError` or `IndexError` for shapes that do not fit, other dtypes, an index out of range.
    INDEX_ADD index_add(self, dim: Int, index: Index, source: Tensor; alpha: Number = 1) -> Tensor = "IndexAddBackward0", METHOD | FUNCTION | INPLACE | OUT,
        U(Update {
            write: index_add_write,
            backward: |c| {
                let alpha = c.opt_number(4).unwrap_or(Scalar::Int(1));
                let source = c.when(1, |g| {
                    let part = g.index_select(c.int(1)?, c.index(2)?)?;
                    let part = if alpha.to_f64() == 1.0 { part } else { part.mul(alpha)? };
                    part.reshape(ints(c.sizes(1)))
                })?;
                Ok(smallvec![c.grad(0).filter(|_| c.needs(0)), source])
            },
            saves: &[Save::Index(2)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Tensor(s.ints(&[5], 0, 4)), Arg::Tensor(s.t(&[3, 5])), Arg::Number(Scalar::Float(0.5))]];
    /// Replaces the slices of a dimension that a vector of indices names by those of `source`; of several, the last stays.
    ///
    /// # Errors
    /// `IndexError` or `RuntimeError` for shapes that do not fit, other dtypes, an index out of range.
    INDEX_COPY index_copy(self, dim: Int, index: Index, source: Tensor) -> Tensor = "IndexCopyBackward0", METHOD | FUNCTION | INPLACE | OUT,
        U(Update {
            write: index_copy_write,
            backward: |c| {
                let kept = c.when(0, |g| g.index_fill(c.int(1)?, c.index(2)?, Scalar::Int(0)))?;
                let source = c.when(1, |g| g.index_select(c.int(1)?, c.index(2)?)?.reshape(ints(c.sizes(1))))?;
                Ok(smallvec![kept, source])
            },
            saves: &[Save::Index(2)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(-1), Arg::Tensor(indices(&[3, 0])), Arg::Tensor(s.t(&[3, 2]))]];
    /// [`index_fill`](Tensor::index_fill) with a 0-d tensor, to which gradients flow.
    ///
    /// # Errors
    /// As `index_fill`; `RuntimeError` for a value with dimensions.
    INDEX_FILL_TENSOR index_fill_tensor as "index_fill" (self, dim: Int, index: Index, value: Tensor) -> Tensor = "IndexFillBackward1", METHOD | FUNCTION | INPLACE | OUT,
        U(Update {
            write: index_fill_write,
            backward: |c| {
                let kept = c.when(0, |g| g.index_fill(c.int(1)?, c.index(2)?, Scalar::Int(0)))?;
                let value = c.when(1, |g| super::to_dtype(&g.index_select(c.int(1)?, distinct(c)?)?.sum((), false)?, c.dtype(1)))?;
                Ok(smallvec![kept, value])
            },
            saves: &[Save::Index(2)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Tensor(indices(&[1, -1, 1])), Arg::Tensor(s.t(&[]))]];
    /// Fills the slices of a dimension that a vector of indices names with a number.
    ///
    /// # Errors
    /// `IndexError` for an index out of range.
    INDEX_FILL index_fill(self, dim: Int, index: Index, value: Number) -> Tensor = "IndexFillBackward0", METHOD | FUNCTION | INPLACE | OUT,
        U(Update {
            write: index_fill_write,
            backward: |c| Ok(smallvec![c.when(0, |g| g.index_fill(c.int(1)?, c.index(2)?, Scalar::Int(0)))?]),
            saves: &[Save::Index(2)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Tensor(indices(&[1, 3])), Arg::Number(Scalar::Float(2.0))]];
    /// The elements that a list of index tensors addresses, one for each dimension, absent ones taking all of it: what
    /// `x[i, :, j]` reads. Index tensors broadcast; their dimensions come first unless all stand side by side; masks stand
    /// for the coordinates of what is true in them.
    ///
    /// # Errors
    /// `IndexError` for indices out of range, of other dtypes than int64, int32, bool and uint8, or that do not broadcast.
    INDEX index(self, indices: OptTensors) -> Tensor = "IndexBackward0", 0,
        S(Structured {
            forward: |a| {
                let body = a.tensor(0)?.body();
                let plan = Plan::new("index", &body.layout, a.opt_tensors(1)?)?;
                let out = fresh("index", &plan.sizes, body.dtype)?;
                plan.gather("index", &out, &body)?;
                Ok(smallvec![Tensor::from_body(out)])
            },
            backward: Some(|c| {
                Ok(smallvec![c.when(0, |g| super::zeros(c.sizes(0), g.dtype())?.index_put(c.indices(1)?, g, true))?])
            }),
            saves: &[Save::Index(1)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::OptTensors(vec![None, Some(s.ints(&[2, 3], -4, 4))])],
            smallvec![Arg::Tensor(s.t(&[3, 4, 2])), Arg::OptTensors(vec![Some(s.ints(&[3], 0, 3)), None, Some(s.ints(&[2, 1], 0, 2))])],
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::OptTensors(mask_list(&s.mask(&[3, 4])))],
        ];
    /// Replaces the elements that a list of index tensors addresses (see [`index`](Tensor::index)) by `values`, broadcast,
    /// or adds them; contributions to one element add up in their order, in float32 for half types.
    ///
    /// # Errors
    /// As `index`; `RuntimeError` for values of another shape, `IndexError` for values of another dtype.
    INDEX_PUT index_put(self, indices: OptTensors, values: Tensor, accumulate: Bool = false) -> Tensor = "IndexPutBackward0", METHOD | FUNCTION | INPLACE,
        U(Update {
            write: index_put_write,
            backward: |c| {
                let kept = if c.bool(3) {
                    c.grad(0).filter(|_| c.needs(0))
                } else {
                    c.when(0, |g| g.index_put(c.indices(1)?, super::zeros(&[], g.dtype())?, false))?
                };
                let values = c.when(1, |g| super::sum_to_size(&g.index(c.indices(1)?)?, c.sizes(1)))?;
                Ok(smallvec![kept, values])
            },
            saves: &[Save::Index(1)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::OptTensors(vec![Some(indices(&[0, 2])), Some(indices(&[3, 1]))]), Arg::Tensor(s.t(&[2])), Arg::Bool(false)],
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::OptTensors(vec![Some(indices(&[0, 0]))]), Arg::Tensor(s.t(&[2, 1])), Arg::Bool(true)],
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::OptTensors(mask_list(&s.mask(&[3]))), Arg::Tensor(s.t(&[])), Arg::Bool(false)],
        ];
    /// The elements at the given positions in row-major order, in the shape of `index`.
    ///
    /// # Errors
    /// `IndexError` for a position out of range, `RuntimeError` for an index that is not int64.
    TAKE take(self, index: Index) -> Tensor = "TakeBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: take_forward,
            backward: Some(|c| {
                Ok(smallvec![c.when(0, |g| super::zeros(c.sizes(0), g.dtype())?.put(c.index(1)?, g, true))?])
            }),
            saves: &[Save::Index(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(s.ints(&[2, 3], -12, 12))]];
    /// Replaces the elements at the given positions in row-major order by those of `source`, or adds them.
    ///
    /// # Errors
    /// `IndexError` for a position out of range or a `source` of another number of elements, `RuntimeError` for dtypes.
    PUT put(self, index: Index, source: Tensor, accumulate: Bool = false) -> Tensor = "PutBackward0", METHOD | FUNCTION | INPLACE,
        U(Update {
            write: put_write,
            backward: |c| {
                let kept = if c.bool(3) {
                    c.grad(0).filter(|_| c.needs(0))
                } else {
                    c.when(0, |g| {
                        let index = c.index(1)?;
                        let zeros = super::zeros(&index.sizes(), g.dtype())?;
                        g.put(index, zeros, false)
                    })?
                };
                let source = c.when(1, |g| g.take(c.index(1)?)?.reshape(ints(c.sizes(1))))?;
                Ok(smallvec![kept, source])
            },
            saves: &[Save::Index(1)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(indices(&[11, -9, 0])), Arg::Tensor(s.t(&[3])), Arg::Bool(false)],
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(indices(&[1, 1, 0])), Arg::Tensor(s.t(&[3])), Arg::Bool(true)],
        ];
    /// The elements where `mask` is true, in row-major order, as a vector. The two broadcast.
    ///
    /// # Errors
    /// `RuntimeError` for a mask that is not bool, or shapes that do not broadcast.
    MASKED_SELECT masked_select(self, mask: Index) -> Tensor = "MaskedSelectBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: masked_select_forward,
            backward: Some(|c| {
                Ok(smallvec![c.when(0, |g| {
                    let mask = c.index(1)?;
                    let sizes = broadcast("masked_select", &mask.sizes(), c.sizes(0))?;
                    let whole = super::zeros(&sizes, g.dtype())?.masked_scatter(mask, g)?;
                    super::sum_to_size(&whole, c.sizes(0))
                })?])
            }),
            saves: &[Save::Index(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(s.mask(&[3, 4]))], smallvec![Arg::Tensor(s.t(&[3, 1])), Arg::Tensor(s.mask(&[4]))]];
    /// Replaces the elements where `mask` is true by those of `source`, one after the other. Input and mask broadcast.
    ///
    /// # Errors
    /// `RuntimeError` for a mask that is not bool, another dtype, or a `source` with too few elements.
    MASKED_SCATTER masked_scatter(self, mask: Index, source: Tensor) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let (t, mask) = (a.tensor(0)?, a.tensor(1)?);
            let sizes = broadcast("masked_scatter", &mask.sizes(), &t.sizes())?;
            let args: Args = smallvec![Arg::Tensor(expand(t, &sizes)?), Arg::Tensor(mask.clone()), a.arg(2).clone()];
            apply::call(&MASKED_SCATTER_INTO, &args)
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(s.mask(&[4])), Arg::Tensor(s.t(&[12]))]];
    /// [`masked_scatter`](Tensor::masked_scatter) into a tensor that the mask broadcasts to.
    MASKED_SCATTER_INTO masked_scatter_into as "masked_scatter" (self, mask: Index, source: Tensor) -> Tensor = "MaskedScatterBackward0", INPLACE,
        U(Update {
            write: masked_scatter_write,
            backward: |c| {
                let kept = c.when(0, |g| without_masked(g, &c.index(1)?))?;
                let source = c.when(1, |g| {
                    let taken = g.masked_select(expand(&c.index(1)?, &g.sizes())?)?;
                    filled_up(&taken, &[numel(c.sizes(1))])?.reshape(ints(c.sizes(1)))
                })?;
                Ok(smallvec![kept, source])
            },
            saves: &[Save::Index(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(s.mask(&[4])), Arg::Tensor(s.t(&[13]))]];
}

/// A vector of indices for a sample.
pub(super) fn indices(values: &[i64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).expect("a sample fits in memory")
}
