//! Products of matrices and vectors, and what is made of them. The kernels take operands with any strides, so a transpose
//! costs nothing; results are row-major. Derivatives are products again.

use super::args::{Arg, Args, Read};
use super::combine::fresh;
use super::copy;
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, INPLACE, METHOD, OUT, Outputs, op};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::backend::cpu;
use crate::dtype::{Category, DType};
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout};
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;

/// Both operands are saved, each for the gradient of the other.
pub(super) const FACTORS: &[Save] = &[Save::InputFor(0, 1), Save::InputFor(1, 0)];
/// The same for factors behind a tensor that is added.
const FACTORS_BEHIND: &[Save] = &[Save::InputFor(1, 2), Save::InputFor(2, 1)];

op! {
    /// The product of two matrices, `(m, k) @ (k, n)`.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit or dtypes that differ.
    MM mm(self, mat2: Tensor) -> Tensor = "MmBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let (x, y) = (a.tensor(0)?.body(), a.tensor(1)?.body());
                if x.layout.rank() != 2 {
                    bail!(runtime "mm", "self must be a matrix\nmm: shapes {:?} and {:?}", x.layout.sizes, y.layout.sizes);
                }
                if y.layout.rank() != 2 {
                    bail!(runtime "mm", "mat2 must be a matrix\nmm: shapes {:?} and {:?}", x.layout.sizes, y.layout.sizes);
                }
                check_inner("mm", &x.layout.sizes, &y.layout.sizes)?;
                check_same("mm", x.dtype, y.dtype)?;
                Ok(smallvec![product("mm", &x, &y)?])
            },
            backward: Some(|c| Ok(smallvec![
                c.when(0, |g| left_gradient(c, 0, g, &c.input(1)?))?,
                c.when(1, |g| right_gradient(c, 1, &c.input(0)?, g))?,
            ])),
            saves: FACTORS,
        }),
        |s| vec![s.tensors(&[&[2, 3], &[3, 4]]), s.tensors(&[&[2, 0], &[0, 2]])];
    /// The products of two batches of matrices, `(b, m, k) @ (b, k, n)`.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit or dtypes that differ.
    BMM bmm(self, mat2: Tensor) -> Tensor = "BmmBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let (x, y) = (a.tensor(0)?.body(), a.tensor(1)?.body());
                check_batches("bmm", &x, &y)?;
                Ok(smallvec![product("bmm", &x, &y)?])
            },
            backward: Some(|c| Ok(smallvec![
                c.when(0, |g| g.bmm(c.input(1)?.transpose(1, 2)?))?,
                c.when(1, |g| c.input(0)?.transpose(1, 2)?.bmm(g))?,
            ])),
            saves: FACTORS,
        }),
        |s| vec![s.tensors(&[&[2, 2, 3], &[2, 3, 4]])];
    /// The product of a matrix and a vector, `(m, k) @ (k)`.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit or dtypes that differ.
    MV mv(self, vec: Tensor) -> Tensor = "MvBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let (x, y) = (a.tensor(0)?.body(), a.tensor(1)?.body());
                check_vector("mv", 1, &x, &y)?;
                if x.dtype != y.dtype {
                    bail!(runtime "mv", "addmv input tensors must have the same dtype, but got {}, {}, and {}", y.dtype.legacy(), x.dtype.legacy(), y.dtype.legacy());
                }
                Ok(smallvec![matrix_vector("mv", &x, &y)?])
            },
            backward: Some(|c| Ok(smallvec![
                c.when(0, |g| g.outer(c.input(1)?))?,
                c.when(1, |g| c.input(0)?.t()?.mv(g))?,
            ])),
            saves: FACTORS,
        }),
        |s| vec![s.tensors(&[&[2, 3], &[3]])];
    /// The inner product of two vectors.
    ///
    /// # Errors
    /// `RuntimeError` for tensors that are not vectors of one length and dtype.
    DOT dot(self, tensor: Tensor) -> Tensor = "DotBackward0", METHOD | FUNCTION | OUT,
        S(Structured { forward: |a| dot("dot", a), backward: Some(dot_backward), saves: FACTORS }),
        |s| vec![s.tensors(&[&[4], &[4]])];
    /// The inner product of two vectors, the first conjugated: for real numbers, [`dot`](Self::dot).
    ///
    /// # Errors
    /// As `dot`.
    VDOT vdot(self, other: Tensor) -> Tensor = "VdotBackward0", METHOD | FUNCTION | OUT,
        S(Structured { forward: |a| dot("vdot", a), backward: Some(dot_backward), saves: FACTORS }),
        |s| vec![s.tensors(&[&[4], &[4]])];
    /// `beta * input + alpha * (mat1 @ mat2)`, where `input` broadcasts; with `beta` 0 it is not read.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit or dtypes that differ.
    ADDMM addmm(self, mat1: Tensor, mat2: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor = "AddmmBackward0", METHOD | FUNCTION | INPLACE | OUT,
        S(Structured {
            forward: |a| {
                let (x, y) = (a.tensor(1)?.body(), a.tensor(2)?.body());
                for (name, m) in [("mat1", &x), ("mat2", &y)] {
                    if m.layout.rank() != 2 {
                        bail!(runtime "addmm", "{name} must be a matrix, got {}-D tensor", m.layout.rank());
                    }
                }
                check_inner("addmm", &x.layout.sizes, &y.layout.sizes)?;
                check_added("addmm", a.tensor(0)?.dtype(), x.dtype, y.dtype)?;
                Ok(smallvec![added("addmm", a, &x, &y)?])
            },
            backward: Some(|c| Ok(smallvec![
                added_gradient(c)?,
                c.when(1, |g| times(left_gradient(c, 1, g, &c.input(2)?)?, c.number(4)?))?,
                c.when(2, |g| times(right_gradient(c, 2, &c.input(1)?, g)?, c.number(4)?))?,
            ])),
            saves: FACTORS_BEHIND,
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[4])), Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[3, 4])), Arg::Number(Scalar::Int(1)), Arg::Number(Scalar::Int(1))],
            smallvec![Arg::Tensor(s.t(&[2, 1])), Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[3, 4])), Arg::Number(Scalar::Float(0.5)), Arg::Number(Scalar::Float(-2.0))],
        ];
    /// `beta * input + alpha * (mat @ vec)`, where `input` broadcasts; with `beta` 0 it is not read.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit or dtypes that differ.
    ADDMV addmv(self, mat: Tensor, vec: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor = "AddmvBackward0", METHOD | FUNCTION | INPLACE | OUT,
        S(Structured {
            forward: |a| {
                let (t, x, y) = (a.tensor(0)?, a.tensor(1)?.body(), a.tensor(2)?.body());
                check_vector("addmv", t.rank(), &x, &y)?;
                if t.dtype() != x.dtype || x.dtype != y.dtype {
                    bail!(runtime "addmv", "addmv input tensors must have the same dtype, but got {}, {}, and {}", t.dtype().legacy(), x.dtype.legacy(), y.dtype.legacy());
                }
                let size = [x.layout.sizes[0]];
                let row = t.expand(size)?.unsqueeze(1)?;
                let mut inner = a.clone();
                inner[0] = Arg::Tensor(row);
                let column = y.with_layout(Layout { sizes: [y.layout.sizes[0], 1][..].into(), strides: [y.layout.strides[0], 1][..].into(), offset: y.layout.offset });
                let out = added("addmv", &inner, &x, &column)?.body();
                Ok(smallvec![Tensor::from_body(Body::clone(&out).with_layout(Layout::contiguous(size[..].into())))])
            },
            backward: Some(|c| Ok(smallvec![
                added_gradient(c)?,
                c.when(1, |g| times(g.outer(c.input(2)?)?, c.number(4)?))?,
                c.when(2, |g| times(c.input(1)?.t()?.mv(g)?, c.number(4)?))?,
            ])),
            saves: FACTORS_BEHIND,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[])), Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[3])), Arg::Number(Scalar::Float(0.5)), Arg::Number(Scalar::Float(2.0))]];
    /// `beta * input + alpha * (batch1 @ batch2)` for batches of matrices, where `input` broadcasts; with `beta` 0 it is not
    /// read.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit or dtypes that differ.
    BADDBMM baddbmm(self, batch1: Tensor, batch2: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor = "BaddbmmBackward0", METHOD | FUNCTION | INPLACE | OUT,
        S(Structured {
            forward: |a| {
                let (t, x, y) = (a.tensor(0)?, a.tensor(1)?.body(), a.tensor(2)?.body());
                if t.dtype() != x.dtype || x.dtype != y.dtype {
                    bail!(runtime "baddbmm", "Input dtypes must be the same, got: input {}, batch1: {}, batch2: {}", t.dtype().c_name(), x.dtype.c_name(), y.dtype.c_name());
                }
                check_batches("baddbmm", &x, &y)?;
                Ok(smallvec![added("baddbmm", a, &x, &y)?])
            },
            backward: Some(|c| Ok(smallvec![
                added_gradient(c)?,
                c.when(1, |g| times(g.bmm(c.input(2)?.transpose(1, 2)?)?, c.number(4)?))?,
                c.when(2, |g| times(c.input(1)?.transpose(1, 2)?.bmm(g)?, c.number(4)?))?,
            ])),
            saves: FACTORS_BEHIND,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 1])), Arg::Tensor(s.t(&[2, 2, 3])), Arg::Tensor(s.t(&[2, 3, 2])), Arg::Number(Scalar::Float(0.5)), Arg::Number(Scalar::Int(3))]];
    /// `beta * input + alpha *` the sum over a batch of `batch1 @ batch2`, where `input` broadcasts; with `beta` 0 it is not
    /// read.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not fit or dtypes that differ.
    ADDBMM addbmm(self, batch1: Tensor, batch2: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor = "AddbmmBackward0", METHOD | FUNCTION | INPLACE | OUT,
        S(Structured {
            forward: |a| {
                let (t, x, y) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
                if t.dtype() != x.dtype() || x.dtype() != y.dtype() {
                    bail!(runtime "addbmm", "Input dtypes must be the same, got: input {}, batch1: {}, batch2: {}", t.dtype().c_name(), x.dtype().c_name(), y.dtype().c_name());
                }
                check_batches("addbmm", &x.body(), &y.body())?;
                // A sum of products is one product of longer rows.
                let (b, m, k) = (x.sizes()[0], x.sizes()[1], x.sizes()[2]);
                let left = x.transpose(0, 1)?.reshape([m, b * k])?.body();
                let right = y.reshape([b * k, y.sizes()[2]])?.body();
                Ok(smallvec![added("addbmm", a, &left, &right)?])
            },
            backward: Some(|c| Ok(smallvec![
                added_gradient(c)?,
                c.when(1, |g| times(over_batch(c, g)?.bmm(c.input(2)?.transpose(1, 2)?)?, c.number(4)?))?,
                c.when(2, |g| times(c.input(1)?.transpose(1, 2)?.bmm(over_batch(c, g)?)?, c.number(4)?))?,
            ])),
            saves: FACTORS_BEHIND,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2])), Arg::Tensor(s.t(&[3, 2, 3])), Arg::Tensor(s.t(&[3, 3, 2])), Arg::Number(Scalar::Float(0.5)), Arg::Number(Scalar::Int(3))]];
    /// `beta * input + alpha *` the outer product of two vectors, where `input` broadcasts; with `beta` 0 it is not read.
    ///
    /// # Errors
    /// `RuntimeError` for tensors that are not vectors, or an `input` that does not fit.
    ADDR addr(self, vec1: Tensor, vec2: Tensor; beta: Number = 1, alpha: Number = 1) -> Tensor = "", METHOD | FUNCTION | INPLACE | OUT,
        C(|a| {
            let (t, x, y, beta, alpha) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.number(3)?, a.number(4)?);
            for (name, v) in [("vec1", x), ("vec2", y)] {
                if v.rank() != 1 {
                    bail!(runtime "addr", "addr: Expected 1-D argument {name}, but got {}-D", v.rank());
                }
            }
            let integral = [t, x, y].iter().all(|t| !t.dtype().is_float());
            for (name, n) in [("beta", beta), ("alpha", alpha)] {
                if integral && n.category() == Category::Float {
                    bail!(runtime "addr", "For integral input tensors, argument {name} must not be a floating point number.");
                }
            }
            let wide = t.expand([x.numel(), y.numel()])?;
            let outer = times(x.outer(y)?, alpha)?;
            if beta.to_f64() == 0.0 {
                return Ok(smallvec![outer]);
            }
            Ok(smallvec![times(wide, beta)?.add(outer)?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3])), Arg::Tensor(s.t(&[2])), Arg::Tensor(s.t(&[3])), Arg::Number(Scalar::Float(0.5)), Arg::Number(Scalar::Float(2.0))]];
}

