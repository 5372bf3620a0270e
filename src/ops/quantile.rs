//! Quantiles: a sort, then the values at (fractional) ranks. All are compositions, so gradients go to the values chosen and
//! to the ranks.

use super::args::{Arg, Args, Read};
use super::op::Rule::Composite as C;
use super::op::{FUNCTION, METHOD, OUT, Outputs, op};
use crate::backend::Reduce;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::{Dims, wrap_dim};
use crate::tensor::Tensor;
use smallvec::smallvec;

/// A quantile of arguments `(input, q, dim, keepdim, interpolation)`, `q` a tensor.
fn quantile(op: &'static str, a: &Args, q: &Tensor, nan: bool) -> Result<Outputs> {
    let x = a.tensor(0)?;
    if x.numel() == 0 {
        bail!(runtime op, "quantile() input tensor must be non-empty");
    }
    if !matches!(x.dtype(), DType::F32 | DType::F64) {
        bail!(runtime op, "quantile() input tensor must be either float or double dtype");
    }
    if q.rank() > 1 {
        bail!(runtime op, "quantile() q must be a scalar or 1D tensor");
    }
    if q.dtype() != x.dtype() {
        bail!(runtime op, "quantile() q tensor must be same dtype as the input tensor");
    }
    let bound = |how| super::reduce::total(op, &q.body(), q.dtype(), how)?.item();
    if q.numel() > 0 && !(bound(Reduce::Min)?.to_f64() >= 0.0 && bound(Reduce::Max)?.to_f64() <= 1.0) {
        bail!(runtime op, "quantile() q values must be in the range [0, 1]");
    }
    // The slices, as the last dimension, and the shape of one result.
    let (rows, kept) = match a.opt_int(2) {
        None => (x.reshape(-1i64)?, Dims::filled(1, x.rank())),
        Some(_) if x.rank() == 0 => (x.reshape(1i64)?, Dims::new()),
        Some(d) => {
            let along = wrap_dim(op, d, x.rank())?;
            let mut kept = x.sizes();
            kept[along] = 1;
            (x.movedim(along, -1i64)?, kept)
        }
    };
    let sorted = rows.sort(-1i64, false)?.0;
    let last = rows.rank() as i64 - 1;
    let n = rows.sizes()[last as usize];
    let nans = rows.detach().isnan()?;
    let ranks = if nan {
        let count = super::to_dtype(&nans.logical_not()?.sum(last, true)?, x.dtype())?;
        // A slice of nothing but NaN takes its first.
        q.mul(&count.sub(1.0)?.clamp_min(0.0)?)?
    } else {
        // NaN stands last: a slice with one takes it.
        q.mul((n - 1) as f64)?.where_not(&nans.any(last, true)?, (n - 1) as f64)?
    };
    let at = |ranks: &Tensor| -> Result<Tensor> { sorted.gather(-1i64, super::to_dtype(&ranks.detach(), DType::I64)?) };
    let values = match a.str(4) {
        "lower" => at(&ranks.floor()?)?,
        "higher" => at(&ranks.ceil()?)?,
        "nearest" => at(&ranks.round()?)?,
        how @ ("linear" | "midpoint") => {
            let below = ranks.detach().floor()?;
            let weight = if how == "linear" {
                ranks.sub(&below)?
            } else {
                super::full(&ranks.sizes(), Scalar::Float(0.5), x.dtype())?
            };
            at(&below)?.lerp_tensor(&at(&ranks.ceil()?)?, &weight)?
        }
        other => {
            bail!(runtime op, "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {other}")
        }
    };
    // `[..., q]` becomes `[q, ...]`, with the reduced dimensions or without.
    let shape: Dims = match (a.bool(3), a.opt_int(2)) {
        (true, _) => kept,
        (false, None) => Dims::new(),
        (false, Some(_)) => rows.sizes()[..last as usize].into(),
    };
    if q.rank() == 0 {
        return Ok(smallvec![values.reshape(&shape)?]);
    }
    let mut several = Dims::from_slice(&[q.numel()]);
    shape.iter().for_each(|&s| several.push(s));
    Ok(smallvec![values.movedim(-1i64, 0i64)?.reshape(&several)?])
}

