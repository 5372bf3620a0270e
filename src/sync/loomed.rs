//! Loom's, with the faces of the real ones. A wait that may time out does not.

pub use loom::sync::MutexGuard;
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
pub use loom::thread::{Builder, JoinHandle, current, yield_now};

use loom::thread::ThreadId;
use std::sync::PoisonError;
use std::time::Duration;

/// A lock without poison.
#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where threads wait for news.
#[derive(Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn wait<'a, T>(&self, held: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(held).unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait_for<'a, T>(&self, held: MutexGuard<'a, T>, _: Duration) -> (MutexGuard<'a, T>, bool) {
        (self.wait(held), false)
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Looks once: whoever spins may have been put aside for all of its time.
pub fn spin(_: Duration, _: u32, is_so: impl Fn() -> bool) -> bool {
    is_so()
}

/// A thread that others can wake. Loom's own `park` takes the wake of a lock for its own.
pub struct Sleeper {
    thread: ThreadId,
    woken: Mutex<bool>,
    bell: Condvar,
}

impl Sleeper {
    pub fn here() -> Sleeper {
        Sleeper { thread: current().id(), woken: Mutex::default(), bell: Condvar::new() }
    }

    pub fn is_here(&self) -> bool {
        current().id() == self.thread
    }

    pub fn wake(&self) {
        *self.woken.lock() = true;
        self.bell.notify_one();
    }

    pub fn sleep(&self, _: Duration) {
        let mut woken = self.woken.lock();
        while !*woken {
            woken = self.bell.wait(woken);
        }
        *woken = false;
    }
}
