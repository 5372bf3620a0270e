//! What a backward has before it, as far as that can be told before any of it runs: how long it takes, what a thread that takes
//! a node can do in one go, whether code of the user's runs. It decides who computes, never what comes out.

use super::task::Graph;
use crate::autograd::node::{Meta, NodeRef};
use crate::shape::numel;
use crate::tensor::Tensor;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Of a graph that is done in fewer nanoseconds than this nothing is worth handing over.
const GRAPH: f64 = 150_000.0;

/// A run of fewer nanoseconds than this is not worth handing over.
const WORTH: f64 = 30_000.0;
/// For each byte of its largest gradient it must take so many more: what comes in and what goes out moves between the caches of
/// two cores.
const TRANSFER: f64 = 0.4;
/// Nor is one that needs more nodes than this to take so long: each costs the caller something to take over.
const NODES: usize = 64;

/// What lies before a backward.
pub(super) struct Outlook {
    /// For each node how many gradients come in.
    arrivals: Vec<u32>,
    /// For each node what is known of the run that begins with it.
    runs: Vec<AtomicUsize>,
    /// Whether it may run code of the embedding language before it ends, which may register hooks on nodes that are still to come,
    /// where somebody may be ahead of it.
    pub runs_code: bool,
    /// Whether there are leaves at which several gradients come in.
    pub sums: bool,
    /// Whether it adds to gradients that are there, in place, which nodes may have saved.
    pub accumulates: bool,
}

/// What may be known of a run; otherwise it is worth handing over, and how many bytes the largest gradient has, beyond these.
mod known {
    pub const NOTHING: usize = 0;
    pub const NOT_WORTH_IT: usize = 1;
    pub const WORTH_IT: usize = 2;
}

impl Outlook {
    /// Looks at all nodes, given how many gradients come in at each.
    pub(super) fn new(graph: &Graph, arrivals: Vec<u32>) -> Outlook {
        let runs = arrivals.iter().map(|_| AtomicUsize::new(known::NOTHING)).collect();
        let (mut runs_code, mut sums, mut accumulates) = (false, false, false);
        for (node, arrivals) in graph.nodes().iter().zip(&arrivals) {
            runs_code |= is_attended(node);
            if !node.is_accumulation() {
                continue;
            }
            sums |= *arrivals > 1;
            if let Some(extra) = node.body.leaf().and_then(Tensor::existing_extra) {
                runs_code |= !extra.hooks.is_empty();
                accumulates |= extra.grad.lock().is_some();
            }
        }
        Outlook { arrivals, runs, runs_code, sums, accumulates }
    }

    /// How many gradients come in at a node.
    pub(super) fn arrivals(&self, number: u32) -> u32 {
        self.arrivals[number as usize]
    }

    /// Calls `visit` with each node that needs nothing but what a node makes, leaves aside, and with the edge that leads to it.
    #[inline]
    pub(super) fn each_heir(&self, graph: &Graph, node: &NodeRef, mut visit: impl FnMut(usize, u32)) {
        for (k, edge) in node.edges.iter().enumerate() {
            if let Some(to) = edge.node()
                && !to.is_accumulation()
                && to.outputs.len() == 1
                && let Some(number) = graph.number(to)
                && self.arrivals(number) == 1
            {
                visit(k, number);
            }
        }
    }

    /// Whether the run that begins with a node is worth handing over, and then about how many bytes its largest gradient has.
    /// Of one node it says the same whenever it is asked.
    pub(super) fn worth(&self, graph: &Graph, head: u32) -> Option<usize> {
        let mut known = self.runs[head as usize].load(Ordering::Relaxed);
        if known == known::NOTHING {
            known = self.look_along(graph, head);
        }
        known.checked_sub(known::WORTH_IT)
    }

    /// Finds out what is to be known of a run, and remembers it.
    fn look_along(&self, graph: &Graph, head: u32) -> usize {
        let (mut ns, mut size) = (0.0, 0);
        let (mut seen, mut left) = (SmallVec::<[u32; NODES]>::new(), SmallVec::<[u32; 8]>::from_elem(head, 1));
        while let Some(number) = left.pop() {
            if !is_pure(graph, number) {
                continue;
            }
            let node = &graph.nodes()[number as usize];
            ns += cost(node);
            size = ends(node).map(bytes).fold(size, usize::max);
            if ns >= WORTH + TRANSFER * size as f64 {
                return self.know(head, size.saturating_add(known::WORTH_IT));
            }
            seen.push(number);
            if seen.len() == NODES {
                break;
            }
            self.each_heir(graph, node, |_, heir| left.push(heir));
        }
        // What comes later in the run is worth no more. So none is looked at often, however many are too small.
        for number in &seen {
            self.know(*number, known::NOT_WORTH_IT);
        }
        self.know(head, known::NOT_WORTH_IT)
    }

    /// What is known of a run from now on.
    fn know(&self, head: u32, what: usize) -> usize {
        let (known, relaxed) = (&self.runs[head as usize], Ordering::Relaxed);
        match known.compare_exchange(known::NOTHING, what, relaxed, relaxed) {
            Ok(_) => what,
            Err(earlier) => earlier,
        }
    }
}

/// Whether a backward may take so long that it is worth sharing. What a node makes comes out of another or goes to a leaf, so that
/// outputs alone tell enough.
pub(super) fn is_long(graph: &Graph) -> bool {
    let mut left = GRAPH;
    graph.nodes().iter().any(|node| {
        left -= elements(node.outputs.iter()) * node.body.weight();
        left <= 0.0
    })
}

/// Whether a node does nothing but compute, so that nobody can tell when.
pub(super) fn is_pure(graph: &Graph, number: u32) -> bool {
    let node = &graph.nodes()[number as usize];
    !(node.is_accumulation() || is_attended(node) || graph.is_watched(number))
}

/// Whether somebody is to see what happens at a node, or does it.
fn is_attended(node: &NodeRef) -> bool {
    node.hooks().is_some() || node.body.is_foreign() || node.is_packed()
}

/// About how many nanoseconds a node's derivative takes.
fn cost(node: &NodeRef) -> f64 {
    elements(node.outputs.iter()).max(elements(ends(node))) * node.body.weight()
}

fn elements<'a>(metas: impl Iterator<Item = &'a Meta>) -> f64 {
    metas.map(|meta| numel(&meta.sizes) as f64).sum()
}

fn bytes(meta: &Meta) -> usize {
    numel(&meta.sizes).saturating_mul(meta.dtype.size())
}

/// What the gradients are for that a node makes.
fn ends(node: &NodeRef) -> impl Iterator<Item = &Meta> {
    node.edges.iter().filter_map(|edge| edge.node()?.outputs.get(edge.nr as usize))
}
