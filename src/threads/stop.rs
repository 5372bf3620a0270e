//! Stopping long kernels. A kernel that is cut into slices asks between them whether its result is still wanted; if not, no
//! further slice begins, those that run are waited for, and the kernel unwinds with [`Cancelled`], as an incremental compiler
//! drops what an edit has overtaken: no kernel needs another signature for it, and guards, outputs and locks are given back by
//! their destructors.
//!
//! Two have to agree. Whoever will take the unwinding, and turns it into an error, says that there is somebody to ask
//! ([`asking_user`], [`heeding`]); whoever makes memory for a result says that nobody has seen it
//! ([`Stoppable::fresh`]). Where either is missing, kernels run to their end: an operation that nobody thought about is late,
//! but never leaves half of what it was to write.

use crate::sync::{AtomicBool, Ordering};
use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What a kernel that was stopped unwinds with.
pub struct Cancelled;

/// Unwinds with [`Cancelled`]. It is no panic: no hook runs, nothing is printed.
pub fn cancel() -> ! {
    resume_unwind(Box::new(Cancelled))
}

/// Whether what was caught unwinding is a kernel that was stopped.
pub fn is_cancelled(caught: &(dyn Any + Send)) -> bool {
    caught.is::<Cancelled>()
}

/// The question whether the user wants what runs on this thread to stop.
static QUESTION: OnceLock<fn() -> bool> = OnceLock::new();

/// Installs the question whether the user wants what runs on the calling thread to stop; the first one installed remains. It
/// is asked in the middle of kernels, which hold guards: it may run no code that uses tensors.
pub fn set_stop_hook(hook: fn() -> bool) {
    let _ = QUESTION.set(hook);
}

/// The time from one such question to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// Or so many times as long as the answer took, if that is more: it may have to wait for what other threads hold.
const SHARE: u32 = 5;

/// Kernels of fewer elements are not asked about: nobody waits for them, and small calls take no notice of all this.
const LONG: usize = 1 << 12;

/// Whom a thread asks whether to stop.
#[derive(Clone, Copy)]
enum Whom {
    Nobody,
    User,
    /// Whoever it works for, who sets the flag. It is alive: [`heeding`] borrows it meanwhile.
    Flag(*const AtomicBool),
}

/// What a thread's kernels write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Perhaps what others see.
    Unknown,
    /// Memory that nobody has seen.
    Fresh,
    /// A step of a change that others see.
    Step,
}

/// How a thread stands.
struct Standing {
    whom: Cell<Whom>,
    target: Cell<Target>,
}

