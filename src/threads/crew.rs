//! A crew: workers that wait for invitations, spinning for a moment and then asleep. Which crew a process has is the pool's matter.

use super::pool::Work;
use crate::callsite::CallSite;
use crate::sync::{AtomicUsize, Builder, Condvar, JoinHandle, Mutex, Ordering, current, spin};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a worker without work looks for some before it goes to sleep. Waking a sleeper takes as long as some 20
/// microseconds of work are worth.
const SPIN: Duration = Duration::from_micros(20);

/// How long one that was woken for work to come looks for it.
const ROUSED: Duration = Duration::from_micros(200);

/// Workers and what they are invited to.
#[derive(Default)]
pub(super) struct Crew {
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
    /// Those that have not ended.
    workers: Vec<JoinHandle<()>>,
    /// Workers that sleep.
    asleep: usize,
    /// How often they were woken because there would be work.
    alarms: u64,
    /// Nobody is taken on any more.
    closed: bool,
}

impl Queue {
    /// How many workers there may be.
    fn most(&self) -> usize {
        if self.closed { 0 } else { self.threads.saturating_sub(1) }
    }
}

impl Crew {
    /// Sets how many threads may work, the offering one included. Workers that are too many end after what they do now.
    pub(super) fn resize(&self, threads: usize) {
        self.queue.lock().threads = threads;
        self.awake.notify_all();
    }

    /// How many workers have nothing to do and no invitation; if none has, how many there may still be made.
    #[inline]
    pub(super) fn spare(&self, threads: usize) -> usize {
        let spare = self.idle.load(Ordering::Relaxed).saturating_sub(self.waiting.load(Ordering::Relaxed));
        // Those that are too many may not have ended yet.
        if spare == 0 && threads > 1 { self.unborn(threads) } else { spare.min(threads - 1) }
    }

    #[cold]
    fn unborn(&self, threads: usize) -> usize {
        (threads - 1).saturating_sub(self.queue.lock().workers.len())
    }

    /// Invites up to `helpers` workers to share work. They are woken, or made. If nobody has said how many threads may
    /// work, `threads` may.
    pub(super) fn invite(&'static self, work: &Arc<dyn Work>, helpers: usize, threads: usize) {
        let mut queue = self.queue.lock();
        if queue.threads == 0 {
            queue.threads = threads;
        }
        let helpers = helpers.min(queue.most());
        while queue.workers.len() < queue.most()
            && self.idle.load(Ordering::Relaxed) < helpers + queue.invitations.len()
        {
            let worker = Builder::new().name(format!("rustgrad-{}", queue.workers.len()));
            let Ok(handle) = worker.spawn(move || self.work()) else { break };
            self.idle.fetch_add(1, Ordering::Relaxed);
            queue.workers.push(handle);
        }
        for _ in 0..helpers.min(queue.workers.len()) {
            queue.invitations.push_back(work.clone());
        }
        self.waiting.store(queue.invitations.len(), Ordering::Release);
        for _ in 0..helpers.min(queue.asleep) {
            self.awake.notify_one();
        }
    }

    /// Wakes a worker that sleeps: there will be work in a moment.
    pub(super) fn rouse(&self) {
        let mut queue = self.queue.lock();
        if queue.asleep > 0 {
            queue.alarms += 1;
            self.awake.notify_one();
        }
    }

