//! Factorisations of small dense matrices, in double precision whatever the tensors hold: LU with partial pivoting,
//! Cholesky, substitution. Matrices are row-major slices. Work on large ones goes through the matrix product kernel.
//!
//! Source: Golub and Van Loan, Matrix Computations, 4th edition, sections 3.2.11 (block LU), 3.4 (pivoting), 4.2 (Cholesky).

use super::matmul::{MatMut, MatRef, gemm};
use crate::dtype::DType;
use crate::threads;
use std::ops::Range;

/// Columns that are factored at a time; what is right of them is updated by one product.
const PANEL: usize = 48;

/// `P A = L U` in the place of `A`: `L` has ones on its diagonal, which are not stored. `rows[i]` is the row of `A` that came
/// to row `i`; `odd` tells whether it took an odd number of exchanges.
pub(crate) struct Lu {
    pub matrix: Vec<f64>,
    pub n: usize,
    pub rows: Vec<usize>,
    pub odd: bool,
}

/// `out -= a @ b`, where `out` has rows of `n` elements `step` apart, `a` is row-major `(m, k)`, and element `(i, j)` of `b`
/// lies at `i * strides[0] + j * strides[1]`.
///
/// # Panics
/// If a slice is too short.
fn subtract_product(
    out: &mut [f64],
    step: usize,
    (m, k, n): (usize, usize, usize),
    a: &[f64],
    b: &[f64],
    strides: [usize; 2],
) {
    if m * k * n == 0 {
        return;
    }
    assert!(
        out.len() >= (m - 1) * step + n && a.len() == m * k && b.len() > (k - 1) * strides[0] + (n - 1) * strides[1]
    );
    // Most of the time goes by here.
    threads::stop_if_wanted();
    // The product is added, so that it is a factor that is negated.
    let a: Vec<f64> = a.iter().map(|x| -x).collect();
    let x = MatRef { ptr: a.as_ptr().cast(), row_stride: k as isize, col_stride: 1 };
    let y = MatRef { ptr: b.as_ptr().cast(), row_stride: strides[0] as isize, col_stride: strides[1] as isize };
    let out = MatMut { ptr: out.as_mut_ptr().cast(), row_stride: step as isize, col_stride: 1 };
    // SAFETY: the slices hold the operands and the result, which is borrowed alone.
    let done = unsafe { gemm(DType::F64, m, k, n, x, y, out, true, &threads::is_stop_wanted) };
    if !done {
        threads::cancel();
    }
}

/// Rows and columns of a row-major matrix of `n` columns, copied.
fn block(matrix: &[f64], n: usize, rows: Range<usize>, columns: Range<usize>) -> Vec<f64> {
    rows.flat_map(|i| matrix[i * n..][columns.clone()].iter().copied()).collect()
}

impl Lu {
    /// Factors a matrix. A column without a pivot leaves a zero on the diagonal of `U`.
    pub(crate) fn new(mut matrix: Vec<f64>, n: usize) -> Lu {
        let mut rows: Vec<usize> = (0..n).collect();
        let mut odd = false;
        for start in (0..n).step_by(PANEL) {
            let end = (start + PANEL).min(n);
            for k in start..end {
                // A NaN is a pivot like any other: it must reach the result.
                let size = |i: usize| matrix[i * n + k].abs();
                let pivot = (k..n).fold(k, |best, i| if size(i) > size(best) || size(i).is_nan() { i } else { best });
                if pivot != k {
                    (0..n).for_each(|j| matrix.swap(k * n + j, pivot * n + j));
                    rows.swap(k, pivot);
                    odd = !odd;
                }
                let diagonal = matrix[k * n + k];
                if diagonal == 0.0 {
                    continue;
                }
                let (upper, lower) = matrix.split_at_mut((k + 1) * n);
                let row = &upper[k * n + k + 1..k * n + end];
                for line in lower.chunks_exact_mut(n) {
                    line[k] /= diagonal;
                    let factor = line[k];
                    line[k + 1..end].iter_mut().zip(row).for_each(|(x, u)| *x -= factor * u);
                }
            }
            // The rows of U right of the panel, then everything below them.
            for i in start..end {
                let (above, below) = matrix.split_at_mut(i * n);
                for j in start..i {
                    let factor = below[j];
                    let row = &above[j * n + end..(j + 1) * n];
                    below[end..n].iter_mut().zip(row).for_each(|(x, u)| *x -= factor * u);
                }
            }
            let shape = (n - end, end - start, n - end);
            if shape.0 > 0 {
                let (left, right) = (block(&matrix, n, end..n, start..end), block(&matrix, n, start..end, end..n));
                subtract_product(&mut matrix[end * n + end..], n, shape, &left, &right, [shape.2, 1]);
            }
        }
        Lu { matrix, n, rows, odd }
    }

