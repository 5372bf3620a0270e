//! What the rows that address elements by index share: index tensors checked and widened, layouts over the space of the
//! indices, and the plan of an advanced index (masks expanded, indices broadcast, the result's shape). No rows here.

use super::args::{Args, Read, kinds};
use super::copy;
use crate::backend::Operand;
use crate::backend::cpu::index::{self, Along, Combine};
use crate::backend::cpu::mask;
use crate::dtype::DType;
use crate::error::{Error, Result, bail};
use crate::shape::{Dims, Layout, Strides, checked_numel, expandable};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor};
use std::sync::Arc;

/// A fresh row-major body.
pub(super) fn fresh(op: &'static str, sizes: &[usize], dtype: DType) -> Result<Body> {
    let n = checked_numel(op, sizes)?;
    Ok(Body::new(Storage::uninit(op, n * dtype.size())?, Layout::contiguous(sizes.into()), dtype))
}

/// A body in another dtype; itself if it has it.
pub(super) fn converted(op: &'static str, body: Arc<Body>, dtype: DType) -> Result<Arc<Body>> {
    if body.dtype == dtype {
        return Ok(body);
    }
    let out = fresh(op, &body.layout.sizes, dtype)?;
    copy::convert(op, &body, &out)?;
    Ok(Arc::new(out))
}

/// A body's elements through another layout of the same memory.
pub(super) fn through<'a>(body: &'a Body, layout: &'a Layout) -> Operand<'a> {
    Operand { storage: &body.storage, layout, dtype: body.dtype }
}

/// An index tensor as int64; `refusal` is the message for other dtypes than int64 and int32.
pub(super) fn int64(op: &'static str, t: &Tensor, refusal: impl FnOnce(DType) -> Error) -> Result<Arc<Body>> {
    let body = t.body();
    match body.dtype {
        DType::I64 | DType::I32 => converted(op, body, DType::I64),
        other => Err(refusal(other)),
    }
}

/// An index tensor that must be int64.
pub(super) fn long_only(t: &Tensor, refusal: impl FnOnce(DType) -> Error) -> Result<Arc<Body>> {
    let body = t.body();
    if body.dtype == DType::I64 { Ok(body) } else { Err(refusal(body.dtype)) }
}

/// A 0-d layout as one dimension of one element.
pub(super) fn at_least_1d(layout: &Layout) -> Layout {
    if layout.rank() > 0 {
        return layout.clone();
    }
    Layout { sizes: Dims::filled(1, 1), strides: Strides::filled(1, 1), offset: layout.offset }
}

/// The operand that indices along `dim` address, over the index space `sizes`, and what an index means. The caller has
/// checked that `sizes` fit in all other dimensions.
pub(super) fn addressed(layout: &Layout, dim: usize, sizes: &[usize], wrap: bool) -> (Layout, Along) {
    let mut layout = at_least_1d(layout);
    let along = Along { stride: layout.strides[dim], size: layout.sizes[dim], wrap };
    layout.strides[dim] = 0;
    layout.sizes = sizes.into();
    (layout, along)
}

/// A layout restricted to the first `sizes` of each dimension.
pub(super) fn corner(layout: &Layout, sizes: &[usize]) -> Layout {
    Layout { sizes: sizes.into(), ..at_least_1d(layout) }
}

/// A vector of indices (or a single one) over the index space `sizes`, in which it runs along `dim`.
pub(super) fn vector(index: &Layout, dim: usize, sizes: &[usize]) -> Layout {
    let mut strides = Strides::filled(0, sizes.len());
    strides[dim] = index.strides.first().copied().unwrap_or(0);
    Layout { sizes: sizes.into(), strides, offset: index.offset }
}

/// One element for all of `sizes`.
pub(super) fn everywhere(layout: &Layout, sizes: &[usize]) -> Layout {
    Layout { sizes: sizes.into(), strides: Strides::filled(0, sizes.len()), offset: layout.offset }
}

