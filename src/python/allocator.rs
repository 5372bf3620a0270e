//! The extension's allocator. Graphs are built and dropped thousands of nodes at a time, which is where the system's
//! allocator is slowest. A Rust program that uses the crate chooses its own.

use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};

#[global_allocator]
static ALLOCATOR: Mimalloc = Mimalloc;

/// mimalloc, past its entries for alignment where malloc's own is enough: they cost as much again as the allocation.
struct Mimalloc;

/// What `mi_malloc` aligns blocks of at least that size to, as C requires of malloc.
const MALLOC_ALIGN: usize = 16;

#[inline]
fn is_usual(layout: Layout) -> bool {
    layout.align() <= MALLOC_ALIGN && layout.align() <= layout.size()
}

// SAFETY: mimalloc's blocks are as large and as aligned as asked for, apart from one another, and null if there is no memory;
// every block is freed or resized by the same allocator.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two is allowed.
        unsafe {
            if is_usual(layout) {
                mi::mi_malloc(layout.size())
            } else {
                mi::mi_malloc_aligned(layout.size(), layout.align())
            }
        }
        .cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is_usual(layout) {
                mi::mi_zalloc(layout.size())
            } else {
                mi::mi_zalloc_aligned(layout.size(), layout.align())
            }
        }
        .cast()
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        // SAFETY: the block came from here.
        unsafe { mi::mi_free(ptr.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the block came from here.
        unsafe { mi::mi_realloc_aligned(ptr.cast(), size, layout.align()) }.cast()
    }
}
