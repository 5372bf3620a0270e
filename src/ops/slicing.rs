//! Parts of a tensor that are views of it: one index of a dimension, pieces, diagonals, sliding windows; with the operations
//! that put a gradient back in its place. Ranges are in `index_view`.

use super::args::{Arg, Args, Read};
use super::copy;
use super::index_view::sliced;
use super::op::Rule::{Composite as C, Structured as S, View as V};
use super::op::{FUNCTION, LINALG, METHOD, Outputs, op};
use super::pieces::{VIEW, split_at, split_at_checked, split_equally, split_evenly};
use super::structured::{Context, Structured};
use super::view::{Layouts, View};
use crate::autograd::node::Grads;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::shape::{Dims, Layout, wrap_dim};
use crate::storage::affordable;
use crate::tensor::Tensor;
use smallvec::smallvec;

op! {
    /// The slice at `index` of a dimension, which goes.
    ///
    /// # Errors
    /// `IndexError` for an index or a dimension outside the range, and for a 0-d tensor.
    SELECT select(self, dim: Int, index: Int) -> Tensor = "SelectBackward0", METHOD | FUNCTION,
        V(View {
            layouts: |input, a| Ok(smallvec![selected(input, a.int(1)?, a.int(2)?)?]),
            backward: |c| Ok(smallvec![c.when(0, |g| g.select_backward(c.sizes(0), c.int(1)?, c.int(2)?))?]),
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Int(1), Arg::Int(-2)]];
    /// Zeros of `size` with `input` at `index` of a dimension: the transpose of `select`.
    SELECT_BACKWARD select_backward(self, size: Ints, dim: Int, index: Int) -> Tensor = "SelectBackwardBackward0", 0,
        S(Structured {
            forward: |a| placed("select_backward", a, |whole| selected(whole, a.int(2)?, a.int(3)?)),
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.select(c.int(2)?, c.int(3)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3])), Arg::Ints([3, 4][..].into()), Arg::Int(1), Arg::Int(2)]];
    /// `length` elements of a dimension from `start`, which may be a 0-d tensor of an integer.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d tensor or a range that is not there, `IndexError` for a start outside the dimension.
    NARROW narrow(self, dim: Int, start: Operand, length: Int) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let (t, length) = (a.tensor(0)?, a.int(3)?);
            let start = match a.arg(2) {
                Arg::Tensor(s) if s.rank() != 0 || s.dtype().is_float() || s.dtype() == DType::Bool => {
                    bail!(runtime "narrow", "start must be an 0-dim integral Tensor.")
                }
                Arg::Tensor(s) => s.item()?.to_i64(),
                _ => a.int(2)?,
            };
            if t.rank() == 0 {
                bail!(runtime "narrow", "narrow() cannot be applied to a 0-dim tensor.");
            }
            if length < 0 {
                bail!(runtime "narrow", "narrow(): length must be non-negative.");
            }
            let dim = wrap_dim("narrow", a.int(1)?, t.rank())?;
            let n = t.sizes()[dim] as i64;
            if start < -n || start > n {
                bail!(index "narrow", "start out of range (expected to be in range of [{}, {n}], but got {start})", -n);
            }
            let start = if start < 0 { start + n } else { start };
            if length > n - start {
                bail!(runtime "narrow", "start ({start}) + length ({length}) exceeds dimension size ({n}).");
            }
            Ok(smallvec![t.slice(dim as i64, start, start + length, 1)?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[5, 3])), Arg::Int(0), Arg::Int(1), Arg::Int(3)]];
    /// The slices of a dimension, which goes.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there.
    UNBIND unbind(self, dim: Int = 0) -> Vec<Tensor> = "UnbindBackward0", METHOD | FUNCTION,
        V(View {
            layouts: |input, a| {
                if input.rank() == 0 {
                    bail!(index "unbind", "Dimension specified as {} but tensor has no dimensions", a.int(1)?);
                }
                let dim = wrap_dim("unbind", a.int(1)?, input.rank())?;
                affordable("unbind", input.sizes[dim], VIEW)?;
                (0..input.sizes[dim]).map(|k| selected(input, dim as i64, k as i64)).collect()
            },
            backward: |c| {
                let dim = wrap_dim("unbind", c.int(1)?, c.sizes(0).len())?;
                let mut piece = Dims::from_slice(c.sizes(0));
                let n = piece.remove(dim);
                if !c.needs(0) {
                    return Ok(smallvec![None]);
                }
                let pieces = (0..n).map(|k| gradient_or_zeros(c, k, &piece)).collect::<Result<Vec<_>>>()?;
                Ok(smallvec![Some(Tensor::stack(pieces, dim as i64)?)])
            },
            multiple: true,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(1)]];
    /// Pieces of `split_size` elements of a dimension; the last may be shorter.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d tensor or a bad size; `IndexError` for a dimension that is not there.
    SPLIT split(self, split_size: Int, dim: Int = 0) -> Vec<Tensor> = "SplitBackward0", METHOD | FUNCTION,
        V(View {
            layouts: |input, a| {
                let dim = piece_dim("split", input.rank(), a.int(2)?)?;
                pieces(input, dim, &even_lengths(input.sizes[dim], a.int(1)?)?)
            },
            backward: |c| {
                let dim = wrap_dim("split", c.int(2)?, c.sizes(0).len())?;
                joined(c, dim, &even_lengths(c.sizes(0)[dim], c.int(1)?)?)
            },
            multiple: true,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 5])), Arg::Int(2), Arg::Int(-1)]];
    /// Pieces of the given sizes of a dimension.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d tensor or sizes that do not add up; `IndexError` for a dimension that is not there.
    SPLIT_WITH_SIZES split_with_sizes(self, split_sizes: Ints, dim: Int = 0) -> Vec<Tensor> = "SplitWithSizesBackward0", METHOD | FUNCTION,
        V(View {
            layouts: |input, a| {
                let dim = piece_dim("split", input.rank(), a.int(2)?)?;
                pieces(input, dim, &given_lengths(input.sizes[dim], dim, a.ints(1)?)?)
            },
            backward: |c| {
                let dim = wrap_dim("split", c.int(2)?, c.sizes(0).len())?;
                joined(c, dim, &given_lengths(c.sizes(0)[dim], dim, c.ints(1)?)?)
            },
            multiple: true,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 5])), Arg::Ints([1, 0, 4][..].into()), Arg::Int(-1)]];
    /// [`split_with_sizes`](Self::split_with_sizes): `split` with a list.
    ///
    /// # Errors
    /// As `split_with_sizes`.
    SPLIT_LIST split_list as "split"(self, split_size: Ints, dim: Int = 0) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| Ok(a.tensor(0)?.split_with_sizes(a.ints(1)?, a.int(2)?)?.into())),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 5])), Arg::Ints([2, 3][..].into()), Arg::Int(1)]];
    /// At most `chunks` pieces of a dimension, of one size but for the last.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d tensor or a count that is not positive; `IndexError` for a dimension that is not there.
    CHUNK chunk(self, chunks: Int, dim: Int = 0) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| {
            let (t, chunks) = (a.tensor(0)?, a.int(1)?);
            if t.rank() == 0 {
                bail!(runtime "chunk", "chunk expects at least a 1-dimensional tensor");
            }
            if chunks <= 0 {
                bail!(runtime "chunk", "chunk expects `chunks` to be greater than 0, got: {chunks}");
            }
            let dim = wrap_dim("chunk", a.int(2)?, t.rank())?;
            let n = t.sizes()[dim] as i64;
            if n == 0 {
                // No size divides nothing into `chunks` pieces, so their lengths are given one by one.
                affordable("chunk", chunks as usize, VIEW)?;
                return Ok(t.split_with_sizes(&vec![0i64; chunks as usize][..], dim as i64)?.into());
            }
            Ok(t.split((n + chunks - 1) / chunks, dim as i64)?.into())
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[5, 2])), Arg::Int(3), Arg::Int(0)]];
    /// [`tensor_split`](Self::tensor_split) by an int64 tensor: 0-d for a count, 1-d for indices.
    ///
    /// # Errors
    /// `RuntimeError` for another shape or dtype.
    TENSOR_SPLIT_BY tensor_split_by as "tensor_split"(self, tensor_indices_or_sections: Tensor, dim: Int = 0) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| {
            let (t, by) = (a.tensor(0)?, a.tensor(1)?);
            if by.dtype() != DType::I64 {
                bail!(runtime "tensor_split", "tensor_split expected tensor_indices_or_sections to have dtype of long, but got {}", by.dtype().legacy());
            }
            match by.rank() {
                0 => split_evenly("tensor_split", t, by.item()?.to_i64(), a.int(2)?),
                1 => split_at("tensor_split", t, &by.to_vec::<i64>()?, a.int(2)?),
                n => bail!(runtime "tensor_split", "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but got a tensor with {n} dims"),
            }
        });
    /// Pieces of a dimension, as many as asked for, which differ in size by at most one.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d tensor or a count that is not positive; `IndexError` for a dimension that is not there.
    TENSOR_SPLIT tensor_split(self, sections: Int, dim: Int = 0) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| split_evenly("tensor_split", a.tensor(0)?, a.int(1)?, a.int(2)?)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[5, 2])), Arg::Int(3), Arg::Int(0)]];
    /// The pieces of a dimension between the given indices.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d tensor; `IndexError` for a dimension that is not there.
    TENSOR_SPLIT_AT tensor_split_at as "tensor_split"(self, indices: Ints, dim: Int = 0) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| split_at("tensor_split", a.tensor(0)?, a.ints(1)?, a.int(2)?)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[5, 2])), Arg::Ints([1, 3, 3][..].into()), Arg::Int(0)]];
    /// [`tensor_split`](Self::tensor_split) into equal pieces along dimension 1, or 0 of a vector.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d tensor or a size that does not divide.
    HSPLIT hsplit(self, sections: Int) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| split_equally("hsplit", a.tensor(0)?, a.int(1)?, (a.tensor(0)?.rank() > 1) as usize)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(2)]];
    /// The pieces between the given indices along dimension 1, or 0 of a vector.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d tensor.
    HSPLIT_AT hsplit_at as "hsplit"(self, indices: Ints) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| split_at_checked("hsplit", a.tensor(0)?, a.ints(1)?, (a.tensor(0)?.rank() > 1) as usize)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Ints([1][..].into())]];
    /// [`tensor_split`](Self::tensor_split) into equal pieces along dimension 0.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two dimensions or a size that does not divide.
    VSPLIT vsplit(self, sections: Int) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| split_equally("vsplit", a.tensor(0)?, a.int(1)?, 0)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[4, 2])), Arg::Int(2)]];
    /// The pieces between the given indices along dimension 0.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two dimensions.
    VSPLIT_AT vsplit_at as "vsplit"(self, indices: Ints) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| split_at_checked("vsplit", a.tensor(0)?, a.ints(1)?, 0)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[4, 2])), Arg::Ints([1][..].into())]];
    /// [`tensor_split`](Self::tensor_split) into equal pieces along dimension 2.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than three dimensions or a size that does not divide.
    DSPLIT dsplit(self, sections: Int) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| split_equally("dsplit", a.tensor(0)?, a.int(1)?, 2)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[1, 2, 4])), Arg::Int(2)]];
    /// The pieces between the given indices along dimension 2.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than three dimensions.
    DSPLIT_AT dsplit_at as "dsplit"(self, indices: Ints) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| split_at_checked("dsplit", a.tensor(0)?, a.ints(1)?, 2)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[1, 2, 4])), Arg::Ints([1][..].into())]];
    /// A diagonal of two dimensions, `offset` places above the main one, as the last dimension.
    ///
    /// # Errors
    /// `RuntimeError` if both dimensions are one; `IndexError` for a dimension that is not there.
    DIAGONAL diagonal(self, offset: Int = 0, dim1: Int = 0, dim2: Int = 1) -> Tensor = "DiagonalBackward0", METHOD | FUNCTION,
        V(View {
            layouts: |input, a| Ok(smallvec![on_diagonal(input, &a[1..])?]),
            backward: diagonal_back,
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 2, 4])), Arg::Int(1), Arg::Int(0), Arg::Int(-1)]];
    /// A copy of a diagonal; see [`diagonal`](Self::diagonal).
    ///
    /// # Errors
    /// As `diagonal`.
    DIAGONAL_COPY diagonal_copy(self, offset: Int = 0, dim1: Int = 0, dim2: Int = 1) -> Tensor = "DiagonalBackward0_copy", FUNCTION,
        S(Structured {
            forward: |a| {
                let body = a.tensor(0)?.body();
                let part = body.with_layout(on_diagonal(&body.layout, &a[1..])?);
                Ok(smallvec![Tensor::from_shared(copy::contiguous("diagonal_copy", &part)?)])
            },
            backward: Some(diagonal_back),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Int(1), Arg::Int(-1), Arg::Int(0)]];
    /// [`diagonal`](Self::diagonal) of the last two dimensions.
    ///
    /// # Errors
    /// As `diagonal`.
    LINALG_DIAGONAL matrix_diagonal as "diagonal"(self; offset: Int = 0, dim1: Int = -2, dim2: Int = -1) -> Tensor = "", LINALG,
        C(|a| Ok(smallvec![a.tensor(0)?.diagonal(a.int(1)?, a.int(2)?, a.int(3)?)?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 3])), Arg::Int(0), Arg::Int(-2), Arg::Int(-1)]];
    /// Zeros of `size` with `input` on a diagonal: the transpose of `diagonal`.
    DIAGONAL_BACKWARD diagonal_backward(self, size: Ints, offset: Int, dim1: Int, dim2: Int) -> Tensor = "DiagonalBackwardBackward0", 0,
        S(Structured {
            forward: |a| placed("diagonal_backward", a, |whole| on_diagonal(whole, &a[2..])),
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.diagonal(c.int(2)?, c.int(3)?, c.int(4)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Ints([3, 2, 4][..].into()), Arg::Int(1), Arg::Int(0), Arg::Int(2)]];
    /// Zeros with the last dimension of `input` on a diagonal of two new dimensions, `offset` places above the main one.
    ///
    /// # Errors
    /// `RuntimeError` if both dimensions are one; `IndexError` for a dimension that is not there.
    DIAG_EMBED diag_embed(self, offset: Int = 0, dim1: Int = -2, dim2: Int = -1) -> Tensor = "DiagEmbedBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let (t, offset) = (a.tensor(0)?, a.int(1)?);
                let (rank, mut sizes) = (t.rank() + 1, t.sizes());
                let (x, y) = two_dims("diag_embed", a.int(2)?, a.int(3)?, rank)?;
                let n = sizes.remove(rank - 2).saturating_add(offset.unsigned_abs() as usize);
                sizes.insert(x.min(y), n);
                sizes.insert(x.max(y), n);
                let whole = super::zeros(&sizes, t.dtype())?.body();
                let part = on_diagonal(&whole.layout, &[Arg::Int(offset), Arg::Int(x as i64), Arg::Int(y as i64)])?;
                copy::convert("diag_embed", &t.body(), &whole.with_layout(part))?;
                Ok(smallvec![Tensor::from_shared(whole)])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.diagonal(c.int(1)?, c.int(2)?, c.int(3)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(-1), Arg::Int(0), Arg::Int(-1)]];
    /// A copy of the tensor with `src` in place of `select(dim, index)`.
    ///
    /// # Errors
    /// `RuntimeError` if `src` has another shape; else as [`select`](Self::select).
    SELECT_SCATTER select_scatter(self, src: Tensor, dim: Int, index: Int) -> Tensor = "SelectScatterBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| replaced("select_scatter", a, |whole| selected(whole, a.int(2)?, a.int(3)?)),
            backward: Some(|c| replaced_back(
                c,
                |g, zeros| g.select_scatter(zeros, c.int(2)?, c.int(3)?),
                |g| g.select(c.int(2)?, c.int(3)?),
            )),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(s.t(&[3])), Arg::Int(1), Arg::Int(-2)]];
    /// A copy of the tensor with `src` in place of a range of a dimension.
    ///
    /// # Errors
    /// `RuntimeError` if `src` has another shape; else as [`slice`](Self::slice).
    SLICE_SCATTER slice_scatter(self, src: Tensor, dim: Int = 0, start: OptInt = None, end: OptInt = None, step: Int = 1) -> Tensor = "SliceScatterBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| replaced("slice_scatter", a, |whole| sliced(whole, a.int(2)?, a.opt_int(3), a.opt_int(4), a.int(5)?)),
            backward: Some(|c| replaced_back(
                c,
                |g, zeros| g.slice_scatter(zeros, c.int(2)?, c.opt_int(3), c.opt_int(4), c.int(5)?),
                |g| g.slice(c.int(2)?, c.opt_int(3), c.opt_int(4), c.int(5)?),
            )),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[5, 2])), Arg::Tensor(s.t(&[2, 2])), Arg::Int(0), Arg::Int(1), Arg::None, Arg::Int(2)]];
    /// A copy of the tensor with `src` in place of a diagonal.
    ///
    /// # Errors
    /// `RuntimeError` if `src` has another shape; else as [`diagonal`](Self::diagonal).
    DIAGONAL_SCATTER diagonal_scatter(self, src: Tensor, offset: Int = 0, dim1: Int = 0, dim2: Int = 1) -> Tensor = "DiagonalScatterBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| replaced("diagonal_scatter", a, |whole| on_diagonal(whole, &a[2..])),
            backward: Some(|c| replaced_back(
                c,
                |g, zeros| g.diagonal_scatter(zeros, c.int(2)?, c.int(3)?, c.int(4)?),
                |g| g.diagonal(c.int(2)?, c.int(3)?, c.int(4)?),
            )),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 4])), Arg::Tensor(s.t(&[3])), Arg::Int(1), Arg::Int(0), Arg::Int(-1)]];
    /// A vector as the diagonal of a matrix of zeros, or a copy of the diagonal of a matrix.
    ///
    /// # Errors
    /// `RuntimeError` for other ranks.
    DIAG diag(self, diagonal: Int = 0) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let (t, k) = (a.tensor(0)?, a.int(1)?);
            match t.rank() {
                1 => Ok(smallvec![t.diag_embed(k, 0, 1)?]),
                2 => Ok(smallvec![t.diagonal_copy(k, 0, 1)?]),
                n => bail!(runtime "diag", "diag(): Supports 1D or 2D tensors. Got {n}D"),
            }
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3])), Arg::Int(1)], smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(-1)]];
    /// All elements on a diagonal of a matrix of zeros.
    DIAGFLAT diagflat(self, offset: Int = 0) -> Tensor = "", METHOD | FUNCTION,
        C(|a| Ok(smallvec![a.tensor(0)?.contiguous(None)?.view([-1])?.diag(a.int(1)?)?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 2])), Arg::Int(-1)]];
    /// Windows of `size` elements of a dimension, `step` apart: the dimension counts the windows, a new last one holds each.
    ///
    /// # Errors
    /// `RuntimeError` if a window does not fit or the step is not positive; `IndexError` for a dimension that is not there.
    UNFOLD unfold(self, dimension: Int, size: Int, step: Int) -> Tensor = "UnfoldBackward0", METHOD,
        V(View {
            layouts: |input, a| Ok(smallvec![windows(input, a.int(1)?, a.int(2)?, a.int(3)?)?]),
            backward: |c| Ok(smallvec![c.when(0, |g| g.unfold_backward(c.sizes(0), c.int(1)?, c.int(2)?, c.int(3)?))?]),
            multiple: false,
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 7])), Arg::Int(-1), Arg::Int(3), Arg::Int(2)],
            smallvec![Arg::Tensor(s.t(&[5, 2])), Arg::Int(0), Arg::Int(2), Arg::Int(3)],
        ];
    /// Zeros of `size` with windows added where they lie: the transpose of `unfold`.
    UNFOLD_BACKWARD unfold_backward(self, size: Ints, dim: Int, window: Int, step: Int) -> Tensor = "UnfoldBackwardBackward0", 0,
        S(Structured {
            forward: |a| {
                let (grad, sizes) = (a.tensor(0)?, a.ints(1)?);
                let (window, step) = (a.int(3)?, a.int(4)?);
                let dim = wrap_dim("unfold", a.int(2)?, sizes.len())? as i64;
                let whole = super::zeros(&sizes.iter().map(|&s| s as usize).collect::<Dims>(), grad.dtype())?;
                if sizes.is_empty() {
                    // The windows of a number are one of one element, or empty ones.
                    return Ok(smallvec![if window == 0 { whole } else { grad.reshape(&Dims::<usize>::new())? }]);
                }
                // Windows `lap` steps apart do not meet, so each of these groups is added at once.
                let lap = (window + step - 1) / step.max(1);
                let n = grad.sizes()[dim as usize] as i64;
                for first in 0..lap.min(n) {
                    let body = whole.body();
                    let mut layout = windows(&body.layout, dim, window, step)?;
                    layout = sliced(&layout, dim, Some(first), None, lap)?;
                    let part = Tensor::from_body(body.with_layout(layout));
                    super::add_assign(&part, &grad.slice(dim, first, None, lap)?)?;
                }
                Ok(smallvec![whole])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.unfold(c.int(2)?, c.int(3)?, c.int(4)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 3])), Arg::Ints([2, 7][..].into()), Arg::Int(1), Arg::Int(3), Arg::Int(2)]];
}

