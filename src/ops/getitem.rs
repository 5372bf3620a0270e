//! Python's `x[...]` and `x[...] = v` for any mix of integers, slices, `None`, `...`, truth values and tensors. What names a
//! range becomes a chain of views; what names elements by tensors goes through `index` and `index_put`. The kernels are
//! those rows' affair.

use super::address::ints;
use super::apply;
use super::args::{Arg, Args};
use super::op::{Op, Rule};
use super::view::{self, View};
use super::{copy, inplace};
use super::{
    index::INDEX, index::INDEX_PUT, index_view::ALIAS, index_view::SLICE, index_view::sliced, movement::UNSQUEEZE,
    selection::FILL_TENSOR_IN_PLACE, slicing::SELECT,
};
use crate::autograd::mode;
use crate::dtype::{Category, DType};
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::Layout;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;
use std::sync::Arc;

/// One part of what stands between the brackets.
#[derive(Clone, Debug)]
pub enum IndexItem {
    /// An integer: takes that slice, and its dimension away.
    Int(i64),
    /// `start:stop:step`.
    Slice {
        /// First index.
        start: Option<i64>,
        /// The index to stop before.
        stop: Option<i64>,
        /// Distance; at least 1.
        step: Option<i64>,
    },
    /// `None`: a new dimension of size 1.
    None,
    /// `...`: as many dimensions as the other parts leave.
    Ellipsis,
    /// A truth value: a new dimension of size 1 or 0.
    Bool(bool),
    /// Indices, or a mask.
    Tensor(Tensor),
}

/// What is assigned.
#[derive(Clone, Copy, Debug)]
pub enum IndexValue<'a> {
    /// A tensor that broadcasts to what is indexed; leading dimensions of size 1 may be too many.
    Tensor(&'a Tensor),
    /// A number.
    Number(Scalar),
}

impl<'a> From<&'a Tensor> for IndexValue<'a> {
    fn from(t: &'a Tensor) -> Self {
        IndexValue::Tensor(t)
    }
}

impl<S: Into<Scalar>> From<S> for IndexValue<'_> {
    fn from(s: S) -> Self {
        IndexValue::Number(s.into())
    }
}

const GET: &str = "getitem";
const SET: &str = "setitem";

/// A tensor on the way through the parts of an index. Views are made one for each part if a graph is recorded; otherwise
/// only the layout is worked out, and one view made in the end.
struct Cursor<'a> {
    input: &'a Tensor,
    /// The view so far, if it is not `input`.
    view: Option<Tensor>,
    body: Arc<Body>,
    layout: Layout,
    records: bool,
    /// Whether `layout` is ahead of `view`.
    pending: bool,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn new(input: &'a Tensor) -> Cursor<'a> {
        let body = input.body();
        let records = mode::is_grad_enabled() && input.requires_grad();
        Cursor { input, view: None, layout: body.layout.clone(), body, records, pending: false }
    }

    /// Takes `layout` as the next step, the row `op` with these arguments where a graph is recorded.
    #[inline]
    fn step(&mut self, op: &'static Op, layout: Layout, args: impl FnOnce(&Tensor) -> Args) -> Result<()> {
        if !self.records {
            self.layout = layout;
            self.pending = true;
            return Ok(());
        }
        let from = self.view.as_ref().unwrap_or(self.input);
        let view = view::single(op, rule(op)?, from, &from.body(), layout.clone(), || args(from))?;
        self.layout = layout;
        self.view = Some(view);
        Ok(())
    }

    /// Takes the slice at `index`; `dim` is the dimension of the view, `named` that of the tensor.
    fn select(&mut self, dim: usize, named: usize, index: i64) -> Result<()> {
        let layout = selected(&self.layout, dim, named, index)?;
        self.step(&SELECT, layout, |t| select_args(t, dim, index))
    }

    fn slice(&mut self, dim: usize, start: Option<i64>, stop: Option<i64>, step: Option<i64>) -> Result<()> {
        let step = positive(step)?;
        let layout = sliced(&self.layout, dim as i64, start, stop, step)?;
        if layout == self.layout {
            return Ok(()); // the whole dimension: no step of its own
        }
        self.step(&SLICE, layout, |t| slice_args(t, dim, start, stop, step))
    }

    /// Puts a dimension of size 1 before dimension `dim`.
    fn unsqueeze(&mut self, dim: usize) -> Result<()> {
        let step = match self.layout.sizes.get(dim) {
            Some(&size) => self.layout.strides[dim].wrapping_mul(size as isize),
            None => 1,
        };
        let mut layout = self.layout.clone();
        layout.sizes.insert(dim, 1);
        layout.strides.insert(dim, step);
        self.step(&UNSQUEEZE, layout, |t| smallvec![Arg::Tensor(t.clone()), Arg::Int(dim as i64)])
    }

    /// The view, or nothing if no part asked for one.
    #[inline]
    fn finish(self) -> Result<Option<Tensor>> {
        if self.pending {
            // The arguments are never asked for: nothing is recorded.
            return view::single(&ALIAS, rule(&ALIAS)?, self.input, &self.body, self.layout, Args::new).map(Some);
        }
        Ok(self.view)
    }
}