    /// The diagonal of `U`.
    pub(crate) fn diagonal(&self) -> impl Iterator<Item = f64> + '_ {
        (0..self.n).map(|i| self.matrix[i * self.n + i])
    }

    /// The first column without a pivot.
    pub(crate) fn singular_at(&self) -> Option<usize> {
        self.diagonal().position(|d| d == 0.0)
    }

    /// Replaces zeros on the diagonal of `U` by a tiny number, so that it can be solved with.
    pub(crate) fn perturb(&mut self) {
        let largest = self.diagonal().fold(0.0f64, |m, d| m.max(d.abs()));
        let tiny = f64::EPSILON * if largest > 0.0 { largest } else { 1.0 };
        for i in 0..self.n {
            let d = &mut self.matrix[i * self.n + i];
            if *d == 0.0 {
                *d = tiny;
            }
        }
    }

    /// The determinant.
    pub(crate) fn det(&self) -> f64 {
        self.diagonal().fold(if self.odd { -1.0 } else { 1.0 }, |p, d| p * d)
    }

    /// The sign of the determinant and the logarithm of its magnitude.
    pub(crate) fn slogdet(&self) -> (f64, f64) {
        let sign =
            self.diagonal().fold(if self.odd { -1.0 } else { 1.0 }, |s, d| if d == 0.0 { 0.0 } else { s * d.signum() });
        (sign, self.diagonal().map(|d| d.abs().ln()).sum())
    }

    /// Solves `A X = B` for `k` columns.
    pub(crate) fn solve(&self, b: &[f64], k: usize) -> Vec<f64> {
        let mut x: Vec<f64> = self.rows.iter().flat_map(|&r| b[r * k..(r + 1) * k].iter().copied()).collect();
        substitute(&self.matrix, self.n, &mut x, k, false, true);
        substitute(&self.matrix, self.n, &mut x, k, true, false);
        x
    }
}

/// Solves `T X = B` in the place of `B`, which has `k` columns, with one triangle of a matrix; `unit` takes ones for its
/// diagonal.
pub(crate) fn substitute(t: &[f64], n: usize, b: &mut [f64], k: usize, upper: bool, unit: bool) {
    if k == 0 {
        return;
    }
    let panels = n.div_ceil(PANEL);
    for panel in 0..panels {
        let start = PANEL * if upper { panels - 1 - panel } else { panel };
        let end = (start + PANEL).min(n);
        // What was solved before, taken off these rows by one product.
        let (above, below) = b.split_at_mut(if upper { end * k } else { start * k });
        let (rows, solved, columns) = if upper {
            (&mut above[start * k..], &*below, end..n)
        } else {
            (&mut below[..(end - start) * k], &*above, 0..start)
        };
        let factors = block(t, n, start..end, columns.clone());
        subtract_product(rows, k, (end - start, columns.len(), k), &factors, solved, [k, 1]);
        for step in start..end {
            let i = if upper { start + end - 1 - step } else { step };
            let (known, unknown) = rows.split_at_mut((if upper { i + 1 } else { i } - start) * k);
            let (row, solved, factors) = if upper {
                (&mut known[(i - start) * k..], &*unknown, &t[i * n + i + 1..i * n + end])
            } else {
                (&mut unknown[..k], &*known, &t[i * n + start..i * n + i])
            };
            for (x, &factor) in solved.chunks_exact(k).zip(factors) {
                row.iter_mut().zip(x).for_each(|(y, x)| *y -= factor * x);
            }
            if !unit {
                let diagonal = t[i * n + i];
                row.iter_mut().for_each(|y| *y /= diagonal);
            }
        }
    }
}