/// The sizes as a row's argument.
pub(super) fn ints(sizes: &[usize]) -> kinds::Ints {
    kinds::Ints(sizes.iter().map(|&s| s as i64).collect())
}

/// A gradient that covers a corner of what it is the gradient of, filled up with zeros; differentiable.
pub(super) fn filled_up(grad: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    let mut grad = grad.clone();
    for (d, &size) in sizes.iter().enumerate() {
        let have = grad.sizes();
        if have[d] != size {
            let mut whole = have.clone();
            whole[d] = size;
            grad = grad.slice_backward(ints(&whole), d as i64, 0, have[d] as i64, 1)?;
        }
    }
    Ok(grad)
}

/// Whether an updating row works on the operand itself, which a failure must leave as it was.
pub(super) fn is_in_place(to: &Body, args: &Args) -> Result<bool> {
    Ok(args.tensor(0)?.body().storage.same(&to.storage))
}

/// An operand that is about to be read while `to` is written: a copy if the two may share elements.
///
/// # Errors
/// `RuntimeError` in PyTorch's words where both are dense, and so certainly share some.
pub(super) fn apart(op: &'static str, to: &Body, from: Arc<Body>) -> Result<Arc<Body>> {
    if !from.storage.same(&to.storage) {
        return Ok(from);
    }
    let meet = match (from.layout.extent(), to.layout.extent()) {
        (Some((a, b)), Some((c, d))) => {
            a * from.dtype.size() < d * to.dtype.size() && c * to.dtype.size() < b * from.dtype.size()
        }
        _ => false,
    };
    if !meet {
        return Ok(from);
    }
    if from.layout.is_dense() && to.layout.is_dense() {
        bail!(runtime op, "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please clone() the tensor before performing the operation.");
    }
    copy::duplicate(op, &from)
}

/// Runs `f`, which adds `from` to places of `to`, in float32 for half types, so that sums are rounded once.
pub(super) fn widened(
    op: &'static str,
    to: &Body,
    from: Arc<Body>,
    f: impl FnOnce(&Body, &Body) -> Result<()>,
) -> Result<()> {
    if !to.dtype.is_half() {
        return f(to, &from);
    }
    let wide = fresh(op, &to.layout.sizes, DType::F32)?;
    copy::convert(op, to, &wide)?;
    let from = converted(op, from, DType::F32)?;
    f(&wide, &from)?;
    copy::convert(op, &wide, to)
}

/// A list of index tensors worked out for one operand.
pub(super) struct Plan {
    /// The shape of what is addressed.
    pub sizes: Dims,
    /// The operand over that shape: no step where indices decide.
    pub layout: Layout,
    /// The indices: int64.
    index: Arc<Body>,
    /// The indices over that shape.
    index_layout: Layout,
    along: Along,
    /// The dimension to name in an error; `None` if every index has been checked.
    dim: Option<usize>,
}

