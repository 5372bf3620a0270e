//! The real ones.

#[cfg(test)]
pub use super::lock::MutexGuard;
pub use super::lock::{Condvar, Mutex};
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
#[cfg(test)]
pub use std::thread::yield_now;
pub use std::thread::{Builder, JoinHandle, current};

use std::thread::Thread;
use std::time::{Duration, Instant};

/// Looks for at most this long whether something is so, pausing in between; says whether it was.
#[inline]
pub fn spin(limit: Duration, pauses: u32, is_so: impl Fn() -> bool) -> bool {
    let since = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if since.elapsed() >= limit {
            return false;
        }
        (0..pauses).for_each(|_| std::hint::spin_loop());
    }
}

/// A thread that others can wake.
pub struct Sleeper(Thread);

impl Sleeper {
    /// The thread that calls this.
    pub fn here() -> Sleeper {
        Sleeper(current())
    }

    /// Whether it is the calling thread.
    pub fn is_here(&self) -> bool {
        current().id() == self.0.id()
    }

    /// Wakes it; if it does not sleep, its next sleep ends at once.
    pub fn wake(&self) {
        self.0.unpark();
    }

    /// Sleeps until woken, or for this long; perhaps shorter. Called by the thread itself.
    pub fn sleep(&self, at_most: Duration) {
        std::thread::park_timeout(at_most);
    }
}
