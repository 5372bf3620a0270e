//! Losses over classes: negative log-likelihood and cross entropy, of class numbers and of class probabilities.

use super::args::{Arg, Args, Read};
use super::formula::{Elementwise, Reduced};
use super::loss::{reduced, reduction};
use super::op::Rule::{Composite as C, Elementwise as E, Structured as S};
use super::op::{NN, Op, Outputs, op};
use super::reduce::{divide, fresh, ints, row_major};
use super::structured::{Context, Save, Structured};
use crate::autograd::node::Grads;
use crate::backend::cpu::classes::Targets;
use crate::dtype::DType;
use crate::error::{Error, Result, bail};
use crate::shape::Dims;
use crate::storage::Guards;
use crate::tensor::Tensor;
use smallvec::smallvec;

/// Where the classes are among a shape's dimensions.
fn class_dim(rank: usize) -> usize {
    (rank > 1) as usize
}

/// Reads targets for scores of a shape.
fn targets(
    op: &'static str,
    target: &Tensor,
    weight: Option<&Tensor>,
    scores: &[usize],
    ignored: i64,
) -> Result<Targets> {
    let along = class_dim(scores.len());
    let positions = scores[along + 1..].iter().product();
    let target = row_major(op, target)?;
    let weight = weight.map(|w| row_major(op, w)).transpose()?;
    let operand = weight.as_ref().map(|w| w.operand());
    let _guards = Guards::take([&target.storage].into_iter().chain(weight.as_ref().map(|w| &w.storage)), []);
    Targets::read(&target.operand(), operand.as_ref(), scores[along], positions, ignored)
        .map_err(|t| Error::index(op, format!("Target {t} is out of bounds.")))
}

/// Checks shapes and dtypes of `nll_loss`.
fn check(op: &'static str, x: &Tensor, target: &Tensor, weight: Option<&Tensor>) -> Result<()> {
    let (sizes, want) = (x.sizes(), target.sizes());
    if sizes.is_empty() {
        bail!(value op, "Expected 1 or more dimensions (got 0)");
    }
    if sizes.len() > 1 && want.first().is_some_and(|n| *n != sizes[0]) {
        bail!(value op, "Expected input batch_size ({}) to match target batch_size ({}).", sizes[0], want[0]);
    }
    if !x.dtype().is_float() {
        bail!(not_implemented op, "\"nll_loss_out_frame\" not implemented for '{}'", x.dtype().legacy());
    }
    if sizes.len() <= 2 && want.len() > 1 {
        bail!(runtime op, "0D or 1D target tensor expected, multi-target not supported");
    }
    if !matches!(target.dtype(), DType::I64 | DType::U8) {
        bail!(runtime op, "expected target dtype to be Long or Byte, but got {}", target.dtype().legacy());
    }
    let positions: Dims =
        sizes.iter().enumerate().filter(|(d, _)| *d != class_dim(sizes.len())).map(|(_, &s)| s).collect();
    let fits = want == positions || (sizes.len() == 1 && want[..] == [1]);
    if !fits {
        bail!(runtime op, "Expected target size {positions:?}, got {want:?}");
    }
    if let Some(w) = weight {
        let classes = sizes[class_dim(sizes.len())];
        if w.sizes()[..] != [classes] {
            bail!(runtime op, "weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: {:?}", w.sizes());
        }
        if w.dtype() != x.dtype() {
            bail!(runtime op, "expected scalar type {} but found {}", x.dtype().legacy(), w.dtype().legacy());
        }
        if w.requires_grad() && crate::autograd::is_grad_enabled() {
            bail!(runtime op, "The function 'nll_loss' is not differentiable with respect to argument 'weight'. This input cannot have requires_grad True.");
        }
    }
    Ok(())
}

