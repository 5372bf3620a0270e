//! Kernels that address elements by index: gathering, scattering, adding at places, masks. An index is loaded once,
//! checked, and that value used, so memory that others write meanwhile gives unspecified numbers and never a wild access.
//! Contributions to one place are combined in the order of the elements that bring them, whatever the strides.
//!
//! Each operand's layout spans the whole index space; the one that indices address has stride 0 where they decide, and
//! [`Along`] says what an index means there. Kernels take their guards themselves.

use super::element::{Element, with_element};
use super::elementwise::element_ptr;
use super::walk::walk;
use crate::backend::Operand;
use crate::dtype::DType;
use crate::shape::{Layout, numel};
use crate::storage::{Guards, Storage};

/// What an index means: a step of `stride` elements, below `size`, counted from the end if negative and `wrap` is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    pub stride: isize,
    pub size: usize,
    pub wrap: bool,
}

impl Along {
    /// For the places that [`resolve`] and [`resolve_flat`] give, which are offsets already.
    pub(crate) const RESOLVED: Along = Along { stride: 1, size: isize::MAX as usize, wrap: false };

    /// The offset for an index; the index itself if it is out of range.
    #[inline(always)]
    fn place(self, index: i64) -> Result<isize, i64> {
        let at = if self.wrap && index < 0 { index.wrapping_add(self.size as i64) } else { index };
        if (at as u64) < self.size as u64 { Ok(at as isize * self.stride) } else { Err(index) }
    }
}

/// How many indices are loaded, checked and used together.
const BLOCK: usize = 128;

/// Up to [`BLOCK`] indices, `step` apart, counted from the start. Each is loaded once; what is written to `out` has been
/// checked.
///
/// # Errors
/// The first index that is out of range.
///
/// # Safety
/// All `n` places must be readable; `n` is at most [`BLOCK`].
#[inline(always)]
unsafe fn places(index: *const i64, step: isize, n: usize, along: Along, out: &mut [isize; BLOCK]) -> Result<(), i64> {
    let out = &mut out[..n];
    let size = along.size as isize;
    let low = if along.wrap { -size } else { 0 };
    // The sign bit is set once an index lies on either side of the range: no branch, and vector code.
    let mut outside = 0;
    for (j, place) in out.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let i = unsafe { index.offset(j as isize * step).read() } as isize;
        outside |= i.wrapping_sub(low) | (size - 1).wrapping_sub(i);
        *place = i;
    }
    if outside < 0 {
        let first = out.iter().find(|&&i| i < low || i >= size).copied().unwrap_or_default();
        return Err(first as i64);
    }
    if along.wrap {
        out.iter_mut().for_each(|i| *i += size & (*i >> (isize::BITS - 1)));
    }
    Ok(())
}

/// How several contributions to one place are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Combine {
    Add,
    Mul,
    /// NaN wins.
    Max,
    /// NaN wins.
    Min,
}

/// Arithmetic of compute types: wrapping for integers, "or" and "and" for truth values.
trait Number: Copy {
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
}

macro_rules! number {
    ($($t:ty, $a:ident $b:ident: $add:expr, $mul:expr, $max:expr, $min:expr;)*) => { $(
        impl Number for $t {
            #[inline(always)]
            fn add(self, $b: Self) -> Self { let $a = self; $add }
            #[inline(always)]
            fn mul(self, $b: Self) -> Self { let $a = self; $mul }
            #[inline(always)]
            fn max(self, $b: Self) -> Self { let $a = self; $max }
            #[inline(always)]
            fn min(self, $b: Self) -> Self { let $a = self; $min }
        }
    )* };
}
number! {
    f32, a b: a + b, a * b, if a > b || a.is_nan() { a } else { b }, if a < b || a.is_nan() { a } else { b };
    f64, a b: a + b, a * b, if a > b || a.is_nan() { a } else { b }, if a < b || a.is_nan() { a } else { b };
    i64, a b: a.wrapping_add(b), a.wrapping_mul(b), Ord::max(a, b), Ord::min(a, b);
    u8, a b: a | b, a & b, a | b, a & b;
}

