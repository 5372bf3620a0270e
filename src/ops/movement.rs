//! Movement operations: views of the same memory.

use super::args::{Arg, Read, kinds};
use super::copy;
use super::op::Rule::{Composite as C, View as V};
use super::op::{FUNCTION, METHOD, op};
use super::view::View;
use crate::error::{Result, bail};
use crate::shape::{Dims, Layout, Strides, wrap_dim};
use crate::tensor::Tensor;
use smallvec::smallvec;

/// Sizes with at most one -1, which stands for what is left of `n` elements.
pub(super) fn infer_sizes(op: &'static str, sizes: &[i64], n: usize) -> Result<Dims> {
    let known: usize = sizes.iter().filter(|&&s| s >= 0).map(|&s| s as usize).product();
    let unknown: Vec<usize> = (0..sizes.len()).filter(|&d| sizes[d] == -1).collect();
    if let Some(bad) = sizes.iter().find(|&&s| s < -1) {
        bail!(runtime op, "invalid shape dimension {bad}");
    }
    let shown = || sizes.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let mut out: Dims = sizes.iter().map(|&s| s.max(0) as usize).collect();
    match unknown[..] {
        [] if known == n => Ok(out),
        [d] if known > 0 && n % known == 0 => {
            out[d] = n / known;
            Ok(out)
        }
        [_] if known == 0 && n == 0 => {
            bail!(runtime op, "cannot reshape tensor of 0 elements into shape [{}] because the unspecified dimension size -1 can be any value and is ambiguous", shown())
        }
        [_, _, ..] => bail!(runtime op, "only one dimension can be inferred"),
        _ => bail!(runtime op, "shape '[{}]' is invalid for input of size {n}", shown()),
    }
}

fn ints(sizes: &[usize]) -> kinds::Ints {
    kinds::Ints(sizes.iter().map(|&s| s as i64).collect())
}

op! {
    /// The tensor seen in another shape of as many elements; one size may be -1. No element is copied.
    ///
    /// # Errors
    /// `RuntimeError` if the element count differs, or if strides cannot express the shape.
    VIEW view(self, size: Ints) -> Tensor = "ViewBackward0", METHOD,
        V(View {
            layouts: |input, a| {
                let sizes = infer_sizes("view", a.ints(1)?, input.numel())?;
                let Some(strides) = input.view_strides(&sizes) else {
                    bail!(runtime "view", "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.\nview: from shape {:?} with strides {:?} to {sizes:?}", input.sizes, input.strides);
                };
                Ok(smallvec![Layout { sizes, strides, offset: input.offset }])
            },
            backward: |c| Ok(smallvec![c.grad(0).map(|g| g.reshape(ints(c.sizes(0)))).transpose()?]),
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 6])), Arg::Ints([3, -1][..].into())]];
    /// The elements in another shape: a view if strides can express it, else a copy.
    ///
    /// # Errors
    /// `RuntimeError` if the element count differs.
    RESHAPE reshape(self, shape: Ints) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let t = a.tensor(0)?;
            let body = t.body();
            let sizes = infer_sizes("reshape", a.ints(1)?, body.layout.numel())?;
            if body.layout.view_strides(&sizes).is_some() {
                return Ok(smallvec![t.view(ints(&sizes))?]);
            }
            Ok(smallvec![t.copy_contiguous()?.view(ints(&sizes))?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 6])), Arg::Ints([4, 3][..].into())]];
    /// Dimensions in another order: dimension `d` of the result is dimension `dims[d]` of the input.
    ///
    /// # Errors
    /// `RuntimeError` if `dims` does not name each dimension once; `IndexError` outside the range.
    PERMUTE permute(self, dims: Ints) -> Tensor = "PermuteBackward0", METHOD | FUNCTION,
        V(View {
            layouts: |input, a| Ok(smallvec![input.permuted(&permutation(a.ints(1)?, input.rank())?)]),
            backward: |c| {
                let order = permutation(c.ints(1)?, c.sizes(0).len())?;
                let mut back = vec![0i64; order.len()];
                order.iter().enumerate().for_each(|(k, &d)| back[d] = k as i64);
                Ok(smallvec![c.grad(0).map(|g| g.permute(&back[..])).transpose()?])
            },
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([2, 0, -2][..].into())]];
    /// The tensor repeated along dimensions of size 1, and along new ones in front, without copying; -1 keeps a size.
    ///
    /// # Errors
    /// `RuntimeError` if a size other than 1 would change.
    EXPAND expand(self, size: Ints) -> Tensor = "ExpandBackward0", METHOD,
        V(View {
            layouts: |input, a| Ok(smallvec![expanded(input, a.ints(1)?)?]),
            backward: |c| Ok(smallvec![c.grad(0).map(|g| super::sum_to_size(&g, c.sizes(0))).transpose()?]),
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 1])), Arg::Ints([2, -1, 4][..].into())]];
    /// The slice at `index` of a dimension, which goes.
    ///
    /// # Errors
    /// `IndexError` for an index or a dimension outside the range, and for a 0-d tensor.
    SELECT select(self, dim: Int, index: Int) -> Tensor = "SelectBackward0", METHOD | FUNCTION,
        V(View {
            layouts: |input, a| {
                if input.rank() == 0 {
                    bail!(index "select", "select() cannot be applied to a 0-dim tensor.");
                }
                let dim = wrap_dim("select", a.int(1)?, input.rank())?;
                let (index, n) = (a.int(2)?, input.sizes[dim] as i64);
                if index < -n || index >= n {
                    bail!(index "select", "select(): index {index} out of range for tensor of size {:?} at dimension {dim}", input.sizes);
                }
                let index = if index < 0 { index + n } else { index } as isize;
                let mut layout = input.clone();
                layout.sizes.remove(dim);
                let stride = layout.strides.remove(dim);
                layout.offset = (layout.offset as isize + index * stride) as usize;
                Ok(smallvec![layout])
            },
            backward: |c| {
                Ok(smallvec![c.when(0, |g| g.select_backward(ints(c.sizes(0)), c.int(1)?, c.int(2)?))?])
            },
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Int(-2)]];
    /// Zeros of `size` with `input` at `index` of a dimension: the transpose of `select`.
    SELECT_BACKWARD select_backward(self, size: Ints, dim: Int, index: Int) -> Tensor = "SelectBackwardBackward0", 0,
        super::op::Rule::Structured(super::structured::Structured {
            forward: |a| {
                let grad = a.tensor(0)?;
                let sizes: Dims = a.ints(1)?.iter().map(|&s| s as usize).collect();
                let out = super::zeros(&sizes, grad.dtype())?;
                let part = out.select(a.int(2)?, a.int(3)?)?;
                copy::convert("select", &grad.body(), &part.body())?;
                Ok(smallvec![out])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.select(c.int(2)?, c.int(3)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3])), Arg::Ints([3, 4][..].into()), Arg::Int(1), Arg::Int(2)]];
    /// The tensor itself if it lies row-major without gaps, else a copy that does.
    CONTIGUOUS contiguous(self, memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| {
            let t = a.tensor(0)?;
            Ok(smallvec![if t.is_contiguous() { t.clone() } else { t.copy_contiguous()? }])
        });
}

