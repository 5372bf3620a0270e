//! Matrix products of operands: the door to `matmul`, which knows pointers and strides only. What is summed in which order
//! depends on the shapes alone.

use super::elementwise::element_ptr;
use super::matmul::{MatMut, MatRef, Plan, gemm_batched};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::storage::Guards;
use crate::threads;

/// `c = a @ b`, or `c += a @ b` if `accumulate`, for one matrix each or for batches of them in front. All are of one dtype;
/// `a` and `b` may have any strides; `c` lies in fresh memory of its own. Sizes fit.
///
/// # Panics
/// If ranks or sizes do not fit.
pub(crate) fn product(a: &Operand<'_>, b: &Operand<'_>, c: &Operand<'_>, accumulate: bool) {
    let (x, y, z) = (a.layout, b.layout, c.layout);
    let lead = z.rank() - 2;
    assert!(lead <= 1 && x.rank() == z.rank() && y.rank() == z.rank(), "a product of matrices or of batches of them");
    let (m, k, n) = (z.sizes[lead], x.sizes[lead + 1], z.sizes[lead + 1]);
    let batch = if lead == 1 { z.sizes[0] } else { 1 };
    assert!(x.sizes[lead] == m && y.sizes[lead..] == [k, n], "shapes {:?} @ {:?} = {:?}", x.sizes, y.sizes, z.sizes);
    assert!(lead == 0 || (x.sizes[0] == batch && y.sizes[0] == batch), "batches of one size");
    assert!(a.dtype == c.dtype && b.dtype == c.dtype, "operands of one dtype");
    if batch * m * n == 0 {
        return;
    }
    let _guards = Guards::take([a.storage, b.storage], [c.storage]);
    let matrix = |o: &Operand<'_>| MatRef {
        ptr: element_ptr(o).cast_const(),
        row_stride: o.layout.strides[lead],
        col_stride: o.layout.strides[lead + 1],
    };
    let out = MatMut { ptr: element_ptr(c), row_stride: z.strides[lead], col_stride: z.strides[lead + 1] };
    let step = |o: &Operand<'_>| if lead == 1 { o.layout.strides[0] } else { 0 };
    // SAFETY: the layouts cover the shape, and guards keep others away; the result has memory of its own.
    unsafe {
        Batch {
            dtype: c.dtype,
            batch,
            shape: (m, k, n),
            a: (matrix(a), step(a)),
            b: (matrix(b), step(b)),
            c: (out, step(c)),
        }
        .run(accumulate)
    }
}

/// A batch of products of one shape, each operand with the elements from one matrix to the next.
struct Batch {
    dtype: DType,
    batch: usize,
    shape: (usize, usize, usize),
    a: (MatRef, isize),
    b: (MatRef, isize),
    c: (MatMut, isize),
}

// SAFETY: addresses; the guards that its maker holds keep others away, and parts of the result are apart.
unsafe impl Sync for Batch {}

/// Multiply-adds in a nanosecond, about.
const SPEED: f64 = 20.0;

impl Batch {
    /// Computes all, on several threads if that is worth it: whole products if there are many, parts of one otherwise. `k` is
    /// never cut, so that the sums are the same.
    ///
    /// # Safety
    /// As for [`gemm_batched`].
    unsafe fn run(&self, accumulate: bool) {
        let (m, k, n) = self.shape;
        let ns = m as f64 * k as f64 * n as f64 / SPEED;
        let plan = Plan::new(self.dtype, m, k, n);
        let (rows, columns) = plan.part_shape();
        let parts = m.div_ceil(rows) * n.div_ceil(columns);
        if self.batch > 1 || parts == 1 {
            return threads::ranges(self.batch, 1, ns, |range| {
                let size = self.dtype.size() as isize;
                let at = |stride: isize| range.start as isize * stride * size;
                let (a, b, c) = (&self.a.0, &self.b.0, &self.c.0);
                let a = MatRef { ptr: a.ptr.wrapping_offset(at(self.a.1)), ..*a };
                let b = MatRef { ptr: b.ptr.wrapping_offset(at(self.b.1)), ..*b };
                let c = MatMut { ptr: c.ptr.wrapping_offset(at(self.c.1)), ..*c };
                // SAFETY: the caller's promise, for some of the products.
                let done = unsafe {
                    gemm_batched(
                        self.dtype,
                        range.len(),
                        self.shape,
                        a,
                        self.a.1,
                        b,
                        self.b.1,
                        c,
                        self.c.1,
                        accumulate,
                        &threads::is_stop_wanted,
                    )
                };
                if !done {
                    threads::cancel();
                }
            });
        }
        let across = n.div_ceil(columns);
        threads::ranges(parts, 1, ns / parts as f64, |range| {
            for part in range {
                let (i, j) = (part / across * rows, part % across * columns);
                let (is, js) = (i..m.min(i + rows), j..n.min(j + columns));
                // SAFETY: the caller's promise, for a part of the result.
                let done =
                    unsafe { plan.run(is, js, self.a.0, self.b.0, self.c.0, accumulate, &threads::is_stop_wanted) };
                if !done {
                    threads::cancel();
                }
            }
        });
    }
}
