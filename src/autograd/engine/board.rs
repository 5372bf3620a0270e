//! The board between the caller of a backward and the threads that run ahead of it: what is offered, who computes what, what
//! is done. Nodes are numbers here and gradients are whatever comes in; a [`Course`] computes. Every node that the caller asks
//! for was computed once, for it and from what came in, or comes back to it.
//!
//! How far a node is stands in one byte, so that the caller, who comes to all of them, takes no lock for those in the middle
//! of a run. Whoever sets a byte that somebody may wait for looks afterwards whether somebody does; whoever waits says so
//! before he looks at the byte.

use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Condvar, Mutex, Ordering, fence, spin};
use crate::threads::trace;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// How often a caller that waits looks whether the user wants to stop.
const PATIENCE: Duration = Duration::from_millis(10);
/// How long he looks for it before he sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// So many runs are offered for each helper, if there are as many.
const OFFERS: usize = 8;
/// Of results of so many bytes one for each helper may lie aside.
const LARGE: usize = 1 << 20;

/// What is computed for the nodes of a board.
pub(super) trait Course {
    /// What comes in for a node.
    type Given: Clone;
    /// What is made of it.
    type Made;
    /// What a run takes along from node to node.
    type Run;

    /// Before a run that begins with a node.
    fn start(&self, number: u32) -> Self::Run;

    /// Computes a node. It must not panic: somebody waits for the result. On the thread that takes results, it may unwind where
    /// the user stops that. `is_last` says that the run has come to nothing else yet. Where it ends it leaves to the caller what
    /// it took along; it goes on with nothing once `stop` is set.
    fn compute(
        &self,
        run: &mut Self::Run,
        number: u32,
        given: Self::Given,
        is_last: bool,
        stop: &AtomicBool,
    ) -> Step<Self::Given, Self::Made>;

    /// After a run has offered others.
    fn offered(&self);

    /// How many bytes what comes in takes.
    fn given_bytes(given: &Self::Given) -> usize;

    /// How many bytes what was made takes.
    fn made_bytes(made: &Self::Made) -> usize;
}

/// What came of computing a node.
pub(super) struct Step<G, M> {
    /// What is left for the caller, if anything is.
    pub made: Option<M>,
    /// The nodes that the run goes on with; what comes in for them is not in `made`.
    pub next: SmallVec<[Offer<G>; 1]>,
    /// Runs of their own; what comes in for them is not in `made`.
    pub apart: Vec<Offer<G>>,
}

impl<G, M> Step<G, M> {
    /// All is left for the caller.
    pub(super) fn end(made: M) -> Step<G, M> {
        Step { made: Some(made), next: SmallVec::new(), apart: Vec::new() }
    }
}

/// How a node stands when the caller comes to it.
pub(super) enum Taken<G, M> {
    /// It was never offered, or was computed in vain.
    Not,
    /// What came in for it: nobody took it, or it has to be computed again.
    Back(G),
    /// Somebody computed it; nothing if all that was made went into the next node of the run.
    Done(Option<M>),
}

/// A run that nobody has taken, or what is left of one.
pub(super) struct Offer<G> {
    /// The node with which it begins.
    pub number: u32,
    /// Where that stands in the order, the last first.
    pub place: u64,
    /// About how many bytes its largest result takes.
    pub size: usize,
    /// What comes in there.
    pub given: G,
}

/// A result that lies aside.
struct Done<G, M> {
    made: Option<M>,
    /// What it was computed from, if that may be needed again.
    given: Option<G>,
    /// The nodes that were given something of it.
    onward: Vec<u32>,
    bytes: usize,
}

/// How far a node is.
mod stage {
    /// Nobody but the caller has to do with it.
    pub const NOT: u8 = 0;
    /// It is offered, or was a moment ago.
    pub const OFFERED: u8 = 1;
    /// Somebody computes it, or does so next.
    pub const TAKEN: u8 = 2;
    /// Its result lies in its place.
    pub const DONE: u8 = 3;
    /// It was computed, and all that was made went into the next node.
    pub const PASSED: u8 = 4;
}

