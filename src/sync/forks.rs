//! How many forks lie between this process and the one that loaded the library. What only one process has says so by this number.

use std::sync::atomic::{AtomicU32, Ordering};

/// It is no part of what threads do with one another: it changes where there is one thread.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number.
#[inline]
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// One more: called in a child that was forked off, before it does anything else.
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
