//! Linear algebra on square matrices and batches of them: determinants, inverses, systems of equations, Cholesky factors,
//! powers. Factorisations run in double precision; derivatives are products and solutions again.

use super::args::{Arg, Args, Read};
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, LINALG, METHOD, OUT, Outputs, op};
use super::structured::{Context, Save, Structured};
use crate::autograd::mode;
use crate::autograd::node::Grads;
use crate::backend::cpu::linalg::{Lu, cholesky, substitute};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::shape::{Dims, broadcast};
use crate::tensor::Tensor;
use smallvec::smallvec;

op! {
    /// The determinants of square matrices.
    ///
    /// # Errors
    /// `RuntimeError` for matrices that are not square or of integers.
    LINALG_DET det(self) -> Tensor = "LinalgDetBackward0", METHOD | FUNCTION | LINALG | OUT,
        S(Structured {
            forward: |a| {
                let m = Matrices::of("linalg.det", a.tensor(0)?)?;
                let dets: Vec<f64> = m.each().map(|a| Lu::new(a.to_vec(), m.n).det()).collect();
                Ok(smallvec![m.tensor(&dets, &[])?])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| {
                let a = c.input(0)?;
                let g = over_matrices(g)?;
                if !mode::is_grad_enabled() {
                    return g.mul(a.cofactors()?);
                }
                let det = a.det()?;
                if det.to_scalars()?.iter().all(|d| d.to_f64() != 0.0) {
                    return g.mul(over_matrices(&det)?)?.mul(a.inverse()?.transpose(-2, -1)?);
                }
                g.mul(a.cofactors()?)
            })?])),
            saves: &[Save::Input(0)],
        }),
        |s| vec![s.tensors(&[&[2, 3, 3]]), s.tensors(&[&[1, 1]])];
    /// The matrices of cofactors: what the determinants' derivatives are, of singular matrices too.
    COFACTORS cofactors(self) -> Tensor = "LinalgDetBackwardBackward0", 0,
        S(Structured {
            forward: |a| {
                let m = Matrices::of("linalg.det", a.tensor(0)?)?;
                let cofactors = |a: &[f64]| {
                    // A pivot that is zero is replaced by a tiny one, which leaves the product finite and right.
                    let mut lu = Lu::new(a.to_vec(), m.n);
                    lu.perturb();
                    let det = lu.det();
                    transposed(&lu.solve(&identity(m.n), m.n), m.n).into_iter().map(|x| x * det).collect::<Vec<f64>>()
                };
                let values: Vec<f64> = m.each().flat_map(cofactors).collect();
                Ok(smallvec![m.tensor(&values, &[m.n, m.n])?])
            },
            backward: Some(|_| bail!(runtime "linalg.det", "the second derivative of the determinant of a singular matrix is not implemented")),
            saves: &[],
        });
    /// The signs of the determinants of square matrices and the natural logarithms of their magnitudes.
    ///
    /// # Errors
    /// `RuntimeError` for matrices that are not square or of integers.
    SLOGDET slogdet(self) -> Fields["sign", "logabsdet"] = "LinalgSlogdetBackward0", METHOD | FUNCTION | LINALG,
        S(Structured {
            forward: |a| {
                let m = Matrices::of("linalg.slogdet", a.tensor(0)?)?;
                let (signs, logs): (Vec<f64>, Vec<f64>) = m.each().map(|a| Lu::new(a.to_vec(), m.n).slogdet()).unzip();
                Ok(smallvec![m.tensor(&signs, &[])?, m.tensor(&logs, &[])?])
            },
            backward: Some(|c| Ok(smallvec![match c.grad(1) {
                Some(g) if c.needs(0) => Some(over_matrices(&g)?.mul(c.input(0)?.inverse()?.transpose(-2, -1)?)?),
                _ => None,
            }])),
            saves: &[Save::Input(0)],
        }),
        |s| vec![s.tensors(&[&[2, 3, 3]])];
    /// The natural logarithms of the determinants of square matrices; NaN where they are negative.
    ///
    /// # Errors
    /// `RuntimeError` for matrices that are not square or of integers.
    LOGDET logdet(self) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let t = a.tensor(0)?;
            check_square("logdet", t)?;
            let (sign, log) = t.slogdet()?;
            let negative = sign.eq(-1.0)?;
            Ok(smallvec![log.masked_fill(negative, f64::NAN)?])
        }),
        |s| vec![smallvec![Arg::Tensor(positive(s, 3))]];
    /// The inverses of square matrices.
    ///
    /// # Errors
    /// `RuntimeError` for matrices that are not square, of integers or singular.
    INVERSE inverse(self) -> Tensor = "LinalgInvExBackward0", METHOD | FUNCTION | OUT,
        S(Structured { forward: inverse, backward: Some(inverse_back), saves: &[Save::Output(0)] }),
        |s| vec![s.tensors(&[&[2, 3, 3]])];
    /// The solutions `X` of `A X = B`, or of `X A = B` if not `left`. `B` is a vector if it has one dimension, or the sizes of
    /// `A` but for the last. Batches broadcast.
    ///
    /// # Errors
    /// `RuntimeError` for shapes or dtypes that do not fit, integers, or a singular `A`.
    LINALG_SOLVE linalg_solve as "solve"(self, other: Tensor; left: Bool = true) -> Tensor = "", LINALG | OUT,
        C(|a| {
            let (t, b, left) = (a.tensor(0)?, a.tensor(1)?, a.bool(2));
            check_square("linalg.solve", t)?;
            if t.dtype() != b.dtype() {
                bail!(runtime "linalg.solve", "linalg.solve: Expected A and B to have the same dtype, but found A of type {} and B of type {} instead", t.dtype().legacy(), b.dtype().legacy());
            }
            let (p, q) = (t.sizes(), b.sizes());
            let vector = q.len() == 1 || q[..] == p[..p.len() - 1];
            let columns = if vector { b.unsqueeze(-1)? } else { b.clone() };
            check_fit("linalg.solve", &p, &columns.sizes(), left)?;
            let (t, columns) = broadcast_batches("linalg.solve", t, &columns)?;
            if left {
                let x = t.solve_columns(columns)?;
                return Ok(smallvec![if vector { x.squeeze_dim(-1)? } else { x }]);
            }
            let x = t.transpose(-2, -1)?.solve_columns(columns.transpose(-2, -1)?)?.transpose(-2, -1)?;
            Ok(smallvec![if vector { x.squeeze_dim(-1)? } else { x }])
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 3])), Arg::Tensor(s.t(&[3])), Arg::Bool(true)],
            smallvec![Arg::Tensor(s.t(&[2, 3, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Bool(true)],
            smallvec![Arg::Tensor(s.t(&[3, 3])), Arg::Tensor(s.t(&[2, 2, 3])), Arg::Bool(false)],
        ];
    /// `linalg.solve` of matrices and right sides with the same batches.
    SOLVE_COLUMNS solve_columns(self, other: Tensor) -> Tensor = "LinalgSolveExBackward0", 0,
        S(Structured {
            forward: |a| {
                let (m, b) = (Matrices::of("linalg.solve", a.tensor(0)?)?, a.tensor(1)?);
                let k = b.sizes()[b.rank() - 1];
                let right = doubles(b)?;
                let mut out = Vec::with_capacity(right.len());
                for (i, a) in m.each().enumerate() {
                    let lu = Lu::new(a.to_vec(), m.n);
                    if lu.singular_at().is_some() {
                        bail!(runtime "linalg.solve", "torch.linalg.solve: {}The solver failed because the input matrix is singular.", m.place(i));
                    }
                    out.extend(lu.solve(&right[i * m.n * k..(i + 1) * m.n * k], k));
                }
                Ok(smallvec![m.tensor(&out, &[m.n, k])?])
            },
            backward: Some(|c| {
                let Some(g) = c.grad(0) else { return Ok(smallvec![None, None]) };
                let right = c.input(0)?.transpose(-2, -1)?.solve_columns(g)?;
                let left = if c.needs(0) { Some(right.matmul(c.output(0)?.transpose(-2, -1)?)?.neg()?) } else { None };
                Ok(smallvec![left, c.needs(1).then_some(right)])
            }),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| vec![s.tensors(&[&[2, 3, 3], &[2, 3, 2]])];
    /// The solutions `X` of `A X = B` with one triangle of `A`, or of `X A = B` if not `left`; `unitriangular` takes ones for
    /// the diagonal. Batches broadcast.
    ///
    /// # Errors
    /// `RuntimeError` for shapes or dtypes that do not fit, or integers.
    SOLVE_TRIANGULAR solve_triangular(self, other: Tensor; upper: Bool, left: Bool = true, unitriangular: Bool = false) -> Tensor = "", LINALG | OUT,
        C(|a| {
            let (t, b, upper, left, unit) = (a.tensor(0)?, a.tensor(1)?, a.bool(2), a.bool(3), a.bool(4));
            let op = "linalg.solve_triangular";
            check_square(op, t)?;
            if b.rank() < 2 {
                bail!(runtime op, "linalg.solve_triangular: The input tensor B must have at least 2 dimensions.");
            }
            if t.dtype() != b.dtype() {
                bail!(runtime op, "linalg.solve_triangular: Expected A and B to have the same dtype, but found A of type {} and B of type {} instead", t.dtype().legacy(), b.dtype().legacy());
            }
            check_fit(op, &t.sizes(), &b.sizes(), left)?;
            let (t, b) = broadcast_batches(op, t, b)?;
            if left {
                return Ok(smallvec![t.solve_triangle(b, upper, unit)?]);
            }
            let x = t.transpose(-2, -1)?.solve_triangle(b.transpose(-2, -1)?, !upper, unit)?;
            Ok(smallvec![x.transpose(-2, -1)?])
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.between(&[2, 3, 3], 0.5, 1.5)), Arg::Tensor(s.t(&[2, 3, 2])), Arg::Bool(true), Arg::Bool(true), Arg::Bool(false)],
            smallvec![Arg::Tensor(s.between(&[3, 3], 0.5, 1.5)), Arg::Tensor(s.t(&[2, 2, 3])), Arg::Bool(false), Arg::Bool(false), Arg::Bool(true)],
        ];
    /// `linalg.solve_triangular` of matrices and right sides with the same batches.
    SOLVE_TRIANGLE solve_triangle(self, other: Tensor, upper: Bool, unit: Bool) -> Tensor = "LinalgSolveTriangularBackward0", 0,
        S(Structured {
            forward: |args| {
                let (m, b) = (Matrices::of("linalg.solve_triangular", args.tensor(0)?)?, args.tensor(1)?);
                let k = b.sizes()[b.rank() - 1];
                let mut out = doubles(b)?;
                for (i, a) in m.each().enumerate() {
                    substitute(a, m.n, &mut out[i * m.n * k..(i + 1) * m.n * k], k, args.bool(2), args.bool(3));
                }
                Ok(smallvec![m.tensor(&out, &[m.n, k])?])
            },
            backward: Some(|c| {
                let Some(g) = c.grad(0) else { return Ok(smallvec![None, None]) };
                let (upper, unit) = (c.bool(2), c.bool(3));
                let right = c.input(0)?.transpose(-2, -1)?.solve_triangle(g, !upper, unit)?;
                let left = if c.needs(0) {
                    let whole = right.matmul(c.output(0)?.transpose(-2, -1)?)?.neg()?;
                    Some(if upper { whole.triu(unit as i64)? } else { whole.tril(-(unit as i64))? })
                } else {
                    None
                };
                Ok(smallvec![left, c.needs(1).then_some(right)])
            }),
            saves: &[Save::Input(0), Save::Output(0)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.between(&[2, 3, 3], 0.5, 1.5)), Arg::Tensor(s.t(&[2, 3, 2])), Arg::Bool(true), Arg::Bool(false)]];
    /// The Cholesky factors of positive definite matrices, of which one triangle is read: lower factors `L`, `A = L L^T`, or
    /// upper ones, `A = U^T U`.
    ///
    /// # Errors
    /// `RuntimeError` for matrices that are not square, of integers or not positive definite.
    CHOLESKY linalg_cholesky as "cholesky"(self; upper: Bool = false) -> Tensor = "", LINALG | OUT,
        C(|a| Ok(smallvec![cholesky_of(a.tensor(0)?, a.bool(1))?]));
    /// [`linalg_cholesky`](Self::linalg_cholesky) under its old name.
    ///
    /// # Errors
    /// As `linalg_cholesky`.
    OLD_CHOLESKY cholesky(self, upper: Bool = false) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| Ok(smallvec![cholesky_of(a.tensor(0)?, a.bool(1))?]));
    /// The lower Cholesky factors of matrices of which the lower triangle is read.
    LOWER_CHOLESKY lower_cholesky(self) -> Tensor = "LinalgCholeskyExBackward0", 0,
        S(Structured {
            forward: |a| {
                let op = "linalg.cholesky";
                let m = Matrices::of(op, a.tensor(0)?)?;
                let mut out = Vec::with_capacity(m.values.len());
                for (i, a) in m.each().enumerate() {
                    match cholesky(a.to_vec(), m.n) {
                        Ok(l) => out.extend(l),
                        Err(order) => bail!(runtime op, "linalg.cholesky: {}The factorization could not be completed because the input is not positive-definite (the leading minor of order {order} is not positive-definite).", m.place(i)),
                    }
                }
                Ok(smallvec![m.tensor(&out, &[m.n, m.n])?])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| {
                // Murray 2016, "Differentiation of the Cholesky decomposition", equation 10, the result made symmetric.
                let l = c.output(0)?;
                let upper = l.transpose(-2, -1)?;
                let phi = upper.matmul(g)?.tril(0)?;
                let phi = phi.sub(phi.diagonal(0, -2, -1)?.mul(0.5)?.diag_embed(0, -2, -1)?)?;
                let half = upper.solve_triangle(phi, true, false)?;
                let whole = upper.solve_triangle(half.transpose(-2, -1)?, true, false)?;
                whole.add(whole.transpose(-2, -1)?)?.mul(0.5)
            })?])),
            saves: &[Save::Output(0)],
        });
    /// Square matrices multiplied by themselves `n` times; their inverses, if `n` is negative.
    ///
    /// # Errors
    /// `RuntimeError` for matrices that are not square, or singular ones with a negative `n`.
    MATRIX_POWER matrix_power(self, n: Int) -> Tensor = "", METHOD | FUNCTION | LINALG | OUT,
        C(|a| {
            let (t, n) = (a.tensor(0)?, a.int(1)?);
            check_square_shape("linalg.matrix_power", t)?;
            if n == 0 {
                let size = t.sizes()[t.rank() - 1];
                let args: Args = smallvec![Arg::Int(size as i64), Arg::None, Arg::DType(t.dtype())];
                let eye: Tensor = super::apply::call_into(&super::create::EYE, args)?;
                // Written over a copy, so that the result has a history, whose gradient is zero.
                let args: Args = smallvec![Arg::Tensor(t.copy()?), Arg::Tensor(eye), Arg::Bool(false)];
                return Ok(smallvec![super::apply::call_in_place(&super::copy::COPY, &args)?]);
            }
            let mut square = if n < 0 { t.inverse()? } else { t.clone() };
            if n.unsigned_abs() == 1 {
                return Ok(smallvec![if n < 0 { square } else { square.copy()? }]);
            }
            if n.unsigned_abs() == 3 {
                return Ok(smallvec![square.matmul(&square)?.matmul(&square)?]);
            }
            // The powers of two that add up to n, the lowest first.
            let (mut rest, mut result) = (n.unsigned_abs(), None::<Tensor>);
            loop {
                if rest & 1 == 1 {
                    result = Some(match result {
                        Some(r) => r.matmul(&square)?,
                        None => square.clone(),
                    });
                }
                rest >>= 1;
                if rest == 0 {
                    break;
                }
                square = square.matmul(&square)?;
            }
            result.map_or_else(|| bail!(runtime "linalg.matrix_power", "internal error: no power"), |r| Ok(smallvec![r]))
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 2, 2])), Arg::Int(5)],
            smallvec![Arg::Tensor(s.t(&[2, 2])), Arg::Int(-3)],
        ];
}

