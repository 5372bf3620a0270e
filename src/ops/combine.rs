//! Operations that make one tensor of several: joining along a dimension, stacking, blocks, grids.

use super::args::{Arg, Args, Read};
use super::copy;
use super::movement::with_rank;
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, OUT, Outputs, op};
use super::structured::{Context, Structured};
use crate::autograd::node::Grads;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::shape::{Dims, Layout, checked_numel, wrap_dim};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;

op! {
    /// The tensors joined along dimension `dim`, in which alone their sizes may differ. Dtypes promote. 1-d tensors without
    /// elements join anything.
    ///
    /// # Errors
    /// `ValueError` for no tensors, `RuntimeError` for shapes that do not fit or 0-d tensors, `IndexError` for a dimension
    /// that is not there.
    CAT cat(tensors: Tensors, dim: Int = 0) -> Tensor = "CatBackward0", FUNCTION | OUT,
        S(Structured { forward: cat_forward, backward: Some(cat_backward), saves: &[] }),
        |s| vec![
            smallvec![Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[2, 1])]), Arg::Int(1)],
            smallvec![Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[0]), s.t(&[1, 3])]), Arg::Int(-2)],
        ];
    /// The tensors, all of one shape, along a new dimension. Dtypes promote.
    ///
    /// # Errors
    /// `RuntimeError` for no tensors or shapes that differ, `IndexError` for a dimension that is not there.
    STACK stack(tensors: Tensors, dim: Int = 0) -> Tensor = "StackBackward0", FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let tensors = a.tensors(0)?;
                let Some(first) = tensors.first() else { bail!(runtime "stack", "stack expects a non-empty TensorList") };
                let sizes = first.sizes();
                let dim = wrap_dim("stack", a.int(1)?, sizes.len() + 1)?;
                if let Some((k, t)) = tensors.iter().enumerate().find(|(_, t)| t.sizes() != sizes) {
                    bail!(runtime "stack", "stack expects each tensor to be equal size, but got {sizes:?} at entry 0 and {:?} at entry {k}", t.sizes());
                }
                let mut whole = sizes;
                whole.insert(dim, tensors.len());
                let out = fresh("stack", whole, promoted(tensors))?;
                for (k, t) in tensors.iter().enumerate() {
                    let mut part = out.layout.clone();
                    part.sizes.remove(dim);
                    part.offset = k * part.strides.remove(dim) as usize;
                    copy::convert("stack", &t.body(), &out.with_layout(part))?;
                }
                Ok(smallvec![Tensor::from_body(out)])
            },
            backward: Some(|c| {
                let dim = wrap_dim("stack", c.int(1)?, c.sizes(0).len() + 1)? as i64;
                let part = |k: usize| c.when(k, |g| super::to_dtype(&g.select(dim, k as i64)?, c.dtype(k)));
                (0..c.edges()).map(part).collect()
            }),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[2, 3])]), Arg::Int(-2)]];
    /// The tensors side by side: joined along dimension 1, or 0 for vectors and numbers.
    ///
    /// # Errors
    /// `RuntimeError` for no tensors; else as [`cat`](Self::cat).
    HSTACK hstack(tensors: Tensors) -> Tensor = "", FUNCTION | OUT,
        C(|a| {
            let t = all_with_rank("hstack", a, 1)?;
            let dim = (t[0].rank() > 1) as i64;
            Ok(smallvec![Tensor::cat(t, dim)?])
        }),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[2, 1])])], smallvec![Arg::Tensors(vec![s.t(&[]), s.t(&[2])])]];
    /// The tensors one above the other: joined along dimension 0, vectors and numbers as rows.
    ///
    /// # Errors
    /// `RuntimeError` for no tensors; else as [`cat`](Self::cat).
    VSTACK vstack(tensors: Tensors) -> Tensor = "", FUNCTION | OUT,
        C(|a| Ok(smallvec![Tensor::cat(all_with_rank("vstack", a, 2)?, 0)?])),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[3])])]];
    /// The tensors one behind the other: joined along dimension 2.
    ///
    /// # Errors
    /// `RuntimeError` for no tensors; else as [`cat`](Self::cat).
    DSTACK dstack(tensors: Tensors) -> Tensor = "", FUNCTION | OUT,
        C(|a| Ok(smallvec![Tensor::cat(all_with_rank("dstack", a, 3)?, 2)?])),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[2, 3])])]];
    /// The tensors side by side, vectors and numbers as columns.
    ///
    /// # Errors
    /// `RuntimeError` for no tensors; else as [`cat`](Self::cat).
    COLUMN_STACK column_stack(tensors: Tensors) -> Tensor = "", FUNCTION | OUT,
        C(|a| {
            let tensors = a.tensors(0)?;
            if tensors.is_empty() {
                bail!(runtime "column_stack", "column_stack expects a non-empty TensorList");
            }
            let columns = tensors.iter().map(|t| if t.rank() <= 1 { t.reshape([t.numel(), 1]) } else { Ok(t.clone()) });
            Ok(smallvec![Tensor::cat(columns.collect::<Result<Vec<_>>>()?, 1)?])
        }),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[2]), s.t(&[2, 3])])]];
    /// A matrix of zeros with the tensors, as matrices, along its diagonal. Dtypes promote.
    ///
    /// # Errors
    /// `RuntimeError` for a tensor of more than two dimensions.
    BLOCK_DIAG block_diag(tensors: VarTensors) -> Tensor = "BlockDiagBackward0", FUNCTION,
        S(Structured {
            forward: |a| {
                let tensors = a.tensors(0)?;
                if let Some((k, t)) = tensors.iter().enumerate().find(|(_, t)| t.rank() > 2) {
                    bail!(runtime "block_diag", "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {k} has {} dimensions", t.rank());
                }
                if tensors.is_empty() {
                    return Ok(smallvec![super::zeros(&[1, 0], crate::tensor::default_dtype())?]);
                }
                let shapes: Vec<[usize; 2]> = tensors.iter().map(|t| block(&t.sizes())).collect();
                let (rows, columns) = shapes.iter().fold((0, 0), |(m, n), [r, c]| (m + r, n + c));
                let out = super::zeros(&[rows, columns], promoted(tensors))?.body();
                let mut at = (0, 0);
                for (t, &[r, c]) in tensors.iter().zip(&shapes) {
                    let from = t.body();
                    let matrix = match from.layout.view_strides(&[r, c]) {
                        Some(strides) => Layout { sizes: [r, c][..].into(), strides, offset: from.layout.offset },
                        None => bail!(runtime "block_diag", "internal error: a tensor of at most two dimensions is a matrix"),
                    };
                    let part = Layout { sizes: [r, c][..].into(), strides: out.layout.strides.clone(), offset: at.0 * columns + at.1 };
                    copy::convert("block_diag", &from.with_layout(matrix), &out.with_layout(part))?;
                    at = (at.0 + r, at.1 + c);
                }
                Ok(smallvec![Tensor::from_shared(out)])
            },
            backward: Some(|c| {
                let mut at = (0i64, 0i64);
                let mut grads = Grads::new();
                for k in 0..c.edges() {
                    let [r, n] = block(c.sizes(k)).map(|s| s as i64);
                    let (row, column) = at;
                    at = (row + r, column + n);
                    grads.push(c.when(k, |g| {
                        let part = g.slice(0, row, row + r, 1)?.slice(1, column, column + n, 1)?;
                        super::to_dtype(&part.reshape(c.sizes(k))?, c.dtype(k))
                    })?);
                }
                Ok(grads)
            }),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[]), s.t(&[2])])]];
    /// The coordinates of the grid that vectors span, one tensor for each. `indexing="ij"` (matrix order) gives shape
    /// `(n0, n1, ...)`, `"xy"` exchanges the first two dimensions.
    ///
    /// # Errors
    /// `RuntimeError` for no tensors, tensors of more than one dimension, dtypes that differ, or another `indexing`.
    MESHGRID meshgrid(tensors: VarTensors; indexing: OptStr = None) -> Vec<Tensor> = "", FUNCTION,
        C(|a| grid(a.tensors(0)?, a.str(1))),
        |s| vec![
            smallvec![Arg::Tensors(vec![s.t(&[2]), s.t(&[3])]), Arg::Str("ij".into())],
            smallvec![Arg::Tensors(vec![s.t(&[2]), s.t(&[3]), s.t(&[])]), Arg::Str("xy".into())],
        ];
    /// All combinations of one element of each vector, as rows.
    ///
    /// # Errors
    /// `RuntimeError` for no tensors, tensors that are not 1-d, or dtypes that differ.
    CARTESIAN_PROD cartesian_prod(tensors: VarTensors) -> Tensor = "", FUNCTION,
        C(|a| {
            let tensors = a.tensors(0)?;
            if let Some(t) = tensors.iter().find(|t| t.rank() != 1) {
                bail!(runtime "cartesian_prod", "Expect a 1D vector, but got shape {:?}", t.sizes());
            }
            if let [only] = tensors {
                return Ok(smallvec![only.clone()]);
            }
            let columns = grid(tensors, "ij")?.iter().map(|t| t.reshape([-1])).collect::<Result<Vec<_>>>()?;
            Ok(smallvec![Tensor::stack(columns, 1)?])
        }),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[2]), s.t(&[3])])]];
}