/// The layout without dimension `dim`, at `index` of it; `named` is the dimension that an error names.
#[inline]
fn selected(layout: &Layout, dim: usize, named: usize, index: i64) -> Result<Layout> {
    let n = layout.sizes[dim] as i64;
    if index < -n || index >= n {
        bail!(index GET, "index {index} is out of bounds for dimension {named} with size {n}\ngetitem: the dimensions from there on are {:?}", &layout.sizes[dim..]);
    }
    let at = if index < 0 { index + n } else { index } as isize;
    let mut out = layout.clone();
    out.sizes.remove(dim);
    out.offset = out.offset.wrapping_add_signed(at * out.strides.remove(dim));
    Ok(out)
}

fn select_args(t: &Tensor, dim: usize, index: i64) -> Args {
    smallvec![Arg::Tensor(t.clone()), Arg::Int(dim as i64), Arg::Int(index)]
}

fn slice_args(t: &Tensor, dim: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> Args {
    smallvec![Arg::Tensor(t.clone()), Arg::Int(dim as i64), Arg::from(start), Arg::from(stop), Arg::Int(step)]
}

/// A step that a range may have.
#[inline]
fn positive(step: Option<i64>) -> Result<i64> {
    match step.unwrap_or(1) {
        0 => bail!(value GET, "slice step cannot be zero"),
        ..0 => bail!(value GET, "step must be greater than zero"),
        step => Ok(step),
    }
}

#[inline]
fn rule(op: &'static Op) -> Result<&'static View> {
    match &op.rule {
        Rule::View(rule) => Ok(rule),
        _ => bail!(runtime op.rust, "internal error: not a view"),
    }
}

/// What an index comes down to: a view (nothing, if it is the tensor itself) and index tensors for it.
type Parts = (Option<Tensor>, Vec<Option<Tensor>>);

fn parts(t: &Tensor, items: &[IndexItem]) -> Result<Parts> {
    let rank = t.rank();
    if let ([IndexItem::Int(_)], 0) = (items, rank) {
        bail!(index GET, "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor to a number");
    }
    let dims_of = |item: &IndexItem| match item {
        IndexItem::Int(_) | IndexItem::Slice { .. } => 1,
        IndexItem::Tensor(m) if is_mask(m) => m.rank(),
        IndexItem::Tensor(_) => 1,
        _ => 0,
    };
    let named: usize = items.iter().map(dims_of).sum();
    // A lone slice of a 0-d tensor has a message of its own.
    if named > rank && !matches!(items, [IndexItem::Slice { .. }]) {
        bail!(index GET, "too many indices for tensor of dimension {rank}");
    }
    let mut cursor = Cursor::new(t);
    let mut indices: Vec<Option<Tensor>> = Vec::new();
    // The dimension of the view that comes next, that of the tensor, and how many dimensions masks have taken beyond one.
    let (mut dim, mut seen, mut folded) = (0, 0, 0);
    let mut behind = named;
    for item in items {
        behind -= dims_of(item);
        match item {
            IndexItem::Int(i) => {
                cursor.select(dim, seen, *i)?;
                seen += 1;
            }
            IndexItem::Slice { start, stop, step } => {
                cursor.slice(dim, *start, *stop, *step)?;
                (dim, seen) = (dim + 1, seen + 1);
            }
            IndexItem::Ellipsis => {
                // Stands for all that the parts behind it leave over; a second one finds nothing more.
                let skip = (cursor.layout.rank() - dim).saturating_sub(behind);
                (dim, seen) = (dim + skip, seen + skip);
            }
            IndexItem::None => {
                cursor.unsqueeze(dim)?;
                dim += 1;
            }
            IndexItem::Bool(b) => {
                cursor.unsqueeze(dim)?;
                put(&mut indices, dim - folded, truth(*b)?);
                dim += 1;
            }
            IndexItem::Tensor(index) => {
                let (dtype, dims) = (index.dtype(), index.rank());
                match (dims, is_mask(index)) {
                    (0, true) => {
                        cursor.unsqueeze(dim)?;
                        put(&mut indices, dim - folded, truth(index.item()?.to_bool())?);
                        dim += 1;
                    }
                    (0, false) if dtype.category() == Category::Int => {
                        cursor.select(dim, seen, index.item()?.to_i64())?;
                        seen += 1;
                    }
                    (_, true) => {
                        put(&mut indices, dim - folded, index.clone());
                        folded += dims - 1;
                        (dim, seen) = (dim + dims, seen + dims);
                    }
                    (_, false) => {
                        if !matches!(dtype, DType::I64 | DType::I32) {
                            bail!(index GET, "tensors used as indices must be long, int, byte or bool tensors\ngetitem: got {dtype}");
                        }
                        put(&mut indices, dim - folded, index.clone());
                        (dim, seen) = (dim + 1, seen + 1);
                    }
                }
            }
        }
    }
    Ok((cursor.finish()?, indices))
}

/// Whether an index tensor is a mask; bytes are masks too, as they were before there were truth values.
fn is_mask(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::Bool | DType::U8)
}

fn put(indices: &mut Vec<Option<Tensor>>, at: usize, index: Tensor) {
    indices.resize(at.max(indices.len()), None);
    indices.push(Some(index));
}

/// The index that a truth value is on the dimension of size 1 that it made: that one element, or none.
fn truth(value: bool) -> Result<Tensor> {
    Tensor::from_slice(if value { &[0i64][..] } else { &[] }, &[value as usize])
}

/// `t[items]`: a view where integers, slices, `None` and `...` say enough, else a copy of the elements that index tensors
/// name. A tensor as the only item stands for itself, an empty list or `...` gives a view of all.
///
/// # Errors
/// `IndexError` for an index out of range, too many of them, index tensors of another dtype than int64, int32, bool or
/// uint8, or of shapes that do not go together; `ValueError` for a step below 1.
pub fn getitem(t: &Tensor, items: &[IndexItem]) -> Result<Tensor> {
    match items {
        // The two that loops are made of.
        [IndexItem::Int(i)] => {
            let body = t.body();
            if body.layout.rank() > 0 {
                let layout = selected(&body.layout, 0, 0, *i)?;
                return view::single(&SELECT, rule(&SELECT)?, t, &body, layout, || select_args(t, 0, *i));
            }
        }
        [IndexItem::Slice { start, stop, step }] => {
            let (body, step) = (t.body(), positive(*step)?);
            let layout = sliced(&body.layout, 0, *start, *stop, step)?;
            return view::single(&SLICE, rule(&SLICE)?, t, &body, layout, || slice_args(t, 0, *start, *stop, step));
        }
        [] | [IndexItem::Ellipsis] => return t.alias(),
        _ => {}
    }
    let (view, indices) = parts(t, items)?;
    if indices.is_empty() {
        return view.map_or_else(|| t.alias(), Ok);
    }
    let view = view.unwrap_or_else(|| t.clone());
    apply::call_into(&INDEX, smallvec![Arg::Tensor(view), Arg::OptTensors(indices)])
}

/// `t[items] = value`, in place. The value broadcasts to what is indexed and is converted to the tensor's dtype, unless
/// index tensors are involved, which want a tensor of that dtype. Gradients flow to the value and to what is not replaced.
///
/// # Errors
/// As [`getitem`]; `RuntimeError` for a value of another shape, for a leaf that requires a gradient, and where the memory
/// may not be written.
pub fn setitem<'a>(t: &Tensor, items: &[IndexItem], value: impl Into<IndexValue<'a>>) -> Result<()> {
    let value = value.into();
    if let [IndexItem::Bool(b)] = items {
        if !b {
            return Ok(());
        }
        return assign(&getitem(t, &[IndexItem::None])?, value);
    }
    let (view, indices) = parts(t, items)?;
    let target = view.unwrap_or_else(|| t.clone());
    if indices.is_empty() {
        return assign(&target, value);
    }
    let value = match value {
        IndexValue::Number(s) => super::full(&[], checked(s, target.dtype())?, target.dtype())?,
        IndexValue::Tensor(v) => without_leading_ones(v)?,
    };
    apply::call_in_place(
        &INDEX_PUT,
        &smallvec![Arg::Tensor(target), Arg::OptTensors(indices), Arg::Tensor(value), Arg::Bool(false)],
    )?;
    Ok(())
}

