//! Running ahead: while the caller runs a backward node by node in its order, idle threads compute nodes whose gradients have
//! all come in and that do nothing but compute. Their results are put aside; the caller takes them where it would have
//! computed them itself, so that whatever others can see (sums, hooks, accumulation, freed values, which error) happens in
//! the order of a run on one thread, and has its bits. Who takes what is written on the board (`board.rs`).
//!
//! What a thread takes is a *run*: a node, and after it those that need nothing else, in their order. Where there are several it
//! goes on with the first; others that are worth it are runs of their own. Runs are taken from the front of the order, where the
//! caller is too, so that he soon comes for what was made.

use super::board::{self, Board, Course, Offer, Step};
use super::outlook::{Outlook, is_long, is_pure};
use super::ready::Ready;
use super::task::{COMPUTE, Graph, trace_name};
use crate::autograd::mode::GradMode;
use crate::autograd::node::{Edge, Grads, NodeRef, Zeros};
use crate::error::{Error, Result, bail};
use crate::sync::{AtomicBool, Ordering};
use crate::tensor::Tensor;
use crate::threads::{self, Forked, Tally, Work, trace};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};

/// A graph of fewer nodes is not shared.
const FEW: usize = 8;
/// Bytes of results that may lie aside. Beyond, nothing new is taken.
const WINDOW: usize = 32 << 20;
/// So far a run is looked along for leaves that are its own.
const LONG: usize = 4096;
/// Backwards that are shared now.
static SHARED: Tally = Tally::new();

/// Whether threads of the pool may be at work on graphs, beside the threads that run backwards.
pub fn is_shared() -> bool {
    SHARED.get() > 0
}

/// What a thread computed for a node.
pub(super) struct Done {
    pub grads: Result<Grads>,
    pub zeros: Zeros,
    /// For leaves, by number, the sum of what nodes of the run up to this one sent there.
    pub sums: Vec<(u32, Grads)>,
}

/// What a run takes along.
pub(super) struct Along {
    /// Leaves to which nobody but nodes of this run sends gradients, with how many are to come.
    own: HashMap<u32, u32>,
    /// The sum of what has come in for those.
    sums: Vec<(u32, Grads)>,
}

/// How a node stands when the caller comes to it.
pub(super) type Taken = board::Taken<Grads, Done>;

/// Whether other threads compute nodes of a backward. It is decided when for the first time there is a choice.
pub(super) enum Sharing {
    /// With how many gradients come in at each node.
    Undecided(Vec<u32>),
    No,
    Yes(Arc<Ahead>),
}

impl Sharing {
    /// Before a backward, of which `waiting` says how many edges lead into each node, and `roots` where it begins.
    pub(super) fn before(graph: &Graph, waiting: &[u32], roots: &[(Edge, Tensor)]) -> Sharing {
        if graph.nodes().len() < FEW || !graph.may_share() || threads::num_threads() < 2 {
            return Sharing::No;
        }
        let mut arrivals = waiting.to_vec();
        // A root that other roots lead to has a gradient of its own, too.
        for number in roots.iter().filter_map(|(edge, _)| graph.number(edge.node()?)) {
            arrivals[number as usize] += 1;
        }
        Sharing::Undecided(arrivals)
    }

    #[inline]
    pub(super) fn decide(&mut self, graph: &Arc<Graph>, ready: &mut Ready) {
        if let Sharing::Undecided(arrivals) = self {
            *self = Ahead::new(graph, std::mem::take(arrivals)).map_or(Sharing::No, Sharing::Yes);
            if let Sharing::Yes(_) = self {
                ready.remember();
            }
        }
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        if let Sharing::Yes(ahead) = self {
            ahead.end();
        }
    }
}

/// A backward that several threads share.
pub(super) struct Ahead {
    graph: Arc<Graph>,
    outlook: Outlook,
    board: Board<Ahead>,
    process: Forked,
    /// Itself, to be handed to threads.
    own: Weak<Ahead>,
}

impl Ahead {
    /// The means to share a backward, given how many gradients come in at each node, if that is worth it.
    #[cold]
    fn new(graph: &Arc<Graph>, arrivals: Vec<u32>) -> Option<Arc<Ahead>> {
        if !is_long(graph) {
            return None;
        }
        // The first of them wakes while the rest is made ready.
        threads::rouse();
        SHARED.add();
        let outlook = Outlook::new(graph, arrivals);
        Some(Arc::new_cyclic(|own| Ahead {
            graph: graph.clone(),
            board: Board::new(graph.nodes().len(), WINDOW, threads::num_threads() - 1, outlook.runs_code),
            outlook,
            process: Forked::here(),
            own: own.clone(),
        }))
    }

    /// Whether what nodes saved may change between their being computed and the caller's coming to them: then it is checked again.
    #[inline]
    pub(super) fn rechecks(&self) -> bool {
        self.outlook.runs_code || self.outlook.accumulates
    }

    /// Whether a node was computed in the middle of a run, and left nothing for the caller.
    #[inline]
    pub(super) fn has_passed(&self, number: u32) -> bool {
        self.board.is_passed(number)
    }

