//! Activation functions of neural networks. All are elementwise but `glu`, which halves a dimension. Derivatives follow
//! from the formulas; those stated are PyTorch's choices at kinks, or forms that keep digits where the derived ones cancel.

use super::args::{Arg, Args, Read};
use super::formula::{Accept, Elementwise, F};
use super::op::Rule::{Composite as C, Elementwise as E, Structured as S};
use super::op::{FUNCTION, INPLACE, INPLACE_FUNCTION, METHOD, NN, NN_INPLACE, op};
use super::structured::{Save, Structured};
use crate::dtype::{Category, DType};
use crate::error::{Result, bail};
use crate::program::Sym;
use crate::scalar::Scalar;
use crate::shape::wrap_dim;
use crate::tensor::Tensor;
use smallvec::smallvec;

/// Klambauer et al. 2017, section 2.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_3;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

const NUMBERS: Accept = Accept { bool: false, int: true, float: true };

/// `-|x|`, whose derivative at 0 is that of `x`, so that derivatives of smooth functions built on it stay right there.
fn minus_abs(x: Sym) -> Sym {
    Sym::select(x.gt(x.zero()), -x, x)
}

/// The positive part, with the derivative 0 at 0; see [`minus_abs`].
fn positive_part(x: Sym) -> Sym {
    Sym::select(x.gt(x.zero()), x, x.zero())
}

/// `1 / (1 + exp(-x))` in a form whose derivatives keep their digits on both sides, unlike those of `y (1 - y)`.
pub(super) fn logistic(x: Sym) -> Sym {
    let e = minus_abs(x).exp();
    Sym::select(x.gt(x.zero()), x.literal(1.0), e) / (e + 1.0)
}

/// `log(1 + exp(x))` without overflow.
fn softplus(x: Sym) -> Sym {
    positive_part(x) + minus_abs(x).exp().log1p()
}

/// The negative part, NaN kept, with the derivative 0 at 0.
fn negative_part(x: Sym) -> Sym {
    Sym::select(x.ge(x.zero()), x.zero(), x)
}

/// `x` where positive, else `scale (exp(x / width) - 1)`; the argument is selected first, so that nothing overflows.
fn exponential_unit(x: Sym, scale: Sym, width: Option<Sym>) -> Sym {
    let z = negative_part(x);
    Sym::select(x.gt(x.zero()), x, width.map_or(z, |w| z / w).expm1() * scale)
}

fn exponential_unit_gradient(x: Sym, slope: Option<Sym>, width: Option<Sym>, g: Sym) -> Sym {
    let z = negative_part(x);
    let e = width.map_or(z, |w| z / w).exp();
    Sym::select(x.gt(x.zero()), g, slope.map_or(g, |s| g * s) * e)
}

/// The gradient where a condition holds, else 0.
fn when(condition: Sym, g: Sym) -> Sym {
    Sym::select(condition, g, g.zero())
}

/// The gradient where a condition does not hold, else 0: NaN fails conditions, and so keeps its gradient.
fn unless(condition: Sym, g: Sym) -> Sym {
    Sym::select(condition, g.zero(), g)
}

fn hard_tanh(x: Sym, low: Sym, high: Sym) -> Sym {
    x.maximum(low).minimum(high)
}

fn hard_tanh_gradient(x: Sym, low: Sym, high: Sym, g: Sym) -> Sym {
    when(x.gt(low).and(x.lt(high)), g)
}

fn check_hardtanh(args: &Args, common: DType) -> Result<()> {
    let limit = |k: usize, default: f64| args.opt_number(k).map_or(default, Scalar::to_f64);
    let (low, high) = (limit(1, -1.0), limit(2, 1.0));
    match common {
        DType::Bool => bail!(runtime "hardtanh", "Bool inputs not supported for hardtanh"),
        DType::U8 if low < 0.0 || high < 0.0 => {
            bail!(runtime "hardtanh", "cannot do hardtanh on an unsigned type with negative limits")
        }
        _ => {}
    }
    if low > high {
        bail!(value "hardtanh", "min_val cannot be greater than max_val");
    }
    Ok(())
}

