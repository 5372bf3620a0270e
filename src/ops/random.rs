//! Random numbers: generators, tensors drawn from distributions, dropout. Numbers follow from the seed and from how
//! many were drawn before, never from threads or chunks; they are not PyTorch's. In-place fills are in `random_fill`.

use super::args::{Args, Read};
use super::combine::fresh;
use super::create::{Options, sizes_of};
pub use super::generator::{Generator, manual_seed};
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, METHOD, NN, NN_INPLACE, OUT, Outputs, op};
use super::structured::{Context, Structured};
use crate::autograd::node::Grads;
use crate::backend::cpu::draw::Draw;
use crate::backend::{Executable, Reduce};
use crate::dtype::{Compute, DType};
use crate::error::{Result, bail};
use crate::program::trace;
use crate::shape::{Dims, Layout, broadcast};
use crate::storage::affordable;
use crate::tensor::{Tensor, default_dtype};
use crate::threads::{self, Stoppable};
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
            affordable("randperm", sizes[0], size_of::<i64>())?;
            let mut order = vec![0i64; sizes[0]];
            let generator = a.generator(1);
            let (philox, first) = {
                let mut state = generator.0.lock();
                let first = state.reserve(n as u64);
                (state.philox(), first)
            };
            {
                let _fresh = Stoppable::fresh();
                philox.randperm(&mut order, first);
            }
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
                affordable("bernoulli", p.numel(), p.dtype().size())?;
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
}

const UNIT: Draw = Draw::Uniform { low: 0.0, high: 1.0 };
const STANDARD: Draw = Draw::Normal { mean: 0.0, std: 1.0 };

pub(super) fn check_float(op: &'static str, kernel: &str, dtype: DType) -> Result<()> {
    if !dtype.is_float() {
        bail!(not_implemented op, "\"{kernel}\" not implemented for '{}'", dtype.legacy());
    }
    Ok(())
}

pub(super) fn deviation(std: f64) -> Result<f64> {
    if std.is_nan() || std < 0.0 {
        bail!(runtime "normal", "normal expects std >= 0.0, but found std {std}");
    }
    Ok(std)
}

pub(super) fn probability(op: &'static str, p: f64) -> Result<f64> {
    if !(0.0..=1.0).contains(&p) {
        bail!(runtime op, "bernoulli_ expects p to be in [0, 1], but got p={p}");
    }
    Ok(p)
}

/// The largest number up to which a dtype holds every integer.
pub(super) fn largest(dtype: DType) -> i64 {
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

/// Whether integers of a range exist and fit a dtype.
pub(super) fn check_range(op: &'static str, dtype: DType, low: i64, high: i64) -> Result<()> {
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
            bail!(runtime op, "{name} is out of bounds for {}", dtype.c_name());
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
pub(super) fn no_gradient(c: &Context<'_>) -> Result<Grads> {
    (0..c.edges()).map(|k| c.when(k, |_| super::zeros(c.sizes(k), c.dtype(k)))).collect()
}

/// Ones with the probabilities that `p` holds, else zeros.
pub(super) fn events(
    op: &'static str,
    p: &Tensor,
    sizes: &[usize],
    dtype: DType,
    generator: &Generator,
) -> Result<Tensor> {
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

/// About how many nanoseconds it takes to find where a number lies among many.
const SOUGHT: f64 = 30.0;

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
    let weights = super::to_dtype(&t.detach(), DType::F64)?;
    let values = weights.to_vec::<f64>()?;
    if values.iter().any(|w| !w.is_finite() || *w < 0.0) {
        bail!(runtime op, "probability tensor contains either `inf`, `nan` or element < 0");
    }
    if classes == 0 || values.chunks_exact(classes).any(|row| row.iter().sum::<f64>() <= 0.0) {
        bail!(runtime op, "invalid multinomial distribution (sum of probabilities <= 0)");
    }
    affordable(op, rows.saturating_mul(draws), size_of::<i64>())?;
    let shape: Dims = sizes[..sizes.len() - 1].iter().copied().chain([draws]).collect();
    if !again {
        // Waiting times of rate w: the first to come is class i with probability w_i, the second by what is left, and so on.
        let times = generator.draw(op, &sizes, DType::F64, Draw::Exponential { rate: 1.0 })?;
        let times = times.div(&weights)?.masked_fill(&weights.eq(0.0)?, f64::INFINITY)?;
        return Ok(smallvec![times.topk(draws as i64, -1, false, true)?.1]);
    }
    let chance = generator.draw(op, &[rows * draws], DType::F64, UNIT)?.to_vec::<f64>()?;
    let mut out = Vec::with_capacity(chance.len());
    let mut sums = vec![0.0; classes];
    let _fresh = Stoppable::fresh();
    for (row, chance) in values.chunks_exact(classes).zip(chance.chunks_exact(draws)) {
        let mut sum = 0.0;
        row.iter().zip(&mut sums).for_each(|(w, s)| {
            sum += w;
            *s = sum;
        });
        // A class of weight zero has the sum of the one before it, which is found first; the last of positive weight
        // is where rounding may lead beyond the end.
        let last = row.iter().rposition(|w| *w > 0.0).unwrap_or(0);
        for range in threads::turns(draws, SOUGHT) {
            out.extend(chance[range].iter().map(|u| sums.partition_point(|s| *s <= u * sum).min(last) as i64));
        }
    }
    Ok(smallvec![Tensor::from_slice(&out, &shape)?])
}