    /// Offers nodes for which all has come in, each with that, if the runs that begin with them are worth it: the next ones in the
    /// order, and no more than it takes to keep everybody busy, since the caller comes to the rest himself.
    #[inline]
    pub(super) fn offer(&self, mut next: impl FnMut() -> Option<u32>, grads: &mut [Grads]) {
        while self.board.wants_more() {
            let Some(head) = next() else { break };
            // Somebody may have come to it already, in the course of a run.
            if !self.board.is_touched(head) {
                self.offer_run(head, &mut grads[head as usize]);
            }
        }
        // A thread that found no room went away, and the caller may have made some since.
        if self.board.has_room() {
            self.invite();
        }
    }

    /// Offers the run that begins with a node, if it is worth it.
    fn offer_run(&self, head: u32, grads: &mut Grads) {
        // What only zero reaches does not run.
        if !grads.iter().any(Option::is_some) || !is_pure(&self.graph, head) {
            return;
        }
        if let Some(size) = self.outlook.worth(&self.graph, head) {
            let mut given = std::mem::take(grads);
            given.resize(self.graph.nodes()[head as usize].outputs.len(), None);
            self.board.offer(Offer { size, ..self.run_from(head, given) });
        }
    }

    fn run_from(&self, head: u32, given: Grads) -> Offer<Grads> {
        Offer { number: head, place: self.graph.nodes()[head as usize].sequence, size: 0, given }
    }

    /// Has a thread that has nothing to do come and look for runs.
    fn invite(&self) {
        if threads::idle() > 0
            && let Some(own) = self.own.upgrade()
        {
            let work: Arc<dyn Work> = own;
            threads::invite(&work, 1);
        }
    }

    /// What was computed for a node, waiting for it if somebody is at it; or the gradients that were offered, if nobody is.
    ///
    /// # Errors
    /// That of `ask`, which is asked while waiting; and if the process was forked since the backward began.
    #[inline]
    pub(super) fn take(&self, number: u32, ask: impl Fn() -> Result<()>) -> Result<Taken> {
        if !self.board.is_touched(number) {
            return Ok(Taken::Not);
        }
        let node = &self.graph.nodes()[number as usize];
        // A hook that was registered since has to see the gradient, and may give another to what follows.
        let hooked = || node.hooks().is_some();
        self.board.take(self, (number, node.sequence), hooked, || ask().and_then(|()| self.is_at_home()))
    }

    /// Adds a node's gradients of the run's own leaves to what earlier nodes sent there. The last gives the sum to the caller.
    fn add_up(&self, along: &mut Along, node: &NodeRef, grads: &mut Grads) -> Result<()> {
        // A leaf counts its edges, whether a gradient comes along them or not.
        grads.resize(grads.len().max(node.edges.len()), None);
        for (k, (grad, edge)) in grads.iter_mut().zip(&*node.edges).enumerate() {
            let leaf = edge.node().filter(|to| to.is_accumulation()).and_then(|to| self.graph.number(to));
            let Some((leaf, left)) = leaf.and_then(|leaf| Some((leaf, along.own.get_mut(&leaf)?))) else { continue };
            *left -= 1;
            let at = along.sums.iter().position(|(to, _)| *to == leaf).unwrap_or_else(|| {
                along.sums.push((leaf, Grads::new()));
                along.sums.len() - 1
            });
            if let Some(grad) = grad.take() {
                let grad = self.graph.fitting(node, k, grad)?;
                self.graph.receive(&self.graph.nodes()[leaf as usize], edge.nr, grad, &mut along.sums[at].1)?;
            }
            if *left == 0 {
                *grad = along.sums.swap_remove(at).1.pop().flatten();
            }
        }
        Ok(())
    }

    /// # Errors
    /// If the process was forked since the backward began. The child may find the board locked, by a thread it does not have.
    #[inline]
    pub(super) fn is_at_home(&self) -> Result<()> {
        if self.process.since() {
            bail!(runtime "backward", "the process was forked while this backward ran on several threads, which the child does not have; fork before backward, or use set_multithreading_enabled(False)");
        }
        Ok(())
    }

    /// Ends the sharing: what is not begun is not begun any more, and nobody is at work when this returns.
    pub(super) fn end(&self) {
        if !self.process.since() {
            self.board.end();
            SHARED.sub();
        }
    }
}

impl Course for Ahead {
    type Given = Grads;
    type Made = Done;
    type Run = Along;

    /// Leaves that only this run leads to, each by more than one of its nodes: their gradients are added as they come, which is
    /// in the order in which the caller would add them.
    fn start(&self, number: u32) -> Along {
        let mut own: HashMap<u32, u32> = HashMap::new();
        // Nodes that may have to be computed again, one by one, keep what they make apart.
        let sums = self.outlook.sums && !self.board.may_err();
        let mut left: SmallVec<[u32; 8]> = if sums { SmallVec::from_elem(number, 1) } else { SmallVec::new() };
        for _ in 0..LONG {
            let Some(number) = left.pop() else { break };
            let node = &self.graph.nodes()[number as usize];
            let ends = node.edges.iter().filter_map(Edge::node).filter(|to| to.is_accumulation());
            for leaf in ends.filter_map(|to| self.graph.number(to)).filter(|leaf| self.outlook.arrivals(*leaf) > 1) {
                *own.entry(leaf).or_default() += 1;
            }
            let mut heirs = SmallVec::<[u32; 8]>::new();
            self.outlook.each_heir(&self.graph, node, |_, heir| heirs.push(heir));
            let apart = self.parting(&mut heirs, |heir| *heir);
            left.extend(heirs.into_iter().take(apart));
        }
        own.retain(|leaf, edges| self.outlook.arrivals(*leaf) == *edges);
        Along { own, sums: Vec::new() }
    }

