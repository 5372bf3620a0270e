//! Programs that only read, where one side is a single element: the sum of a few values, a gradient that is spread over them.
//! They stand at both ends of every small backward, and take less time here than it takes to prepare a walk.

use super::elementwise::element_ptr;
use super::reduce;
use super::vm::{BLOCK, Compiled};
use crate::backend::{Operand, Reduce};
use crate::dtype::Compute;
use crate::shape::{Layout, numel};
use crate::storage::Guards;

/// Copies the one element that `from` has in all places to `to`, which was just made and is of its type. False, and nothing done,
/// if there are several, or so many places that they are better filled in slices.
#[inline]
pub(crate) fn spread(from: &Operand<'_>, to: &Operand<'_>) -> bool {
    let n = to.layout.numel();
    let plain = from.dtype == to.dtype && to.layout.is_contiguous() && (1..=BLOCK).contains(&n);
    if !(plain && is_one_for_all(from.layout)) {
        return false;
    }
    let _guards = Guards::take([from.storage], []);
    let (read, write) = (element_ptr(from).cast_const(), element_ptr(to));
    // SAFETY: guarded, and nobody else sees what was just made, which has `n` elements of so many bytes.
    unsafe {
        match to.dtype.size() {
            1 => repeat::<u8>(read, write, n),
            2 => repeat::<u16>(read, write, n),
            4 => repeat::<u32>(read, write, n),
            8 => repeat::<u64>(read, write, n),
            _ => return false,
        }
    }
    true
}

/// # Safety
/// One `T` can be read, and `n` written elsewhere, by nobody else meanwhile.
#[inline]
unsafe fn repeat<T: Copy>(read: *const u8, write: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(write.cast::<T>(), n).fill(*read.cast::<T>()) }
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
    let n = numel(sizes);
    let plain = from.dtype == dtype && to.dtype == dtype && (1..=BLOCK).contains(&n);
    let is_all = |o: &Operand<'_>| o.layout.sizes[..] == *sizes && o.layout.is_contiguous();
    let apart = !from.storage.same(to.storage) && !from.storage.is_foreign() && !to.storage.is_foreign();
    if !(plain && apart) {
        return false;
    }
    let spreads = is_all(to) && is_one_for_all(from.layout);
    // A sum of one value is that value, also where it is a negative zero.
    let gathers = n > 1 && to.layout.numel() == 1 && is_all(from);
    if !(spreads || gathers) {
        return false;
    }
    // Nobody else can see memory that was just allocated.
    let shared = std::iter::once(to.storage).filter(|s| !s.is_unique());
    let _guards = Guards::take([from.storage], shared);
    reduce::with_number!(dtype.compute(), T => {
        let (read, write) = (element_ptr(from).cast_const().cast::<T>(), element_ptr(to).cast::<T>());
        // SAFETY: guarded and in different memory; the operand on the side of many has `n` contiguous elements, the other one,
        // and the type is the number's.
        unsafe {
            if spreads {
                std::slice::from_raw_parts_mut(write, n).fill(*read);
            } else {
                *write = reduce::row(how, std::slice::from_raw_parts(read, n));
            }
        }
    });
    true
}

/// Whether all elements lie in one place.
#[inline]
pub(super) fn is_one_for_all(layout: &Layout) -> bool {
    layout.sizes.iter().zip(layout.strides.iter()).all(|(size, stride)| *size == 1 || *stride == 0)
}
