//! The pool: workers that wait for work, spinning for a moment and then asleep.

use super::fork;
use crate::callsite::CallSite;
use crate::error::{Result, bail};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Work that several threads can share.
pub trait Work: Send + Sync {
    /// Does as much of it as is left; returns at once if nothing is.
    fn help(&self);
}

/// How long a worker without work looks for some before it goes to sleep. Waking a sleeper takes as long as some 20
/// microseconds of work are worth.
const SPIN: Duration = Duration::from_micros(20);

/// How long one that was woken for work to come looks for it.
const ROUSED: Duration = Duration::from_micros(200);

/// More workers than this are never made.
const MOST: usize = 512;

#[derive(Default)]
struct Pool {
    queue: Mutex<Queue>,
    awake: Condvar,
    /// Invitations in the queue, to be seen without the lock.
    waiting: AtomicUsize,
    /// Workers that are not at work.
    idle: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    invitations: VecDeque<Arc<dyn Work>>,
    /// Threads that may work, the offering one included; 0 until somebody asks.
    threads: usize,
    workers: Vec<JoinHandle<()>>,
    /// Workers that sleep.
    asleep: usize,
    /// How often they were woken because there would be work.
    alarms: u64,
}

/// The pool of this process. A child that was forked off starts another, since threads are not inherited.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// The threads that were asked for, 0 if nobody has; it outlives a fork.
static WANTED: AtomicUsize = AtomicUsize::new(0);

fn pool() -> &'static Pool {
    let known = POOL.load(Ordering::Acquire);
    let pool = if known.is_null() { start() } else { known };
    // SAFETY: pools are leaked.
    unsafe { &*pool }
}

#[cold]
fn start() -> *mut Pool {
    fork::watch();
    let fresh = Box::into_raw(Box::<Pool>::default());
    match POOL.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(other) => {
            // SAFETY: made above, and nobody has seen it.
            drop(unsafe { Box::from_raw(fresh) });
            other
        }
    }
}

/// Forgets the pool, in a child that was forked off: its threads are the parent's.
pub(super) fn forget() {
    POOL.store(std::ptr::null_mut(), Ordering::Release);
}

fn default_threads() -> usize {
    let given = std::env::var("RUSTGRAD_NUM_THREADS").ok().and_then(|n| n.trim().parse().ok());
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    given.filter(|n| *n > 0).unwrap_or_else(cores).min(MOST)
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
    let pool = pool();
    let mut queue = pool.queue.lock();
    queue.threads = threads;
    pool.awake.notify_all();
    let left = queue.workers.len().min(threads - 1);
    // Those that end are not waited for: one of them may be in the middle of a long slice.
    queue.workers.truncate(left);
    Ok(())
}

/// How many workers have nothing to do and no invitation.
#[inline]
pub fn idle() -> usize {
    let known = POOL.load(Ordering::Acquire);
    if known.is_null() {
        return num_threads() - 1;
    }
    // SAFETY: pools are leaked.
    let pool = unsafe { &*known };
    let spare = pool.idle.load(Ordering::Relaxed).saturating_sub(pool.waiting.load(Ordering::Relaxed));
    if spare == 0 && num_threads() > 1 { unborn(pool) } else { spare }
}

/// How many workers there may still be made.
#[cold]
fn unborn(pool: &Pool) -> usize {
    (num_threads() - 1).saturating_sub(pool.queue.lock().workers.len())
}

/// Invites up to `helpers` workers to share work. They are woken, or made.
pub fn invite(work: &Arc<dyn Work>, helpers: usize) {
    let pool = pool();
    let mut queue = pool.queue.lock();
    if queue.threads == 0 {
        queue.threads = num_threads();
    }
    let helpers = helpers.min(queue.threads - 1);
    while queue.workers.len() < queue.threads - 1 && queue.workers.len() < helpers + queue.invitations.len() {
        let number = queue.workers.len();
        let worker = std::thread::Builder::new().name(format!("rustgrad-{number}"));
        // A pool that lives for ever, as `pool` says.
        let Ok(handle) = worker.spawn(move || run(pool, number)) else { break };
        pool.idle.fetch_add(1, Ordering::Relaxed);
        queue.workers.push(handle);
    }
    for _ in 0..helpers.min(queue.workers.len()) {
        queue.invitations.push_back(work.clone());
    }
    pool.waiting.store(queue.invitations.len(), Ordering::Release);
    for _ in 0..helpers.min(queue.asleep) {
        pool.awake.notify_one();
    }
}

/// Wakes the workers that sleep: there will be work in a moment.
pub fn rouse() {
    let known = POOL.load(Ordering::Acquire);
    if known.is_null() {
        return;
    }
    // SAFETY: pools are leaked.
    let pool = unsafe { &*known };
    let mut queue = pool.queue.lock();
    if queue.asleep > 0 {
        queue.alarms += 1;
        pool.awake.notify_all();
    }
}

/// Takes back the invitations to a piece of work that nobody has accepted.
pub(super) fn withdraw(work: &Arc<dyn Work>) {
    let pool = pool();
    if pool.waiting.load(Ordering::Relaxed) > 0 {
        let mut queue = pool.queue.lock();
        queue.invitations.retain(|other| !Arc::ptr_eq(other, work));
        pool.waiting.store(queue.invitations.len(), Ordering::Release);
    }
}

/// The life of worker `number`.
fn run(pool: &'static Pool, number: usize) {
    // Whatever a worker does is done for another thread's line.
    let _place = CallSite::hold(CallSite::default());
    while let Some(work) = next(pool, number) {
        pool.idle.fetch_sub(1, Ordering::Relaxed);
        work.help();
        drop(work);
        pool.idle.fetch_add(1, Ordering::Relaxed);
    }
    pool.idle.fetch_sub(1, Ordering::Relaxed);
}

/// An invitation; nothing if the worker is one too many.
fn next(pool: &Pool, number: usize) -> Option<Arc<dyn Work>> {
    let mut patience = SPIN;
    loop {
        let since = Instant::now();
        while pool.waiting.load(Ordering::Acquire) == 0 && since.elapsed() < patience {
            (0..32).for_each(|_| std::hint::spin_loop());
        }
        let mut queue = pool.queue.lock();
        loop {
            if number + 1 >= queue.threads {
                return None;
            }
            if let Some(work) = queue.invitations.pop_front() {
                pool.waiting.store(queue.invitations.len(), Ordering::Release);
                return Some(work);
            }
            let alarms = queue.alarms;
            queue.asleep += 1;
            pool.awake.wait(&mut queue);
            queue.asleep -= 1;
            if queue.alarms != alarms && queue.invitations.is_empty() {
                break;
            }
        }
        patience = ROUSED;
    }
}

/// Ends all workers and waits for them. Later work starts new ones.
pub fn shutdown() {
    let known = POOL.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if known.is_null() {
        return;
    }
    // SAFETY: pools are leaked.
    let pool = unsafe { &*known };
    let workers = {
        let mut queue = pool.queue.lock();
        queue.threads = 1;
        queue.invitations.clear();
        pool.waiting.store(0, Ordering::Release);
        pool.awake.notify_all();
        std::mem::take(&mut queue.workers)
    };
    for worker in workers {
        // A worker's panic was reported to whoever offered the work.
        let _ = worker.join();
    }
}