fn check_inner(op: &'static str, x: &[usize], y: &[usize]) -> Result<()> {
    if x[1] != y[0] {
        bail!(runtime op, "mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})", x[0], x[1], y[0], y[1]);
    }
    Ok(())
}

fn check_same(op: &'static str, x: DType, y: DType) -> Result<()> {
    if x != y {
        bail!(runtime op, "expected m1 and m2 to have the same dtype, but got: {} != {}", x.c_name(), y.c_name());
    }
    check_number(op, "addmm_impl_cpu_", x)
}

fn check_number(op: &'static str, kernel: &str, dtype: DType) -> Result<()> {
    if dtype == DType::Bool {
        bail!(not_implemented op, "\"{kernel}\" not implemented for 'Bool'");
    }
    Ok(())
}

fn check_added(op: &'static str, t: DType, x: DType, y: DType) -> Result<()> {
    if t != y {
        bail!(runtime op, "self and mat2 must have the same dtype, but got {} and {}", t.legacy(), y.legacy());
    }
    if x != y {
        bail!(runtime op, "mat1 and mat2 must have the same dtype, but got {} and {}", x.legacy(), y.legacy());
    }
    check_number(op, "addmm_impl_cpu_", x)
}

fn check_batches(op: &'static str, x: &Body, y: &Body) -> Result<()> {
    for (name, t) in [("batch1", x), ("batch2", y)] {
        if t.layout.rank() != 3 {
            bail!(runtime op, "{name} must be a 3D tensor\n{op}: shapes {:?} and {:?}", x.layout.sizes, y.layout.sizes);
        }
    }
    let (p, q) = (&x.layout.sizes, &y.layout.sizes);
    if p[0] != q[0] || p[2] != q[1] {
        bail!(runtime op, "Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: [{}, {}].", p[0], p[2], q[0], q[1]);
    }
    if x.dtype != y.dtype {
        bail!(runtime op, "expected scalar type {} but found {}", x.dtype.legacy(), y.dtype.legacy());
    }
    check_number(op, "bmm", x.dtype)
}

