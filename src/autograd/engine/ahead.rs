//! Running ahead: while the caller runs a backward node by node in its order, idle threads compute nodes whose gradients have
//! all come in and that do nothing but compute. Their results are put aside; the caller takes them where it would have
//! computed them itself, so that whatever others can see (sums, hooks, accumulation, freed values, which error) happens in
//! the order of a run on one thread, and has its bits. Who takes what is written on the board (`board.rs`).
//!
//! What a thread takes is a *run*: a node, and after it each next one that needs nothing else. Runs are taken from the front of
//! the order, where the caller is too, so that he soon comes for what was made.

use super::board::{self, Board, Course, Step};
use super::ready::Ready;
use super::task::{COMPUTE, Graph, trace_name};
use crate::autograd::mode::GradMode;
use crate::autograd::node::{Edge, Grads, Meta, NodeRef, Zeros};
use crate::autograd::saved;
use crate::error::{Error, Result, bail};
use crate::shape::numel;
use crate::sync::{AtomicBool, Ordering};
use crate::tensor::Tensor;
use crate::threads::{self, Forked, Tally, Work, trace};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// A run of fewer nanoseconds than this is not worth handing over.
const WORTH: u64 = 30_000;
/// Nor is any of a graph that is done in less than this.
const GRAPH: u64 = 150_000;
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
        if let Sharing::Undecided(consumers) = self {
            *self = Ahead::new(graph, std::mem::take(consumers)).map_or(Sharing::No, Sharing::Yes);
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
    /// For each node how many edges lead into it.
    consumers: Vec<u32>,
    rechecks: bool,
    board: Board<Ahead>,
    process: Forked,
}

impl Ahead {
    /// The means to share a backward, if that is worth it.
    #[cold]
    fn new(graph: &Arc<Graph>, consumers: Vec<u32>) -> Option<Arc<Ahead>> {
        if !is_long(graph) {
            return None;
        }
        // The first of them wakes while the rest is made ready.
        threads::rouse();
        SHARED.add();
        let (runs_code, accumulates) = outlook(graph);
        Some(Arc::new(Ahead {
            graph: graph.clone(),
            consumers,
            rechecks: runs_code || accumulates,
            board: Board::new(graph.nodes().len(), WINDOW, threads::num_threads() - 1, runs_code),
            process: Forked::here(),
        }))
    }

    /// Whether what nodes saved may change between their being computed and the caller's coming to them: then it is checked again.
    #[inline]
    pub(super) fn rechecks(&self) -> bool {
        self.rechecks
    }

    /// Whether a node was computed in the middle of a run, and left nothing for the caller.
    #[inline]
    pub(super) fn has_passed(&self, number: u32) -> bool {
        self.board.is_passed(number)
    }

    /// Offers nodes for which all has come in, each with that, if the runs that begin with them are worth it: the next ones in the
    /// order, and no more than it takes to keep everybody busy, since the caller comes to the rest himself.
    #[inline]
    pub(super) fn offer(self: &Arc<Ahead>, mut next: impl FnMut() -> Option<u32>, grads: &mut [Grads]) {
        while self.board.wants_more() {
            let Some(head) = next() else { break };
            // Somebody may have come to it already, in the course of a run.
            if !self.board.is_touched(head) {
                self.offer_run(head, &mut grads[head as usize]);
            }
        }
        // A thread that found no room went away, and the caller may have made some since.
        if self.board.has_room() && threads::idle() > 0 {
            let work: Arc<dyn Work> = self.clone();
            threads::invite(&work, 1);
        }
    }

    /// Offers the run that begins with a node, if it is worth it.
    fn offer_run(&self, head: u32, grads: &mut Grads) {
        // What only zero reaches does not run.
        let reached = grads.iter().any(Option::is_some);
        let (ns, size) = if reached { self.extent(head) } else { (0, 0) };
        if ns < WORTH {
            return;
        }
        let node = &self.graph.nodes()[head as usize];
        let mut given = std::mem::take(grads);
        given.resize(node.outputs.len(), None);
        self.board.offer(head, node.sequence, size, given);
    }

    /// About how many nanoseconds the run takes that begins with a node, as far as it takes to see that it is worth it; and how
    /// many bytes the largest gradient has that it makes.
    fn extent(&self, head: u32) -> (u64, usize) {
        let (mut at, mut ns, mut size) = (Some(head), 0, 0);
        while let Some(number) = at.filter(|_| ns < WORTH) {
            let node = &self.graph.nodes()[number as usize];
            if !self.is_pure(number) {
                break;
            }
            ns += cost(node);
            size = ends(node).map(|meta| numel(&meta.sizes) * meta.dtype.size()).fold(size, usize::max);
            at = self.next(node).map(|(_, number)| number);
        }
        (ns, size)
    }

    /// The node that goes on with a run, and the edge that leads to it: the only one that is not a leaf's, into a node that
    /// nothing else leads to.
    fn next(&self, node: &NodeRef) -> Option<(usize, u32)> {
        let mut ends = node.edges.iter().enumerate().filter_map(|(k, edge)| {
            let to = edge.node().filter(|to| !to.is_accumulation())?;
            Some((k, self.graph.number(to)?))
        });
        let (k, number) = ends.next()?;
        let alone = ends.next().is_none() && self.consumers[number as usize] == 1 && node.edges[k].nr == 0;
        (alone && self.graph.nodes()[number as usize].outputs.len() == 1).then_some((k, number))
    }

