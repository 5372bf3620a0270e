//! The pool: the crew of this process, and how many threads the user wants.

use super::crew::Crew;
use super::fork::watch_forks;
use crate::error::{Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Work that several threads can share.
pub trait Work: Send + Sync {
    /// Does as much of it as is left; returns at once if nothing is.
    fn help(&self);
}

/// More workers than this are never made.
const MOST: usize = 512;

/// The crew of this process. A child that was forked off starts another, since threads are not inherited.
static CREW: AtomicPtr<Crew> = AtomicPtr::new(std::ptr::null_mut());

/// The threads that were asked for, 0 if nobody has; it outlives a fork.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// The crew, if anybody has called for one.
#[inline]
fn existing() -> Option<&'static Crew> {
    // SAFETY: crews are leaked.
    unsafe { CREW.load(Ordering::Acquire).as_ref() }
}

pub(super) fn crew() -> &'static Crew {
    existing().unwrap_or_else(start)
}

#[cold]
fn start() -> &'static Crew {
    watch_forks();
    let fresh = Box::into_raw(Box::<Crew>::default());
    match CREW.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: made above; crews are leaked.
        Ok(_) => unsafe { &*fresh },
        Err(other) => {
            // SAFETY: made above, and nobody has seen it.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: crews are leaked.
            unsafe { &*other }
        }
    }
}

/// Forgets the crew, in a child that was forked off: its threads are the parent's.
pub(super) fn forget() {
    CREW.store(std::ptr::null_mut(), Ordering::Release);
}

/// How many threads the environment asks for, if it says.
///
/// # Errors
/// A sentence that says what `RUSTGRAD_NUM_THREADS` is, if that is no number from 1 to 512. Then it counts for nothing.
pub fn environment() -> std::result::Result<Option<usize>, String> {
    let Some(text) = std::env::var_os("RUSTGRAD_NUM_THREADS").filter(|text| !text.is_empty()) else { return Ok(None) };
    let number = text.to_str().and_then(|n| n.trim().parse().ok()).filter(|n| (1..=MOST).contains(n));
    number.map(Some).ok_or_else(|| {
        let given = text.to_string_lossy();
        format!(
            "RUSTGRAD_NUM_THREADS is '{given}', which is no number from 1 to {MOST}: there are as many threads as cores"
        )
    })
}

fn default_threads() -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(MOST);
    environment().unwrap_or(None).unwrap_or_else(cores)
}

/// How many threads may work at once, the calling one included.
pub fn num_threads() -> usize {
    match WANTED.load(Ordering::Relaxed) {
        0 => {
            let n = default_threads();
            WANTED.store(n, Ordering::Relaxed);
            n
        }
        n => n,
    }
}

/// Sets how many threads may work at once, the calling one included. Workers that are too many end after what they do now.
///
/// # Errors
/// `RuntimeError` unless `1 <= threads <= 512`.
pub fn set_num_threads(threads: usize) -> Result<()> {
    if !(1..=MOST).contains(&threads) {
        bail!(runtime "set_num_threads", "expected from 1 to {MOST} threads, got {threads}");
    }
    WANTED.store(threads, Ordering::Relaxed);
    crew().resize(threads);
    Ok(())
}

/// How many workers have nothing to do and no invitation.
#[inline]
pub fn idle() -> usize {
    existing().map_or_else(|| num_threads() - 1, |crew| crew.spare(num_threads()))
}

/// Invites up to `helpers` workers to share work. They are woken, or made.
pub fn invite(work: &Arc<dyn Work>, helpers: usize) {
    crew().invite(work, helpers, num_threads());
}

/// Wakes a worker that sleeps: there will be work in a moment.
pub fn rouse() {
    if let Some(crew) = existing() {
        crew.rouse();
    }
}

/// Ends all workers and waits for them. Later work starts new ones.
pub fn shutdown() {
    let known = CREW.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: crews are leaked.
    if let Some(crew) = unsafe { known.as_ref() } {
        crew.close();
    }
}
