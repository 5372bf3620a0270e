//! The real ones.

pub use parking_lot::{Condvar, Mutex};
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};

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
