//! Contractions made of matrix products: the operator `@` in all its ranks, affine maps, chains of matrices, products over
//! chosen dimensions; and the products that are only multiplications and sums.

use super::args::{Arg, Args, Read};
use super::matmul::FACTORS;
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, LINALG, METHOD, NN, OUT, Outputs, op};
use super::structured::Structured;
use crate::error::{Result, bail};
use crate::shape::{Dims, broadcast, wrap_dim};
use crate::tensor::Tensor;
use smallvec::smallvec;

op! {
    /// All products of an element of one vector and an element of another, `(m)` and `(n)` to `(m, n)`. Dtypes promote.
    ///
    /// # Errors
    /// `RuntimeError` for tensors that are not vectors.
    OUTER outer(self, vec2: Tensor) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(outer),
        |s| vec![s.tensors(&[&[2], &[3]])];
    /// Sums of products along the last dimensions of both tensors; a product if one is a number.
    ///
    /// # Errors
    /// `RuntimeError` if the last dimensions or the dtypes differ.
    INNER inner(self, other: Tensor) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| {
            let (x, y) = (a.tensor(0)?, a.tensor(1)?);
            if x.rank() == 0 || y.rank() == 0 {
                return Ok(smallvec![x.mul(y)?]);
            }
            if x.sizes().last() != y.sizes().last() {
                bail!(runtime "inner", "inner() the last dimension must match on both input tensors but got shapes {:?} and {:?}", x.sizes(), y.sizes());
            }
            Ok(smallvec![tensordot(x, y, &[-1], &[-1])?])
        }),
        |s| vec![s.tensors(&[&[2, 3], &[4, 3]]), s.tensors(&[&[3], &[3]])];
    /// The matrix product as the operator `@`: vectors are rows on the left and columns on the right and leave no dimension,
    /// leading dimensions are batches that broadcast.
    ///
    /// # Errors
    /// `RuntimeError` for 0-d tensors, shapes that do not fit, or dtypes that differ.
    MATMUL matmul(self, other: Tensor) -> Tensor = "", METHOD | FUNCTION | LINALG | OUT,
        C(|a| Ok(smallvec![matmul("matmul", a.tensor(0)?, a.tensor(1)?)?])),
        |s| vec![
            s.tensors(&[&[3], &[3]]),
            s.tensors(&[&[2, 3], &[3]]),
            s.tensors(&[&[3], &[3, 2]]),
            s.tensors(&[&[2, 2, 3], &[3, 2]]),
            s.tensors(&[&[2, 3], &[2, 3, 2]]),
            s.tensors(&[&[2, 1, 2, 3], &[2, 3, 2]]),
            s.tensors(&[&[3], &[2, 3, 2]]),
            s.tensors(&[&[2, 2, 3], &[3]]),
        ];
    /// An affine map of the last dimension: `input @ weight.T + bias`, with `weight` of shape `(out, in)` (or `(in)`, which
    /// leaves no dimension).
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit or dtypes that differ.
    LINEAR linear(self, weight: Tensor, bias: OptTensor = None) -> Tensor = "", NN,
        C(|a| {
            let (x, w) = (a.tensor(0)?, a.tensor(1)?);
            if x.rank() == 0 || w.rank() == 0 {
                bail!(runtime "linear", "both arguments to linear need to be at least 1D, but they are {}D and {}D", x.rank(), w.rank());
            }
            let Some(bias) = a.opt_tensor(2) else { return Ok(smallvec![matmul("linear", x, &w.t()?)?]) };
            if w.rank() == 1 {
                bail!(runtime "linear", "mat2 must be a matrix, got 1-D tensor");
            }
            if x.rank() == 2 {
                return Ok(smallvec![bias.addmm(x, w.t()?)?]);
            }
            let sizes = x.sizes();
            let features = sizes[sizes.len() - 1];
            if x.is_contiguous() && bias.rank() == 1 {
                let rows = sizes[..sizes.len() - 1].iter().product::<usize>();
                let flat = bias.addmm(x.view([rows, features])?, w.t()?)?;
                let mut whole = sizes;
                let last = whole.len() - 1;
                whole[last] = w.sizes()[0];
                return Ok(smallvec![flat.view(&whole)?]);
            }
            Ok(smallvec![matmul("linear", x, &w.t()?)?.add(bias)?])
        }),
        |s| vec![
            s.tensors(&[&[2, 3], &[4, 3], &[4]]),
            s.tensors(&[&[2, 2, 3], &[4, 3], &[4]]),
            smallvec![Arg::Tensor(s.t(&[3])), Arg::Tensor(s.t(&[2, 3])), Arg::None],
        ];
    /// `out[..., o] = sum_ij input1[..., i] weight[o, i, j] input2[..., j] + bias[o]`.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit or dtypes that differ.
    BILINEAR bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: OptTensor = None) -> Tensor = "", NN,
        C(bilinear),
        |s| vec![s.tensors(&[&[2, 3], &[2, 2], &[4, 3, 2], &[4]]), smallvec![Arg::Tensor(s.t(&[3])), Arg::Tensor(s.t(&[2])), Arg::Tensor(s.t(&[2, 3, 2])), Arg::None]];
    /// The product of several matrices, bracketed for the fewest multiplications (Cormen et al., Introduction to
    /// Algorithms, 15.2). The first and the last may be vectors.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two tensors, other ranks, shapes that do not fit, or dtypes that differ.
    MULTI_DOT multi_dot(tensors: Tensors) -> Tensor = "", LINALG | OUT,
        C(|a| Ok(smallvec![multi_dot(a.tensors(0)?)?])),
        |s| vec![
            smallvec![Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[3, 4]), s.t(&[4, 2])])],
            smallvec![Arg::Tensors(vec![s.t(&[3]), s.t(&[3, 4]), s.t(&[4])])],
        ];
    /// The product of several matrices; see [`multi_dot`](Self::multi_dot).
    ///
    /// # Errors
    /// `RuntimeError` for tensors that are not matrices; else as `multi_dot`.
    CHAIN_MATMUL chain_matmul(matrices: VarTensors) -> Tensor = "", FUNCTION,
        C(|a| {
            let matrices = a.tensors(0)?;
            if let Some(t) = matrices.iter().find(|t| t.rank() != 2) {
                bail!(runtime "chain_matmul", "Tensor dimension is {}, expected 2 instead.", t.rank());
            }
            Ok(smallvec![match matrices {
                [only] => only.clone(),
                _ => multi_dot(matrices)?,
            }])
        }),
        |s| vec![smallvec![Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[3, 4]), s.t(&[4, 2])])]];
    /// Sums of products over the last `dims` dimensions of one tensor and the first of another.
    ///
    /// # Errors
    /// `RuntimeError` for a bad number of dimensions, or sizes or dtypes that differ.
    TENSORDOT tensordot(self, other: Tensor, dims: Int = 2) -> Tensor = "", FUNCTION | OUT,
        C(|a| {
            let (x, y, n) = (a.tensor(0)?, a.tensor(1)?, a.int(2)?);
            if n < 0 {
                bail!(runtime "tensordot", "tensordot expects dims >= 0, but got dims={n}");
            }
            if n as usize > x.rank().min(y.rank()) {
                bail!(runtime "tensordot", "tensordot expects dims < ndim_a or ndim_b, but got dims={n}");
            }
            let (left, right): (Vec<i64>, Vec<i64>) = ((-n..0).collect(), (0..n).collect());
            Ok(smallvec![tensordot(x, y, &left, &right)?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[3, 4])), Arg::Int(1)]];
    /// Sums of products over pairs of dimensions: `dims` holds a list of those of one tensor and one of those of the other.
    ///
    /// # Errors
    /// `RuntimeError` for lists of different lengths, or sizes or dtypes that differ.
    TENSORDOT_DIMS tensordot_dims as "tensordot"(self, other: Tensor, dims: IntLists) -> Tensor = "", FUNCTION | OUT,
        C(|a| match a.int_lists(2)? {
            [left, right] => Ok(smallvec![tensordot(a.tensor(0)?, a.tensor(1)?, left, right)?]),
            lists => bail!(runtime "tensordot", "tensordot expects dims to be two lists, but got {}", lists.len()),
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Tensor(s.t(&[2, 2])), Arg::IntLists(vec![[0, 2][..].into(), [1, 0][..].into()])]];
    /// The Kronecker product: each element of the first tensor times the second.
    KRON kron(self, other: Tensor) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| {
            let (x, y) = (a.tensor(0)?, a.tensor(1)?);
            let rank = x.rank().max(y.rank());
            let padded = |t: &Tensor| -> Dims { std::iter::repeat_n(1, rank - t.rank()).chain(t.sizes().iter().copied()).collect() };
            let (p, q) = (padded(x), padded(y));
            let left: Dims = p.iter().flat_map(|&s| [s, 1]).collect();
            let right: Dims = q.iter().flat_map(|&s| [1, s]).collect();
            let whole: Dims = p.iter().zip(q.iter()).map(|(&s, &t)| s * t).collect();
            Ok(smallvec![x.reshape(&left)?.mul(y.reshape(&right)?)?.reshape(&whole)?])
        }),
        |s| vec![s.tensors(&[&[2, 3], &[2]])];
    /// The vector products of two batches of vectors of three elements along `dim`; the other dimensions broadcast.
    ///
    /// # Errors
    /// `RuntimeError` for different ranks or a dimension that has not three elements.
    LINALG_CROSS linalg_cross as "cross"(self, other: Tensor; dim: Int = -1) -> Tensor = "LinalgCrossBackward0", LINALG | OUT,
        S(Structured {
            forward: |a| {
                let (x, y) = (a.tensor(0)?, a.tensor(1)?);
                if x.rank() != y.rank() {
                    bail!(runtime "linalg.cross", "linalg.cross: inputs must have the same number of dimensions.");
                }
                let dim = wrap_dim("linalg.cross", a.int(2)?, x.rank())?;
                let lengths = (x.sizes().get(dim).copied().unwrap_or(1), y.sizes().get(dim).copied().unwrap_or(1));
                if lengths != (3, 3) {
                    bail!(runtime "linalg.cross", "linalg.cross: inputs dimension {} must have length 3. Got {} and {}", a.int(2)?, lengths.0, lengths.1);
                }
                let shifted = |t: &Tensor, by: i64| t.roll([-by], [dim]);
                let left = shifted(x, 1)?.mul(shifted(y, 2)?)?;
                Ok(smallvec![left.sub(shifted(x, 2)?.mul(shifted(y, 1)?)?)?])
            },
            backward: Some(|c| {
                // The triple product is the same for every cyclic order of its factors.
                let crossed = |x: &Tensor, y: &Tensor| -> Result<Tensor> {
                    super::apply::call_into(&LINALG_CROSS, smallvec![Arg::Tensor(x.clone()), Arg::Tensor(y.clone()), Arg::Int(c.int(2)?)])
                };
                let back = |k: usize, g: Tensor| super::to_dtype(&super::sum_to_size(&g, c.sizes(k))?, c.dtype(k));
                Ok(smallvec![
                    c.when(0, |g| back(0, crossed(&c.input(1)?.expand(&g.sizes())?, g)?))?,
                    c.when(1, |g| back(1, crossed(g, &c.input(0)?.expand(&g.sizes())?)?))?,
                ])
            }),
            saves: FACTORS,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[1, 3])), Arg::Int(-1)]];
    /// [`linalg_cross`](Self::linalg_cross) along the first dimension of three elements if `dim` is not given.
    ///
    /// # Errors
    /// `RuntimeError` if there is no such dimension; else as `linalg_cross`.
    CROSS cross(self, other: Tensor, dim: OptInt = None) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| {
            let (x, y) = (a.tensor(0)?, a.tensor(1)?);
            let dim = match a.opt_int(2) {
                Some(d) => d,
                None => match x.sizes().iter().position(|&s| s == 3) {
                    Some(d) => d as i64,
                    None => bail!(runtime "cross", "no dimension of size 3 in input"),
                },
            };
            Ok(smallvec![super::apply::call_into(&LINALG_CROSS, smallvec![Arg::Tensor(x.clone()), Arg::Tensor(y.clone()), Arg::Int(dim)])?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 2])), Arg::Tensor(s.t(&[3, 2])), Arg::None]];
    /// Sums of products along `dim`; the other dimensions broadcast.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not broadcast.
    VECDOT vecdot(self, other: Tensor; dim: Int = -1) -> Tensor = "", LINALG | OUT,
        C(|a| Ok(smallvec![a.tensor(0)?.mul(a.tensor(1)?)?.sum([a.int(2)?], false)?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[3])), Arg::Int(-1)]];
}

