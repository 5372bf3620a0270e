//! Elementwise losses: a row is a formula with its reduction, so that a loss is one pass over its operands, and its gradient
//! another. PyTorch composes some of them of several nodes; here each is one. Losses over classes have a file of their own.

use super::args::{Arg, Args, Read};
use super::formula::{Elementwise, F, Reduced};
use super::op::Rule::{Composite as C, Elementwise as E};
use super::op::{FUNCTION, NN, Op, Outputs, op};
use super::reduce::PerType;
use crate::backend::Reduce;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::program::Sym;
use crate::shape::numel;
use crate::tensor::{Tensor, default_dtype};
use smallvec::smallvec;

/// The result that a `reduction` asks for.
pub(super) fn reduction(name: &str, sizes: &[usize]) -> Result<Option<Reduced>> {
    Ok(match name {
        "none" => None,
        "mean" => Some(Reduced::mean(sizes)),
        "sum" => Some(Reduced::sum()),
        other => bail!(value "loss", "{other} is not a valid value for reduction"),
    })
}

/// Reduces a tensor as `reduction` asks.
pub(super) fn reduced(t: &Tensor, reduction: &str) -> Result<Tensor> {
    match reduction {
        "none" => Ok(t.clone()),
        "mean" => t.mean_all(),
        "sum" => t.sum_all(),
        other => bail!(value "loss", "{other} is not a valid value for reduction"),
    }
}

/// A loss of `(input, target, reduction, weight, number)` by the row without weight: `(input, target, number, reduction)`.
/// Weighted, a mean is divided by the sum of the weights.
fn weighted(row: &'static Op, a: &Args, number: Option<usize>) -> Result<Outputs> {
    let raw = |reduction: &str| -> Result<Tensor> {
        let mut args: Args = smallvec![a[0].clone(), a[1].clone()];
        args.extend(number.map(|i| a[i].clone()));
        args.push(Arg::Str(reduction.into()));
        super::apply::call_into(row, args)
    };
    let Some(weight) = a.opt_tensor(3) else { return Ok(smallvec![raw(a.str(2))?]) };
    if weight.sizes() != a.tensor(0)?.sizes() {
        bail!(value row.name, "Weights and input must have the same size.");
    }
    let loss = raw("none")?.mul(weight)?;
    Ok(smallvec![match a.str(2) {
        "mean" => loss.sum_all()?.true_divide(&weight.sum_all()?)?,
        other => reduced(&loss, other)?,
    }])
}

/// `x` where it is positive, else 0; the gradient passes at 0, as `clamp_min` lets it.
fn hinge(x: Sym) -> Sym {
    Sym::select(x.ge(x.zero()), x, Sym::select(x.is_nan(), x, x.zero()))
}

/// `log(sigmoid(x))` without overflow.
fn log_sigmoid(x: Sym) -> Sym {
    x.minimum(x.zero()) - (-x.abs()).exp().log1p()
}

/// `log(x)`, no lower than -100.
fn clamped_log(x: Sym) -> Sym {
    x.log().maximum(x.literal(-100.0))
}

/// The value of a binary cross entropy of probabilities.
fn cross_entropy(x: Sym, t: Sym) -> Sym {
    let other = (-x).log1p().maximum(x.literal(-100.0));
    (t - 1.0) * other - t * clamped_log(x)
}

/// The value of a binary cross entropy of logits, before the weight: `(1 - t) * x - (1 + (pos_weight - 1) * t) * log_sigmoid(x)`.
fn logits_entropy(f: &F) -> Sym {
    let (x, t) = (f.x(0), f.x(1));
    (-t + 1.0) * x - positive_weight(f).map_or(log_sigmoid(x), |w| w * log_sigmoid(x))
}

fn positive_weight(f: &F) -> Option<Sym> {
    f.has(3).then(|| (f.x(3) - 1.0) * f.x(1) + 1.0)
}

fn times(g: Sym, weight: Option<Sym>) -> Sym {
    weight.map_or(g, |w| g * w)
}