    /// Takes back the invitations to a piece of work that nobody has accepted.
    pub(super) fn withdraw(&self, work: &Arc<dyn Work>) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            let mut queue = self.queue.lock();
            queue.invitations.retain(|other| !Arc::ptr_eq(other, work));
            self.waiting.store(queue.invitations.len(), Ordering::Release);
        }
    }

    /// The life of a worker.
    fn work(&self) {
        // Whatever a worker does is done for another thread's line.
        let _place = CallSite::hold(CallSite::default());
        while let Some(work) = self.next() {
            work.help();
            drop(work);
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An invitation; nothing if the worker is one too many. Either way it is not idle any more.
    fn next(&self) -> Option<Arc<dyn Work>> {
        let mut patience = SPIN;
        loop {
            spin(patience, 32, || self.waiting.load(Ordering::Acquire) > 0);
            let mut queue = self.queue.lock();
            loop {
                if queue.closed || queue.workers.len() > queue.most() {
                    let me = current().id();
                    queue.workers.retain(|worker| worker.thread().id() != me);
                    self.idle.fetch_sub(1, Ordering::Relaxed);
                    return None;
                }
                if let Some(work) = queue.invitations.pop_front() {
                    self.waiting.store(queue.invitations.len(), Ordering::Release);
                    self.idle.fetch_sub(1, Ordering::Relaxed);
                    return Some(work);
                }
                let alarms = queue.alarms;
                queue.asleep += 1;
                queue = self.awake.wait(queue);
                queue.asleep -= 1;
                if queue.alarms != alarms && queue.invitations.is_empty() {
                    break;
                }
            }
            patience = ROUSED;
        }
    }

    /// Ends all workers and waits for them, for ever.
    pub(super) fn close(&self) {
        let (workers, invitations) = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            self.waiting.store(0, Ordering::Release);
            self.awake.notify_all();
            (std::mem::take(&mut queue.workers), std::mem::take(&mut queue.invitations))
        };
        drop(invitations);
        for worker in workers {
            // A worker's panic was reported to whoever offered the work.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use crate::sync::model::{Claimed, check, check_crowd, spawn};
    use crate::sync::{MutexGuard, yield_now};

    /// Work at which as many meet as are to: each who helps stays until the last has come.
    struct Meeting {
        size: usize,
        here: Mutex<usize>,
        news: Condvar,
        /// Whoever waited for all may touch it.
        trace: Claimed,
    }

    impl Work for Meeting {
        fn help(&self) {
            let mut here = self.here.lock();
            self.trace.add(1);
            *here += 1;
            self.news.notify_all();
            self.until_all_are_here(here);
        }
    }

    impl Meeting {
        fn until_all_are_here(&self, mut here: MutexGuard<'_, usize>) {
            while *here < self.size {
                here = self.news.wait(here);
            }
        }

        fn wait(&self) {
            self.until_all_are_here(self.here.lock());
            assert_eq!(self.trace.get(), *self.here.lock());
        }

        fn came(&self) -> usize {
            *self.here.lock()
        }
    }

    /// Invites helpers to a meeting of `size`, as one who may have `threads` threads.
    fn meeting(crew: &'static Crew, helpers: usize, size: usize, threads: usize) -> Arc<Meeting> {
        let meeting = Meeting { size, here: Mutex::new(0), news: Condvar::new(), trace: Claimed::default() };
        let meeting = Arc::new(meeting);
        crew.invite(&as_work(&meeting), helpers, threads);
        meeting
    }

    fn as_work(meeting: &Arc<Meeting>) -> Arc<dyn Work> {
        meeting.clone()
    }

    fn crew() -> &'static Crew {
        Box::leak(Box::default())
    }

    #[test]
    fn an_invitation_reaches_a_worker_that_goes_to_sleep() {
        check(|| {
            let crew = crew();
            meeting(crew, 1, 1, 2).wait();
            // The worker looks for more, goes to sleep, or sleeps.
            meeting(crew, 1, 1, 2).wait();
            crew.close();
            assert_eq!((crew.idle.load(Ordering::Relaxed), crew.waiting.load(Ordering::Relaxed)), (0, 0));
        });
    }

    #[test]
    fn as_many_workers_come_as_are_invited() {
        check_crowd(|| {
            let crew = crew();
            meeting(crew, 2, 0, 3);
            // They look for more, or sleep.
            meeting(crew, 2, 2, 3).wait();
            crew.close();
        });
    }

    #[test]
    fn for_one_that_is_busy_another_comes() {
        check(|| {
            let crew = crew();
            let long = meeting(crew, 1, 2, 3);
            meeting(crew, 1, 1, 3).wait();
            long.help();
            crew.close();
        });
    }

    #[test]
    fn two_may_invite_at_once() {
        check(|| {
            let crew = crew();
            let other = spawn(move || meeting(crew, 1, 1, 2).wait());
            meeting(crew, 1, 1, 2).wait();
            other.join().unwrap();
            crew.close();
        });
    }

    #[test]
    fn what_is_withdrawn_is_not_begun_after() {
        check(|| {
            let crew = crew();
            let mine = meeting(crew, 1, 1, 2);
            crew.withdraw(&as_work(&mine));
            assert!(crew.queue.lock().invitations.is_empty());
            let came = Arc::strong_count(&mine) > 1 || mine.came() > 0;
            crew.close();
            assert_eq!((mine.came(), Arc::strong_count(&mine)), (came as usize, 1));
        });
    }

    #[test]
    fn what_others_offer_is_not_withdrawn() {
        check(|| {
            let crew = crew();
            // The worker is kept.
            let long = meeting(crew, 1, 2, 2);
            let mine = meeting(crew, 1, 1, 2);
            let theirs = meeting(crew, 1, 1, 2);
            crew.withdraw(&as_work(&mine));
            long.help();
            theirs.wait();
            crew.close();
            assert_eq!(mine.came(), 0);
        });
    }

    #[test]
    fn workers_that_are_too_many_end() {
        check(|| {
            let crew = crew();
            meeting(crew, 1, 1, 2).wait();
            crew.resize(1);
            while !crew.queue.lock().workers.is_empty() {
                yield_now();
            }
            assert_eq!(crew.idle.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn the_number_of_workers_may_change_while_they_are_invited() {
        check(|| {
            let crew = crew();
            meeting(crew, 1, 1, 2).wait();
            let other = spawn(move || {
                crew.resize(1);
                crew.resize(2);
            });
            let early = meeting(crew, 1, 1, 2);
            other.join().unwrap();
            // Those who left are replaced.
            meeting(crew, 1, 1, 2).wait();
            assert!(crew.queue.lock().workers.len() <= 1);
            crew.close();
            assert!(early.came() <= 1);
            assert_eq!(crew.idle.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn a_crew_ends_while_it_is_invited_and_changed() {
        check(|| {
            let crew = crew();
            let early = meeting(crew, 1, 1, 2);
            let other = spawn(move || {
                crew.resize(2);
                meeting(crew, 1, 1, 2)
            });
            crew.close();
            let late = other.join().unwrap();
            let queue = crew.queue.lock();
            assert!(queue.workers.is_empty() && queue.invitations.is_empty());
            assert!(early.came() <= 1 && late.came() <= 1);
            assert_eq!(crew.idle.load(Ordering::Relaxed), 0);
        });
    }
}
