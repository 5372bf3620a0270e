//! Matrix products of raw memory: `c[m, n] = a[m, k] @ b[k, n]` for every dtype, with any strides, one matrix or a batch. It
//! knows no tensor, checks no shape and starts no thread.
//!
//! Summation. What is summed in which order depends on the shape `(m, k, n)` alone: not on strides, not on how a caller cuts
//! the result into parts ([`Plan`]), not on threads. Each element of the result is a chain of multiply-adds over 256 values
//! of `k`, from zero; the chains are added in order, and with `beta_one` the first is added to what `c` held. So a row of a
//! product has the same bits however many rows stand beside it, with two exceptions for speed, from `k` of 32 and 64 on: a
//! matrix times a vector interleaves 8 chains, and at most four results (dot products) interleave 32 and fold them at the end.
//! float16 and bfloat16 are summed in float32 and rounded once; integers wrap; bool is or-of-ands. Zeros are not skipped, so
//! NaN and infinities propagate. Processors without fused multiply-add round products before adding them.

mod drive;
mod kernel;
mod number;
mod pack;
mod scratch;
mod small;
#[cfg(test)]
mod tests;
mod vector;

use std::ops::Range;

use half::{bf16, f16};

use crate::dtype::DType;
use drive::Order;
use number::{BoolByte, Element};

/// A matrix to read. Strides count elements and may be zero or negative.
#[derive(Clone, Copy, Debug)]
pub struct MatRef {
    /// The element `[0, 0]`.
    pub ptr: *const u8,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next.
    pub col_stride: isize,
}

/// A matrix to write. Strides count elements; no two elements may share memory.
#[derive(Clone, Copy, Debug)]
pub struct MatMut {
    /// The element `[0, 0]`.
    pub ptr: *mut u8,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next.
    pub col_stride: isize,
}

/// A [`MatRef`] whose element type is known.
#[derive(Clone, Copy)]
struct View<E> {
    ptr: *const E,
    row_stride: isize,
    col_stride: isize,
}

impl<E> View<E> {
    /// The address of element `[i, j]`, which the caller may read if the view covers it.
    #[inline(always)]
    fn at(&self, i: usize, j: usize) -> *const E {
        self.ptr.wrapping_offset(i as isize * self.row_stride + j as isize * self.col_stride)
    }

    /// The view without its first `i` rows and `j` columns.
    #[inline(always)]
    fn skip(&self, i: usize, j: usize) -> View<E> {
        View { ptr: self.at(i, j), row_stride: self.row_stride, col_stride: self.col_stride }
    }

    /// The transposed view.
    #[inline(always)]
    fn turned(&self) -> View<E> {
        View { ptr: self.ptr, row_stride: self.col_stride, col_stride: self.row_stride }
    }
}

/// A [`MatMut`] whose element type is known.
#[derive(Clone, Copy)]
struct ViewMut<E> {
    ptr: *mut E,
    row_stride: isize,
    col_stride: isize,
}

impl<E> ViewMut<E> {
    #[inline(always)]
    fn at(&self, i: usize, j: usize) -> *mut E {
        self.ptr.wrapping_offset(i as isize * self.row_stride + j as isize * self.col_stride)
    }

    #[inline(always)]
    fn turned(&self) -> ViewMut<E> {
        ViewMut { ptr: self.ptr, row_stride: self.col_stride, col_stride: self.row_stride }
    }
}

impl MatRef {
    #[inline(always)]
    fn typed<E>(self) -> View<E> {
        View { ptr: self.ptr.cast(), row_stride: self.row_stride, col_stride: self.col_stride }
    }
}

impl MatMut {
    #[inline(always)]
    fn typed<E>(self) -> ViewMut<E> {
        ViewMut { ptr: self.ptr.cast(), row_stride: self.row_stride, col_stride: self.col_stride }
    }
}

/// How one product will be computed, as a function of dtype and shape. Any cut of the result into parts gives the same bits
/// as the whole, so parts may run on different threads: this is where a pool takes hold.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    dtype: DType,
    m: usize,
    k: usize,
    n: usize,
    order: Order,
}

impl Plan {
    /// The plan of `c[m, n] = a[m, k] @ b[k, n]`.
    #[inline]
    pub fn new(dtype: DType, m: usize, k: usize, n: usize) -> Plan {
        Plan { dtype, m, k, n, order: Order::of(m, k, n) }
    }

    /// Rows and columns of the parts into which the result is best cut: at least about a million multiply-adds each, and
    /// large enough that copying operands into cache blocks stays a small share.
    pub fn part_shape(&self) -> (usize, usize) {
        const WORK: usize = 1 << 20;
        let (mut rows, mut columns) = (self.m.clamp(1, 2 * number::MC), self.n.clamp(1, 512));
        while rows * columns * self.k.max(1) < WORK && (rows < self.m || columns < self.n) {
            if columns < self.n {
                columns = (2 * columns).min(self.n);
            } else {
                rows = (2 * rows).min(self.m);
            }
        }
        (rows, columns)
    }