/// Refuses probabilities outside [0, 1].
fn check_probabilities(t: &Tensor, what: &str) -> Result<()> {
    static OUTSIDE: PerType = PerType::new();
    let body = t.body();
    let ty = body.dtype.compute();
    let sizes = &body.layout.sizes;
    let outside = OUTSIDE.get(ty, &[ty], &[], |x, _| x[0].ge(x[0].zero()).and(x[0].le(x[0].literal(1.0))).not());
    let ones = super::reduce::aligned(sizes, &(0..sizes.len()).collect::<Vec<_>>());
    let any =
        super::reduce::run("binary_cross_entropy", outside, sizes, &[&body], &[], (ones, DType::Bool), Reduce::Max)?;
    if numel(sizes) > 0 && Tensor::from_body(any).item()?.to_bool() {
        bail!(runtime "binary_cross_entropy", "all elements of {what} should be between 0 and 1");
    }
    Ok(())
}

fn check_binary(a: &Args) -> Result<()> {
    let op = "binary_cross_entropy";
    let (x, t) = (a.tensor(0)?, a.tensor(1)?);
    if x.sizes() != t.sizes() {
        bail!(value op, "Using a target size ({:?}) that is different to the input size ({:?}) is deprecated. Please ensure they have the same size.", t.sizes(), x.sizes());
    }
    if !x.dtype().is_float() {
        bail!(not_implemented op, "\"binary_cross_entropy\" not implemented for '{}'", x.dtype().legacy());
    }
    if t.dtype() != x.dtype() {
        bail!(runtime op, "Found dtype {} but expected {}", t.dtype().legacy(), x.dtype().legacy());
    }
    check_probabilities(x, "input")?;
    check_probabilities(t, "target")
}

/// `gaussian_nll_loss`: brings the variance to the input's rank and checks it.
fn gaussian(a: &Args) -> Result<Outputs> {
    let op = "gaussian_nll_loss";
    let x = a.tensor(0)?;
    let sizes = x.sizes();
    let var = match &a[2] {
        Arg::Tensor(t) => t.clone(),
        _ => super::full(&[], a.number(2)?, if x.dtype().is_float() { x.dtype() } else { DType::F32 })?,
    };
    let have = var.sizes();
    let var = match have.split_last() {
        _ if have == sizes || have.is_empty() => var,
        _ if !sizes.is_empty() && have[..] == sizes[..sizes.len() - 1] => {
            let mut column = have.clone();
            column.push(1);
            var.reshape(&column)?
        }
        Some((1, rest)) if !sizes.is_empty() && *rest == sizes[..sizes.len() - 1] => var,
        _ => bail!(value op, "var is of incorrect size"),
    };
    if var.numel() > 0 && super::reduce::total(op, &var.body(), var.dtype(), Reduce::Min)?.item()?.to_f64() < 0.0 {
        bail!(value op, "var has negative entry/entries");
    }
    super::apply::call(
        &GAUSSIAN_NLL_RAW,
        &smallvec![a[0].clone(), a[1].clone(), Arg::Tensor(var), a[3].clone(), a[4].clone(), a[5].clone()],
    )
}

/// `cosine_embedding_loss`: sums along the vectors, then a formula over the pairs.
fn cosine_embedding(a: &Args) -> Result<Outputs> {
    let op = "cosine_embedding_loss";
    let (x, y, t) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    if t.rank() > 1 {
        bail!(runtime op, "0D or 1D target tensor expected, multi-target not supported");
    }
    if x.rank() != t.rank() + 1 || y.rank() != t.rank() + 1 {
        bail!(runtime op, "{}D target tensor expects {}D input tensors, but found inputs with sizes {:?} and {:?}.", t.rank(), t.rank() + 1, x.sizes(), y.sizes());
    }
    let float = |x: &Tensor| super::to_dtype(x, if x.dtype().is_float() { x.dtype() } else { default_dtype() });
    let (x, y) = (&float(x)?, &float(y)?);
    let along = super::reduce::ints(&[t.rank()]);
    let sum = |x: &Tensor, y: &Tensor| {
        let sums = x.sum_product(y, along.clone())?;
        let kept = sums.rank() - 1;
        sums.reshape(&sums.sizes()[..kept])
    };
    super::apply::call(
        &COSINE_EMBEDDING_RAW,
        &smallvec![
            Arg::Tensor(sum(x, y)?),
            Arg::Tensor(sum(x, x)?),
            Arg::Tensor(sum(y, y)?),
            a[2].clone(),
            a[3].clone(),
            a[4].clone()
        ],
    )
}