impl Plan {
    /// Works out which elements of `input` the list of indices addresses. Masks stand for the coordinates of what is true
    /// in them; indices broadcast; their dimensions come where the first index stands if all stand side by side, else
    /// first.
    ///
    /// # Errors
    /// `IndexError` in PyTorch's words.
    pub(super) fn new(op: &'static str, input: &Layout, indices: &[Option<Tensor>]) -> Result<Plan> {
        let columns = expand_masks(op, input, indices)?;
        let rank = input.rank();
        if columns.len() > rank {
            bail!(index op, "too many indices for tensor of dimension {rank} (got {})", columns.len());
        }
        let given: Vec<(usize, &Arc<Body>)> =
            columns.iter().enumerate().filter_map(|(d, c)| c.as_ref().map(|c| (d, c))).collect();
        let (Some(&(first, _)), Some(&(last, _))) = (given.first(), given.last()) else {
            bail!(index op, "at least one index must be provided");
        };
        let shape = broadcast_all(op, &given)?;
        let side_by_side = last - first + 1 == given.len();
        let at = if side_by_side { first } else { 0 };
        let is_indexed = |d: usize| columns.get(d).is_some_and(Option::is_some);
        let (mut sizes, mut strides) = (Dims::new(), Strides::new());
        let (mut index_strides, index_contiguous) = (Strides::new(), crate::shape::contiguous_strides(&shape));
        let put_indices = |sizes: &mut Dims, strides: &mut Strides, index_strides: &mut Strides| {
            for (&s, &step) in shape.iter().zip(index_contiguous.iter()) {
                sizes.push(s);
                strides.push(0);
                index_strides.push(step);
            }
        };
        if !side_by_side {
            put_indices(&mut sizes, &mut strides, &mut index_strides);
        }
        for d in 0..rank {
            if side_by_side && d == at {
                put_indices(&mut sizes, &mut strides, &mut index_strides);
            }
            if !is_indexed(d) {
                sizes.push(input.sizes[d]);
                strides.push(input.strides[d]);
                index_strides.push(0);
            }
        }
        let layout = Layout { sizes: sizes.clone(), strides, offset: input.offset };
        let empty = sizes.contains(&0);
        if !empty && given.iter().any(|&(d, _)| input.sizes[d] == 0) {
            bail!(index op, "index is out of bounds for dimension with size 0");
        }
        let wrapped = |d: usize| Along { stride: input.strides[d], size: input.sizes[d], wrap: true };
        if let [(d, only)] = given[..] {
            // The indices as they are, each checked when it is used.
            let position = at;
            for (k, &step) in only.layout.strides.iter().enumerate() {
                index_strides[position + k] = step;
            }
            let index_layout = Layout { sizes: sizes.clone(), strides: index_strides, offset: only.layout.offset };
            return Ok(Plan { sizes, layout, index: only.clone(), index_layout, along: wrapped(d), dim: Some(d) });
        }
        let places = fresh(op, &shape, DType::I64)?;
        if !empty {
            let layouts: Vec<Layout> = given
                .iter()
                .map(|(_, c)| Layout {
                    sizes: shape.clone(),
                    strides: c.layout.broadcast_strides(&shape),
                    offset: c.layout.offset,
                })
                .collect();
            let parts: Vec<(Operand<'_>, Along)> =
                given.iter().zip(&layouts).map(|(&(d, c), l)| (through(c, l), wrapped(d))).collect();
            index::resolve(&places.operand(), &parts).map_err(|(k, i)| out_of_bounds(op, i, given[k].0, input))?;
        }
        let index_layout = Layout { sizes: sizes.clone(), strides: index_strides, offset: 0 };
        Ok(Plan { sizes, layout, index: Arc::new(places), index_layout, along: Along::RESOLVED, dim: None })
    }

    /// Writes what is addressed in `input` to `to`.
    pub(super) fn gather(&self, op: &'static str, to: &Body, input: &Body) -> Result<()> {
        index::gather(&to.operand(), &through(input, &self.layout), &self.indices(), self.along)
            .map_err(|i| self.refusal(op, i, input))
    }

    /// Writes `from`, broadcast, to what is addressed in `to`, or adds it.
    ///
    /// # Errors
    /// `IndexError`, before anything is written if `check_first`.
    pub(super) fn scatter(&self, op: &'static str, to: &Body, from: &Body, add: bool, check_first: bool) -> Result<()> {
        if !expandable(&from.layout.sizes, &self.sizes) {
            bail!(runtime op, "shape mismatch: value tensor of shape {:?} cannot be broadcast to indexing result of shape {:?}", from.layout.sizes, self.sizes);
        }
        let layout = Layout {
            sizes: self.sizes.clone(),
            strides: from.layout.broadcast_strides(&self.sizes),
            offset: from.layout.offset,
        };
        let (target, source, index) = (through(to, &self.layout), through(from, &layout), self.indices());
        let run = || {
            if check_first && self.dim.is_some() {
                index::check(&index, self.along)?;
            }
            if add {
                index::scatter_with(Combine::Add, &target, &source, &index, self.along)
            } else {
                index::scatter(&target, &source, &index, self.along)
            }
        };
        run().map_err(|i| self.refusal(op, i, to))
    }

    fn indices(&self) -> Operand<'_> {
        through(&self.index, &self.index_layout)
    }

