//! [`lock`](super::lock) for ThreadSanitizer (`make tsan`), which does not see what the standard locks do: the standard library comes
//! compiled without it. These are compiled here, and order memory as those do.

pub use parking_lot::MutexGuard;

use std::time::Duration;

/// A lock without poison.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Where threads wait for news.
#[derive(Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    pub fn wait<'a, T>(&self, mut held: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(&mut held);
        held
    }

    pub fn wait_for<'a, T>(&self, mut held: MutexGuard<'a, T>, at_most: Duration) -> (MutexGuard<'a, T>, bool) {
        let up = self.0.wait_for(&mut held, at_most).timed_out();
        (held, up)
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
