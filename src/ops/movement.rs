//! Movement operations that change a tensor's shape without touching an element: other sizes, another order of dimensions,
//! dimensions of size 1 put in or taken out, broadcasting. What takes parts of a tensor lives in `slicing`, what writes
//! elements to other places in `rearrange`.

use super::args::{Arg, Args, Read};
use super::copy;
use super::op::Rule::{Composite as C, InPlace, Structured as S, View as V};
use super::op::{FUNCTION, INPLACE, METHOD, Outputs, PROPERTY, op};
use super::structured::{Context, Structured};
use super::view::View;
use crate::autograd::node::Grads;
use crate::error::{Result, bail};
use crate::shape::{Dims, Layout, Strides, broadcast, checked_numel, expandable, wrap_dim, wrap_dims};
use crate::tensor::Tensor;
use smallvec::smallvec;

op! {
    /// The tensor seen in another shape of as many elements; one size may be -1. No element is copied.
    ///
    /// # Errors
    /// `RuntimeError` if the element count differs, or if strides cannot express the shape.
    VIEW view(self, size: Ints) -> Tensor = "ViewBackward0", METHOD,
        V(View {
            layouts: viewed,
            backward: reshape_back,
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 6])), Arg::Ints([3, -1][..].into())]];
    /// [`view`](Self::view) in the shape of `other`.
    ///
    /// # Errors
    /// As `view`.
    VIEW_AS view_as(self, other: Tensor) -> Tensor = "", METHOD,
        C(|a| Ok(smallvec![a.tensor(0)?.view(&a.tensor(1)?.sizes())?])),
        |s| vec![s.tensors(&[&[2, 6], &[4, 3]])];
    /// [`view`](Self::view) of a tensor that does not lie row-major, as `reshape` makes it.
    RESHAPE_ALIAS reshape_alias(self, size: Ints) -> Tensor = "ReshapeAliasBackward0", 0,
        V(View { layouts: viewed, backward: reshape_back, multiple: false }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 6])), Arg::Ints([3, -1][..].into())]];
    /// A result seen in another shape without being a view of it: for temporaries that nobody else holds.
    UNSAFE_VIEW unsafe_view(self, size: Ints) -> Tensor = "UnsafeViewBackward0", 0,
        S(Structured {
            forward: |a| {
                let body = a.tensor(0)?.body();
                let sizes = infer_sizes("view", a.ints(1)?, body.layout.numel())?;
                let Some(strides) = body.layout.view_strides(&sizes) else {
                    bail!(runtime "view", "view size is not compatible with input tensor's size and stride");
                };
                Ok(smallvec![Tensor::from_body(body.with_layout(Layout { sizes, strides, offset: body.layout.offset }))])
            },
            backward: Some(reshape_back),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 6])), Arg::Ints([3, -1][..].into())]];
    /// The elements in another shape: a view if strides can express it, else a copy.
    ///
    /// # Errors
    /// `RuntimeError` if the element count differs.
    RESHAPE reshape(self, shape: Ints) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let t = a.tensor(0)?;
            let layout = t.body().layout.clone();
            let sizes = infer_sizes("reshape", a.ints(1)?, layout.numel())?;
            Ok(smallvec![match layout.view_strides(&sizes) {
                Some(_) if layout.is_contiguous() => t.view(&sizes)?,
                Some(_) => t.reshape_alias(&sizes)?,
                None => t.copy_contiguous()?.unsafe_view(&sizes)?,
            }])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 6])), Arg::Ints([4, 3][..].into())]];
    /// [`reshape`](Self::reshape) to the shape of `other`.
    ///
    /// # Errors
    /// As `reshape`.
    RESHAPE_AS reshape_as(self, other: Tensor) -> Tensor = "", METHOD,
        C(|a| Ok(smallvec![a.tensor(0)?.reshape(&a.tensor(1)?.sizes())?])),
        |s| vec![s.tensors(&[&[2, 6], &[4, 3]])];
    /// The elements in one dimension: a view if strides can express it, else a copy.
    RAVEL ravel(self) -> Tensor = "", METHOD | FUNCTION,
        C(|a| Ok(smallvec![a.tensor(0)?.contiguous(None)?.view([-1])?])),
        |s| vec![s.tensors(&[&[2, 3]])];
    /// Dimensions `start_dim` to `end_dim` as one. A 0-d tensor becomes one of one element.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there, `RuntimeError` if `start_dim` comes after `end_dim`.
    FLATTEN flatten(self, start_dim: Int = 0, end_dim: Int = -1) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let t = a.tensor(0)?;
            let sizes = t.sizes();
            let (start, end) = (wrap_dim("flatten", a.int(1)?, sizes.len())?, wrap_dim("flatten", a.int(2)?, sizes.len())?);
            if start > end {
                bail!(runtime "flatten", "flatten() has invalid args: start_dim cannot come after end_dim\nflatten: start_dim {start} and end_dim {end} of shape {sizes:?}");
            }
            if sizes.is_empty() {
                return Ok(smallvec![t.reshape([1])?]);
            }
            if start == end {
                return Ok(smallvec![t.clone()]);
            }
            let mut flat = Dims::from_slice(&sizes[..start]);
            flat.push(sizes[start..=end].iter().product());
            sizes[end + 1..].iter().for_each(|&s| flat.push(s));
            Ok(smallvec![t.reshape(&flat)?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Int(1), Arg::Int(-1)]];
    /// Dimension `dim` as several of the given sizes, of which one may be -1.
    ///
    /// # Errors
    /// `RuntimeError` if the sizes do not multiply to that of the dimension.
    UNFLATTEN unflatten(self, dim: Int, sizes: Ints) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let (t, parts) = (a.tensor(0)?, a.ints(2)?);
            let sizes = t.sizes();
            let dim = wrap_dim("unflatten", a.int(1)?, sizes.len())?;
            if parts.is_empty() {
                bail!(runtime "unflatten", "unflatten: sizes must be non-empty");
            }
            let n = sizes.get(dim).copied().unwrap_or(1);
            if parts.iter().filter(|&&s| s == -1).count() > 1 {
                bail!(runtime "unflatten", "unflatten: only one dimension can be inferred, got sizes {parts:?}");
            }
            let Ok(parts) = infer_sizes("unflatten", parts, n) else {
                bail!(runtime "unflatten", "unflatten: Provided sizes {parts:?} don't multiply up to the size of dim {dim} ({n}) in the input tensor");
            };
            let (before, after) = (&sizes[..dim.min(sizes.len())], sizes.get(dim + 1..).unwrap_or(&[]));
            let whole: Dims = before.iter().chain(parts.iter()).chain(after).copied().collect();
            Ok(smallvec![t.view(&whole)?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 6])), Arg::Int(1), Arg::Ints([2, -1][..].into())]];
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
                Ok(smallvec![c.when(0, |g| g.permute(&back[..]))?])
            },
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([2, 0, -2][..].into())]];
    /// Two dimensions exchanged.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    TRANSPOSE transpose(self, dim0: Int, dim1: Int) -> Tensor = "TransposeBackward0", METHOD | FUNCTION | INPLACE,
        V(View {
            layouts: exchanged,
            backward: |c| Ok(smallvec![c.when(0, |g| g.transpose(c.int(1)?, c.int(2)?))?]),
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Int(0), Arg::Int(-1)]];
    /// [`transpose`](Self::transpose) under NumPy's name.
    ///
    /// # Errors
    /// As `transpose`.
    SWAPAXES swapaxes(self, axis0: Int, axis1: Int) -> Tensor = "", METHOD | FUNCTION,
        C(|a| Ok(smallvec![a.tensor(0)?.transpose(a.int(1)?, a.int(2)?)?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(0), Arg::Int(1)]];
    /// `transpose_` under NumPy's name.
    ///
    /// # Errors
    /// As `transpose`.
    SWAPAXES_ swapaxes_ as "swapaxes"(self, axis0: Int, axis1: Int) -> Tensor = "", INPLACE,
        InPlace(|_, a| super::apply::call_in_place(&TRANSPOSE, a).map(drop));
    /// The transposed matrix; a tensor of fewer dimensions as it is.
    ///
    /// # Errors
    /// `RuntimeError` for more than two dimensions.
    T t(self) -> Tensor = "TBackward0", METHOD | FUNCTION | INPLACE,
        V(View {
            layouts: |input, _| {
                if input.rank() > 2 {
                    bail!(runtime "t", "t() expects a tensor with <= 2 dimensions, but self is {}D", input.rank());
                }
                let order: Dims = (0..input.rank()).rev().collect();
                Ok(smallvec![input.permuted(&order)])
            },
            backward: |c| Ok(smallvec![c.when(0, |g| g.t())?]),
            multiple: false,
        }),
        |s| vec![s.tensors(&[&[2, 3]]), s.tensors(&[&[3]])];
    /// The dimensions in reverse order (`T`).
    NUMPY_T reversed as "T"(self) -> Tensor = "", PROPERTY,
        C(|a| {
            let t = a.tensor(0)?;
            let order: Dims<i64> = (0..t.rank() as i64).rev().collect();
            Ok(smallvec![t.permute(&order[..])?])
        }),
        |s| vec![s.tensors(&[&[2, 3, 4]])];
    /// The last two dimensions exchanged (`mT`).
    ///
    /// # Errors
    /// `RuntimeError` for a 1-d tensor.
    MATRIX_T matrix_transposed as "mT"(self) -> Tensor = "", PROPERTY,
        C(|a| Ok(smallvec![matrices_transposed("mT", a.tensor(0)?)?])),
        |s| vec![s.tensors(&[&[2, 3, 4]])];
    /// The conjugated transpose of a matrix (`H`): for real numbers, the transpose.
    ///
    /// # Errors
    /// `RuntimeError` for a 1-d tensor and for more than two dimensions.
    MATRIX_H hermitian as "H"(self) -> Tensor = "", PROPERTY,
        C(|a| {
            let t = a.tensor(0)?;
            match t.rank() {
                0 | 2 => Ok(smallvec![matrices_transposed("H", t)?]),
                n => bail!(runtime "H", "tensor.H is only supported on matrices (2-D tensors). Got {n}-D tensor.{}", if n > 2 { " For batches of matrices, consider using tensor.mH" } else { "" }),
            }
        }),
        |s| vec![s.tensors(&[&[2, 3]])];
    /// The conjugated transposes of matrices (`mH`): for real numbers, the transposes.
    ///
    /// # Errors
    /// `RuntimeError` for a 1-d tensor.
    MATRICES_H matrices_hermitian as "mH"(self) -> Tensor = "", PROPERTY,
        C(|a| Ok(smallvec![matrices_transposed("mH", a.tensor(0)?)?])),
        |s| vec![s.tensors(&[&[2, 3, 4]])];
    /// The conjugated transposes of matrices: for real numbers, the last two dimensions exchanged.
    ///
    /// # Errors
    /// `RuntimeError` for a 1-d tensor.
    ADJOINT adjoint(self) -> Tensor = "", METHOD | FUNCTION,
        C(|a| match a.tensor(0)?.rank() {
            0 => Ok(smallvec![a.tensor(0)?.clone()]),
            1 => bail!(runtime "adjoint", "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor."),
            _ => Ok(smallvec![a.tensor(0)?.transpose(-2, -1)?]),
        }),
        |s| vec![s.tensors(&[&[2, 3, 4]])];
    /// Dimensions `source` moved to the places `destination`; the others keep their order.
    ///
    /// # Errors
    /// `RuntimeError` if the lists differ in length or name a dimension twice; `IndexError` outside the range.
    MOVEDIM movedim(self, source: Ints, destination: Ints) -> Tensor = "", METHOD | FUNCTION,
        C(moved),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([0, 1][..].into()), Arg::Ints([-1, 0][..].into())]];
    /// The tensor without its dimensions of size 1.
    SQUEEZE squeeze(self) -> Tensor = "SqueezeBackward0", METHOD | FUNCTION | INPLACE,
        V(View {
            layouts: |input, _| Ok(smallvec![squeezed(input, |_| true)]),
            backward: reshape_back,
            multiple: false,
        }),
        |s| vec![s.tensors(&[&[1, 3, 1, 2]])];
    /// The tensor without dimension `dim`, if its size is 1.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    SQUEEZE_DIM squeeze_dim as "squeeze"(self, dim: Int) -> Tensor = "SqueezeBackward1", METHOD | FUNCTION | INPLACE,
        V(View { layouts: squeezed_at, backward: reshape_back, multiple: false }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 1, 3])), Arg::Int(-2)], smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(0)]];
    /// The tensor without those of the given dimensions whose size is 1.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there, `RuntimeError` for one named twice.
    SQUEEZE_DIMS squeeze_dims as "squeeze"(self, dim: Ints) -> Tensor = "SqueezeBackward2", METHOD | FUNCTION | INPLACE,
        V(View {
            layouts: |input, a| {
                let dims = a.ints(1)?;
                let wrapped = if dims.is_empty() { Dims::new() } else { wrap_dims("squeeze", dims, input.rank())? };
                Ok(smallvec![squeezed(input, |d| wrapped.contains(&d))])
            },
            backward: reshape_back,
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[1, 2, 1, 3])), Arg::Ints([0, 1, -2][..].into())]];
    /// `squeeze_(dim)` of a temporary that nobody else holds.
    SQUEEZE_TEMPORARY squeeze_temporary(self, dim: Int) -> Tensor = "SqueezeBackward4", 0,
        S(Structured {
            forward: |a| {
                let body = a.tensor(0)?.body();
                Ok(squeezed_at(&body.layout, a)?.into_iter().map(|layout| Tensor::from_body(body.with_layout(layout))).collect())
            },
            backward: Some(reshape_back),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 1, 3])), Arg::Int(-2)]];
    /// The tensor with a dimension of size 1 before dimension `dim`.
    ///
    /// # Errors
    /// `IndexError` outside `[-rank - 1, rank]`.
    UNSQUEEZE unsqueeze(self, dim: Int) -> Tensor = "UnsqueezeBackward0", METHOD | FUNCTION | INPLACE,
        V(View {
            layouts: |input, a| {
                let dim = wrap_dim("unsqueeze", a.int(1)?, input.rank() + 1)?;
                let mut layout = input.clone();
                let stride = if dim < input.rank() { input.sizes[dim] as isize * input.strides[dim] } else { 1 };
                layout.sizes.insert(dim, 1);
                layout.strides.insert(dim, stride);
                Ok(smallvec![layout])
            },
            backward: |c| Ok(smallvec![c.when(0, |g| g.squeeze_dim(wrap_dim("unsqueeze", c.int(1)?, c.sizes(0).len() + 1)? as i64))?]),
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(-1)], smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(0)]];
    /// The tensor repeated along dimensions of size 1, and along new ones in front, without copying; -1 keeps a size.
    ///
    /// # Errors
    /// `RuntimeError` if a size other than 1 would change.
    EXPAND expand(self, size: Ints) -> Tensor = "ExpandBackward0", METHOD,
        V(View {
            layouts: |input, a| Ok(smallvec![expanded(input, a.ints(1)?)?]),
            backward: |c| Ok(smallvec![c.when(0, |g| super::sum_to_size(g, c.sizes(0)))?]),
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 1])), Arg::Ints([2, -1, 4][..].into())]];
    /// [`expand`](Self::expand) to the shape of `other`.
    ///
    /// # Errors
    /// As `expand`.
    EXPAND_AS expand_as(self, other: Tensor) -> Tensor = "", METHOD,
        C(|a| Ok(smallvec![a.tensor(0)?.expand(&a.tensor(1)?.sizes())?])),
        |s| vec![s.tensors(&[&[3, 1], &[2, 3, 4]])];
    /// [`expand`](Self::expand), as a function.
    ///
    /// # Errors
    /// As `expand`.
    BROADCAST_TO broadcast_to(self, size: Ints) -> Tensor = "", METHOD | FUNCTION,
        C(|a| Ok(smallvec![a.tensor(0)?.expand(a.ints(1)?)?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 1])), Arg::Ints([2, 3, 4][..].into())]];
    /// The tensors expanded to the shape to which all of them broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if they do not broadcast.
    BROADCAST_TENSORS broadcast_tensors(tensors: VarTensors) -> Vec<Tensor> = "", FUNCTION,
        C(|a| {
            let tensors = a.tensors(0)?;
            let mut shape = Dims::new();
            for t in tensors {
                shape = broadcast("broadcast_tensors", &shape, &t.sizes())?;
            }
            tensors.iter().map(|t| if t.sizes() == shape { Ok(t.clone()) } else { t.expand(&shape) }).collect()
        }),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[3, 1]), s.t(&[2])])]];
    /// The sum over dimensions so that the tensor has `size`, to which it was or could have been expanded.
    ///
    /// # Errors
    /// `RuntimeError` if `size` does not broadcast to the tensor's.
    SUM_TO_SIZE sum_to_size(self, size: Ints) -> Tensor = "", METHOD,
        C(|a| {
            let (t, size) = (a.tensor(0)?, a.ints(1)?);
            let sizes: Dims = size.iter().map(|&s| s.max(0) as usize).collect();
            if size.iter().any(|&s| s < 0) || !expandable(&sizes, &t.sizes()) {
                bail!(runtime "sum_to_size", "size {{{size:?}}} is not expandable to size {{{:?}}}.", t.sizes());
            }
            // Without sizes left it is always a sum, with a sum's dtype.
            Ok(smallvec![if sizes.is_empty() { t.sum((), false)? } else { super::sum_to_size(t, &sizes)? }])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Ints([3, 1][..].into())]];
    /// The tensor itself if it has a dimension, else one of one element.
    ATLEAST_1D atleast_1d(self) -> Tensor = "", FUNCTION,
        C(|a| Ok(smallvec![with_rank(a.tensor(0)?, 1)?])),
        |s| vec![s.tensors(&[&[]])];
    /// [`atleast_1d`](Self::atleast_1d) of each tensor.
    ATLEAST_1D_EACH atleast_1d_each as "atleast_1d"(tensors: VarTensors) -> Vec<Tensor> = "", FUNCTION,
        C(|a| a.tensors(0)?.iter().map(|t| with_rank(t, 1)).collect()),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[]), s.t(&[2])])]];
    /// The tensor with dimensions of size 1 in front, so that there are at least two.
    ATLEAST_2D atleast_2d(self) -> Tensor = "", FUNCTION,
        C(|a| Ok(smallvec![with_rank(a.tensor(0)?, 2)?])),
        |s| vec![s.tensors(&[&[]]), s.tensors(&[&[2]])];
    /// [`atleast_2d`](Self::atleast_2d) of each tensor.
    ATLEAST_2D_EACH atleast_2d_each as "atleast_2d"(tensors: VarTensors) -> Vec<Tensor> = "", FUNCTION,
        C(|a| a.tensors(0)?.iter().map(|t| with_rank(t, 2)).collect()),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[]), s.t(&[2])])]];
    /// The tensor with dimensions of size 1, so that there are at least three: one before a vector and one behind it, one
    /// behind a matrix.
    ATLEAST_3D atleast_3d(self) -> Tensor = "", FUNCTION,
        C(|a| Ok(smallvec![with_rank(a.tensor(0)?, 3)?])),
        |s| vec![s.tensors(&[&[]]), s.tensors(&[&[2]]), s.tensors(&[&[2, 3]])];
    /// [`atleast_3d`](Self::atleast_3d) of each tensor.
    ATLEAST_3D_EACH atleast_3d_each as "atleast_3d"(tensors: VarTensors) -> Vec<Tensor> = "", FUNCTION,
        C(|a| a.tensors(0)?.iter().map(|t| with_rank(t, 3)).collect()),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[]), s.t(&[2])])]];
    /// The tensor itself if it lies row-major without gaps, or as `memory_format` asks; else a copy that does.
    ///
    /// # Errors
    /// `RuntimeError` if the tensor has not the rank that the memory format is for.
    CONTIGUOUS contiguous(self, memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| {
            let (t, format) = (a.tensor(0)?, a.str(1));
            if copy::is_formatted("contiguous", &t.body().layout, format)? {
                return Ok(smallvec![t.clone()]);
            }
            let format = if format.is_empty() { "contiguous_format" } else { format };
            Ok(smallvec![t.clone_in(format)?])
        });
}

