//! Norms of vectors and matrices, and distances.

use super::args::{Arg, Args, Read};
use super::formula::Elementwise;
use super::op::Rule::{Composite as C, Elementwise as E, Structured as S};
use super::op::{FUNCTION, LINALG, METHOD, NN, OUT, Outputs, op};
use super::reduce::{PerType, align, aligned, dims, finish, ints, run};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::backend::Reduce;
use crate::dtype::{Compute, DType};
use crate::error::{Result, bail};
use crate::program::Sym;
use crate::scalar::Scalar;
use crate::shape::{Dims, wrap_dim};
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;

const VECTOR: &str = "linalg.vector_norm";
const MATRIX: &str = "linalg.matrix_norm";

/// A number in a message, as PyTorch prints it.
fn shown(p: f64) -> String {
    if p.is_infinite() { if p > 0.0 { "inf".into() } else { "-inf".into() } } else { p.to_string() }
}

/// The norm of order `p`, aligned.
fn norm(t: &Tensor, p: f64, dims: &[usize], named: Option<&[i64]>, dtype: Option<DType>) -> Result<Body> {
    static NONZERO: PerType = PerType::new();
    static ABS: PerType = PerType::new();
    static SQUARES: PerType = PerType::new();
    static WIDE_SQUARES: PerType = PerType::new();
    static POWERS: PerType = PerType::new();
    static ROOT: PerType = PerType::new();
    static SQRT: PerType = PerType::new();
    static WIDE_SQRT: PerType = PerType::new();
    let op = VECTOR;
    if !t.dtype().is_float() {
        bail!(runtime op, "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}", t.dtype().legacy());
    }
    let t = match dtype {
        Some(to) if !to.is_float() => {
            bail!(runtime op, "linalg.vector_norm: dtype should be floating point or complex. Got {}", to.legacy())
        }
        Some(to) if t.dtype().promote(to) != to => {
            bail!(runtime op, "linalg.vector_norm: the dtype of the input ({}) should be convertible without narrowing to the specified dtype ({})", t.dtype().legacy(), to.legacy())
        }
        Some(to) => super::to_dtype(t, to)?,
        None => t.clone(),
    };
    let x = t.body();
    let sizes = &x.layout.sizes;
    if p < 0.0 || p == f64::INFINITY {
        if named.is_none() && t.numel() == 0 {
            bail!(runtime op, "linalg.vector_norm cannot compute the {} norm on an empty tensor because the operation does not have an identity", shown(p));
        }
        let wrap = |d: i64| if d < 0 { d + sizes.len() as i64 } else { d } as usize;
        if let Some(d) = named.unwrap_or(&[]).iter().find(|&&d| sizes.get(wrap(d)) == Some(&0)) {
            bail!(runtime op, "linalg.vector_norm cannot compute the {} norm on the dimension {d}because this dimension is empty and the operation does not have an identity", shown(p));
        }
    }
    let ty = x.dtype.compute();
    let to = aligned(sizes, dims);
    let plain =
        |program, scalars: &[Scalar], dtype, how| run(op, program, sizes, &[&x], scalars, (to.clone(), dtype), how);
    if p == 0.0 {
        let nonzero =
            NONZERO.get(ty, &[ty], &[], |x, _| Sym::select(x[0].eq(x[0].zero()), x[0].zero(), x[0].literal(1.0)));
        return plain(nonzero, &[], x.dtype, Reduce::Sum);
    }
    let abs = ABS.get(ty, &[ty], &[], |x, _| x[0].abs());
    if p == f64::INFINITY {
        return plain(abs, &[], x.dtype, Reduce::Max);
    } else if p == f64::NEG_INFINITY {
        return plain(abs, &[], x.dtype, Reduce::Min);
    } else if p == 1.0 {
        return plain(abs, &[], x.dtype, Reduce::Sum);
    }
    let finish = |program, from: &Body, scalars: &[Scalar]| {
        run(op, program, &to, &[from], scalars, (to.clone(), x.dtype), Reduce::Sum)
    };
    if p == 2.0 {
        let squares = SQUARES.get(ty, &[ty], &[], |x, _| x[0].square());
        let sum = plain(squares, &[], ty.dtype(), Reduce::Sum)?;
        if ty == Compute::F64 || in_range(&sum)? {
            return finish(SQRT.get(ty, &[ty], &[], |x, _| x[0].sqrt()), &sum, &[]);
        }
        // Some sum of squares left the range of float32, or nearly so: once more with room.
        let squares = WIDE_SQUARES.get(ty, &[ty], &[], |x, _| x[0].cast(Compute::F64).square());
        let sum = plain(squares, &[], DType::F64, Reduce::Sum)?;
        return finish(WIDE_SQRT.get(ty, &[Compute::F64], &[], |x, _| x[0].sqrt().cast(Compute::F32)), &sum, &[]);
    }
    let powers = POWERS.get(ty, &[ty], &[ty], |x, s| x[0].abs().pow(s[0]));
    let sum = plain(powers, &[Scalar::Float(p)], ty.dtype(), Reduce::Sum)?;
    finish(ROOT.get(ty, &[ty], &[ty], |x, s| x[0].pow(s[0])), &sum, &[Scalar::Float(1.0 / p)])
}