/// The loss of log-probabilities: arguments `(input, target, weight, ignore_index, reduction)`.
fn nll(a: &Args) -> Result<Outputs> {
    let op = "nll_loss";
    let x = a.tensor(0)?;
    let targets = targets(op, a.tensor(1)?, a.opt_tensor(2), &x.sizes(), a.int(3)?)?;
    let x = row_major(op, x)?;
    let picked = fresh(op, a.tensor(1)?.sizes(), x.dtype)?;
    {
        let _guards = Guards::take([&x.storage], []);
        targets.pick(&x.operand(), &picked.operand());
    }
    let picked = Tensor::from_body(picked);
    Ok(smallvec![match a.str(4) {
        "mean" => {
            // Summed and divided in the compute type, rounded once.
            let wide = x.dtype.compute().dtype();
            super::to_dtype(&divide(&super::to_dtype(&picked, wide)?.sum_all()?, targets.total())?, x.dtype)?
        }
        other => reduced(&picked, other)?,
    }])
}

fn nll_backward(c: &Context<'_>) -> Result<Grads> {
    let for_x = c.when(0, |g| {
        let (target, weight) = (c.index(1)?, c.opt_input(1)?);
        let g = match c.str(4) {
            "mean" => divide(g, targets("nll_loss", &target, weight.as_ref(), c.sizes(0), c.int(3)?)?.total())?,
            _ => g.clone(),
        };
        let g = if c.str(4) == "none" { g } else { g.expand(ints(&target.sizes()))? };
        g.class_put(&target, weight, ints(c.sizes(0)), c.int(3)?)
    })?;
    Ok(smallvec![for_x, None])
}

/// `cross_entropy`: arguments `(input, target, weight, ignore_index, reduction, label_smoothing)`.
fn cross_entropy(a: &Args) -> Result<Outputs> {
    let op = "cross_entropy";
    let (x, target, weight) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2));
    let (ignored, reduction, smoothing) = (a.int(3)?, a.str(4), a.float(5)?);
    if x.rank() == 0 {
        bail!(value op, "Expected 1 or more dimensions (got 0)");
    }
    if !(0.0..=1.0).contains(&smoothing) {
        bail!(runtime op, "label_smoothing must be between 0.0 and 1.0. Got: {smoothing}");
    }
    let along = class_dim(x.rank());
    let classes = x.sizes()[along];
    // A weight per class, seen beside scores.
    let mut beside = Dims::filled(1, x.rank());
    beside[along] = classes;
    let beside = |w: &Tensor| w.reshape(&beside);
    if x.sizes() == target.sizes() {
        if !target.dtype().is_float() {
            bail!(runtime op, "Expected floating point type for target with class probabilities, got {}", target.dtype().legacy());
        }
        if ignored >= 0 {
            bail!(runtime op, "ignore_index is not supported for floating point target");
        }
        let target = match smoothing {
            0.0 => target.clone(),
            s => target.mul(1.0 - s)?.add(s / classes as f64)?,
        };
        let weight = weight.map(beside).transpose()?;
        let log = x.log_softmax(along as i64, None)?;
        return super::apply::call(
            &SOFT_NLL,
            &smallvec![Arg::Tensor(log), Arg::Tensor(target), weight.into(), Arg::Str(reduction.into())],
        );
    }
    let log = x.log_softmax(along as i64, None)?;
    let call = |row: &'static Op, args: Args| -> Result<Tensor> { super::apply::call_into(row, args) };
    let loss =
        call(&NLL_LOSS, smallvec![Arg::Tensor(log.clone()), a[1].clone(), a[2].clone(), a[3].clone(), a[4].clone()])?;
    if smoothing == 0.0 {
        return Ok(smallvec![loss]);
    }
    let counts = target.ne(ignored)?;
    let total = targets(op, target, weight, &log.sizes(), ignored)?.total();
    let counts = if x.rank() > 1 { insert(&counts, along)? } else { counts };
    let counts = super::to_dtype(&counts, log.dtype())?;
    let weight = weight.map(beside).transpose()?;
    let spread = call(
        &SPREAD_NLL,
        smallvec![Arg::Tensor(log), Arg::Tensor(counts), weight.into(), Arg::Float(total), Arg::Str(reduction.into())],
    )?;
    Ok(smallvec![loss.mul(1.0 - smoothing)?.add(&spread.mul(smoothing / classes as f64)?)?])
}