impl Tensor {
    /// A row-major copy, differentiable.
    pub(crate) fn copy_contiguous(&self) -> Result<Tensor> {
        self.clone_in("contiguous_format")
    }

    /// A copy in a memory format, differentiable.
    fn clone_in(&self, format: &str) -> Result<Tensor> {
        super::apply::call_into(&copy::CLONE, smallvec![Arg::Tensor(self.clone()), Arg::Str(format.into())])
    }
}

/// Sizes with at most one -1, which stands for what is left of `n` elements.
pub(super) fn infer_sizes(op: &'static str, sizes: &[i64], n: usize) -> Result<Dims> {
    let shown = || sizes.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    if let Some((d, bad)) = sizes.iter().enumerate().find(|(_, s)| **s < -1) {
        bail!(runtime op, "invalid shape dimension {bad} at index {d} of shape [{}]", shown());
    }
    let unknown: Dims = (0..sizes.len()).filter(|&d| sizes[d] == -1).collect();
    let known = sizes.iter().filter(|s| **s >= 0).try_fold(1usize, |n, &s| n.checked_mul(s as usize));
    let mut out: Dims = sizes.iter().map(|&s| s.max(0) as usize).collect();
    match (&unknown[..], known) {
        ([], Some(known)) if known == n => Ok(out),
        (&[d], Some(known)) if known > 0 && n.is_multiple_of(known) => {
            out[d] = n / known;
            Ok(out)
        }
        ([_], Some(0)) if n == 0 => {
            bail!(runtime op, "cannot reshape tensor of 0 elements into shape [{}] because the unspecified dimension size -1 can be any value and is ambiguous", shown())
        }
        ([_, _, ..], _) => bail!(runtime op, "only one dimension can be inferred"),
        _ => bail!(runtime op, "shape '[{}]' is invalid for input of size {n}", shown()),
    }
}

