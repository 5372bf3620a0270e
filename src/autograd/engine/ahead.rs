//! Running ahead: while the caller runs a backward node by node in its order, idle threads compute nodes whose gradients have
//! all come in and that do nothing but compute. Their results are put aside; the caller takes them where it would have
//! computed them itself, so that whatever others can see (sums, hooks, accumulation, freed values, which error) happens in
//! the order of a run on one thread, and has its bits. Who takes what is written on the board (`board.rs`).
//!
//! What a thread takes is a *run*: a node, and after it each next one that needs nothing else. The caller works from the front of
//! the order, the others from its end.

use super::board::{self, Board, Course, Step};
use super::ready::Ready;
use super::task::Graph;
use crate::autograd::mode::GradMode;
use crate::autograd::node::{Grads, NodeRef, Zeros};
use crate::error::{Error, Result, bail};
use crate::shape::numel;
use crate::threads::{self, Forked, Tally, Work};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A run of fewer nanoseconds than this is not worth handing over.
const WORTH: u64 = 30_000;
/// Nor is any of a graph that is done in less than this.
const GRAPH: u64 = 150_000;
/// Bytes of results that may lie aside. Beyond, nothing new is taken.
const WINDOW: usize = 256 << 20;
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
}

/// How a node stands when the caller comes to it.
pub(super) type Taken = board::Taken<Grads, Done>;

/// Whether other threads compute nodes of a backward. It is decided when for the first time there is a choice.
pub(super) enum Sharing {
    Undecided,
    No,
    Yes(Arc<Ahead>),
}

impl Sharing {
    #[inline]
    pub(super) fn decide(&mut self, graph: &Arc<Graph>, ready: &mut Ready) {
        if let Sharing::Undecided = self {
            *self = Ahead::new(graph).map_or(Sharing::No, Sharing::Yes);
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
    board: Board<Ahead>,
    process: Forked,
}

impl Ahead {
    /// The means to share a backward, if that is worth it.
    #[cold]
    pub(super) fn new(graph: &Arc<Graph>) -> Option<Arc<Ahead>> {
        if !graph.may_share() || threads::num_threads() < 2 || graph.nodes().iter().map(cost).sum::<u64>() < GRAPH {
            return None;
        }
        SHARED.add();
        let mut consumers = vec![0; graph.nodes().len()];
        for edge in graph.nodes().iter().flat_map(|node| &*node.edges) {
            if let Some(number) = edge.node().and_then(|to| graph.number(to)) {
                consumers[number as usize] += 1;
            }
        }
        Some(Arc::new(Ahead {
            graph: graph.clone(),
            consumers,
            board: Board::new(graph.nodes().len(), WINDOW),
            process: Forked::here(),
        }))
    }

    /// Offers nodes for which all has come in, each with that, if the runs that begin with them are worth it. Those that are
    /// not come back.
    pub(super) fn offer(self: &Arc<Ahead>, heads: impl Iterator<Item = u32>, grads: &mut [Grads]) {
        let mut fresh = 0;
        for head in heads {
            // Somebody may have come to it already, in the course of a run.
            let touched = self.board.is_touched(head);
            // What only zero reaches does not run.
            let reached = grads[head as usize].iter().any(Option::is_some);
            if touched || !reached || self.worth(head) < WORTH {
                continue;
            }
            let mut given = std::mem::take(&mut grads[head as usize]);
            given.resize(self.graph.nodes()[head as usize].outputs.len(), None);
            self.board.offer(head, self.graph.nodes()[head as usize].sequence, given);
            fresh += 1;
        }
        // The caller does the first itself.
        let helpers = threads::idle().min(fresh);
        if helpers > 0 {
            let work: Arc<dyn Work> = self.clone();
            threads::invite(&work, helpers);
        }
    }

    /// About how many nanoseconds the run takes that begins with a node.
    fn worth(&self, head: u32) -> u64 {
        let (mut at, mut total) = (Some(head), 0);
        while let Some(number) = at.filter(|_| total < WORTH) {
            let node = &self.graph.nodes()[number as usize];
            if !self.is_pure(number) {
                break;
            }
            total += cost(node);
            at = self.next(node).map(|(_, number)| number);
        }
        total
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
        !(seen || self.graph.is_watched(number) || node.body.is_packed())
    }

    /// What was computed for a node, waiting for it if somebody is at it; or the gradients that were offered, if nobody is.
    ///
    /// # Errors
    /// That of `ask`, which is asked while waiting; and if the process was forked since the backward began.
    pub(super) fn take(&self, number: u32, ask: impl Fn() -> Result<()>) -> Result<Taken> {
        if !self.board.is_touched(number) {
            return Ok(Taken::Not);
        }
        self.is_at_home()?;
        let node = &self.graph.nodes()[number as usize];
        // A hook that was registered since has to see the gradient, and may give another to what follows.
        let hooked = || node.hooks().is_some();
        self.board.take(self, (number, node.sequence), hooked, || ask().and_then(|()| self.is_at_home()))
    }

    /// # Errors
    /// If the process was forked since the backward began. The child may find the board locked, by a thread it does not have.
    fn is_at_home(&self) -> Result<()> {
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

    fn compute(&self, number: u32, given: &Grads) -> Step<Grads, Done> {
        let _mode = GradMode::set(false);
        let node = &self.graph.nodes()[number as usize];
        let zeros = Zeros::default();
        // A panic would be a bug; whoever waits for the node is told.
        let compute = || self.graph.compute(number, given.clone(), &zeros, false);
        let mut grads = catch_unwind(AssertUnwindSafe(compute))
            .unwrap_or_else(|_| Err(Error::runtime("backward", "internal error: a derivative panicked")));
        let mut onward = None;
        if let (Ok(out), Some((k, next))) = (&mut grads, self.next(node))
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
        let bytes = grads.iter().flatten().chain(given).flatten().map(bytes).sum();
        Step { made: Done { grads, zeros }, bytes, onward }
    }
}

impl Work for Ahead {
    fn help(&self) {
        self.board.help(self);
    }
}

/// About how many nanoseconds a node's derivative takes. It decides who computes, never what comes out.
fn cost(node: &NodeRef) -> u64 {
    let elements: usize = node.outputs.iter().map(|meta| numel(&meta.sizes)).sum();
    elements as u64 * node.body.weight()
}

fn bytes(grad: &crate::tensor::Tensor) -> usize {
    grad.numel() * grad.dtype().size()
}
