//! Normalisation: to mean 0 and variance 1 over the last dimensions (layer) or over groups of channels (group), and to a root
//! mean square of 1; and what these share with normalisation over the batch, which has a file of its own.
//!
//! All to mean 0 and variance 1 have one derivative. With `h = g * weight`, `z = (x - mean) * rstd` and means taken over what was
//! normalised together, the input's gradient is `rstd * (h - mean(h) - z * mean(h * z))`. Without a graph to record it is
//! a fused kernel; with one it is the composition below, in which `mean` and `rstd` are results with gradients of their own.

use super::args::{Arg, Args, Read};
use super::formula::Elementwise;
use super::op::Rule::{Composite as C, Elementwise as E, Structured as S};
use super::op::{FUNCTION, NN, Outputs, op};
use super::reduce::{divide, fresh, ints, row_major};
use super::structured::{Context, Save, Structured};
use crate::autograd::mode;
use crate::autograd::node::Grads;
use crate::backend::cpu::normalise;
use crate::backend::{Executable, Operand, Reduce};
use crate::dtype::{Compute, DType};
use crate::error::{Result, bail};
use crate::program::trace;
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout};
use crate::storage::Guards;
use crate::tensor::{Body, Tensor};
use smallvec::{SmallVec, smallvec};
use std::sync::OnceLock;

/// The dtype of statistics: that in which the input is computed.
pub(super) fn wide(x: &Tensor) -> DType {
    x.dtype().compute().dtype()
}

/// Refuses inputs and parameters of dtypes that do not go together: integers, or two compute types.
pub(super) fn check_dtypes(op: &'static str, kernel: &str, x: &Tensor, parameters: [Option<&Tensor>; 2]) -> Result<()> {
    if !x.dtype().is_float() {
        bail!(not_implemented op, "\"{kernel}\" not implemented for '{}'", x.dtype().legacy());
    }
    for p in parameters.into_iter().flatten() {
        if p.dtype() != x.dtype() && !(x.dtype().is_half() && p.dtype() == DType::F32) {
            bail!(runtime op, "expected scalar type {} but found {}", x.dtype().legacy(), p.dtype().legacy());
        }
    }
    Ok(())
}

/// Normalises rows of `n` elements with the kernel. `weight` and `bias` are rows. Returns the result in the input's shape,
/// and mean and reciprocal deviation in shape `stats`.
fn rows(
    op: &'static str,
    x: &Tensor,
    [weight, bias]: [Option<&Tensor>; 2],
    n: usize,
    stats: Dims,
    eps: f64,
) -> Result<[Body; 3]> {
    let x = row_major(op, x)?;
    let parameter = |t: Option<&Tensor>| t.map(|t| row_major(op, t)).transpose();
    let (weight, bias) = (parameter(weight)?, parameter(bias)?);
    let count = crate::shape::numel(&stats);
    let flat = |b: &Body, sizes: [usize; 2]| {
        b.with_layout(Layout { offset: b.layout.offset, ..Layout::contiguous(sizes[..].into()) })
    };
    let y = fresh(op, x.layout.sizes.clone(), x.dtype)?;
    let wide = x.dtype.compute().dtype();
    let (mean, rstd) = (fresh(op, stats.clone(), wide)?, fresh(op, stats, wide)?);
    {
        let views = [flat(&x, [count, n]), flat(&y, [count, n]), flat(&mean, [count, 1]), flat(&rstd, [count, 1])];
        let [w, b] = [&weight, &bias].map(|p| p.as_ref().map(|p| flat(p, [1, n])));
        let reads = [Some(&x), weight.as_ref(), bias.as_ref()];
        let _guards = Guards::take(reads.into_iter().flatten().map(|b| &b.storage), []);
        let [x, y, mean, rstd] = views.each_ref().map(Body::operand);
        normalise::forward(
            &x,
            w.as_ref().map(Body::operand).as_ref(),
            b.as_ref().map(Body::operand).as_ref(),
            &y,
            &mean,
            &rstd,
            eps,
        );
    }
    Ok([y, mean, rstd])
}