/// The derivative of whatever only changes the shape.
fn reshape_back(c: &Context<'_>) -> Result<Grads> {
    Ok(smallvec![c.when(0, |g| g.reshape(c.sizes(0)))?])
}

/// The layout of `view`.
fn viewed(input: &Layout, a: &Args) -> Result<super::view::Layouts> {
    let sizes = infer_sizes("view", a.ints(1)?, input.numel())?;
    let Some(strides) = input.view_strides(&sizes) else {
        bail!(runtime "view", "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.\nview: from shape {:?} with strides {:?} to {sizes:?}", input.sizes, input.strides);
    };
    Ok(smallvec![Layout { sizes, strides, offset: input.offset }])
}

fn exchanged(input: &Layout, a: &Args) -> Result<super::view::Layouts> {
    let (x, y) = (wrap_dim("transpose", a.int(1)?, input.rank())?, wrap_dim("transpose", a.int(2)?, input.rank())?);
    let mut layout = input.clone();
    if input.rank() > 0 {
        layout.sizes.swap(x, y);
        layout.strides.swap(x, y);
    }
    Ok(smallvec![layout])
}

/// A layout without the dimensions of size 1 that `which` names.
fn squeezed(input: &Layout, which: impl Fn(usize) -> bool) -> Layout {
    let kept: Dims = (0..input.rank()).filter(|&d| input.sizes[d] != 1 || !which(d)).collect();
    input.permuted(&kept)
}