/// Runs `$body` with `$T` standing for an unsigned integer as wide as the dtype: what moving elements needs to know.
macro_rules! with_width {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype.size() {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            _ => {
                type $T = u64;
                $body
            }
        }
    };
}

/// Copies `n` elements.
///
/// # Safety
/// All places must be valid, and the two rows must not overlap unless they are one place.
#[inline(always)]
unsafe fn copy_row<T: Copy>(from: *const T, from_step: isize, to: *mut T, to_step: isize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match (from_step, to_step) {
            (1, 1) => std::ptr::copy_nonoverlapping(from, to, n),
            (0, _) => {
                let value = from.read();
                (0..n as isize).for_each(|j| to.offset(j * to_step).write(value));
            }
            _ => (0..n as isize).for_each(|j| to.offset(j * to_step).write(from.offset(j * from_step).read())),
        }
    }
}

/// Writes to each element of `to` the element of `from` that the index at the same position names.
///
/// # Errors
/// The first index that is out of range.
pub(crate) fn gather(to: &Operand<'_>, from: &Operand<'_>, index: &Operand<'_>, along: Along) -> Result<(), i64> {
    let _guards = Guards::take([from.storage, index.storage], [to.storage]);
    let (dst, src, idx) = (element_ptr(to), element_ptr(from), element_ptr(index).cast::<i64>());
    let mut at = [0; BLOCK];
    with_width!(to.dtype, T => {
        let (dst, src) = (dst.cast::<T>(), src.cast::<T>());
        walk(&to.layout.sizes, [&to.layout.strides, &from.layout.strides, &index.layout.strides], |[d, s, x], n, [dd, ds, dx]| {
            // SAFETY: positions inside the three layouts, the source moved by a checked index; memory is guarded.
            unsafe {
                let (dst, src, idx) = (dst.offset(d), src.offset(s), idx.offset(x));
                if dx == 0 {
                    let at = along.place(idx.read())?;
                    copy_row(src.offset(at), ds, dst, dd, n);
                    return Ok(());
                }
                for start in (0..n).step_by(BLOCK) {
                    let len = BLOCK.min(n - start);
                    let first = start as isize;
                    places(idx.offset(first * dx), dx, len, along, &mut at)?;
                    let (dst, src) = (dst.offset(first * dd), src.offset(first * ds));
                    let stride = along.stride;
                    if dd == 1 && ds == 0 {
                        at[..len].iter().enumerate().for_each(|(j, &i)| dst.add(j).write(src.offset(i * stride).read()));
                    } else {
                        let put = |j: isize, i: isize| dst.offset(j * dd).write(src.offset(i * stride + j * ds).read());
                        at[..len].iter().enumerate().for_each(|(j, &at)| put(j as isize, at));
                    }
                }
            }
            Ok(())
        })
    })
}

/// Writes each element of `from` to the place of `to` that the index at the same position names; of several, the last.
///
/// # Errors
/// The first index that is out of range; elements before it have been written.
pub(crate) fn scatter(to: &Operand<'_>, from: &Operand<'_>, index: &Operand<'_>, along: Along) -> Result<(), i64> {
    let _guards = Guards::take([from.storage, index.storage], [to.storage]);
    let (dst, src, idx) = (element_ptr(to), element_ptr(from), element_ptr(index).cast::<i64>());
    let mut at = [0; BLOCK];
    with_width!(to.dtype, T => {
        let (dst, src) = (dst.cast::<T>(), src.cast::<T>());
        walk(&from.layout.sizes, [&to.layout.strides, &from.layout.strides, &index.layout.strides], |[d, s, x], n, [dd, ds, dx]| {
            // SAFETY: positions inside the three layouts, the target moved by a checked index; memory is guarded.
            unsafe {
                let (dst, src, idx) = (dst.offset(d), src.offset(s), idx.offset(x));
                if dx == 0 {
                    let at = along.place(idx.read())?;
                    copy_row(src, ds, dst.offset(at), dd, n);
                    return Ok(());
                }
                for start in (0..n).step_by(BLOCK) {
                    let len = BLOCK.min(n - start);
                    let first = start as isize;
                    places(idx.offset(first * dx), dx, len, along, &mut at)?;
                    let (dst, src) = (dst.offset(first * dd), src.offset(first * ds));
                    let stride = along.stride;
                    let put = |j: isize, i: isize| dst.offset(i * stride + j * dd).write(src.offset(j * ds).read());
                    at[..len].iter().enumerate().for_each(|(j, &at)| put(j as isize, at));
                }
            }
            Ok(())
        })
    })
}

