//! Normalisation over the batch, and over each channel of each sample (instance): channels to mean 0 and variance 1, with
//! running statistics. The derivative is shared with layer and group normalisation.

use super::args::{Arg, Args, Read};
use super::moments::{central, rounded};
use super::norm::{
    Space, affine, but_channels, channel_backward, channel_weight, check_dtypes, first, parameter_gradients,
    per_channel, wide,
};
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, NN, Outputs, op};
use super::reduce::{PerType, finish, ints, row_major};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::Dims;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;

/// Batch normalisation: arguments `(input, weight, bias, running_mean, running_var, training, momentum, eps)`.
fn batch_norm(a: &Args) -> Result<Outputs> {
    static MEAN: [PerType; 2] = [const { PerType::new() }; 2];
    static RSTD: [PerType; 2] = [const { PerType::new() }; 2];
    static RUNNING: [PerType; 2] = [const { PerType::new() }; 2];
    let op = "batch_norm";
    let x = a.tensor(0)?;
    let sizes = x.sizes();
    let rank = sizes.len();
    if rank < 2 {
        bail!(runtime op, "Expected at least 2 dimensions for input tensor but received {rank}");
    }
    let parameters = [a.opt_tensor(1), a.opt_tensor(2)];
    let running = [a.opt_tensor(3), a.opt_tensor(4)];
    for (p, what) in parameters.iter().chain(&running).zip(["weight", "bias", "running_mean", "running_var"]) {
        if let Some(n) = p.map(Tensor::numel).filter(|n| *n != sizes[1]) {
            bail!(runtime op, "{what} should contain {} elements not {n}", sizes[1]);
        }
    }
    check_dtypes(op, "batch_norm", x, parameters)?;
    if running.iter().flatten().any(|t| t.requires_grad()) {
        bail!(runtime op, "The function 'native_batch_norm' is not differentiable with respect to argument 'running_mean'. This input cannot have requires_grad True.");
    }
    let (training, momentum, eps) = (a.bool(5), a.float(6)?, a.float(7)?);
    let over = but_channels(rank);
    let (mean, rstd) = if training {
        let (mean, squares) = central(op, x, &over)?;
        let n = over.iter().map(|&d| sizes[d]).product::<usize>() as f64;
        let numbers = [Scalar::Float(n), Scalar::Float(eps)];
        let rstd = rounded(op, &RSTD, &squares, &numbers, wide(x), |v, s| (v / s[0] + s[1]).sqrt().reciprocal())?;
        for (running, fresh, divisor) in [(running[0], &mean, 1.0), (running[1], &squares, n - 1.0)] {
            let Some(t) = running else { continue };
            let flat = finish(fresh.clone(), &over, false);
            let update = t.mul(1.0 - momentum)?.add(&super::to_dtype(&flat.mul(momentum / divisor)?, t.dtype())?)?;
            super::inplace::assign(op, t, &update)?;
        }
        (rounded(op, &MEAN, &mean, &[], wide(x), |m, _| m)?, rstd)
    } else {
        let [Some(mean), Some(var)] = running else {
            bail!(runtime op, "running_mean must be defined in evaluation mode");
        };
        // Copies, which a later update of the running statistics does not reach.
        let beside =
            |t: &Tensor| -> Result<Body> { Ok((*per_channel(&super::to_dtype(t, DType::F64)?, rank)?.body()).clone()) };
        let rstd = rounded(op, &RUNNING, &beside(var)?, &[Scalar::Float(eps)], wide(x), |v, s| {
            (v + s[0]).sqrt().reciprocal()
        })?;
        (rounded(op, &MEAN, &beside(mean)?, &[], wide(x), |m, _| m)?, rstd)
    };
    let beside = |p: Option<&Tensor>| p.map(|p| per_channel(p, rank)).transpose();
    let (weight, bias) = (beside(parameters[0])?, beside(parameters[1])?);
    let x = row_major(op, x)?;
    let y = affine(op, &x, Some([&mean, &rstd]), [weight.as_ref(), bias.as_ref()])?;
    let vector = |b: Body| finish(b, &over, false);
    Ok(smallvec![Tensor::from_body(y), vector(mean), vector(rstd)])
}

fn batch_norm_backward(c: &Context<'_>) -> Result<Grads> {
    let sizes = c.sizes(0);
    let s = Space { space: sizes.into(), together: but_channels(sizes.len()), by_place: false };
    if c.bool(5) {
        return channel_backward(c, &s);
    }
    // The running statistics do not depend on the input.
    let Some(g) = c.grad(0) else { return Ok(smallvec![None, None, None]) };
    let [weight, bias] = parameter_gradients(c, &g, &s, &but_channels(sizes.len()))?;
    let input = if c.needs(0) {
        let scale = per_channel(&c.output(2)?, sizes.len())?;
        let scale = match channel_weight(c, sizes.len())? {
            Some(w) => scale.mul(&w)?,
            None => scale,
        };
        Some(super::to_dtype(&g.mul(&scale)?, c.dtype(0))?)
    } else {
        None
    };
    Ok(smallvec![input, weight, bias])
}

/// Channels of one value each cannot be normalised over a batch.
fn check_batch(op: &'static str, n: usize, sizes: &[usize]) -> Result<()> {
    if n == 1 {
        bail!(value op, "Expected more than 1 value per channel when training, got input size torch.Size({sizes:?})");
    }
    Ok(())
}

