//! Arithmetic, powers and rounding, element by element: a row is a formula, and everything else follows from it. Choosing
//! between values, transcendental and special functions, comparisons and activations have files of their own.

use super::args::{Args, Read};
use super::formula::{Elementwise, F};
use super::op::Rule::{Composite as C, Elementwise as E};
use super::op::{EVERYWHERE, FUNCTION, INPLACE_FUNCTION, METHOD, OUT, SPECIAL, op};
use crate::backend::{Executable, Reduce};
use crate::dtype::{Category, Compute, DType};
use crate::error::{Result, bail};
use crate::program::{Sym, trace};
use crate::scalar::Scalar;
use crate::shape::Layout;
use crate::storage::Storage;
use crate::tensor::{Body, Tensor};
use smallvec::smallvec;
use std::sync::OnceLock;

/// PyTorch's refusals of an `alpha`, the argument after the operands.
fn check_alpha(args: &Args, common: DType) -> Result<()> {
    let Some(alpha) = args.opt_number(2) else { return Ok(()) };
    if alpha.category() > common.category() {
        match alpha.category() {
            Category::Float => {
                bail!(runtime "add", "For integral input tensors, argument alpha must not be a floating point number.")
            }
            _ if common == DType::Bool => {}
            _ => bail!(runtime "add", "For boolean inputs, argument alpha must not be a number of another kind."),
        }
    }
    Ok(())
}

/// Subtraction of truth values is refused, as it has two meanings.
fn check_sub(args: &Args, common: DType) -> Result<()> {
    if common == DType::Bool {
        bail!(runtime "sub", "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.");
    }
    let is_bool = |k: usize| match args.opt_tensor(k) {
        Some(t) => t.dtype() == DType::Bool,
        None => args.opt_number(k).is_some_and(|n| n.category() == Category::Bool),
    };
    if is_bool(0) || is_bool(1) {
        bail!(runtime "sub", "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.");
    }
    check_alpha(args, common)
}

/// 1 if the number at position `at` is not 1 and so must be multiplied by.
fn factor_variant(args: &Args, at: usize) -> u8 {
    args.opt_number(at).is_some_and(|a| a.to_f64() != 1.0) as u8
}

fn alpha_variant(args: &Args) -> Result<u8> {
    Ok(factor_variant(args, 2))
}

/// `x`, times number `k` where the variant says that it is not 1.
fn scaled(f: &F, x: Sym, k: usize) -> Sym {
    if f.variant == 0 { x } else { x * f.n(k) }
}

/// Integers divided by zero are an error; the kernels only keep it from trapping.
fn check_divisor(args: &Args, common: DType) -> Result<()> {
    if common.category() != Category::Int {
        return Ok(());
    }
    let zero = match args.opt_number(1) {
        Some(number) => number.to_i64() == 0,
        None => has_zero(args.tensor(1)?)?,
    };
    if zero {
        bail!(runtime "div", "ZeroDivisionError");
    }
    Ok(())
}

/// Whether any element is zero.
fn has_zero(t: &Tensor) -> Result<bool> {
    static PROGRAMS: [OnceLock<Executable>; 4] = [const { OnceLock::new() }; 4];
    let body = t.body();
    if body.layout.numel() == 0 {
        return Ok(false);
    }
    let ty = body.dtype.compute();
    let program = PROGRAMS[ty as usize].get_or_init(|| {
        Executable::new(trace(&[ty], &[], |x, _| vec![x[0].cast(Compute::Bool).not().cast(Compute::I64)]))
    });
    let sizes = &body.layout.sizes;
    let found =
        Body::new(Storage::uninit("div", 8)?, Layout::contiguous(sizes.iter().map(|_| 1).collect()), DType::I64);
    program.run("div", sizes, &[body.operand()], &[], &[found.operand()], Reduce::Max)?;
    Ok(Tensor::from_body(found).item()?.to_bool())
}

