//! Nodes and edges: the graph. A node is one allocation, an [`Arc`] of a head that the engine reads and a body that knows
//! its derivative. Graphs are dropped iteratively, however deep.

use super::held::Visit;
use super::hooks::NodeHooks;
use super::saved::{self, SavedTensor};
use crate::callsite::CallSite;
use crate::dtype::DType;
use crate::error::Result;
use crate::few::{MostlyOne, MostlyTwo};
use crate::shape::Dims;
use crate::tensor::{Body, Tensor};
use once_cell::race::OnceBox;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Gradients, one per edge or per output; `None` is undefined, which is not zeros.
pub type Grads = SmallVec<[Option<Tensor>; 2]>;

/// A shared node.
pub type NodeRef = Arc<Node>;

/// A step of the graph.
pub struct Node<B: ?Sized = dyn Backward> {
    /// Where its gradients go, one edge per differentiable input in argument order.
    pub edges: Edges,
    /// What each of its outputs is: the gradients that come in must have these shapes and dtypes.
    pub outputs: MostlyOne<Meta>,
    /// Nodes made later have larger numbers, and larger ones than the nodes they point to.
    pub sequence: u64,
    /// The line of the user's program that recorded it.
    pub site: CallSite,
    /// The engine's mark: which backward holds the node, and its number there.
    pub(super) mark: AtomicU64,
    /// What few nodes have.
    extra: OnceBox<Extra>,
    /// What it computes.
    pub body: B,
}

/// A node's edges.
pub type Edges = MostlyTwo<Edge>;

/// What few nodes have: hooks, a face.
#[derive(Default)]
struct Extra {
    hooks: OnceLock<NodeHooks>,
    /// The Python object that stands for the node, not owned.
    python: AtomicPtr<()>,
}

/// Shape and dtype of a node's output.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Sizes.
    pub sizes: Dims,
    /// Element type.
    pub dtype: DType,
}

/// What a call of [`Backward::backward`] may know.
pub struct Call<'a> {
    /// The node itself: saved results find their history here.
    pub node: &'a NodeRef,
    /// For each edge whether its gradient is asked for; if not given, all that lead to a node.
    pub asked: Option<&'a [bool]>,
    /// Whether the node is released right after and nobody looks at it in between, so that it may use up what it saved.
    pub last: bool,
    /// Whether the backward is recorded; it is the grad mode, too.
    pub create_graph: bool,
    /// Where the node says which of the gradients it leaves out are zero.
    pub zeros: &'a Zeros,
}

/// Edges, as a set, along which no gradient goes because it is zero whatever the values: that of a step, or of a derivative
/// which is constant. It is not sent as zeros, which a node further down might multiply by infinity, nor is it undefined:
/// what it leads to was used, and has a gradient.
#[derive(Default)]
pub struct Zeros(Cell<u64>);

impl Zeros {
    /// All edges.
    const ALL: u64 = u64::MAX;

    /// Adds edge `k`.
    pub fn add(&self, k: usize) {
        // Only nodes of formulas, which have few operands, say it of single edges.
        self.0.set(self.0.get() | if k < 63 { 1 << k } else { Zeros::ALL });
    }

    /// Adds all edges.
    pub(super) fn add_all(&self) {
        self.0.set(Zeros::ALL);
    }

    /// Makes it the same set as another.
    pub(super) fn copy(&self, other: &Zeros) {
        self.0.set(other.0.get());
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.get() == 0
    }

    /// Whether edge `k` is among them.
    pub(super) fn has(&self, k: usize) -> bool {
        let edges = self.0.get();
        if k < 63 { edges >> k & 1 == 1 } else { edges == Zeros::ALL }
    }
}

impl Call<'_> {
    /// Whether the gradient of edge `k` is asked for.
    #[inline]
    pub fn needs(&self, k: usize) -> bool {
        match self.asked {
            Some(asked) => asked.get(k).copied().unwrap_or(false),
            None => self.node.edges.get(k).is_some_and(Edge::is_some),
        }
    }
}

/// A node's derivative and what it keeps for it.
pub trait Backward: Send + Sync {
    /// PyTorch's name: `MulBackward0`.
    fn name(&self) -> Cow<'static, str>;

