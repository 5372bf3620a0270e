//! Loom's, with the faces of the real ones. A wait that may time out does not.

pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
pub use loom::thread::{Builder, JoinHandle, current, yield_now};

use loom::thread::ThreadId;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A lock without poison.
#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// The lock, held. It is empty while its holder waits on a [`Condvar`].
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock().ok())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("the lock is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the lock is held")
    }
}

/// Where threads wait for news.
#[derive(Default)]
pub struct Condvar(loom::sync::Condvar);

/// Whether a wait ended because its time was up.
pub struct WaitTimeoutResult;

impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("the lock is held");
        guard.0 = self.0.wait(held).ok();
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult
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
            self.bell.wait(&mut woken);
        }
        *woken = false;
    }
}
