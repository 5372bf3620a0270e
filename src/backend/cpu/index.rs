//! Kernels that address elements by index: gathering, scattering, adding at places. An index is loaded once, checked, and
//! that value used, so memory that others write meanwhile gives unspecified numbers and never a wild access. Contributions to
//! one place are combined in the order of the elements that bring them, whatever the strides.
//!
//! Each operand's layout spans the whole index space; the one that indices address has stride 0 where they decide, and
//! [`Along`] says what an index means there. Kernels take their guards themselves.
//!
//! Gathering is cut among threads anywhere. Scattering is cut only along dimensions where the target moves: what lies on
//! either side of a border goes to different places, as no target overlaps itself (`ops` sees to that), and each place gets
//! its contributions from one thread, in order. Where indices alone decide about the place (a vector of them into a vector,
//! one for each dimension) nothing is cut: every thread would have to look at all indices, and what takes time there is to
//! wait for memory that no thread has in its cache.

use super::element::{Element, with_element};
use super::elementwise::element_ptr;
use super::shared::Shared;
use super::walk::{parts, rows, walk};
use crate::backend::Operand;
use crate::shape::Layout;
use crate::storage::Guards;
use std::mem::MaybeUninit;

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

/// Room for a block of places. Most calls need little of it, or nothing.
type Room = [MaybeUninit<isize>; BLOCK];

/// Up to [`BLOCK`] indices, `step` apart, counted from the start. Each is loaded once; what is returned has been checked.
///
/// # Errors
/// The first index that is out of range.
///
/// # Safety
/// All `n` places must be readable; `n` is at most [`BLOCK`].
#[inline(always)]
unsafe fn places(index: *const i64, step: isize, n: usize, along: Along, room: &mut Room) -> Result<&[isize], i64> {
    let room = &mut room[..n];
    let size = along.size as isize;
    let low = if along.wrap { -size } else { 0 };
    // The sign bit is set once an index lies on either side of the range: no branch, and vector code.
    let mut outside = 0;
    for (j, place) in room.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let i = unsafe { index.offset(j as isize * step).read() } as isize;
        outside |= i.wrapping_sub(low) | (size - 1).wrapping_sub(i);
        place.write(i);
    }
    // SAFETY: all `n` have been written.
    let out = unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<isize>(), n) };
    if outside < 0 {
        let first = out.iter().find(|&&i| i < low || i >= size).copied().unwrap_or_default();
        return Err(first as i64);
    }
    if along.wrap {
        out.iter_mut().for_each(|i| *i += size & (*i >> (isize::BITS - 1)));
    }
    Ok(out)
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
pub(super) use with_width;

/// About how many nanoseconds it takes to move an element that an index of its own names.
const SINGLE: f64 = 1.0;
/// The same for one of a row that an index names.
const OF_ROW: f64 = 0.2;

/// About how many nanoseconds it takes to move an element, by the steps of the index.
fn cost(index: &Operand<'_>) -> f64 {
    if index.layout.strides.last().is_some_and(|s| *s == 0) { OF_ROW } else { SINGLE }
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
    let (dst, src, idx) = (element_ptr(to), element_ptr(from), Shared(element_ptr(index).cast::<i64>()));
    let strides = [&to.layout.strides[..], &from.layout.strides, &index.layout.strides];
    let done = with_width!(to.dtype, T => {
        let (dst, src) = (Shared(dst.cast::<T>()), Shared(src.cast::<T>()));
        parts(&to.layout.sizes, strides, cost(index), |_| true, |part| {
            let (dst, src, idx) = (dst.get(), src.get(), idx.get());
            let mut room = [const { MaybeUninit::uninit() }; BLOCK];
            // SAFETY: positions inside the three layouts, the source moved by a checked index; memory is guarded, and
            // parts of the target are apart.
            part.walk(|[d, s, x], n, [dd, ds, dx]| unsafe {
                let (dst, src, idx) = (dst.offset(d), src.offset(s), idx.offset(x));
                if dx == 0 {
                    let at = along.place(idx.read())?;
                    copy_row(src.offset(at), ds, dst, dd, n);
                    return Ok(());
                }
                for start in (0..n).step_by(BLOCK) {
                    let len = BLOCK.min(n - start);
                    let first = start as isize;
                    let at = places(idx.offset(first * dx), dx, len, along, &mut room)?;
                    let (dst, src) = (dst.offset(first * dd), src.offset(first * ds));
                    let stride = along.stride;
                    if dd == 1 && ds == 0 {
                        at.iter().enumerate().for_each(|(j, &i)| dst.add(j).write(src.offset(i * stride).read()));
                    } else {
                        let put = |j: isize, i: isize| dst.offset(j * dd).write(src.offset(i * stride + j * ds).read());
                        at.iter().enumerate().for_each(|(j, &at)| put(j as isize, at));
                    }
                }
                Ok(())
            })
        })
    });
    done.map_err(|i| first_outside(index, along, i))
}

