//! Where storages get their bytes. Small blocks come from the system allocator; blocks of 3 MiB and more are mapped with
//! huge-page advice and kept for reuse up to a limit, since a fresh mapping costs more in page faults than most kernels.

use crate::sync::lock::{Mutex, MutexGuard};
use std::alloc::Layout;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every block is aligned for the widest vector loads and to a cache line.
const ALIGN: usize = 64;
/// From this size on, blocks are mapped and cached: by all threads, so that what one makes and another frees is used again.
const LARGE: usize = 3 << 20;
/// Large blocks are rounded up to whole huge pages.
const PAGE: usize = 2 << 20;

static CACHE: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
static CACHED: AtomicUsize = AtomicUsize::new(0);
/// Bytes of large blocks that somebody holds. Small ones are not counted: it would cost as much as they do.
static HELD: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(512 << 20);

/// Owned memory.
pub(super) struct Block {
    ptr: *mut u8,
    /// Bytes reserved, which is what the deallocator must be told.
    reserved: usize,
}

impl Block {
    /// `bytes` of memory, or `None` if the system refuses.
    pub(super) fn new(bytes: usize, zeroed: bool) -> Option<Block> {
        if bytes >= LARGE {
            return Block::large(bytes, zeroed);
        }
        let reserved = bytes.checked_next_multiple_of(16)?.max(16);
        let layout = Layout::from_size_align(reserved, small_align(reserved)).ok()?;
        // SAFETY: the layout has a non-zero size.
        let ptr = unsafe { if zeroed { std::alloc::alloc_zeroed(layout) } else { std::alloc::alloc(layout) } };
        (!ptr.is_null()).then_some(Block { ptr, reserved })
    }

    fn large(bytes: usize, zeroed: bool) -> Option<Block> {
        let reserved = bytes.checked_next_multiple_of(PAGE)?;
        if let Some(ptr) = take_cached(reserved) {
            if zeroed {
                // SAFETY: a cached block is owned by the cache alone and has `reserved` bytes.
                unsafe { ptr.write_bytes(0, reserved) };
            }
            HELD.fetch_add(reserved, Ordering::Relaxed);
            return Some(Block { ptr, reserved });
        }
        let ptr = map(reserved)?;
        HELD.fetch_add(reserved, Ordering::Relaxed);
        Some(Block { ptr, reserved })
    }

    #[inline]
    pub(super) fn ptr(&self) -> *mut u8 {
        self.ptr
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.reserved < LARGE {
            // SAFETY: allocated in `new` with exactly this layout.
            unsafe {
                std::alloc::dealloc(
                    self.ptr,
                    Layout::from_size_align_unchecked(self.reserved, small_align(self.reserved)),
                );
            }
        } else {
            HELD.fetch_sub(self.reserved, Ordering::Relaxed);
            if !put_cached(self.ptr, self.reserved) {
                unmap(self.ptr, self.reserved);
            }
        }
    }
}

/// Asks whether there is memory for `count` values of `each` bytes, before something that cannot be told "no" takes it.
///
/// # Errors
/// [`OutOfMemory`](crate::error::Error::OutOfMemory) if there is not.
pub fn affordable(op: &'static str, count: usize, each: usize) -> crate::error::Result<()> {
    /// Less than this is not worth asking for.
    const SOME: usize = 64 << 20;
    let bytes = count.saturating_mul(each);
    // The system is asked, not the allocator, which may promise what it has not got.
    if bytes < SOME || Block::new(bytes, false).is_some() {
        return Ok(());
    }
    Err(crate::error::Error::OutOfMemory { op, bytes })
}

/// Tiny blocks take malloc's own alignment, which is its fast path.
#[inline]
fn small_align(reserved: usize) -> usize {
    if reserved <= 128 { 16 } else { ALIGN }
}

thread_local! {
    /// The cache, held by a thread that forks.
    static FORKING: Cell<Option<MutexGuard<'static, Vec<(usize, usize)>>>> = const { Cell::new(None) };
}

/// Before a fork: takes the lock that a thread may hold which the child does not have.
pub(crate) fn before_fork() {
    FORKING.set(Some(CACHE.lock()));
}

/// After a fork, in parent and child, on the thread that forked.
pub(crate) fn after_fork() {
    FORKING.set(None);
}

