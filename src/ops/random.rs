//! Random numbers: generators, tensors drawn from distributions, and the in-place fills. Numbers follow from the seed and
//! from how many were drawn before, never from threads or chunks; they are not PyTorch's.

use super::args::{Arg, Args, Read};
use super::combine::fresh;
use super::create::{Options, sizes_of};
pub use super::generator::{Generator, manual_seed};
use super::inplace;
use super::op::Rule::{Composite as C, InPlace, Structured as S};
use super::op::{FUNCTION, INPLACE, METHOD, NN, NN_INPLACE, OUT, Op, Outputs, op};
use super::structured::{Context, Structured, record};
use crate::autograd::mode;
use crate::autograd::node::Grads;
use crate::backend::cpu::draw::Draw;
use crate::backend::{Executable, Reduce};
use crate::dtype::{Compute, DType};
use crate::error::{Result, bail};
use crate::program::trace;
use crate::shape::{Dims, Layout, broadcast};
use crate::tensor::{Body, Tensor, default_dtype};
use smallvec::smallvec;
use std::sync::OnceLock;

op! {
    /// Numbers evenly distributed in `[0, 1)`.
    ///
    /// # Errors
    /// `RuntimeError` for a negative size; `NotImplementedError` for a dtype that is no float type.
    RAND rand(size: Ints; generator: OptGenerator = None, dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| {
            let options = Options::of(a, 2).or(default_dtype());
            check_float("rand", "check_uniform_bounds", options.dtype)?;
            let t = a.generator(1).draw("rand", &sizes_of("rand", a.ints(0)?)?, options.dtype, UNIT)?;
            options.finish("rand", t)
        });
    /// Standard normal numbers.
    ///
    /// # Errors
    /// As [`rand`](Self::rand).
    RANDN randn(size: Ints; generator: OptGenerator = None, dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| {
            let options = Options::of(a, 2).or(default_dtype());
            check_float("randn", "normal_kernel_cpu", options.dtype)?;
            let t = a.generator(1).draw("randn", &sizes_of("randn", a.ints(0)?)?, options.dtype, STANDARD)?;
            options.finish("randn", t)
        });
    /// Integers evenly distributed in `[low, high)`, int64 if no dtype is given.
    ///
    /// # Errors
    /// `RuntimeError` for an empty range or one that the dtype does not hold, or a negative size.
    RANDINT randint(low: Int, high: Int, size: Ints; generator: OptGenerator = None, dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| randint(a, a.int(0)?, a.int(1)?, 2));
    /// Integers evenly distributed in `[0, high)`: [`randint`](Self::randint) from 0.
    ///
    /// # Errors
    /// As `randint`.
    RANDINT_HIGH randint_below as "randint"(high: Int, size: Ints; generator: OptGenerator = None, dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| randint(a, 0, a.int(0)?, 1));
    /// The integers from 0 up to `n` in random order, int64 if no dtype is given.
    ///
    /// # Errors
    /// `RuntimeError` for a negative number or one that the dtype does not hold.
    RANDPERM randperm(n: Int; generator: OptGenerator = None, dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| {
            let n = a.int(0)?;
            let options = Options::of(a, 2).or(DType::I64);
            let sizes = sizes_of("randperm", &[n])?;
            if n > 0 && n - 1 > largest(options.dtype) {
                bail!(runtime "randperm", "n is too large for result tensor type: '{}'", options.dtype.legacy());
            }
            let mut order = vec![0i64; sizes[0]];
            let generator = a.generator(1);
            let mut state = generator.0.lock();
            let first = state.reserve(n as u64);
            state.philox().randperm(&mut order, first);
            drop(state);
            let t = super::to_dtype(&Tensor::from_slice(&order, &sizes)?, options.dtype)?;
            options.finish("randperm", t)
        });
    /// [`rand`](Self::rand) in the shape, and the dtype if none is given, of a tensor.
    ///
    /// # Errors
    /// As `rand`.
    RAND_LIKE rand_like(self; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false, generator: OptGenerator = None) -> Tensor = "", FUNCTION,
        C(|a| {
            let options = Options::of(a, 1).or(a.tensor(0)?.dtype());
            check_float("rand_like", "check_uniform_bounds", options.dtype)?;
            let t = a.generator(4).draw("rand_like", &a.tensor(0)?.sizes(), options.dtype, UNIT)?;
            options.finish("rand_like", t)
        });
    /// [`randn`](Self::randn) in the shape, and the dtype if none is given, of a tensor.
    ///
    /// # Errors
    /// As `randn`.
    RANDN_LIKE randn_like(self; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false, generator: OptGenerator = None) -> Tensor = "", FUNCTION,
        C(|a| {
            let options = Options::of(a, 1).or(a.tensor(0)?.dtype());
            check_float("randn_like", "normal_kernel_cpu", options.dtype)?;
            let t = a.generator(4).draw("randn_like", &a.tensor(0)?.sizes(), options.dtype, STANDARD)?;
            options.finish("randn_like", t)
        });
    /// Integers in `[low, high)` in the shape, and the dtype if none is given, of a tensor.
    ///
    /// # Errors
    /// As [`randint`](Self::randint).
    RANDINT_LIKE randint_like(self, low: Int, high: Int; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false, generator: OptGenerator = None) -> Tensor = "", FUNCTION,
        C(|a| randint_like(a, a.int(1)?, a.int(2)?, 3));
    /// Integers in `[0, high)` in the shape, and the dtype if none is given, of a tensor.
    ///
    /// # Errors
    /// As [`randint`](Self::randint).
    RANDINT_LIKE_HIGH randint_like_below as "randint_like"(self, high: Int; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false, generator: OptGenerator = None) -> Tensor = "", FUNCTION,
        C(|a| randint_like(a, 0, a.int(1)?, 2));
    /// Ones with the probabilities that the tensor holds, else zeros. The gradient is zero.
    ///
    /// # Errors
    /// `RuntimeError` for numbers outside `[0, 1]`; `NotImplementedError` for a dtype that is no float type.
    BERNOULLI bernoulli(self; generator: OptGenerator = None) -> Tensor = "BernoulliBackward0", METHOD | FUNCTION | OUT,
        S(Structured {
            forward: |a| {
                let p = a.tensor(0)?;
                check_float("bernoulli", "bernoulli_tensor_cpu_p_", p.dtype())?;
                Ok(smallvec![events("bernoulli", p, &p.sizes(), p.dtype(), &a.generator(1))?])
            },
            backward: Some(no_gradient),
            saves: &[],
        });
    /// Ones with probability `p`, else zeros, in the shape and dtype of a tensor. The gradient is zero.
    ///
    /// # Errors
    /// `RuntimeError` for a probability outside `[0, 1]`.
    BERNOULLI_P bernoulli_p as "bernoulli"(self, p: Float; generator: OptGenerator = None) -> Tensor = "BernoulliBackward1", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let t = a.tensor(0)?;
                let p = probability("bernoulli", a.float(1)?)?;
                Ok(smallvec![a.generator(2).draw("bernoulli", &t.sizes(), t.dtype(), Draw::Bernoulli { p })?])
            },
            backward: Some(no_gradient),
            saves: &[],
        });
    /// Normal numbers, each with its own mean and standard deviation. The gradients are zero.
    ///
    /// # Errors
    /// `RuntimeError` for shapes that do not broadcast or a negative deviation; `NotImplementedError` for a dtype that is no
    /// float type.
    NORMAL_TENSORS normal_tensors as "normal"(mean: Tensor, std: Tensor; generator: OptGenerator = None) -> Tensor = "NormalBackward3", FUNCTION | OUT,
        S(Structured { forward: normal, backward: Some(no_gradient), saves: &[] });
    /// Normal numbers, each with its own mean. The gradient is zero.
    ///
    /// # Errors
    /// As [`normal_tensors`](Self::normal_tensors).
    NORMAL_MEANS normal_means as "normal"(mean: Tensor, std: Float = 1.0; generator: OptGenerator = None) -> Tensor = "NormalBackward1", FUNCTION | OUT,
        S(Structured { forward: normal, backward: Some(no_gradient), saves: &[] });
    /// Normal numbers, each with its own standard deviation. The gradient is zero.
    ///
    /// # Errors
    /// As [`normal_tensors`](Self::normal_tensors).
    NORMAL_STDS normal_deviations as "normal"(mean: Float, std: Tensor; generator: OptGenerator = None) -> Tensor = "NormalBackward2", FUNCTION | OUT,
        S(Structured { forward: normal, backward: Some(no_gradient), saves: &[] });
    /// Normal numbers of one mean and standard deviation.
    ///
    /// # Errors
    /// As [`normal_tensors`](Self::normal_tensors).
    NORMAL normal(mean: Float, std: Float, size: Ints; generator: OptGenerator = None, dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| {
            let options = Options::of(a, 4).or(default_dtype());
            check_float("normal", "normal_kernel_cpu", options.dtype)?;
            let what = Draw::Normal { mean: a.float(0)?, std: deviation(a.float(1)?)? };
            let t = a.generator(3).draw("normal", &sizes_of("normal", a.ints(2)?)?, options.dtype, what)?;
            options.finish("normal", t)
        });
    /// Class numbers drawn with the weights in each row, int64; without `replacement` none comes twice in a row.
    ///
    /// # Errors
    /// `RuntimeError` for ranks other than 1 and 2, weights that are negative, not finite or all zero, and more draws than
    /// classes.
    MULTINOMIAL multinomial(self, num_samples: Int, replacement: Bool = false; generator: OptGenerator = None) -> Tensor = "", METHOD | FUNCTION | OUT,
        C(multinomial);
    /// Each element made zero with probability `p`, the others scaled by `1 / (1 - p)`, so that the mean stays (Srivastava et
    /// al. 2014). Nothing happens unless `training`.
    ///
    /// # Errors
    /// `ValueError` for a probability outside `[0, 1]`, `RuntimeError` for integers.
    DROPOUT dropout(self, p: Float = 0.5, training: Bool = true) -> Tensor = "", NN | FUNCTION | NN_INPLACE,
        C(|a| {
            let (t, p) = (a.tensor(0)?, dropped("dropout", a.float(1)?)?);
            if p == 0.0 || !a.bool(2) || t.numel() == 0 {
                return Ok(smallvec![t.clone()]);
            }
            check_dropout("dropout", t)?;
            let kept = if p == 1.0 {
                super::zeros(&t.sizes(), t.dtype())?
            } else {
                let kept = Generator::default().draw("dropout", &t.sizes(), t.dtype(), Draw::Bernoulli { p: 1.0 - p })?;
                kept.true_divide(1.0 - p)?
            };
            Ok(smallvec![t.mul(kept)?])
        });
    /// Dropout for networks of [`selu`](Self::selu) (Klambauer et al. 2017): elements are set to the value that `selu`
    /// saturates to with probability `p`, and all are scaled and shifted so that mean and variance stay. Nothing happens
    /// unless `training`.
    ///
    /// # Errors
    /// As [`dropout`](Self::dropout).
    ALPHA_DROPOUT alpha_dropout(self, p: Float = 0.5, training: Bool = false) -> Tensor = "", NN | FUNCTION | NN_INPLACE,
        C(|a| alpha_dropout(a.tensor(0)?, &a.tensor(0)?.sizes(), a.float(1)?, a.bool(2)));
    /// [`alpha_dropout`](Self::alpha_dropout) of whole channels: one draw for each of the first two indices.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two dimensions; else as `dropout`.
    FEATURE_ALPHA_DROPOUT feature_alpha_dropout(self, p: Float = 0.5, training: Bool = false) -> Tensor = "", NN | FUNCTION | NN_INPLACE,
        C(|a| {
            let t = a.tensor(0)?;
            if t.rank() < 2 {
                bail!(runtime "feature_alpha_dropout", "Feature dropout requires at least 2 dimensions in the input");
            }
            let sizes: Dims = t.sizes().iter().enumerate().map(|(d, &s)| if d < 2 { s } else { 1 }).collect();
            alpha_dropout(t, &sizes, a.float(1)?, a.bool(2))
        });
    /// Overwrites with normal numbers.
    ///
    /// # Errors
    /// `RuntimeError` for a negative deviation; `NotImplementedError` for a dtype that is no float type; else as every
    /// in-place change.
    NORMAL_ normal_ as "normal"(self, mean: Float = 0.0, std: Float = 1.0; generator: OptGenerator = None) -> Tensor = "NormalBackward0", INPLACE,
        InPlace(|op, a| {
            check_float("normal_", "normal_kernel_cpu", a.tensor(0)?.dtype())?;
            overwrite(op, a, 3, Draw::Normal { mean: a.float(1)?, std: deviation(a.float(2)?)? })
        });
    /// Overwrites with numbers evenly distributed in `[from, to)`.
    ///
    /// # Errors
    /// `RuntimeError` for an empty range or one that the dtype does not hold; `NotImplementedError` for a dtype that is no
    /// float type; else as every in-place change.
    UNIFORM_ uniform_ as "uniform"(self, from: Float = 0.0, to: Float = 1.0; generator: OptGenerator = None) -> Tensor = "UniformBackward0", INPLACE,
        InPlace(|op, a| {
            let (dtype, low, high) = (a.tensor(0)?.dtype(), a.float(1)?, a.float(2)?);
            check_float("uniform_", "check_uniform_bounds", dtype)?;
            for (name, x) in [("from", low), ("to", high)] {
                if x.is_nan() || x.abs() > largest_float(dtype) {
                    bail!(runtime "uniform_", "{name} is out of bounds for {}", super::matmul::c_name(dtype));
                }
            }
            if low > high {
                bail!(runtime "uniform_", "uniform_ expects to return a [from, to) range, but found from={low} > to={high}");
            }
            overwrite(op, a, 3, Draw::Uniform { low, high })
        });
    /// Overwrites with integers evenly distributed in `[from, to)`.
    ///
    /// # Errors
    /// `RuntimeError` for an empty range or one that the dtype does not hold; else as every in-place change.
    RANDOM_RANGE_ random_range_ as "random"(self, from: Int, to: OptInt; generator: OptGenerator = None) -> Tensor = "RandomBackward0", INPLACE,
        InPlace(|op, a| {
            let (dtype, low) = (a.tensor(0)?.dtype(), a.int(1)?);
            let high = a.opt_int(2).unwrap_or(largest(dtype).saturating_add(1));
            check_range("random_", dtype, low, high)?;
            overwrite(op, a, 3, Draw::Integers { low, high })
        });
    /// Overwrites with integers evenly distributed in `[0, to)`.
    ///
    /// # Errors
    /// As [`random_range_`](Self::random_range_).
    RANDOM_BELOW_ random_below_ as "random"(self, to: Int; generator: OptGenerator = None) -> Tensor = "RandomBackward1", INPLACE,
        InPlace(|op, a| {
            check_range("random_", a.tensor(0)?.dtype(), 0, a.int(1)?)?;
            overwrite(op, a, 2, Draw::Integers { low: 0, high: a.int(1)? })
        });
    /// Overwrites with integers evenly distributed over all that the dtype holds exactly and that are not negative.
    ///
    /// # Errors
    /// As every in-place change.
    RANDOM_ random_ as "random"(self; generator: OptGenerator = None) -> Tensor = "RandomBackward2", INPLACE,
        InPlace(|op, a| {
            let high = largest(a.tensor(0)?.dtype()).saturating_add(1);
            overwrite(op, a, 1, Draw::Integers { low: 0, high })
        });
    /// Overwrites with ones with the probabilities that `p` holds, which broadcasts, else zeros.
    ///
    /// # Errors
    /// `RuntimeError` for probabilities outside `[0, 1]`; else as every in-place change.
    BERNOULLI_EACH_ bernoulli_each_ as "bernoulli"(self, p: Tensor; generator: OptGenerator = None) -> Tensor = "BernoulliBackward1", INPLACE,
        InPlace(|op, a| {
            let (t, p, generator) = (a.tensor(0)?, a.tensor(1)?, a.generator(2));
            let drawn = events(op.rust, &p.detach().expand(&t.sizes())?, &t.sizes(), t.dtype(), &generator)?;
            change(op, a, |to| super::copy::convert(op.rust, &drawn.body(), to))
        });
    /// Overwrites with ones with probability `p`, else zeros.
    ///
    /// # Errors
    /// `RuntimeError` for a probability outside `[0, 1]`; else as every in-place change.
    BERNOULLI_ bernoulli_ as "bernoulli"(self, p: Float = 0.5; generator: OptGenerator = None) -> Tensor = "BernoulliBackward2", INPLACE,
        InPlace(|op, a| overwrite(op, a, 2, Draw::Bernoulli { p: probability("bernoulli_", a.float(1)?)? }));
    /// Overwrites with exponentially distributed numbers of rate `lambd`.
    ///
    /// # Errors
    /// `RuntimeError` for a rate that is not positive or a dtype that is no float type; else as every in-place change.
    EXPONENTIAL_ exponential_ as "exponential"(self, lambd: Float = 1.0; generator: OptGenerator = None) -> Tensor = "ExponentialBackward0", INPLACE,
        InPlace(|op, a| {
            let (dtype, rate) = (a.tensor(0)?.dtype(), a.float(1)?);
            if !dtype.is_float() {
                bail!(runtime "exponential_", "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified {}", dtype.legacy());
            }
            if rate.is_nan() || rate <= 0.0 {
                bail!(runtime "exponential_", "exponential_ expects lambda > 0.0, but found lambda={rate}");
            }
            overwrite(op, a, 2, Draw::Exponential { rate })
        });
    /// Overwrites with numbers of trials up to the first success, each of probability `p`.
    ///
    /// # Errors
    /// `RuntimeError` for a probability outside `(0, 1)`; else as every in-place change.
    GEOMETRIC_ geometric_ as "geometric"(self, p: Float; generator: OptGenerator = None) -> Tensor = "GeometricBackward0", INPLACE,
        InPlace(|op, a| {
            let p = a.float(1)?;
            if !(p > 0.0 && p < 1.0) {
                bail!(runtime "geometric_", "geometric_ expects p to be in (0, 1), but got p={p}");
            }
            overwrite(op, a, 2, Draw::Geometric { p })
        });
    /// Overwrites with Cauchy distributed numbers.
    ///
    /// # Errors
    /// `RuntimeError` for a `sigma` that is not positive or a dtype that is no float type; else as every in-place change.
    CAUCHY_ cauchy_ as "cauchy"(self, median: Float = 0.0, sigma: Float = 1.0; generator: OptGenerator = None) -> Tensor = "CauchyBackward0", INPLACE,
        InPlace(|op, a| {
            let (dtype, sigma) = (a.tensor(0)?.dtype(), a.float(2)?);
            if !dtype.is_float() {
                bail!(runtime "cauchy_", "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you specified {}", super::matmul::c_name(dtype));
            }
            if sigma.is_nan() || sigma <= 0.0 {
                bail!(runtime "cauchy_", "cauchy_ expects sigma > 0.0, but found sigma={sigma}");
            }
            overwrite(op, a, 3, Draw::Cauchy { median: a.float(1)?, sigma })
        });
    /// Overwrites with numbers whose logarithms are normal with this mean and standard deviation.
    ///
    /// # Errors
    /// `RuntimeError` for a deviation that is not positive; `NotImplementedError` for a dtype that is no float type; else as
    /// every in-place change.
    LOG_NORMAL_ log_normal_ as "log_normal"(self, mean: Float = 1.0, std: Float = 2.0; generator: OptGenerator = None) -> Tensor = "LogNormalBackward0", INPLACE,
        InPlace(|op, a| {
            check_float("log_normal_", "log_normal_cpu", a.tensor(0)?.dtype())?;
            let std = a.float(2)?;
            if std.is_nan() || std <= 0.0 {
                bail!(runtime "log_normal_", "log_normal_ expects std > 0.0, but found std={std}");
            }
            overwrite(op, a, 3, Draw::LogNormal { mean: a.float(1)?, std })
        });
}

