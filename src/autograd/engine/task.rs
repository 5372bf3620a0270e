//! One run of the engine over one graph.

use super::ahead::{Sharing, Taken};
use super::fit::fit;
use super::ready::Ready;
use crate::autograd::hooks::{run_tensor_hook, snapshot};
use crate::autograd::mode::{GradMode, is_multithreading_enabled};
use crate::autograd::node::{Call, Edge, Grads, Node, NodeRef, Zeros};
use crate::autograd::observe::{Observer, Unobserved, observer};
use crate::error::{Error, Result, bail};
use crate::ops;
use crate::sync::lock::Mutex;
use crate::tensor::Tensor;
use crate::threads::trace;
use once_cell::race::OnceBox;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Asked between nodes whether the user wants to stop.
static INTERRUPT: OnceLock<fn() -> Result<()>> = OnceLock::new();

/// Installs the question whether the user has interrupted; an error stops the backward.
pub fn set_interrupt_hook(hook: fn() -> Result<()>) {
    let _ = INTERRUPT.set(hook);
}

/// Asks.
fn interrupted() -> Result<()> {
    INTERRUPT.get().map_or(Ok(()), |ask| ask())
}

/// How many nodes run between two such questions.
const NODES_PER_POLL: u32 = 64;

/// Asks at every so many nodes that are looked at, but not run.
fn interrupted_at(number: usize) -> Result<()> {
    if number % 4096 == 4095 { interrupted() } else { Ok(()) }
}

static NEXT_TASK: AtomicU32 = AtomicU32::new(1);

/// How far the nodes are, by number.
pub(super) struct Progress {
    /// Edges into the node whose gradient is not in yet.
    pub(super) waiting: Vec<u32>,
    /// What has come in for the node's outputs.
    pub(super) grads: Vec<Grads>,
    /// Outputs `(node number, output)` for which zero has come in. It is not among the gradients; see [`Zeros`].
    pub(super) zeros: HashSet<(u32, u32), Hashed>,
}

/// Room for so many nodes is made at first: most backwards that count every instruction have no more.
const FEW: usize = 4;

/// How tables of nodes are hashed: always alike, for which nothing has to be asked of the thread.
type Hashed = BuildHasherDefault<DefaultHasher>;

/// What a backward begins with: edges to its first nodes, and the gradients that go there.
pub(super) type Roots = SmallVec<[(Edge, Tensor); 1]>;

/// One backward: the nodes reachable from its roots, numbered, and how far each is. Nobody else has the graph before it runs.
pub(super) struct Task {
    graph: Arc<Graph>,
    progress: Progress,
}

/// What does not change while a backward runs.
pub(super) struct Graph {
    id: u32,
    nodes: Vec<NodeRef>,
    /// Numbers of nodes that carry another backward's mark.
    elsewhere: HashMap<usize, u32, Hashed>,
    /// For captured outputs `(node number, output)` the place in the result.
    captures: HashMap<(u32, u32), SmallVec<[usize; 1]>, Hashed>,
    /// Which nodes are to run, if not all: when only some inputs are asked for, most need not.
    needed: Option<Vec<bool>>,
    pub(super) keep_graph: bool,
    pub(super) create_graph: bool,
    /// Who watches the nodes.
    observer: Option<Arc<dyn Observer>>,
    /// What to run when all nodes have run, if anything was ever queued.
    callbacks: OnceBox<Mutex<VecDeque<Callback>>>,
}

/// Runs once, after a whole backward.
pub type Callback = Box<dyn FnOnce() -> Result<()> + Send>;

/// What a node bears while it is this number in that backward.
fn mark(id: u32, number: u32) -> u64 {
    (id as u64) << 32 | number as u64
}

impl Graph {
    /// The nodes, by number.
    pub(super) fn nodes(&self) -> &[NodeRef] {
        &self.nodes
    }

    /// Whether threads may share it: nobody watches, nothing is recorded, the user has not forbidden it.
    pub(super) fn may_share(&self) -> bool {
        self.observer.is_none() && !self.create_graph && is_multithreading_enabled()
    }

    /// Whether more happens at a node than that it runs: it is left out, or gradients are captured there.
    pub(super) fn is_watched(&self, number: u32) -> bool {
        let left_out = self.needed.as_ref().is_some_and(|needed| !needed[number as usize]);
        let captured = || {
            let outputs = self.nodes[number as usize].outputs.len() as u32;
            (0..outputs).any(|nr| self.captures.contains_key(&(number, nr)))
        };
        left_out || (!self.captures.is_empty() && captured())
    }

