//! Normalisation of rows to mean 0 and variance 1, and its gradient. Rows are the last dimension of `[rows, n]` operands;
//! each is worked on in cache.

use super::reduce::sum_of;
use super::slices::{Float, Slices, row_kernel, with_float};
use crate::backend::Operand;

/// Normalises each row of `x`: `y = (x - mean) * rstd * weight + bias`, with `rstd = 1 / sqrt(variance + eps)` (biased
/// variance). `mean` and `rstd` are `[rows, 1]`; `weight` and `bias` are `[1, n]` if given. All contiguous and of one float
/// dtype, guarded by the caller.
pub(crate) fn forward(
    x: &Operand<'_>,
    weight: Option<&Operand<'_>>,
    bias: Option<&Operand<'_>>,
    y: &Operand<'_>,
    mean: &Operand<'_>,
    rstd: &Operand<'_>,
    eps: f64,
) {
    with_float!(x.dtype, T => {
        let (weight, bias) = (weight.map(row::<T>), bias.map(row::<T>));
        Slices::along(1, [x], [y, mean, rstd]).each(|p| {
            // SAFETY: T is the compute type of all.
            let (x, y, mean, rstd) = unsafe { (p.input::<T>(0), p.output::<T>(0), p.output::<T>(1), p.output::<T>(2)) };
            (mean[0], rstd[0]) = normalise::<T>(x, y, eps);
            match (&weight, &bias) {
                (Some(w), Some(b)) => y.iter_mut().zip(w.iter().zip(b)).for_each(|(y, (&w, &b))| *y = *y * w + b),
                (Some(w), None) => y.iter_mut().zip(w).for_each(|(y, &w)| *y *= w),
                (None, Some(b)) => y.iter_mut().zip(b).for_each(|(y, &b)| *y += b),
                (None, None) => {}
            }
        });
    });
}

/// The gradient of [`forward`] for `x`: with `h = g * weight` and `z = (x - mean) * rstd` it is
/// `rstd * (h - mean(h) - z * mean(h * z))`.
pub(crate) fn backward(
    g: &Operand<'_>,
    x: &Operand<'_>,
    mean: &Operand<'_>,
    rstd: &Operand<'_>,
    weight: Option<&Operand<'_>>,
    out: &Operand<'_>,
) {
    with_float!(x.dtype, T => {
        let weight = weight.map(row::<T>);
        Slices::along(1, [g, x, mean, rstd], [out]).each_with(Vec::new, |h, p| {
            // SAFETY: T is the compute type of all.
            let (g, x, mean, rstd, out) =
                unsafe { (p.input::<T>(0), p.input::<T>(1), p.input::<T>(2)[0], p.input::<T>(3)[0], p.output::<T>(0)) };
            let h = match &weight {
                Some(w) => {
                    h.clear();
                    h.extend(g.iter().zip(w).map(|(&g, &w)| g * w));
                    &h[..]
                }
                None => g,
            };
            gradient::<T>(h, x, mean, rstd, out);
        });
    });
}

/// A row operand's values.
fn row<T: Copy>(o: &Operand<'_>) -> Vec<T> {
    let mut values = Vec::new();
    Slices::<1, 0>::along(1, [o], []).in_order(|p| {
        // SAFETY: the caller names the compute type of the operand's dtype.
        values.extend_from_slice(unsafe { p.input::<T>(0) });
    });
    values
}

row_kernel! {
    /// Writes the normalised row and returns its mean and reciprocal deviation. A first mean is corrected by the mean of
    /// what is left, so that rows far from zero lose nothing.
    fn normalise<T: Float, FMA>(x: &[T], y: &mut [T], eps: f64) -> (T, T) {
        let n = T::of_f64(x.len() as f64);
        let first = sum_of(x, |v| v) / n;
        let rest = sum_of(x, |v| v - first) / n;
        let square = sum_of(x, |v| (v - first) * (v - first)) / n;
        let variance = square - rest * rest;
        let rstd = T::of_f64(1.0 / (variance.to_f64() + eps).sqrt());
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = (x - first - rest) * rstd);
        (first + rest, rstd)
    }
}

row_kernel! {
    fn gradient<T: Float, FMA>(h: &[T], x: &[T], mean: T, rstd: T, out: &mut [T]) {
        let n = T::of_f64(x.len() as f64);
        let a = sum_of(h, |v| v) / n;
        out.iter_mut().zip(h.iter().zip(x)).for_each(|(o, (&h, &x))| *o = h * ((x - mean) * rstd));
        let b = sum_of(out, |v| v) / n;
        out.iter_mut().zip(h.iter().zip(x)).for_each(|(o, (&h, &x))| *o = rstd * (h - a - (x - mean) * rstd * b));
    }
}
