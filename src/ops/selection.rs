//! Choosing between values, element by element: bounds, extremes, conditions, fills, and mixing two values by a weight.

use super::args::{Arg, Args, Read};
use super::formula::{Elementwise, F};
use super::op::Rule::{Composite as C, Elementwise as E};
use super::op::{EVERYWHERE, FUNCTION, INPLACE, INPLACE_FUNCTION, METHOD, OUT, op};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::program::Sym;
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use smallvec::smallvec;

/// Which bounds are given, as bits.
fn bounds(args: &Args) -> Result<u8> {
    let given = |k: usize| !matches!(args.arg(k), Arg::None) as u8;
    Ok(given(1) | given(2) << 1)
}

fn check_bounds(args: &Args, _: DType) -> Result<()> {
    if bounds(args)? == 0 {
        bail!(runtime "clamp", "torch.clamp: At least one of 'min' or 'max' must not be None");
    }
    Ok(())
}

/// The bounds of a clamp with numbers.
fn number_bounds(f: &F) -> (Option<Sym>, Option<Sym>) {
    match f.variant {
        1 => (Some(f.n(0)), None),
        2 => (None, Some(f.n(0))),
        _ => (Some(f.n(0)), Some(f.n(1))),
    }
}

fn tensor_bounds(f: &F) -> (Option<Sym>, Option<Sym>) {
    let given = |k: usize| f.has(k).then(|| f.x(k));
    (given(1), given(2))
}

/// NaN stays, and a NaN bound wins; the upper bound has the last word.
fn clamp(x: Sym, (low, high): (Option<Sym>, Option<Sym>)) -> Sym {
    let x = low.map_or(x, |low| x.maximum(low));
    high.map_or(x, |high| x.minimum(high))
}

/// The gradient passes inside the bounds and on them.
fn clamp_gradient(x: Sym, (low, high): (Option<Sym>, Option<Sym>), g: Sym) -> Sym {
    let inside = match (low, high) {
        (Some(low), Some(high)) => x.ge(low).and(x.le(high)),
        (Some(low), None) => x.ge(low),
        (None, Some(high)) => x.le(high),
        (None, None) => return g,
    };
    Sym::select(inside, g, g.zero())
}

fn clamp_tensor_gradients(f: &F, g: Sym) -> Vec<Option<Sym>> {
    let (x, bounds) = (f.x(0), tensor_bounds(f));
    let when = |c: Sym| Some(Sym::select(c, g, g.zero()));
    let (low, high) = match bounds {
        (Some(low), Some(high)) => (when(low.lt(high).and(x.lt(low))), when(x.gt(high).or(high.lt(low)))),
        (Some(low), None) => (when(x.lt(low)), None),
        (None, Some(high)) => (None, when(x.gt(high))),
        (None, None) => (None, None),
    };
    vec![Some(clamp_gradient(x, bounds, g)), low, high]
}

fn check_condition(args: &Args, _: DType) -> Result<()> {
    match args.tensor(0)?.dtype() {
        DType::Bool | DType::U8 => Ok(()),
        other => {
            bail!(runtime "where", "where expected condition to be a boolean tensor, but got a tensor with dtype {}", other.legacy())
        }
    }
}

/// The type's name in messages about values that do not fit.
fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int",
        DType::F16 => "at::Half",
        DType::BF16 => "at::BFloat16",
        DType::F32 => "float",
        other => other.c_name(),
    }
}

/// Refuses a number that a dtype cannot hold; negative numbers may wrap into unsigned types, as in C.
pub(super) fn check_fits(op: &'static str, value: Scalar, dtype: DType) -> Result<()> {
    let x = value.to_f64();
    let fits = match dtype {
        DType::U8 => (-255.0..=255.0).contains(&x.trunc()),
        DType::I8 => (-128.0..=127.0).contains(&x.trunc()),
        DType::I16 => (-32768.0..=32767.0).contains(&x.trunc()),
        DType::I32 => (-2_147_483_648.0..=2_147_483_647.0).contains(&x.trunc()),
        DType::I64 => x.abs() <= 9_223_372_036_854_775_808.0,
        DType::F16 => !x.is_finite() || x.abs() <= 65504.0,
        DType::BF16 => !x.is_finite() || x.abs() <= 3.389_531_389_251_535_5e38,
        DType::F32 => !x.is_finite() || x.abs() <= f32::MAX as f64,
        DType::Bool | DType::F64 => true,
    };
    if !fits {
        bail!(runtime op, "value cannot be converted to type {} without overflow", c_type(dtype));
    }
    Ok(())
}