fn check_alpha(args: &Args, _: DType) -> Result<()> {
    if args.number(1)?.to_f64() == 0.0 {
        bail!(runtime "celu", "ZeroDivisionError: alpha cannot be 0 for CELU");
    }
    Ok(())
}

fn check_lambda(args: &Args, common: DType) -> Result<()> {
    let lambda = args.number(1)?.to_f64();
    if common.category() == Category::Float && (lambda < 0.0 || lambda.is_nan()) {
        let largest = match common {
            DType::F16 => "65504",
            DType::BF16 => "3.38953e+38",
            DType::F32 => "3.40282e+38",
            _ => "1.79769e+308",
        };
        bail!(runtime "softshrink", "lambda must be in range [0, {largest}] for input dtype {}, but found {lambda}", common.legacy());
    }
    Ok(())
}

fn check_relu(_: &Args, common: DType) -> Result<()> {
    if common == DType::Bool {
        bail!(runtime "relu", "Boolean inputs not supported for relu");
    }
    Ok(())
}

/// Whether within `[-lambda, lambda]`.
fn shrinks(f: &F) -> Sym {
    let (x, lambda) = (f.x(0), f.n(0));
    x.ge(-lambda).and(x.le(lambda))
}

/// The gradient outside `[-lambda, lambda]`; none for NaN.
fn shrink_gradient(f: &F, g: Sym) -> Sym {
    let (x, lambda) = (f.x(0), f.n(0));
    when(x.lt(-lambda).or(x.gt(lambda)), g)
}

/// The weight of a `prelu` in the shape that broadcasts against its input: along dimension 1.
fn prelu_weight(input: &Tensor, weight: &Tensor) -> Result<Tensor> {
    if weight.rank() > 1 {
        bail!(runtime "prelu", "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {}", weight.rank());
    }
    let (sizes, n) = (input.sizes(), weight.numel());
    if n != 1 {
        if sizes.is_empty() {
            bail!(runtime "prelu", "Not allow zero-dim input tensor.");
        }
        let channels = if sizes.len() > 1 { sizes[1] } else { 1 };
        if channels != n {
            bail!(runtime "prelu", "Mismatch of parameter numbers and input channel size. Found parameter numbers = {n} and channel size = {channels}.");
        }
    }
    if weight.rank() == 0 {
        return Ok(weight.clone());
    }
    let shape: Vec<usize> = (0..sizes.len()).map(|d| if d == 1 { n } else { 1 }).collect();
    weight.reshape(&shape[..])
}

/// The two halves of a dimension.
fn halves(t: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
    let sizes = t.sizes();
    if sizes.is_empty() {
        bail!(runtime "glu", "glu does not support scalars because halving size must be even");
    }
    let d = wrap_dim("glu", dim, sizes.len())?;
    if !sizes[d].is_multiple_of(2) {
        bail!(runtime "glu", "Halving dimension must be even, but dimension {d} is size {}", sizes[d]);
    }
    let half = (sizes[d] / 2) as i64;
    Ok((t.narrow(d as i64, 0, half)?, t.narrow(d as i64, half, half)?))
}