const UNIT: Draw = Draw::Uniform { low: 0.0, high: 1.0 };
const STANDARD: Draw = Draw::Normal { mean: 0.0, std: 1.0 };

fn check_float(op: &'static str, kernel: &str, dtype: DType) -> Result<()> {
    if !dtype.is_float() {
        bail!(not_implemented op, "\"{kernel}\" not implemented for '{}'", dtype.legacy());
    }
    Ok(())
}

fn deviation(std: f64) -> Result<f64> {
    if std.is_nan() || std < 0.0 {
        bail!(runtime "normal", "normal expects std >= 0.0, but found std {std}");
    }
    Ok(std)
}

fn probability(op: &'static str, p: f64) -> Result<f64> {
    if !(0.0..=1.0).contains(&p) {
        bail!(runtime op, "bernoulli_ expects p to be in [0, 1], but got p={p}");
    }
    Ok(p)
}

/// The largest number up to which a dtype holds every integer.
fn largest(dtype: DType) -> i64 {
    match dtype {
        DType::Bool => 1,
        DType::U8 => u8::MAX as i64,
        DType::I8 => i8::MAX as i64,
        DType::I16 => i16::MAX as i64,
        DType::I32 => i32::MAX as i64,
        DType::I64 => i64::MAX,
        DType::BF16 => 1 << 8,
        DType::F16 => 1 << 11,
        DType::F32 => 1 << 24,
        DType::F64 => 1 << 53,
    }
}

