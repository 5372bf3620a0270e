//! One run of the engine over one graph.

use super::accumulate::accumulate;
use crate::autograd::hooks::run_tensor_hook;
use crate::autograd::mode::GradMode;
use crate::autograd::node::{Call, Edge, Grads, NodeRef};
use crate::error::{Error, Result, bail};
use crate::ops;
use crate::shape::expandable;
use crate::tensor::Tensor;
use smallvec::SmallVec;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Asked between nodes whether the user wants to stop.
static INTERRUPT: OnceLock<fn() -> Result<()>> = OnceLock::new();

/// Installs the question whether the user has interrupted; an error stops the backward.
pub fn set_interrupt_hook(hook: fn() -> Result<()>) {
    let _ = INTERRUPT.set(hook);
}

/// How many nodes run between two such questions.
const NODES_PER_POLL: u32 = 64;

static NEXT_TASK: AtomicU32 = AtomicU32::new(1);

/// A node that takes part, with the gradients that have come in.
struct Entry {
    node: NodeRef,
    /// Edges into the node whose gradient is not in yet.
    waiting: u32,
    /// Whether the node is to run; if only some inputs are asked for, most nodes need not.
    needed: bool,
    grads: Grads,
}

/// One backward: the nodes reachable from its roots, numbered.
pub(super) struct Task {
    id: u32,
    entries: Vec<Entry>,
    /// Numbers of nodes that carry another backward's mark.
    elsewhere: HashMap<usize, u32>,
    /// For captured outputs `(node number, output)` the place in the result.
    captures: HashMap<(u32, u32), SmallVec<[usize; 1]>>,
    keep_graph: bool,
    create_graph: bool,
}

impl Task {
    /// Numbers what is reachable from the roots and counts the edges into each node.
    pub(super) fn new(roots: &[Edge], keep_graph: bool, create_graph: bool) -> Task {
        let mut id = NEXT_TASK.fetch_add(1, Ordering::Relaxed);
        if id == 0 {
            id = NEXT_TASK.fetch_add(1, Ordering::Relaxed);
        }
        let mut task = Task {
            id,
            entries: Vec::new(),
            elsewhere: HashMap::new(),
            captures: HashMap::new(),
            keep_graph,
            create_graph,
        };
        for root in roots {
            if let Some(node) = root.node() {
                task.number_or_add(node);
            }
        }
        let mut next = 0;
        while next < task.entries.len() {
            let node = task.entries[next].node.clone();
            for edge in &node.edges {
                if let Some(to) = edge.node() {
                    let at = task.number_or_add(to);
                    task.entries[at as usize].waiting += 1;
                }
            }
            next += 1;
        }
        task
    }

    fn mark(&self, number: u32) -> u64 {
        (self.id as u64) << 32 | number as u64
    }

    /// The number of a node that takes part.
    #[inline]
    fn number(&self, node: &NodeRef) -> Option<u32> {
        let mark = node.mark.load(Ordering::Relaxed);
        if (mark >> 32) as u32 == self.id {
            return Some(mark as u32);
        }
        if self.elsewhere.is_empty() {
            None
        } else {
            self.elsewhere.get(&(Arc::as_ptr(node).cast::<()>() as usize)).copied()
        }
    }

    fn number_or_add(&mut self, node: &NodeRef) -> u32 {
        if let Some(number) = self.number(node) {
            return number;
        }
        let number = self.entries.len() as u32;
        if node.mark.compare_exchange(0, self.mark(number), Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.elsewhere.insert(Arc::as_ptr(node).cast::<()>() as usize, number);
        }
        self.entries.push(Entry { node: node.clone(), waiting: 0, needed: true, grads: Grads::new() });
        number
    }

    /// Restricts the run to what the given nodes' gradients need. `run` says whether the target itself runs (a leaf that
    /// accumulates) or is only captured into place `k` of the result.
    pub(super) fn restrict(&mut self, targets: &[(Edge, bool)]) {
        self.entries.iter_mut().for_each(|e| e.needed = false);
        let mut wanted = vec![false; self.entries.len()];
        for (k, (edge, run)) in targets.iter().enumerate() {
            let Some(number) = edge.node().and_then(|n| self.number(n)) else { continue };
            wanted[number as usize] = true;
            if *run {
                self.entries[number as usize].needed = true;
            } else {
                self.captures.entry((number, edge.nr)).or_default().push(k);
            }
        }
        // Nodes are newer than those they point to, so ascending sequence numbers see children before parents; leaves,
        // which have the largest number, point to nothing.
        let mut order: Vec<u32> = (0..self.entries.len() as u32).collect();
        order.sort_unstable_by_key(|&i| self.entries[i as usize].node.sequence);
        for i in order {
            let node = self.entries[i as usize].node.clone();
            let on_path =
                node.edges.iter().filter_map(|e| e.node().and_then(|n| self.number(n))).any(|to| wanted[to as usize]);
            if on_path {
                wanted[i as usize] = true;
                self.entries[i as usize].needed = true;
            }
        }
    }

