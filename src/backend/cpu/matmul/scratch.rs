//! The memory that packed blocks live in: one buffer a thread, kept between calls, because an allocation costs more than a
//! small product.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine {
    _bytes: MaybeUninit<[u8; 64]>,
}

thread_local! {
    static KEPT: Cell<Vec<CacheLine>> = const { Cell::new(Vec::new()) };
}

/// Uninitialised memory for elements of type `T`, aligned to a cache line. It is taken out of the thread's slot while in
/// use, so a product started from within a product (by the cancel check) gets memory of its own.
pub(super) struct Scratch<T> {
    lines: Vec<CacheLine>,
    _of: PhantomData<T>,
}

impl<T> Scratch<T> {
    /// Memory for `len` elements; none is touched if `len` is 0.
    #[inline]
    pub(super) fn take(len: usize) -> Scratch<T> {
        let mut lines = if len == 0 { Vec::new() } else { KEPT.try_with(Cell::take).unwrap_or_default() };
        lines.reserve((len * size_of::<T>()).div_ceil(size_of::<CacheLine>()));
        Scratch { lines, _of: PhantomData }
    }

    /// The first element.
    #[inline]
    pub(super) fn ptr(&mut self) -> *mut T {
        self.lines.as_mut_ptr().cast()
    }
}

impl<T> Drop for Scratch<T> {
    #[inline]
    fn drop(&mut self) {
        if self.lines.capacity() != 0 {
            let lines = std::mem::take(&mut self.lines);
            // A thread that is ending has no slot any more: then the memory is simply freed.
            let _ = KEPT.try_with(|kept| kept.set(lines));
        }
    }
}