fn largest_float(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::MAX.to_f64(),
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    }
}

/// Whether integers of a range exist and fit a dtype.
fn check_range(op: &'static str, dtype: DType, low: i64, high: i64) -> Result<()> {
    if low >= high {
        bail!(runtime op, "random_ expects 'from' to be less than 'to', but got from={low} >= to={high}");
    }
    if dtype.is_float() {
        return Ok(());
    }
    let least = match dtype {
        DType::Bool | DType::U8 => 0,
        signed => -largest(signed) - 1,
    };
    for (name, x) in [("from", low), ("to - 1", high - 1)] {
        if x < least || x > largest(dtype) {
            bail!(runtime op, "{name} is out of bounds for {}", super::matmul::c_name(dtype));
        }
    }
    Ok(())
}

fn randint(a: &Args, low: i64, high: i64, size: usize) -> Result<Outputs> {
    let options = Options::of(a, size + 2).or(DType::I64);
    let sizes = sizes_of("randint", a.ints(size)?)?;
    check_range("randint", options.dtype, low, high)?;
    let t = a.generator(size + 1).draw("randint", &sizes, options.dtype, Draw::Integers { low, high })?;
    options.finish("randint", t)
}

fn randint_like(a: &Args, low: i64, high: i64, at: usize) -> Result<Outputs> {
    let model = a.tensor(0)?;
    let options = Options::of(a, at).or(model.dtype());
    check_range("randint_like", options.dtype, low, high)?;
    let t = a.generator(at + 3).draw("randint_like", &model.sizes(), options.dtype, Draw::Integers { low, high })?;
    options.finish("randint_like", t)
}