/// Whether float32 sums of squares are all far from overflow and underflow.
fn in_range(sum: &Body) -> Result<bool> {
    if sum.layout.numel() == 0 {
        return Ok(true);
    }
    let bound = |how| super::reduce::total(VECTOR, sum, DType::F32, how)?.item();
    let (low, high) = (bound(Reduce::Min)?.to_f64(), bound(Reduce::Max)?.to_f64());
    Ok(low > 1e-30 && high < 1e37 || high.is_nan())
}

/// The gradient of a norm for `x`, from that of the (aligned) `norm`.
fn norm_backward(g: &Tensor, x: &Tensor, norm: &Tensor, p: f64, dims: &[usize]) -> Result<Tensor> {
    if p == 0.0 {
        return super::zeros_like(x);
    }
    if p.is_infinite() {
        let (x, norm) = (x.detach(), norm.detach());
        let count = x.count_peaks(&norm, ints(dims))?;
        return g.share_peaks(&x, &norm, &count);
    }
    g.norm_gradient(x, norm, p)
}

fn backward(c: &Context<'_>, p: f64) -> Result<Grads> {
    Ok(smallvec![c.when(0, |g| {
        let (sizes, keepdim) = (c.sizes(0), c.bool(3));
        let dims = dims(VECTOR, c, 2, sizes.len())?;
        let x = super::to_dtype(&c.input(0)?, g.dtype())?;
        let (g, norm) = (align(g, sizes, &dims, keepdim)?, align(&c.output(0)?, sizes, &dims, keepdim)?);
        super::to_dtype(&norm_backward(&g, &x, &norm, p, &dims)?, c.dtype(0))
    })?])
}

/// Calls `vector_norm`.
fn vector(t: &Tensor, p: Scalar, dim: Arg, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    super::apply::call_into(
        &VECTOR_NORM,
        smallvec![Arg::Tensor(t.clone()), Arg::Number(p), dim, Arg::Bool(keepdim), dtype.into()],
    )
}

/// What a matrix norm is the norm of.
enum Order {
    Number(f64),
    Named(String),
}

/// The norm of matrices that lie in two dimensions.
fn matrix(t: &Tensor, order: &Order, dim: &[i64], keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    let rank = t.rank();
    if rank < 2 {
        bail!(runtime MATRIX, "linalg.matrix_norm: The input tensor A must have at least 2 dimensions.");
    }
    let [rows, columns] = *dim else {
        bail!(runtime MATRIX, "linalg.matrix_norm: dim must be a 2-tuple. Got {}", dim.iter().map(i64::to_string).collect::<Vec<_>>().join(" "))
    };
    if !t.dtype().is_float() {
        bail!(runtime MATRIX, "linalg.matrix_norm: Expected a floating point or complex tensor as input. Got {}", t.dtype().legacy());
    }
    let (mut rows, mut columns) = (wrap_dim(MATRIX, rows, rank)?, wrap_dim(MATRIX, columns, rank)?);
    if rows == columns {
        bail!(runtime MATRIX, "linalg.matrix_norm: dims must be different. Got ({}, {})", dim[0], dim[1]);
    }
    let both = Arg::Ints([rows as i64, columns as i64][..].into());
    match order {
        Order::Named(name) if name == "fro" => vector(t, Scalar::Float(2.0), both, keepdim, dtype),
        Order::Named(name) if name == "nuc" => spectral(t),
        Order::Number(p) if p.abs() == 2.0 => spectral(t),
        Order::Number(p) if p.abs() == 1.0 || p.is_infinite() => {
            if p.is_infinite() {
                std::mem::swap(&mut rows, &mut columns);
            }
            let sums = vector(t, Scalar::Float(1.0), Arg::Ints([rows as i64][..].into()), keepdim, dtype)?;
            if !keepdim && columns > rows {
                columns -= 1;
            }
            if *p > 0.0 { sums.amax(columns, keepdim) } else { sums.amin(columns, keepdim) }
        }
        Order::Number(p) => bail!(runtime MATRIX, "linalg.matrix_norm: Order {} not supported.", shown(*p)),
        Order::Named(name) => bail!(runtime MATRIX, "linalg.matrix_norm: Order {name} not supported."),
    }
}