    /// Runs everything. `results[k]` receives what was captured for place k.
    pub(super) fn run(mut self, roots: Vec<(Edge, Tensor)>, results: &mut [Option<Tensor>]) -> Result<()> {
        let _mode = GradMode::set(self.create_graph);
        for (edge, grad) in roots {
            if let Some(number) = edge.node().and_then(|n| self.number(n)) {
                self.add(number, edge.nr, grad)?;
            }
        }
        let mut ready = BinaryHeap::new();
        for (number, entry) in self.entries.iter().enumerate() {
            if entry.waiting == 0 {
                ready.push((entry.node.sequence, number as u32));
            }
        }
        let mut polled = 0;
        while let Some((_, number)) = ready.pop() {
            polled += 1;
            if polled % NODES_PER_POLL == 0
                && let Some(ask) = INTERRUPT.get()
            {
                ask()?;
            }
            let node = self.entries[number as usize].node.clone();
            let grads = self.step(number, &node, results)?;
            self.send(&node, grads, &mut ready)?;
        }
        Ok(())
    }

    /// Runs one node and returns the gradients of its inputs.
    fn step(&mut self, number: u32, node: &NodeRef, results: &mut [Option<Tensor>]) -> Result<Grads> {
        let entry = &mut self.entries[number as usize];
        let needed = entry.needed;
        let mut grads = std::mem::take(&mut entry.grads);
        grads.resize(node.outputs.len(), None);
        self.before(node, &mut grads)?;
        if !self.captures.is_empty() {
            for (nr, grad) in grads.iter().enumerate() {
                for &k in self.captures.get(&(number, nr as u32)).into_iter().flatten() {
                    results[k] = grad.clone();
                }
            }
        }
        if !needed {
            return Ok(Grads::new());
        }
        let needs: SmallVec<[bool; 4]> =
            node.edges.iter().map(|e| e.node().is_some_and(|n| self.is_wanted(n))).collect();
        let hooks = node.hooks();
        if let Some(hooks) = hooks {
            for (_, hook) in hooks.pre.lock().clone() {
                if let Some(new) = hook.call(&grads, &grads)? {
                    grads = new;
                }
            }
        }
        let seen = hooks.filter(|h| !h.post.lock().is_empty()).map(|_| grads.clone());
        let mut out = node.body.backward(&Call { node, needs: &needs }, grads)?;
        if let (Some(hooks), Some(seen)) = (hooks, seen) {
            for (_, hook) in hooks.post.lock().clone() {
                if let Some(new) = hook.call(&out, &seen)? {
                    out = new;
                }
            }
        }
        if !self.keep_graph {
            node.body.release();
        }
        Ok(out)
    }

    fn is_wanted(&self, node: &NodeRef) -> bool {
        self.number(node).is_some_and(|n| {
            self.entries[n as usize].needed
                || (!self.captures.is_empty()
                    && (0..node.outputs.len() as u32).any(|nr| self.captures.contains_key(&(n, nr))))
        })
    }

    /// What happens to the gradients of a node's outputs before it runs: tensor hooks, then retained gradients.
    fn before(&self, node: &NodeRef, grads: &mut Grads) -> Result<()> {
        if let Some(leaf) = node.body.leaf() {
            if let Some(extra) = leaf.existing_extra() {
                for (_, hook) in extra.hooks.tensor.lock().clone() {
                    if let Some(grad) = grads[0].take() {
                        grads[0] = Some(run_tensor_hook(&*hook, grad)?);
                    }
                }
            }
            return Ok(());
        }
        let Some(hooks) = node.hooks() else { return Ok(()) };
        for (_, nr, hook) in hooks.tensor.lock().clone() {
            if let Some(grad) = grads[nr as usize].take() {
                grads[nr as usize] = Some(run_tensor_hook(&*hook, grad)?);
            }
        }
        for (nr, tensor) in hooks.retain.lock().clone() {
            if let (Some(tensor), Some(grad)) = (tensor.upgrade(), &grads[nr as usize]) {
                retain(&Tensor(tensor), grad)?;
            }
        }
        Ok(())
    }