fn check_vector(op: &'static str, added: usize, x: &Body, y: &Body) -> Result<()> {
    let (p, q) = (&x.layout.sizes, &y.layout.sizes);
    if added > 1 || p.len() != 2 || q.len() != 1 {
        bail!(runtime op, "vector + matrix @ vector expected, got {added}, {}, {}", p.len(), q.len());
    }
    if p[1] != q[0] {
        bail!(runtime op, "size mismatch, got input ({}), mat ({}x{}), vec ({})", p[0], p[0], p[1], q[0]);
    }
    check_number(op, "addmv_impl_cpu", x.dtype)
}

/// The product of two matrices, or of two batches of them, whose shapes and dtypes fit.
fn product(op: &'static str, x: &Body, y: &Body) -> Result<Tensor> {
    let rank = x.layout.rank();
    let mut sizes = x.layout.sizes.clone();
    sizes[rank - 1] = y.layout.sizes[rank - 1];
    let out = fresh(op, sizes, x.dtype)?;
    cpu::product::product(&x.operand(), &y.operand(), &out.operand(), false);
    Ok(Tensor::from_body(out))
}

fn matrix_vector(op: &'static str, x: &Body, y: &Body) -> Result<Tensor> {
    let (m, k) = (x.layout.sizes[0], x.layout.sizes[1]);
    let column =
        Layout { sizes: [k, 1][..].into(), strides: [y.layout.strides[0], 1][..].into(), offset: y.layout.offset };
    let out = product(op, x, &y.with_layout(column))?.body();
    Ok(Tensor::from_body(out.with_layout(Layout::contiguous([m][..].into()))))
}

