//! Locks, and waiting for news. Whoever waits is written down nowhere but in the lock or the news itself, so that a child that is
//! forked off finds nothing of threads that it does not have. (`parking_lot` keeps one table of all threads that sleep; the next
//! thread that the child starts rewrites it, in memory that is somebody else's by then.)

pub use std::sync::MutexGuard;

use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// A lock without poison: a panic is a bug that is reported, and what it leaves behind is no worse than what an error leaves.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// What was inside.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes it, waiting for whoever holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it, unless somebody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What is inside, for its only holder.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where threads wait for news.
#[derive(Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Condvar {
        Condvar(std::sync::Condvar::new())
    }

    /// Lets go of a lock until there may be news.
    pub fn wait<'a, T>(&self, held: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(held).unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of a lock until there may be news, or for this long; also says whether the time was up.
    pub fn wait_for<'a, T>(&self, held: MutexGuard<'a, T>, at_most: Duration) -> (MutexGuard<'a, T>, bool) {
        let (held, up) = self.0.wait_timeout(held, at_most).unwrap_or_else(PoisonError::into_inner);
        (held, up.timed_out())
    }

    /// Wakes one of those who wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
