//! Rows that look vectors up in a table: embedding, its gradient, and bags of embeddings.

use super::address::{fresh, int64, ints, through};
use super::apply;
use super::args::{Arg, Args, Read};
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, NN, Outputs, op};
use super::structured::{Save, Structured};
use crate::autograd::no_grad;
use crate::backend::cpu::index::{self, Along};
use crate::backend::cpu::search;
use crate::dtype::DType;
use crate::error::{Error, Result, bail};
use crate::shape::{Dims, Layout, Strides};
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;
use std::sync::Arc;

const OP: &str = "embedding";

/// The indices of a lookup as int64.
fn lookup_indices(t: &Tensor) -> Result<Arc<Body>> {
    int64(OP, t, |d| {
        Error::runtime(
            OP,
            format!(
                "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.{}Tensor instead (while checking arguments for embedding)",
                d.legacy()
            ),
        )
    })
}

#[cold]
fn out_of_range(index: i64, rows: usize) -> Error {
    Error::index(OP, format!("index out of range in self\nembedding: index {index}, the table has {rows} rows"))
}

fn embedding_forward(a: &Args) -> Result<Outputs> {
    let (weight, index) = (a.tensor(0)?.body(), lookup_indices(a.tensor(1)?)?);
    let [rows, width] = weight.layout.sizes[..] else { bail!(runtime OP, "'weight' must be 2-D") };
    let mut sizes = index.layout.sizes.clone();
    sizes.push(width);
    let mut from = Strides::filled(0, sizes.len());
    from[sizes.len() - 1] = weight.layout.strides[1];
    let mut by = index.layout.strides.clone();
    by.push(0);
    let from = Layout { sizes: sizes.clone(), strides: from, offset: weight.layout.offset };
    let by = Layout { sizes: sizes.clone(), strides: by, offset: index.layout.offset };
    let out = fresh(OP, &sizes, weight.dtype)?;
    let along = Along { stride: weight.layout.strides[0], size: rows, wrap: false };
    index::gather(&out.operand(), &through(&weight, &from), &through(&index, &by), along)
        .map_err(|i| out_of_range(i, rows))?;
    Ok(smallvec![Tensor::from_body(out)])
}

/// By what each looked-up vector's gradient is multiplied: 0 at the padding, one over the frequency if asked for; `None` if
/// by 1 throughout. The shape is that of the indices with a last dimension of size 1.
fn weights(index: &Tensor, rows: usize, padding: i64, by_frequency: bool, dtype: DType) -> Result<Option<Tensor>> {
    if padding < 0 && !by_frequency {
        return Ok(None);
    }
    let values: Vec<i64> = super::to_dtype(index, DType::I64)?.to_vec()?;
    let mut counts = vec![0usize; if by_frequency { rows } else { 0 }];
    for &v in values.iter().filter(|_| by_frequency) {
        match usize::try_from(v).ok().and_then(|v| counts.get_mut(v)) {
            Some(c) => *c += 1,
            None => return Err(out_of_range(v, rows)),
        }
    }
    let factor = |v: &i64| match (*v == padding, by_frequency) {
        (true, _) => 0.0,
        (false, true) => 1.0 / counts[*v as usize] as f64,
        (false, false) => 1.0,
    };
    let mut sizes = index.sizes();
    sizes.push(1);
    let factors: Vec<f64> = values.iter().map(factor).collect();
    Ok(Some(super::to_dtype(&Tensor::from_slice(&factors, &sizes)?, dtype)?))
}

fn embedding_backward(a: &Args) -> Result<Outputs> {
    let (grad, index, rows) = (a.tensor(0)?, a.tensor(1)?, a.int(2)? as usize);
    let width = grad.sizes().last().copied().unwrap_or(0);
    let n = index.numel();
    let flat = index.reshape([n as i64])?;
    let weighed = match weights(index, rows, -1, a.bool(4), grad.dtype())? {
        Some(w) => grad.mul(&w)?,
        None => grad.clone(),
    };
    let out = super::zeros(&[rows, width], grad.dtype())?.index_add(0, flat, weighed.reshape(ints(&[n, width]))?)?;
    let padding = a.int(3)?;
    if padding >= 0 && (padding as usize) < rows {
        let row = out.select(0, padding)?;
        super::factory::fill(&row.body(), 0.into())?;
    }
    Ok(smallvec![out])
}