/// Writes a value to all of `target`.
fn assign(target: &Tensor, value: IndexValue<'_>) -> Result<()> {
    let source = match value {
        IndexValue::Number(s) => {
            let (body, s) = (target.body(), checked(s, target.dtype())?);
            if !(mode::is_grad_enabled() && target.requires_grad()) {
                inplace::check(SET, target, false)?;
                super::factory::fill(&body, s)?;
                body.bump_version();
                return Ok(());
            }
            let value = super::full(&[], s, body.dtype)?;
            if body.layout.rank() > 0 {
                return fill(target, value);
            }
            value
        }
        IndexValue::Tensor(v) if v.sizes() == target.sizes() => v.clone(),
        IndexValue::Tensor(v) if v.rank() == 0 => return fill(target, v.clone()),
        IndexValue::Tensor(v) => without_leading_ones(v)?.expand(ints(&target.sizes()))?,
    };
    apply::call_in_place(&copy::COPY, &smallvec![Arg::Tensor(target.clone()), Arg::Tensor(source), Arg::Bool(false)])?;
    Ok(())
}

/// Writes a 0-d tensor to every element of `target`.
fn fill(target: &Tensor, value: Tensor) -> Result<()> {
    let body = value.body();
    // An element of the target itself is read before it is overwritten.
    let shared = body.storage.same(&target.body().storage);
    let value = if shared { Tensor::with_history(copy::duplicate(SET, &body)?, value.edge()?) } else { value };
    apply::call_in_place(&FILL_TENSOR_IN_PLACE, &smallvec![Arg::Tensor(target.clone()), Arg::Tensor(value)])?;
    Ok(())
}

