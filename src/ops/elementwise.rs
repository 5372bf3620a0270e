//! Elementwise operations: a row is a formula, and everything else follows from it.

use super::args::{Args, Read};
use super::formula::{Elementwise, F};
use super::op::Rule::Elementwise as E;
use super::op::{EVERYWHERE, NN, op};
use crate::dtype::{Category, DType};
use crate::error::{Result, bail};
use crate::program::Sym;

/// `alpha` of add and sub: variant 1 if it is not 1; PyTorch's refusals.
fn check_alpha(args: &Args, common: DType) -> Result<()> {
    let Some(alpha) = args.opt_number(2) else { return Ok(()) };
    if alpha.category() > common.category() {
        match alpha.category() {
            Category::Float => bail!(runtime "add", "For integral input tensors, argument alpha must not be a floating point number."),
            _ => bail!(runtime "add", "For boolean inputs, argument alpha must not be a number of another kind."),
        }
    }
    Ok(())
}

fn alpha_variant(args: &Args) -> Result<u8> {
    Ok(args.opt_number(2).is_some_and(|a| a.to_f64() != 1.0) as u8)
}

fn scaled(f: &F) -> Sym {
    if f.variant == 0 { f.x(1) } else { f.x(1) * f.n(0) }
}

op! {
    /// Adds `other`, scaled by `alpha`: `input + alpha * other`. Operands broadcast; dtypes promote.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    ADD add(self, other: Operand; alpha: Number = 1) -> Tensor = "AddBackward0", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0) + scaled(f)).variant(alpha_variant).check(check_alpha));
    /// Subtracts `other`, scaled by `alpha`: `input - alpha * other`. Operands broadcast; dtypes promote.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, or for two bool tensors.
    SUB sub(self, other: Operand; alpha: Number = 1) -> Tensor = "SubBackward0", EVERYWHERE,
        E(Elementwise::numeric(|f| f.x(0) - scaled(f)).variant(alpha_variant).check(|args, common| {
            if common == DType::Bool {
                bail!(runtime "sub", "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.");
            }
            check_alpha(args, common)
        }));
    /// Multiplies elementwise. Operands broadcast; dtypes promote.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    MUL mul(self, other: Operand) -> Tensor = "MulBackward0", EVERYWHERE, E(Elementwise::numeric(|f| f.x(0) * f.x(1)));
    /// Divides elementwise, integers as floats. `rounding_mode` is `None`, `"trunc"` or `"floor"`; rounded quotients keep
    /// the integer dtype.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast, or for integer division by zero.
    DIV true_divide as "div"(self, other: Operand) -> Tensor = "DivBackward0", EVERYWHERE, E(Elementwise::float(|f| f.x(0) / f.x(1)));
    /// Negates. Integers wrap.
    ///
    /// # Errors
    /// `RuntimeError` for bool tensors.
    NEG neg(self) -> Tensor = "NegBackward0", EVERYWHERE,
        E(Elementwise::numeric(|f| -f.x(0)).check(|_, common| {
            if common == DType::Bool {
                bail!(runtime "neg", "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.");
            }
            Ok(())
        }));
    /// Gaussian error linear unit, `x * Phi(x)` with the normal distribution function (Hendrycks & Gimpel 2016);
    /// `approximate="tanh"` uses their formula with tanh.
    ///
    /// # Errors
    /// `RuntimeError` for another `approximate`.
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
        }));
}
