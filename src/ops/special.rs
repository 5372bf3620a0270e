//! Special functions, element by element: sigmoid and its inverse, the error function and its kin, the gamma family, and
//! the products that are 0 by convention.

use super::args::{Args, Read};
use super::formula::{Elementwise, F};
use super::op::Rule::{Composite as C, Elementwise as E};
use super::op::{EVERYWHERE, FUNCTION, INPLACE, INPLACE_FUNCTION, METHOD, NN, OUT, SPECIAL, op};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::program::Sym;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `sqrt(2 / pi)`.
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;

/// `x log(y)` that is 0 where x is, unless y is NaN; `log1p` if `plus_one`.
fn x_log(x: Sym, y: Sym, plus_one: bool) -> Sym {
    let zero = x.eq(x.zero()).and(y.is_nan().not());
    let argument = Sym::select(zero, y.literal(1.0), y);
    let log = if plus_one { argument.log1p() } else { argument.log() };
    Sym::select(zero, x.zero(), x * log)
}

fn x_log_gradients(x: Sym, y: Sym, g: Sym, plus_one: bool) -> [Option<Sym>; 2] {
    let pole = if plus_one { -1.0 } else { 0.0 };
    let flat = x.eq(x.zero()).and(y.le(y.literal(pole)));
    let argument = Sym::select(flat, y.literal(1.0), y);
    let of_x = Sym::select(flat, g.zero(), x_log(g, argument, plus_one));
    let of_y = g * x / if plus_one { y + 1.0 } else { y };
    [Some(of_x), Some(of_y)]
}

/// `sin(pi x) / (pi x)`.
fn sinc(x: Sym) -> Sym {
    let zero = x.eq(x.zero());
    let angle = Sym::select(zero, x.literal(1.0), x) * PI;
    Sym::select(zero, x.literal(1.0), angle.sin() / angle)
}

/// The derivative of [`sinc`]: near 0, where cosine and quotient cancel, by its series.
fn sinc_gradient(x: Sym, g: Sym) -> Sym {
    let p = x * PI;
    let near = p.abs().lt(p.literal(0.25));
    let q = Sym::select(near, p, p.zero());
    let square = q * q;
    // The coefficients of p (p^2)^k are (-1)^(k+1) (2k + 2) / (2k + 3)!.
    let series = [-1.0 / 3.0, 1.0 / 30.0, -1.0 / 840.0, 1.0 / 45_360.0, -1.0 / 3_991_680.0, 1.0 / 518_918_400.0];
    let series =
        series.iter().rev().fold(None, |sum: Option<Sym>, &c| Some(sum.map_or(square.literal(c), |s| s * square + c)));
    let p = Sym::select(near, p.literal(1.0), p);
    let far = (p * p.cos() - p.sin()) / (p * p);
    let slope = Sym::select(near, series.map_or(q, |s| s * q), far);
    g * (slope * PI)
}

/// Variant 1 if there is an `eps` that clamps.
fn logit_variant(args: &Args) -> Result<u8> {
    Ok(args.opt_number(1).is_some_and(|eps| eps.to_f64() >= 0.0) as u8)
}

fn logit(f: &F) -> Sym {
    let x = f.x(0);
    let z = if f.variant == 1 {
        Sym::select(x.lt(f.n(0)), f.n(0), Sym::select(x.gt(-f.n(0) + 1.0), -f.n(0) + 1.0, x))
    } else {
        x
    };
    (z / (-z + 1.0)).log()
}

fn logit_gradient(f: &F, g: Sym) -> Sym {
    let x = f.x(0);
    let (low, high, outside) = match f.variant {
        1 => (f.n(0), -f.n(0) + 1.0, 0.0),
        _ => (x.zero(), x.literal(1.0), f64::NAN),
    };
    let inside = x.ge(low).and(x.le(high));
    let z = Sym::select(inside, x, x.literal(0.5));
    Sym::select(inside, g / (z * (-z + 1.0)), g.literal(outside))
}

/// `log` of the normal distribution function, by the scaled complement where the tail underflows.
fn log_ndtr(x: Sym) -> Sym {
    let left = x.lt(x.literal(-1.0));
    let t = Sym::select(left, x, x.literal(-1.0)) * FRAC_1_SQRT_2;
    let tail = ((-t).erfcx() * 0.5).log() - t * t;
    let rest = Sym::select(left, x.zero(), x) * FRAC_1_SQRT_2;
    Sym::select(left, tail, (rest.erfc() * -0.5).log1p())
}

/// Density over distribution function.
fn log_ndtr_slope(x: Sym) -> Sym {
    let left = x.lt(x.zero());
    let t = Sym::select(left, x, x.zero()) * FRAC_1_SQRT_2;
    let rest = Sym::select(left, x.zero(), x) * FRAC_1_SQRT_2;
    let density = (-(rest * rest)).exp() * SQRT_2_OVER_PI;
    Sym::select(left, (-t).erfcx().reciprocal() * SQRT_2_OVER_PI, density / (-rest).erfc())
}