/// Square matrices as numbers in double precision.
struct Matrices {
    n: usize,
    values: Vec<f64>,
    lead: Dims,
    dtype: DType,
}

impl Matrices {
    fn of(op: &'static str, t: &Tensor) -> Result<Matrices> {
        check_square(op, t)?;
        let sizes = t.sizes();
        let n = sizes[sizes.len() - 1];
        Ok(Matrices { n, values: doubles(t)?, lead: Dims::from_slice(&sizes[..sizes.len() - 2]), dtype: t.dtype() })
    }

    fn each(&self) -> impl Iterator<Item = &[f64]> {
        let (count, size) = (self.lead.iter().product::<usize>(), self.n * self.n);
        (0..count).map(move |i| &self.values[i * size..(i + 1) * size])
    }

    /// Results in the tensor's dtype, `sizes` for each matrix.
    fn tensor(&self, values: &[f64], sizes: &[usize]) -> Result<Tensor> {
        let whole: Dims = self.lead.iter().chain(sizes).copied().collect();
        super::to_dtype(&Tensor::from_slice(values, &whole)?, self.dtype)
    }

    /// Which matrix of a batch it is, for messages.
    fn place(&self, i: usize) -> String {
        if self.lead.is_empty() { String::new() } else { format!("(Batch element {i}): ") }
    }
}