/// The lower factor of `A = L L^T`, from the lower triangle of `A`; or the order of the leading minor that is not positive.
pub(crate) fn cholesky(mut a: Vec<f64>, n: usize) -> Result<Vec<f64>, usize> {
    for start in (0..n).step_by(PANEL) {
        let end = (start + PANEL).min(n);
        // What the columns before have not yet taken off these: they have, by the products below.
        for k in start..end {
            let diagonal = a[k * n + k] - a[k * n + start..k * n + k].iter().map(|x| x * x).sum::<f64>();
            if diagonal.is_nan() || diagonal <= 0.0 {
                return Err(k + 1);
            }
            let diagonal = diagonal.sqrt();
            a[k * n + k] = diagonal;
            let (above, below) = a.split_at_mut((k + 1) * n);
            let row = &above[k * n + start..k * n + k];
            for line in below.chunks_exact_mut(n) {
                let dot: f64 = line[start..k].iter().zip(row).map(|(x, y)| x * y).sum();
                line[k] = (line[k] - dot) / diagonal;
            }
        }
        // The rest less the products of these columns.
        let (m, width) = (n - end, end - start);
        if m > 0 {
            let left = block(&a, n, end..n, start..end);
            subtract_product(&mut a[end * n + end..], n, (m, width, m), &left, &left, [1, width]);
        }
    }
    for i in 0..n {
        a[i * n + i + 1..(i + 1) * n].fill(0.0);
    }
    Ok(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(n: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5
        };
        (0..n * n).map(|_| next()).collect()
    }

    fn product(a: &[f64], b: &[f64], n: usize, k: usize) -> Vec<f64> {
        let element = |i: usize, j: usize| (0..n).map(|l| a[i * n + l] * b[l * k + j]).sum();
        (0..n * k).map(|e| element(e / k, e % k)).collect()
    }

    fn assert_close(a: &[f64], b: &[f64], tolerance: f64) {
        let worst = a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(a.len() == b.len() && worst < tolerance, "differ by {worst}");
    }

    #[test]
    fn lu_solves_systems_smaller_and_larger_than_a_panel() {
        for n in [1, 2, 5, PANEL, PANEL + 1, 3 * PANEL + 7] {
            let (a, x) = (matrix(n, 3), matrix(n, 4));
            let lu = Lu::new(a.clone(), n);
            assert_close(&lu.solve(&product(&a, &x, n, n), n), &x, 1e-8 * n as f64);
        }
    }

    #[test]
    fn determinants_know_their_sign_and_singular_matrices() {
        let lu = Lu::new(vec![0.0, 2.0, 3.0, 1.0], 2);
        assert_eq!(lu.det(), -6.0);
        assert_eq!(lu.slogdet(), (-1.0, 3f64.ln() + 2f64.ln()));
        let singular = Lu::new(vec![1.0, 2.0, 2.0, 4.0], 2);
        assert_eq!((singular.det(), singular.singular_at()), (0.0, Some(1)));
        assert_eq!(singular.slogdet(), (0.0, f64::NEG_INFINITY));
    }

    #[test]
    fn cholesky_gives_back_the_matrix() {
        for n in [1, 3, PANEL, 2 * PANEL + 5] {
            let b = matrix(n, 9);
            let transposed: Vec<f64> = (0..n * n).map(|e| b[e % n * n + e / n]).collect();
            let mut a = product(&b, &transposed, n, n);
            (0..n).for_each(|i| a[i * n + i] += 1.0);
            let l = cholesky(a.clone(), n).unwrap();
            let upper: Vec<f64> = (0..n * n).map(|e| l[e % n * n + e / n]).collect();
            assert_close(&product(&l, &upper, n, n), &a, 1e-10 * n as f64);
        }
        assert_eq!(cholesky(vec![1.0, 0.0, 0.0, -1.0], 2), Err(2));
    }

    #[test]
    fn substitution_on_both_sides_of_the_diagonal() {
        let t = [2.0, 1.0, 3.0, 4.0];
        let mut b = vec![4.0, 8.0];
        substitute(&t, 2, &mut b, 1, true, false);
        assert_eq!(b, [1.0, 2.0]);
        let mut b = vec![4.0, 8.0];
        substitute(&t, 2, &mut b, 1, false, true);
        assert_eq!(b, [4.0, -4.0]);
        let n = 2 * PANEL + 3;
        let mut t = matrix(n, 5);
        (0..n).for_each(|i| t[i * n + i] += 8.0);
        for upper in [false, true] {
            let triangle: Vec<f64> =
                (0..n * n).map(|e| if (e % n > e / n) == upper || e % n == e / n { t[e] } else { 0.0 }).collect();
            let x = matrix(n, 6);
            let mut b = product(&triangle, &x, n, n);
            substitute(&t, n, &mut b, n, upper, false);
            assert_close(&b, &x, 1e-10);
        }
    }
}
