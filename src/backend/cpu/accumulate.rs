//! Adding one tensor to another in place, where both are plain: what gradients that meet need, without a Program.

use super::element;
use super::elementwise::element_ptr;
use super::shared::Shared;
use crate::backend::Operand;
use crate::dtype::DType;
use crate::storage::Guards;
use crate::threads;

/// `to += from`, if both have one shape, lie contiguously in our own memory, in a float format of the registers, and do not
/// share memory. Returns false, having done nothing, otherwise. The sum has the bits of `add`.
pub(crate) fn add_assign(to: &Operand<'_>, from: &Operand<'_>) -> bool {
    let plain = |o: &Operand<'_>| o.layout.is_contiguous() && !o.storage.is_foreign();
    let alike = to.dtype == from.dtype && to.layout.sizes == from.layout.sizes && !to.storage.same(from.storage);
    if !(alike && element::is_direct(to.dtype) && plain(to) && plain(from)) {
        return false;
    }
    let _guards = Guards::take([from.storage], [to.storage]);
    let n = to.layout.numel();
    let (dst, src) = (element_ptr(to), element_ptr(from));
    // SAFETY: both operands hold `n` contiguous elements of their dtype, guarded, in storages that are not one another.
    unsafe {
        match to.dtype {
            DType::F32 => add(dst.cast::<f32>(), src.cast(), n, |a, b| a + b),
            DType::F64 => add(dst.cast::<f64>(), src.cast(), n, |a, b| a + b),
            _ => add(dst.cast::<i64>(), src.cast(), n, i64::wrapping_add),
        }
    }
    true
}

/// One pass over memory, which bounds it whatever the width of the vector unit.
///
/// # Safety
/// Both hold `n` values, nobody else writes them or reads those of `to`, and they are apart.
#[inline(always)]
unsafe fn add<T: Copy>(to: *mut T, from: *mut T, n: usize, sum: impl Fn(T, T) -> T + Sync) {
    let (to, from) = (Shared(to), Shared(from));
    threads::ranges(n, 64, 0.3, |range| {
        // SAFETY: the caller's promise; ranges are apart.
        let (to, from) = unsafe {
            (
                std::slice::from_raw_parts_mut(to.get().add(range.start), range.len()),
                std::slice::from_raw_parts(from.get().add(range.start), range.len()),
            )
        };
        for (a, &b) in to.iter_mut().zip(from) {
            *a = sum(*a, b);
        }
    });
}