/// `padding_idx` counted from the end if negative; -1 for none.
fn padding(given: Option<i64>, rows: usize) -> Result<i64> {
    let Some(p) = given else { return Ok(-1) };
    let n = rows as i64;
    if p < -n || p >= n {
        bail!(runtime OP, "Padding_idx must be within num_embeddings\nembedding: padding_idx is {p}, the table has {n} rows");
    }
    Ok(if p < 0 { p + n } else { p })
}

/// Shortens the rows of a table that are about to be looked up to a norm of at most `limit`, in place and unrecorded.
fn shorten(weight: &Tensor, index: &Tensor, limit: f64, norm: f64) -> Result<()> {
    let (body, index) = (weight.body(), super::contiguous(OP, &*lookup_indices(index)?)?);
    if body.layout.rank() != 2 {
        bail!(runtime OP, "'weight' must be 2-D");
    }
    super::inplace::check(OP, weight, false)?;
    search::renorm_rows(&body.operand(), &index.operand(), limit, norm)
        .map_err(|i| out_of_range(i, body.layout.sizes[0]))?;
    body.bump_version();
    Ok(())
}

op! {
    /// Rows of a table by index, in the shape of the indices with the width of the table behind it. The row `padding_idx`
    /// gets no gradient; with `scale_grad_by_freq` a row's gradient is divided by how often it was looked up.
    ///
    /// # Errors
    /// `IndexError` for an index out of range, `RuntimeError` for a table that is no matrix or indices of other dtypes
    /// than int64 and int32.
    EMBEDDING embedding(weight: Tensor, indices: Index, padding_idx: Int = -1, scale_grad_by_freq: Bool = false, sparse: Bool = false) -> Tensor = "EmbeddingBackward0", FUNCTION,
        S(Structured {
            forward: embedding_forward,
            backward: Some(|c| {
                Ok(smallvec![c.when(0, |g| g.embedding_dense_backward(c.index(1)?, c.sizes(0)[0] as i64, c.int(2)?, c.bool(3)))?])
            }),
            saves: &[Save::Index(1)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[4, 3])), Arg::Tensor(s.ints(&[2, 5], 0, 4)), Arg::Int(-1), Arg::Bool(false), Arg::Bool(false)],
            smallvec![Arg::Tensor(s.t(&[4, 3])), Arg::Tensor(s.ints(&[], 0, 4)), Arg::Int(-1), Arg::Bool(false), Arg::Bool(false)],
        ];
    /// The gradient of a table from that of the rows looked up: each is added to its row, in order, in float32 for half
    /// types.
    ///
    /// # Errors
    /// `IndexError` for an index out of range.
    EMBEDDING_DENSE_BACKWARD embedding_dense_backward(self, indices: Index, num_weights: Int, padding_idx: Int, scale_grad_by_freq: Bool) -> Tensor = "EmbeddingDenseBackwardBackward0", 0,
        S(Structured {
            forward: embedding_backward,
            backward: Some(|c| {
                Ok(smallvec![c.when(0, |g| {
                    let index = c.index(1)?;
                    let rows = Tensor::embedding(g, &index, -1, false, false)?;
                    match weights(&index, c.int(2)? as usize, c.int(3)?, c.bool(4), g.dtype())? {
                        Some(w) => rows.mul(&w),
                        None => Ok(rows),
                    }
                })?])
            }),
            saves: &[Save::Index(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 5, 3])), Arg::Tensor(s.ints(&[2, 5], 0, 4)), Arg::Int(4), Arg::Int(2), Arg::Bool(true)]];
    /// Rows of a table by index: [`embedding`](Tensor::embedding) with the arguments in `nn.functional`'s order. With
    /// `max_norm`, the rows looked up are first shortened, in place, to that `norm_type`-norm.
    ///
    /// # Errors
    /// As `embedding`; `RuntimeError` for a `padding_idx` outside the table.
    EMBEDDING_LOOKUP embedding_lookup as "embedding" (input: Index, weight: Tensor, padding_idx: OptInt = None, max_norm: OptFloat = None, norm_type: Float = 2.0, scale_grad_by_freq: Bool = false, sparse: Bool = false) -> Tensor = "", NN,
        C(|a| {
            let (index, weight) = (a.tensor(0)?, a.tensor(1)?);
            let padding = padding(a.opt_int(2), weight.sizes().first().copied().unwrap_or(0))?;
            if let Some(limit) = a.opt_number(3) {
                no_grad(|| shorten(weight, index, limit.to_f64(), a.float(4)?))?;
            }
            let args: Args = smallvec![Arg::Tensor(weight.clone()), Arg::Tensor(index.clone()), Arg::Int(padding), Arg::Bool(a.bool(5)), Arg::Bool(false)];
            apply::call(&EMBEDDING, &args)
        }),
        |s| vec![smallvec![Arg::Tensor(s.ints(&[2, 3], 0, 4)), Arg::Tensor(s.t(&[4, 3])), Arg::None, Arg::None, Arg::Float(2.0), Arg::Bool(false), Arg::Bool(false)]];
    /// Sums, means or maxima (`mode`) of bags of rows of a table. A bag is a row of `input`, or, if that is a vector, what
    /// lies between two `offsets` (the last of which is an end if `include_last_offset`). `per_sample_weights` multiply the
    /// rows of a sum. Rows `padding_idx` do not count. An empty bag gives zeros.
    ///
    /// # Errors
    /// As [`embedding`](Tensor::embedding); `RuntimeError` or `ValueError` for arguments that do not go together.
    EMBEDDING_BAG embedding_bag(input: Index, weight: Tensor, offsets: OptTensor = None, max_norm: OptFloat = None, norm_type: Float = 2.0, scale_grad_by_freq: Bool = false, mode: Str = "mean", sparse: Bool = false, per_sample_weights: OptTensor = None, include_last_offset: Bool = false, padding_idx: OptInt = None) -> Tensor = "", NN,
        C(embedding_bag),
        |s| {
            let bag = |s: &mut super::samples::Sampler, mode: &str, weights: Arg| -> Args {
                smallvec![
                    Arg::Tensor(s.ints(&[2, 3], 0, 4)), Arg::Tensor(s.t(&[4, 3])), Arg::None, Arg::None, Arg::Float(2.0),
                    Arg::Bool(false), Arg::Str(mode.into()), Arg::Bool(false), weights, Arg::Bool(false), Arg::Int(1),
                ]
            };
            let w = Arg::Tensor(s.t(&[2, 3]));
            vec![bag(s, "sum", w), bag(s, "mean", Arg::None), bag(s, "max", Arg::None)]
        };
}

