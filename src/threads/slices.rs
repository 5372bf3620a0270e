//! Slices of one kernel, claimed one by one by the thread that offers them and by idle workers.

use super::crew::Crew;
use super::pool::{Work, crew, idle, num_threads};
use super::stop::{Stoppable, cancel, heeding, is_cancelled, is_possible, is_stop_wanted, stop_if_wanted};
use super::trace;
use crate::sync::{AtomicBool, AtomicUsize, Ordering, Sleeper, spin};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

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
    offering: Sleeper,
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
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 && !self.offering.is_here() {
                self.offering.wake();
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
        let done = || self.left.load(Ordering::Acquire) == 0;
        if !spin(SPIN, 16, done) {
            while !done() {
                self.offering.sleep(Duration::from_millis(1));
                self.is_stopped();
            }
        }
    }
}

impl Work for Slices {
    fn help(&self) {
        let _span = trace::span("slices", || format!("of {}", self.count));
        if !self.stoppable {
            return self.claim();
        }
        heeding(&self.stopped, || {
            let _fresh = Stoppable::fresh();
            self.claim();
        });
    }
}

/// Runs `run(0)`, ..., `run(count - 1)`, in any order and on several threads if workers are idle, and returns when all are
/// done. Called from inside a slice it uses the workers that are left, most often none.
///
/// # Panics
/// If one of them does. If the kernel may be stopped and is, it unwinds before all have run.
pub fn each(count: usize, run: &(dyn Fn(usize) + Sync)) {
    let helpers = if count > 1 { idle().min(count - 1) } else { 0 };
    if helpers > 0 {
        return share(crew(), helpers, num_threads(), count, run);
    }
    let stoppable = is_possible();
    (0..count).for_each(|k| {
        if stoppable {
            stop_if_wanted();
        }
        run(k);
    });
}

/// [`each`], with up to `helpers` workers of a crew; see [`Crew::invite`] for `threads`.
fn share(crew: &'static Crew, helpers: usize, threads: usize, count: usize, run: &(dyn Fn(usize) + Sync)) {
    // SAFETY: only the lifetime changes; nobody calls it after `wait`, before which this function does not end.
    let run: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(run) };
    let slices = Arc::new(Slices {
        next: AtomicUsize::new(0),
        count,
        left: AtomicUsize::new(count),
        run,
        offering: Sleeper::here(),
        panicked: AtomicBool::new(false),
        stoppable: is_possible(),
        stopped: AtomicBool::new(false),
    });
    let work: Arc<dyn Work> = slices.clone();
    crew.invite(&work, helpers, threads);
    slices.claim();
    slices.wait();
    crew.withdraw(&work);
    if slices.panicked.load(Ordering::Relaxed) {
        resume_unwind(Box::new("a slice of a kernel panicked"));
    }
    if slices.stopped.load(Ordering::Relaxed) {
        cancel();
    }
}

/// Runs `run` on ranges that together are `0..items`: one range if it takes too little time to share, `ns` nanoseconds an
/// item; otherwise several, whose borders are multiples of `grain`. A kernel that may be stopped is cut on one thread too.
#[inline]
pub fn ranges(items: usize, grain: usize, ns: f64, run: impl Fn(Range<usize>) + Sync) {
    let total = items as f64 * ns;
    if total < 2.0 * WORTH { run(0..items) } else { cut(items, grain, total, &run) }
}

/// Whether [`ranges`] cuts work of that many nanoseconds, as far as the time it takes decides. For kernels to which being cut
/// costs something by itself.
#[inline]
pub fn is_cut(total: f64) -> bool {
    total >= 2.0 * WORTH && (idle() > 0 || (total >= 2.0 * PATIENCE && is_possible()))
}

/// Ranges that together are `0..items`, in order, `ns` nanoseconds an item: for what has to be done on this thread, one after the
/// other. If the kernel may be stopped, it is asked before each.
pub fn turns(items: usize, ns: f64) -> impl DoubleEndedIterator<Item = Range<usize>> {
    let size = if is_possible() { (PATIENCE / ns) as usize } else { items }.max(1);
    let range = move |turn: usize| {
        stop_if_wanted();
        turn * size..items.min((turn + 1) * size)
    };
    (0..items.div_ceil(size)).map(range)
}

/// [`ranges`] for what takes some time.
fn cut(items: usize, grain: usize, total: f64, run: &(dyn Fn(Range<usize>) + Sync)) {
    let mut pieces = 1;
    if is_possible() {
        // Here too, for those who call many kernels that are not long.
        stop_if_wanted();
        pieces = (total / PATIENCE) as usize;
    }
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
    pub(in super::super) static TURN: crate::sync::lock::Mutex<()> = crate::sync::lock::Mutex::new(());

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
            let seen = crate::sync::lock::Mutex::new(Vec::new());
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
        let inner = |_| {
            total.fetch_add(1, Ordering::Relaxed);
        };
        let outer = |_| each(8, &inner);
        std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| (0..50).for_each(|_| each(8, &outer))));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
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

#[cfg(test)]
mod models {
    use super::*;
    use crate::sync::model::{Claimed, check, check_crowd, spawn};

    fn crew() -> &'static Crew {
        Box::leak(Box::default())
    }

    /// Shares `count` slices among `helpers` workers and the caller, and reaches for what they touched as soon as that returns.
    fn share_and_look(crew: &'static Crew, helpers: usize, threads: usize, count: usize) {
        let touched: Vec<Claimed> = (0..count).map(|_| Claimed::default()).collect();
        share(crew, helpers, threads, count, &|k| touched[k].add(1));
        for slice in &touched {
            slice.add(1);
            assert_eq!(slice.get(), 2);
        }
    }

    #[test]
    fn every_slice_has_run_once_when_the_offer_returns() {
        check(|| {
            let crew = crew();
            share_and_look(crew, 1, 2, 2);
            crew.close();
        });
    }

    #[test]
    fn with_two_workers_too() {
        check_crowd(|| {
            let crew = crew();
            share_and_look(crew, 2, 3, 3);
            crew.close();
        });
    }

    #[test]
    fn one_offer_after_the_other() {
        check(|| {
            let crew = crew();
            share_and_look(crew, 1, 2, 2);
            share_and_look(crew, 1, 2, 2);
            crew.close();
        });
    }

    #[test]
    fn two_offers_at_once() {
        check(|| {
            let crew = crew();
            let other = spawn(move || share_and_look(crew, 1, 2, 2));
            share_and_look(crew, 1, 2, 2);
            other.join().unwrap();
            crew.close();
        });
    }

    #[test]
    fn an_offer_while_the_crew_ends() {
        check(|| {
            let crew = crew();
            let other = spawn(move || share_and_look(crew, 1, 2, 2));
            crew.close();
            other.join().unwrap();
        });
    }

    #[test]
    fn slices_that_offer_slices() {
        check(|| {
            let crew = crew();
            share(crew, 1, 2, 2, &|_| share_and_look(crew, 1, 2, 2));
            crew.close();
        });
    }
}