/// Writes each element of `from` to the place of `to` that the index at the same position names; of several, the last.
///
/// # Errors
/// The first index that is out of range; elements before it have been written.
pub(crate) fn scatter(to: &Operand<'_>, from: &Operand<'_>, index: &Operand<'_>, along: Along) -> Result<(), i64> {
    let _guards = Guards::take([from.storage, index.storage], [to.storage]);
    let (dst, src, idx) = (element_ptr(to), element_ptr(from), Shared(element_ptr(index).cast::<i64>()));
    let strides = [&to.layout.strides[..], &from.layout.strides, &index.layout.strides];
    let done = with_width!(to.dtype, T => {
        let (dst, src) = (Shared(dst.cast::<T>()), Shared(src.cast::<T>()));
        parts(&from.layout.sizes, strides, cost(index), |steps| steps[0] != 0, |part| {
            let (dst, src, idx) = (dst.get(), src.get(), idx.get());
            let mut room = [const { MaybeUninit::uninit() }; BLOCK];
            // SAFETY: positions inside the three layouts, the target moved by a checked index; memory is guarded, and what
            // parts write is apart.
            part.walk(|[d, s, x], n, [dd, ds, dx]| unsafe {
                let (dst, src, idx) = (dst.offset(d), src.offset(s), idx.offset(x));
                if dx == 0 {
                    let at = along.place(idx.read())?;
                    copy_row(src, ds, dst.offset(at), dd, n);
                    return Ok(());
                }
                for start in (0..n).step_by(BLOCK) {
                    let len = BLOCK.min(n - start);
                    let first = start as isize;
                    let at = places(idx.offset(first * dx), dx, len, along, &mut room)?;
                    let (dst, src) = (dst.offset(first * dd), src.offset(first * ds));
                    let stride = along.stride;
                    let put = |j: isize, i: isize| dst.offset(i * stride + j * dd).write(src.offset(j * ds).read());
                    at.iter().enumerate().for_each(|(j, &at)| put(j as isize, at));
                }
                Ok(())
            })
        })
    });
    done.map_err(|i| first_outside(index, along, i))
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
    f: impl Fn(E::Compute, E::Compute) -> E::Compute + Sync,
) -> Result<(), i64> {
    let _guards = Guards::take([from.storage, index.storage], [to.storage]);
    let (dst, src) = (Shared(element_ptr(to).cast::<E>()), Shared(element_ptr(from).cast::<E>()));
    let idx = Shared(element_ptr(index).cast::<i64>());
    let strides = [&to.layout.strides[..], &from.layout.strides, &index.layout.strides];
    let done = parts(
        &from.layout.sizes,
        strides,
        cost(index),
        |steps| steps[0] != 0,
        |part| {
            let (dst, src, idx) = (dst.get(), src.get(), idx.get());
            let mut room = [const { MaybeUninit::uninit() }; BLOCK];
            // SAFETY: positions inside the three layouts, the target moved by a checked index; memory is guarded, and what parts
            // write is apart.
            part.walk(|[d, s, x], n, [dd, ds, dx]| unsafe {
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
                    let at = places(idx.offset(first * dx), dx, len, along, &mut room)?;
                    let (dst, src) = (dst.offset(first * dd), src.offset(first * ds));
                    let stride = along.stride;
                    if dd == 0 && ds == 1 {
                        at.iter().enumerate().for_each(|(j, &i)| put(dst.offset(i * stride), src.add(j).read()));
                    } else {
                        let one = |j: isize, i: isize| put(dst.offset(i * stride + j * dd), src.offset(j * ds).read());
                        at.iter().enumerate().for_each(|(j, &at)| one(j as isize, at));
                    }
                }
                Ok(())
            })
        },
    );
    done.map_err(|i| first_outside(index, along, i))
}