/// For each entry of the flat indices its bag, and the number of bags.
fn bags(input: &Tensor, offsets: Option<&Tensor>, include_last: bool) -> Result<(Vec<i64>, usize)> {
    let op = "embedding_bag";
    let sizes = input.sizes();
    let n = input.numel();
    match (&sizes[..], offsets) {
        ([rows, columns], None) => Ok(((0..n).map(|i| (i / columns.max(&1)) as i64).collect(), *rows)),
        ([_, _], Some(_)) => {
            bail!(value op, "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. However, found offsets of type <class 'torch.Tensor'>")
        }
        ([_], None) => bail!(value op, "offsets has to be a 1D Tensor but got None"),
        ([_], Some(o)) => {
            if o.rank() != 1 {
                bail!(value op, "offsets has to be a 1D Tensor");
            }
            let o: Vec<i64> = super::to_dtype(o, DType::I64)?.to_vec()?;
            if o.first().is_some_and(|&first| first != 0) {
                bail!(runtime op, "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {}", o[0]);
            }
            if let Some(&bad) = o.iter().find(|&&x| x < 0 || x > n as i64) {
                bail!(runtime op, "offsets[-1] can not be greater than input's length({n}) but got offsets[-1] of {bad}");
            }
            let count = o.len() - (include_last && !o.is_empty()) as usize;
            let mut bag = vec![0i64; n];
            for (b, &start) in o[..count].iter().enumerate() {
                let end = o.get(b + 1).map_or(n, |&e| e as usize);
                bag[(start as usize).min(end)..end].fill(b as i64);
            }
            Ok((bag, count))
        }
        _ => bail!(value op, "input has to be 1D or 2D Tensor, but got Tensor of dimension {}", sizes.len()),
    }
}