fn outer(a: &Args) -> Result<Outputs> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    for (name, v) in [("self", x), ("vec2", y)] {
        if v.rank() != 1 {
            bail!(runtime "outer", "outer: Expected 1-D argument {name}, but got {}-D", v.rank());
        }
    }
    Ok(smallvec![x.reshape([x.numel(), 1])?.mul(y)?])
}

/// Whether a tensor's leading dimensions can be seen as one without a copy.
fn folds(t: &Tensor) -> bool {
    let body = t.body();
    let sizes = &body.layout.sizes;
    let (last, lead) = (sizes[sizes.len() - 1], &sizes[..sizes.len() - 1]);
    body.layout.view_strides(&[lead.iter().product(), last]).is_some()
}

fn matmul(op: &'static str, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    match (x.rank(), y.rank()) {
        (0, _) | (_, 0) => {
            bail!(runtime op, "both arguments to {op} need to be at least 1D, but they are {}D and {}D", x.rank(), y.rank())
        }
        (1, 1) => x.dot(y),
        (2, 1) => x.mv(y),
        (1, 2) => x.unsqueeze(0)?.mm(y)?.squeeze_temporary(0),
        (2, 2) => x.mm(y),
        // Many rows times one matrix is one product of more rows. With a gradient of the one matrix that is also far less
        // work backward than a batch of products, whose gradients would have to be summed.
        (3.., 1 | 2) if y.requires_grad() || folds(x) => {
            let sizes = x.sizes();
            let (k, lead) = (sizes[sizes.len() - 1], &sizes[..sizes.len() - 1]);
            let rows = x.reshape([lead.iter().product(), k])?;
            let mut whole = Dims::from_slice(lead);
            if y.rank() == 1 {
                return rows.mv(y)?.unsafe_view(&whole);
            }
            whole.push(y.sizes()[1]);
            rows.mm(y)?.unsafe_view(&whole)
        }
        // The same from the other side, by way of transposes.
        (1 | 2, 3..) if x.requires_grad() => {
            let turned = y.transpose(-2, -1)?;
            if x.rank() == 1 {
                return matmul(op, &turned, x);
            }
            matmul(op, &turned, &x.t()?)?.transpose(-2, -1)?.contiguous(None)
        }
        _ => matmul_batches(op, x, y),
    }
}

