//! Kernels that masks lead: filling, selecting and replacing where they are true, coordinates of what is true. A mask is
//! a bool operand; its bytes are truth values, and others may write them meanwhile, which gives unspecified elements and
//! never a wild access. Kernels take their guards themselves.
//!
//! What is selected stands in row-major order. For several threads a mask is cut into pieces in that order; how many elements
//! of each are true is counted first, and says where what is found in it goes.

use super::element::{Element, with_element};
use super::elementwise::element_ptr;
use super::index::with_width;
use super::shared::Shared;
use super::walk::{Part, parts, rows};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::shape::{Dims, Layout, numel};
use crate::storage::{Guards, Storage};
use crate::threads;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pieces that a mask is cut into for several threads.
const PIECES: usize = 64;
/// About how many nanoseconds an element takes that is looked for, and one that is only counted.
const SOUGHT: f64 = 1.0;
const COUNTED: f64 = 0.1;

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
        let (src, dst) = (Shared(src.cast::<E>()), Shared(dst));
        rows(&layout.sizes, [&layout.strides, &of.layout.strides], SOUGHT, |[d, s], n, [_, ds]| {
            // SAFETY: positions inside both layouts; the caller guards the source, the target is fresh.
            (0..n as isize).for_each(|j| unsafe {
                let zero = IsZero::is_zero(src.get().offset(s + j * ds).read().load());
                dst.get().offset(d + j).write(!zero as u8);
            });
        });
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

/// How many elements of a part are not zero; the mask is its last operand.
///
/// # Safety
/// The mask must be readable.
#[inline(always)]
unsafe fn count<const K: usize>(mask: *const u8, part: Part<'_, K>) -> usize {
    let mut count = 0;
    let done = part.walk::<()>(|at, n, steps| {
        // SAFETY: the caller's promise.
        count += unsafe { count_row(mask.offset(at[K - 1]), n, steps[K - 1]) };
        Ok(())
    });
    debug_assert!(done.is_ok());
    count
}

