//! Kernels that masks lead: filling, selecting and replacing where they are true, coordinates of what is true. A mask is
//! a bool operand; its bytes are truth values, and others may write them meanwhile, which gives unspecified elements and
//! never a wild access. Kernels take their guards themselves.

use super::element::{Element, with_element};
use super::elementwise::element_ptr;
use super::index::with_width;
use super::walk::walk;
use crate::backend::Operand;
use crate::dtype::DType;
use crate::shape::{Layout, numel};
use crate::storage::{Guards, Storage};

/// Calls `f` with each position and whether it is true, but for runs of eight neighbours of which none is.
///
/// # Safety
/// All `n` places must be readable.
#[inline(always)]
unsafe fn each_bit(mask: *const u8, step: isize, n: usize, mut f: impl FnMut(usize, bool)) {
    let mut j = 0;
    // SAFETY: the caller's promise; a word is read only where eight bytes are left.
    unsafe {
        if step == 1 {
            while j + 8 <= n {
                let word = mask.add(j).cast::<[u8; 8]>().read();
                if word != [0; 8] {
                    word.into_iter().enumerate().for_each(|(k, byte)| f(j + k, byte != 0));
                }
                j += 8;
            }
        }
        (j..n).for_each(|j| f(j, mask.offset(j as isize * step).read() != 0));
    }
}

/// The elements that are not zero, as truth values laid out row-major; truth values are taken as they are.
fn truth<'a>(
    of: &Operand<'a>,
    storage: &'a mut Option<(Storage, Layout)>,
    op: &'static str,
) -> crate::error::Result<Operand<'a>> {
    if of.dtype == DType::Bool {
        return Ok(*of);
    }
    let layout = Layout::contiguous(of.layout.sizes.clone());
    let fresh = Storage::uninit(op, layout.numel())?;
    let (src, dst) = (element_ptr(of), fresh.ptr());
    with_element!(of.dtype, E => {
        let src = src.cast::<E>();
        let done = walk::<2, ()>(&layout.sizes, [&layout.strides, &of.layout.strides], |[d, s], n, [_, ds]| {
            // SAFETY: positions inside both layouts; the caller guards the source, the target is fresh.
            (0..n as isize).for_each(|j| unsafe {
                let zero = IsZero::is_zero(src.offset(s + j * ds).read().load());
                dst.offset(d + j).write(!zero as u8);
            });
            Ok(())
        });
        debug_assert!(done.is_ok());
    });
    let (storage, layout) = storage.insert((fresh, layout));
    Ok(Operand { storage, layout, dtype: DType::Bool })
}

#[allow(clippy::wrong_self_convention, reason = "elements are passed by value")]
trait IsZero {
    fn is_zero(self) -> bool;
}
macro_rules! is_zero {
    ($($t:ty)*) => { $(impl IsZero for $t {
        #[inline(always)]
        fn is_zero(self) -> bool { self == 0 as $t }
    })* };
}
is_zero!(f32 f64 i64 u8);

/// How many elements are not zero.
pub(crate) fn count_true(mask: &Operand<'_>) -> usize {
    let _guards = Guards::take([mask.storage], []);
    let ptr = element_ptr(mask);
    let mut count = 0usize;
    let done = walk::<1, ()>(&mask.layout.sizes, [&mask.layout.strides], |[x], n, [dx]| {
        // SAFETY: positions inside the layout, guarded.
        count += (0..n as isize).map(|j| unsafe { (ptr.offset(x + j * dx).read() != 0) as usize }).sum::<usize>();
        Ok(())
    });
    debug_assert!(done.is_ok());
    count
}

/// Coordinates of the elements that are not zero, in row-major order: one column for each dimension, int64, one after the
/// other in a fresh storage, and their number.
///
/// # Errors
/// [`OutOfMemory`](crate::error::Error::OutOfMemory).
pub(crate) fn nonzero(op: &'static str, of: &Operand<'_>) -> crate::error::Result<(Storage, usize)> {
    let mut room = None;
    let mask = {
        let _guards = Guards::take([of.storage], []);
        truth(of, &mut room, op)?
    };
    let n = count_true(&mask);
    let (sizes, strides) = (&mask.layout.sizes, &mask.layout.strides);
    let rank = sizes.len();
    let out = Storage::zeroed(op, n.saturating_mul(rank).saturating_mul(8))?;
    let (Some((&inner, outer)), true) = (sizes.split_last(), n > 0) else { return Ok((out, n)) };
    let _guards = Guards::take([mask.storage], []);
    let (ptr, dst) = (element_ptr(&mask), out.ptr().cast::<i64>());
    let mut index = vec![0usize; outer.len()];
    let mut found = 0;
    for _ in 0..numel(outer) {
        let base: isize = index.iter().zip(strides.iter()).map(|(&i, &s)| i as isize * s).sum();
        let before = found;
        // SAFETY: positions inside the layout, guarded. `found < n` keeps every write inside its column even if somebody
        // else has set elements since they were counted. A position that is false is written over by the next that is
        // true: no branch depends on the mask.
        unsafe {
            let last = dst.add(outer.len() * n);
            each_bit(ptr.offset(base), strides[outer.len()], inner, |j, bit| {
                if found < n {
                    last.add(found).write(j as i64);
                    found += bit as usize;
                }
            });
            for (d, &i) in index.iter().enumerate() {
                (before..found).for_each(|k| dst.add(d * n + k).write(i as i64));
            }
        }
        for d in (0..outer.len()).rev() {
            index[d] += 1;
            if index[d] < outer[d] {
                break;
            }
            index[d] = 0;
        }
    }
    Ok((out, n))
}

