//! The board between the caller of a backward and the threads that run ahead of it: what is offered, who computes what, what
//! is done. Nodes are numbers here and gradients are whatever comes in; a [`Course`] computes. Every node that the caller asks
//! for was computed once, for it and from what came in, or comes back to it.

use crate::sync::{AtomicBool, Condvar, Mutex, Ordering};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// How often a caller that waits looks whether the user wants to stop.
const PATIENCE: Duration = Duration::from_millis(10);

/// What is computed for the nodes of a board.
pub(super) trait Course {
    /// What comes in for a node.
    type Given;
    /// What is made of it.
    type Made;

    /// Computes a node. It must not panic: somebody waits for the result.
    fn compute(&self, number: u32, given: &Self::Given) -> Step<Self::Given, Self::Made>;
}

/// What came of computing a node.
pub(super) struct Step<G, M> {
    pub made: M,
    /// How many bytes lie aside until the caller comes for them.
    pub bytes: usize,
    /// The node that the run goes on with, and what comes in for it, which is not in `made`.
    pub onward: Option<(u32, G)>,
}

/// How a node stands when the caller comes to it.
pub(super) enum Taken<G, M> {
    /// It was never offered, or was computed in vain.
    Not,
    /// What came in for it: nobody took it, or it has to be computed again.
    Back(G),
    /// Somebody computed it.
    Done(M),
}

/// A result that lies aside.
struct Done<G, M> {
    made: M,
    bytes: usize,
    /// What it was computed from.
    given: G,
    /// The node with which the run went on.
    onward: Option<u32>,
}

struct State<G, M> {
    /// Runs that nobody has taken, by the place of their first node in the order, with what came in for it.
    offers: BTreeMap<u64, (u32, G)>,
    /// Nodes that somebody computes.
    taken: HashSet<u32>,
    done: HashMap<u32, Done<G, M>>,
    /// Nodes that somebody computes from what turned out not to come in for them.
    revoked: HashSet<u32>,
    /// Bytes of `done`.
    aside: usize,
    /// Threads that are at work here.
    working: usize,
    stop: bool,
}

/// What is offered, taken and done.
pub(super) struct Board<C: Course> {
    /// Nodes that were offered or taken, to be seen without the lock.
    touched: Vec<AtomicBool>,
    state: Mutex<State<C::Given, C::Made>>,
    news: Condvar,
    /// Bytes of results that may lie aside. Beyond, nothing new is taken.
    window: usize,
}

impl<C: Course> Board<C> {
    pub(super) fn new(nodes: usize, window: usize) -> Board<C> {
        let state = State {
            offers: BTreeMap::new(),
            taken: HashSet::new(),
            done: HashMap::new(),
            revoked: HashSet::new(),
            aside: 0,
            working: 0,
            stop: false,
        };
        Board {
            touched: (0..nodes).map(|_| AtomicBool::new(false)).collect(),
            state: Mutex::new(state),
            news: Condvar::new(),
            window,
        }
    }

    /// Whether a node was offered, or somebody came to it in the course of a run.
    #[inline]
    pub(super) fn is_touched(&self, number: u32) -> bool {
        self.touched[number as usize].load(Ordering::Acquire)
    }

    /// Offers a run that begins with a node; `place` says where that stands in the order, the last first.
    pub(super) fn offer(&self, number: u32, place: u64, given: C::Given) {
        self.touched[number as usize].store(true, Ordering::Relaxed);
        self.state.lock().offers.insert(place, (number, given));
    }

    /// What was computed for a node that was touched, waiting for it if somebody is at it; or what was offered, if nobody is.
    /// `is_wrong` says that it may not be computed from what came in: something is to see and perhaps replace that before.
    ///
    /// # Errors
    /// That of `ask`, which is asked while waiting.
    pub(super) fn take<E>(
        &self,
        course: &C,
        (number, place): (u32, u64),
        is_wrong: impl Fn() -> bool,
        ask: impl Fn() -> Result<(), E>,
    ) -> Result<Taken<C::Given, C::Made>, E> {
        let mut state = self.state.lock();
        if let Some((_, given)) = state.offers.remove(&place) {
            return Ok(Taken::Back(given));
        }
        if !state.taken.remove(&number) {
            return Ok(Taken::Not);
        }
        loop {
            if let Some(done) = state.done.remove(&number) {
                state.aside -= done.bytes;
                let (wrong, revoked) = (is_wrong(), state.revoked.remove(&number));
                if wrong || revoked {
                    state.revoked.extend(done.onward);
                }
                // What is not handed on is freed without the lock.
                drop(state);
                return Ok(match (revoked, wrong) {
                    (true, _) => Taken::Not,
                    (false, true) => Taken::Back(done.given),
                    (false, false) => Taken::Done(done.made),
                });
            }
            // Rather than wait, the caller does some of what is left itself.
            if let Some((head, given)) = self.next_offer(&mut state) {
                drop(state);
                self.run(course, head, given);
                state = self.state.lock();
                continue;
            }
            if self.news.wait_for(&mut state, PATIENCE).timed_out() {
                drop(state);
                ask()?;
                state = self.state.lock();
            }
        }
    }

    /// Computes offers until there are none left.
    pub(super) fn help(&self, course: &C) {
        loop {
            let mut state = self.state.lock();
            let Some((head, given)) = self.next_offer(&mut state) else { return };
            state.working += 1;
            drop(state);
            self.run(course, head, given);
            let mut state = self.state.lock();
            state.working -= 1;
            drop(state);
            self.news.notify_all();
        }
    }

    /// Takes the offer that is last in the order: the caller comes from the front.
    fn next_offer(&self, state: &mut State<C::Given, C::Made>) -> Option<(u32, C::Given)> {
        if state.stop || state.aside > self.window {
            return None;
        }
        let (_, (head, given)) = state.offers.pop_first()?;
        state.taken.insert(head);
        Some((head, given))
    }

    /// Computes a run and puts its results aside one by one.
    fn run(&self, course: &C, head: u32, given: C::Given) {
        let (mut number, mut given) = (head, given);
        loop {
            let Step { made, bytes, onward } = course.compute(number, &given);
            let mut state = self.state.lock();
            let onward = onward.filter(|_| !state.stop);
            let next = onward.as_ref().map(|(next, _)| *next);
            state.aside += bytes;
            state.done.insert(number, Done { made, bytes, given, onward: next });
            if let Some(next) = next {
                state.taken.insert(next);
                // Before anybody can learn of the result that leads to it.
                self.touched[next as usize].store(true, Ordering::Release);
            }
            drop(state);
            self.news.notify_all();
            match onward {
                Some(onward) => (number, given) = onward,
                None => return,
            }
        }
    }

    /// Ends it: what is not begun is not begun any more, and nobody is at work when this returns.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.stop = true;
        let offers = std::mem::take(&mut state.offers);
        while state.working > 0 {
            self.news.wait(&mut state);
        }
        let done = std::mem::take(&mut state.done);
        drop(state);
        drop((offers, done));
    }
}