fn check_order(n: Result<i64>) -> Result<()> {
    if n? < 0 {
        bail!(runtime "polygamma", "polygamma(n, x) does not support negative n.");
    }
    Ok(())
}

fn no_check(_: &Args, _: DType) -> Result<()> {
    Ok(())
}

op! {
    /// The logistic function, `1 / (1 + exp(-x))`.
    SIGMOID sigmoid(self) -> Tensor = "SigmoidBackward0", EVERYWHERE | INPLACE_FUNCTION | NN,
        E(Elementwise::float(|f| f.x(0).sigmoid()).saves_result());
    /// `log(x / (1 - x))`, the inverse of the logistic function, of x limited to `[eps, 1 - eps]` if `eps` is given; NaN
    /// outside `[0, 1]`.
    LOGIT logit(self, eps: OptFloat = None) -> Tensor = "LogitBackward0", EVERYWHERE | INPLACE_FUNCTION | SPECIAL,
        E(Elementwise::float(logit).variant(logit_variant).check(no_check).vjp(|f, _, g| vec![Some(logit_gradient(f, g))]).domain(&[(0.1, 0.9)])),
        |s| vec![smallvec::smallvec![s.between(&[2, 3], -0.2, 1.2).into(), 0.2.into()]];
    /// The error function.
    ERF erf(self) -> Tensor = "ErfBackward0", EVERYWHERE | INPLACE_FUNCTION | SPECIAL, E(Elementwise::float(|f| f.x(0).erf()));
    /// The complementary error function, `1 - erf(x)`, exact in the tail.
    ERFC erfc(self) -> Tensor = "ErfcBackward0", EVERYWHERE | INPLACE_FUNCTION | SPECIAL, E(Elementwise::float(|f| f.x(0).erfc()));
    /// The scaled complementary error function, `exp(x^2) erfc(x)`.
    ERFCX erfcx(self) -> Tensor = "SpecialErfcxBackward0", SPECIAL | OUT, E(Elementwise::float(|f| f.x(0).erfcx()).saves_result());
    /// The inverse of the error function; infinite at -1 and 1, NaN outside.
    ERFINV erfinv(self) -> Tensor = "ErfinvBackward0", EVERYWHERE | SPECIAL, E(Elementwise::float(|f| f.x(0).erfinv()).domain(&[(-0.9, 0.9)]));
    /// The normal distribution function.
    NDTR ndtr(self) -> Tensor = "SpecialNdtrBackward0", SPECIAL | OUT, E(Elementwise::float(|f| (f.x(0) * -FRAC_1_SQRT_2).erfc() * 0.5));
    /// The inverse of the normal distribution function; infinite at 0 and 1, NaN outside.
    NDTRI ndtri(self) -> Tensor = "SpecialNdtriBackward0", SPECIAL | OUT,
        E(Elementwise::float(|f| f.x(0).ndtri()).saves_result().domain(&[(0.05, 0.95)]));
    /// The logarithm of the normal distribution function, exact far in the left tail.
    LOG_NDTR log_ndtr(self) -> Tensor = "SpecialLogNdtrBackward0", SPECIAL | OUT,
        E(Elementwise::float(|f| log_ndtr(f.x(0))).vjp(|f, _, g| vec![Some(g * log_ndtr_slope(f.x(0)))]));
    /// The logarithm of the absolute value of the gamma function.
    LGAMMA lgamma(self) -> Tensor = "LgammaBackward0", EVERYWHERE, E(Elementwise::float(|f| f.x(0).lgamma()).domain(&[(0.3, 4.0)]));
    /// The logarithmic derivative of the gamma function.
    DIGAMMA digamma(self) -> Tensor = "DigammaBackward0", EVERYWHERE | SPECIAL, E(Elementwise::float(|f| f.x(0).digamma()).domain(&[(0.3, 4.0)]));
    /// The `n`-th derivative of digamma.
    ///
    /// # Errors
    /// `RuntimeError` for negative `n`.
    POLYGAMMA polygamma(self, n: Int) -> Tensor = "PolygammaBackward0", METHOD | INPLACE,
        E(Elementwise::float(|f| f.n(0).polygamma(f.x(0))).check(|a, _| check_order(a.int(1))).domain(&[(0.5, 4.0)]).numbers(&[1.0])),
        |s| [0i64, 2, 3].iter().map(|&n| smallvec::smallvec![s.between(&[2, 3], 0.5, 3.0).into(), n.into()]).collect();
    /// The `n`-th derivative of digamma.
    ///
    /// # Errors
    /// `RuntimeError` for negative `n`.
    POLYGAMMA_OF polygamma_of as "polygamma"(n: Int, input: Tensor) -> Tensor = "", FUNCTION | SPECIAL | OUT,
        C(|a| Ok(smallvec::smallvec![a.tensor(1)?.polygamma(a.int(0)?)?])),
        |s| vec![smallvec::smallvec![1i64.into(), s.between(&[2, 3], 0.5, 3.0).into()]];
    /// `sin(pi x) / (pi x)`, 1 at 0.
    SINC sinc(self) -> Tensor = "SincBackward0", EVERYWHERE | INPLACE_FUNCTION | SPECIAL,
        E(Elementwise::float(|f| sinc(f.x(0))).vjp(|f, _, g| vec![Some(sinc_gradient(f.x(0), g))]));
    /// Entropy of a probability, `-x log(x)`: 0 at 0, -inf below.
    ENTR entr(self) -> Tensor = "SpecialEntrBackward0", SPECIAL | OUT,
        E(Elementwise::float(|f| {
            let x = f.x(0);
            let inside = x.gt(x.zero());
            let z = Sym::select(inside, x, x.literal(1.0));
            let edge = Sym::select(x.eq(x.zero()), x.zero(), x.literal(f64::NEG_INFINITY));
            Sym::select(x.is_nan(), x, Sym::select(inside, -z * z.log(), edge))
        }).vjp(|f, _, g| vec![Some(g * (-f.x(0).log() - f.literal(1.0)))]).domain(&[(0.1, 2.0)]));
    /// `input * log(other)`, 0 where `input` is 0 unless `other` is NaN. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    XLOGY_TENSOR xlogy_tensor as "xlogy"(self, other: Tensor) -> Tensor = "XlogyBackward0", EVERYWHERE | INPLACE_FUNCTION | SPECIAL,
        E(Elementwise::float(|f| x_log(f.x(0), f.x(1), false)).vjp(|f, _, g| x_log_gradients(f.x(0), f.x(1), g, false).into())
            .domain(&[(-1.5, 1.5), (0.2, 3.0)]));
    /// `input * log(other)` for a number, 0 where `input` is 0 unless `other` is NaN.
    XLOGY xlogy(self, other: Number) -> Tensor = "XlogyBackward2", EVERYWHERE | INPLACE_FUNCTION | SPECIAL,
        E(Elementwise::float(|f| x_log(f.x(0), f.n(0), false)).vjp(|f, _, g| vec![x_log_gradients(f.x(0), f.n(0), g, false)[0]])
            .promoting(1).numbers(&[2.5]));
    /// A number times `log(other)`, 0 if it is 0 unless `other` is NaN.
    XLOGY_OF xlogy_of as "xlogy"(input: Number, other: Tensor) -> Tensor = "XlogyBackward1", FUNCTION | SPECIAL | OUT,
        E(Elementwise::float(|f| x_log(f.n(0), f.x(0), false)).vjp(|f, _, g| vec![x_log_gradients(f.n(0), f.x(0), g, false)[1]])
            .promoting(1).numbers(&[2.5]).domain(&[(0.2, 3.0)]));
    /// `input * log1p(other)`, 0 where `input` is 0 unless `other` is NaN. Operands broadcast.
    ///
    /// # Errors
    /// `RuntimeError` if the shapes do not broadcast.
    XLOG1PY_TENSOR xlog1py_tensor as "xlog1py"(self, other: Tensor) -> Tensor = "SpecialXlog1PyBackward0", SPECIAL | OUT,
        E(Elementwise::float(|f| x_log(f.x(0), f.x(1), true)).vjp(|f, _, g| x_log_gradients(f.x(0), f.x(1), g, true).into())
            .domain(&[(-1.5, 1.5), (-0.7, 3.0)]));
    /// `input * log1p(other)` for a number, 0 where `input` is 0 unless `other` is NaN.
    XLOG1PY xlog1py(self, other: Number) -> Tensor = "SpecialXlog1PyBackward2", SPECIAL | OUT,
        E(Elementwise::float(|f| x_log(f.x(0), f.n(0), true)).vjp(|f, _, g| vec![x_log_gradients(f.x(0), f.n(0), g, true)[0]])
            .promoting(1).numbers(&[2.5]));
    /// A number times `log1p(other)`, 0 if it is 0 unless `other` is NaN.
    XLOG1PY_OF xlog1py_of as "xlog1py"(input: Number, other: Tensor) -> Tensor = "SpecialXlog1PyBackward1", SPECIAL | OUT,
        E(Elementwise::float(|f| x_log(f.n(0), f.x(0), true)).vjp(|f, _, g| vec![x_log_gradients(f.n(0), f.x(0), g, true)[1]])
            .promoting(1).numbers(&[2.5]).domain(&[(-0.7, 3.0)]));
}