    fn refusal(&self, op: &'static str, index: i64, input: &Body) -> Error {
        out_of_bounds(op, index, self.dim.unwrap_or(0), &input.layout)
    }
}

/// `IndexError` for an index outside a dimension.
#[cold]
pub(super) fn out_of_bounds(op: &'static str, index: i64, dim: usize, input: &Layout) -> Error {
    let size = input.sizes.get(dim).copied().unwrap_or(1);
    Error::index(
        op,
        format!(
            "index {index} is out of bounds for dimension {dim} with size {size}\n{op}: the tensor has shape {:?}",
            input.sizes
        ),
    )
}

/// One int64 column for each indexed dimension: index tensors as they are, masks as the coordinates of what is true.
fn expand_masks(op: &'static str, input: &Layout, indices: &[Option<Tensor>]) -> Result<Vec<Option<Arc<Body>>>> {
    let mut columns = Vec::new();
    for index in indices {
        let Some(t) = index else {
            columns.push(None);
            continue;
        };
        let body = t.body();
        match body.dtype {
            DType::I64 | DType::I32 => columns.push(Some(converted(op, body, DType::I64)?)),
            DType::Bool | DType::U8 => {
                let at = columns.len();
                for (j, &size) in body.layout.sizes.iter().enumerate() {
                    if at + j >= input.rank() {
                        bail!(index op, "too many indices for tensor of dimension {}", input.rank());
                    }
                    if input.sizes[at + j] != size {
                        bail!(index op, "The shape of the mask {:?} at index {j} does not match the shape of the indexed tensor {:?} at index {}", body.layout.sizes, input.sizes, at + j);
                    }
                }
                let (storage, n) = mask::nonzero(op, &body.operand())?;
                for k in 0..body.layout.rank() {
                    let layout = Layout { offset: k * n, ..Layout::contiguous(Dims::filled(n, 1)) };
                    columns.push(Some(Arc::new(Body::new(storage.clone(), layout, DType::I64))));
                }
            }
            _ => bail!(index op, "tensors used as indices must be long, int, byte or bool tensors"),
        }
    }
    Ok(columns)
}

/// The shape to which all index tensors broadcast.
fn broadcast_all(op: &'static str, given: &[(usize, &Arc<Body>)]) -> Result<Dims> {
    let mut shape = Dims::new();
    for (_, c) in given {
        shape = match crate::shape::broadcast(op, &shape, &c.layout.sizes) {
            Ok(s) => s,
            Err(_) => {
                let shapes: Vec<String> = given.iter().map(|(_, c)| format!("{:?}", c.layout.sizes)).collect();
                bail!(index op, "shape mismatch: indexing tensors could not be broadcast together with shapes {}", shapes.join(", "));
            }
        };
    }
    Ok(shape)
}

/// A mask as a tensor argument that stands for itself in a list of indices.
pub(super) fn mask_list(mask: &Tensor) -> Vec<Option<Tensor>> {
    vec![Some(mask.clone())]
}

/// `input` expanded to `sizes` as an operand.
pub(super) fn expanded(body: &Body, sizes: &Dims) -> Layout {
    Layout { sizes: sizes.clone(), strides: body.layout.broadcast_strides(sizes), offset: body.layout.offset }
}

/// A view of the same tensor expanded to `sizes`; differentiable.
pub(super) fn expand(t: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    if t.sizes()[..] == *sizes { Ok(t.clone()) } else { t.expand(ints(sizes)) }
}