fn check_mask(args: &Args, common: DType) -> Result<()> {
    let mask = args.tensor(1)?.dtype();
    if mask != DType::Bool {
        bail!(runtime "masked_fill", "masked_fill_ only supports boolean masks, but got mask with dtype {}", mask.c_name());
    }
    if let Some(value) = args.opt_tensor(2) {
        if value.rank() != 0 {
            bail!(runtime "masked_fill", "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).", value.rank());
        }
        return Ok(());
    }
    check_fits("masked_fill", args.number(2)?, common)
}

fn check_fill(args: &Args, common: DType) -> Result<()> {
    if let Some(value) = args.opt_tensor(1) {
        if value.rank() != 0 {
            bail!(runtime "fill_", "fill_ only supports 0-dimension value tensor but got tensor with {} dimensions.", value.rank());
        }
        return Ok(());
    }
    check_fits("fill_", args.number(1)?, common)
}

/// All tensors of one dtype.
fn check_lerp(args: &Args, _: DType) -> Result<()> {
    let first = args.tensor(0)?.dtype();
    for (k, name) in [(1, "end"), (2, "weight")] {
        if let Some(other) = args.opt_tensor(k).map(Tensor::dtype).filter(|d| *d != first) {
            bail!(runtime "lerp", "expected dtype {} for `{name}` but got dtype {}", first.c_name(), other.c_name());
        }
    }
    Ok(())
}

/// From the nearer end, so that both ends are met exactly.
fn lerp(a: Sym, b: Sym, w: Sym) -> Sym {
    let span = b - a;
    Sym::select(w.abs().lt(w.literal(0.5)), a + w * span, b - span * (-w + 1.0))
}

fn lerp_gradients(f: &F, w: Sym, g: Sym) -> Vec<Option<Sym>> {
    vec![Some(g * (-w + 1.0)), Some(g * w), Some(g * (f.x(1) - f.x(0)))]
}

fn check_same_dtype(args: &Args, _: DType) -> Result<()> {
    if args.tensor(0)?.dtype() != args.tensor(1)?.dtype() {
        bail!(runtime "heaviside", "heaviside is not yet implemented for tensors with different dtypes.");
    }
    Ok(())
}

/// The largest finite value of a float dtype.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.389_531_389_251_535_5e38,
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    }
}

/// Replaces NaN and the infinities by the numbers given, in variant bits, or by 0 and the largest finite numbers.
fn nan_to_num(f: &F) -> Sym {
    let x = f.x(0);
    if !f.ty.is_float() {
        return x;
    }
    let mut next = 0;
    let mut number = |bit: u8, default: f64| {
        if f.variant >> bit & 1 == 1 {
            next += 1;
            f.n(next - 1)
        } else {
            f.literal(default)
        }
    };
    let (nan, up, down) = (number(0, 0.0), number(1, largest(f.dtype)), number(2, -largest(f.dtype)));
    let infinity = f.literal(f64::INFINITY);
    Sym::select(x.is_nan(), nan, Sym::select(x.eq(infinity), up, Sym::select(x.eq(-infinity), down, x)))
}

