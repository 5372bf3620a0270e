//! Bytes that tensors share, and what protects them: allocation, guards against data races between threads of this
//! process, and memory that belongs to somebody else (numpy). Nothing here looks at dtypes beyond their size, nor at
//! version counters beyond the one that is born with the memory.

mod alloc;
mod guard;
mod word;

pub use alloc::{affordable, cache_limit, cached_bytes, empty_cache, large_bytes, set_cache_limit};
pub(crate) use alloc::{after_fork, before_fork};
pub use guard::{Guards, Reading, set_wait_hook};

use crate::error::{Error, Result};
use std::any::Any;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use word::Word;

/// Storages up to this many bytes live inside their own header: one allocation for a scalar.
const INLINE_BYTES: usize = 16;

/// A piece of memory behind a reference count. Cloning shares it.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

struct Inner {
    /// Readers (low bits) and writer (high bit) that are inside a kernel now.
    guard: Word,
    /// The version counter of the tensors that were born with this memory.
    version: AtomicU32,
    bytes: usize,
    data: Data,
}

enum Data {
    Inline(UnsafeCell<[u64; INLINE_BYTES / 8]>),
    Owned(alloc::Block),
    Foreign { ptr: *mut u8, writable: bool, _owner: Box<dyn Any + Send + Sync> },
}

// SAFETY: the memory is reached through raw pointers only; threads of this process exclude one another by `guard`, which
// every kernel takes, and races with foreign writers of exported memory give unspecified numbers, as DESIGN allows.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Storage {
    /// Memory of at least `bytes` bytes with unspecified contents, aligned for vector loads.
    #[inline]
    pub fn uninit(op: &'static str, bytes: usize) -> Result<Storage> {
        Storage::make(op, bytes, false)
    }

    /// Memory of zeros.
    pub fn zeroed(op: &'static str, bytes: usize) -> Result<Storage> {
        Storage::make(op, bytes, true)
    }

    #[inline]
    fn make(op: &'static str, bytes: usize, zeroed: bool) -> Result<Storage> {
        let data = if bytes <= INLINE_BYTES {
            Data::Inline(UnsafeCell::new([0; INLINE_BYTES / 8]))
        } else {
            Data::Owned(alloc::Block::new(bytes, zeroed).ok_or(Error::OutOfMemory { op, bytes })?)
        };
        Ok(Storage(Arc::new(Inner { guard: Word::new(), version: AtomicU32::new(0), bytes, data })))
    }

    /// Memory that `owner` keeps alive and that others may write too.
    ///
    /// # Safety
    /// `ptr` must be valid for reads of `bytes` bytes, and for writes if `writable`, for as long as `owner` lives.
    pub unsafe fn foreign(ptr: *mut u8, bytes: usize, writable: bool, owner: Box<dyn Any + Send + Sync>) -> Storage {
        let data = Data::Foreign { ptr, writable, _owner: owner };
        Storage(Arc::new(Inner { guard: Word::new(), version: AtomicU32::new(0), bytes, data }))
    }

    /// The first byte. Whoever reads or writes through it holds a guard.
    #[inline]
    pub fn ptr(&self) -> *mut u8 {
        match &self.0.data {
            Data::Inline(cell) => cell.get().cast(),
            Data::Owned(block) => block.ptr(),
            Data::Foreign { ptr, .. } => *ptr,
        }
    }

    /// Usable length in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Whether both are the same memory.
    #[inline]
    pub fn same(&self, other: &Storage) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that no other living storage has; also the order in which guards are taken.
    #[inline]
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Whether nobody else holds this memory.
    #[inline]
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Whether the holder of this reference is the only one in this process who can reach the memory; what others wrote
    /// before they let go of it is seen.
    #[inline]
    pub fn is_alone(&mut self) -> bool {
        let alone = self.is_unique();
        std::sync::atomic::fence(Ordering::Acquire);
        alone
    }

    /// Where the values of `size` bytes from number `offset` on lie, if there are `n` and the memory is our own.
    #[inline(always)]
    pub fn own_values(&self, offset: usize, n: usize, size: usize) -> Option<*mut u8> {
        let start = match &self.0.data {
            Data::Inline(cell) => cell.get().cast::<u8>(),
            Data::Owned(block) => block.ptr(),
            Data::Foreign { .. } => return None,
        };
        let end = offset.checked_add(n)?.checked_mul(size)?;
        (end <= self.0.bytes).then(|| start.wrapping_add(offset * size))
    }

    /// Copies the first `bytes` bytes out of memory that only the caller can reach; false, and nothing done, if others can,
    /// or if they are more than there are or than the buffer holds.
    #[inline]
    pub fn copy_out(&mut self, bytes: usize, buffer: &mut [u64]) -> bool {
        let from = self.own_values(0, bytes, 1).filter(|_| bytes <= size_of_val(buffer));
        let (true, Some(from)) = (self.is_alone(), from) else { return false };
        // SAFETY: that many bytes are readable and writable, in different memory, and nobody writes them now.
        unsafe { std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr().cast(), bytes) };
        true
    }

    /// Whether kernels may write it (a read-only numpy array may not be written).
    #[inline]
    pub fn is_writable(&self) -> bool {
        !matches!(self.0.data, Data::Foreign { writable: false, .. })
    }

    /// Whether the memory belongs to somebody else.
    pub fn is_foreign(&self) -> bool {
        matches!(self.0.data, Data::Foreign { .. })
    }

    /// The version counter born with the memory.
    #[inline]
    pub fn birth_version(&self) -> &AtomicU32 {
        &self.0.version
    }

    #[inline]
    fn guard_word(&self) -> &Word {
        &self.0.guard
    }
}

/// Knows a storage without keeping its bytes. While it lives, no other storage gets the number.
pub struct WeakStorage(Weak<Inner>);

impl Storage {
    /// What knows this storage without keeping it.
    pub fn downgrade(&self) -> WeakStorage {
        WeakStorage(Arc::downgrade(&self.0))
    }
}

impl WeakStorage {
    /// The storage's [`id`](Storage::id).
    pub fn id(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Whether somebody still holds the storage.
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({} bytes, version {})", self.0.bytes, self.0.version.load(Ordering::Relaxed))
    }
}