    /// Sends gradients along the edges of a node, and queues the nodes for which nothing more is to come.
    fn send(&mut self, node: &NodeRef, mut grads: Grads, ready: &mut BinaryHeap<(u64, u32)>) -> Result<()> {
        for (k, edge) in node.edges.iter().enumerate() {
            let Some(to) = edge.node() else { continue };
            let Some(to_number) = self.number(to) else { continue };
            if let Some(grad) = grads.get_mut(k).and_then(Option::take) {
                let grad = fit(node, k, edge, grad)?;
                self.add(to_number, edge.nr, grad)?;
            }
            let entry = &mut self.entries[to_number as usize];
            entry.waiting -= 1;
            if entry.waiting == 0 {
                ready.push((entry.node.sequence, to_number));
            }
        }
        Ok(())
    }

    /// Adds a gradient to an input buffer.
    fn add(&mut self, number: u32, nr: u32, grad: Tensor) -> Result<()> {
        let create_graph = self.create_graph;
        let entry = &mut self.entries[number as usize];
        if entry.grads.len() <= nr as usize {
            entry.grads.resize(entry.node.outputs.len().max(nr as usize + 1), None);
        }
        let slot = &mut entry.grads[nr as usize];
        *slot = Some(match slot.take() {
            None => grad,
            Some(sum) if !create_graph && ops::is_exclusive(&sum) => {
                ops::add_assign(&sum, &grad)?;
                sum
            }
            Some(sum) => ops::sum_of(&sum, &grad)?,
        });
        Ok(())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        for (number, entry) in self.entries.iter().enumerate() {
            let mine = self.mark(number as u32);
            let _ = entry.node.mark.compare_exchange(mine, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        // Newest first, so that each node goes while those it points to are still held here.
        self.entries.drain(..).for_each(drop);
    }
}

/// Keeps a non-leaf's gradient.
fn retain(tensor: &Tensor, grad: &Tensor) -> Result<()> {
    let kept = match tensor.grad() {
        None => grad.clone(),
        Some(old) => ops::sum_of(&old, grad)?,
    };
    tensor.set_grad(Some(if crate::autograd::is_grad_enabled() { kept } else { kept.detach() }))
}

/// Makes a gradient fit the output it belongs to: reduced if it is broadcast, cast if it is of another dtype.
#[inline]
fn fit(node: &NodeRef, k: usize, edge: &Edge, grad: Tensor) -> Result<Tensor> {
    let Some(meta) = edge.node().and_then(|n| n.outputs.get(edge.nr as usize)) else { return Ok(grad) };
    let (same_shape, same_dtype) = {
        let body = grad.body();
        (body.layout.sizes == meta.sizes, body.dtype == meta.dtype)
    };
    if same_shape && same_dtype {
        return Ok(grad);
    }
    misfit(node, k, &meta.sizes, meta.dtype, grad)
}

#[cold]
fn misfit(node: &NodeRef, k: usize, sizes: &[usize], dtype: crate::DType, mut grad: Tensor) -> Result<Tensor> {
    if grad.sizes()[..] != *sizes {
        if !expandable(sizes, &grad.sizes()) {
            return Err(Error::runtime(
                "backward",
                format!(
                    "Function {} returned an invalid gradient at index {k} - got {:?} but expected shape compatible with {sizes:?}",
                    node.name(),
                    grad.sizes()
                ),
            ));
        }
        grad = ops::sum_to_size(&grad, sizes)?;
    }
    if grad.dtype() != dtype {
        if !grad.dtype().is_float() {
            bail!(runtime "backward", "Function {} returned an invalid gradient at index {k} - expected type torch.{}Tensor but got torch.{}Tensor", node.name(), dtype.legacy(), grad.dtype().legacy());
        }
        grad = ops::to_dtype(&grad, dtype)?;
    }
    Ok(grad)
}

/// Accumulates a captured gradient into a non-leaf's `.grad`, for `backward(inputs=...)`.
pub(super) fn accumulate_captured(tensor: &Tensor, grad: Tensor) -> Result<()> {
    accumulate(tensor, grad)
}
