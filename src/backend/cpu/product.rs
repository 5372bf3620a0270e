//! Matrix products of operands: the door to `matmul`, which knows pointers and strides only. What is summed in which order
//! depends on the shapes alone.

use super::elementwise::element_ptr;
use super::matmul::{MatMut, MatRef, gemm_batched};
use crate::backend::Operand;
use crate::storage::Guards;

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
    let done = unsafe {
        gemm_batched(
            c.dtype,
            batch,
            (m, k, n),
            matrix(a),
            step(a),
            matrix(b),
            step(b),
            out,
            step(c),
            accumulate,
            &|| false,
        )
    };
    debug_assert!(done, "nothing asked to stop");
}