fn embedding_bag(a: &Args) -> Result<Outputs> {
    let op = "embedding_bag";
    let (input, weight, mode, per_sample) = (a.tensor(0)?, a.tensor(1)?, a.str(6), a.opt_tensor(8));
    if !["sum", "mean", "max"].contains(&mode) {
        bail!(value op, "mode has to be one of sum, mean or max");
    }
    if per_sample.is_some() && mode != "sum" {
        bail!(not_implemented op, "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode='{mode}'). Please open a feature request on GitHub.");
    }
    if let Some(w) = per_sample
        && w.sizes() != input.sizes()
    {
        bail!(value op, "embedding_bag: If per_sample_weights ({:?}) is not None, then it must have the same shape as the input ({:?})", w.sizes(), input.sizes());
    }
    let [rows, width] = weight.sizes()[..] else { bail!(runtime op, "'weight' must be 2-D") };
    let padding = padding(a.opt_int(10), rows)?;
    if let Some(limit) = a.opt_number(3) {
        no_grad(|| shorten(weight, input, limit.to_f64(), a.float(4)?))?;
    }
    let (bag, count) = bags(input, a.opt_tensor(2), a.bool(9))?;
    let flat: Vec<i64> = super::to_dtype(input, DType::I64)?.to_vec()?;
    let kept: Vec<usize> = (0..flat.len()).filter(|&i| padding < 0 || flat[i] != padding).collect();
    let vector = |f: &dyn Fn(usize) -> i64| {
        let values: Vec<i64> = kept.iter().map(|&i| f(i)).collect();
        Tensor::from_slice(&values, &[values.len()])
    };
    let (index, to) = (vector(&|i| flat[i])?, vector(&|i| bag[i])?);
    let found = Tensor::embedding(weight, &index, -1, a.bool(5), false)?;
    let empty = super::zeros(&[count, width], weight.dtype())?;
    if mode == "max" {
        return largest(&empty, &found, &to, weight, &index);
    }
    let found = match per_sample {
        None => found,
        Some(w) => {
            let w = w.reshape([-1i64])?.index_select(0, vector(&|i| i as i64)?)?;
            found.mul(&w.view([kept.len() as i64, 1])?)?
        }
    };
    let sums = empty.index_add(0, &to, &found)?;
    if mode == "sum" {
        return Ok(smallvec![sums]);
    }
    let mut members = vec![0f64; count];
    kept.iter().for_each(|&i| members[bag[i] as usize] += 1.0);
    members.iter_mut().for_each(|m| *m = m.max(1.0));
    let members = super::to_dtype(&Tensor::from_slice(&members, &[count, 1])?, weight.dtype())?;
    Ok(smallvec![sums.true_divide(&members)?])
}

/// The largest element of each column of each bag, which alone gets the gradient; of equal ones the first.
fn largest(empty: &Tensor, found: &Tensor, bag: &Tensor, weight: &Tensor, index: &Tensor) -> Result<Outputs> {
    let (bag, rows): (Vec<i64>, Vec<i64>) = (bag.to_vec()?, index.to_vec()?);
    let values: Vec<f64> = super::to_dtype(&found.detach(), DType::F64)?.to_vec()?;
    let (count, width) = (empty.sizes()[0], empty.sizes()[1]);
    let mut best: Vec<Option<(f64, i64)>> = vec![None; count * width];
    for (i, &b) in bag.iter().enumerate() {
        for j in 0..width {
            let (v, slot) = (values[i * width + j], &mut best[b as usize * width + j]);
            if slot.is_none_or(|(m, _)| v > m || (v.is_nan() && !m.is_nan())) {
                *slot = Some((v, rows[i]));
            }
        }
    }
    let filled: Vec<i64> = (0..count).filter(|&b| bag.contains(&(b as i64))).map(|b| b as i64).collect();
    let origin: Vec<i64> = filled
        .iter()
        .flat_map(|&b| (0..width).map(move |j| b as usize * width + j))
        .filter_map(|k| best[k].map(|(_, r)| r))
        .collect();
    let sizes: Dims = [filled.len(), width][..].into();
    let part = weight.gather(0, Tensor::from_slice(&origin, &sizes)?)?;
    Ok(smallvec![empty.index_copy(0, Tensor::from_slice(&filled, &[filled.len()])?, part)?])
}
