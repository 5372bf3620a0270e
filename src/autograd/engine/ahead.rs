//! Running ahead: while the caller runs a backward node by node in its order, idle threads compute nodes whose gradients have
//! all come in and that do nothing but compute. Their results are put aside; the caller takes them where it would have
//! computed them itself, so that whatever others can see (sums, hooks, accumulation, freed values, which error) happens in
//! the order of a run on one thread, and has its bits.
//!
//! What a thread takes is a *run*: a node, and after it each next one that needs nothing else. The caller works from the front of
//! the order, the others from its end.

use super::ready::Ready;
use super::task::Graph;
use crate::autograd::mode::GradMode;
use crate::autograd::node::{Grads, NodeRef, Zeros};
use crate::error::{Error, Result, bail};
use crate::shape::numel;
use crate::threads::{self, Forked, Work};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A run of fewer nanoseconds than this is not worth handing over.
const WORTH: u64 = 30_000;
/// Nor is any of a graph that is done in less than this.
const GRAPH: u64 = 150_000;
/// Bytes of results that may lie aside. Beyond, nothing new is taken.
const WINDOW: usize = 256 << 20;
/// How often a caller that waits looks whether the user wants to stop.
const PATIENCE: Duration = Duration::from_millis(10);

/// Backwards that are shared now.
static SHARED: AtomicUsize = AtomicUsize::new(0);

/// Whether threads of the pool may be at work on graphs, beside the threads that run backwards.
pub fn is_shared() -> bool {
    SHARED.load(Ordering::Acquire) > 0
}

/// What a thread computed for a node.
pub(super) struct Done {
    pub grads: Result<Grads>,
    pub zeros: Zeros,
    bytes: usize,
    /// What it was computed from.
    given: Grads,
    /// The node with which the run went on, and to which one of the gradients went instead of being put aside.
    onward: Option<u32>,
}

#[derive(Default)]
struct Board {
    /// Runs that nobody has taken, by the place of their first node in the order, with the gradients that came in for it.
    offers: BTreeMap<u64, (u32, Grads)>,
    /// Nodes that somebody computes.
    taken: HashSet<u32>,
    done: HashMap<u32, Done>,
    /// Nodes that somebody computes from what turned out not to be their gradient.
    revoked: HashSet<u32>,
    /// Bytes of `done`.
    aside: usize,
    /// Threads that are at work here.
    working: usize,
    stop: bool,
}

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
    /// Nodes that were offered or taken, to be seen without the lock.
    touched: Vec<AtomicBool>,
    board: Mutex<Board>,
    news: Condvar,
    process: Forked,
}

impl Ahead {
    /// The means to share a backward, if that is worth it.
    #[cold]
    pub(super) fn new(graph: &Arc<Graph>) -> Option<Arc<Ahead>> {
        if !graph.may_share() || threads::num_threads() < 2 || graph.nodes().iter().map(cost).sum::<u64>() < GRAPH {
            return None;
        }
        SHARED.fetch_add(1, Ordering::AcqRel);
        let mut consumers = vec![0; graph.nodes().len()];
        for edge in graph.nodes().iter().flat_map(|node| &*node.edges) {
            if let Some(number) = edge.node().and_then(|to| graph.number(to)) {
                consumers[number as usize] += 1;
            }
        }
        Some(Arc::new(Ahead {
            graph: graph.clone(),
            consumers,
            touched: graph.nodes().iter().map(|_| AtomicBool::new(false)).collect(),
            board: Mutex::default(),
            news: Condvar::new(),
            process: Forked::here(),
        }))
    }

