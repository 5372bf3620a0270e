//! Counting elements by value, and the ends of what is counted. Kernels take their guards themselves.

use super::elementwise::element_ptr;
use crate::backend::Operand;
use crate::dtype::DType;
use crate::storage::Guards;

/// Adds to `to[v]`, for each value `v` of a vector, 1 (`to` is int64) or the value's weight (`to` has the weights' dtype,
/// float32 or float64).
///
/// # Errors
/// The first value that is negative or not below the length of `to`.
pub(crate) fn bincount(to: &Operand<'_>, values: &Operand<'_>, weights: Option<&Operand<'_>>) -> Result<(), i64> {
    let _guards = Guards::take([values.storage].into_iter().chain(weights.map(|w| w.storage)), [to.storage]);
    let (n, bins) = (values.layout.numel(), to.layout.numel());
    let src = element_ptr(values).cast::<i64>();
    // SAFETY: inside row-major operands, guarded; a value is checked before it is used.
    let place = |i: usize| unsafe {
        let v = src.add(i).read();
        if (v as u64) < bins as u64 { Ok(v as usize) } else { Err(v) }
    };
    macro_rules! weigh {
        ($t:ty, $weights:expr) => {{
            let (out, weights) = (element_ptr(to).cast::<$t>(), element_ptr($weights).cast::<$t>());
            for i in 0..n {
                let at = place(i)?;
                // SAFETY: as above.
                unsafe { out.add(at).write(out.add(at).read() + weights.add(i).read()) };
            }
        }};
    }
    match weights {
        None => {
            let out = element_ptr(to).cast::<i64>();
            for i in 0..n {
                let at = place(i)?;
                // SAFETY: as above.
                unsafe { out.add(at).write(out.add(at).read() + 1) };
            }
        }
        Some(w) if w.dtype == DType::F32 => weigh!(f32, w),
        Some(w) => weigh!(f64, w),
    }
    Ok(())
}

/// The smallest and the largest element of a row-major operand of an integer dtype; `None` if it is empty.
pub(crate) fn extremes(of: &Operand<'_>) -> Option<(i64, i64)> {
    let _guards = Guards::take([of.storage], []);
    let src = element_ptr(of).cast::<i64>();
    // SAFETY: a row-major int64 operand, guarded.
    let values = (0..of.layout.numel()).map(|i| unsafe { src.add(i).read() });
    values.fold(None, |e, v| Some(e.map_or((v, v), |(l, h): (i64, i64)| (l.min(v), h.max(v)))))
}

/// Counts of elements in `bins` equal bins over `[low, high]`, both ends included; NaN and what is outside is not counted.
/// `from` is row-major float32 or float64. Positions are computed in that type, as PyTorch does.
pub(crate) fn histogram(from: &Operand<'_>, bins: usize, low: f64, high: f64) -> Vec<f64> {
    let _guards = Guards::take([from.storage], []);
    let mut counts = vec![0f64; bins];
    macro_rules! count {
        ($t:ty) => {{
            let src = element_ptr(from).cast::<$t>();
            let (low, high) = (low as $t, high as $t);
            for i in 0..from.layout.numel() {
                // SAFETY: inside the row-major operand, guarded.
                let x = unsafe { src.add(i).read() };
                if x >= low && x <= high {
                    let at = ((x - low) * bins as $t / (high - low)) as usize;
                    counts[at.min(bins - 1)] += 1.0;
                }
            }
        }};
    }
    if from.dtype == DType::F32 {
        count!(f32)
    } else {
        count!(f64)
    }
    counts
}

/// The smallest and the largest element of a row-major float operand, NaN if one is NaN; `None` if it is empty.
pub(crate) fn float_extremes(of: &Operand<'_>) -> Option<(f64, f64)> {
    let _guards = Guards::take([of.storage], []);
    let mut ends: Option<(f64, f64)> = None;
    let mut see = |v: f64| {
        ends = Some(match ends {
            None => (v, v),
            Some(_) if v.is_nan() => (v, v),
            Some((l, h)) => (if v < l { v } else { l }, if v > h { v } else { h }),
        });
    };
    for i in 0..of.layout.numel() {
        // SAFETY: inside the row-major operand, guarded.
        unsafe {
            match of.dtype {
                DType::F32 => see(element_ptr(of).cast::<f32>().add(i).read() as f64),
                _ => see(element_ptr(of).cast::<f64>().add(i).read()),
            }
        }
    }
    ends
}