fn matmul_batches(op: &'static str, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let left = if x.rank() == 1 { x.unsqueeze(0)? } else { x.clone() };
    let right = if y.rank() == 1 { y.unsqueeze(1)? } else { y.clone() };
    let (p, q) = (left.sizes(), right.sizes());
    let lead = broadcast(op, &p[..p.len() - 2], &q[..q.len() - 2])?;
    let batch: usize = lead.iter().product();
    let stacked = |t: &Tensor, rows: usize, columns: usize| {
        let wide: Dims = lead.iter().copied().chain([rows, columns]).collect();
        t.expand(&wide)?.reshape([batch, rows, columns])
    };
    let (m, n) = (p[p.len() - 2], q[q.len() - 1]);
    let out = stacked(&left, m, p[p.len() - 1])?.bmm(stacked(&right, q[q.len() - 2], n)?)?;
    let rows = (x.rank() > 1).then_some(m);
    let columns = (y.rank() > 1).then_some(n);
    out.unsafe_view(&lead.iter().copied().chain(rows).chain(columns).collect::<Dims>())
}

fn bilinear(a: &Args) -> Result<Outputs> {
    let (x, y, w) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    let (p, q, ws) = (x.sizes(), y.sizes(), w.sizes());
    if p.len() != q.len() {
        bail!(runtime "bilinear", "bilinear(): input dimensions do not match: got {} and {}", p.len(), q.len());
    }
    let &[outputs, left, right] = &ws[..] else {
        bail!(runtime "bilinear", "bilinear(): expected a weight of 3 dimensions, got shape {ws:?}");
    };
    let (Some((&i, lead)), Some((&j, lead2))) = (p.split_last(), q.split_last()) else {
        bail!(runtime "bilinear", "bilinear(): expected inputs of at least 1 dimension");
    };
    if let Some(d) = (0..lead.len()).find(|&d| lead[d] != lead2[d]) {
        bail!(runtime "bilinear", "bilinear(): input batch dimensions do not match at dim {d}: got {} and {}", lead[d], lead2[d]);
    }
    for (name, got, want) in [("input1", i, left), ("input2", j, right)] {
        if got != want {
            bail!(runtime "bilinear", "bilinear(): {name} size does not match weight size: got {got} but expected {want}");
        }
    }
    let bias = a.opt_tensor(3);
    if let Some(b) = bias.filter(|b| b.sizes()[..] != [outputs]) {
        bail!(runtime "bilinear", "bilinear(): bias size does not match weight size: got {} but expected {outputs}", b.numel());
    }
    let rows: usize = lead.iter().product();
    // The rows of the first input times the weight are matrices, one for each row of the second.
    let matrices =
        x.reshape([rows, i])?.mm(w.transpose(0, 1)?.reshape([i, outputs * j])?)?.reshape([rows, outputs, j])?;
    let out = matrices.bmm(y.reshape([rows, j, 1])?)?;
    let whole: Dims = lead.iter().copied().chain([outputs]).collect();
    let out = out.reshape(&whole)?;
    Ok(smallvec![match bias {
        Some(b) => out.add(b)?,
        None => out,
    }])
}