impl Tensor {
    /// A row-major copy, differentiable.
    pub(crate) fn copy_contiguous(&self) -> Result<Tensor> {
        let args = smallvec![Arg::Tensor(self.clone()), Arg::Str("contiguous_format".into())];
        super::apply::call_into(&copy::CLONE, args)
    }
}

/// A list of dimensions that names each of `rank` once.
pub(super) fn permutation(dims: &[i64], rank: usize) -> Result<Dims> {
    if dims.len() != rank {
        bail!(runtime "permute", "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions i.e. input.dim() = {rank} is not equal to len(dims) = {}", dims.len());
    }
    let mut out = Dims::new();
    for &d in dims {
        let d = wrap_dim("permute", d, rank)?;
        if out.contains(&d) {
            bail!(runtime "permute", "permute(): duplicate dims are not allowed.");
        }
        out.push(d);
    }
    Ok(out)
}

/// The layout of `expand`.
pub(super) fn expanded(input: &Layout, size: &[i64]) -> Result<Layout> {
    let op = "expand";
    if size.len() < input.rank() {
        bail!(runtime op, "expand(torch.FloatTensor{{{:?}}}, size={size:?}): the number of sizes provided ({}) must be greater or equal to the number of dimensions in the tensor ({})", input.sizes, size.len(), input.rank());
    }
    let pad = size.len() - input.rank();
    let (mut sizes, mut strides) = (Dims::new(), Strides::new());
    for (d, &want) in size.iter().enumerate() {
        let have = d.checked_sub(pad).map(|d| (input.sizes[d], input.strides[d]));
        let (s, stride) = match (have, want) {
            (None, -1) => bail!(runtime op, "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {d}"),
            (None, w) if w >= 0 => (w as usize, 0),
            (Some((s, stride)), -1) => (s, stride),
            (Some((s, stride)), w) if w >= 0 && s == w as usize => (s, stride),
            (Some((1, _)), w) if w >= 0 => (w as usize, 0),
            (Some((s, _)), w) => {
                bail!(runtime op, "The expanded size of the tensor ({w}) must match the existing size ({s}) at non-singleton dimension {d}.  Target sizes: {size:?}.  Tensor sizes: {:?}", input.sizes)
            }
            (None, w) => bail!(runtime op, "invalid size {w} at dimension {d}"),
        };
        sizes.push(s);
        strides.push(stride);
    }
    crate::shape::checked_numel(op, &sizes)?;
    Ok(Layout { sizes, strides, offset: input.offset })
}