/// Copies the elements of `from` where `mask` is true, in row-major order, to `to`, which has one dimension and zeros for
/// what is not found.
pub(crate) fn masked_select(to: &Operand<'_>, from: &Operand<'_>, mask: &Operand<'_>) {
    let _guards = Guards::take([from.storage, mask.storage], [to.storage]);
    let (n, dst, src, msk) = (to.layout.numel(), element_ptr(to), element_ptr(from), element_ptr(mask));
    let mut found = 0;
    with_width!(to.dtype, T => {
        let (dst, src) = (dst.cast::<T>(), src.cast::<T>());
        let _ = walk(&from.layout.sizes, [&from.layout.strides, &mask.layout.strides], |[s, m], len, [ds, dm]| {
            // SAFETY: positions inside the layouts, guarded; at most `n` elements are written. An element that is not
            // selected is written over by the next that is: no branch depends on the mask.
            unsafe {
                each_bit(msk.offset(m), dm, len, |j, bit| {
                    if found < n {
                        dst.add(found).write(src.offset(s + j as isize * ds).read());
                        found += bit as usize;
                    }
                });
            }
            if found < n { Ok(()) } else { Err(()) }
        });
        // SAFETY: inside the target.
        (found..n).for_each(|j| unsafe { dst.add(j).write(0 as T) });
    });
}

/// Replaces the elements of `to` where `mask` is true by those of `from`, a row-major sequence, as long as there are any.
pub(crate) fn masked_scatter(to: &Operand<'_>, mask: &Operand<'_>, from: &Operand<'_>) {
    let _guards = Guards::take([from.storage, mask.storage], [to.storage]);
    let (n, dst, src, msk) = (from.layout.numel(), element_ptr(to), element_ptr(from), element_ptr(mask));
    let mut taken = 0;
    if n == 0 {
        return;
    }
    with_width!(to.dtype, T => {
        let (dst, src) = (dst.cast::<T>(), src.cast::<T>());
        let _ = walk(&to.layout.sizes, [&to.layout.strides, &mask.layout.strides], |[d, m], len, [dd, dm]| {
            // SAFETY: positions inside the layouts, guarded; at most `n` elements are read. What is not replaced is
            // written back: no branch depends on the mask.
            unsafe {
                each_bit(msk.offset(m), dm, len, |j, bit| {
                    let place = dst.offset(d + j as isize * dd);
                    if taken < n {
                        place.write(if bit { src.add(taken).read() } else { place.read() });
                        taken += bit as usize;
                    }
                });
            }
            if taken < n { Ok(()) } else { Err(()) }
        });
    });
}

/// Writes the one element of `value` wherever `mask` is true.
pub(crate) fn masked_fill(to: &Operand<'_>, mask: &Operand<'_>, value: &Operand<'_>) {
    let _guards = Guards::take([value.storage, mask.storage], [to.storage]);
    let (dst, msk) = (element_ptr(to), element_ptr(mask));
    with_width!(to.dtype, T => {
        let dst = dst.cast::<T>();
        // SAFETY: `value` has one element.
        let value = unsafe { element_ptr(value).cast::<T>().read() };
        let done = walk::<2, ()>(&to.layout.sizes, [&to.layout.strides, &mask.layout.strides], |[d, m], n, [dd, dm]| {
            // SAFETY: positions inside both layouts, guarded. What is not filled is written back, so that the loop has no
            // branch and becomes vector code where both are dense.
            unsafe {
                let put = |place: *mut T, byte: u8| place.write(if byte != 0 { value } else { place.read() });
                let (dst, msk) = (dst.offset(d), msk.offset(m));
                if dd == 1 && dm == 1 {
                    (0..n).for_each(|j| put(dst.add(j), msk.add(j).read()));
                } else {
                    (0..n as isize).for_each(|j| put(dst.offset(j * dd), msk.offset(j * dm).read()));
                }
            }
            Ok(())
        });
        debug_assert!(done.is_ok());
    });
}