/// Combines each element of `from` with the place of `to` that the index at the same position names.
///
/// # Errors
/// The first index that is out of range; elements before it have been written.
pub(crate) fn scatter_with(
    how: Combine,
    to: &Operand<'_>,
    from: &Operand<'_>,
    index: &Operand<'_>,
    along: Along,
) -> Result<(), i64> {
    with_element!(to.dtype, E => match how {
        Combine::Add => combine::<E>(to, from, index, along, Number::add),
        Combine::Mul => combine::<E>(to, from, index, along, Number::mul),
        Combine::Max => combine::<E>(to, from, index, along, Number::max),
        Combine::Min => combine::<E>(to, from, index, along, Number::min),
    })
}

fn combine<E: Element>(
    to: &Operand<'_>,
    from: &Operand<'_>,
    index: &Operand<'_>,
    along: Along,
    f: impl Fn(E::Compute, E::Compute) -> E::Compute,
) -> Result<(), i64> {
    let _guards = Guards::take([from.storage, index.storage], [to.storage]);
    let (dst, src, idx) =
        (element_ptr(to).cast::<E>(), element_ptr(from).cast::<E>(), element_ptr(index).cast::<i64>());
    let mut at = [0; BLOCK];
    walk(
        &from.layout.sizes,
        [&to.layout.strides, &from.layout.strides, &index.layout.strides],
        |[d, s, x], n, [dd, ds, dx]| {
            // SAFETY: positions inside the three layouts, the target moved by a checked index; memory is guarded.
            unsafe {
                let (dst, src, idx) = (dst.offset(d), src.offset(s), idx.offset(x));
                let put = |at: *mut E, value: E| at.write(E::store(f(at.read().load(), value.load())));
                if dx == 0 {
                    let dst = dst.offset(along.place(idx.read())?);
                    if dd == 1 && ds == 1 {
                        (0..n).for_each(|j| put(dst.add(j), src.add(j).read()));
                    } else {
                        (0..n as isize).for_each(|j| put(dst.offset(j * dd), src.offset(j * ds).read()));
                    }
                    return Ok(());
                }
                for start in (0..n).step_by(BLOCK) {
                    let len = BLOCK.min(n - start);
                    let first = start as isize;
                    places(idx.offset(first * dx), dx, len, along, &mut at)?;
                    let (dst, src) = (dst.offset(first * dd), src.offset(first * ds));
                    let stride = along.stride;
                    if dd == 0 && ds == 1 {
                        at[..len].iter().enumerate().for_each(|(j, &i)| put(dst.offset(i * stride), src.add(j).read()));
                    } else {
                        let one = |j: isize, i: isize| put(dst.offset(i * stride + j * dd), src.offset(j * ds).read());
                        at[..len].iter().enumerate().for_each(|(j, &at)| one(j as isize, at));
                    }
                }
            }
            Ok(())
        },
    )
}