/// The exponents that have a formula of their own.
fn pow_variant(args: &Args) -> Result<u8> {
    let exponent = args.number(1)?.to_f64();
    let special = [2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.0, 0.0];
    Ok(special.iter().position(|&s| s == exponent).map_or(0, |k| k as u8 + 1))
}

fn pow_number(f: &F) -> Sym {
    let x = f.x(0);
    match f.variant {
        1 => x * x,
        2 => x * x * x,
        3 => x.sqrt(),
        4 => x.rsqrt(),
        5 => x.reciprocal(),
        6 => (x * x).reciprocal(),
        7 => x,
        8 => f.literal(1.0),
        _ => x.pow(f.n(0)),
    }
}

/// `g n x^(n - 1)`, which unlike what follows from the formula above neither overflows nor cancels in between.
fn pow_number_gradient(f: &F, g: Sym) -> Option<Sym> {
    let x = f.x(0);
    Some(match f.variant {
        1 => g * (x * 2.0),
        2 => g * (x * x * 3.0),
        3 => g * (x.rsqrt() * 0.5),
        4 => g * (x.pow(f.literal(-1.5)) * -0.5),
        5 => {
            let y = x.reciprocal();
            -(g * (y * y))
        }
        6 => g * (x.pow(f.literal(-3.0)) * -2.0),
        7 => g,
        8 => return None,
        _ => g * (f.n(0) * x.pow(f.n(0) - 1.0)),
    })
}

fn check_pow(args: &Args, common: DType) -> Result<()> {
    if !common.is_float() && args.number(1)?.to_i64() < 0 {
        bail!(runtime "pow", "Integers to negative integer powers are not allowed.");
    }
    Ok(())
}

fn check_addcdiv(args: &Args, _: DType) -> Result<()> {
    if !args.tensor(1)?.dtype().is_float() && !args.tensor(2)?.dtype().is_float() {
        bail!(runtime "addcdiv", "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true division of tensor1 and tensor2. Divide with rounding_mode=\"trunc\" and add, or convert the tensors to floats.");
    }
    Ok(())
}