    /// The number of a node that takes part.
    #[inline]
    pub(super) fn number(&self, node: &NodeRef) -> Option<u32> {
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

    /// Numbers a node that has no number yet.
    #[inline(always)]
    fn add(&mut self, node: NodeRef) {
        let number = self.nodes.len() as u32;
        if node.mark.compare_exchange(0, mark(self.id, number), Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.elsewhere.insert(Arc::as_ptr(&node).cast::<()>() as usize, number);
        }
        self.nodes.push(node);
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // Newest first, so that each node goes while those it points to are still held here; and each looked at once.
        let id = self.id;
        for (number, node) in self.nodes.drain(..).enumerate() {
            // Only its own backward changes a mark that is set.
            if node.mark.load(Ordering::Relaxed) == mark(id, number as u32) {
                node.mark.store(0, Ordering::Relaxed);
            }
        }
    }
}

thread_local! {
    /// The backwards that run on this thread, each from inside a hook or function of the one before.
    static RUNNING: RefCell<Vec<Arc<Graph>>> = const { RefCell::new(Vec::new()) };
}

/// A backward while it runs, where hooks can ask about it.
struct Running(Arc<Graph>);

impl Running {
    fn start(graph: Arc<Graph>) -> Running {
        RUNNING.with_borrow_mut(|all| all.push(graph.clone()));
        Running(graph)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(RUNNING.with_borrow_mut(Vec::pop));
    }
}

/// The number of the backward that runs on this thread; the innermost, if there are several.
pub fn current_task() -> Option<u32> {
    RUNNING.with_borrow(|all| all.last().map(|graph| graph.id))
}

/// How many backwards run on this thread, each inside the one before.
pub fn nesting() -> usize {
    RUNNING.with_borrow(Vec::len)
}

/// Whether that backward runs all nodes, and not only what some inputs need. True if there is none.
pub fn runs_whole() -> bool {
    RUNNING.with_borrow(|all| all.last().is_none_or(|graph| graph.needed.is_none()))
}

/// Whether that backward runs a node, or captures its gradient.
pub fn will_run(node: &NodeRef) -> Option<bool> {
    let graph = RUNNING.with_borrow(|all| all.last().cloned())?;
    Some(match &graph.needed {
        None => graph.number(node).is_some(),
        Some(needed) => graph.is_wanted(node, needed),
    })
}

/// Has the backward that runs on this thread call a function when it is done, before it returns to its caller; functions
/// queued by the function follow.
///
/// # Errors
/// `RuntimeError` if none runs.
pub fn queue_callback(callback: Callback) -> Result<()> {
    match RUNNING.with_borrow(|all| all.last().cloned()) {
        Some(graph) => graph.callbacks.get_or_init(Box::default).lock().push_back(callback),
        None => bail!(runtime "queue_callback", "Final callbacks can only be installed during backward pass."),
    }
    Ok(())
}

/// The graph of a backward that does not run yet.
fn own(graph: &mut Arc<Graph>) -> &mut Graph {
    Arc::get_mut(graph).expect("shared only by those who run it")
}

impl Task {
    /// Numbers what is reachable from the roots by way of nodes with sequence numbers of at least `oldest`, and counts the
    /// edges into each node.
    ///
    /// # Errors
    /// If the user wants to stop.
    pub(super) fn new(roots: &Roots, oldest: u64, keep_graph: bool, create_graph: bool) -> Result<Task> {
        let mut id = NEXT_TASK.fetch_add(1, Ordering::Relaxed);
        if id == 0 {
            id = NEXT_TASK.fetch_add(1, Ordering::Relaxed);
        }
        let mut graph = Arc::new(Graph {
            id,
            nodes: Vec::with_capacity(FEW),
            elsewhere: HashMap::default(),
            captures: HashMap::default(),
            needed: None,
            keep_graph,
            create_graph,
            observer: observer(),
            callbacks: OnceBox::new(),
        });
        let mut waiting = Vec::with_capacity(FEW);
        let all = own(&mut graph);
        for (root, _) in roots {
            if let Some(node) = root.node()
                && all.number(node).is_none()
            {
                all.add(node.clone());
                waiting.push(0);
            }
        }
        let mut next = 0;
        while next < all.nodes.len() {
            for k in 0..all.nodes[next].edges.len() {
                let Some(to) = all.nodes[next].edges[k].node() else { continue };
                if to.sequence < oldest {
                    continue;
                }
                match all.number(to) {
                    Some(number) => waiting[number as usize] += 1,
                    None => {
                        let to = to.clone();
                        all.add(to);
                        waiting.push(1);
                    }
                }
            }
            next += 1;
            interrupted_at(next)?;
        }
        let grads = all.nodes.iter().map(|_| Grads::new()).collect();
        Ok(Task { graph, progress: Progress { waiting, grads, zeros: HashSet::default() } })
    }