/// `q` as a tensor of the input's dtype.
fn number(op: &'static str, a: &Args, nan: bool) -> Result<Outputs> {
    let q = a.float(1)?;
    if !(0.0..=1.0).contains(&q) {
        bail!(runtime op, "quantile() q must be in the range [0, 1] but got {q}");
    }
    let dtype = a.tensor(0)?.dtype();
    let q = Tensor::scalar(q, if dtype.is_float() { dtype } else { DType::F32 })?;
    quantile(op, a, &q, nan)
}

macro_rules! samples {
    (number) => {
        |s| {
            ["linear", "lower", "higher", "nearest", "midpoint"]
                .map(|how| {
                    smallvec![
                        Arg::Tensor(s.t(&[2, 5])),
                        Arg::Float(0.3),
                        Arg::Int(1),
                        Arg::Bool(how == "lower"),
                        Arg::Str(how.into())
                    ]
                })
                .into()
        }
    };
    (tensor) => {
        |s| {
            vec![
                smallvec![
                    Arg::Tensor(s.t(&[3, 2])),
                    Arg::Tensor(s.between(&[2], 0.1, 0.4)),
                    Arg::Int(0),
                    Arg::Bool(true),
                    Arg::Str("linear".into())
                ],
                smallvec![
                    Arg::Tensor(s.t(&[3, 2])),
                    Arg::Tensor(s.between(&[], 0.1, 0.15)),
                    Arg::None,
                    Arg::Bool(false),
                    Arg::Str("linear".into())
                ],
            ]
        }
    };
}

op! {
    /// The `q`-th quantiles along a dimension, of all elements without it: `q` is 0-d, or 1-d, which puts a dimension in
    /// front. Ranks between two values are met by `interpolation`: `"linear"`, `"lower"`, `"higher"`, `"nearest"` or
    /// `"midpoint"`. NaN if there is one.
    ///
    /// # Errors
    /// `RuntimeError` for a `q` outside [0, 1] or of another dtype, for other dtypes than float32 and float64, and for no
    /// elements.
    QUANTILE_OF quantile_of as "quantile"(self, q: Tensor, dim: OptInt = None, keepdim: Bool = false; interpolation: Str = "linear") -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| quantile("quantile", a, a.tensor(1)?, false)), samples!(tensor);
    /// The `q`-th quantile along a dimension, of all elements without it; see [`quantile_of`](Self::quantile_of).
    ///
    /// # Errors
    /// As [`quantile_of`](Self::quantile_of).
    QUANTILE quantile(self, q: Float, dim: OptInt = None, keepdim: Bool = false; interpolation: Str = "linear") -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| number("quantile", a, false)), samples!(number);
    /// [`quantile_of`](Self::quantile_of) of what is not NaN.
    ///
    /// # Errors
    /// As [`quantile_of`](Self::quantile_of).
    NANQUANTILE_OF nanquantile_of as "nanquantile"(self, q: Tensor, dim: OptInt = None, keepdim: Bool = false; interpolation: Str = "linear") -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| quantile("nanquantile", a, a.tensor(1)?, true)), samples!(tensor);
    /// [`quantile`](Self::quantile) of what is not NaN.
    ///
    /// # Errors
    /// As [`quantile_of`](Self::quantile_of).
    NANQUANTILE nanquantile(self, q: Float, dim: OptInt = None, keepdim: Bool = false; interpolation: Str = "linear") -> Tensor = "", METHOD | FUNCTION | OUT,
        C(|a| number("nanquantile", a, true)), samples!(number);
    /// `input` where `mask` does not hold, else a number; operands broadcast.
    WHERE_NOT where_not(self, mask: Index, value: Float) -> Tensor = "", 0,
        C(|a| Ok(smallvec![Tensor::where_(a.tensor(1)?, Scalar::Float(a.float(2)?), a.tensor(0)?)?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2])), Arg::Tensor(s.mask(&[3, 1])), Arg::Float(2.0)]];
}