/// A dimension of size 1 put in.
fn insert(t: &Tensor, at: usize) -> Result<Tensor> {
    let mut sizes = t.sizes();
    sizes.insert(at, 1);
    t.reshape(&sizes)
}

/// What a loss that is summed over classes is reduced to; a mean is divided by `count`.
fn over_classes(name: &str, sizes: &[usize], count: f64) -> Result<Option<Reduced>> {
    Ok(Some(match reduction(name, sizes)? {
        None => Reduced::over(sizes, &[class_dim(sizes.len())], false),
        Some(r) => Reduced { divisor: r.divisor.map(|_| count), ..r },
    }))
}

macro_rules! nll_samples {
    ($sizes:expr, $targets:expr) => {
        |s| {
            ["mean", "sum", "none"]
                .map(|r| {
                    smallvec![
                        Arg::Tensor(s.t(&$sizes)),
                        Arg::Tensor(s.ints(&$targets, 0, 3)),
                        Arg::None,
                        Arg::Int(1),
                        Arg::Str(r.into())
                    ]
                })
                .into()
        }
    };
}

op! {
    /// The negative log-likelihood of class numbers `target` (int64 or uint8) under log-probabilities `input`: `[C]` with one
    /// target, `[N, C]` with `[N]`, or `[N, C, ...]` with `[N, ...]`. Targets equal to `ignore_index` do not count; `weight`
    /// says how much each class counts, and the mean is divided by what the targets weigh together.
    ///
    /// # Errors
    /// `IndexError` for a target that is no class, `ValueError` and `RuntimeError` for shapes and dtypes that do not fit.
    NLL_LOSS nll_loss(self, target: Index, weight: OptTensor = None, ignore_index: Int = -100, reduction: Str = "mean") -> Tensor = "", NN,
        C(|a| {
            let x = a.tensor(0)?;
            check("nll_loss", x, a.tensor(1)?, a.opt_tensor(2))?;
            super::apply::call(if x.rank() > 2 { &NLL_LOSS_2D_RAW } else { &NLL_LOSS_RAW }, a)
        }),
        nll_samples!([3], [1]);
    /// The cross entropy of scores `input` and `target`: class numbers, as [`nll_loss`](Self::nll_loss) takes them, or
    /// probabilities in the shape of `input`. `label_smoothing` is the share of each target that is spread over all classes.
    ///
    /// # Errors
    /// As [`nll_loss`](Self::nll_loss); `RuntimeError` for a `label_smoothing` outside [0, 1].
    CROSS_ENTROPY cross_entropy(self, target: Index, weight: OptTensor = None, ignore_index: Int = -100, reduction: Str = "mean", label_smoothing: Float = 0.0) -> Tensor = "", NN,
        C(cross_entropy),
        |s| ["mean", "sum", "none"]
            .map(|r| smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Tensor(s.ints(&[2, 2], 0, 3)), Arg::None, Arg::Int(1), Arg::Str(r.into()), Arg::Float(0.1)])
            .into();

    // The kernels and formulas behind them.

    /// [`nll_loss`](Self::nll_loss) of vectors and matrices, checked.
    NLL_LOSS_RAW nll_loss_raw as "nll_loss_nd"(self, target: Index, weight: OptTensor, ignore_index: Int, reduction: Str) -> Tensor = "NllLossBackward0", 0,
        S(Structured { forward: nll, backward: Some(nll_backward), saves: &[Save::Index(1), Save::Input(1)] }),
        nll_samples!([4, 3], [4]);
    /// [`nll_loss`](Self::nll_loss) of more dimensions, checked.
    NLL_LOSS_2D_RAW nll_loss_2d_raw as "nll_loss2d"(self, target: Index, weight: OptTensor, ignore_index: Int, reduction: Str) -> Tensor = "NllLoss2DBackward0", 0,
        S(Structured { forward: nll, backward: Some(nll_backward), saves: &[Save::Index(1), Save::Input(1)] }),
        nll_samples!([2, 3, 2], [2, 2]);
    /// Zeros of `size` with `-weight * input` at each target: the transpose of picking the targets' scores.
    CLASS_PUT class_put(self, target: Index, weight: OptTensor, size: Ints, ignore_index: Int) -> Tensor = "NllLossBackwardBackward0", 0,
        S(Structured {
            forward: |a| {
                let op = "nll_loss";
                let sizes: Dims = a.ints(3)?.iter().map(|&s| s as usize).collect();
                let targets = targets(op, a.tensor(1)?, a.opt_tensor(2), &sizes, a.int(4)?)?;
                let g = row_major(op, a.tensor(0)?)?;
                let out = super::zeros(&sizes, g.dtype)?;
                {
                    let _guards = Guards::take([&g.storage], []);
                    targets.put(&g.operand(), &out.body().operand());
                }
                Ok(smallvec![out])
            },
            backward: Some(|c| {
                let for_g = c.when(0, |h| {
                    let weight = c.opt_input(1)?;
                    let row = if c.ints(3)?.len() > 2 { &NLL_LOSS_2D_RAW } else { &NLL_LOSS_RAW };
                    super::apply::call_into(row, smallvec![Arg::Tensor(h.clone()), Arg::Tensor(c.index(1)?), weight.into(), Arg::Int(c.int(4)?), Arg::Str("none".into())])
                })?;
                Ok(smallvec![for_g, None])
            }),
            saves: &[Save::Index(1), Save::Input(1)],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 2])), Arg::Tensor(s.ints(&[2, 2], 0, 3)), Arg::None, Arg::Ints([2, 3, 2][..].into()), Arg::Int(1)]];
    /// `-input * target * weight` of log-probabilities and probabilities, summed over classes; a mean is divided by the
    /// number of targets.
    SOFT_NLL soft_nll as "cross_entropy"(self, target: Tensor, weight: OptTensor, reduction: Str = "mean") -> Tensor = "SoftNllLossBackward0", 0,
        E(Elementwise::float_only(|f| {
            let loss = -(f.x(0) * f.x(1));
            if f.has(2) { loss * f.x(2) } else { loss }
        })
        .reduce(|a, sizes| {
            let classes = sizes.get(class_dim(sizes.len())).copied().unwrap_or(1);
            let count = sizes.iter().product::<usize>() as f64 / classes as f64;
            over_classes(a.str(3), sizes, count)
        })),
        |s| ["mean", "sum", "none"]
            .map(|r| smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Tensor(s.between(&[2, 3, 2], 0.1, 0.9)), Arg::Tensor(s.between(&[3, 1], 0.2, 1.0)), Arg::Str(r.into())])
            .into();
    /// `-input * weight` of log-probabilities where `counts` is 1, summed over classes; a mean is divided by `total`.
    SPREAD_NLL spread_nll as "cross_entropy"(self, counts: Tensor, weight: OptTensor, total: Float, reduction: Str = "mean") -> Tensor = "SpreadNllLossBackward0", 0,
        E(Elementwise::float_only(|f| {
            let x = f.x(0);
            let loss = -(if f.has(2) { x * f.x(2) } else { x });
            crate::program::Sym::select(f.x(1).ne(x.zero()), loss, x.zero())
        })
        .reduce(|a, sizes| over_classes(a.str(4), sizes, a.float(3)?))),
        |s| ["mean", "sum", "none"]
            .map(|r| smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Tensor(s.between(&[2, 1, 2], 0.5, 1.0)), Arg::Tensor(s.between(&[3, 1], 0.2, 1.0)), Arg::Float(3.0), Arg::Str(r.into())])
            .into();
}
