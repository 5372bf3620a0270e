//! Slices of one kernel, claimed one by one by the thread that offers them and by idle workers.

use super::pool::{Work, idle, invite, withdraw};
use super::stop::{Stoppable, cancel, heeding, is_cancelled, is_possible, is_stop_wanted, stop_if_wanted};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Work of fewer nanoseconds than this is not worth a worker's attention.
const WORTH: f64 = 20_000.0;

/// About the longest slice of a kernel that can be stopped, in nanoseconds. That is an estimate, which costly functions pass
/// twenty times; none shall take longer than some 10 milliseconds.
const PATIENCE: f64 = 500_000.0;

/// How long the offering thread looks for the end of others' slices before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

struct Slices {
    next: AtomicUsize,
    count: usize,
    /// Slices that are not done.
    left: AtomicUsize,
    /// What runs a slice. Alive until `left` is 0.
    run: *const (dyn Fn(usize) + Sync),
    offering: Thread,
    panicked: AtomicBool,
    /// Whether the kernel may be stopped, and whether it was: slices that have not begun are then left out.
    stoppable: bool,
    stopped: AtomicBool,
}

// SAFETY: `run` is `Sync`, and called only for a slice that is not done, while the offering thread waits.
unsafe impl Send for Slices {}
// SAFETY: as above.
unsafe impl Sync for Slices {}

impl Slices {
    /// Claims and runs slices until there are none left to claim.
    fn claim(&self) {
        loop {
            let k = self.next.fetch_add(1, Ordering::Relaxed);
            if k >= self.count {
                return;
            }
            if !self.is_stopped() {
                // SAFETY: slice `k` is not done, so `run` is alive.
                let run = || unsafe { (*self.run)(k) };
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(()) => {}
                    Err(caught) if is_cancelled(&*caught) => self.stopped.store(true, Ordering::Relaxed),
                    Err(_) => self.panicked.store(true, Ordering::Relaxed),
                }
            }
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 && std::thread::current().id() != self.offering.id() {
                self.offering.unpark();
            }
        }
    }

    /// Whether the kernel was stopped, or is to be.
    fn is_stopped(&self) -> bool {
        if self.stoppable && is_stop_wanted() {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.stopped.load(Ordering::Relaxed)
    }

    /// Waits for the slices that others hold.
    fn wait(&self) {
        let since = Instant::now();
        while self.left.load(Ordering::Acquire) > 0 {
            if since.elapsed() < SPIN {
                (0..16).for_each(|_| std::hint::spin_loop());
            } else {
                std::thread::park_timeout(Duration::from_millis(1));
                self.is_stopped();
            }
        }
    }
}

impl Work for Slices {
    fn help(&self) {
        if !self.stoppable {
            return self.claim();
        }
        let _fresh = Stoppable::fresh();
        heeding(&self.stopped, || self.claim());
    }
}

/// Runs `run(0)`, ..., `run(count - 1)`, in any order and on several threads if workers are idle, and returns when all are
/// done. Called from inside a slice it uses the workers that are left, most often none.
///
/// # Panics
/// If one of them does. If the kernel may be stopped and is, it unwinds before all have run.
pub fn each(count: usize, run: &(dyn Fn(usize) + Sync)) {
    let helpers = if count > 1 { idle().min(count - 1) } else { 0 };
    let stoppable = is_possible();
    if helpers == 0 {
        return (0..count).for_each(|k| {
            if stoppable {
                stop_if_wanted();
            }
            run(k);
        });
    }
    // SAFETY: only the lifetime changes; nobody calls it after `wait`, before which this function does not end.
    let run: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(run) };
    let slices = Arc::new(Slices {
        next: AtomicUsize::new(0),
        count,
        left: AtomicUsize::new(count),
        run,
        offering: std::thread::current(),
        panicked: AtomicBool::new(false),
        stoppable,
        stopped: AtomicBool::new(false),
    });
    let work: Arc<dyn Work> = slices.clone();
    invite(&work, helpers);
    slices.claim();
    slices.wait();
    withdraw(&work);
    if slices.panicked.load(Ordering::Relaxed) {
        resume_unwind(Box::new("a slice of a kernel panicked"));
    }
    if slices.stopped.load(Ordering::Relaxed) {
        cancel();
    }
}

/// Runs `run` on ranges that together are `0..items`: one range if it takes too little time to share, `ns` nanoseconds an
/// item; otherwise several, whose borders are multiples of `grain`. A kernel that may be stopped is cut on one thread too.
pub fn ranges(items: usize, grain: usize, ns: f64, run: impl Fn(Range<usize>) + Sync) {
    let total = items as f64 * ns;
    if total < 2.0 * WORTH {
        return run(0..items);
    }
    let pieces = if is_possible() {
        // Here too, for those who call many kernels that are not long.
        stop_if_wanted();
        (total / PATIENCE) as usize
    } else {
        1
    };
    let helpers = if items <= grain { 0 } else { idle() };
    if items <= grain || (helpers == 0 && pieces < 2) {
        return run(0..items);
    }
    // A few slices a thread, so that one that is put aside delays little, each long enough to be worth its claim.
    let most = (total / WORTH) as usize;
    let shares = if helpers == 0 { 1 } else { (4 * (helpers + 1)).min(most).max(2) };
    let size = items.div_ceil(shares.max(pieces)).next_multiple_of(grain);
    each(items.div_ceil(size), &|k| run(k * size..items.min((k + 1) * size)));
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{num_threads, set_num_threads, shutdown};
    use super::*;

    /// The number of threads belongs to the process: tests that change it take turns.
    pub(in super::super) static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

    #[test]
    fn every_slice_runs_once_on_any_number_of_threads() {
        let _turn = TURN.lock();
        let before = num_threads();
        for threads in [1, 2, 4, 8, 3, 1, 2] {
            set_num_threads(threads).unwrap();
            for count in [0, 1, 2, 7, 1000] {
                let runs: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                each(count, &|k| {
                    runs[k].fetch_add(1, Ordering::Relaxed);
                });
                assert!(runs.iter().all(|r| r.load(Ordering::Relaxed) == 1));
            }
        }
        shutdown();
        set_num_threads(before).unwrap();
    }

    #[test]
    fn ranges_cover_all_without_meeting() {
        let _turn = TURN.lock();
        for (items, grain, ns) in [(0, 8, 1.0), (5, 8, 1e6), (1_000_003, 1024, 1.0), (17, 1, 1e6)] {
            let seen = parking_lot::Mutex::new(Vec::new());
            ranges(items, grain, ns, |range| seen.lock().push(range));
            let mut seen = seen.into_inner();
            seen.sort_by_key(|r| r.start);
            assert_eq!(seen.first().map(|r| r.start), Some(0));
            assert_eq!(seen.last().map(|r| r.end), Some(items));
            assert!(seen.windows(2).all(|w| w[0].end == w[1].start && w[1].start % grain == 0));
        }
    }

    #[test]
    fn slices_may_have_slices_and_threads_may_offer_at_once() {
        let _turn = TURN.lock();
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        each(8, &|_| {
                            each(8, &|_| {
                                total.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * 50 * 64);
    }

    #[test]
    fn a_panic_in_a_slice_is_the_callers_after_all_have_ended() {
        let _turn = TURN.lock();
        let ran = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            each(64, &|k| {
                ran.fetch_add(1, Ordering::Relaxed);
                assert_ne!(k, 9, "this one fails");
            });
        }));
        assert!(caught.is_err());
        // On one thread those behind the one that failed do not run.
        assert!(ran.load(Ordering::Relaxed) >= 10);
        each(4, &|_| {});
    }
}
