//! In-place fills with random numbers: what they write does not depend on what was there, and their gradient is zero.

use super::args::{Arg, Args, Read};
use super::combine::fresh;
use super::inplace;
use super::op::Rule::InPlace;
use super::op::{INPLACE, Op, op};
use super::random::{check_float, check_range, deviation, events, largest, no_gradient, probability};
use super::structured::record;
use crate::autograd::mode;
use crate::backend::cpu::draw::Draw;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::tensor::{Body, Tensor};

op! {
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
                    bail!(runtime "uniform_", "{name} is out of bounds for {}", dtype.c_name());
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
                bail!(runtime "cauchy_", "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you specified {}", dtype.c_name());
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

fn largest_float(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::MAX.to_f64(),
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    }
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
        inner[0] = Arg::Tensor(Tensor::with_history(body.clone(), target.edge()?));
        let mut written = Tensor::from_shared(body);
        record(op, &inner, None, no_gradient, &[], std::slice::from_mut(&mut written))?;
        if let Some(node) = written.grad_fn_as_is().node() {
            inplace::rebase(target, node.clone(), 0)?;
        }
    }
    Ok(())
}