    /// Restricts the run to what the given nodes' gradients need. `run` says whether the target itself runs (a leaf that
    /// accumulates) or is only captured into place `k` of the result.
    ///
    /// # Errors
    /// If the user wants to stop.
    pub(super) fn restrict(&mut self, targets: &[(Edge, bool)]) -> Result<()> {
        let graph = own(&mut self.graph);
        let mut needed = vec![false; graph.nodes.len()];
        let mut wanted = vec![false; graph.nodes.len()];
        for (k, (edge, run)) in targets.iter().enumerate() {
            let Some(number) = edge.node().and_then(|n| graph.number(n)) else { continue };
            wanted[number as usize] = true;
            if *run {
                needed[number as usize] = true;
            } else {
                graph.captures.entry((number, edge.nr)).or_default().push(k);
            }
        }
        // Nodes are newer than those they point to, so ascending sequence numbers see children before parents; leaves,
        // which have the largest number, point to nothing.
        let mut order = Vec::with_capacity(graph.nodes.len());
        for (number, node) in graph.nodes.iter().enumerate() {
            interrupted_at(number)?;
            order.push((node.sequence, number as u32));
        }
        order.sort_unstable();
        for (at, (_, i)) in order.into_iter().enumerate() {
            interrupted_at(at)?;
            let edges = &graph.nodes[i as usize].edges;
            let mut ends = edges.iter().filter_map(|e| e.node().and_then(|n| graph.number(n)));
            if ends.any(|to| wanted[to as usize]) {
                wanted[i as usize] = true;
                needed[i as usize] = true;
            }
        }
        graph.needed = Some(needed);
        Ok(())
    }

    /// Runs everything. `results[k]` receives what was captured for place k.
    pub(super) fn run(self, roots: Roots, results: &mut [Option<Tensor>]) -> Result<()> {
        let _mode = GradMode::set(self.graph.create_graph);
        let Task { graph, mut progress } = self;
        let graph = Running::start(graph);
        let graph = &graph.0;
        let progress = &mut progress;
        let mut sharing = Sharing::before(graph, &progress.waiting, &roots);
        for (k, (edge, grad)) in roots.into_iter().enumerate() {
            if let Some((node, number)) = edge.node().and_then(|n| Some((n, graph.number(n)?))) {
                let grad = fit(node, k, &edge, grad)?;
                graph.receive(node, edge.nr, grad, &mut progress.grads[number as usize])?;
            }
        }
        let mut ready = Ready::default();
        for (number, (node, waiting)) in graph.nodes.iter().zip(&progress.waiting).enumerate() {
            if *waiting == 0 {
                ready.push(node.sequence, number as u32);
            }
        }
        let mut polled = 0;
        while let Some(number) = ready.pop() {
            polled += 1;
            if polled % NODES_PER_POLL == 0 {
                interrupted()?;
            }
            let node = &graph.nodes[number as usize];
            if let Sharing::Yes(ahead) = &sharing {
                ahead.is_at_home()?;
                if ahead.has_passed(number) {
                    graph.pass(number, ahead.rechecks(), progress, &mut ready).map_err(|e| in_backward(e, node))?;
                    continue;
                }
            }
            let mut grads = std::mem::take(&mut progress.grads[number as usize]);
            let zeros = Zeros::default();
            // Leaves come first, so that what waits behind another node is no leaf: there is a choice.
            if ready.has_others() && !node.is_accumulation() {
                sharing.decide(graph, &mut ready);
            }
            let mut done = None;
            let mut recheck = false;
            if let Sharing::Yes(ahead) = &sharing {
                recheck = ahead.rechecks();
                ahead.offer(|| ready.fresh_after(node.sequence), &mut progress.grads);
                match ahead.take(number, interrupted)? {
                    Taken::Not => {}
                    Taken::Back(back) => grads = back,
                    Taken::Done(result) => done = Some(result),
                }
            }
            let _span = trace::span(if done.is_some() { RETIRE } else { COMPUTE }, || trace_name(node, number));
            let grads = if let Some(done) = done {
                graph.retire(number, recheck, done, &zeros, progress)
            } else if progress.zeros.is_empty() {
                graph.step(number, grads, &zeros, results)
            } else {
                graph.step_among_zeros(number, grads, &zeros, &progress.zeros, results)
            };
            let grads = grads.map_err(|e| in_backward(e, node))?;
            graph.send(node, grads, &zeros, progress, &mut ready).map_err(|e| in_backward(e, node))?;
        }
        graph.finish()
    }
}

impl Graph {
    /// Runs one node, given the gradients of its outputs, and returns those of its inputs.
    #[inline]
    fn step(&self, number: u32, mut grads: Grads, zeros: &Zeros, results: &mut [Option<Tensor>]) -> Result<Grads> {
        let node = &self.nodes[number as usize];
        if self.needed.as_ref().is_some_and(|needed| !self.is_wanted(node, needed)) {
            return Ok(Grads::new());
        }
        // To find what a reference to a node leads to takes a moment.
        let node: &Node = node;
        if grads.len() < node.outputs.len() {
            grads.resize(node.outputs.len(), None);
        }
        // As in PyTorch: where the gradient goes on from here, it is captured before the hooks of its tensor replace it.
        let goes_on = self.needed.as_ref().is_none_or(|needed| needed[number as usize]);
        if goes_on {
            self.capture(number, &grads, results);
        }
        before(node, &mut grads)?;
        if !goes_on {
            self.capture(number, &grads, results);
            return Ok(Grads::new());
        }
        let out = self.compute(number, grads, zeros, !self.keep_graph)?;
        if !self.keep_graph {
            node.body.release();
        }
        Ok(out)
    }