    /// Offers nodes for which all has come in, each with that, if the runs that begin with them are worth it. Those that are
    /// not come back.
    pub(super) fn offer(self: &Arc<Ahead>, heads: impl Iterator<Item = u32>, grads: &mut [Grads]) {
        let mut fresh = 0;
        for head in heads {
            // Somebody may have come to it already, in the course of a run.
            let touched = self.touched[head as usize].load(Ordering::Relaxed);
            // What only zero reaches does not run.
            let reached = grads[head as usize].iter().any(Option::is_some);
            if touched || !reached || self.worth(head) < WORTH {
                continue;
            }
            self.touched[head as usize].store(true, Ordering::Relaxed);
            let mut given = std::mem::take(&mut grads[head as usize]);
            given.resize(self.graph.nodes()[head as usize].outputs.len(), None);
            self.board.lock().offers.insert(self.graph.nodes()[head as usize].sequence, (head, given));
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
        if !self.touched[number as usize].load(Ordering::Acquire) {
            return Ok(Taken::Not);
        }
        let sequence = self.graph.nodes()[number as usize].sequence;
        let mut board = self.board.lock();
        if let Some((_, grads)) = board.offers.remove(&sequence) {
            return Ok(Taken::Back(grads));
        }
        if !board.taken.remove(&number) {
            return Ok(Taken::Not);
        }
        loop {
            if let Some(done) = board.done.remove(&number) {
                board.aside -= done.bytes;
                // A hook that was registered since has to see the gradient, and may give another to what follows.
                let hooked = self.graph.nodes()[number as usize].hooks().is_some();
                let revoked = board.revoked.remove(&number);
                if hooked || revoked {
                    board.revoked.extend(done.onward);
                }
                return Ok(match (revoked, hooked) {
                    (true, _) => Taken::Not,
                    (false, true) => Taken::Back(done.given),
                    (false, false) => Taken::Done(done),
                });
            }
            if self.process.since() {
                bail!(runtime "backward", "the process was forked while this backward ran on several threads, which the child does not have; fork before backward, or use set_multithreading_enabled(False)");
            }
            // Rather than wait, the caller does some of what is left itself.
            if let Some((head, grads)) = next_offer(&mut board) {
                drop(board);
                self.run(head, grads);
                board = self.board.lock();
                continue;
            }
            if self.news.wait_for(&mut board, PATIENCE).timed_out() {
                drop(board);
                ask()?;
                board = self.board.lock();
            }
        }
    }

    /// Computes a run and puts its results aside one by one.
    fn run(&self, head: u32, grads: Grads) {
        let _mode = GradMode::set(false);
        let (mut number, mut grads) = (head, grads);
        loop {
            let node = &self.graph.nodes()[number as usize];
            let zeros = Zeros::default();
            let given = grads.clone();
            // A panic would be a bug; whoever waits for the node is told.
            let compute = || self.graph.compute(number, grads, &zeros, false);
            let mut result = catch_unwind(AssertUnwindSafe(compute))
                .unwrap_or_else(|_| Err(Error::runtime("backward", "internal error: a derivative panicked")));
            let mut onward = None;
            if let (Ok(out), Some((k, next))) = (&mut result, self.next(node))
                && self.is_pure(next)
                && out.get(k).is_some_and(Option::is_some)
            {
                onward = out[k].take().map(|grad| (k, next, grad));
            }
            let onward = onward.and_then(|(k, next, grad)| match self.graph.fitting(node, k, grad) {
                Ok(grad) => Some((next, grad)),
                Err(error) => {
                    result = Err(error);
                    None
                }
            });
            let put = result.iter().flatten().chain(&given).flatten();
            let bytes = put.map(bytes).sum();
            let mut board = self.board.lock();
            board.aside += bytes;
            let goes_on = onward.filter(|_| !board.stop);
            let onward = goes_on.as_ref().map(|(next, _)| *next);
            board.done.insert(number, Done { grads: result, zeros, bytes, given, onward });
            if let Some((next, _)) = &goes_on {
                board.taken.insert(*next);
                // Before anybody can learn of the result that leads to it.
                self.touched[*next as usize].store(true, Ordering::Release);
            }
            drop(board);
            self.news.notify_all();
            match goes_on {
                Some((next, grad)) => (number, grads) = (next, Grads::from_elem(Some(grad), 1)),
                None => return,
            }
        }
    }

    /// Ends the sharing: what is not begun is not begun any more, and nobody is at work when this returns.
    pub(super) fn end(&self) {
        let mut board = self.board.lock();
        board.stop = true;
        let offers = std::mem::take(&mut board.offers);
        while board.working > 0 && !self.process.since() {
            self.news.wait_for(&mut board, PATIENCE);
        }
        let done = std::mem::take(&mut board.done);
        drop(board);
        drop((offers, done));
        SHARED.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How a node stands when the caller comes to it.
pub(super) enum Taken {
    /// It was never offered, or was computed in vain.
    Not,
    /// The gradients that came in for it: nobody took it, or it has to be computed again.
    Back(Grads),
    /// Somebody computed it.
    Done(Done),
}

/// Takes the offer that is last in the order: the caller comes from the front.
fn next_offer(board: &mut Board) -> Option<(u32, Grads)> {
    if board.stop || board.aside > WINDOW {
        return None;
    }
    let (_, (head, grads)) = board.offers.pop_first()?;
    board.taken.insert(head);
    Some((head, grads))
}

impl Work for Ahead {
    fn help(&self) {
        loop {
            let mut board = self.board.lock();
            let Some((head, grads)) = next_offer(&mut board) else { return };
            board.working += 1;
            drop(board);
            self.run(head, grads);
            let mut board = self.board.lock();
            board.working -= 1;
            drop(board);
            self.news.notify_all();
        }
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