fn triplet(a: &Args) -> Result<Outputs> {
    let op = "triplet_margin_loss";
    let (anchor, positive, negative) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    let (r, s, t) = (anchor.rank(), positive.rank(), negative.rank());
    if r != s || s != t {
        bail!(runtime op, "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor {r}D, positive {s}D, and negative {t}D inputs");
    }
    let (margin, p, eps) = (a.float(3)?, a.float(4)?, a.float(5)?);
    if margin <= 0.0 {
        bail!(value op, "margin must be greater than 0, got {margin}");
    }
    let distance = |x: &Tensor, y: &Tensor| x.pairwise_distance(y, p, eps, false);
    let near = distance(anchor, positive)?;
    let mut far = distance(anchor, negative)?;
    if a.bool(6) {
        far = far.minimum(&distance(positive, negative)?)?;
    }
    super::apply::call(
        &HINGE_DIFFERENCE,
        &smallvec![Arg::Tensor(near), Arg::Tensor(far), Arg::Float(margin), a[7].clone()],
    )
}

macro_rules! samples {
    (weighted $(, $arg:expr)*) => {
        |s| ["mean", "sum", "none"].map(|r| smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Str(r.into()), Arg::Tensor(s.between(&[2, 3], 0.2, 1.0)) $(, $arg)*]).into()
    };
    ($($arg:expr),*) => {
        |s| ["mean", "sum", "none"].map(|r| smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])) $(, $arg)*, Arg::Str(r.into())]).into()
    };
}