    /// The gradients of a node's inputs from those of its outputs. `last` says that the node is released right after.
    #[inline]
    pub(super) fn compute(&self, number: u32, grads: Grads, zeros: &Zeros, last: bool) -> Result<Grads> {
        let node = &self.nodes[number as usize];
        let asks = |needed: &Vec<bool>| {
            node.edges.iter().map(|e| e.node().is_some_and(|n| self.is_wanted(n, needed))).collect()
        };
        let asked: Option<SmallVec<[bool; 4]>> = self.needed.as_ref().map(asks);
        let own: &Node = node;
        let attended = own.hooks().is_some() || self.observer.is_some();
        let last = last && !attended;
        let call = Call { node, asked: asked.as_deref(), last, create_graph: self.create_graph, zeros };
        if attended { self.attended(&call, grads) } else { derive(&call, grads) }
    }

    /// A node's gradient `k` as the output that it is for wants it.
    pub(super) fn fitting(&self, node: &NodeRef, k: usize, grad: Tensor) -> Result<Tensor> {
        if node.body.fits() { Ok(grad) } else { fit(node, k, &node.edges[k], grad) }
    }

    /// Keeps the gradients of a node's outputs that were asked for.
    #[inline]
    fn capture(&self, number: u32, grads: &Grads, results: &mut [Option<Tensor>]) {
        if self.captures.is_empty() {
            return;
        }
        for (nr, grad) in grads.iter().enumerate() {
            for &k in self.captures.get(&(number, nr as u32)).into_iter().flatten() {
                results[k] = grad.clone();
            }
        }
    }

    /// [`step`](Self::step) where zero has come in for some outputs. A node that nothing else reaches passes zero on without
    /// running, unless somebody is to see it: a leaf, a hook, a custom function, a captured gradient get zeros.
    #[cold]
    fn step_among_zeros(
        &self,
        number: u32,
        mut grads: Grads,
        zeros: &Zeros,
        known: &HashSet<(u32, u32), Hashed>,
        results: &mut [Option<Tensor>],
    ) -> Result<Grads> {
        let node = &self.nodes[number as usize];
        let is_zero = |nr: usize| known.contains(&(number, nr as u32));
        grads.resize(grads.len().max(node.outputs.len()), None);
        let seen = node.is_accumulation() || node.hooks().is_some() || node.body.is_foreign();
        if !seen && grads.iter().all(Option::is_none) && (0..grads.len()).any(is_zero) {
            zeros.add_all();
            for (nr, meta) in node.outputs.iter().enumerate().filter(|(nr, _)| is_zero(*nr)) {
                for &k in self.captures.get(&(number, nr as u32)).into_iter().flatten() {
                    results[k] = Some(ops::zeros(&meta.sizes, meta.dtype)?);
                }
            }
            return Ok(Grads::new());
        }
        for (nr, meta) in node.outputs.iter().enumerate() {
            let wanted = seen || self.captures.contains_key(&(number, nr as u32));
            if wanted && grads[nr].is_none() && is_zero(nr) {
                grads[nr] = Some(ops::zeros(&meta.sizes, meta.dtype)?);
            }
        }
        self.step(number, grads, zeros, results)
    }