fn tensordot(x: &Tensor, y: &Tensor, left: &[i64], right: &[i64]) -> Result<Tensor> {
    let op = "tensordot";
    if left.len() != right.len() {
        bail!(runtime op, "both dimension lists should have same length");
    }
    if x.dtype() != y.dtype() {
        bail!(runtime op, "both inputs should have same dtype");
    }
    let (mut p, mut q) = (x.sizes(), y.sizes());
    let (mut summed, mut other, mut length) = (Dims::<usize>::new(), Dims::<usize>::new(), 1);
    let (mut x, mut y) = (x.clone(), y.clone());
    for (&l, &r) in left.iter().zip(right) {
        let (l, r) = (wrap_dim(op, l, p.len())?, wrap_dim(op, r, q.len())?);
        if summed.contains(&l) || other.contains(&r) {
            bail!(runtime op, "dim {} appears multiple times in the list of dims", if summed.contains(&l) { l } else { r });
        }
        match (p[l], q[r]) {
            (s, t) if s == t => length *= s,
            // A dimension of size 1 broadcasts against any other: the other is summed beforehand.
            (1, _) => {
                y = y.sum([r], true)?;
                q[r] = 1;
            }
            (_, 1) => {
                x = x.sum([l], true)?;
                p[l] = 1;
            }
            (s, t) => {
                bail!(runtime op, "contracted dimensions need to match, but first has size {s} in dim {l} and second has size {t} in dim {r}")
            }
        }
        summed.push(l);
        other.push(r);
    }
    let (kept_left, kept_right): (Dims, Dims) =
        ((0..p.len()).filter(|d| !summed.contains(d)).collect(), (0..q.len()).filter(|d| !other.contains(d)).collect());
    let sizes: Dims = kept_left.iter().map(|&d| p[d]).chain(kept_right.iter().map(|&d| q[d])).collect();
    let order_left: Dims = kept_left.iter().chain(summed.iter()).copied().collect();
    let order_right: Dims = other.iter().chain(kept_right.iter()).copied().collect();
    let (m, n): (usize, usize) =
        (kept_left.iter().map(|&d| p[d]).product(), kept_right.iter().map(|&d| q[d]).product());
    let (x, y) = (x.permute(&order_left[..])?, y.permute(&order_right[..])?);
    if kept_left.is_empty() && kept_right.is_empty() {
        return x.reshape([length])?.dot(y.reshape([length])?)?.view(&sizes);
    }
    x.reshape([m, length])?.mm(y.reshape([length, n])?)?.view(&sizes)
}