/// What a normalisation's derivative is taken over: the input seen in `space`, of whose dimensions `together` were
/// normalised as one.
pub(super) struct Space {
    pub(super) space: Dims,
    pub(super) together: Dims,
    /// Whether there is a weight for each place of what was normalised together, instead of one for each channel.
    pub(super) by_place: bool,
}

impl Space {
    fn count(&self) -> f64 {
        self.together.iter().map(|&d| self.space[d]).product::<usize>() as f64
    }
}

/// The gradient of the input from that of the result, which `weight` multiplied (seen beside the input), and those of mean
/// and reciprocal deviation.
fn input_gradient(c: &Context<'_>, weight: Option<Tensor>, s: &Space) -> Result<Option<Tensor>> {
    let (x, mean, rstd) = (c.input(0)?, c.output(1)?, c.output(2)?);
    let sizes = c.sizes(0);
    let rows = s.together[..] == [s.space.len() - 1];
    let plain = c.grad(1).is_none() && c.grad(2).is_none() && !mode::is_grad_enabled();
    let h = match (c.grad(0), weight) {
        (Some(g), Some(w)) if rows && plain && s.by_place => {
            return fused(&g, &x, &mean, &rstd, Some(&w)).map(Some);
        }
        (Some(g), Some(w)) => Some(g.mul(&w)?),
        (g, _) => g,
    };
    if let (Some(h), true, true) = (&h, rows, plain) {
        return fused(h, &x, &mean, &rstd, None).map(Some);
    }
    let n = s.count();
    let stat = |t: &Tensor| t.reshape(&super::reduce::aligned(&s.space, &s.together));
    let (mean, rstd) = (stat(&mean)?, stat(&rstd)?);
    let z = x.reshape(&s.space)?.standardised(&mean, &rstd)?;
    let mut total: Option<Tensor> = None;
    let mut add = |t: Tensor| -> Result<()> {
        total = Some(match &total {
            Some(sum) => super::sum_of(sum, &t)?,
            None => t,
        });
        Ok(())
    };
    if let Some(h) = h {
        let h = h.reshape(&s.space)?;
        let a = divide(&h.sum(&s.together[..], true)?, n)?;
        let b = divide(&h.sum_product(&z, ints(&s.together))?, n)?;
        add(h.centred(&z, &rstd, &a, &b)?)?;
    }
    if let Some(g) = c.grad(1) {
        add(divide(&stat(&g)?, n)?.expand(ints(&s.space))?)?;
    }
    if let Some(g) = c.grad(2) {
        let g = divide(&stat(&g)?.mul(&rstd)?.mul(&rstd)?, -n)?;
        add(z.mul(&g)?)?;
    }
    total.map(|t| super::to_dtype(&t.reshape(sizes)?, c.dtype(0))).transpose()
}

/// The kernel for rows, which `weight` multiplied.
fn fused(g: &Tensor, x: &Tensor, mean: &Tensor, rstd: &Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
    let op = "layer_norm";
    let (sizes, count) = (x.sizes(), mean.numel());
    let n = x.numel() / count.max(1);
    let bodies = [row_major(op, g)?, row_major(op, x)?, row_major(op, mean)?, row_major(op, rstd)?];
    let weight = weight.map(|w| row_major(op, w)).transpose()?;
    let out = fresh(op, sizes, x.dtype())?;
    {
        let _guards = Guards::take(bodies.iter().chain(&weight).map(|b| &b.storage), []);
        let flat = |b: &Body, sizes: [usize; 2]| {
            b.with_layout(Layout { offset: b.layout.offset, ..Layout::contiguous(sizes[..].into()) })
        };
        let [g, x, mean, rstd] = [0, 1, 2, 3].map(|k| flat(&bodies[k], [count, if k < 2 { n } else { 1 }]));
        let (row, out) = (weight.as_ref().map(|w| flat(w, [1, n])), flat(&out, [count, n]));
        let row = row.as_ref().map(Body::operand);
        normalise::backward(&g.operand(), &x.operand(), &mean.operand(), &rstd.operand(), row.as_ref(), &out.operand());
    }
    Ok(Tensor::from_body(out))
}