/// Row-major memory for a result.
pub(super) fn fresh(op: &'static str, sizes: Dims, dtype: DType) -> Result<Body> {
    let bytes = checked_numel(op, &sizes)?.saturating_mul(dtype.size());
    Ok(Body::new(Storage::uninit(op, bytes)?, Layout::contiguous(sizes), dtype))
}

fn promoted(tensors: &[Tensor]) -> DType {
    let mut dtypes = crate::dtype::Promotion::default();
    for t in tensors {
        dtypes.tensor(t.dtype(), t.rank());
    }
    dtypes.result(crate::tensor::default_dtype())
}

/// Whether PyTorch's oldest rule lets a tensor join anything: 1-d without elements.
fn joins_anything(sizes: &[usize]) -> bool {
    sizes == [0]
}

fn cat_forward(a: &Args) -> Result<Outputs> {
    let tensors = a.tensors(0)?;
    if tensors.is_empty() {
        bail!(value "cat", "torch.cat(): expected a non-empty list of Tensors");
    }
    if let Some(k) = tensors.iter().position(|t| t.rank() == 0) {
        bail!(runtime "cat", "zero-dimensional tensor (at position {k}) cannot be concatenated");
    }
    let dtype = promoted(tensors);
    let Some((model, first)) = tensors.iter().map(Tensor::sizes).enumerate().find(|(_, s)| !joins_anything(s)) else {
        wrap_dim("cat", a.int(1)?, 1)?;
        return Ok(smallvec![super::zeros(&[0], dtype)?]);
    };
    let dim = wrap_dim("cat", a.int(1)?, first.len())?;
    let mut whole = first.clone();
    for (k, t) in tensors.iter().enumerate().skip(model + 1) {
        let sizes = t.sizes();
        if joins_anything(&sizes) {
            continue;
        }
        if sizes.len() != first.len() {
            bail!(runtime "cat", "Tensors must have same number of dimensions: got {} and {}", first.len(), sizes.len());
        }
        if let Some(d) = (0..first.len()).find(|&d| d != dim && sizes[d] != first[d]) {
            bail!(runtime "cat", "Sizes of tensors must match except in dimension {dim}. Expected size {} but got size {} for tensor number {k} in the list.\ncat: shapes {first:?} and {sizes:?}", first[d], sizes[d]);
        }
        whole[dim] += sizes[dim];
    }
    let out = fresh("cat", whole, dtype)?;
    let mut at = 0;
    for t in tensors {
        let from = t.body();
        if joins_anything(&from.layout.sizes) {
            continue;
        }
        let offset = at * out.layout.strides[dim] as usize;
        at += from.layout.sizes[dim];
        if from.layout.numel() > 0 {
            let part = Layout { sizes: from.layout.sizes.clone(), strides: out.layout.strides.clone(), offset };
            copy::convert("cat", &from, &out.with_layout(part))?;
        }
    }
    Ok(smallvec![Tensor::from_body(out)])
}