/// A number that the dtype can hold.
fn checked(s: Scalar, dtype: DType) -> Result<Scalar> {
    match s {
        Scalar::Float(x) if dtype.category() == Category::Int && !(x > -9.3e18 && x < 9.3e18) => {
            bail!(runtime SET, "value cannot be converted to type int64_t without overflow\nsetitem: {x} for {dtype}")
        }
        _ => Ok(s),
    }
}

/// A value without its leading dimensions of size 1, which may be more than the target has.
fn without_leading_ones(v: &Tensor) -> Result<Tensor> {
    let sizes = v.sizes();
    let ones = sizes.iter().take_while(|&&s| s == 1).count();
    if ones == 0 { Ok(v.clone()) } else { v.view(ints(&sizes[ones..])) }
}

impl Tensor {
    /// `t[items]`; see [`getitem`].
    ///
    /// # Errors
    /// As [`getitem`].
    pub fn at(&self, items: &[IndexItem]) -> Result<Tensor> {
        getitem(self, items)
    }

    /// `t[items] = value`; see [`setitem`].
    ///
    /// # Errors
    /// As [`setitem`].
    pub fn set_at<'a>(&self, items: &[IndexItem], value: impl Into<IndexValue<'a>>) -> Result<()> {
        setitem(self, items, value)
    }
}