    /// Computes the rows and columns given of the result. `a`, `b` and `c` are the whole matrices. `cancel` is asked every
    /// few milliseconds at most; returns false if it answered true, and then the part of `c` holds unspecified numbers.
    ///
    /// # Safety
    /// `a`, `b` and `c` cover the planned shape with elements of the planned dtype, aligned to it; `c` overlaps neither
    /// operand; no other thread writes the operands or touches this part of `c` meanwhile.
    #[must_use = "false means that the result was not computed"]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn run(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        a: MatRef,
        b: MatRef,
        c: MatMut,
        beta_one: bool,
        cancel: &dyn Fn() -> bool,
    ) -> bool {
        debug_assert!(rows.end <= self.m && columns.end <= self.n);
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::Bool => self.run_typed::<BoolByte>(rows, columns, a, b, c, beta_one, cancel),
                DType::U8 => self.run_typed::<u8>(rows, columns, a, b, c, beta_one, cancel),
                DType::I8 => self.run_typed::<i8>(rows, columns, a, b, c, beta_one, cancel),
                DType::I16 => self.run_typed::<i16>(rows, columns, a, b, c, beta_one, cancel),
                DType::I32 => self.run_typed::<i32>(rows, columns, a, b, c, beta_one, cancel),
                DType::I64 => self.run_typed::<i64>(rows, columns, a, b, c, beta_one, cancel),
                DType::F16 => self.run_typed::<f16>(rows, columns, a, b, c, beta_one, cancel),
                DType::BF16 => self.run_typed::<bf16>(rows, columns, a, b, c, beta_one, cancel),
                DType::F32 => self.run_typed::<f32>(rows, columns, a, b, c, beta_one, cancel),
                DType::F64 => self.run_typed::<f64>(rows, columns, a, b, c, beta_one, cancel),
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    unsafe fn run_typed<E: Element>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        a: MatRef,
        b: MatRef,
        c: MatMut,
        beta_one: bool,
        cancel: &dyn Fn() -> bool,
    ) -> bool {
        let shape = (rows.len(), self.k, columns.len());
        let (a, b, c) = (a.typed::<E>().skip(rows.start, 0), b.typed::<E>().skip(0, columns.start), c.typed::<E>());
        let c = ViewMut { ptr: c.at(rows.start, columns.start), ..c };
        // SAFETY: the caller's promise, and `FMA` is what the processor has.
        unsafe {
            if kernel::has_fma() {
                drive::product::<E, true>(self.order, shape, a, b, c, beta_one, cancel)
            } else {
                drive::product::<E, false>(self.order, shape, a, b, c, beta_one, cancel)
            }
        }
    }
}

/// `c[m, n] = a[m, k] @ b[k, n]`, or `c += a @ b` if `beta_one`. All three are of `dtype`. With `k == 0` the product is zeros.
/// `cancel` is asked every few milliseconds at most, not before the first of them; returns false if it answered true, and
/// then `c` holds unspecified numbers.
///
/// # Safety
/// `a`, `b` and `c` cover the shape with elements of `dtype`, aligned to it; elements of `c` share no memory with each other
/// or with the operands; nobody writes the operands or touches `c` meanwhile.
#[must_use = "false means that the result was not computed"]
#[allow(clippy::too_many_arguments)]
pub unsafe fn gemm(
    dtype: DType,
    m: usize,
    k: usize,
    n: usize,
    a: MatRef,
    b: MatRef,
    c: MatMut,
    beta_one: bool,
    cancel: &dyn Fn() -> bool,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe { Plan::new(dtype, m, k, n).run(0..m, 0..n, a, b, c, beta_one, cancel) }
}

/// [`gemm`] for `batch` products of one shape, operand `i` starting `i` batch strides (in elements; 0 repeats an operand)
/// after the first. Equal to `batch` calls of [`gemm`] to the bit.
///
/// # Safety
/// As [`gemm`] for each of the products, and no two results overlap.
#[must_use = "false means that the result was not computed"]
#[allow(clippy::too_many_arguments)]
pub unsafe fn gemm_batched(
    dtype: DType,
    batch: usize,
    (m, k, n): (usize, usize, usize),
    a: MatRef,
    a_batch_stride: isize,
    b: MatRef,
    b_batch_stride: isize,
    c: MatMut,
    c_batch_stride: isize,
    beta_one: bool,
    cancel: &dyn Fn() -> bool,
) -> bool {
    let plan = Plan::new(dtype, m, k, n);
    // One right operand for all, and the rows of all products evenly spaced: one product of many rows. Its elements are
    // summed in the same order, so this is a matter of speed only.
    let rows = m as isize;
    let folds = |row_stride: isize, batch_stride: isize| m == 1 || batch_stride == rows * row_stride;
    if batch > 1 && b_batch_stride == 0 && folds(a.row_stride, a_batch_stride) && folds(c.row_stride, c_batch_stride) {
        let (a, c) = if m == 1 {
            (MatRef { row_stride: a_batch_stride, ..a }, MatMut { row_stride: c_batch_stride, ..c })
        } else {
            (a, c)
        };
        let all = Plan { m: batch * m, ..plan };
        if Order::of(all.m, k, n) == plan.order {
            // SAFETY: the caller's promise: the folded matrices are the elements of the batch.
            return unsafe { all.run(0..all.m, 0..n, a, b, c, beta_one, cancel) };
        }
    }
    // Products far shorter than the time between two checks share one.
    let check_every = (1 << 20) / (m * k * n).clamp(1, 1 << 20);
    let size = dtype.size() as isize;
    for i in 0..batch {
        if i != 0 && i % check_every == 0 && cancel() {
            return false;
        }
        let offset = |stride: isize| i as isize * stride * size;
        let (a_ptr, b_ptr) =
            (a.ptr.wrapping_offset(offset(a_batch_stride)), b.ptr.wrapping_offset(offset(b_batch_stride)));
        let a = MatRef { ptr: a_ptr, ..a };
        let b = MatRef { ptr: b_ptr, ..b };
        let c = MatMut { ptr: c.ptr.wrapping_offset(offset(c_batch_stride)), ..c };
        // SAFETY: the caller's promise.
        if !unsafe { plan.run(0..m, 0..n, a, b, c, beta_one, cancel) } {
            return false;
        }
    }
    true
}
