//! Arbitrary strides: `as_strided` with its derivative, and what an in-place change of a view means for its base.

use super::args::{Arg, Args, Read, kinds};
use super::copy;
use super::op::Rule::{Structured as S, View as V};
use super::op::{FUNCTION, METHOD, op};
use super::structured::Structured;
use super::view::View;
use crate::autograd::held::{Held, Visit};
use crate::autograd::node::{Backward, Call, Edge, Grads, Meta, Node, NodeRef};
use crate::backend::cpu;
use crate::error::{Result, bail};
use crate::few::MostlyOne;
use crate::shape::{Dims, Layout, Strides};
use crate::storage::{Guards, Storage};
use crate::tensor::{Body, Tensor};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

op! {
    /// The tensor's storage seen with any sizes, strides and offset (in elements).
    ///
    /// # Errors
    /// `RuntimeError` for negative numbers and for elements outside the storage.
    AS_STRIDED as_strided (self, size: Ints, stride: Ints, storage_offset: OptInt = None) -> Tensor = "AsStridedBackward0", METHOD | FUNCTION,
        V(View {
            layouts: |input, a| Ok(smallvec![layout_of(input, a.ints(1)?, a.ints(2)?, a.opt_int(3), a.tensor(0)?)?]),
            backward: |c| {
                let base = c.layout().cloned().unwrap_or_else(|| Layout::contiguous(c.sizes(0).into()));
                let offset = c.opt_int(3).unwrap_or(base.offset as i64) - base.offset as i64;
                let dense = compact(&base)?;
                let ints = |d: &[usize]| kinds::Ints(d.iter().map(|&x| x as i64).collect());
                let strides = kinds::Ints(dense.strides.iter().map(|&x| x as i64).collect());
                Ok(smallvec![c.grad(0).map(|g| g.as_strided_backward(ints(&dense.sizes), strides, kinds::Ints(c.ints(1)?.into()), kinds::Ints(c.ints(2)?.into()), offset)).transpose()?])
            },
            multiple: false,
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Ints([2, 2][..].into()), Arg::Ints([4, 2][..].into()), Arg::Int(1)],
            // Elements that several places of the view share.
            smallvec![Arg::Tensor(s.t(&[6])), Arg::Ints([3, 3][..].into()), Arg::Ints([1, 1][..].into()), Arg::None],
        ];
    /// Zeros of `base_size`, lying with `base_stride`, with the elements of `input` added where a view of `size`, `stride`
    /// and `offset` would have them: the transpose of `as_strided`.
    AS_STRIDED_BACKWARD as_strided_backward (self, base_size: Ints, base_stride: Ints, size: Ints, stride: Ints, offset: Int) -> Tensor = "AsStridedBackwardBackward0", 0,
        S(Structured {
            forward: |a| {
                let base = Layout { sizes: dims(a.ints(1)?), strides: strides(a.ints(2)?), offset: 0 };
                let view = Layout { sizes: dims(a.ints(3)?), strides: strides(a.ints(4)?), offset: a.int(5)? as usize };
                let grad = a.tensor(0)?.body();
                let out = Body::new(Storage::zeroed("as_strided", base.numel() * grad.dtype.size())?, base, grad.dtype);
                let part = out.with_layout(view);
                if part.layout.overlaps_itself() {
                    let _guards = Guards::take([&grad.storage], []);
                    cpu::strided::accumulate(&grad.operand(), &part.operand());
                } else {
                    copy::convert("as_strided", &grad, &part)?;
                }
                Ok(smallvec![Tensor::from_body(out)])
            },
            backward: Some(|c| {
                let (base_size, base_stride) = (c.ints(1)?, c.ints(2)?);
                let g = c.grad(0).map(|g| {
                    // Bring the gradient into the base's order of memory, then look at it through the view.
                    let base = Layout { sizes: dims(base_size), strides: strides(base_stride), offset: 0 };
                    let laid = lay_out(&g, &base)?;
                    laid.as_strided(kinds::Ints(c.ints(3)?.into()), kinds::Ints(c.ints(4)?.into()), c.int(5)?)
                });
                Ok(smallvec![g.transpose()?])
            }),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 2])), Arg::Ints([3, 4][..].into()), Arg::Ints([4, 1][..].into()), Arg::Ints([2, 2][..].into()), Arg::Ints([4, 2][..].into()), Arg::Int(1)]];
}

fn dims(ints: &[i64]) -> Dims {
    ints.iter().map(|&x| x as usize).collect()
}

fn strides(ints: &[i64]) -> Strides {
    ints.iter().map(|&x| x as isize).collect()
}

fn layout_of(input: &Layout, size: &[i64], stride: &[i64], offset: Option<i64>, t: &Tensor) -> Result<Layout> {
    let op = "as_strided";
    if size.len() != stride.len() {
        bail!(runtime op, "mismatch in length of strides and shape");
    }
    if let Some(bad) = size.iter().chain(stride).chain(&offset).find(|x| **x < 0) {
        bail!(runtime op, "as_strided: Negative sizes, strides and offsets are not supported at the moment, got {bad}");
    }
    let layout =
        Layout { sizes: dims(size), strides: strides(stride), offset: offset.map_or(input.offset, |o| o as usize) };
    let body = t.body();
    let room = body.storage.bytes() / body.dtype.size();
    let reach = layout.sizes.iter().zip(layout.strides.iter()).try_fold(layout.offset, |n, (&s, &d)| {
        s.saturating_sub(1).checked_mul(d as usize).and_then(|r| n.checked_add(r))
    });
    if layout.numel() > 0 && reach.is_none_or(|r| r >= room) {
        bail!(runtime op, "setStorage: sizes {size:?}, strides {stride:?}, storage offset {}, and itemsize {} requiring more than the storage of {} bytes", layout.offset, body.dtype.size(), body.storage.bytes());
    }
    Ok(layout)
}

