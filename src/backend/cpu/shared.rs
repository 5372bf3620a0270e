//! What kernels need whose slices run on several threads: pointers and errors.

use crate::sync::lock::Mutex;

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

/// Of the errors of several slices the one at the lowest place.
pub(super) struct Lowest<E>(Mutex<Option<(usize, E)>>);

impl<E> Lowest<E> {
    pub(super) fn new() -> Lowest<E> {
        Lowest(Mutex::new(None))
    }

    /// There is an error at this place.
    #[cold]
    pub(super) fn put(&self, place: usize, error: E) {
        let mut known = self.0.lock();
        if known.as_ref().is_none_or(|(lowest, _)| place < *lowest) {
            *known = Some((place, error));
        }
    }

    /// The error, if there was one.
    pub(super) fn result(self) -> Result<(), E> {
        self.0.into_inner().map_or(Ok(()), |(_, error)| Err(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_errors_the_one_at_the_lowest_place_remains() {
        let error = Lowest::new();
        [(7, "later"), (3, "first"), (5, "between")].into_iter().for_each(|(place, e)| error.put(place, e));
        assert_eq!(error.result(), Err("first"));
        assert_eq!(Lowest::<()>::new().result(), Ok(()));
    }
}