    /// Runs a node between its hooks, and before the eyes of an observer.
    fn attended(&self, call: &Call<'_>, mut grads: Grads) -> Result<Grads> {
        let node = call.node;
        let hooks = node.hooks();
        for (_, hook) in hooks.map(|h| snapshot(&h.pre)).unwrap_or_default() {
            if let Some(new) = hook.call(&grads, &grads)? {
                grads = new;
            }
        }
        let post = hooks.is_some_and(|h| !h.post.lock().is_empty());
        let seen = (post || self.observer.is_some()).then(|| grads.clone());
        let mut out = {
            // What a custom function does is the user's; the inside of other nodes is not.
            let _inside = (self.observer.is_some() && !node.body.is_foreign()).then(Unobserved::new);
            derive(call, grads)?
        };
        let Some(seen) = seen else { return Ok(out) };
        if let Some(observer) = &self.observer {
            let (_mode, _inside) = (GradMode::set(false), Unobserved::new());
            observer.node(node, &seen, &out)?;
        }
        for (_, hook) in hooks.map(|h| snapshot(&h.post)).unwrap_or_default() {
            if let Some(new) = hook.call(&out, &seen)? {
                out = new;
            }
        }
        Ok(out)
    }

    /// Runs what was queued for the end. The first error is the backward's.
    fn finish(&self) -> Result<()> {
        loop {
            let next = self.callbacks.get().and_then(|queue| queue.lock().pop_front());
            let Some(callback) = next else { return Ok(()) };
            callback()?;
        }
    }

    fn is_wanted(&self, node: &NodeRef, needed: &[bool]) -> bool {
        self.number(node).is_some_and(|n| {
            needed[n as usize]
                || (!self.captures.is_empty()
                    && (0..node.outputs.len() as u32).any(|nr| self.captures.contains_key(&(n, nr))))
        })
    }
}

/// What a span of a trace is for: computing a node, taking over what another thread computed.
pub(super) const COMPUTE: &str = "compute";
const RETIRE: &str = "retire";

/// A node, as a trace names it.
#[cold]
pub(super) fn trace_name(node: &NodeRef, number: u32) -> String {
    format!("{} #{number}", node.name())
}

/// Says which node an error comes from, and which line recorded it.
#[cold]
fn in_backward(error: Error, node: &NodeRef) -> Error {
    error.in_node(node.name(), node.site)
}

/// What happens to the gradients of a node's outputs before it runs: tensor hooks, then retained gradients.
#[inline]
fn before(node: &Node, grads: &mut Grads) -> Result<()> {
    if node.is_accumulation() {
        if let Some(hooks) = node.body.leaf().and_then(|leaf| leaf.existing_extra()?.hooks.existing()) {
            for (_, hook) in snapshot(&hooks.tensor) {
                grads[0] = run_tensor_hook(&*hook, grads[0].take())?;
            }
        }
        return Ok(());
    }
    let Some(hooks) = node.hooks() else { return Ok(()) };
    for (_, nr, hook) in snapshot(&hooks.tensor) {
        grads[nr as usize] = run_tensor_hook(&*hook, grads[nr as usize].take())?;
    }
    for (nr, tensor) in snapshot(&hooks.retain) {
        if let (Some(tensor), Some(grad)) = (tensor.upgrade(), &grads[nr as usize]) {
            retain(&Tensor(tensor), grad)?;
        }
    }
    Ok(())
}

/// A node's derivative. What it saved has to be as it was, also what it need not read for the gradients that are asked for.
#[inline]
fn derive(call: &Call<'_>, grads: Grads) -> Result<Grads> {
    let node = call.node;
    if let Some(asked) = call.asked
        && node.edges.iter().zip(asked).any(|(edge, asked)| edge.is_some() && !asked)
        && !node.body.is_foreign()
        && !node.is_packed()
    {
        node.body.check_saved(node)?;
    }
    node.body.backward(call, grads)
}

/// Keeps a non-leaf's gradient, in memory of its own.
fn retain(tensor: &Tensor, grad: &Tensor) -> Result<()> {
    let kept = match tensor.grad() {
        None if grad.is_contiguous() => grad.copy()?,
        None => grad.contiguous(None)?,
        Some(old) => ops::sum_of(&old, grad)?,
    };
    tensor.set_grad(Some(if crate::autograd::is_grad_enabled() { kept } else { kept.detach() }))
}