/// A base's layout from offset 0, which must be dense for a part of it to be found again.
fn compact(base: &Layout) -> Result<Layout> {
    if !base.is_dense() {
        bail!(runtime "as_strided", "the gradient of a strided view of a tensor that is not dense in memory (shape {:?}, strides {:?}) is not defined; make it contiguous first", base.sizes, base.strides);
    }
    Ok(Layout { sizes: base.sizes.clone(), strides: base.strides.clone(), offset: 0 })
}

/// The tensor's values in the memory order of `layout`, differentiable: by permuting dimensions around a contiguous copy.
fn lay_out(t: &Tensor, layout: &Layout) -> Result<Tensor> {
    let body = t.body();
    if body.layout == *layout {
        return Ok(t.clone());
    }
    let mut order: Vec<usize> = (0..layout.rank()).collect();
    order.sort_by_key(|&d| (std::cmp::Reverse(layout.strides[d]), d));
    let permuted = t.permute(&order[..])?.contiguous("contiguous_format".to_string())?;
    let mut back = vec![0usize; order.len()];
    order.iter().enumerate().for_each(|(k, &d)| back[d] = k);
    permuted.permute(&back[..])
}

/// The history of a view of `base` whose own was overtaken by an in-place change: an `AsStridedBackward0` on the base's.
pub(crate) fn view_of(base: &Tensor, view: &Body, history: Edge) -> Result<Edge> {
    // The base as an operand whose history is the given edge.
    let base = Tensor::with_history(base.body(), history);
    let args: Args = smallvec![
        Arg::Tensor(base.clone()),
        Arg::Ints(view.layout.sizes.iter().map(|&x| x as i64).collect()),
        Arg::Ints(view.layout.strides.iter().map(|&x| x as i64).collect()),
        Arg::Int(view.layout.offset as i64),
    ];
    let V(rule) = &AS_STRIDED.rule else { return Ok(Edge::NONE) };
    let mut out = Tensor::from_body(view.clone());
    let outputs = std::slice::from_mut(&mut out);
    super::structured::record(&AS_STRIDED, &args, Some(&base.body().layout), rule.backward, &[], outputs)?;
    Ok(out.grad_fn_as_is())
}

/// The node of a base of which a part was modified in place: the gradient of the untouched part passes, that of the part
/// goes through the node of the modification.
pub(crate) struct CopySlices {
    inner: NodeRef,
    base: Layout,
    view: Layout,
}

impl CopySlices {
    /// The node for `base`, whose part `view` was modified by `inner`.
    pub(crate) fn node(base: &Tensor, view: &Body, inner: NodeRef) -> Result<NodeRef> {
        let body = base.body();
        let edges = std::iter::once(base.edge()?).chain(inner.edges.iter().skip(1).cloned()).collect();
        let relative = Layout { offset: view.layout.offset.wrapping_sub(body.layout.offset), ..view.layout.clone() };
        let compact = Layout { offset: 0, ..body.layout.clone() };
        let meta = Meta { sizes: body.layout.sizes.clone(), dtype: body.dtype };
        Ok(Node::shared(edges, MostlyOne::One(meta), CopySlices { inner, base: compact, view: relative }))
    }
}

impl Backward for CopySlices {
    fn name(&self) -> Cow<'static, str> {
        "CopySlices".into()
    }

    fn backward(&self, call: &Call<'_>, mut grads: Grads) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::from_elem(None, call.node.edges.len())) };
        compact(&self.base)?;
        let ints = |d: &[usize]| kinds::Ints(d.iter().map(|&x| x as i64).collect());
        let sints = |d: &[isize]| kinds::Ints(d.iter().map(|&x| x as i64).collect());
        let (size, stride, offset) = (&self.view.sizes, &self.view.strides, self.view.offset as i64);
        // A copy that is ours to change, in the base's order of memory.
        let whole = lay_out(&grad, &self.base)?.copy()?;
        let part = whole.as_strided(ints(size), sints(stride), offset)?;
        let needs: SmallVec<[bool; 4]> = (0..call.node.edges.len()).map(|k| k == 0 || call.needs(k)).collect();
        let inner_call = Call { node: &self.inner, asked: Some(&needs), ..*call };
        let mut out = self.inner.body.backward(&inner_call, smallvec![Some(part.copy()?)])?;
        let replacement = match out[0].take() {
            Some(g) => g,
            None => super::zeros_like(&part)?,
        };
        let args: Args = smallvec![Arg::Tensor(part), Arg::Tensor(replacement), Arg::Bool(false)];
        super::apply::call_in_place(&copy::COPY, &args)?;
        out[0] = Some(whole);
        Ok(out)
    }

    fn release(&self) {
        self.inner.body.release();
    }

    fn held(&self, visit: &mut Visit<'_>) {
        visit(Held::Node(&self.inner));
    }
}