    /// Gradients of the inputs, one per edge, from those of the outputs. Runs under grad mode = `create_graph`.
    fn backward(&self, call: &Call<'_>, grads: Grads) -> Result<Grads>;

    /// Lets go of what was saved; later use is an error.
    fn release(&self) {}

    /// Whether the gradients it returns always have the shape and dtype of the outputs they are for, so that the engine need
    /// not look.
    fn fits(&self) -> bool {
        false
    }

    /// About how many nanoseconds an element takes, of its outputs or of its inputs, whichever are more. It decides which thread
    /// computes, never what.
    fn weight(&self) -> f64 {
        4.0
    }

    /// Whether it runs code of the embedding language.
    fn is_foreign(&self) -> bool {
        false
    }

    /// The leaf that this node accumulates into, if it is an `AccumulateGrad`.
    fn leaf(&self) -> Option<&Tensor> {
        None
    }

    /// The values saved for backward, by PyTorch's attribute names without the `_saved_` prefix; nothing once freed.
    fn saved(&self) -> Vec<(Cow<'static, str>, SavedAttribute)> {
        Vec::new()
    }

    /// Whether hooks have some of what was saved, so that to bring it back runs code of the embedding language.
    fn is_packed(&self) -> bool {
        self.saved().iter().any(|(_, value)| value.tensor().is_some_and(SavedTensor::is_packed))
    }

    /// Checks that nothing that was saved has changed since.
    ///
    /// # Errors
    /// `RuntimeError` if something has.
    fn check_saved(&self, node: &NodeRef) -> Result<()> {
        let saved = self.saved();
        let mut values = saved.iter().filter_map(|(_, value)| value.tensor());
        values.try_for_each(|value| value.body(node).map(drop))
    }

    /// The names that saved values may have, if they were freed.
    fn freed(&self) -> Option<Vec<Cow<'static, str>>> {
        None
    }

    /// Puts another value in the place of the tensor at place `k` of [`saved`](Self::saved). Returns false if there is none.
    fn replace_saved(&self, _k: usize, _value: SavedTensor) -> bool {
        false
    }

    /// Shows what it holds of the graph. What is not shown is never collected, and never harmed.
    fn held(&self, _visit: &mut Visit<'_>) {}

    /// The body itself, for the room that made it.
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        None
    }
}

/// A value that a node saved, as tools see it.
pub enum SavedAttribute {
    /// A tensor, to be unpacked.
    Tensor(SavedTensor),
    /// A member of a list of tensors, at this place of it; nothing where none was given.
    Member(usize, Option<SavedTensor>),
}

impl SavedAttribute {
    /// The value, if there is one.
    pub fn tensor(&self) -> Option<&SavedTensor> {
        match self {
            SavedAttribute::Tensor(value) => Some(value),
            SavedAttribute::Member(_, value) => value.as_ref(),
        }
    }
}

/// A pointer to a node's output, or to nothing. Dropping one never recurses into the graph behind it.
#[derive(Clone, Default)]
pub struct Edge {
    node: Option<NodeRef>,
    /// Which output of the node.
    pub nr: u32,
    /// No information: a byte that is always the same leaves lists of edges the others to tell one from two.
    _spare: Spare,
}

#[derive(Clone, Copy, Default)]
#[repr(u8)]
enum Spare {
    #[default]
    Always = 1,
}

impl Node {
    /// Whether hooks have some of what it saved, so that to bring that back runs code of the embedding language.
    pub(super) fn is_packed(&self) -> bool {
        saved::may_be_packed() && self.body.is_packed()
    }
}

impl Meta {
    /// Those of a tensor that is this now.
    #[inline]
    pub(crate) fn of(body: &Body) -> Meta {
        Meta { sizes: body.layout.sizes.clone(), dtype: body.dtype }
    }
}

impl Edge {
    /// An edge to output `nr` of a node.
    #[inline]
    pub fn new(node: NodeRef, nr: u32) -> Edge {
        Edge { node: Some(node), nr, _spare: Spare::Always }
    }

    /// An edge to nothing: the input does not require a gradient.
    pub const NONE: Edge = Edge { node: None, nr: 0, _spare: Spare::Always };

    /// Makes it point to output `nr` of a node. Where many edges are made this beats moving a new one into place.
    #[inline(always)]
    pub(crate) fn point(&mut self, node: NodeRef, nr: u32) {
        self.node = Some(node);
        self.nr = nr;
    }

    /// The node it points to.
    #[inline]
    pub fn node(&self) -> Option<&NodeRef> {
        self.node.as_ref()
    }

    /// Whether it points to a node.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.node.is_some()
    }
}

/// Nodes whose last edge was dropped while another node is being taken apart.
struct Trash {
    sweeping: Cell<bool>,
    nodes: RefCell<Vec<NodeRef>>,
}