/// Whether all indices are in range: asked before an operand is modified in place.
///
/// # Errors
/// The first that is not.
pub(crate) fn check(index: &Operand<'_>, along: Along) -> Result<(), i64> {
    let _guards = Guards::take([index.storage], []);
    let idx = Shared(element_ptr(index).cast::<i64>());
    // Where the index does not move there is nothing more to see.
    let done = parts(
        &index.layout.sizes,
        [&index.layout.strides],
        EXAMINED,
        |[dx]| dx != 0,
        |part| {
            part.walk(|[x], n, [dx]| {
                // SAFETY: positions inside the layout, guarded.
                let load = |j: isize| unsafe { idx.get().offset(x + j * dx).read() };
                let n = if dx == 0 { 1 } else { n as isize };
                // The lowest and highest: two running comparisons a vector, no branch.
                let ends = (0..n).map(load).fold((i64::MAX, i64::MIN), |(l, h), i| (Ord::min(l, i), Ord::max(h, i)));
                [ends.0, ends.1].into_iter().try_for_each(|i| along.place(i).map(drop))
            })
        },
    );
    done.map_err(|i| first_outside(index, along, i))
}

/// About how many nanoseconds it takes to look at an index.
const EXAMINED: f64 = 0.5;

/// The first index, in the order of the elements, that is out of range, where some thread met one that is. The caller guards them.
#[cold]
fn first_outside(index: &Operand<'_>, along: Along, met: i64) -> i64 {
    let idx = element_ptr(index).cast::<i64>();
    let found = walk(&index.layout.sizes, [&index.layout.strides], |[x], n, [dx]| {
        // SAFETY: positions inside the layout, guarded by the caller.
        (0..n as isize).try_for_each(|j| along.place(unsafe { idx.offset(x + j * dx).read() }).map(drop))
    });
    // Somebody may have put it right since.
    found.err().unwrap_or(met)
}

/// Turns several index tensors, broadcast to one shape, into offsets: for each position the sum of what its indices mean.
/// `to` is row-major int64 of that shape.
///
/// # Errors
/// The first index out of range, with the number of its tensor.
pub(crate) fn resolve(to: &Operand<'_>, indices: &[(Operand<'_>, Along)]) -> Result<(), (usize, i64)> {
    let _guards = Guards::take(indices.iter().map(|(i, _)| i.storage), [to.storage]);
    for (k, (index, along)) in indices.iter().enumerate() {
        let add = |at: isize, place: *mut i64| {
            // SAFETY: a place of the target, which the first index has written.
            unsafe { place.write(if k == 0 { at as i64 } else { place.read() + at as i64 }) };
        };
        each_place(to, index, *along, add).map_err(|i| (k, i))?;
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
    let along = Along { stride: 1, size: layout.numel(), wrap: true };
    let plain = layout.is_contiguous();
    each_place(to, index, along, |mut flat, place| {
        let mut at = flat;
        if !plain {
            at = 0;
            for (&size, &stride) in layout.sizes.iter().zip(layout.strides.iter()).rev() {
                at += flat % size as isize * stride;
                flat /= size as isize;
            }
        }
        // SAFETY: a place of the target.
        unsafe { place.write(at as i64) };
    })
}

/// Calls `put` with what each index means and the place of `to` (int64) at the same position. The caller guards both.
///
/// # Errors
/// The first index out of range.
#[inline(always)]
fn each_place(
    to: &Operand<'_>,
    index: &Operand<'_>,
    along: Along,
    put: impl Fn(isize, *mut i64) + Sync,
) -> Result<(), i64> {
    let (dst, idx) = (Shared(element_ptr(to).cast::<i64>()), Shared(element_ptr(index).cast::<i64>()));
    let strides = [&to.layout.strides[..], &index.layout.strides];
    let done = parts(
        &to.layout.sizes,
        strides,
        SINGLE,
        |_| true,
        |part| {
            part.walk(|[d, x], n, [dd, dx]| {
                (0..n as isize).try_for_each(|j| {
                    // SAFETY: positions inside both layouts, guarded; parts of the target are apart.
                    let (i, place) = unsafe { (idx.get().offset(x + j * dx).read(), dst.get().offset(d + j * dd)) };
                    along.place(i).map(|at| put(at, place))
                })
            })
        },
    );
    done.map_err(|i| first_outside(index, along, i))
}

/// Writes the one element of `value` everywhere.
pub(crate) fn fill(to: &Operand<'_>, value: &Operand<'_>) {
    let _guards = Guards::take([value.storage], [to.storage]);
    let dst = element_ptr(to);
    with_width!(to.dtype, T => {
        let dst = Shared(dst.cast::<T>());
        // SAFETY: `value` has one element.
        let value = unsafe { element_ptr(value).cast::<T>().read() };
        rows(&to.layout.sizes, [&to.layout.strides], 0.1, |[d], n, [dd]| {
            // SAFETY: positions inside the layout, guarded; rows are apart.
            unsafe {
                let dst = dst.get().offset(d);
                if dd == 1 {
                    (0..n).for_each(|j| dst.add(j).write(value));
                } else {
                    (0..n as isize).for_each(|j| dst.offset(j * dd).write(value));
                }
            }
        });
    });
}
