//! Forks: a child has none of its parent's threads, and finds locks that they held as they were.

use crate::sync::{forked, forks};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static WATCH: Once = Once::new();

/// Remembers a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forked(u32);

impl Forked {
    /// The present process.
    pub fn here() -> Forked {
        Forked(forks())
    }

    /// Whether the present process is a child of the one remembered.
    #[inline]
    pub fn since(self) -> bool {
        self.0 != forks()
    }
}

/// Counts what only this process has: a child that is forked off begins at 0.
pub struct Tally(AtomicU64);

impl Tally {
    /// Nothing.
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Tally {
        Tally(AtomicU64::new(0))
    }

    /// One more.
    pub fn add(&self) {
        self.change(|count| count + 1);
    }

    /// One less of those that were added in this process.
    pub fn sub(&self) {
        self.change(|count| count - 1);
    }

    /// How many.
    pub fn get(&self) -> u32 {
        Tally::here(self.0.load(Ordering::Acquire))
    }

    /// The count, if it is of this process. It lies behind the process's number in one word.
    fn here(word: u64) -> u32 {
        if (word >> 32) as u32 == forks() { word as u32 } else { 0 }
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        let change = |word| Some((forks() as u64) << 32 | change(Tally::here(word)) as u64);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }
}

/// From now on forks are noticed. Whoever starts threads calls it, and whoever is called by several that others start.
pub fn watch_forks() {
    WATCH.call_once(|| {
        #[cfg(all(unix, not(miri)))]
        // SAFETY: the handlers are functions that live as long as the process.
        unsafe {
            libc::pthread_atfork(Some(before), Some(after), Some(child));
        }
    });
}

/// In the parent, before: the locks that workers take are taken, so that the child does not inherit one that is held.
#[cfg(all(unix, not(miri)))]
unsafe extern "C" fn before() {
    crate::storage::before_fork();
}

#[cfg(all(unix, not(miri)))]
unsafe extern "C" fn after() {
    crate::storage::after_fork();
}

#[cfg(all(unix, not(miri)))]
unsafe extern "C" fn child() {
    forked();
    super::pool::forget();
    crate::storage::after_fork();
}