thread_local! {
    static TRASH: Trash = const { Trash { sweeping: Cell::new(false), nodes: RefCell::new(Vec::new()) } };
    static SEQUENCE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

impl Drop for Edge {
    #[inline]
    fn drop(&mut self) {
        if let Some(node) = self.node.take()
            && Arc::strong_count(&node) == 1
            && !node.is_accumulation()
        {
            discard(node);
        }
    }
}

/// Drops a node that nobody else holds. Every way from node to node leads through an edge (next edges, the history of saved
/// tensors), so whatever this frees in turn queues up here instead of recursing.
pub(super) fn discard(node: NodeRef) {
    // A thread that is ending has no queue any more: there the node goes as it came.
    let _ = TRASH.try_with(|trash| {
        if trash.sweeping.replace(true) {
            // A sweep is under way below us on the stack.
            trash.nodes.borrow_mut().push(node);
            return;
        }
        let mut next = Some(node);
        while let Some(node) = next {
            drop(node);
            next = trash.nodes.borrow_mut().pop();
        }
        trash.sweeping.set(false);
    });
}

/// One counter for the process, handed out in blocks so that threads do not contend for it. A block is so long that what
/// runs on one thread without stopping for a module's hooks has but one, and so short that there are enough: 2^44.
static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);
const BLOCK: u64 = 1 << 20;

/// The least sequence number that this thread's next node can have, and the block it lies in, all of whose numbers are this
/// thread's. A node with an edge to one of a later block takes a block after that.
pub fn upcoming_sequence() -> (u64, std::ops::Range<u64>) {
    let (mut next, mut end) = SEQUENCE.get();
    if next == end {
        next = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
        end = next + BLOCK;
        SEQUENCE.set((next, end));
    }
    (next, end - BLOCK..end)
}

/// A sequence number above all those of `edges`.
#[inline]
fn next_sequence(edges: &[Edge]) -> u64 {
    let below = |n: u64| {
        edges.iter().all(|e| e.node.as_ref().is_none_or(|node| node.sequence < n || node.sequence == u64::MAX))
    };
    SEQUENCE.with(|sequence| {
        let (mut next, mut end) = sequence.get();
        if next == end || !below(next) {
            // A node from another thread may have a number of a later block: take a block above everything handed out.
            next = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
            end = next + BLOCK;
        }
        sequence.set((next + 1, end));
        next
    })
}

impl<B: Backward + 'static> Node<B> {
    /// A node with a fresh sequence number. Inlined, so that its parts are moved but once.
    #[inline(always)]
    pub fn shared(edges: Edges, outputs: MostlyOne<Meta>, body: B) -> NodeRef {
        let sequence = next_sequence(&edges);
        Node::with_sequence(edges, outputs, sequence, CallSite::here(), body)
    }

    /// A node that the engine runs as soon as it is ready: `AccumulateGrad`.
    pub(super) fn shared_first(outputs: MostlyOne<Meta>, body: B) -> NodeRef {
        Node::with_sequence(Edges::None, outputs, u64::MAX, CallSite::default(), body)
    }

    #[inline(always)]
    fn with_sequence(edges: Edges, outputs: MostlyOne<Meta>, sequence: u64, site: CallSite, body: B) -> NodeRef {
        Arc::new(Node { edges, outputs, sequence, site, mark: AtomicU64::new(0), extra: OnceBox::new(), body })
    }
}

impl Node {
    /// Whether it is a leaf's accumulation, which runs as soon as it is ready.
    #[inline]
    pub(crate) fn is_accumulation(&self) -> bool {
        self.sequence == u64::MAX
    }

    /// PyTorch's name: `MulBackward0`.
    pub fn name(&self) -> Cow<'static, str> {
        self.body.name()
    }

    /// The name of what it is the backward of, as messages give it: `Mul`.
    pub fn operation(&self) -> String {
        let name = self.name();
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        stem.strip_suffix("Backward").unwrap_or(&name).to_owned()
    }

    /// Its hooks, if any were ever registered.
    #[inline]
    pub fn hooks(&self) -> Option<&NodeHooks> {
        self.extra.get()?.hooks.get()
    }

    /// Its hooks, to register one.
    pub fn hooks_mut(&self) -> &NodeHooks {
        self.extra.get_or_init(Box::default).hooks.get_or_init(Default::default)
    }

    /// Where the Python object that stands for it is noted, if there ever was one.
    pub(crate) fn python(&self) -> Option<&AtomicPtr<()>> {
        Some(&self.extra.get()?.python)
    }

    /// [`python`](Self::python), to note one.
    pub(crate) fn python_mut(&self) -> &AtomicPtr<()> {
        &self.extra.get_or_init(Box::default).python
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<{} #{}>", self.name(), self.sequence)
    }
}