/// Gradients of weight and bias, seen in the input's shape as `[1.., kept.., 1..]`: sums over the other dimensions.
pub(super) fn parameter_gradients(
    c: &Context<'_>,
    g: &Tensor,
    s: &Space,
    over: &[usize],
) -> Result<[Option<Tensor>; 2]> {
    let sizes = c.sizes(0);
    let fit = |t: Tensor, k: usize| super::to_dtype(&t.reshape(c.sizes(k))?, c.dtype(k));
    let weight = if c.needs(1) {
        let stat = |t: Tensor| t.reshape(&super::reduce::aligned(&s.space, &s.together));
        let (mean, rstd) = (stat(c.output(1)?)?, stat(c.output(2)?)?);
        let x = c.input(0)?;
        let product = if s.space[..] == *sizes {
            g.weigh_standardised(&x, &mean, &rstd, ints(over))?
        } else {
            let z = x.reshape(&s.space)?.standardised(&mean, &rstd)?.reshape(sizes)?;
            g.sum_product(&z, ints(over))?
        };
        Some(fit(product, 1)?)
    } else {
        None
    };
    let bias =
        if c.needs(2) { Some(fit(if over.is_empty() { g.clone() } else { g.sum(over, true)? }, 2)?) } else { None };
    Ok([weight, bias])
}

/// A parameter of one value per channel (dimension 1), seen beside an input.
pub(super) fn per_channel(p: &Tensor, rank: usize) -> Result<Tensor> {
    let mut sizes = Dims::filled(1, rank);
    sizes[1] = p.numel();
    p.reshape(&sizes)
}

/// All dimensions but the channels'.
pub(super) fn but_channels(rank: usize) -> Dims {
    (0..rank).filter(|&d| d != 1).collect()
}