fn squeezed_at(input: &Layout, a: &Args) -> Result<super::view::Layouts> {
    let dim = wrap_dim("squeeze", a.int(1)?, input.rank())?;
    Ok(smallvec![squeezed(input, |d| d == dim)])
}

fn matrices_transposed(op: &'static str, t: &Tensor) -> Result<Tensor> {
    match t.rank() {
        0 => Ok(t.clone()),
        1 => bail!(runtime op, "tensor.{op} is only supported on matrices or batches of matrices. Got 1-D tensor."),
        _ => t.transpose(-2, -1),
    }
}

fn moved(a: &Args) -> Result<Outputs> {
    let op = "movedim";
    let (t, from, to) = (a.tensor(0)?, a.ints(1)?, a.ints(2)?);
    if from.len() != to.len() {
        bail!(runtime op, "movedim: Invalid source or destination dims: source ({from:?} dims) should contain the same number of dims as destination ({to:?} dims)");
    }
    let rank = t.rank();
    let wrapped = |dims: &[i64], which: &str| -> Result<Dims> {
        let mut out = Dims::new();
        for &d in dims {
            let d = wrap_dim(op, d, rank)?;
            if out.contains(&d) {
                bail!(runtime op, "movedim: repeated dim in `{which}` ({dims:?})");
            }
            out.push(d);
        }
        Ok(out)
    };
    let (from, to) = (wrapped(from, "source")?, wrapped(to, "destination")?);
    if rank == 0 {
        return Ok(smallvec![t.clone()]);
    }
    let mut rest = (0..rank).filter(|d| !from.contains(d));
    let order: Dims<i64> = (0..rank)
        .filter_map(|place| match to.iter().position(|&d| d == place) {
            Some(k) => Some(from[k] as i64),
            None => rest.next().map(|d| d as i64),
        })
        .collect();
    Ok(smallvec![t.permute(&order[..])?])
}

/// The tensor with dimensions of size 1 as `atleast_1d`, `atleast_2d` and `atleast_3d` add them.
pub(super) fn with_rank(t: &Tensor, rank: usize) -> Result<Tensor> {
    match (t.rank(), rank) {
        (0, n) => t.reshape(&Dims::filled(1usize, n)),
        (1, 2) => t.unsqueeze(0),
        (1, 3) => t.unsqueeze(0)?.unsqueeze(-1),
        (2, 3) => t.unsqueeze(-1),
        _ => Ok(t.clone()),
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
            (None, -1) => {
                bail!(runtime op, "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {d}")
            }
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
    checked_numel(op, &sizes)?;
    Ok(Layout { sizes, strides, offset: input.offset })
}