fn take_cached(reserved: usize) -> Option<*mut u8> {
    if CACHED.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut cache = CACHE.lock();
    let at = cache.iter().rposition(|&(_, size)| size == reserved)?;
    let (ptr, _) = cache.swap_remove(at);
    CACHED.fetch_sub(reserved, Ordering::Relaxed);
    Some(ptr as *mut u8)
}

fn put_cached(ptr: *mut u8, reserved: usize) -> bool {
    let mut cache = CACHE.lock();
    if CACHED.load(Ordering::Relaxed) + reserved > LIMIT.load(Ordering::Relaxed) {
        return false;
    }
    cache.push((ptr as usize, reserved));
    CACHED.fetch_add(reserved, Ordering::Relaxed);
    true
}

/// Bytes of blocks of 3 MiB and more that storages hold now, in whole huge pages.
pub fn large_bytes() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Bytes of freed large blocks that are kept for reuse.
pub fn cached_bytes() -> usize {
    CACHED.load(Ordering::Relaxed)
}

/// The most bytes of freed large blocks that are kept for reuse.
pub fn cache_limit() -> usize {
    LIMIT.load(Ordering::Relaxed)
}

/// Sets how many bytes of freed large blocks may be kept, and gives back what is over.
pub fn set_cache_limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
    if cached_bytes() > bytes {
        empty_cache();
    }
}

/// Gives all kept blocks back to the system.
pub fn empty_cache() {
    let blocks = std::mem::take(&mut *CACHE.lock());
    for (ptr, reserved) in blocks {
        CACHED.fetch_sub(reserved, Ordering::Relaxed);
        unmap(ptr as *mut u8, reserved);
    }
}

#[cfg(all(unix, not(miri)))]
fn map(reserved: usize) -> Option<*mut u8> {
    // Mapped one huge page too long, so that the block can start on a huge-page border.
    let whole = reserved.checked_add(PAGE)?;
    // SAFETY: an anonymous private mapping; the result is checked.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            whole,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    let start = (base as usize).next_multiple_of(PAGE);
    let head = start - base as usize;
    let tail = whole - head - reserved;
    // SAFETY: both pieces lie inside the mapping just made, outside the block that is kept; advice changes no contents.
    unsafe {
        if head > 0 {
            libc::munmap(base, head);
        }
        if tail > 0 {
            libc::munmap((start + reserved) as *mut _, tail);
        }
        #[cfg(target_os = "linux")]
        libc::madvise(start as *mut _, reserved, libc::MADV_HUGEPAGE);
    }
    Some(start as *mut u8)
}

#[cfg(all(unix, not(miri)))]
fn unmap(ptr: *mut u8, reserved: usize) {
    // SAFETY: `ptr` came from `map` with this length and nobody holds it any more.
    unsafe { libc::munmap(ptr.cast(), reserved) };
}

#[cfg(not(all(unix, not(miri))))]
fn map(reserved: usize) -> Option<*mut u8> {
    let layout = Layout::from_size_align(reserved, PAGE).ok()?;
    // SAFETY: the layout has a non-zero size.
    let ptr = unsafe { std::alloc::alloc_zeroed(layout) };
    (!ptr.is_null()).then_some(ptr)
}

#[cfg(not(all(unix, not(miri))))]
fn unmap(ptr: *mut u8, reserved: usize) {
    // SAFETY: `ptr` came from `map` with this layout and nobody holds it any more.
    unsafe { std::alloc::dealloc(ptr, Layout::from_size_align_unchecked(reserved, PAGE)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_zeroed_when_asked() {
        for bytes in [1, 17, 4096, LARGE, LARGE + 5] {
            let block = Block::new(bytes, true).unwrap();
            assert_eq!(block.ptr() as usize % small_align(block.reserved), 0);
            // SAFETY: the block has `bytes` bytes, and the test alone holds it.
            let slice = unsafe { std::slice::from_raw_parts_mut(block.ptr(), bytes) };
            assert!(slice.iter().all(|&b| b == 0));
            slice.fill(7);
        }
        // A block that comes from the cache is zeroed again.
        let block = Block::new(LARGE, true).unwrap();
        // SAFETY: inside the block.
        assert_eq!(unsafe { *block.ptr() }, 0);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Block::new(usize::MAX - 5, false).is_none());
        assert!(Block::new(isize::MAX as usize, false).is_none());
    }
}