/// How far each node is.
struct Stages(Vec<AtomicU8>);

impl Stages {
    /// Neighbours in number often belong to neighbouring branches, at which different threads are at once. So that no cache line
    /// goes to and fro between them, each of so many neighbours has its byte in another line.
    const APART: usize = if cfg!(all(test, loom)) { 1 } else { 16 };
    const LINE: usize = if cfg!(all(test, loom)) { 1 } else { 64 };
    const BLOCK: usize = Stages::APART * Stages::LINE;

    fn new(nodes: usize) -> Stages {
        Stages((0..nodes.next_multiple_of(Stages::BLOCK)).map(|_| AtomicU8::new(stage::NOT)).collect())
    }

    fn of(&self, number: u32) -> &AtomicU8 {
        let (block, at) = (number as usize / Stages::BLOCK, number as usize % Stages::BLOCK);
        &self.0[block * Stages::BLOCK + at % Stages::APART * Stages::LINE + at / Stages::APART]
    }
}

struct State<G> {
    /// By the place of their first node in the order, the last first.
    offers: BTreeMap<u64, Offer<G>>,
    /// Nodes that were computed from what turned out not to come in for them, as far as runs went.
    revoked: HashSet<u32>,
    /// Threads that are at work here.
    working: usize,
    /// How many runs were offered in the course of others.
    brought: u64,
}

/// What is offered, taken and done.
pub(super) struct Board<C: Course> {
    stages: Stages,
    /// The results that lie aside, by node.
    done: Mutex<HashMap<u32, Done<C::Given, C::Made>>>,
    state: Mutex<State<C::Given>>,
    /// How many offers there are, to be seen without the lock.
    open: AtomicUsize,
    /// Bytes of results that lie aside or are being made.
    aside: AtomicUsize,
    /// Whether what lies aside left no room for an offer, and the caller has taken nothing since.
    full: AtomicBool,
    /// Bytes of results that are not large that may lie aside. Beyond, nothing new is taken.
    window: usize,
    /// How many threads may work beside the caller.
    helpers: usize,
    may_err: bool,
    stop: AtomicBool,
    /// The node whose result the caller waits for.
    wanted: AtomicU32,
    news: Condvar,
}

const NOBODY: u32 = u32::MAX;

impl<C: Course> Board<C> {
    pub(super) fn new(nodes: usize, window: usize, helpers: usize, may_err: bool) -> Board<C> {
        Board {
            stages: Stages::new(nodes),
            done: Mutex::new(HashMap::new()),
            state: Mutex::new(State { offers: BTreeMap::new(), revoked: HashSet::new(), working: 0, brought: 0 }),
            open: AtomicUsize::new(0),
            aside: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            window,
            helpers,
            may_err,
            stop: AtomicBool::new(false),
            wanted: AtomicU32::new(NOBODY),
            news: Condvar::new(),
        }
    }

    /// How far a node is.
    #[inline]
    fn stage(&self, number: u32) -> u8 {
        self.stages.of(number).load(Ordering::Acquire)
    }

    #[inline]
    fn set_stage(&self, number: u32, stage: u8) {
        self.stages.of(number).store(stage, Ordering::Release);
    }

    /// Whether a node was offered, or somebody came to it in the course of a run.
    #[inline]
    pub(super) fn is_touched(&self, number: u32) -> bool {
        self.stage(number) != stage::NOT
    }

    /// Whether the caller may find that a node was computed from what does not come in for it.
    pub(super) fn may_err(&self) -> bool {
        self.may_err
    }

    /// Whether a node was computed in the middle of a run, and all that was made went into the next.
    #[inline]
    pub(super) fn is_passed(&self, number: u32) -> bool {
        self.stage(number) == stage::PASSED
    }

    /// Whether fewer runs are offered than may be taken while the caller is at one node.
    #[inline]
    pub(super) fn wants_more(&self) -> bool {
        self.open.load(Ordering::Relaxed) < OFFERS * self.helpers
    }

