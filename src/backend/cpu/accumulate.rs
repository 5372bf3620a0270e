//! Adding one tensor to another in place, where both are plain: what gradients that meet need, without a Program.

use super::element;
use super::elementwise::element_ptr;
use super::shared::Shared;
use super::single::is_one_for_all;
use crate::backend::Operand;
use crate::dtype::DType;
use crate::storage::Guards;
use crate::threads;

/// `to += from`, if both have one shape, lie contiguously in our own memory, in a float format of the registers, and do not
/// share memory; `from` may also have one element in all places. Returns false, having done nothing, otherwise. The sum has the
/// bits of `add`.
pub(crate) fn add_assign(to: &Operand<'_>, from: &Operand<'_>) -> bool {
    let n = to.layout.numel();
    // Of nothing there is not even one.
    let one = n > 0 && is_one_for_all(from.layout);
    let plain = |o: &Operand<'_>, one| (one || o.layout.is_contiguous()) && !o.storage.is_foreign();
    let alike = to.dtype == from.dtype && to.layout.sizes == from.layout.sizes && !to.storage.same(from.storage);
    if !(alike && element::is_direct(to.dtype) && plain(to, false) && plain(from, one)) {
        return false;
    }
    let _guards = Guards::take([from.storage], [to.storage]);
    let (dst, src) = (element_ptr(to), element_ptr(from));
    // SAFETY: both operands hold `n` contiguous elements of their dtype, or `from` one, guarded, in storages that are not one
    // another.
    unsafe {
        match to.dtype {
            DType::F32 => add(dst.cast::<f32>(), src.cast(), n, one, |a, b| a + b),
            DType::F64 => add(dst.cast::<f64>(), src.cast(), n, one, |a, b| a + b),
            _ => add(dst.cast::<i64>(), src.cast(), n, one, i64::wrapping_add),
        }
    }
    true
}

/// One pass over memory, which bounds it whatever the width of the vector unit.
///
/// # Safety
/// Both hold `n` values, `from` only one if so it is said, nobody else writes them or reads those of `to`, and they are apart.
#[inline(always)]
unsafe fn add<T: Copy>(to: *mut T, from: *mut T, n: usize, one: bool, sum: impl Fn(T, T) -> T + Sync) {
    let (to, from) = (Shared(to), Shared(from));
    threads::ranges(n, 64, 0.3, |range| {
        // SAFETY: the caller's promise; ranges are apart.
        let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(range.start), range.len()) };
        if one {
            // SAFETY: as above.
            let b = unsafe { *from.get() };
            to.iter_mut().for_each(|a| *a = sum(*a, b));
        } else {
            // SAFETY: as above.
            let from = unsafe { std::slice::from_raw_parts(from.get().add(range.start), range.len()) };
            to.iter_mut().zip(from).for_each(|(a, &b)| *a = sum(*a, b));
        }
    });
}