fn doubles(t: &Tensor) -> Result<Vec<f64>> {
    super::to_dtype(&t.detach(), DType::F64)?.to_vec::<f64>()
}

fn check_square_shape(op: &'static str, t: &Tensor) -> Result<()> {
    let sizes = t.sizes();
    match sizes[..] {
        [.., m, n] if m == n => Ok(()),
        [.., m, n] => bail!(runtime op, "{op}: A must be batches of square matrices, but they are {m} by {n} matrices"),
        _ => bail!(runtime op, "{op}: The input tensor A must have at least 2 dimensions."),
    }
}

fn check_square(op: &'static str, t: &Tensor) -> Result<()> {
    check_square_shape(op, t)?;
    match t.dtype() {
        DType::F32 | DType::F64 => Ok(()),
        d if d.is_float() => bail!(runtime op, "{op}: Low precision dtypes not supported. Got {}", d.legacy()),
        d => bail!(runtime op, "{op}: Expected a floating point or complex tensor as input. Got {}", d.legacy()),
    }
}

fn check_fit(op: &'static str, a: &[usize], b: &[usize], left: bool) -> Result<()> {
    let n = a[a.len() - 1];
    let fits = b[b.len() - if left { 2 } else { 1 }] == n;
    if !fits {
        let equation = if left { "AX = B" } else { "XA = B" };
        bail!(runtime op, "{op}: Incompatible shapes of A and B for the equation {equation} ({n}x{n} and {}x{})", b[b.len() - 2], b[b.len() - 1]);
    }
    Ok(())
}