op! {
    /// Limited to `[min, max]`, tensors that broadcast, either of which may be absent. NaN stays; where `min > max` the
    /// result is `max`. The gradient passes within the bounds and on them.
    ///
    /// # Errors
    /// `RuntimeError` if both bounds are absent or the shapes do not broadcast.
    CLAMP_TENSOR clamp_tensor as "clamp"(self, min: OptTensor = None, max: OptTensor = None) -> Tensor = "ClampBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| clamp(f.x(0), tensor_bounds(f))).no_bool().check(check_bounds)
            .vjp(|f, _, g| clamp_tensor_gradients(f, g)).domain(&[(-1.5, 1.5), (-0.7, -0.3), (0.3, 0.7)]));
    /// Limited to the numbers `[min, max]`, either of which may be absent. NaN stays; where `min > max` the result is `max`.
    /// The gradient passes within the bounds and on them.
    ///
    /// # Errors
    /// `RuntimeError` if both bounds are absent.
    CLAMP clamp(self, min: OptNumber = None, max: OptNumber = None) -> Tensor = "ClampBackward1", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| clamp(f.x(0), number_bounds(f))).no_bool().promoting(2).variant(bounds).check(check_bounds)
            .vjp(|f, _, g| vec![Some(clamp_gradient(f.x(0), number_bounds(f), g))]).numbers(&[-0.5, 0.6])),
        |s| vec![
            smallvec![s.t(&[2, 3]).into(), Scalar::Float(-0.5).into(), Arg::None],
            smallvec![s.t(&[2, 3]).into(), Arg::None, Scalar::Float(0.5).into()],
        ];
    /// Limited from below by a tensor. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    CLAMP_MIN_TENSOR clamp_min_tensor as "clamp_min"(self, min: Tensor) -> Tensor = "ClampMinBackward1", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| f.x(0).maximum(f.x(1))).vjp(|f, _, g| {
            let (x, low) = (f.x(0), f.x(1));
            vec![Some(Sym::select(x.ge(low), g, g.zero())), Some(Sym::select(x.lt(low), g, g.zero()))]
        }));
    /// Limited from below by a number.
    CLAMP_MIN clamp_min(self, min: Number) -> Tensor = "ClampMinBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| f.x(0).maximum(f.n(0))).no_bool().promoting(1).numbers(&[0.2])
            .vjp(|f, _, g| vec![Some(Sym::select(f.x(0).ge(f.n(0)), g, g.zero()))]));
    /// Limited from above by a tensor. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    CLAMP_MAX_TENSOR clamp_max_tensor as "clamp_max"(self, max: Tensor) -> Tensor = "ClampMaxBackward1", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| f.x(0).minimum(f.x(1))).vjp(|f, _, g| {
            let (x, high) = (f.x(0), f.x(1));
            vec![Some(Sym::select(x.le(high), g, g.zero())), Some(Sym::select(x.gt(high), g, g.zero()))]
        }));
    /// Limited from above by a number.
    CLAMP_MAX clamp_max(self, max: Number) -> Tensor = "ClampMaxBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| f.x(0).minimum(f.n(0))).no_bool().promoting(1).numbers(&[0.2])
            .vjp(|f, _, g| vec![Some(Sym::select(f.x(0).le(f.n(0)), g, g.zero()))]));
    /// The larger of two; NaN wins. Where they are equal each gets half of the gradient. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    MAXIMUM maximum(self, other: Tensor) -> Tensor = "MaximumBackward0", METHOD | FUNCTION | OUT,
        E(Elementwise::numeric(|f| f.x(0).maximum(f.x(1))));
    /// The smaller of two; NaN wins. Where they are equal each gets half of the gradient. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    MINIMUM minimum(self, other: Tensor) -> Tensor = "MinimumBackward0", METHOD | FUNCTION | OUT,
        E(Elementwise::numeric(|f| f.x(0).minimum(f.x(1))));
    /// The larger of two; a number wins over NaN. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    FMAX fmax(self, other: Tensor) -> Tensor = "FmaxBackward0", METHOD | FUNCTION | OUT,
        E(Elementwise::numeric(|f| Sym::select(f.x(0).ge(f.x(1)).or(f.x(1).is_nan()), f.x(0), f.x(1))));
    /// The smaller of two; a number wins over NaN. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    FMIN fmin(self, other: Tensor) -> Tensor = "FminBackward0", METHOD | FUNCTION | OUT,
        E(Elementwise::numeric(|f| Sym::select(f.x(0).le(f.x(1)).or(f.x(1).is_nan()), f.x(0), f.x(1))));
    /// The elements of `input` where `condition` holds, else those of `other`. All three broadcast. A NaN in the branch not
    /// taken still reaches the gradient of what it was computed from.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast or `condition` is not of bools.
    WHERE where_ as "where"(condition: Tensor, input: Operand, other: Operand) -> Tensor = "WhereBackward0", FUNCTION | OUT,
        E(Elementwise::numeric(|f| Sym::select(f.x(0), f.x(1), f.x(2))).mask(0).check(check_condition));
    /// The elements of `input` where `condition` holds, else those of `other`.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast or `condition` is not of bools.
    WHERE_METHOD where_else as "where"(self, condition: Tensor, other: Operand) -> Tensor = "", METHOD,
        C(|a| super::apply::call(&WHERE, &smallvec![a[1].clone(), a[0].clone(), a[2].clone()])),
        |s| vec![smallvec![s.t(&[2, 3]).into(), s.mask(&[2, 3]).into(), s.t(&[3]).into()]];
    /// Linear interpolation with a weight for each element: `input + weight * (end - input)`. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast or dtypes differ; `NotImplementedError` for integers.
    LERP_TENSOR lerp_tensor as "lerp"(self, end: Tensor, weight: Tensor) -> Tensor = "LerpBackward1", EVERYWHERE,
        E(Elementwise::float_only(|f| lerp(f.x(0), f.x(1), f.x(2))).check(check_lerp).vjp(|f, _, g| lerp_gradients(f, f.x(2), g)));
    /// Linear interpolation: `input + weight * (end - input)`. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast or dtypes differ; `NotImplementedError` for integers.
    LERP lerp(self, end: Tensor, weight: Number) -> Tensor = "LerpBackward0", EVERYWHERE,
        E(Elementwise::float_only(|f| lerp(f.x(0), f.x(1), f.n(0))).check(check_lerp)
            .vjp(|f, _, g| lerp_gradients(f, f.n(0), g)).numbers(&[0.3])),
        |s| vec![smallvec![s.t(&[2, 3]).into(), s.t(&[3]).into(), Scalar::Float(0.8).into()]];
    /// 0 for negative numbers, 1 for positive ones, `values` at 0. It has no derivative: asking for one is an error.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast or dtypes differ.
    HEAVISIDE heaviside(self, values: Tensor) -> Tensor = "NotImplemented", EVERYWHERE,
        E(Elementwise::numeric(|f| {
            let (x, zero) = (f.x(0), f.literal(0.0));
            Sym::select(x.eq(zero), f.x(1), Sym::select(x.gt(zero), f.literal(1.0), zero))
        }).check(check_same_dtype));
    /// NaN replaced by `nan` (0 if not given), infinities by `posinf` and `neginf` (the largest finite numbers if not given).
    NAN_TO_NUM nan_to_num(self, nan: OptFloat = None, posinf: OptFloat = None, neginf: OptFloat = None) -> Tensor = "NanToNumBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::numeric(nan_to_num).variant(|a| {
            Ok((1..4).filter(|&k| a.opt_number(k).is_some()).fold(0, |bits, k| bits | 1 << (k - 1)))
        })),
        |s| vec![smallvec![s.t(&[2, 3]).into(), 0.5.into(), Arg::None, (-2.0).into()]];
    /// `value`, a 0-d tensor, where `mask` holds, in the dtype of `input`. `mask` broadcasts.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, `mask` is not of bools, or `value` has dimensions.
    MASKED_FILL_TENSOR masked_fill_tensor as "masked_fill"(self, mask: Tensor, value: Tensor) -> Tensor = "MaskedFillBackward1", EVERYWHERE,
        E(Elementwise::numeric(|f| Sym::select(f.x(1), f.x(2), f.x(0))).mask(1).like_first().check(check_mask)),
        |s| vec![smallvec![s.t(&[2, 3]).into(), s.mask(&[2, 3]).into(), s.t(&[]).into()]];
    /// A number where `mask` holds, in the dtype of `input`. `mask` broadcasts.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, `mask` is not of bools, or the dtype cannot hold `value`.
    MASKED_FILL masked_fill(self, mask: Tensor, value: Number) -> Tensor = "MaskedFillBackward0", EVERYWHERE,
        E(Elementwise::numeric(|f| Sym::select(f.x(1), f.n(0), f.x(0))).mask(1).like_first().check(check_mask).numbers(&[0.7]));
    /// A tensor like `input` of copies of `value`, a 0-d tensor.
    ///
    /// # Errors
    /// `RuntimeError` if `value` has dimensions.
    FILL_TENSOR fill_tensor as "fill"(self, value: Tensor) -> Tensor = "FillBackward1", FUNCTION,
        E(Elementwise::numeric(|f| f.x(1)).like_first().check(check_fill)),
        |s| vec![s.tensors(&[&[2, 3], &[]])];
    /// A tensor like `input` of copies of a number.
    ///
    /// # Errors
    /// `RuntimeError` if the dtype cannot hold `value`.
    FILL fill(self, value: Number) -> Tensor = "FillBackward0", FUNCTION,
        E(Elementwise::numeric(|f| f.n(0)).like_first().check(check_fill).numbers(&[0.7]));
    /// Every element becomes `value`, a 0-d tensor.
    ///
    /// # Errors
    /// `RuntimeError` if `value` has dimensions.
    FILL_TENSOR_IN_PLACE filled_with as "fill"(self, value: Tensor) -> Tensor = "FillBackward3", INPLACE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| f.x(1)).like_first().check(check_fill)),
        |s| vec![s.tensors(&[&[2, 3], &[]])];
    /// Every element becomes a number.
    ///
    /// # Errors
    /// `RuntimeError` if the dtype cannot hold `value`.
    FILL_IN_PLACE filled as "fill"(self, value: Number) -> Tensor = "FillBackward2", INPLACE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| f.n(0)).like_first().check(check_fill).numbers(&[0.7]));
    /// Every element becomes zero.
    ZERO zeroed as "zero"(self) -> Tensor = "ZeroBackward0", INPLACE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| f.literal(0.0)).like_first());
}