    fn compute(
        &self,
        along: &mut Along,
        number: u32,
        given: Grads,
        is_last: bool,
        stop: &AtomicBool,
    ) -> Step<Grads, Done> {
        match catch_unwind(AssertUnwindSafe(|| self.computed(along, number, given, is_last, stop))) {
            Ok(step) => step,
            // A worker stops when nothing of this is wanted any more. Before that it is the caller whom the user stops.
            Err(caught) if threads::is_cancelled(&*caught) && !stop.load(Ordering::Relaxed) => resume_unwind(caught),
            // A panic would be a bug; whoever waits for the node is told.
            Err(_) => {
                let grads = Err(Error::runtime("backward", "internal error: a derivative panicked"));
                Step::end(Done { grads, zeros: Zeros::default(), sums: Vec::new() })
            }
        }
    }

    fn offered(&self) {
        self.invite();
    }

    fn made_bytes(made: &Done) -> usize {
        let sums: usize = made.sums.iter().map(|(_, sum)| Self::given_bytes(sum)).sum();
        sums + made.grads.as_ref().map_or(0, Self::given_bytes)
    }

    fn given_bytes(given: &Grads) -> usize {
        given.iter().flatten().map(bytes).sum()
    }
}

impl Ahead {
    fn computed(
        &self,
        along: &mut Along,
        number: u32,
        given: Grads,
        is_last: bool,
        stop: &AtomicBool,
    ) -> Step<Grads, Done> {
        let _mode = GradMode::set(false);
        let node = &self.graph.nodes()[number as usize];
        let zeros = Zeros::default();
        let _span = trace::span(COMPUTE, || trace_name(node, number));
        let mut grads = self.graph.compute(number, given, &zeros, false);
        let mut next = SmallVec::new();
        if let Ok(out) = &mut grads
            && !stop.load(Ordering::Relaxed)
        {
            match self.onward(node, out) {
                Ok(onward) => next = onward,
                Err(error) => grads = Err(error),
            }
        }
        if !along.own.is_empty()
            && let Ok(out) = &mut grads
            && let Err(error) = self.add_up(along, node, out)
        {
            grads = Err(error);
            next.clear();
        }
        let apart = self.parting(&mut next, |run: &Offer<Grads>| run.number);
        let sized = |run: Offer<Grads>| Offer { size: self.outlook.worth(&self.graph, run.number).unwrap_or(0), ..run };
        let apart = next.drain(apart..).map(sized).collect();
        let ends = is_last && next.is_empty();
        let sums = if ends { std::mem::take(&mut along.sums) } else { Vec::new() };
        let all_went_on = !ends && zeros.is_empty() && grads.as_ref().is_ok_and(|out| out.iter().all(Option::is_none));
        Step { made: (!all_went_on).then_some(Done { grads, zeros, sums }), next, apart }
    }

    /// What comes in for the nodes that need nothing but what a node made, taken out of that.
    fn onward(&self, node: &NodeRef, out: &mut Grads) -> Result<SmallVec<[Offer<Grads>; 1]>> {
        let mut onward = SmallVec::new();
        let mut fitting = Ok(());
        self.outlook.each_heir(&self.graph, node, |k, heir| {
            if fitting.is_ok()
                && is_pure(&self.graph, heir)
                && let Some(grad) = out.get_mut(k).and_then(Option::take)
            {
                match self.graph.fitting(node, k, grad) {
                    Ok(grad) => onward.push(self.run_from(heir, Grads::from_elem(Some(grad), 1))),
                    Err(error) => fitting = Err(error),
                }
            }
        });
        fitting.map(|()| onward)
    }

    /// Sorts what a run came to, such that first come those with which it goes on: the first in the order, and what is not worth
    /// handing over. Returns how many those are.
    fn parting<T>(&self, onward: &mut [T], number: impl Fn(&T) -> u32) -> usize {
        if onward.len() < 2 {
            return onward.len();
        }
        let sequence = |one: &T| self.graph.nodes()[number(one) as usize].sequence;
        let first = onward.iter().map(sequence).max();
        let leaves = |one: &T| Some(sequence(one)) != first && self.outlook.worth(&self.graph, number(one)).is_some();
        onward.sort_by_key(leaves);
        onward.partition_point(|one| !leaves(one))
    }
}

impl Work for Ahead {
    fn help(&self) {
        threads::heeding(self.board.over(), || self.board.help(self));
    }
}

fn bytes(grad: &Tensor) -> usize {
    grad.numel() * grad.dtype().size()
}