fn spectral(_: &Tensor) -> Result<Tensor> {
    bail!(not_implemented MATRIX, "linalg.matrix_norm: orders 2, -2 and 'nuc' need singular values, which are not implemented")
}

/// `linalg.norm`: a vector or a matrix norm, by order and dimensions. Arguments `(A, ord, dim, keepdim, dtype)`.
fn either(a: &Args, order: Option<Order>) -> Result<Tensor> {
    let (t, keepdim, dtype) = (a.tensor(0)?, a.bool(3), a.opt_dtype(4));
    let op = "linalg.norm";
    if let Some(dim) = a.opt_ints(2).filter(|d| !matches!(d.len(), 1 | 2)) {
        bail!(runtime op, "linalg.norm: If dim is specified, it must be of length 1 or 2. Got {dim:?}");
    }
    match (order, a.opt_ints(2)) {
        (Some(_), None) if !matches!(t.rank(), 1 | 2) => {
            bail!(runtime op, "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {}D.", t.rank())
        }
        (Some(order), dim) if dim.map_or(t.rank(), <[i64]>::len) == 2 => {
            matrix(t, &order, dim.unwrap_or(&[0, 1]), keepdim, dtype)
        }
        (Some(Order::Number(p)), _) => vector(t, Scalar::Float(p), a[2].clone(), keepdim, dtype),
        (Some(order), dim) => matrix(t, &order, dim.unwrap_or(&[0]), keepdim, dtype),
        (None, _) => vector(t, Scalar::Float(2.0), a[2].clone(), keepdim, dtype),
    }
}

/// `norm` by a name: arguments `(input, p, dim, keepdim, dtype)`.
fn by_name(a: &Args) -> Result<Outputs> {
    let t = a.tensor(0)?;
    let name = if matches!(a.arg(1), Arg::None) { "fro" } else { a.str(1) };
    let (keepdim, dtype) = (a.bool(3), a.opt_dtype(4));
    let dim = a.opt_ints(2).filter(|d| !d.is_empty());
    Ok(smallvec![match (name, dim) {
        ("fro", None) => vector(t, Scalar::Float(2.0), Arg::None, keepdim, dtype)?,
        ("fro", Some([_])) => vector(t, Scalar::Float(2.0), a[2].clone(), keepdim, dtype)?,
        (name, dim) => matrix(t, &Order::Named(name.into()), dim.unwrap_or(&[0, 1]), keepdim, dtype)?,
    }])
}

