//! Programs that only read, where one side is a single element: the sum of a few values, a gradient that is spread over them.
//! They stand at both ends of every small backward, and take less time here than it takes to prepare a walk.

use super::elementwise::element_ptr;
use super::reduce;
use super::vm::{BLOCK, Compiled};
use crate::backend::{Operand, Reduce};
use crate::dtype::Compute;
use crate::shape::{Layout, numel};
use crate::storage::{Guards, Reading};

/// Copies the one element that `from` has in all places to `to`, if that is of its type and contiguous and both are memory of our
/// own, not the same. False, and nothing done, otherwise, and where there are so many places that slices are better.
#[inline]
pub(crate) fn spread(from: &Operand<'_>, to: &Operand<'_>) -> bool {
    let n = to.layout.numel();
    let plain = from.dtype == to.dtype && to.layout.is_contiguous() && (1..=BLOCK).contains(&n);
    if !(plain && is_one_for_all(from.layout) && are_apart(from, to)) {
        return false;
    }
    let (read, write) = (element_ptr(from).cast_const(), element_ptr(to));
    // SAFETY: guarded, and in different memory of our own: one element, and `n` of so many bytes.
    guarded(from, to, || unsafe {
        match to.dtype.size() {
            1 => repeat::<u8>(read, write, n),
            2 => repeat::<u16>(read, write, n),
            4 => repeat::<u32>(read, write, n),
            _ => repeat::<u64>(read, write, n),
        }
    });
    true
}

/// # Safety
/// One `T` can be read, and `n` written elsewhere, by nobody else meanwhile.
#[inline]
unsafe fn repeat<T: Copy>(read: *const u8, write: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(write.cast::<T>(), n).fill(*read.cast::<T>()) }
}

/// Whether both lie in memory of our own, and not in the same.
#[inline]
fn are_apart(from: &Operand<'_>, to: &Operand<'_>) -> bool {
    !from.storage.same(to.storage) && !from.storage.is_foreign() && !to.storage.is_foreign()
}

/// Runs `f` under guards of both, as far as others can see them: nobody sees memory that was just allocated.
#[inline]
fn guarded(from: &Operand<'_>, to: &Operand<'_>, f: impl FnOnce()) {
    if to.storage.is_unique()
        && let Some(_reading) = Reading::try_take(from.storage)
    {
        return f();
    }
    let _guards = Guards::take([from.storage], [to.storage]);
    f();
}

/// Runs a program that gives back what it reads, if it reads or writes one element and few values are on the other side;
/// otherwise false, and nothing done.
#[inline]
pub(super) fn run(
    compiled: &Compiled,
    sizes: &[usize],
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    how: Reduce,
) -> bool {
    let (true, [from], [to], Some(dtype)) = (compiled.only_reads, inputs, outputs, compiled.uniform) else {
        return false;
    };
    let is_all = |o: &Operand<'_>| o.layout.is_row_major(sizes);
    if from.dtype != dtype || to.dtype != dtype {
        return false;
    }
    let n = numel(sizes);
    if (n == 1 || is_all(to)) && spread(from, to) {
        return true;
    }
    // A sum of one value is that value, also where it is a negative zero.
    if !((2..=BLOCK).contains(&n) && to.layout.numel() == 1 && is_all(from) && are_apart(from, to)) {
        return false;
    }
    let (read, write) = (element_ptr(from).cast_const(), element_ptr(to));
    guarded(from, to, || {
        reduce::with_number!(dtype.compute(), T => {
            // SAFETY: guarded and in different memory; `n` contiguous elements, and one, of the number's type.
            unsafe { *write.cast::<T>() = reduce::row(how, std::slice::from_raw_parts(read.cast::<T>(), n)) };
        });
    });
    true
}

/// Whether all elements lie in one place.
#[inline]
pub(super) fn is_one_for_all(layout: &Layout) -> bool {
    layout.sizes.iter().zip(layout.strides.iter()).all(|(size, stride)| *size == 1 || *stride == 0)
}
