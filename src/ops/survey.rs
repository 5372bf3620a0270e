//! What a tensor's values are like, for messages: range, mean, and where the first value is that is not finite.

use super::copy::to_dtype;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::Dims;
use crate::tensor::Tensor;
use std::fmt;

/// A tensor's values, in a few numbers.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    elements: usize,
    nan: usize,
    infinite: usize,
    /// Smallest, largest and mean of the finite values.
    finite: Option<(f64, f64, f64)>,
    /// Index and value of the first element, in row-major order, that is not finite.
    pub first: Option<(Dims, f64)>,
}

/// Looks at all elements of a tensor.
///
/// # Errors
/// `RuntimeError` if memory runs out.
pub(crate) fn survey(t: &Tensor) -> Result<Survey> {
    let values = to_dtype(&t.detach(), DType::F64)?.to_vec::<f64>()?;
    let mut found = Survey { elements: values.len(), ..Survey::default() };
    let (mut least, mut most, mut sum) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
    for (at, &value) in values.iter().enumerate() {
        if value.is_finite() {
            (least, most, sum) = (least.min(value), most.max(value), sum + value);
            continue;
        }
        if found.first.is_none() {
            found.first = Some((unravel(at, &t.sizes()), value));
        }
        if value.is_nan() { found.nan += 1 } else { found.infinite += 1 }
    }
    let finite = found.elements - found.nan - found.infinite;
    found.finite = (finite > 0).then(|| (least, most, sum / finite as f64));
    Ok(found)
}

fn unravel(mut at: usize, sizes: &Dims) -> Dims {
    let mut index = sizes.clone();
    for (i, &size) in index.iter_mut().zip(sizes.iter()).rev() {
        (*i, at) = (at % size, at / size);
    }
    index
}

impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.elements == 0 {
            return f.write_str("(empty)");
        }
        if self.first.is_some() {
            write!(f, "({} nan, {} infinite of {}", self.nan, self.infinite, self.elements)?;
        } else {
            f.write_str("(all finite")?;
        }
        if let Some((least, most, mean)) = self.finite {
            write!(f, "; min {least:.4e}, max {most:.4e}, mean {mean:.4e}")?;
        }
        f.write_str(")")
    }
}