/// `y * weight + bias`, or `(y - mean) * rstd * weight + bias`, in one pass: operands broadcast to `y`, absent ones change
/// nothing.
pub(super) fn affine(
    op: &'static str,
    y: &Body,
    stats: Option<[&Body; 2]>,
    parameters: [Option<&Tensor>; 2],
) -> Result<Body> {
    static PROGRAMS: [[OnceLock<Executable>; 8]; 2] = [const { [const { OnceLock::new() }; 8] }; 2];
    let ty = y.dtype.compute();
    let bodies: [Option<std::sync::Arc<Body>>; 2] = parameters.map(|p| p.map(Tensor::body));
    let [weight, bias] = &bodies;
    let which = stats.is_some() as usize | (weight.is_some() as usize) << 1 | (bias.is_some() as usize) << 2;
    let mut inputs: SmallVec<[Operand<'_>; 5]> = smallvec![y.operand()];
    inputs.extend(stats.iter().flatten().map(|b| b.operand()));
    inputs.extend(bodies.iter().flatten().map(|b| b.operand()));
    let program = PROGRAMS[(ty == Compute::F64) as usize][which].get_or_init(|| {
        Executable::new(trace(&vec![ty; inputs.len()], &[], |x, _| {
            let mut next = x[1..].iter().copied();
            let mut take = || next.next().unwrap_or(x[0]);
            let mut y = x[0];
            if which & 1 == 1 {
                y = (y - take()) * take();
            }
            if which & 2 == 2 {
                y = y * take();
            }
            vec![if which & 4 == 4 { y + take() } else { y }]
        }))
    });
    let out = fresh(op, y.layout.sizes.clone(), y.dtype)?;
    program.run(op, &y.layout.sizes, &inputs, &[], &[out.operand()], Reduce::Sum)?;
    Ok(out)
}

/// The dimensions that `normalized_shape` (argument 1) covers: from which on.
fn covered(op: &'static str, a: &Args, form: &str) -> Result<usize> {
    let (sizes, shape) = (a.tensor(0)?.sizes(), a.ints(1)?);
    let shown = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    if shape.is_empty() {
        bail!(runtime op, "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = []");
    }
    let fits =
        shape.len() <= sizes.len() && shape.iter().rev().zip(sizes.iter().rev()).all(|(&s, &have)| s == have as i64);
    if !fits {
        bail!(runtime op, "Given normalized_shape=[{shown}], expected input with shape [*{form}{shown}], but got input of size{sizes:?}");
    }
    for (p, what) in [(2, "weight"), (3, "bias")] {
        if let Some(t) =
            a.opt_tensor(p).map(Tensor::sizes).filter(|t| t.iter().map(|&s| s as i64).ne(shape.iter().copied()))
        {
            bail!(runtime op, "Expected {what} to be of same shape as normalized_shape, but got {what} of shape {t:?} and normalized_shape = [{shown}]");
        }
    }
    Ok(sizes.len() - shape.len())
}

fn layer_norm(a: &Args) -> Result<Outputs> {
    let op = "layer_norm";
    let x = a.tensor(0)?;
    let from = covered(op, a, ", ")?;
    let parameters = [a.opt_tensor(2), a.opt_tensor(3)];
    check_dtypes(op, "LayerNormKernelImpl", x, parameters)?;
    let sizes = x.sizes();
    let stats = sizes.iter().enumerate().map(|(d, &s)| if d < from { s } else { 1 }).collect();
    let n = sizes[from..].iter().product();
    Ok(rows(op, x, parameters, n, stats, a.float(4)?)?.map(Tensor::from_body).into_iter().collect())
}

fn layer_norm_backward(c: &Context<'_>) -> Result<Grads> {
    let sizes = c.sizes(0);
    let from = sizes.len() - c.ints(1)?.len();
    // The normalised dimensions as one, those before them as another.
    let (outer, inner) = (sizes[..from].iter().product(), sizes[from..].iter().product());
    let rows = Space { space: [outer, inner][..].into(), together: [1][..].into(), by_place: true };
    let whole = Space { space: sizes.into(), together: (from..sizes.len()).collect(), by_place: true };
    let [weight, bias] = match c.grad(0) {
        Some(g) => parameter_gradients(c, &g, &whole, &(0..from).collect::<Vec<_>>())?,
        None => [None, None],
    };
    let input = if c.needs(0) { input_gradient(c, c.opt_input(1)?, &rows)? } else { None };
    Ok(smallvec![input, weight, bias])
}

/// Channels, and the space of groups: `[N, groups, rest]`.
fn grouped(op: &'static str, sizes: &[usize], groups: i64) -> Result<Space> {
    if sizes.len() < 2 {
        bail!(runtime op, "Expected at least 2 dimensions for input tensor but received {}", sizes.len());
    }
    if groups <= 0 {
        bail!(runtime op, "Expected num groups to be greater than 0, got {groups}");
    }
    let g = groups as usize;
    if !sizes[1].is_multiple_of(g) {
        bail!(runtime op, "Expected number of channels in input to be divisible by num_groups, but got input of shape {sizes:?} and num_groups={groups}");
    }
    let rest = sizes[1] / g * sizes[2..].iter().product::<usize>();
    Ok(Space { space: [sizes[0], g, rest][..].into(), together: [2][..].into(), by_place: false })
}

fn group_norm(a: &Args) -> Result<Outputs> {
    let op = "group_norm";
    let x = a.tensor(0)?;
    let sizes = x.sizes();
    let s = grouped(op, &sizes, a.int(1)?)?;
    let parameters = [a.opt_tensor(2), a.opt_tensor(3)];
    for (p, what) in parameters.iter().zip(["weight", "bias"]) {
        if let Some(t) = p.map(|p| p.sizes()).filter(|t| t[..] != sizes[1..2]) {
            bail!(runtime op, "Expected {what} to be a vector of size equal to the number of channels in input, but got {what} of shape {t:?} and input of shape {sizes:?}");
        }
    }
    check_dtypes(op, "GroupNormKernelImpl", x, parameters)?;
    let [y, mean, rstd] = rows(op, x, [None, None], s.space[2], s.space[..2].into(), a.float(4)?)?;
    let y = match parameters {
        [None, None] => y,
        [weight, bias] => {
            let beside = |p: Option<&Tensor>| p.map(|p| per_channel(p, sizes.len())).transpose();
            let (weight, bias) = (beside(weight)?, beside(bias)?);
            affine(op, &y, None, [weight.as_ref(), bias.as_ref()])?
        }
    };
    Ok([y, mean, rstd].map(Tensor::from_body).into_iter().collect())
}

fn group_norm_backward(c: &Context<'_>) -> Result<Grads> {
    let sizes = c.sizes(0);
    channel_backward(c, &grouped("group_norm", sizes, c.int(1)?)?)
}

/// Gradients where weight and bias are per channel.
pub(super) fn channel_backward(c: &Context<'_>, s: &Space) -> Result<Grads> {
    let rank = c.sizes(0).len();
    let [weight, bias] = match c.grad(0) {
        Some(g) => parameter_gradients(c, &g, s, &but_channels(rank))?,
        None => [None, None],
    };
    let input = if c.needs(0) { input_gradient(c, channel_weight(c, rank)?, s)? } else { None };
    Ok(smallvec![input, weight, bias])
}

/// The weight of channels, if there is one, seen beside the input.
pub(super) fn channel_weight(c: &Context<'_>, rank: usize) -> Result<Option<Tensor>> {
    c.opt_input(1)?.map(|w| per_channel(&w, rank)).transpose()
}

/// `x / sqrt(mean(x^2) + eps) * weight`, half types in float32.
fn rms_norm(a: &Args) -> Result<Outputs> {
    let op = "rms_norm";
    let x = a.tensor(0)?;
    let from = covered(op, a, "")?;
    check_dtypes(op, "rms_norm", x, [a.opt_tensor(2), None])?;
    let eps = a.opt_number(3).map_or(
        match x.dtype() {
            DType::F64 => f64::EPSILON,
            _ => f32::EPSILON as f64,
        },
        Scalar::to_f64,
    );
    let dims: Dims = (from..x.rank()).collect();
    let n = dims.iter().map(|&d| x.sizes()[d]).product::<usize>() as f64;
    let x_wide = super::to_dtype(x, wide(x))?;
    let scale = divide(&x_wide.sum_product(&x_wide, ints(&dims))?, n)?.add(eps)?.rsqrt()?;
    let y = match a.opt_tensor(2) {
        Some(w) => x_wide.times_two(&scale, &super::to_dtype(w, wide(x))?)?,
        None => x_wide.mul(&scale)?,
    };
    Ok(smallvec![super::to_dtype(&y, x.dtype())?])
}

pub(super) fn first(mut outputs: Outputs) -> Outputs {
    outputs.truncate(1);
    outputs
}

op! {
    /// Normalises the last dimensions, which must be `normalized_shape`, to mean 0 and (biased) variance 1, then multiplies
    /// by `weight` and adds `bias`, both of that shape (Ba, Kiros & Hinton 2016).
    ///
    /// # Errors
    /// `RuntimeError` for shapes or dtypes that do not fit, `NotImplementedError` for integers.
    LAYER_NORM layer_norm(self, normalized_shape: Ints, weight: OptTensor = None, bias: OptTensor = None, eps: Float = 1e-5) -> Tensor = "", NN | FUNCTION,
        C(|a| super::apply::call(&NATIVE_LAYER_NORM, a).map(first)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 2])), Arg::Ints([2][..].into()), Arg::None, Arg::None, Arg::Float(0.1)]];
    /// [`layer_norm`](Self::layer_norm), and the mean and reciprocal deviation of what was normalised together.
    ///
    /// # Errors
    /// As [`layer_norm`](Self::layer_norm).
    NATIVE_LAYER_NORM native_layer_norm(self, normalized_shape: Ints, weight: OptTensor, bias: OptTensor, eps: Float) -> Vec<Tensor> = "NativeLayerNormBackward0", FUNCTION,
        S(Structured {
            forward: layer_norm,
            backward: Some(layer_norm_backward),
            saves: &[Save::Input(0), Save::Input(1), Save::Output(1), Save::Output(2)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Ints([4][..].into()), Arg::Tensor(s.t(&[4])), Arg::Tensor(s.t(&[4])), Arg::Float(0.1)],
            smallvec![Arg::Tensor(s.t(&[2, 2, 3])), Arg::Ints([2, 3][..].into()), Arg::None, Arg::Tensor(s.t(&[2, 3])), Arg::Float(0.1)],
        ];
    /// Normalises groups of channels (dimension 1) of each sample to mean 0 and variance 1, then multiplies by `weight` and
    /// adds `bias`, one value per channel (Wu & He 2018).
    ///
    /// # Errors
    /// `RuntimeError` for shapes or dtypes that do not fit, `NotImplementedError` for integers.
    GROUP_NORM group_norm(self, num_groups: Int, weight: OptTensor = None, bias: OptTensor = None, eps: Float = 1e-5) -> Tensor = "", NN | FUNCTION,
        C(|a| super::apply::call(&GROUP_NORM_RAW, a).map(first)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4])), Arg::Int(2), Arg::None, Arg::None, Arg::Float(0.1)]];
    /// [`group_norm`](Self::group_norm), and the mean and reciprocal deviation of each group.
    GROUP_NORM_RAW group_norm_raw as "native_group_norm"(self, num_groups: Int, weight: OptTensor, bias: OptTensor, eps: Float) -> Vec<Tensor> = "NativeGroupNormBackward0", 0,
        S(Structured {
            forward: group_norm,
            backward: Some(group_norm_backward),
            saves: &[Save::Input(0), Save::Input(1), Save::Output(1), Save::Output(2)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 4, 3])), Arg::Int(2), Arg::Tensor(s.t(&[4])), Arg::Tensor(s.t(&[4])), Arg::Float(0.1)],
            smallvec![Arg::Tensor(s.t(&[1, 2, 2, 2])), Arg::Int(1), Arg::None, Arg::None, Arg::Float(0.1)],
        ];
    /// Divides by the root mean square over the last dimensions, which must be `normalized_shape`, then multiplies by
    /// `weight` (Zhang & Sennrich 2019). `eps` is that of float32 (float64 for float64) if not given.
    ///
    /// # Errors
    /// As [`layer_norm`](Self::layer_norm).
    RMS_NORM rms_norm(self, normalized_shape: Ints, weight: OptTensor = None, eps: OptFloat = None) -> Tensor = "", NN | FUNCTION,
        C(rms_norm),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 2])), Arg::Ints([2][..].into()), Arg::Tensor(s.t(&[2])), Arg::Float(0.1)],
            smallvec![Arg::Tensor(s.t(&[2, 2, 2])), Arg::Ints([2, 2][..].into()), Arg::None, Arg::None],
        ];

    // What the derivatives above are written with.

    /// `(input - mean) * rstd`.
    STANDARDISED standardised(self, mean: Tensor, rstd: Tensor) -> Tensor = "StandardisedBackward0", 0,
        E(Elementwise::numeric(|f| (f.x(0) - f.x(1)) * f.x(2)));
    /// `rstd * (input - a - z * b)`.
    CENTRED centred(self, z: Tensor, rstd: Tensor, a: Tensor, b: Tensor) -> Tensor = "CentredBackward0", 0,
        E(Elementwise::numeric(|f| f.x(2) * (f.x(0) - f.x(3) - f.x(1) * f.x(4))));
    /// The sum over dimensions, kept as 1, of `input * (x - mean) * rstd`.
    WEIGH_STANDARDISED weigh_standardised(self, x: Tensor, mean: Tensor, rstd: Tensor, dims: Ints = ()) -> Tensor = "WeighStandardisedBackward0", 0,
        E(Elementwise::numeric(|f| f.x(0) * ((f.x(1) - f.x(2)) * f.x(3))).reduce(|a, sizes| super::reduce::over_dims(a, sizes, 4))),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 1])), Arg::Tensor(s.t(&[2, 1])), Arg::Ints([0][..].into())]];
    /// `input * a * b`.
    TIMES_TWO times_two(self, a: Tensor, b: Tensor) -> Tensor = "TimesTwoBackward0", 0, E(Elementwise::numeric(|f| f.x(0) * f.x(1) * f.x(2)));
}