    /// Whether there is something that a thread could take.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0 && !self.full.load(Ordering::Relaxed)
    }

    /// Offers a run.
    pub(super) fn offer(&self, offer: Offer<C::Given>) {
        self.put_up(&mut self.state.lock(), offer);
    }

    fn put_up(&self, state: &mut State<C::Given>, offer: Offer<C::Given>) {
        self.set_stage(offer.number, stage::OFFERED);
        state.offers.insert(offer.place, offer);
        self.open.store(state.offers.len(), Ordering::Relaxed);
    }

    /// Offers runs that another came to.
    fn bring(&self, course: &C, offers: Vec<Offer<C::Given>>) {
        let mut state = self.state.lock();
        state.brought += offers.len() as u64;
        offers.into_iter().for_each(|offer| self.put_up(&mut state, offer));
        if self.wanted.load(Ordering::Relaxed) != NOBODY {
            // He who waits may do one of these.
            self.news.notify_all();
        }
        drop(state);
        course.offered();
    }

    /// What was computed for a node, waiting for it if somebody is at it; or what was offered, if nobody is. `is_wrong` says
    /// that it may not be computed from what came in: something is to see and perhaps replace that before.
    ///
    /// # Errors
    /// That of `ask`, which is asked while waiting.
    #[inline]
    pub(super) fn take<E>(
        &self,
        course: &C,
        (number, place): (u32, u64),
        is_wrong: impl Fn() -> bool,
        ask: impl Fn() -> Result<(), E>,
    ) -> Result<Taken<C::Given, C::Made>, E> {
        match self.stage(number) {
            stage::NOT => return Ok(Taken::Not),
            stage::PASSED => return Ok(Taken::Done(None)),
            stage::OFFERED => {
                let mut state = self.state.lock();
                if let Some(offer) = state.offers.remove(&place) {
                    self.open.store(state.offers.len(), Ordering::Relaxed);
                    self.set_stage(number, stage::NOT);
                    let revoked = state.revoked.remove(&number);
                    return Ok(if revoked { Taken::Not } else { Taken::Back(offer.given) });
                }
                // Somebody took it just now.
            }
            _ => {}
        }
        if !self.is_there(number) {
            let _span = trace::span("wait", || format!("for #{number}"));
            self.wait_for(course, number, ask)?;
        }
        let Some(done) = self.done.lock().remove(&number) else { return Ok(Taken::Done(None)) };
        let Done { made, given, onward, bytes } = done;
        self.aside.fetch_sub(bytes, Ordering::Relaxed);
        self.full.store(false, Ordering::Relaxed);
        let Some(given) = given else { return Ok(Taken::Done(made)) };
        let wrong = is_wrong();
        let mut state = self.state.lock();
        let revoked = state.revoked.remove(&number);
        if wrong || revoked {
            state.revoked.extend(onward);
        }
        drop(state);
        Ok(match (revoked, wrong) {
            (true, _) => Taken::Not,
            (false, true) => Taken::Back(given),
            (false, false) => Taken::Done(made),
        })
    }

    fn is_there(&self, number: u32) -> bool {
        matches!(self.stage(number), stage::DONE | stage::PASSED)
    }

    /// Waits until a node that somebody took is computed.
    fn wait_for<E>(&self, course: &C, number: u32, ask: impl Fn() -> Result<(), E>) -> Result<(), E> {
        loop {
            if self.is_there(number) {
                return Ok(());
            }
            // Rather than wait, the caller does some of what is left himself.
            let mut state = self.state.lock();
            if let Some(offer) = self.next_offer(&mut state) {
                drop(state);
                self.run(course, offer);
                continue;
            }
            let brought = state.brought;
            drop(state);
            if spin(SPIN, 16, || self.is_there(number)) {
                return Ok(());
            }
            let mut state = self.state.lock();
            self.wanted.store(number, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let mut long = false;
            if !self.is_there(number) && state.brought == brought {
                (state, long) = self.news.wait_for(state, PATIENCE);
            }
            self.wanted.store(NOBODY, Ordering::Relaxed);
            drop(state);
            if long {
                ask()?;
            }
        }
    }

    /// Computes offers until there are none left.
    pub(super) fn help(&self, course: &C) {
        let mut state = self.state.lock();
        state.working += 1;
        while let Some(offer) = self.next_offer(&mut state) {
            drop(state);
            self.run(course, offer);
            state = self.state.lock();
        }
        state.working -= 1;
        if state.working == 0 {
            self.news.notify_all();
        }
    }

    /// Takes the offer that is first in the order, unless there is no room for its result: the caller comes for it soon.
    fn next_offer(&self, state: &mut State<C::Given>) -> Option<Offer<C::Given>> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let aside = self.aside.load(Ordering::Relaxed);
        let fits = |offer: &Offer<C::Given>| match offer.size {
            large if large >= LARGE => aside + large <= self.helpers * large,
            small => aside + small <= self.window,
        };
        let first = state.offers.last_entry()?;
        if !fits(first.get()) {
            self.full.store(true, Ordering::Relaxed);
            return None;
        }
        let offer = first.remove();
        self.open.store(state.offers.len(), Ordering::Relaxed);
        self.aside.fetch_add(offer.size, Ordering::Relaxed);
        self.set_stage(offer.number, stage::TAKEN);
        Some(offer)
    }

    /// Computes a run and puts aside what its nodes leave for the caller.
    fn run(&self, course: &C, offer: Offer<C::Given>) {
        let (mut run, size) = (course.start(offer.number), offer.size);
        let mut later = BTreeMap::new();
        let mut at = Some(offer);
        while let Some(Offer { number, given, .. }) = at {
            let kept = self.may_err.then(|| given.clone());
            let Step { made, mut next, apart } = course.compute(&mut run, number, given, later.is_empty(), &self.stop);
            let onward =
                if kept.is_some() { next.iter().chain(&apart).map(|offer| offer.number).collect() } else { Vec::new() };
            // Before anybody can learn of the result that leads to them.
            for offer in &next {
                self.set_stage(offer.number, stage::TAKEN);
            }
            if !apart.is_empty() {
                self.bring(course, apart);
            }
            if made.is_none() && kept.is_none() {
                self.tell(number, stage::PASSED);
            } else {
                let bytes = made.as_ref().map_or(0, C::made_bytes) + kept.as_ref().map_or(0, C::given_bytes);
                self.aside.fetch_add(bytes, Ordering::Relaxed);
                self.done.lock().insert(number, Done { made, given: kept, onward, bytes });
                self.tell(number, stage::DONE);
            }
            at = if later.is_empty() && next.len() == 1 {
                next.pop()
            } else {
                later.extend(next.into_iter().map(|offer| (offer.place, offer)));
                later.pop_last().map(|(_, offer)| offer)
            };
            // What it would go on with is not asked for any more.
            at = at.filter(|_| !self.stop.load(Ordering::Relaxed));
        }
        self.aside.fetch_sub(size, Ordering::Relaxed);
    }

    /// Makes it known that a node is computed.
    fn tell(&self, number: u32, stage: u8) {
        self.set_stage(number, stage);
        // Either he who waits sees the stage, or he is seen to wait.
        fence(Ordering::SeqCst);
        if self.wanted.load(Ordering::Relaxed) == number {
            // He who waits has the lock until he sleeps.
            drop(self.state.lock());
            self.news.notify_all();
        }
    }

    /// Whether it has ended: what is still being computed is not wanted any more.
    pub(super) fn over(&self) -> &AtomicBool {
        &self.stop
    }

    /// Ends it: what is not begun is not begun any more, and nobody is at work when this returns.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        while state.working > 0 {
            state = self.news.wait(state);
        }
        let offers = std::mem::take(&mut state.offers);
        drop(state);
        drop(offers);
        // Results that nobody came for: others may hold the board a moment longer.
        let done = std::mem::take(&mut *self.done.lock());
        drop(done);
    }
}

#[cfg(test)]
mod models;