/// Zeros of the sizes in argument 1 with argument 0 in a part of them.
fn placed(op: &'static str, a: &Args, part: impl FnOnce(&Layout) -> Result<Layout>) -> Result<Outputs> {
    let grad = a.tensor(0)?;
    let sizes: Dims = a.ints(1)?.iter().map(|&s| s as usize).collect();
    let whole = super::zeros(&sizes, grad.dtype())?;
    let body = whole.body();
    copy::convert(op, &grad.body(), &body.with_layout(part(&body.layout)?))?;
    Ok(smallvec![whole])
}

/// A copy of argument 0 with argument 1 in a part of it.
fn replaced(op: &'static str, a: &Args, part: impl FnOnce(&Layout) -> Result<Layout>) -> Result<Outputs> {
    let (whole, src) = (copy::contiguous(op, &a.tensor(0)?.body())?, a.tensor(1)?.body());
    let part = part(&whole.layout)?;
    if part.sizes != src.layout.sizes {
        bail!(runtime op, "expected src to have a size equal to the slice of self. src size = {:?}, slice size = {:?}", src.layout.sizes, part.sizes);
    }
    copy::convert(op, &src, &whole.with_layout(part))?;
    Ok(smallvec![Tensor::from_shared(whole)])
}

/// The gradients of [`replaced`]: that of the tensor is zero in the part, where that of `src` is.
fn replaced_back(
    c: &Context<'_>,
    without: impl FnOnce(&Tensor, Tensor) -> Result<Tensor>,
    part: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Grads> {
    let whole = c.when(0, |g| without(g, super::zeros(c.sizes(1), g.dtype())?))?;
    Ok(smallvec![whole, c.when(1, |g| super::to_dtype(&part(g)?, c.dtype(1)))?])
}

fn selected(input: &Layout, dim: i64, index: i64) -> Result<Layout> {
    if input.rank() == 0 {
        bail!(index "select", "select() cannot be applied to a 0-dim tensor.");
    }
    let dim = wrap_dim("select", dim, input.rank())?;
    let n = input.sizes[dim] as i64;
    if index < -n || index >= n {
        bail!(index "select", "select(): index {index} out of range for tensor of size {:?} at dimension {dim}", input.sizes);
    }
    let mut layout = input.clone();
    layout.sizes.remove(dim);
    let stride = layout.strides.remove(dim);
    layout.offset = (layout.offset as isize + (if index < 0 { index + n } else { index }) as isize * stride) as usize;
    Ok(layout)
}

fn two_dims(op: &'static str, dim1: i64, dim2: i64, rank: usize) -> Result<(usize, usize)> {
    let (x, y) = (wrap_dim(op, dim1, rank)?, wrap_dim(op, dim2, rank)?);
    if x == y {
        bail!(runtime op, "diagonal dimensions cannot be identical {dim1}, {dim2}");
    }
    Ok((x, y))
}

/// The layout of a diagonal, from its arguments `offset`, `dim1`, `dim2`.
fn on_diagonal(input: &Layout, a: &[Arg]) -> Result<Layout> {
    let offset = a.int(0)?;
    let (x, y) = two_dims("diagonal", a.int(1)?, a.int(2)?, input.rank())?;
    let (below, right) = ((-offset).max(0) as usize, offset.max(0) as usize);
    let n = input.sizes[x].saturating_sub(below).min(input.sizes[y].saturating_sub(right));
    let mut layout = input.clone();
    if n > 0 {
        let shift = below as isize * input.strides[x] + right as isize * input.strides[y];
        layout.offset = (layout.offset as isize + shift) as usize;
    }
    for d in [x.max(y), x.min(y)] {
        layout.sizes.remove(d);
        layout.strides.remove(d);
    }
    layout.sizes.push(n);
    layout.strides.push(input.strides[x] + input.strides[y]);
    Ok(layout)
}

fn windows(input: &Layout, dim: i64, size: i64, step: i64) -> Result<Layout> {
    let dim = wrap_dim("unfold", dim, input.rank())?;
    let (n, stride) = if input.rank() == 0 { (1, 1) } else { (input.sizes[dim] as i64, input.strides[dim]) };
    if size < 0 {
        bail!(runtime "unfold", "size is {size} but must be >= 0");
    }
    if size > n {
        bail!(runtime "unfold", "maximum size for tensor at dimension {dim} is {n} but size is {size}");
    }
    if step <= 0 {
        bail!(runtime "unfold", "step is {step} but must be > 0");
    }
    let mut layout = input.clone();
    if input.rank() > 0 {
        layout.sizes[dim] = ((n - size) / step + 1) as usize;
        layout.strides[dim] = stride.saturating_mul(step as isize);
    }
    layout.sizes.push(size as usize);
    layout.strides.push(stride);
    Ok(layout)
}

/// The gradient of result `k`, or zeros that take no memory.
fn gradient_or_zeros(c: &Context<'_>, k: usize, sizes: &[usize]) -> Result<Tensor> {
    match c.grad(k) {
        Some(g) => Ok(g),
        None => super::zeros(&[], c.dtype(0))?.expand(sizes),
    }
}

pub(super) fn piece_dim(op: &'static str, rank: usize, dim: i64) -> Result<usize> {
    if rank == 0 {
        bail!(runtime op, "{op} expects at least a 1-dimensional tensor");
    }
    wrap_dim(op, dim, rank)
}

pub(super) fn even_lengths(n: usize, size: i64) -> Result<Vec<usize>> {
    if size < 0 {
        bail!(runtime "split", "split expects split_size be non-negative, but got split_size={size}");
    }
    if size == 0 && n > 0 {
        bail!(runtime "split", "split_size can only be 0 if dimension size is 0, but got dimension size of {n}");
    }
    let size = size as usize;
    if n == 0 {
        return Ok(vec![0]);
    }
    affordable("split", n.div_ceil(size), VIEW)?;
    Ok((0..n).step_by(size).map(|at| size.min(n - at)).collect())
}

pub(super) fn given_lengths(n: usize, dim: usize, sizes: &[i64]) -> Result<Vec<usize>> {
    if sizes.iter().any(|&s| s < 0) {
        bail!(runtime "split_with_sizes", "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={sizes:?}");
    }
    let lengths: Vec<usize> = sizes.iter().map(|&s| s as usize).collect();
    if lengths.iter().try_fold(0usize, |sum, &s| sum.checked_add(s)) != Some(n) {
        bail!(runtime "split_with_sizes", "split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {dim}), but got split_sizes={sizes:?}");
    }
    Ok(lengths)
}

pub(super) fn pieces(input: &Layout, dim: usize, lengths: &[usize]) -> Result<Layouts> {
    let mut at = 0;
    let piece = |&n: &usize| {
        let (start, end) = (at as i64, (at + n) as i64);
        at += n;
        sliced(input, dim as i64, Some(start), Some(end), 1)
    };
    lengths.iter().map(piece).collect()
}

/// The gradients of pieces, put together.
pub(super) fn joined(c: &Context<'_>, dim: usize, lengths: &[usize]) -> Result<Grads> {
    if !c.needs(0) {
        return Ok(smallvec![None]);
    }
    let mut sizes = Dims::from_slice(c.sizes(0));
    let mut parts = Vec::with_capacity(lengths.len());
    for (k, &n) in lengths.iter().enumerate() {
        sizes[dim] = n;
        parts.push(gradient_or_zeros(c, k, &sizes)?);
    }
    Ok(smallvec![Some(Tensor::cat(parts, dim as i64)?)])
}

fn diagonal_back(c: &Context<'_>) -> Result<Grads> {
    Ok(smallvec![c.when(0, |g| g.diagonal_backward(c.sizes(0), c.int(1)?, c.int(2)?, c.int(3)?))?])
}