fn multi_dot(tensors: &[Tensor]) -> Result<Tensor> {
    let op = "multi_dot";
    let n = tensors.len();
    if n < 2 {
        bail!(runtime op, "multi_dot(): expected at least 2 tensors but got {n}");
    }
    for (k, t) in tensors.iter().enumerate() {
        let place = match k {
            0 => "the first tensor",
            _ if k == n - 1 => "the last tensor",
            _ if t.rank() != 2 => bail!(runtime op, "multi_dot(): tensor {k} must be 2D but got {}D", t.rank()),
            _ => continue,
        };
        if t.rank() == 0 || t.rank() > 2 {
            bail!(runtime op, "multi_dot(): {place} must be 1D or 2D but got {}D", t.rank());
        }
    }
    if let Some(k) = (1..n).find(|&k| tensors[k].dtype() != tensors[0].dtype()) {
        bail!(runtime op, "multi_dot(): all tensors must have be the same dtype but tensor 0 is {} and tensor {k} {}", tensors[0].dtype().c_name(), tensors[k].dtype().c_name());
    }
    let mut matrices = tensors.to_vec();
    let mut sizes = Dims::<usize>::new();
    if matrices[0].rank() == 1 {
        matrices[0] = matrices[0].unsqueeze(0)?;
    } else {
        sizes.push(matrices[0].sizes()[0]);
    }
    if matrices[n - 1].rank() == 1 {
        matrices[n - 1] = matrices[n - 1].unsqueeze(1)?;
    } else {
        sizes.push(matrices[n - 1].sizes()[1]);
    }
    for k in 1..n {
        let (p, q) = (matrices[k - 1].sizes(), matrices[k].sizes());
        if p[1] != q[0] {
            bail!(runtime op, "multi_dot(): tensors {} and {k} with shapes {:?} and {:?} cannot be multiplied", k - 1, tensors[k - 1].sizes(), tensors[k].sizes());
        }
    }
    if n == 2 {
        return matrices[0].mm(&matrices[1])?.view(&sizes);
    }
    // cost[i][j]: multiplications of the product i..=j at best, cut[i][j]: where it is cut.
    let edges: Vec<f64> = std::iter::once(matrices[0].sizes()[0])
        .chain(matrices.iter().map(|m| m.sizes()[1]))
        .map(|s| s as f64)
        .collect();
    let (mut cost, mut cut) = (vec![vec![0.0f64; n]; n], vec![vec![0usize; n]; n]);
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            let price = |k: usize| cost[i][k] + cost[k + 1][j] + edges[i] * edges[k + 1] * edges[j + 1];
            // Among equals, the cut that leaves one matrix on the right.
            let best = (i..j).rev().min_by(|&p, &q| price(p).total_cmp(&price(q))).unwrap_or(i);
            (cost[i][j], cut[i][j]) = (price(best), best);
        }
    }
    bracketed(&matrices, &cut, 0, n - 1)?.view(&sizes)
}

/// The product of matrices `i..=j`, cut as planned.
fn bracketed(matrices: &[Tensor], cut: &[Vec<usize>], i: usize, j: usize) -> Result<Tensor> {
    if i == j {
        return Ok(matrices[i].clone());
    }
    let k = cut[i][j];
    bracketed(matrices, cut, i, k)?.mm(bracketed(matrices, cut, k + 1, j)?)
}