    /// Whether a node does nothing but compute, so that nobody can tell when.
    fn is_pure(&self, number: u32) -> bool {
        let node = &self.graph.nodes()[number as usize];
        let seen = node.is_accumulation() || node.hooks().is_some() || node.body.is_foreign();
        !(seen || self.graph.is_watched(number) || is_packed(node))
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
        let mut at = Some(number).filter(|_| !self.board.may_err());
        for _ in 0..LONG {
            let Some(number) = at else { break };
            let node = &self.graph.nodes()[number as usize];
            let ends = node.edges.iter().filter_map(Edge::node).filter(|to| to.is_accumulation());
            for leaf in ends.filter_map(|to| self.graph.number(to)).filter(|leaf| self.consumers[*leaf as usize] > 1) {
                *own.entry(leaf).or_default() += 1;
            }
            at = self.next(node).map(|(_, number)| number);
        }
        own.retain(|leaf, edges| self.consumers[*leaf as usize] == *edges);
        Along { own, sums: Vec::new() }
    }

    fn compute(&self, along: &mut Along, number: u32, given: Grads, stop: &AtomicBool) -> Step<Grads, Done> {
        match catch_unwind(AssertUnwindSafe(|| self.computed(along, number, given, stop))) {
            Ok(step) => step,
            // A worker stops when nothing of this is wanted any more. Before that it is the caller whom the user stops.
            Err(caught) if threads::is_cancelled(&*caught) && !stop.load(Ordering::Relaxed) => resume_unwind(caught),
            // A panic would be a bug; whoever waits for the node is told.
            Err(_) => {
                let grads = Err(Error::runtime("backward", "internal error: a derivative panicked"));
                Step { made: Some(Done { grads, zeros: Zeros::default(), sums: Vec::new() }), onward: None }
            }
        }
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
    fn computed(&self, along: &mut Along, number: u32, given: Grads, stop: &AtomicBool) -> Step<Grads, Done> {
        let _mode = GradMode::set(false);
        let node = &self.graph.nodes()[number as usize];
        let zeros = Zeros::default();
        let _span = trace::span(COMPUTE, || trace_name(node, number));
        let mut grads = self.graph.compute(number, given, &zeros, false);
        let mut onward = None;
        if let (Ok(out), Some((k, next))) = (&mut grads, self.next(node))
            && !stop.load(Ordering::Relaxed)
            && self.is_pure(next)
            && out.get(k).is_some_and(Option::is_some)
        {
            onward = out[k].take().map(|grad| (k, next, grad));
        }
        let onward = onward.and_then(|(k, next, grad)| match self.graph.fitting(node, k, grad) {
            Ok(grad) => Some((next, Grads::from_elem(Some(grad), 1))),
            Err(error) => {
                grads = Err(error);
                None
            }
        });
        if !along.own.is_empty()
            && let Ok(out) = &mut grads
            && let Err(error) = self.add_up(along, node, out)
        {
            grads = Err(error);
        }
        let ends = onward.is_none() || grads.is_err();
        let sums = if ends { std::mem::take(&mut along.sums) } else { Vec::new() };
        let all_went_on = !ends && zeros.is_empty() && grads.iter().flatten().all(Option::is_none);
        let onward = onward.filter(|_| !ends);
        Step { made: (!all_went_on).then_some(Done { grads, zeros, sums }), onward }
    }
}

impl Work for Ahead {
    fn help(&self) {
        threads::heeding(self.board.over(), || self.board.help(self));
    }
}

/// Whether a backward takes so long that it may be worth sharing.
fn is_long(graph: &Graph) -> bool {
    let mut left = GRAPH;
    graph.nodes().iter().any(|node| {
        left = left.saturating_sub(cost(node));
        left == 0
    })
}

/// Whether hooks have some of what a node saved.
fn is_packed(node: &NodeRef) -> bool {
    saved::may_be_packed() && node.body.is_packed()
}

/// Whether a backward may run code of the embedding language before it ends, which may register hooks on nodes that are still to
/// come, where somebody may be ahead of it; and whether it adds to gradients that are there, in place, which nodes may have saved.
fn outlook(graph: &Graph) -> (bool, bool) {
    let (mut runs_code, mut accumulates) = (false, false);
    for node in graph.nodes() {
        runs_code |= node.hooks().is_some() || node.body.is_foreign() || is_packed(node);
        if node.is_accumulation()
            && let Some(extra) = node.body.leaf().and_then(Tensor::existing_extra)
        {
            runs_code |= !extra.hooks.is_empty();
            accumulates |= extra.grad.lock().is_some();
        }
    }
    (runs_code, accumulates)
}

/// About how many nanoseconds a node's derivative takes. It decides who computes, never what comes out.
fn cost(node: &NodeRef) -> u64 {
    let elements = |metas: &mut dyn Iterator<Item = &Meta>| metas.map(|meta| numel(&meta.sizes)).sum::<usize>();
    elements(&mut node.outputs.iter()).max(elements(&mut ends(node))) as u64 * node.body.weight()
}

/// What the gradients are for that a node makes.
fn ends(node: &NodeRef) -> impl Iterator<Item = &Meta> {
    node.edges.iter().filter_map(|edge| edge.node()?.outputs.get(edge.nr as usize))
}

fn bytes(grad: &Tensor) -> usize {
    grad.numel() * grad.dtype().size()
}