op! {
    /// Adds `other`, scaled by `alpha`: `input + alpha * other`. Operands broadcast; dtypes promote.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    ADD add(self, other: Operand; alpha: Number = 1) -> Tensor = "AddBackward0", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0) + scaled(f, f.x(1), 0)).variant(alpha_variant).check(check_alpha));
    /// Subtracts `other`, scaled by `alpha`: `input - alpha * other`. Operands broadcast; dtypes promote.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, or for bool tensors.
    SUB sub(self, other: Operand; alpha: Number = 1) -> Tensor = "SubBackward0", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0) - scaled(f, f.x(1), 0)).variant(alpha_variant).check(check_sub));
    /// Multiplies elementwise. Operands broadcast; dtypes promote.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    MUL mul(self, other: Operand) -> Tensor = "MulBackward0", EVERYWHERE, E(Elementwise::numeric(|f| f.x(0) * f.x(1)));
    /// Divides elementwise, integers as floats.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    DIV true_divide as "div"(self, other: Operand) -> Tensor = "DivBackward0", EVERYWHERE,
        E(Elementwise::float(|f| f.x(0) / f.x(1)));
    /// Divides elementwise and rounds the quotient: towards zero with `rounding_mode="trunc"`, down with `"floor"`, not at
    /// all with `None`. Rounded quotients keep the integer dtype.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, for integer division by zero, and for another mode.
    DIV_MODE div as "div"(self, other: Operand; rounding_mode: OptStr = None) -> Tensor = "", EVERYWHERE,
        C(|a| {
            let row = match a.str(2) {
                "" => &DIV,
                "trunc" => &DIV_TRUNC,
                "floor" => &DIV_FLOOR,
                other => bail!(runtime "div", "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{other}'"),
            };
            super::apply::call(row, &smallvec![a[0].clone(), a[1].clone()])
        }),
        |s| vec![
            smallvec![s.t(&[2, 3]).into(), s.t(&[3]).into(), super::args::Arg::None],
            smallvec![s.between(&[2, 3], 2.0, 9.0).into(), s.between(&[3], 0.7, 1.3).into(), super::args::Arg::Str("floor".into())],
        ];
    /// The quotient rounded towards zero. Its gradient is zero.
    DIV_TRUNC div_trunc(self, other: Operand) -> Tensor = "DivBackward2", 0,
        E(Elementwise::numeric(|f| f.x(0).trunc_div(f.x(1))).no_bool().check(check_divisor));
    /// The quotient rounded down. Its gradient is zero.
    DIV_FLOOR div_floor(self, other: Operand) -> Tensor = "DivBackward2", 0,
        E(Elementwise::numeric(|f| f.x(0).floor_div(f.x(1))).no_bool().check(check_divisor));
    /// The quotient rounded down, as Python's `//`. It has no derivative: asking for one is an error.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, or for integer division by zero.
    FLOOR_DIVIDE floor_divide(self, other: Operand) -> Tensor = "NotImplemented", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0).floor_div(f.x(1))).no_bool().check(check_divisor));
    /// A number divided by a tensor and rounded down.
    ///
    /// # Errors
    /// `RuntimeError` for integer division by zero.
    FLOOR_DIVIDE_OF floor_divide_of as "floor_divide"(input: Number, other: Tensor) -> Tensor = "NotImplemented", FUNCTION,
        E(Elementwise::numeric(|f| f.n(0).floor_div(f.x(0))).no_bool().promoting(1).check(check_divisor).numbers(&[2.0]));
    /// Remainder of the division rounded down, with the sign of the divisor, as Python's `%`.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, or for integer division by zero.
    REMAINDER_TENSOR remainder_tensor as "remainder"(self, other: Tensor) -> Tensor = "RemainderBackward1", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0).remainder(f.x(1))).no_bool().check(check_divisor).domain(&[(-3.0, 3.0), (0.8, 1.2)]));
    /// Remainder of the division by a number rounded down, with the sign of the divisor.
    ///
    /// # Errors
    /// `RuntimeError` for integer division by zero.
    REMAINDER remainder(self, other: Number) -> Tensor = "RemainderBackward0", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0).remainder(f.n(0))).no_bool().promoting(1).check(check_divisor).numbers(&[0.7]));
    /// Remainder of the division of a number by a tensor. It has no derivative: asking for one is an error.
    ///
    /// # Errors
    /// `RuntimeError` for integer division by zero.
    REMAINDER_OF remainder_of as "remainder"(input: Number, other: Tensor) -> Tensor = "NotImplemented", FUNCTION,
        E(Elementwise::numeric(|f| f.n(0).remainder(f.x(0))).no_bool().promoting(1).check(check_divisor).numbers(&[2.0]));
    /// Remainder of the division rounded towards zero, with the sign of the dividend, as C's `fmod`.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, or for integer division by zero.
    FMOD_TENSOR fmod_tensor as "fmod"(self, other: Tensor) -> Tensor = "FmodBackward1", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0).fmod(f.x(1))).no_bool().check(check_divisor).domain(&[(-3.0, 3.0), (0.8, 1.2)]));
    /// Remainder of the division by a number rounded towards zero.
    ///
    /// # Errors
    /// `RuntimeError` for integer division by zero.
    FMOD fmod(self, other: Number) -> Tensor = "FmodBackward0", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0).fmod(f.n(0))).no_bool().promoting(1).check(check_divisor).numbers(&[0.7]));
    /// `other - alpha * input`.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, or for bool tensors.
    RSUB_TENSOR rsub_tensor as "rsub"(self, other: Tensor; alpha: Number = 1) -> Tensor = "RsubBackward0", FUNCTION,
        E(Elementwise::numeric(|f| f.x(1) - scaled(f, f.x(0), 0)).variant(alpha_variant).check(check_sub));
    /// A number less `alpha * input`.
    ///
    /// # Errors
    /// `RuntimeError` for bool tensors.
    RSUB rsub(self, other: Number; alpha: Number = 1) -> Tensor = "RsubBackward1", FUNCTION,
        E(Elementwise::numeric(|f| f.n(0) - scaled(f, f.x(0), 1)).promoting(1).variant(alpha_variant).check(check_sub).numbers(&[2.0]));
    /// Negates. Integers wrap.
    ///
    /// # Errors
    /// `RuntimeError` for bool tensors.
    NEG neg(self) -> Tensor = "NegBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::numeric(|f| -f.x(0)).check(|_, common| {
            if common == DType::Bool {
                bail!(runtime "neg", "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.");
            }
            Ok(())
        }));
    /// The tensor itself.
    ///
    /// # Errors
    /// `RuntimeError` for bool tensors.
    POSITIVE positive(self) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let t = a.tensor(0)?;
            if t.dtype() == DType::Bool {
                bail!(runtime "positive", "The `+` operator, on a bool tensor is not supported.");
            }
            Ok(smallvec![t.clone()])
        }),
        |s| vec![s.tensors(&[&[2, 3]])];
    /// Absolute value. Its derivative at 0 is 0; the smallest integer stays.
    ///
    /// # Errors
    /// `NotImplementedError` for bool tensors.
    ABS abs(self) -> Tensor = "AbsBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::numeric(|f| f.x(0).abs()).no_bool());
    /// -1, 0 or 1 by the sign; 0 for NaN.
    SIGN sign(self) -> Tensor = "SignBackward0", EVERYWHERE, E(Elementwise::numeric(|f| f.x(0).sign()));
    /// -1, 0 or 1 by the sign: [`sign`](Self::sign) under the name that complex numbers share.
    SGN sgn(self) -> Tensor = "SgnBackward0", EVERYWHERE, E(Elementwise::numeric(|f| f.x(0).sign()));
    /// Whether the sign bit is set, that of -0.0 and NaN included.
    SIGNBIT signbit(self) -> Tensor = "", METHOD | FUNCTION | OUT,
        E(Elementwise::comparison(|f| match f.ty {
            Compute::Bool => f.literal(0.0),
            Compute::I64 => f.x(0).lt(f.literal(0.0)),
            _ => f.literal(1.0).copysign(f.x(0)).lt(f.literal(0.0)),
        }));
    /// The magnitude of `input` with the sign of `other`, that of zeros included. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    COPYSIGN_TENSOR copysign_tensor as "copysign"(self, other: Tensor) -> Tensor = "CopysignBackward0", EVERYWHERE,
        E(Elementwise::float(|f| f.x(0).copysign(f.x(1))).saves_result());
    /// The magnitude of `input` with the sign of a number.
    COPYSIGN copysign(self, other: Number) -> Tensor = "CopysignBackward1", EVERYWHERE,
        E(Elementwise::float(|f| f.x(0).copysign(f.n(0))).promoting(1).saves_result().numbers(&[-2.0]));
    /// `input` to the power of `exponent`. Operands broadcast; integers wrap, and to negative powers are 0 but for bases 1
    /// and -1.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for bool tensors.
    POW_TENSOR pow_tensor as "pow"(self, exponent: Tensor) -> Tensor = "PowBackward1", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0).pow(f.x(1))).no_bool().saves_result().domain(&[(0.3, 2.5)]));
    /// `input` to the power of a number; the exponents 2, 3, 1/2, -1/2, -1 and -2 by multiplication, division and roots.
    ///
    /// # Errors
    /// `RuntimeError` for integers to a negative integer power.
    POW pow(self, exponent: Number) -> Tensor = "PowBackward0", EVERYWHERE,
        E(Elementwise::numeric(pow_number).promoting(1).variant(pow_variant).check(check_pow)
            .vjp(|f, _, g| vec![pow_number_gradient(f, g)]).domain(&[(0.3, 2.5)]).numbers(&[2.3])),
        |s| [2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.0, 0.0, 4.0].iter().map(|&e| smallvec![s.between(&[2, 3], 0.3, 2.5).into(), Scalar::Float(e).into()]).collect();
    /// A number to the power of `exponent`.
    POW_OF pow_of as "pow"(input: Number, exponent: Tensor) -> Tensor = "PowBackward2", FUNCTION | OUT,
        E(Elementwise::numeric(|f| f.n(0).pow(f.x(0))).no_bool().promoting(1).saves_result().numbers(&[1.7]));
    /// The square.
    SQUARE square(self) -> Tensor = "", EVERYWHERE | INPLACE_FUNCTION,
        C(|a| Ok(smallvec![a.tensor(0)?.pow(2)?])), |s| vec![s.tensors(&[&[2, 3]])];
    /// `input` to the power of `exponent`, computed in float64. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    FLOAT_POWER_TENSOR float_power_tensor as "float_power"(self, exponent: Tensor) -> Tensor = "", EVERYWHERE,
        C(|a| Ok(smallvec![super::to_dtype(a.tensor(0)?, DType::F64)?.pow_tensor(&super::to_dtype(a.tensor(1)?, DType::F64)?)?])),
        |s| vec![smallvec![s.between(&[2, 3], 0.3, 2.5).into(), s.t(&[3]).into()]];
    /// `input` to the power of a number, computed in float64.
    FLOAT_POWER float_power(self, exponent: Number) -> Tensor = "", EVERYWHERE,
        C(|a| Ok(smallvec![super::to_dtype(a.tensor(0)?, DType::F64)?.pow(Scalar::Float(a.float(1)?))?])),
        |s| vec![smallvec![s.between(&[2, 3], 0.3, 2.5).into(), Scalar::Float(2.5).into()]];
    /// A number to the power of `exponent`, computed in float64.
    FLOAT_POWER_OF float_power_of as "float_power"(input: Number, exponent: Tensor) -> Tensor = "", FUNCTION | OUT,
        C(|a| Ok(smallvec![Tensor::pow_of(Scalar::Float(a.float(0)?), super::to_dtype(a.tensor(1)?, DType::F64)?)?])),
        |s| vec![smallvec![Scalar::Float(1.7).into(), s.t(&[3]).into()]];
    /// The reciprocal, `1 / input`.
    RECIPROCAL reciprocal(self) -> Tensor = "ReciprocalBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0).reciprocal()).saves_result());
    /// Square root; NaN for negative numbers.
    SQRT sqrt(self) -> Tensor = "SqrtBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0).sqrt()).saves_result().domain(&[(0.1, 3.0)]));
    /// The reciprocal of the square root.
    RSQRT rsqrt(self) -> Tensor = "RsqrtBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0).rsqrt()).saves_result().domain(&[(0.2, 3.0)]));
    /// The length of the vector `(input, other)`, without overflow in between. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for integers.
    HYPOT hypot(self, other: Tensor) -> Tensor = "HypotBackward0", EVERYWHERE,
        E(Elementwise::float_only(|f| f.x(0).hypot(f.x(1))).saves_result());
    /// The largest integer not above.
    ///
    /// # Errors
    /// `NotImplementedError` for bool tensors.
    FLOOR floor(self) -> Tensor = "FloorBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::numeric(|f| f.x(0).floor()).no_bool());
    /// The smallest integer not below.
    ///
    /// # Errors
    /// `NotImplementedError` for bool tensors.
    CEIL ceil(self) -> Tensor = "CeilBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::numeric(|f| f.x(0).ceil()).no_bool());
    /// The integer part.
    ///
    /// # Errors
    /// `NotImplementedError` for bool tensors.
    TRUNC trunc(self) -> Tensor = "TruncBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::numeric(|f| f.x(0).trunc()).no_bool());
    /// The part behind the point, with the sign of the number.
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    FRAC frac(self) -> Tensor = "FracBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::float_only(|f| f.x(0) - f.x(0).trunc()));
    /// The nearest integer, ties to even.
    ///
    /// # Errors
    /// `NotImplementedError` for bool tensors.
    ROUND round(self) -> Tensor = "RoundBackward0", EVERYWHERE | INPLACE_FUNCTION, E(Elementwise::numeric(|f| f.x(0).round()).no_bool());
    /// Rounded to `decimals` places behind the point, before it if negative; ties to even.
    ///
    /// # Errors
    /// `NotImplementedError` for integers.
    ROUND_DECIMALS round_decimals as "round"(self; decimals: Int = 0) -> Tensor = "", EVERYWHERE | INPLACE_FUNCTION | SPECIAL,
        C(|a| {
            let decimals = a.int(1)?;
            let scale = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
            Ok(smallvec![a.tensor(0)?.round_scaled(scale, decimals < 0)?])
        }),
        |s| vec![smallvec![s.t(&[2, 3]).into(), 1i64.into()]];
    /// Rounded to multiples of `1 / scale`, or of `scale`.
    ROUND_SCALED round_scaled as "round"(self, scale: Float, coarse: Bool) -> Tensor = "RoundBackward1", 0,
        E(Elementwise::float_only(|f| match f.variant {
            0 => (f.x(0) * f.n(0)).round() / f.n(0),
            _ => (f.x(0) / f.n(0)).round() * f.n(0),
        }).variant(|a| Ok(a.bool(2) as u8)).numbers(&[10.0]));
    /// `input + value * tensor1 * tensor2`. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for bool tensors.
    ADDCMUL addcmul(self, tensor1: Tensor, tensor2: Tensor; value: Number = 1) -> Tensor = "AddcmulBackward0", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0) + scaled(f, f.x(1), 0) * f.x(2)).no_bool().variant(|a| Ok(factor_variant(a, 3)))),
        |s| vec![smallvec![s.t(&[2, 3]).into(), s.t(&[3]).into(), s.t(&[2, 1]).into(), Scalar::Float(0.3).into()]];
    /// `input + value * tensor1 / tensor2`. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast or both tensors are of integers.
    ADDCDIV addcdiv(self, tensor1: Tensor, tensor2: Tensor; value: Number = 1) -> Tensor = "AddcdivBackward0", EVERYWHERE,
        E(Elementwise::float_only(|f| f.x(0) + scaled(f, f.x(1), 0) / f.x(2)).check(check_addcdiv).variant(|a| Ok(factor_variant(a, 3)))
            .domain(&[(-1.5, 1.5), (-1.5, 1.5), (0.4, 2.0)])),
        |s| vec![smallvec![s.t(&[2, 3]).into(), s.t(&[3]).into(), s.between(&[2, 1], 0.5, 2.0).into(), Scalar::Float(0.3).into()]];
    /// The next representable number towards `other`. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast; `NotImplementedError` for integers.
    NEXTAFTER nextafter(self, other: Tensor) -> Tensor = "NextafterBackward0", EVERYWHERE,
        E(Elementwise::float_only(|f| f.x(0).nextafter(f.x(1)))
            .vjp(|f, _, g| vec![Some(Sym::select(f.x(0).eq(f.x(1)), g.zero(), g)), None]));
    /// `input * 2^other`. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    LDEXP ldexp(self, other: Tensor) -> Tensor = "LdexpBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0) * f.x(1).exp2()).saves_result()
            .vjp(|f, y, g| vec![Some(g * f.x(1).exp2()), Some(g * y * std::f64::consts::LN_2)]));
    /// Radians to degrees.
    RAD2DEG rad2deg(self) -> Tensor = "Rad2DegBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0) * 57.295_779_513_082_32));
    /// Degrees to radians.
    DEG2RAD deg2rad(self) -> Tensor = "Deg2RadBackward0", EVERYWHERE | INPLACE_FUNCTION,
        E(Elementwise::float(|f| f.x(0) * 0.017_453_292_519_943_295));
}