fn cat_backward(c: &Context<'_>) -> Result<Grads> {
    let mut grads = Grads::new();
    let mut at = 0i64;
    for k in 0..c.edges() {
        let sizes = c.sizes(k);
        if joins_anything(sizes) {
            grads.push(c.when(k, |_| super::zeros(sizes, c.dtype(k)))?);
            continue;
        }
        let dim = wrap_dim("cat", c.int(1)?, sizes.len())?;
        let (start, end) = (at, at + sizes[dim] as i64);
        at = end;
        grads.push(c.when(k, |g| super::to_dtype(&g.slice(dim as i64, start, end, 1)?, c.dtype(k)))?);
    }
    Ok(grads)
}

fn all_with_rank(op: &'static str, a: &Args, rank: usize) -> Result<Vec<Tensor>> {
    let tensors = a.tensors(0)?;
    if tensors.is_empty() {
        bail!(runtime op, "{op} expects a non-empty TensorList");
    }
    tensors.iter().map(|t| with_rank(t, rank)).collect()
}

/// The rows and columns that a tensor takes in a block matrix.
fn block(sizes: &[usize]) -> [usize; 2] {
    match *sizes {
        [] => [1, 1],
        [n] => [1, n],
        [m, n, ..] => [m, n],
    }
}

fn grid(tensors: &[Tensor], indexing: &str) -> Result<Outputs> {
    let op = "meshgrid";
    let Some(first) = tensors.first() else { bail!(runtime op, "meshgrid expects a non-empty TensorList") };
    if let Some(t) = tensors.iter().find(|t| t.rank() > 1) {
        bail!(runtime op, "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: a tensor of shape {:?}", t.sizes());
    }
    if tensors.iter().any(|t| t.dtype() != first.dtype()) {
        bail!(runtime op, "meshgrid expects all tensors to have the same dtype");
    }
    let swap = match indexing {
        "" | "ij" => false,
        "xy" => tensors.len() > 1,
        other => bail!(runtime op, "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {other}"),
    };
    let place = |k: usize| if swap && k < 2 { 1 - k } else { k };
    let mut shape = Dims::filled(1usize, tensors.len());
    tensors.iter().enumerate().for_each(|(k, t)| shape[place(k)] = t.numel());
    let coordinates = tensors.iter().enumerate().map(|(k, t)| {
        let mut along = Dims::filled(1usize, tensors.len());
        along[place(k)] = t.numel();
        t.view(&along)?.expand(&shape)
    });
    coordinates.collect()
}