op! {
    /// `(input - target)^2`, its mean, its sum or as it is by `reduction`. With a `weight` of the same size each value counts
    /// that much, and the mean is divided by the sum of the weights.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, `ValueError` for another reduction, `NotImplementedError` for integers.
    MSE_LOSS mse_loss(self, target: Tensor, reduction: Str = "mean", weight: OptTensor = None) -> Tensor = "", NN,
        C(|a| weighted(&MSE_LOSS_RAW, a, None)), samples!(weighted);
    /// `|input - target|`, reduced and weighted as [`mse_loss`](Self::mse_loss).
    ///
    /// # Errors
    /// As [`mse_loss`](Self::mse_loss).
    L1_LOSS l1_loss(self, target: Tensor, reduction: Str = "mean", weight: OptTensor = None) -> Tensor = "", NN,
        C(|a| weighted(&L1_LOSS_RAW, a, None)), samples!(weighted);
    /// Half the square of `input - target` over `beta` up to a distance of `beta`, beyond it the distance less `beta / 2`
    /// (Girshick 2015); reduced by `reduction`.
    ///
    /// # Errors
    /// As [`mse_loss`](Self::mse_loss); `RuntimeError` for a negative `beta`.
    SMOOTH_L1_LOSS smooth_l1_loss(self, target: Tensor, reduction: Str = "mean", beta: Float = 1.0) -> Tensor = "", NN,
        C(|a| match a.float(3)? {
            0.0 => super::apply::call(&L1_LOSS_RAW, &smallvec![a[0].clone(), a[1].clone(), a[2].clone()]),
            beta if beta < 0.0 => bail!(runtime "smooth_l1_loss", "smooth_l1_loss does not support negative values for beta."),
            _ => super::apply::call(&SMOOTH_L1_LOSS_RAW, &smallvec![a[0].clone(), a[1].clone(), a[3].clone(), a[2].clone()]),
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Str("mean".into()), Arg::Float(0.0)]];
    /// Half the square of `input - target` up to a distance of `delta`, beyond it `delta * (distance - delta / 2)` (Huber
    /// 1964); reduced and weighted as [`mse_loss`](Self::mse_loss).
    ///
    /// # Errors
    /// As [`mse_loss`](Self::mse_loss); `RuntimeError` for a `delta` that is not positive.
    HUBER_LOSS huber_loss(self, target: Tensor, reduction: Str = "mean", weight: OptTensor = None, delta: Float = 1.0) -> Tensor = "", NN,
        C(|a| {
            if a.float(4)? <= 0.0 {
                bail!(runtime "huber_loss", "huber_loss does not support non-positive values for delta.");
            }
            weighted(&HUBER_LOSS_RAW, a, Some(4))
        }),
        samples!(weighted, Arg::Float(0.8));
    /// `-(target * log(input) + (1 - target) * log(1 - input))` of probabilities, logarithms no lower than -100, times
    /// `weight`, reduced by `reduction`.
    ///
    /// # Errors
    /// `ValueError` for operands of two sizes or another reduction, `RuntimeError` for values outside [0, 1] and for
    /// operands of two dtypes.
    BINARY_CROSS_ENTROPY binary_cross_entropy(self, target: Tensor, weight: OptTensor = None, reduction: Str = "mean") -> Tensor = "", NN,
        C(|a| {
            check_binary(a)?;
            super::apply::call(&BINARY_CROSS_ENTROPY_RAW, a)
        }),
        |s| vec![smallvec![Arg::Tensor(s.between(&[2, 3], 0.1, 0.9)), Arg::Tensor(s.between(&[2, 3], 0.1, 0.9)), Arg::None, Arg::Str("mean".into())]];
    /// [`binary_cross_entropy`](Self::binary_cross_entropy) of `sigmoid(input)` without overflow; `pos_weight` says how much
    /// the positive class counts.
    ///
    /// # Errors
    /// `ValueError` for operands of two sizes or another reduction.
    BINARY_CROSS_ENTROPY_WITH_LOGITS binary_cross_entropy_with_logits(self, target: Tensor, weight: OptTensor = None, pos_weight: OptTensor = None, reduction: Str = "mean") -> Tensor = "", NN | FUNCTION,
        C(|a| {
            let (x, t) = (a.tensor(0)?.sizes(), a.tensor(1)?.sizes());
            if x != t {
                bail!(value "binary_cross_entropy_with_logits", "Target size ({t:?}) must be the same as input size ({x:?})");
            }
            super::apply::call(&BINARY_CROSS_ENTROPY_WITH_LOGITS_RAW, a)
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.between(&[2, 3], 0.1, 0.9)), Arg::None, Arg::None, Arg::Str("mean".into())]];
    /// The Kullback-Leibler divergence per element, `target * (log(target) - input)` of log-probabilities `input`, or
    /// `exp(target) * (target - input)` with `log_target`. `reduction` may also be `"batchmean"`: the sum over the first size.
    ///
    /// # Errors
    /// As [`mse_loss`](Self::mse_loss).
    KL_DIV kl_div(self, target: Tensor, reduction: Str = "mean"; log_target: Bool = false) -> Tensor = "KlDivBackward0", NN | FUNCTION,
        E(Elementwise::float(|f| {
            let (x, t) = (f.x(0), f.x(1));
            if f.variant == 1 {
                return t.exp() * (t - x);
            }
            let none = t.eq(t.zero());
            t * Sym::select(none, t.literal(1.0), t).log() - t * x
        })
        .variant(|a| Ok(a.bool(3) as u8))
        .domain(&[(-1.5, 1.5), (0.1, 0.9)])
        .reduce(|a, sizes| match a.str(2) {
            "batchmean" => Ok(Some(Reduced { divisor: Some(sizes.first().copied().unwrap_or(1) as f64), ..Reduced::sum() })),
            other => reduction(other, sizes),
        })
        .domain(&[(-1.5, 1.5), (0.1, 0.9)])),
        |s| ["mean", "sum", "none", "batchmean"]
            .map(|r| smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.between(&[2, 3], 0.1, 0.9)), Arg::Str(r.into()), Arg::Bool(r == "sum")])
            .into();
    /// The negative log-likelihood of counts `target` that are Poisson distributed with mean `exp(input)`, or `input` without
    /// `log_input`; `full` adds Stirling's approximation of `log(target!)` where targets pass 1.
    ///
    /// # Errors
    /// As [`mse_loss`](Self::mse_loss).
    POISSON_NLL_LOSS poisson_nll_loss(self, target: Tensor, log_input: Bool = true, full: Bool = false, eps: Float = 1e-8, reduction: Str = "mean") -> Tensor = "PoissonNllLossBackward0", NN,
        E(Elementwise::float(|f| {
            let (x, t) = (f.x(0), f.x(1));
            let loss = if f.variant & 1 == 1 { x.exp() - t * x } else { x - t * (x + f.n(0)).log() };
            if f.variant & 2 == 0 {
                return loss;
            }
            let many = t.gt(t.literal(1.0));
            let z = Sym::select(many, t, t.literal(1.0));
            let stirling = z * z.log() - z + (z * std::f64::consts::TAU).log() * 0.5;
            loss + Sym::select(many, stirling, t.zero())
        })
        .variant(|a| Ok(a.bool(2) as u8 | (a.bool(3) as u8) << 1))
        .reduce(|a, sizes| reduction(a.str(5), sizes))),
        |s| ["mean", "sum", "none"]
            .map(|r| smallvec![Arg::Tensor(s.between(&[2, 3], 0.2, 2.0)), Arg::Tensor(s.between(&[2, 3], 1.2, 4.0)), Arg::Bool(r == "sum"), Arg::Bool(r != "none"), Arg::Float(1e-8), Arg::Str(r.into())])
            .into();
    /// The negative log-likelihood of `target` under normal distributions of mean `input` and variance `var` (a tensor that
    /// may lack the last dimension, or a number), no smaller than `eps`; `full` adds the constant.
    ///
    /// # Errors
    /// `ValueError` for a `var` of another size or with negative values, and for another reduction.
    GAUSSIAN_NLL_LOSS gaussian_nll_loss(self, target: Tensor, var: Operand, full: Bool = false, eps: Float = 1e-6, reduction: Str = "mean") -> Tensor = "", NN,
        C(gaussian),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.between(&[2], 0.2, 1.0)), Arg::Bool(true), Arg::Float(1e-6), Arg::Str("mean".into())]];
    /// `log(1 + exp(-target * input))` of targets 1 and -1, reduced by `reduction`.
    ///
    /// # Errors
    /// As [`mse_loss`](Self::mse_loss).
    SOFT_MARGIN_LOSS soft_margin_loss(self, target: Tensor, reduction: Str = "mean") -> Tensor = "SoftMarginLossBackward0", NN,
        E(Elementwise::float_only(|f| -log_sigmoid(f.x(0) * f.x(1)))
            .reduce(|a, sizes| reduction(a.str(2), sizes))
            .vjp(|f, _, g| {
                let h = g * -(-(f.x(0) * f.x(1))).sigmoid();
                vec![Some(h * f.x(1)), Some(h * f.x(0))]
            })),
        samples!();
    /// `input` where the target is 1, `max(0, margin - input)` where it is -1, reduced by `reduction`.
    ///
    /// # Errors
    /// As [`mse_loss`](Self::mse_loss).
    HINGE_EMBEDDING_LOSS hinge_embedding_loss(self, target: Tensor, margin: Float = 1.0, reduction: Str = "mean") -> Tensor = "HingeEmbeddingLossBackward0", NN | FUNCTION,
        E(Elementwise::float(|f| {
            let (x, t) = (f.x(0), f.x(1));
            let far = Sym::select(t.ne(t.literal(1.0)), hinge(-x + f.n(0)), x.zero());
            far + Sym::select(t.ne(t.literal(-1.0)), x, x.zero())
        })
        .reduce(|a, sizes| reduction(a.str(3), sizes))),
        |s| ["mean", "sum", "none"]
            .map(|r| smallvec![Arg::Tensor(s.t(&[2, 2])), Arg::Tensor(signs()), Arg::Float(0.3), Arg::Str(r.into())])
            .into();
    /// `max(0, margin - target * (input1 - input2))`, reduced by `reduction`: `input` should be larger than `input2` where the
    /// target is 1, smaller where it is -1.
    ///
    /// # Errors
    /// `RuntimeError` for operands of different ranks or shapes that do not broadcast.
    MARGIN_RANKING_LOSS margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: Float = 0.0, reduction: Str = "mean") -> Tensor = "", NN | FUNCTION,
        C(|a| {
            let (x, y, t) = (a.tensor(0)?.sizes(), a.tensor(1)?.sizes(), a.tensor(2)?.sizes());
            if x.len() != y.len() || y.len() != t.len() {
                bail!(runtime "margin_ranking_loss", "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: {x:?}, input2: {y:?}, target: {t:?} ");
            }
            super::apply::call(&MARGIN_RANKING_LOSS_RAW, a)
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 2])), Arg::Tensor(s.t(&[2, 2])), Arg::Tensor(signs()), Arg::Float(0.3), Arg::Str("mean".into())]];
    /// One less the cosine of the angle between vectors where the target is 1, that cosine less `margin` (or 0) where it is
    /// -1; reduced by `reduction`. Inputs are `[N, D]` with targets `[N]`, or `[D]` with a 0-d target.
    ///
    /// # Errors
    /// `RuntimeError` for other shapes.
    COSINE_EMBEDDING_LOSS cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: Float = 0.0, reduction: Str = "mean") -> Tensor = "", NN | FUNCTION,
        C(cosine_embedding),
        |s| [1.0, -1.0].map(|t| smallvec![Arg::Tensor(s.t(&[3])), Arg::Tensor(s.t(&[3])), Arg::Tensor(Tensor::from(t)), Arg::Float(0.1), Arg::Str("sum".into())]).into();
    /// `max(0, d(anchor, positive) - d(anchor, negative) + margin)` with the distance of
    /// [`pairwise_distance`](Self::pairwise_distance); with `swap` the negative may be measured from the positive instead
    /// (Balntas et al. 2016).
    ///
    /// # Errors
    /// `RuntimeError` for operands of different ranks, `ValueError` for a `margin` that is not positive.
    TRIPLET_MARGIN_LOSS triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: Float = 1.0, p: Float = 2.0, eps: Float = 1e-6, swap: Bool = false, reduction: Str = "mean") -> Tensor = "", NN | FUNCTION,
        C(triplet),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Float(1.0), Arg::Float(2.0), Arg::Float(1e-6), Arg::Bool(true), Arg::Str("mean".into())]];
    /// The binary cross entropy of logits per class, averaged over classes (the last dimension), weighted by class, reduced
    /// by `reduction`.
    ///
    /// # Errors
    /// As [`mse_loss`](Self::mse_loss).
    MULTILABEL_SOFT_MARGIN_LOSS multilabel_soft_margin_loss(self, target: Tensor, weight: OptTensor = None, reduction: Str = "mean") -> Tensor = "MultilabelSoftMarginLossBackward0", NN,
        E(Elementwise::float_only(|f| {
            let (x, t) = (f.x(0), f.x(1));
            times(-(t * log_sigmoid(x) + (-t + 1.0) * log_sigmoid(-x)), f.has(2).then(|| f.x(2)))
        })
        .reduce(|a, sizes| {
            let classes = sizes.last().copied().unwrap_or(1) as f64;
            Ok(Some(match reduction(a.str(3), sizes)? {
                Some(r) => Reduced { divisor: Some(r.divisor.unwrap_or(classes)), ..r },
                None => Reduced { divisor: Some(classes), ..Reduced::over(sizes, &[sizes.len().saturating_sub(1)], false) },
            }))
        })),
        |s| ["mean", "sum", "none"]
            .map(|r| smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.between(&[2, 3], 0.1, 0.9)), Arg::Tensor(s.between(&[3], 0.2, 1.0)), Arg::Str(r.into())])
            .into();

    // The formulas behind the rows that check or compose.

    /// The formula of [`binary_cross_entropy`](Self::binary_cross_entropy).
    BINARY_CROSS_ENTROPY_RAW binary_cross_entropy_raw as "binary_cross_entropy"(self, target: Tensor, weight: OptTensor = None, reduction: Str = "mean") -> Tensor = "BinaryCrossEntropyBackward0", 0,
        E(Elementwise::float_only(|f| times(cross_entropy(f.x(0), f.x(1)), f.has(2).then(|| f.x(2))))
            .reduce(|a, sizes| reduction(a.str(3), sizes))
            .vjp(|f, _, g| {
                let (x, t) = (f.x(0), f.x(1));
                let weight = f.has(2).then(|| f.x(2));
                let h = times(g, weight);
                let slope = (x - t) / ((-x + 1.0) * x).maximum(x.literal(1e-12));
                let for_t = clamped_log(-x + 1.0) - clamped_log(x);
                vec![Some(h * slope), Some(h * for_t), Some(g * cross_entropy(x, t))]
            })
            .domain(&[(0.1, 0.9), (0.1, 0.9), (0.2, 1.0)])),
        |s| ["mean", "sum", "none"]
            .map(|r| smallvec![Arg::Tensor(s.between(&[2, 3], 0.1, 0.9)), Arg::Tensor(s.between(&[2, 3], 0.1, 0.9)), Arg::Tensor(s.between(&[3], 0.2, 1.0)), Arg::Str(r.into())])
            .into();
    /// The formula of [`binary_cross_entropy_with_logits`](Self::binary_cross_entropy_with_logits).
    BINARY_CROSS_ENTROPY_WITH_LOGITS_RAW binary_cross_entropy_with_logits_raw as "binary_cross_entropy_with_logits"(self, target: Tensor, weight: OptTensor = None, pos_weight: OptTensor = None, reduction: Str = "mean") -> Tensor = "BinaryCrossEntropyWithLogitsBackward0", 0,
        E(Elementwise::float_only(|f| times(logits_entropy(f), f.has(2).then(|| f.x(2))))
            .reduce(|a, sizes| reduction(a.str(4), sizes))
            .vjp(|f, _, g| {
                let (x, t) = (f.x(0), f.x(1));
                let weight = f.has(2).then(|| f.x(2));
                let h = times(g, weight);
                let (for_x, for_t) = match positive_weight(f) {
                    None => (x.sigmoid() - t, -x),
                    Some(w) => (-t + 1.0 - w * (-x).sigmoid(), -x - (f.x(3) - 1.0) * log_sigmoid(x)),
                };
                let for_positive = h * -(t * log_sigmoid(x));
                vec![Some(h * for_x), Some(h * for_t), Some(g * logits_entropy(f)), Some(for_positive)]
            })),
        |s| ["mean", "sum", "none"]
            .map(|r| smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.between(&[2, 3], 0.1, 0.9)), Arg::Tensor(s.between(&[3], 0.2, 1.0)), Arg::Tensor(s.between(&[3], 0.2, 2.0)), Arg::Str(r.into())])
            .into();
    /// The formula of [`margin_ranking_loss`](Self::margin_ranking_loss).
    MARGIN_RANKING_LOSS_RAW margin_ranking_loss_raw as "margin_ranking_loss"(input1: Tensor, input2: Tensor, target: Tensor, margin: Float = 0.0, reduction: Str = "mean") -> Tensor = "MarginRankingLossBackward0", 0,
        E(Elementwise::float(|f| hinge(-f.x(2) * (f.x(0) - f.x(1)) + f.n(0)))
            .reduce(|a, sizes| reduction(a.str(4), sizes))),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 2])), Arg::Tensor(s.t(&[2, 2])), Arg::Tensor(signs()), Arg::Float(0.3), Arg::Str("mean".into())]];
    /// The formula of [`mse_loss`](Self::mse_loss).
    MSE_LOSS_RAW mse_loss_raw as "mse"(self, target: Tensor, reduction: Str = "mean") -> Tensor = "MseLossBackward0", 0,
        E(Elementwise::float_only(|f| (f.x(0) - f.x(1)).square()).reduce(|a, sizes| reduction(a.str(2), sizes))),
        samples!();
    /// The formula of [`l1_loss`](Self::l1_loss).
    L1_LOSS_RAW l1_loss_raw as "l1_loss"(self, target: Tensor, reduction: Str = "mean") -> Tensor = "L1LossBackward0", 0,
        E(Elementwise::numeric(|f| (f.x(0) - f.x(1)).abs()).reduce(|a, sizes| reduction(a.str(2), sizes))),
        samples!();
    /// The formula of [`smooth_l1_loss`](Self::smooth_l1_loss), for a positive `beta`.
    SMOOTH_L1_LOSS_RAW smooth_l1_loss_raw as "smooth_l1"(self, target: Tensor, beta: Float, reduction: Str = "mean") -> Tensor = "SmoothL1LossBackward0", 0,
        E(Elementwise::float_only(|f| {
            let (d, beta) = (f.x(0) - f.x(1), f.n(0));
            let near = d.abs().lt(beta);
            let z = Sym::select(near, d, d.zero());
            Sym::select(near, z * z * 0.5 / beta, d.abs() - beta * 0.5)
        })
        .reduce(|a, sizes| reduction(a.str(3), sizes))),
        samples!(Arg::Float(0.8));
    /// The formula of [`huber_loss`](Self::huber_loss).
    HUBER_LOSS_RAW huber_loss_raw as "huber"(self, target: Tensor, delta: Float, reduction: Str = "mean") -> Tensor = "HuberLossBackward0", 0,
        E(Elementwise::float_only(|f| {
            let (d, delta) = (f.x(0) - f.x(1), f.n(0));
            let near = d.abs().lt(delta);
            let z = Sym::select(near, d, d.zero());
            Sym::select(near, z * z * 0.5, (d.abs() - delta * 0.5) * delta)
        })
        .reduce(|a, sizes| reduction(a.str(3), sizes))),
        samples!(Arg::Float(0.8));
    /// The formula of [`gaussian_nll_loss`](Self::gaussian_nll_loss). Holding the variance above `eps` is no part of the
    /// derivative.
    GAUSSIAN_NLL_RAW gaussian_nll_raw as "gaussian_nll_loss"(self, target: Tensor, var: Tensor, full: Bool, eps: Float, reduction: Str = "mean") -> Tensor = "GaussianNllLossBackward0", 0,
        E(Elementwise::float_only(|f| {
            let d = f.x(0) - f.x(1);
            let var = f.x(2).maximum(f.n(0));
            let loss = (var.log() + d * d / var) * 0.5;
            if f.variant == 0 { loss } else { loss + 0.5 * std::f64::consts::TAU.ln() }
        })
        .variant(|a| Ok(a.bool(3) as u8))
        .reduce(|a, sizes| reduction(a.str(5), sizes))
        .vjp(|f, _, g| {
            let d = f.x(0) - f.x(1);
            let var = f.x(2).maximum(f.n(0));
            let slope = g * (d / var);
            vec![Some(slope), Some(-slope), Some(g * ((var.reciprocal() - (d / var).square()) * 0.5))]
        })
        .domain(&[(-1.5, 1.5), (-1.5, 1.5), (0.2, 1.0)])
        .numbers(&[1e-6])),
        |s| ["mean", "sum", "none"]
            .map(|r| smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.between(&[2, 1], 0.2, 1.0)), Arg::Bool(r == "sum"), Arg::Float(1e-6), Arg::Str(r.into())])
            .into();
    /// The formula of [`cosine_embedding_loss`](Self::cosine_embedding_loss) over the products of vectors with one another
    /// and with themselves.
    COSINE_EMBEDDING_RAW cosine_embedding_raw as "cosine_embedding_loss"(self, square1: Tensor, square2: Tensor, target: Tensor, margin: Float, reduction: Str = "mean") -> Tensor = "CosineEmbeddingLossBackward0", 0,
        E(Elementwise::float(|f| {
            let cosine = f.x(0) / ((f.x(1) + 1e-12) * (f.x(2) + 1e-12)).sqrt();
            let t = f.x(3);
            let near = Sym::select(t.eq(t.literal(1.0)), -cosine + 1.0, t.zero());
            near + Sym::select(t.eq(t.literal(-1.0)), hinge(cosine - f.n(0)), t.zero())
        })
        .reduce(|a, sizes| reduction(a.str(5), sizes))
        .domain(&[(-1.5, 1.5), (0.5, 1.5), (0.5, 1.5)])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 2])), Arg::Tensor(s.between(&[2, 2], 0.5, 1.5)), Arg::Tensor(s.between(&[2, 2], 0.5, 1.5)), Arg::Tensor(signs()), Arg::Float(0.1), Arg::Str("mean".into())]];
    /// `max(0, input - other + margin)`, reduced by `reduction`.
    HINGE_DIFFERENCE hinge_difference(self, other: Tensor, margin: Float, reduction: Str = "mean") -> Tensor = "TripletMarginLossBackward0", 0,
        E(Elementwise::float_only(|f| hinge(f.x(0) - f.x(1) + f.n(0))).reduce(|a, sizes| reduction(a.str(3), sizes))),
        samples!(Arg::Float(0.3));
}

/// Targets 1 and -1, without gradient.
fn signs() -> Tensor {
    Tensor::from_slice(&[1i64, -1, -1, 1], &[2, 2]).unwrap_or_else(|e| panic!("four numbers make a matrix: {e}"))
}