thread_local! {
    static MINE: Standing = const { Standing { whom: Cell::new(Whom::Nobody), target: Cell::new(Target::Unknown) } };
    /// When the user may be asked again.
    static AGAIN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Until it is dropped, it is known what kernels on this thread write, and so whether they may be stopped.
#[must_use = "it ends when it is dropped"]
pub struct Stoppable {
    before: Target,
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Stoppable {
    /// What kernels write is memory that nobody has seen yet, and that nobody sees if they unwind.
    #[inline]
    pub fn fresh() -> Stoppable {
        MINE.with(|mine| {
            let before = mine.target.get();
            mine.target.set(if before == Target::Unknown { Target::Fresh } else { before });
            Stoppable { before, _here: PhantomData }
        })
    }

    /// What kernels write, in fresh memory too, are steps of one change that others see: none may be left out.
    #[inline]
    pub fn never() -> Stoppable {
        MINE.with(|mine| Stoppable { before: mine.target.replace(Target::Step), _here: PhantomData })
    }

    /// [`fresh`](Self::fresh), for so many elements that it makes a difference.
    #[inline]
    pub fn fresh_if_long(elements: usize) -> Option<Stoppable> {
        (elements >= LONG).then(Stoppable::fresh)
    }

    /// [`never`](Self::never), for so many elements that it makes a difference.
    #[inline]
    pub fn never_if_long(elements: usize) -> Option<Stoppable> {
        (elements >= LONG).then(Stoppable::never)
    }
}

impl Drop for Stoppable {
    #[inline]
    fn drop(&mut self) {
        MINE.with(|mine| mine.target.set(self.before));
    }
}

/// Runs `f`, whose kernels of fresh results unwind with [`Cancelled`] once the user wants that. The caller catches it.
#[inline]
pub fn asking_user<R>(f: impl FnOnce() -> R) -> R {
    asking(Whom::User, f)
}

/// Runs `f`, whose kernels of fresh results unwind with [`Cancelled`] once the flag is set. The caller catches it.
pub fn heeding<R>(flag: &AtomicBool, f: impl FnOnce() -> R) -> R {
    asking(Whom::Flag(flag), f)
}

/// Runs `f`, whose kernels run to their end: code from which unwinding would not come back to whoever catches it.
#[inline]
pub fn asking_nobody<R>(f: impl FnOnce() -> R) -> R {
    asking(Whom::Nobody, f)
}

/// Runs `f`, of which it is not known what it writes, whatever the caller does.
#[inline]
fn asking<R>(whom: Whom, f: impl FnOnce() -> R) -> R {
    struct Before(Whom, Target);
    impl Drop for Before {
        fn drop(&mut self) {
            MINE.with(|mine| {
                mine.whom.set(self.0);
                mine.target.set(self.1);
            });
        }
    }
    // `f` is not called while the thread's own variable is looked at: its result would be moved about, and calls that take no
    // time come by here too.
    let _before = MINE.with(|mine| Before(mine.whom.replace(whom), mine.target.replace(Target::Unknown)));
    f()
}

/// Whom to ask about kernels on this thread, if they can be stopped now.
fn whom() -> Option<Whom> {
    MINE.with(|mine| Some(mine.whom.get()).filter(|_| mine.target.get() == Target::Fresh))
}

/// Whether kernels on this thread can be stopped now.
pub(super) fn is_possible() -> bool {
    matches!(whom(), Some(Whom::User | Whom::Flag(_)))
}

/// Whether what this thread computes is to stop. Kernels ask as often as they like, the user is asked now and then.
pub fn is_stop_wanted() -> bool {
    match whom() {
        None | Some(Whom::Nobody) => false,
        Some(Whom::User) => ask(),
        // SAFETY: `heeding` borrows the flag for as long as its address is kept.
        Some(Whom::Flag(flag)) => unsafe { (*flag).load(Ordering::Relaxed) },
    }
}

/// Unwinds if what this thread computes is to stop.
pub fn stop_if_wanted() {
    if is_stop_wanted() {
        cancel();
    }
}

/// Asks the user, unless that was done a moment ago.
fn ask() -> bool {
    let Some(question) = QUESTION.get() else { return false };
    let now = Instant::now();
    if AGAIN.get().is_some_and(|again| now < again) {
        return false;
    }
    let answer = question();
    let after = Instant::now();
    AGAIN.set(Some(after + PAUSE.max(SHARE * (after - now))));
    answer
}

#[cfg(test)]
mod tests {
    use super::super::{each, num_threads, ranges, set_num_threads, turns};
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;

    thread_local!(static WISH: Cell<bool> = const { Cell::new(false) });

    /// Says what the user answers on this thread.
    fn wish(stop: bool) {
        set_stop_hook(|| WISH.get());
        WISH.set(stop);
        AGAIN.set(None);
    }

    /// Runs a hundred slices, the tenth of which calls `stop`; returns whether they were stopped, and how many ran.
    fn slices(stop: impl Fn() + Sync) -> (bool, usize) {
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let caught = catch_unwind(AssertUnwindSafe(|| {
            each(100, &|_| {
                if begun.fetch_add(1, Ordering::Relaxed) == 9 {
                    stop();
                }
                std::thread::sleep(Duration::from_millis(2));
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }));
        assert_eq!(begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed), "slices that began have ended");
        (caught.is_err_and(|caught| is_cancelled(&*caught)), ended.into_inner())
    }

    fn on_several_numbers_of_threads(test: impl Fn()) {
        let _turn = super::super::slices::tests::TURN.lock();
        let before = num_threads();
        for threads in [1, 2, 4] {
            set_num_threads(threads).unwrap();
            test();
        }
        set_num_threads(before).unwrap();
    }

    #[test]
    fn what_is_fresh_stops_for_the_user() {
        on_several_numbers_of_threads(|| {
            let asked = || {
                let _fresh = Stoppable::fresh();
                slices(|| ())
            };
            wish(false);
            assert_eq!(asking_user(asked), (false, 100));
            wish(true);
            let (stopped, ran) = asking_user(asked);
            assert!(stopped && ran < 50, "{ran}");
        });
    }

    #[test]
    fn what_is_fresh_stops_for_a_flag() {
        on_several_numbers_of_threads(|| {
            let flag = AtomicBool::new(false);
            let heeded = heeding(&flag, || {
                let _fresh = Stoppable::fresh();
                slices(|| flag.store(true, Ordering::Relaxed))
            });
            assert!(heeded.0 && (10..50).contains(&heeded.1), "{heeded:?}");
        });
    }

    #[test]
    fn slices_of_slices_stop_with_them() {
        on_several_numbers_of_threads(|| {
            let (flag, ran) = (AtomicBool::new(false), AtomicUsize::new(0));
            let caught = catch_unwind(AssertUnwindSafe(|| {
                heeding(&flag, || {
                    let _fresh = Stoppable::fresh();
                    each(8, &|_| {
                        each(100, &|_| {
                            if ran.fetch_add(1, Ordering::Relaxed) == 9 {
                                flag.store(true, Ordering::Relaxed);
                            }
                            std::thread::sleep(Duration::from_millis(1));
                        });
                    });
                });
            }));
            assert!(caught.is_err_and(|caught| is_cancelled(&*caught)));
            assert!(ran.load(Ordering::Relaxed) < 100);
        });
    }

    #[test]
    fn what_others_may_see_runs_to_its_end() {
        on_several_numbers_of_threads(|| {
            let flag = AtomicBool::new(true);
            assert_eq!(heeding(&flag, || slices(|| ())), (false, 100), "nobody has said that it is fresh");
            let step = || {
                let (_change, _fresh) = (Stoppable::never(), Stoppable::fresh());
                slices(|| ())
            };
            assert_eq!(heeding(&flag, step), (false, 100), "a step of a change");
            let _fresh = Stoppable::fresh();
            assert_eq!(slices(|| ()), (false, 100), "nobody would catch it");
            assert_eq!(heeding(&flag, || slices(|| ())), (false, 100), "what is called anew may write anything");
            let fresh = || {
                let _fresh = Stoppable::fresh();
                slices(|| ())
            };
            assert_eq!(heeding(&flag, || asking_nobody(fresh)), (false, 100), "nobody would catch it here");
            assert!(heeding(&flag, fresh).0);
        });
    }

    #[test]
    fn a_panic_is_told_from_a_stop() {
        on_several_numbers_of_threads(|| {
            let flag = AtomicBool::new(false);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                heeding(&flag, || {
                    let _fresh = Stoppable::fresh();
                    each(64, &|k| assert_ne!(k, 9, "this one fails"));
                });
            }));
            assert!(caught.is_err_and(|caught| !is_cancelled(&*caught)));
        });
    }

    #[test]
    fn only_what_can_be_stopped_is_cut_on_one_thread() {
        let _turn = super::super::slices::tests::TURN.lock();
        let before = num_threads();
        set_num_threads(1).unwrap();
        let pieces = |items: usize| {
            let pieces = AtomicUsize::new(0);
            ranges(items, 8, 1e4, |range| {
                assert!(range.start % 8 == 0);
                pieces.fetch_add(1, Ordering::Relaxed);
            });
            pieces.into_inner()
        };
        assert_eq!(pieces(10_000), 1);
        let flag = AtomicBool::new(false);
        heeding(&flag, || {
            assert_eq!(pieces(10_000), 1);
            let _fresh = Stoppable::fresh();
            assert!((150..=200).contains(&pieces(10_000)), "{}", pieces(10_000));
            assert_eq!(pieces(40), 1);
        });
        assert_eq!(pieces(10_000), 1);
        set_num_threads(before).unwrap();
    }

    #[test]
    fn what_is_done_in_turn_is_asked_between_pieces_and_ends_at_the_first_error() {
        let turn = |until: usize| {
            let mut end = 0;
            let done = turns(10_000, 1e4).try_for_each(|range| {
                assert_eq!(range.start, end);
                end = range.end;
                if range.contains(&until) { Err(until) } else { Ok(()) }
            });
            (done, end)
        };
        assert_eq!(turn(10_000), (Ok(()), 10_000));
        assert_eq!(turn(77), (Err(77), 10_000));
        let flag = AtomicBool::new(false);
        heeding(&flag, || {
            let _fresh = Stoppable::fresh();
            assert_eq!(turn(10_000), (Ok(()), 10_000));
            assert_eq!(turn(77), (Err(77), 100));
        });
        let seen = AtomicUsize::new(0);
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            heeding(&flag, || {
                let _fresh = Stoppable::fresh();
                turns(10_000, 1e4).try_for_each(|range| {
                    seen.store(range.end, Ordering::Relaxed);
                    flag.store(true, Ordering::Relaxed);
                    Ok::<(), ()>(())
                })
            })
        }));
        assert!(stopped.is_err_and(|caught| is_cancelled(&*caught)));
        assert_eq!(seen.into_inner(), 50);
    }

    #[test]
    fn a_stop_that_is_wanted_before_a_kernel_begins_comes_before_it_begins() {
        let flag = AtomicBool::new(true);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            heeding(&flag, || {
                let _fresh = Stoppable::fresh();
                ranges(1, 1, 1e6, |_| panic!("it ran"));
            });
        }));
        assert!(caught.is_err_and(|caught| is_cancelled(&*caught)));
    }

    #[test]
    fn the_user_is_not_asked_all_the_time() {
        wish(true);
        asking_user(|| {
            let _fresh = Stoppable::fresh();
            assert!(is_stop_wanted());
            assert!(!is_stop_wanted(), "asked a moment ago");
            std::thread::sleep(PAUSE + Duration::from_millis(1));
            assert!(is_stop_wanted());
        });
    }
}