/// Instance normalisation as batch normalisation of `[1, N * C, ...]`. Arguments `(input, running_mean, running_var, weight,
/// bias, use_input_stats, momentum, eps)`.
fn instance_norm(a: &Args) -> Result<Outputs> {
    let op = "instance_norm";
    let x = a.tensor(0)?;
    let sizes = x.sizes();
    if sizes.len() < 3 {
        bail!(value op, "Expected more than 1 spatial element when training, got input size torch.Size({sizes:?})");
    }
    let (n, channels) = (sizes[0], sizes[1]);
    if a.bool(5) && sizes[2..].iter().product::<usize>() == 1 {
        bail!(value op, "Expected more than 1 spatial element when training, got input size torch.Size({sizes:?})");
    }
    let repeat = |p: Option<&Tensor>| -> Result<Option<Tensor>> {
        let Some(p) = p else { return Ok(None) };
        if p.numel() != channels {
            bail!(runtime op, "weight should contain {channels} elements not {}", p.numel());
        }
        p.reshape(&[1, channels][..])?.expand(ints(&[n, channels]))?.reshape((n * channels) as i64).map(Some)
    };
    let running: [Option<Tensor>; 2] = [repeat(a.opt_tensor(1))?, repeat(a.opt_tensor(2))?];
    let mut apart = Dims::from_slice(&[1, n * channels]);
    sizes[2..].iter().for_each(|&s| apart.push(s));
    let args = smallvec![
        Arg::Tensor(x.reshape(&apart)?),
        repeat(a.opt_tensor(3))?.into(),
        repeat(a.opt_tensor(4))?.into(),
        running[0].clone().into(),
        running[1].clone().into(),
        a[5].clone(),
        a[6].clone(),
        a[7].clone(),
    ];
    let out = super::apply::call(&NATIVE_BATCH_NORM, &args)?;
    for (own, copies) in [(a.opt_tensor(1), &running[0]), (a.opt_tensor(2), &running[1])] {
        if let (Some(own), Some(copies), true) = (own, copies, a.bool(5)) {
            let mean = crate::autograd::no_grad(|| copies.reshape(&[n, channels][..])?.mean(0usize, false))?;
            super::inplace::assign(op, own, &mean)?;
        }
    }
    Ok(smallvec![out[0].reshape(&sizes)?])
}

op! {
    /// Normalises channels (dimension 1) to mean 0 and variance 1 over all other dimensions, then multiplies by `weight` and
    /// adds `bias` (Ioffe & Szegedy 2015). In training the statistics are the batch's, and the running ones move towards
    /// them by `momentum`; else the running ones are used.
    ///
    /// # Errors
    /// `ValueError` for one value per channel in training, `RuntimeError` for missing running statistics and for shapes or
    /// dtypes that do not fit, `NotImplementedError` for integers.
    BATCH_NORM batch_norm(self, running_mean: OptTensor, running_var: OptTensor, weight: OptTensor = None, bias: OptTensor = None, training: Bool = false, momentum: Float = 0.1, eps: Float = 1e-5) -> Tensor = "", NN,
        C(|a| {
            let sizes = a.tensor(0)?.sizes();
            if a.bool(5) {
                check_batch("batch_norm", sizes.iter().enumerate().filter(|(d, _)| *d != 1).map(|(_, &s)| s).product(), &sizes)?;
            }
            let args = smallvec![a[0].clone(), a[3].clone(), a[4].clone(), a[1].clone(), a[2].clone(), a[5].clone(), a[6].clone(), a[7].clone()];
            super::apply::call(&NATIVE_BATCH_NORM, &args).map(first)
        });
    /// [`batch_norm`](Self::batch_norm), and the mean and reciprocal deviation used.
    ///
    /// # Errors
    /// As [`batch_norm`](Self::batch_norm).
    NATIVE_BATCH_NORM native_batch_norm(self, weight: OptTensor, bias: OptTensor, running_mean: OptTensor, running_var: OptTensor, training: Bool, momentum: Float, eps: Float) -> Vec<Tensor> = "NativeBatchNormBackward0", FUNCTION,
        S(Structured {
            forward: batch_norm,
            backward: Some(|c| {
                let mut grads = batch_norm_backward(c)?;
                grads.resize(c.edges(), None);
                Ok(grads)
            }),
            saves: &[Save::Input(0), Save::Input(1), Save::Output(1), Save::Output(2)],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[4, 2])), Arg::Tensor(s.t(&[2])), Arg::Tensor(s.t(&[2])), Arg::None, Arg::None, Arg::Bool(true), Arg::Float(0.1), Arg::Float(0.1)],
            smallvec![Arg::Tensor(s.t(&[2, 2, 3])), Arg::Tensor(s.t(&[2])), Arg::None, Arg::None, Arg::None, Arg::Bool(true), Arg::Float(0.1), Arg::Float(0.1)],
        ];
    /// Normalises each channel of each sample to mean 0 and variance 1, then multiplies by `weight` and adds `bias` (Ulyanov,
    /// Vedaldi & Lempitsky 2016). Without `use_input_stats` running statistics are used.
    ///
    /// # Errors
    /// As [`batch_norm`](Self::batch_norm).
    INSTANCE_NORM instance_norm(self, running_mean: OptTensor = None, running_var: OptTensor = None, weight: OptTensor = None, bias: OptTensor = None, use_input_stats: Bool = true, momentum: Float = 0.1, eps: Float = 1e-5) -> Tensor = "", NN,
        C(instance_norm),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 2, 3])), Arg::None, Arg::None, Arg::Tensor(s.t(&[2])), Arg::Tensor(s.t(&[2])), Arg::Bool(true), Arg::Float(0.1), Arg::Float(0.1)]];
}