/// How many of `n` bytes, `step` apart, are not zero.
///
/// # Safety
/// All must be readable.
#[inline(always)]
unsafe fn count_row(mask: *const u8, n: usize, step: isize) -> usize {
    /// Eight counts fit the bytes of a word for so many rounds.
    const ROUNDS: usize = 255;
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let (mut at, mut count) = (0, 0);
    while step == 1 && at + 8 <= n {
        let mut counts = 0;
        for _ in 0..((n - at) / 8).min(ROUNDS) {
            // SAFETY: the caller's promise, for as many bytes as are left.
            counts += ones(unsafe { mask.add(at).cast::<u64>().read_unaligned() });
            at += 8;
        }
        let pairs = (counts & EVEN) + ((counts >> 8) & EVEN);
        count += (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize;
    }
    // SAFETY: the caller's promise.
    count + (at..n).map(|j| unsafe { (mask.offset(j as isize * step).read() != 0) as usize }).sum::<usize>()
}

/// A word with 1 for each byte that is not zero.
#[inline(always)]
fn ones(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    ((((word & LOW) + LOW) | word) & !LOW) >> 7
}

/// How many elements are not zero.
pub(crate) fn count_true(mask: &Operand<'_>) -> usize {
    let _guards = Guards::take([mask.storage], []);
    let (ptr, n) = (Shared(element_ptr(mask)), mask.layout.numel());
    if mask.layout.is_contiguous() && !threads::is_cut(n as f64 * COUNTED) {
        // SAFETY: guarded.
        return unsafe { count_row(ptr.get(), n, 1) };
    }
    let total = AtomicUsize::new(0);
    let done = parts::<1, ()>(
        &mask.layout.sizes,
        [&mask.layout.strides],
        COUNTED,
        |_| true,
        |part| {
            // SAFETY: guarded.
            total.fetch_add(unsafe { count(ptr.get(), part) }, Ordering::Relaxed);
            Ok(())
        },
    );
    debug_assert!(done.is_ok());
    total.into_inner()
}

/// Which of `n` elements each of `pieces` finds, of which `count` says how many it has; what is left belongs to the last.
/// `ns` is what counting one takes.
fn shares(pieces: usize, n: usize, ns: f64, count: impl Fn(usize) -> usize + Sync) -> Vec<Range<usize>> {
    let counts: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
    threads::ranges(pieces, 1, ns, |range| range.for_each(|k| counts[k].store(count(k), Ordering::Relaxed)));
    let mut end = 0;
    let share = |(k, count): (usize, AtomicUsize)| {
        let start = end;
        end = if k + 1 == pieces { n } else { n.min(start + count.into_inner()) };
        start..end
    };
    counts.into_iter().enumerate().map(share).collect()
}

/// Calls `each` with pieces of an index space in row-major order, and with which of the `n` elements that are sought belong
/// to each. The mask is the last operand.
fn in_order<const K: usize>(
    sizes: &[usize],
    strides: [&[isize]; K],
    mask: Shared<u8>,
    n: usize,
    each: impl Fn(Part<'_, K>, Range<usize>) + Sync,
) {
    let total = numel(sizes) as f64;
    let cut = if threads::is_cut(total * SOUGHT) { Part::whole(sizes, strides).cut() } else { None };
    let Some(cut) = cut else { return each(Part::whole(sizes, strides), 0..n) };
    let length = cut.len().div_ceil(PIECES);
    let pieces = cut.len().div_ceil(length);
    let piece = |k: usize| k * length..cut.len().min((k + 1) * length);
    let ns = total / pieces as f64;
    // SAFETY: guarded by the caller.
    let shares = shares(pieces, n, ns * COUNTED, |k| cut.part(piece(k), |part| unsafe { count(mask.get(), part) }));
    threads::ranges(pieces, 1, ns * SOUGHT, |range| {
        range.for_each(|k| cut.part(piece(k), |part| each(part, shares[k].clone())));
    });
}

/// A mask as lines along its last dimension, each cut evenly if there are few.
struct Lines<'a> {
    mask: Shared<u8>,
    layout: &'a Layout,
    length: usize,
    /// Pieces of a line, how many positions they have, and how many pieces there are in all lines.
    across: usize,
    piece: usize,
    count: usize,
}

impl<'a> Lines<'a> {
    /// Of a mask with dimensions and `n` elements. At least as many pieces as that, if there are elements for them.
    fn of(mask: &Operand<'a>, n: usize, pieces: usize) -> Lines<'a> {
        let length = *mask.layout.sizes.last().unwrap_or(&1);
        let lines = n / length;
        let piece = if lines < pieces { n.div_ceil(pieces).min(length) } else { length };
        let across = length.div_ceil(piece);
        Lines { mask: Shared(element_ptr(mask)), layout: mask.layout, length, across, piece, count: lines * across }
    }

    /// Calls `f` with some pieces in row-major order: the index of the line, the first position in it, its address, and how
    /// many positions there are.
    #[inline(always)]
    fn each(&self, range: Range<usize>, mut f: impl FnMut(&[usize], usize, *const u8, usize)) {
        let lead = self.layout.rank() - 1;
        let (outer, strides, step) =
            (&self.layout.sizes[..lead], &self.layout.strides[..lead], self.layout.strides[lead]);
        let mut index = Dims::filled(0usize, lead);
        let (mut rest, mut line) = (range.start / self.across, self.mask.get().cast_const());
        for d in (0..lead).rev() {
            (index[d], rest) = (rest % outer[d], rest / outer[d]);
            line = line.wrapping_offset(index[d] as isize * strides[d]);
        }
        let mut first = range.start % self.across * self.piece;
        for _ in range {
            let from = line.wrapping_offset(first as isize * step);
            f(&index, first, from, self.piece.min(self.length - first));
            first += self.piece;
            if first < self.length {
                continue;
            }
            first = 0;
            for d in (0..lead).rev() {
                index[d] += 1;
                line = line.wrapping_offset(strides[d]);
                if index[d] < outer[d] {
                    break;
                }
                line = line.wrapping_offset(-strides[d] * outer[d] as isize);
                index[d] = 0;
            }
        }
    }
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
    let rank = mask.layout.rank();
    let out = Storage::zeroed(op, n.saturating_mul(rank).saturating_mul(8))?;
    if n == 0 || rank == 0 {
        return Ok((out, n));
    }
    let _guards = Guards::take([mask.storage], []);
    let (size, step) = (mask.layout.numel(), mask.layout.strides[rank - 1]);
    let dst = Shared(out.ptr().cast::<i64>());
    let write = |lines: &Lines<'_>, pieces: Range<usize>, Range { start, end }: Range<usize>| {
        let mut found = start;
        lines.each(pieces, |index, first, from, len| {
            let (before, mut now) = (found, found);
            // SAFETY: positions inside the layout, guarded. `now < end` keeps every write inside the pieces' part of a
            // column even if somebody else has set elements since they were counted. A position that is false is written
            // over by the next that is true: no branch depends on the mask.
            unsafe {
                let last = dst.get().add(index.len() * n);
                each_bit(from, step, len, |j, bit| {
                    if now < end {
                        last.add(now).write((first + j) as i64);
                        now += bit as usize;
                    }
                });
                for (d, &i) in index.iter().enumerate() {
                    let column = dst.get().add(d * n);
                    (before..now).for_each(|at| column.add(at).write(i as i64));
                }
            }
            found = now;
        });
    };
    if !threads::is_cut(size as f64 * SOUGHT) {
        let lines = Lines::of(&mask, size, 1);
        write(&lines, 0..lines.count, 0..n);
        return Ok((out, n));
    }
    let lines = Lines::of(&mask, size, PIECES);
    let pieces = PIECES.min(lines.count);
    let piece = |k: usize| k * lines.count / pieces..(k + 1) * lines.count / pieces;
    let ns = size as f64 / pieces as f64;
    let shares = shares(pieces, n, ns * COUNTED, |k| {
        let mut count = 0;
        // SAFETY: positions inside the layout, guarded.
        lines.each(piece(k), |_, _, from, len| count += unsafe { count_row(from, len, step) });
        count
    });
    threads::ranges(pieces, 1, ns * SOUGHT, |range| {
        range.for_each(|k| write(&lines, piece(k), shares[k].clone()));
    });
    Ok((out, n))
}

/// Copies the elements of `from` where `mask` is true, in row-major order, to `to`, which has one dimension and zeros for
/// what is not found.
pub(crate) fn masked_select(to: &Operand<'_>, from: &Operand<'_>, mask: &Operand<'_>) {
    let _guards = Guards::take([from.storage, mask.storage], [to.storage]);
    let (dst, src, msk) = (element_ptr(to), element_ptr(from), Shared(element_ptr(mask)));
    let (n, strides) = (to.layout.numel(), [&from.layout.strides[..], &mask.layout.strides]);
    with_width!(to.dtype, T => {
        let (dst, src) = (Shared(dst.cast::<T>()), Shared(src.cast::<T>()));
        in_order(&from.layout.sizes, strides, msk, n, |part, Range { start: mut found, end }| {
            let (dst, src, msk) = (dst.get(), src.get(), msk.get());
            let _ = part.walk(|[s, m], len, [ds, dm]| {
                if found == end {
                    return Err(());
                }
                // SAFETY: positions inside the layouts, guarded; only the piece's part of the target is written. An element
                // that is not selected is written over by the next that is: no branch depends on the mask.
                unsafe {
                    each_bit(msk.offset(m), dm, len, |j, bit| {
                        if found < end {
                            dst.add(found).write(src.offset(s + j as isize * ds).read());
                            found += bit as usize;
                        }
                    });
                }
                Ok(())
            });
            // SAFETY: as above.
            (found..end).for_each(|j| unsafe { dst.add(j).write(0 as T) });
        });
    });
}

/// Replaces the elements of `to` where `mask` is true by those of `from`, a row-major sequence, as long as there are any.
pub(crate) fn masked_scatter(to: &Operand<'_>, mask: &Operand<'_>, from: &Operand<'_>) {
    let _guards = Guards::take([from.storage, mask.storage], [to.storage]);
    let (dst, src, msk) = (element_ptr(to), element_ptr(from), Shared(element_ptr(mask)));
    let (n, strides) = (from.layout.numel(), [&to.layout.strides[..], &mask.layout.strides]);
    with_width!(to.dtype, T => {
        let (dst, src) = (Shared(dst.cast::<T>()), Shared(src.cast::<T>()));
        in_order(&to.layout.sizes, strides, msk, n, |part, Range { start: mut taken, end }| {
            let (dst, src, msk) = (dst.get(), src.get(), msk.get());
            let _ = part.walk(|[d, m], len, [dd, dm]| {
                if taken == end {
                    return Err(());
                }
                // SAFETY: positions inside the layouts, guarded; only the piece's part of the sequence is read. What is not
                // replaced is written back: no branch depends on the mask.
                unsafe {
                    each_bit(msk.offset(m), dm, len, |j, bit| {
                        let place = dst.offset(d + j as isize * dd);
                        if taken < end {
                            place.write(if bit { src.add(taken).read() } else { place.read() });
                            taken += bit as usize;
                        }
                    });
                }
                Ok(())
            });
        });
    });
}

/// Writes the one element of `value` wherever `mask` is true.
pub(crate) fn masked_fill(to: &Operand<'_>, mask: &Operand<'_>, value: &Operand<'_>) {
    let _guards = Guards::take([value.storage, mask.storage], [to.storage]);
    let (dst, msk) = (element_ptr(to), Shared(element_ptr(mask)));
    with_width!(to.dtype, T => {
        let dst = Shared(dst.cast::<T>());
        // SAFETY: `value` has one element.
        let value = unsafe { element_ptr(value).cast::<T>().read() };
        rows(&to.layout.sizes, [&to.layout.strides, &mask.layout.strides], 0.2, |[d, m], n, [dd, dm]| {
            // SAFETY: positions inside both layouts, guarded; rows are apart. What is not filled is written back, so that the
            // loop has no branch and becomes vector code where both are dense.
            unsafe {
                let put = |place: *mut T, byte: u8| place.write(if byte != 0 { value } else { place.read() });
                let (dst, msk) = (dst.get().offset(d), msk.get().offset(m));
                if dd == 1 && dm == 1 {
                    (0..n).for_each(|j| put(dst.add(j), msk.add(j).read()));
                } else {
                    (0..n as isize).for_each(|j| put(dst.offset(j * dd), msk.offset(j * dm).read()));
                }
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_whatever_they_hold() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 & 7).collect();
        for n in [0, 1, 7, 8, 9, 2_039, 2_040, 2_041, 10_000] {
            for step in [1, 3, -1] {
                let all = || {
                    (0..if step == 3 { n / 3 } else { n }).map(|j| if step < 0 { n - 1 - j } else { j * step as usize })
                };
                let first = if step < 0 { n.saturating_sub(1) } else { 0 };
                // SAFETY: positions inside the bytes.
                let found = unsafe { count_row(bytes.as_ptr().add(first), all().count(), step) };
                assert_eq!(found, all().filter(|&j| bytes[j] != 0).count());
            }
        }
        let full = [200u8; 3_000];
        // SAFETY: as many bytes as there are.
        assert_eq!(unsafe { count_row(full.as_ptr(), 3_000, 1) }, 3_000);
    }
}