/// `beta * input + alpha * (x @ y)`, its first and last two arguments standing as in `addmm`.
fn added(op: &'static str, a: &Args, x: &Body, y: &Body) -> Result<Tensor> {
    let (t, beta, alpha) = (a.tensor(0)?, a.number(3)?, a.number(4)?);
    let rank = x.layout.rank();
    let mut sizes = x.layout.sizes.clone();
    sizes[rank - 1] = y.layout.sizes[rank - 1];
    let wide = t.expand(&sizes)?;
    // Integers are multiplied by integers, whatever numbers are given.
    let (beta, alpha) =
        if t.dtype().is_float() { (beta, alpha) } else { (Scalar::Int(beta.to_i64()), Scalar::Int(alpha.to_i64())) };
    if beta.to_f64() == 0.0 {
        return times(product(op, x, y)?, alpha);
    }
    let scaled = times(wide, beta)?;
    if alpha.to_f64() == 1.0 {
        let out = fresh(op, sizes, x.dtype)?;
        copy::convert(op, &scaled.body(), &out)?;
        cpu::product::product(&x.operand(), &y.operand(), &out.operand(), true);
        return Ok(Tensor::from_body(out));
    }
    scaled.add(times(product(op, x, y)?, alpha)?)
}

/// A tensor times a number; itself if that is 1.
fn times(t: Tensor, n: Scalar) -> Result<Tensor> {
    if n.to_f64() == 1.0 { Ok(t) } else { t.mul(n) }
}

