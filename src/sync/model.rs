//! Models: what is to hold however threads take turns. Loom tries their turns one by one; elsewhere the same models run many
//! times on real threads, for Miri, ThreadSanitizer and plain luck.

#[cfg(loom)]
use loom::cell::UnsafeCell;

/// Runs a model.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    loom::model(model);
    #[cfg(not(loom))]
    (0..if cfg!(miri) { 3 } else { 300 }).for_each(|_| model());
}

/// Runs a model of three threads or more that do much: loom forces fewer switches on them, or it would not end in a day.
pub fn check_crowd(model: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    {
        let mut loom = loom::model::Builder::new();
        loom.preemption_bound = Some(2);
        loom.check(model);
    }
    #[cfg(not(loom))]
    check(model);
}

/// Starts a thread of a model.
pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> super::JoinHandle<T> {
    super::Builder::new().spawn(run).expect("the system makes a thread")
}

/// A number of which a model claims that nobody reaches it while another writes it.
#[derive(Default)]
pub struct Claimed(UnsafeCell<usize>);

// SAFETY: the claim is what is tested. Where it is wrong, loom, Miri and ThreadSanitizer say so, and the test fails.
unsafe impl Sync for Claimed {}
// SAFETY: a number.
unsafe impl Send for Claimed {}

impl Claimed {
    pub fn get(&self) -> usize {
        // SAFETY: the claim.
        self.0.with(|value| unsafe { *value })
    }

    pub fn add(&self, more: usize) {
        // SAFETY: the claim.
        self.0.with_mut(|value| unsafe { *value += more });
    }
}

/// The standard cell with the face of loom's.
#[cfg(not(loom))]
#[derive(Default)]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.0.get())
    }

    fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}