op! {
    /// The vector norm of order `ord` over dimensions (all for `None` or an empty list): `sum(|x|^ord)^(1/ord)`, the largest
    /// magnitude for inf, the smallest for -inf, the number of non-zeros for 0. Its gradient at 0 is 0.
    ///
    /// # Errors
    /// `RuntimeError` for integers and bools, for a `dtype` that is narrower, and for negative and infinite orders of nothing.
    VECTOR_NORM vector_norm(self, ord: Number = 2, dim: OptInts = None, keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "LinalgVectorNormBackward0", LINALG | OUT,
        S(Structured {
            forward: |a| {
                let t = a.tensor(0)?;
                let dims = dims(VECTOR, a, 2, t.rank())?;
                let named = a.opt_ints(2).filter(|d| !d.is_empty());
                Ok(smallvec![finish(norm(t, a.number(1)?.to_f64(), &dims, named, a.opt_dtype(4))?, &dims, a.bool(3))])
            },
            backward: Some(|c| backward(c, c.number(1)?.to_f64())),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| [0.0, 1.0, 2.0, 3.5, 1.5, 0.5, -1.5, f64::INFINITY, f64::NEG_INFINITY]
            .map(|p| smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Number(Scalar::Float(p)), Arg::Ints([0, -1][..].into()), Arg::Bool(p > 1.0), Arg::None])
            .into();
    /// A matrix norm by name over two dimensions: `"fro"` or `"nuc"`.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two dimensions, for integers and bools, and for another order.
    MATRIX_NORM_NAMED matrix_norm_named as "matrix_norm"(self, ord: Str = "fro", dim: Ints = [-2, -1], keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "", LINALG | OUT,
        C(|a| Ok(smallvec![matrix(a.tensor(0)?, &Order::Named(a.str(1).into()), a.ints(2)?, a.bool(3), a.opt_dtype(4))?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Str("fro".into()), Arg::Ints([-2, -1][..].into()), Arg::Bool(true), Arg::None]];
    /// A matrix norm of order 1, -1, inf or -inf over two dimensions: the largest or smallest sum of magnitudes of columns
    /// or rows.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two dimensions, for integers and bools, and for another order.
    MATRIX_NORM matrix_norm(self, ord: Number, dim: Ints = [-2, -1], keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "", LINALG | OUT,
        C(|a| Ok(smallvec![matrix(a.tensor(0)?, &Order::Number(a.number(1)?.to_f64()), a.ints(2)?, a.bool(3), a.opt_dtype(4))?])),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Number(Scalar::Int(1)), Arg::Ints([0, -1][..].into()), Arg::Bool(false), Arg::None],
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Number(Scalar::Float(f64::NEG_INFINITY)), Arg::Ints([-2, -1][..].into()), Arg::Bool(true), Arg::None],
        ];
    /// A vector or matrix norm by name: `"fro"` or `"nuc"`, for matrices.
    ///
    /// # Errors
    /// As [`matrix_norm`](Self::matrix_norm).
    LINALG_NORM_NAMED linalg_norm_named as "norm"(self, ord: Str, dim: OptInts = None, keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "", LINALG | OUT,
        C(|a| Ok(smallvec![either(a, Some(Order::Named(a.str(1).into())))?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Str("fro".into()), Arg::None, Arg::Bool(false), Arg::None]];
    /// A vector or matrix norm. Without `ord` the 2-norm of all elements or over `dim`; with it the vector norm over one
    /// dimension, the matrix norm over two.
    ///
    /// # Errors
    /// `RuntimeError` for more than two dimensions; else as [`vector_norm`](Self::vector_norm) and
    /// [`matrix_norm`](Self::matrix_norm).
    LINALG_NORM linalg_norm as "norm"(self, ord: OptNumber = None, dim: OptInts = None, keepdim: Bool = false; dtype: OptDType = None) -> Tensor = "", LINALG | OUT,
        C(|a| Ok(smallvec![either(a, a.opt_number(1).map(|p| Order::Number(p.to_f64())))?])),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Number(Scalar::Int(1)), Arg::None, Arg::Bool(false), Arg::None],
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None, Arg::Ints([0][..].into()), Arg::Bool(true), Arg::None],
        ];
    /// The norm named `p`: `"fro"` (the 2-norm of all elements, or over `dim`) or `"nuc"`.
    ///
    /// # Errors
    /// As [`vector_norm`](Self::vector_norm) and [`matrix_norm`](Self::matrix_norm).
    NORM_NAMED norm_named as "norm"(self, p: OptStr = "fro", dim: OptInts = None, keepdim: Bool = false, dtype: OptDType = None) -> Tensor = "", METHOD | FUNCTION,
        C(by_name),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None, Arg::None, Arg::Bool(false), Arg::None]];
    /// The vector norm of order `p` over dimensions (all if not given), as [`vector_norm`](Self::vector_norm).
    ///
    /// # Errors
    /// As [`vector_norm`](Self::vector_norm).
    NORM norm(self, p: Number, dim: OptInts = None, keepdim: Bool = false, dtype: OptDType = None) -> Tensor = "", METHOD | FUNCTION,
        C(|a| Ok(smallvec![vector(a.tensor(0)?, a.number(1)?, a[2].clone(), a.bool(3), a.opt_dtype(4))?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Number(Scalar::Int(3)), Arg::Ints([1][..].into()), Arg::Bool(true), Arg::None]];
    /// The norm of order `p` of `input - other`, which broadcast.
    ///
    /// # Errors
    /// As [`vector_norm`](Self::vector_norm), and if the shapes do not broadcast.
    DIST dist(self, other: Tensor, p: Number = 2) -> Tensor = "DistBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let difference = a.tensor(0)?.sub(a.tensor(1)?)?;
                if !difference.dtype().is_float() {
                    bail!(runtime "dist", "norm(): input dtype should be either floating point or complex. Got {} instead.", difference.dtype().legacy());
                }
                let all: Dims = (0..difference.rank()).collect();
                Ok(smallvec![finish(norm(&difference, a.number(2)?.to_f64(), &all, None, None)?, &all, false)])
            },
            backward: Some(|c| {
                let Some(g) = c.grad(0) else { return Ok(smallvec![None, None]) };
                let difference = c.input(0)?.sub(&c.input(1)?)?;
                let all: Dims = (0..difference.rank()).collect();
                let d = norm_backward(&g, &difference, &c.output(0)?, c.number(2)?.to_f64(), &all)?;
                let fit = |t: Tensor, k: usize| super::to_dtype(&super::sum_to_size(&t, c.sizes(k))?, c.dtype(k)).map(Some);
                let for_other = if c.needs(1) { fit(d.neg()?, 1)? } else { None };
                Ok(smallvec![if c.needs(0) { fit(d, 0)? } else { None }, for_other])
            }),
            saves: &[Save::Input(0), Save::Input(1), Save::Output(0)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[3])), Arg::Number(Scalar::Int(2))],
            smallvec![Arg::Tensor(s.t(&[3])), Arg::Tensor(s.t(&[2, 3])), Arg::Number(Scalar::Float(1.5))],
        ];
    /// `input` divided by its norm of order `p` over dimensions, which is held above `eps`.
    ///
    /// # Errors
    /// As [`vector_norm`](Self::vector_norm).
    NORMALIZE normalize(self, p: Float = 2.0, dim: Ints = 1, eps: Float = 1e-12) -> Tensor = "", NN,
        C(|a| {
            let x = a.tensor(0)?;
            let norm = vector(x, Scalar::Float(a.float(1)?), a[2].clone(), true, None)?;
            Ok(smallvec![x.true_divide(&norm.clamp_min(a.float(3)?)?.expand(ints(&x.sizes()))?)?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Float(2.0), Arg::Ints([1][..].into()), Arg::Float(1e-12)]];
    /// The cosine of the angle between vectors along a dimension; operands broadcast, norms are held above `eps`.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, and for integers.
    COSINE_SIMILARITY cosine_similarity(x1: Tensor, x2: Tensor, dim: Int = 1, eps: Float = 1e-8) -> Tensor = "", NN | FUNCTION,
        C(|a| {
            let op = "cosine_similarity";
            let (x, y) = (a.tensor(0)?, a.tensor(1)?);
            let common = x.dtype().promote(y.dtype());
            if !common.is_float() {
                bail!(runtime op, "expected common dtype to be floating point, yet common dtype is {}", common.legacy());
            }
            let sizes = crate::shape::broadcast(op, &x.sizes(), &y.sizes())?;
            let along = wrap_dim(op, a.int(2)?, sizes.len())?;
            let unit = |t: &Tensor| {
                let t = super::to_dtype(t, common)?.expand(ints(&sizes))?;
                let norm = vector(&t, Scalar::Float(2.0), Arg::Ints([along as i64][..].into()), true, None)?;
                t.true_divide(&norm.held_above(a.float(3)?)?)
            };
            let cosine = unit(x)?.sum_product(&unit(y)?, ints(if sizes.is_empty() { &[] } else { std::slice::from_ref(&along) }))?;
            let shape: Dims = sizes.iter().enumerate().filter(|(d, _)| *d != along).map(|(_, &s)| s).collect();
            Ok(smallvec![cosine.reshape(&shape)?])
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Int(1), Arg::Float(1e-8)],
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[3])), Arg::Int(0), Arg::Float(1e-8)],
        ];
    /// The norm of order `p` of `x1 - x2 + eps` over the last dimension; operands broadcast.
    ///
    /// # Errors
    /// As [`vector_norm`](Self::vector_norm), and if the shapes do not broadcast.
    PAIRWISE_DISTANCE pairwise_distance(self, x2: Tensor, p: Float = 2.0, eps: Float = 1e-6, keepdim: Bool = false) -> Tensor = "", NN | FUNCTION,
        C(|a| {
            let difference = a.tensor(0)?.sub(a.tensor(1)?)?.add(a.float(3)?)?;
            Ok(smallvec![vector(&difference, Scalar::Float(a.float(2)?), Arg::Ints([-1][..].into()), a.bool(4), None)?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[3])), Arg::Float(2.0), Arg::Float(1e-6), Arg::Bool(true)]];

    // What the derivatives and compositions above are written with.

    /// The larger of `input` and `bound`, a bound that is no part of the derivative.
    HELD_ABOVE held_above(self, bound: Float) -> Tensor = "HeldAboveBackward0", 0,
        E(Elementwise::numeric(|f| f.x(0).maximum(f.n(0))).vjp(|_, _, g| vec![Some(g)]).domain(&[(0.5, 1.5)]).numbers(&[0.1]));
    /// The gradient of a norm of finite order `p` other than 0, 0 where the `norm` is 0.
    NORM_GRADIENT norm_gradient(self, x: Tensor, norm: Tensor, p: Float) -> Tensor = "NormBackwardBackward0", 0,
        E(Elementwise::float_only(|f| {
            let (g, x, norm, p) = (f.x(0), f.x(1), f.x(2), f.n(0));
            let one = x.literal(1.0);
            let zero = norm.eq(norm.zero());
            let safe = Sym::select(zero, one, norm);
            let g = Sym::select(zero, g.zero(), g);
            let flat = x.eq(x.zero());
            let magnitude = Sym::select(flat, one, x.abs());
            match f.variant {
                1 => f.x(0) * x.sign(),
                2 => g * (x / safe),
                // x |x|^(p - 2) is not finite at 0 for p < 1, where PyTorch takes 0.
                0 => Sym::select(flat, x.zero(), x.sign() * magnitude.pow(p - 1.0)) * (g * safe.pow(-p + 1.0)),
                _ => Sym::select(flat, x.zero(), x * magnitude.pow(p - 2.0)) * (g / safe.pow(p - 1.0)),
            }
        })
        .variant(|a| Ok(match a.float(3)? {
            1.0 => 1,
            2.0 => 2,
            p if p < 1.0 => 0,
            _ => 3,
        }))
        .domain(&[(-1.5, 1.5), (-1.5, 1.5), (0.5, 1.5)])
        .numbers(&[3.0])),
        |s| [1.0, 2.0, 0.5, 1.5, 3.0].map(|p| smallvec![Arg::Tensor(s.t(&[2, 1])), Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.between(&[2, 1], 0.5, 1.5)), Arg::Float(p)]).into();
    /// How many magnitudes equal `norm`, over dimensions kept as 1; NaN equals NaN.
    COUNT_PEAKS count_peaks(self, norm: Tensor, dims: Ints = ()) -> Tensor = "", 0,
        E(Elementwise::float_only(|f| {
            let one = f.x(0).literal(1.0);
            Sym::select(peak(f.x(0), f.x(1)), one, one.zero())
        })
        .reduce(|a, sizes| super::reduce::over_dims(a, sizes, 2)));
    /// `input * sign(x) / count` where the magnitude of `x` is `norm`, else zero.
    SHARE_PEAKS share_peaks(self, x: Tensor, norm: Tensor, count: Tensor) -> Tensor = "SharePeaksBackward0", 0,
        E(Elementwise::float_only(|f| {
            let g = f.x(0) / f.x(3);
            Sym::select(peak(f.x(1), f.x(2)), g * f.x(1).sign(), g.zero())
        }));
}

fn peak(x: Sym, norm: Sym) -> Sym {
    x.abs().eq(norm).or(x.is_nan().and(norm.is_nan()))
}