fn dropped(op: &'static str, p: f64) -> Result<f64> {
    if !(0.0..=1.0).contains(&p) {
        bail!(value op, "dropout probability has to be between 0 and 1, but got {p}");
    }
    Ok(p)
}

fn check_dropout(op: &'static str, t: &Tensor) -> Result<()> {
    if !t.dtype().is_float() {
        bail!(runtime op, "result type {} can't be cast to the desired output type {}", default_dtype().legacy(), t.dtype().legacy());
    }
    Ok(())
}

fn alpha_dropout(t: &Tensor, sizes: &[usize], p: f64, training: bool) -> Result<Outputs> {
    let p = dropped("alpha_dropout", p)?;
    if p == 0.0 || !training || t.numel() == 0 {
        return Ok(smallvec![t.clone()]);
    }
    check_dropout("alpha_dropout", t)?;
    if p == 1.0 {
        return Ok(smallvec![t.mul(super::zeros(sizes, t.dtype())?)?]);
    }
    // The limit of selu at minus infinity, -scale * alpha, and what keeps the variance at one.
    const SATURATED: f64 = -1.758_099_340_847_376_6;
    let scale = 1.0 / ((SATURATED * SATURATED * p + 1.0) * (1.0 - p)).sqrt();
    let kept = Generator::default().draw("alpha_dropout", sizes, t.dtype(), Draw::Bernoulli { p: 1.0 - p })?;
    let shift = kept.sub(1.0)?.mul(SATURATED * scale)?.add(SATURATED * scale * p)?;
    Ok(smallvec![t.mul(kept.mul(scale)?)?.add(shift)?])
}

