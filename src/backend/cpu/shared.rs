//! Pointers for kernels whose slices run on several threads.

/// The address of values that several threads read, or of which each writes a part of its own.
#[derive(Clone, Copy)]
pub(super) struct Shared<T>(pub *mut T);

// SAFETY: an address; whoever reads or writes through it says why nobody else does the opposite.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The address. A method, so that closures take the whole and not its field, which is not `Sync`.
    #[inline(always)]
    pub(super) fn get(self) -> *mut T {
        self.0
    }
}