/// Whether all indices are in range: asked before an operand is modified in place.
///
/// # Errors
/// The first that is not.
pub(crate) fn check(index: &Operand<'_>, along: Along) -> Result<(), i64> {
    let _guards = Guards::take([index.storage], []);
    let idx = element_ptr(index).cast::<i64>();
    walk(&index.layout.sizes, [&index.layout.strides], |[x], n, [dx]| {
        // SAFETY: positions inside the layout, guarded.
        let load = |j: isize| unsafe { idx.offset(x + j * dx).read() };
        let n = if dx == 0 { 1 } else { n as isize };
        // The lowest and highest first: two running comparisons a vector, no branch.
        let (low, high) = (0..n).map(load).fold((i64::MAX, i64::MIN), |(l, h), i| (Ord::min(l, i), Ord::max(h, i)));
        if along.place(low).is_ok() && along.place(high).is_ok() {
            return Ok(());
        }
        (0..n).try_for_each(|j| along.place(load(j)).map(drop))
    })
}

/// Turns several index tensors, broadcast to one shape, into offsets: for each position the sum of what its indices mean.
/// `to` is row-major int64 of that shape.
///
/// # Errors
/// The first index out of range, with the number of its tensor.
pub(crate) fn resolve(to: &Operand<'_>, indices: &[(Operand<'_>, Along)]) -> Result<(), (usize, i64)> {
    let _guards = Guards::take(indices.iter().map(|(i, _)| i.storage), [to.storage]);
    let dst = element_ptr(to).cast::<i64>();
    for (k, (index, along)) in indices.iter().enumerate() {
        let idx = element_ptr(index).cast::<i64>();
        walk(&to.layout.sizes, [&to.layout.strides, &index.layout.strides], |[d, x], n, [dd, dx]| {
            for j in 0..n as isize {
                // SAFETY: positions inside both layouts, guarded.
                unsafe {
                    let at = along.place(idx.offset(x + j * dx).read()).map_err(|i| (k, i))? as i64;
                    let place = dst.offset(d + j * dd);
                    place.write(if k == 0 { at } else { place.read() + at });
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Turns indices into the row-major order of `layout`'s elements into offsets from its first element. `to` is row-major
/// int64 with the shape of `index`.
///
/// # Errors
/// The first index out of range.
pub(crate) fn resolve_flat(to: &Operand<'_>, index: &Operand<'_>, layout: &Layout) -> Result<(), i64> {
    let _guards = Guards::take([index.storage], [to.storage]);
    let (dst, idx) = (element_ptr(to).cast::<i64>(), element_ptr(index).cast::<i64>());
    let along = Along { stride: 1, size: layout.numel(), wrap: true };
    let plain = layout.is_contiguous();
    walk(&to.layout.sizes, [&to.layout.strides, &index.layout.strides], |[d, x], n, [dd, dx]| {
        for j in 0..n as isize {
            // SAFETY: positions inside both layouts, guarded.
            unsafe {
                let mut flat = along.place(idx.offset(x + j * dx).read())?;
                let mut at = flat;
                if !plain {
                    at = 0;
                    for (&size, &stride) in layout.sizes.iter().zip(layout.strides.iter()).rev() {
                        at += flat % size as isize * stride;
                        flat /= size as isize;
                    }
                }
                dst.offset(d + j * dd).write(at as i64);
            }
        }
        Ok(())
    })
}

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

/// Writes the one element of `value` everywhere.
pub(crate) fn fill(to: &Operand<'_>, value: &Operand<'_>) {
    let _guards = Guards::take([value.storage], [to.storage]);
    let dst = element_ptr(to);
    with_width!(to.dtype, T => {
        let dst = dst.cast::<T>();
        // SAFETY: `value` has one element.
        let value = unsafe { element_ptr(value).cast::<T>().read() };
        let done = walk::<1, ()>(&to.layout.sizes, [&to.layout.strides], |[d], n, [dd]| {
            // SAFETY: positions inside the layout, guarded.
            unsafe {
                let dst = dst.offset(d);
                if dd == 1 {
                    (0..n).for_each(|j| dst.add(j).write(value));
                } else {
                    (0..n as isize).for_each(|j| dst.offset(j * dd).write(value));
                }
            }
            Ok(())
        });
        debug_assert!(done.is_ok());
    });
}