/// What is drawn does not depend smoothly on its parameters: their gradients are zero.
fn no_gradient(c: &Context<'_>) -> Result<Grads> {
    (0..c.edges()).map(|k| c.when(k, |_| super::zeros(c.sizes(k), c.dtype(k)))).collect()
}

/// Ones with the probabilities that `p` holds, else zeros.
fn events(op: &'static str, p: &Tensor, sizes: &[usize], dtype: DType, generator: &Generator) -> Result<Tensor> {
    static BELOW: [[OnceLock<Executable>; 4]; 4] = [const { [const { OnceLock::new() }; 4] }; 4];
    static INSIDE: [OnceLock<Executable>; 4] = [const { OnceLock::new() }; 4];
    let (p, from, to) = (p.body(), p.dtype().compute(), dtype.compute());
    if p.layout.numel() > 0 {
        let inside = INSIDE[from as usize].get_or_init(|| {
            Executable::new(trace(&[from], &[], |x, _| {
                let p = x[0].cast(Compute::F64);
                vec![p.ge(p.zero()).and(p.le(p.literal(1.0)))]
            }))
        });
        let all = fresh(op, Dims::filled(1, p.layout.rank()), DType::Bool)?;
        inside.run(op, &p.layout.sizes, &[p.operand()], &[], &[all.operand()], Reduce::Min)?;
        if !Tensor::from_body(all.with_layout(Layout::contiguous(Dims::new()))).item()?.to_bool() {
            bail!(runtime op, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
        }
    }
    let chance = generator.draw(op, sizes, DType::F64, UNIT)?.body();
    let out = fresh(op, sizes.into(), dtype)?;
    let below = BELOW[from as usize][to as usize].get_or_init(|| {
        Executable::new(trace(&[Compute::F64, from], &[], |x, _| vec![x[0].lt(x[1].cast(Compute::F64)).cast(to)]))
    });
    below.run(op, sizes, &[chance.operand(), p.operand()], &[], &[out.operand()], Reduce::Sum)?;
    Ok(Tensor::from_body(out))
}

/// Normal numbers whose mean, standard deviation or both are tensors.
fn normal(a: &Args) -> Result<Outputs> {
    let (mean, std) = (a.opt_tensor(0), a.opt_tensor(1));
    let mut sizes = Dims::new();
    for t in [mean, std].into_iter().flatten() {
        check_float("normal", "normal_kernel_cpu", t.dtype())?;
        sizes = broadcast("normal", &sizes, &t.sizes())?;
    }
    match std {
        Some(s) if s.to_scalars()?.iter().any(|x| x.to_f64() < 0.0) => {
            bail!(runtime "normal", "normal expects all elements of std >= 0.0")
        }
        Some(_) => {}
        None => drop(deviation(a.float(1)?)?),
    }
    let dtype = match (mean, std) {
        (Some(m), Some(s)) => m.dtype().promote(s.dtype()),
        (Some(t), None) | (None, Some(t)) => t.dtype(),
        (None, None) => default_dtype(),
    };
    let standard = a.generator(2).draw("normal", &sizes, dtype, STANDARD)?;
    let scaled = match std {
        Some(s) => standard.mul(s)?,
        None => standard.mul(a.float(1)?)?,
    };
    Ok(smallvec![match mean {
        Some(m) => scaled.add(m)?,
        None => scaled.add(a.float(0)?)?,
    }])
}

fn multinomial(a: &Args) -> Result<Outputs> {
    let op = "multinomial";
    let (t, draws, again, generator) = (a.tensor(0)?, a.int(1)?, a.bool(2), a.generator(3));
    if !t.dtype().is_float() {
        bail!(runtime op, "multinomial only supports floating-point dtypes for input, got: {}", t.dtype().legacy());
    }
    let sizes = t.sizes();
    let (rows, classes) = match sizes[..] {
        [n] => (1, n),
        [m, n] => (m, n),
        _ => bail!(runtime op, "prob_dist must be 1 or 2 dim"),
    };
    if draws <= 0 {
        bail!(runtime op, "cannot sample n_sample <= 0 samples");
    }
    let draws = draws as usize;
    if !again && draws > classes {
        bail!(runtime op, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    }
    let weights = super::to_dtype(&t.detach(), DType::F64)?.to_vec::<f64>()?;
    if weights.iter().any(|w| !w.is_finite() || *w < 0.0) {
        bail!(runtime op, "probability tensor contains either `inf`, `nan` or element < 0");
    }
    if classes == 0 || weights.chunks_exact(classes).any(|row| row.iter().sum::<f64>() <= 0.0) {
        bail!(runtime op, "invalid multinomial distribution (sum of probabilities <= 0)");
    }
    let mut out = Vec::with_capacity(rows * draws);
    if again {
        let chance = generator.draw(op, &[rows * draws], DType::F64, UNIT)?.to_vec::<f64>()?;
        let mut sums = vec![0.0; classes];
        for (row, chance) in weights.chunks_exact(classes).zip(chance.chunks_exact(draws)) {
            let mut sum = 0.0;
            row.iter().zip(&mut sums).for_each(|(w, s)| {
                sum += w;
                *s = sum;
            });
            // A class of weight zero has the sum of the one before it, which is found first; the last of positive weight
            // is where rounding may lead beyond the end.
            let last = row.iter().rposition(|w| *w > 0.0).unwrap_or(0);
            out.extend(chance.iter().map(|u| sums.partition_point(|s| *s <= u * sum).min(last) as i64));
        }
    } else {
        // Waiting times of rate w: the first to come is class i with probability w_i, the second by what is left, and so on.
        let times =
            generator.draw(op, &[rows * classes], DType::F64, Draw::Exponential { rate: 1.0 })?.to_vec::<f64>()?;
        for (row, times) in weights.chunks_exact(classes).zip(times.chunks_exact(classes)) {
            let time = |&i: &usize| if row[i] > 0.0 { times[i] / row[i] } else { f64::INFINITY };
            let mut order: Vec<usize> = (0..classes).collect();
            order.sort_by(|i, j| time(i).total_cmp(&time(j)));
            out.extend(order[..draws].iter().map(|&i| i as i64));
        }
    }
    let shape: Dims = sizes[..sizes.len() - 1].iter().copied().chain([draws]).collect();
    Ok(smallvec![Tensor::from_slice(&out, &shape)?])
}

/// Overwrites a tensor with numbers of a distribution, drawn from the generator that is argument `generator`.
fn overwrite(op: &'static Op, a: &Args, generator: usize, what: Draw) -> Result<()> {
    let generator = a.generator(generator);
    change(op, a, |to| {
        if to.layout.is_contiguous() {
            generator.fill(to, what);
            return Ok(());
        }
        let drawn = fresh(op.rust, to.layout.sizes.clone(), to.dtype)?;
        generator.fill(&drawn, what);
        super::copy::convert(op.rust, &drawn, to)
    })
}

/// Changes a tensor in place to values that do not depend on those it had.
fn change(op: &'static Op, a: &Args, write: impl FnOnce(&Body) -> Result<()>) -> Result<()> {
    let target = a.tensor(0)?;
    let records = mode::is_grad_enabled() && target.requires_grad();
    inplace::check(op.rust, target, records)?;
    let body = target.body();
    write(&body)?;
    body.bump_version();
    if records {
        let mut inner = a.clone();
        inner[0] = Arg::Tensor(Tensor::with_history(body.clone(), target.edge()));
        let written = Tensor::from_shared(body);
        record(op, &inner, None, no_gradient, &[], std::slice::from_ref(&written))?;
        if let Some(node) = written.grad_fn().node() {
            inplace::rebase(target, node.clone(), 0)?;
        }
    }
    Ok(())
}