/// The gradient of what was added to a product.
fn added_gradient(c: &Context<'_>) -> Result<Option<Tensor>> {
    c.when(0, |g| times(super::sum_to_size(g, c.sizes(0))?, c.number(3)?))
}

/// The gradient of the left factor of a product, `g @ right^T`, lying in memory as the factor does, so that a transposed
/// parameter gets its gradient without a copy.
fn left_gradient(c: &Context<'_>, k: usize, g: &Tensor, right: &Tensor) -> Result<Tensor> {
    if c.lies_transposed(k) { right.mm(g.t()?)?.t() } else { g.mm(right.t()?) }
}

/// The gradient of the right factor of a product, `left^T @ g`; see [`left_gradient`].
fn right_gradient(c: &Context<'_>, k: usize, left: &Tensor, g: &Tensor) -> Result<Tensor> {
    if c.lies_transposed(k) { g.t()?.mm(left)?.t() } else { left.t()?.mm(g) }
}

/// A gradient of `addbmm` for every matrix of the batch.
fn over_batch(c: &Context<'_>, g: &Tensor) -> Result<Tensor> {
    let sizes = g.sizes();
    g.expand([c.sizes(1)[0], sizes[0], sizes[1]])
}

fn dot(op: &'static str, a: &Args) -> Result<Outputs> {
    let (x, y) = (a.tensor(0)?.body(), a.tensor(1)?.body());
    let (p, q) = (&x.layout.sizes, &y.layout.sizes);
    if p.len() != 1 || q.len() != 1 {
        bail!(runtime op, "1D tensors expected, but got {}D and {}D tensors", p.len(), q.len());
    }
    if x.dtype != y.dtype {
        bail!(runtime op, "dot : expected both vectors to have same dtype, but found {} and {}", x.dtype.legacy(), y.dtype.legacy());
    }
    if p != q {
        bail!(runtime op, "inconsistent tensor size, expected tensor {p:?} and src {q:?} to have the same number of elements, but got {} and {} elements respectively", p[0], q[0]);
    }
    check_number(op, "dot", x.dtype)?;
    let row =
        Layout { sizes: [1, p[0]][..].into(), strides: [0, x.layout.strides[0]][..].into(), offset: x.layout.offset };
    let out = matrix_vector(op, &x.with_layout(row), &y)?.body();
    Ok(smallvec![Tensor::from_body(out.with_layout(Layout::contiguous(Dims::new())))])
}

fn dot_backward(c: &Context<'_>) -> Result<Grads> {
    Ok(smallvec![c.when(0, |g| g.mul(c.input(1)?))?, c.when(1, |g| g.mul(c.input(0)?))?])
}