/// Both with the batch dimensions to which theirs broadcast.
fn broadcast_batches(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    let (p, q) = (a.sizes(), b.sizes());
    let lead = broadcast(op, &p[..p.len() - 2], &q[..q.len() - 2])?;
    let wide = |t: &Tensor, sizes: &[usize]| {
        let whole: Dims = lead.iter().chain(&sizes[sizes.len() - 2..]).copied().collect();
        if whole[..] == *sizes { Ok(t.clone()) } else { t.expand(&whole) }
    };
    Ok((wide(a, &p)?, wide(b, &q)?))
}

/// One number for each matrix, so that it broadcasts over the matrices' elements.
fn over_matrices(g: &Tensor) -> Result<Tensor> {
    g.unsqueeze(-1)?.unsqueeze(-1)
}

fn identity(n: usize) -> Vec<f64> {
    (0..n * n).map(|e| (e / n == e % n) as u8 as f64).collect()
}

fn transposed(a: &[f64], n: usize) -> Vec<f64> {
    (0..n * n).map(|e| a[e % n * n + e / n]).collect()
}

fn inverse(a: &Args) -> Result<Outputs> {
    let op = "linalg.inv";
    let m = Matrices::of(op, a.tensor(0)?)?;
    let mut out = Vec::with_capacity(m.values.len());
    for (i, a) in m.each().enumerate() {
        let lu = Lu::new(a.to_vec(), m.n);
        if let Some(k) = lu.singular_at() {
            bail!(runtime op, "linalg.inv: {}The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.", m.place(i), k + 1);
        }
        out.extend(lu.solve(&identity(m.n), m.n));
    }
    Ok(smallvec![m.tensor(&out, &[m.n, m.n])?])
}

fn inverse_back(c: &Context<'_>) -> Result<Grads> {
    Ok(smallvec![c.when(0, |g| {
        let turned = c.output(0)?.transpose(-2, -1)?;
        turned.matmul(g)?.matmul(&turned)?.neg()
    })?])
}

fn cholesky_of(t: &Tensor, upper: bool) -> Result<Tensor> {
    check_square("linalg.cholesky", t)?;
    if upper { t.transpose(-2, -1)?.lower_cholesky()?.transpose(-2, -1) } else { t.lower_cholesky() }
}

/// A positive definite sample.
fn positive(s: &mut super::samples::Sampler, n: usize) -> Tensor {
    let a = s.between(&[n, n], -0.3, 0.3);
    let square = a.t().and_then(|t| a.mm(t)).unwrap_or_else(|_| a.clone());
    let args: Args = smallvec![Arg::Int(n as i64), Arg::None, Arg::DType(s.dtype)];
    let eye: Result<Tensor> = super::apply::call_into(&super::create::EYE, args);
    eye.and_then(|e| square.add(e)).unwrap_or(square)
}