op! {
    /// The positive part, `max(x, 0)`. Its derivative at 0 is 0.
    ///
    /// # Errors
    /// `RuntimeError` for bool tensors.
    RELU relu(self) -> Tensor = "ReluBackward0", METHOD | FUNCTION | INPLACE | INPLACE_FUNCTION | NN | NN_INPLACE,
        E(Elementwise::numeric(|f| f.x(0).maximum(f.literal(0.0))).check(check_relu).saves_result()
            .vjp(|f, y, g| vec![Some(unless(y.le(f.literal(0.0)), g))]));
    /// `min(max(x, 0), 6)`. Its derivative at 0 and 6 is 0.
    ///
    /// # Errors
    /// `RuntimeError` for bool tensors.
    RELU6 relu6(self) -> Tensor = "HardtanhBackward0", NN | NN_INPLACE,
        E(Elementwise::numeric(|f| hard_tanh(f.x(0), f.literal(0.0), f.literal(6.0))).check(|a, common| match common {
            DType::U8 => Ok(()),
            _ => check_hardtanh(a, common),
        }).vjp(|f, _, g| vec![Some(hard_tanh_gradient(f.x(0), f.literal(0.0), f.literal(6.0), g))]).domain(&[(-2.0, 8.0)]));
    /// Limited to `[min_val, max_val]`. Its derivative at the bounds is 0.
    ///
    /// # Errors
    /// `RuntimeError` for bool tensors; `ValueError` if `min_val > max_val`.
    HARDTANH hardtanh(self, min_val: Number = -1.0, max_val: Number = 1.0) -> Tensor = "HardtanhBackward0", NN | NN_INPLACE,
        E(Elementwise::numeric(|f| hard_tanh(f.x(0), f.n(0), f.n(1))).check(check_hardtanh)
            .vjp(|f, _, g| vec![Some(hard_tanh_gradient(f.x(0), f.n(0), f.n(1), g))]));
    /// `x` where positive, else `negative_slope * x`.
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    LEAKY_RELU leaky_relu(self, negative_slope: Number = 0.01) -> Tensor = "LeakyReluBackward0", NN | NN_INPLACE,
        E(Elementwise::float_only(|f| Sym::select(f.x(0).gt(f.literal(0.0)), f.x(0), f.x(0) * f.n(0)))
            .vjp(|f, _, g| vec![Some(Sym::select(f.x(0).gt(f.literal(0.0)), g, g * f.n(0)))]));
    /// Exponential linear unit (Clevert et al. 2015): `x` where positive, else `alpha * (exp(x) - 1)`.
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    ELU elu(self, alpha: Number = 1.0) -> Tensor = "EluBackward0", NN | NN_INPLACE,
        E(Elementwise::float_only(|f| exponential_unit(f.x(0), f.n(0), None))
            .vjp(|f, _, g| vec![Some(exponential_unit_gradient(f.x(0), Some(f.n(0)), None, g))]));
    /// Scaled exponential linear unit (Klambauer et al. 2017).
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    SELU selu(self) -> Tensor = "EluBackward0", FUNCTION | INPLACE_FUNCTION | NN | NN_INPLACE,
        E(Elementwise::float_only(|f| exponential_unit(f.x(0), f.literal(SELU_ALPHA), None) * SELU_SCALE)
            .vjp(|f, _, g| vec![Some(exponential_unit_gradient(f.x(0), Some(f.literal(SELU_ALPHA)), None, g * SELU_SCALE))]));
    /// Continuously differentiable exponential linear unit (Barron 2017): `x` where positive, else
    /// `alpha * (exp(x / alpha) - 1)`.
    ///
    /// # Errors
    /// `RuntimeError` if `alpha` is 0; `NotImplementedError` for integers.
    CELU celu(self, alpha: Number = 1.0) -> Tensor = "CeluBackward0", FUNCTION | INPLACE_FUNCTION | NN | NN_INPLACE,
        E(Elementwise::float_only(|f| exponential_unit(f.x(0), f.n(0), Some(f.n(0)))).check(check_alpha)
            .vjp(|f, _, g| vec![Some(exponential_unit_gradient(f.x(0), None, Some(f.n(0)), g))])),
        |s| vec![smallvec![s.t(&[2, 3]).into(), Scalar::Float(0.7).into()]];
    /// `x * sigmoid(x)` (Hendrycks & Gimpel 2016).
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    SILU silu(self) -> Tensor = "SiluBackward0", NN | NN_INPLACE, E(Elementwise::float_only(|f| f.x(0) * f.x(0).sigmoid()));
    /// `x * tanh(softplus(x))` (Misra 2019).
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    MISH mish(self) -> Tensor = "MishBackward0", NN | NN_INPLACE, E(Elementwise::float_only(|f| f.x(0) * softplus(f.x(0)).tanh()));
    /// `log(1 + exp(beta * x)) / beta`, and `x` itself where `beta * x > threshold`.
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    SOFTPLUS softplus(self, beta: Number = 1.0, threshold: Number = 20.0) -> Tensor = "SoftplusBackward0", NN,
        E(Elementwise::float_only(|f| {
            let (x, z) = (f.x(0), f.x(0) * f.n(0));
            let linear = z.gt(f.n(1));
            Sym::select(linear, x, Sym::select(linear, z.zero(), z).exp().log1p() / f.n(0))
        }).vjp(|f, _, g| {
            let z = f.x(0) * f.n(0);
            vec![Some(Sym::select(z.gt(f.n(1)), g, g * logistic(z)))]
        })),
        |s| vec![smallvec![s.t(&[2, 3]).into(), Scalar::Float(2.0).into(), Scalar::Float(1.0).into()]];
    /// `x / (1 + |x|)`.
    SOFTSIGN softsign(self) -> Tensor = "", NN,
        C(|a| {
            let x = a.tensor(0)?;
            Ok(smallvec![x.true_divide(&x.abs()?.add(1.0)?)?])
        }),
        |s| vec![s.tensors(&[&[2, 3]])];
    /// `log(sigmoid(x))` without cancellation.
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    LOGSIGMOID logsigmoid(self) -> Tensor = "LogSigmoidBackward0", NN,
        E(Elementwise::float_only(|f| {
            let x = f.x(0);
            Sym::select(x.gt(x.zero()), x.zero(), x) - minus_abs(x).exp().log1p()
        }).vjp(|f, _, g| vec![Some(g * logistic(-f.x(0)))]));
    /// `min(max(x + 3, 0), 6) / 6`, the piecewise linear sigmoid (Howard et al. 2019). Its derivative at -3 and 3 is 0.
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    HARDSIGMOID hardsigmoid(self) -> Tensor = "HardsigmoidBackward0", NN | NN_INPLACE,
        E(Elementwise::float_only(|f| hard_tanh(f.x(0) + 3.0, f.literal(0.0), f.literal(6.0)) / f.literal(6.0))
            .vjp(|f, _, g| vec![Some(when(f.x(0).gt(f.literal(-3.0)).and(f.x(0).lt(f.literal(3.0))), g / f.literal(6.0)))]).domain(&[(-4.0, 4.0)]));
    /// `x * min(max(x + 3, 0), 6) / 6` (Howard et al. 2019).
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    HARDSWISH hardswish(self) -> Tensor = "HardswishBackward0", NN | NN_INPLACE,
        E(Elementwise::float_only(|f| f.x(0) * hard_tanh(f.x(0) + 3.0, f.literal(0.0), f.literal(6.0)) / f.literal(6.0))
            .vjp(|f, _, g| {
                let x = f.x(0);
                let inside = Sym::select(x.ge(f.literal(3.0)), g, g * (x / f.literal(3.0) + 0.5));
                vec![Some(unless(x.le(f.literal(-3.0)), inside))]
            }).domain(&[(-4.0, 4.0)]));
    /// `x` outside `[-lambd, lambd]`, else 0.
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    HARDSHRINK hardshrink(self, lambd: Number = 0.5) -> Tensor = "HardshrinkBackward0", METHOD | FUNCTION | NN,
        E(Elementwise::float_only(|f| unless(shrinks(f), f.x(0))).vjp(|f, _, g| vec![Some(shrink_gradient(f, g))]));
    /// `x` moved towards 0 by `lambd`, 0 if nearer.
    ///
    /// # Errors
    /// `RuntimeError` for a negative `lambd`; `NotImplementedError` for integers.
    SOFTSHRINK softshrink(self, lambd: Number = 0.5) -> Tensor = "SoftshrinkBackward0", NN,
        E(Elementwise::float_only(|f| {
            let (x, lambda) = (f.x(0), f.n(0));
            Sym::select(shrinks(f), x.zero(), Sym::select(x.gt(lambda), x - lambda, x + lambda))
        }).check(check_lambda).vjp(|f, _, g| vec![Some(shrink_gradient(f, g))]));
    /// `x - tanh(x)`.
    TANHSHRINK tanhshrink(self) -> Tensor = "", NN,
        C(|a| {
            let x = a.tensor(0)?;
            Ok(smallvec![x.sub(&x.tanh()?)?])
        }),
        |s| vec![s.tensors(&[&[2, 3]])];
    /// `x` above `threshold`, else `value`.
    ///
    /// # Errors
    /// `NotImplementedError` for bool tensors.
    THRESHOLD threshold(self, threshold: Number, value: Number) -> Tensor = "ThresholdBackward0", FUNCTION | INPLACE_FUNCTION | NN | NN_INPLACE,
        E(Elementwise::numeric(|f| Sym::select(f.x(0).le(f.n(0)), f.n(1), f.x(0))).accept(NUMBERS)
            .vjp(|f, _, g| vec![Some(unless(f.x(0).le(f.n(0)), g))]).numbers(&[0.2, 0.7]));
    /// `x` where positive, else `weight * x`, with one weight for all or one for each channel, which is dimension 1
    /// (He et al. 2015).
    ///
    /// # Errors
    /// `RuntimeError` if there are neither one nor as many weights as channels.
    PRELU prelu(self, weight: Tensor) -> Tensor = "", METHOD | FUNCTION | NN,
        C(|a| {
            let (x, weight) = (a.tensor(0)?, a.tensor(1)?);
            Ok(smallvec![x.prelu_kernel(&prelu_weight(x, weight)?)?])
        }),
        |s| vec![s.tensors(&[&[2, 3, 2], &[3]]), s.tensors(&[&[2, 3], &[1]])];
    /// [`prelu`](Self::prelu) with a weight that broadcasts.
    PRELU_KERNEL prelu_kernel as "prelu"(self, weight: Tensor) -> Tensor = "PreluKernelBackward0", 0,
        E(Elementwise::float_only(|f| Sym::select(f.x(0).gt(f.literal(0.0)), f.x(0), f.x(1) * f.x(0))).vjp(|f, _, g| {
            let positive = f.x(0).gt(f.literal(0.0));
            vec![Some(Sym::select(positive, g, f.x(1) * g)), Some(unless(positive, g * f.x(0)))]
        }));
    /// Gated linear unit (Dauphin et al. 2016): the first half of dimension `dim` times the sigmoid of the second.
    ///
    /// # Errors
    /// `RuntimeError` if the dimension has an odd size; `IndexError` if it is not there.
    GLU glu(self, dim: Int = -1) -> Tensor = "GluBackward0", NN,
        S(Structured {
            forward: |a| {
                let (x, gate) = halves(a.tensor(0)?, a.int(1)?)?;
                if !x.dtype().is_float() {
                    bail!(not_implemented "glu", "\"glu_cpu\" not implemented for '{}'", x.dtype().legacy());
                }
                Ok(smallvec![x.mul(&gate.sigmoid()?)?])
            },
            backward: Some(|c| {
                let Some(g) = c.grad(0) else { return Ok(smallvec![None]) };
                let (x, gate) = halves(&c.input(0)?, c.int(1)?)?;
                let s = gate.sigmoid()?;
                let of_gate = g.mul(&x)?.mul(&s)?.mul(&s.rsub(1.0)?)?;
                Ok(smallvec![Some(Tensor::cat(vec![g.mul(&s)?, of_gate], c.int(1)?)?)])
            }),
            saves: &[Save::Input(0)],
        }),
        |s| vec![smallvec![s.t(&[2, 4]).into(), Arg::Int(-1)], smallvec![s.t(&[4, 3]).into(), Arg::Int(0)]];
    /// Gaussian error linear unit, `x * Phi(x)` with the normal distribution function (Hendrycks & Gimpel 2016);
    /// `approximate="tanh"` uses their formula with tanh.
    ///
    /// # Errors
    /// `RuntimeError` for another `approximate`; `NotImplementedError` for integers.
    GELU gelu(self; approximate: Str = "none") -> Tensor = "GeluBackward0", NN,
        E(Elementwise::float_only(|f| {
            let x = f.x(0);
            if f.variant == 0 {
                x * 0.5 * ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0)
            } else {
                let inner = (x + x * x * x * 0.044_715) * (std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2);
                x * 0.5 * (inner.tanh() + 1.0)
            }
        })
        .variant(|args| match args.str(1) {
            "none" => Ok(0),
            "tanh" => Ok(1),
            other => bail!(runtime "gelu", "approximate argument must be either none or tanh, got {other}."),
        })),
        |s| vec![smallvec![s.t(&[2, 3]).into(), Arg::Str("tanh".into())]];
}
