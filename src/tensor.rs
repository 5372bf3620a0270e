//! The value that users hold. A [`Tensor`] is identity (what autograd, hooks and Python attach to) around one atomically
//! replaceable [`Body`] (layout, dtype, device, storage, version counter). Whatever changes a tensor's metadata publishes a
//! new Body; nothing edits one, so whoever took a snapshot keeps what it saw. Kernels and formulas live elsewhere.

mod create;
mod format;
mod identity;
mod operators;
mod read;

pub use create::{default_dtype, set_default_dtype};
pub use format::{Elements, PrintChange, PrintOptions, repr, size_repr};
pub(crate) use identity::{Creation, Extra, HookLists};
pub use read::Value;

use crate::autograd::node::Edge;
use crate::autograd::writers;
use crate::backend::Operand;
use crate::callsite::CallSite;
use crate::device::Device;
use crate::dtype::DType;
use crate::shape::Layout;
use crate::storage::Storage;
use crate::sync::lock::{Mutex, MutexGuard};
use once_cell::race::OnceBox;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

/// An n-dimensional array with autograd. Cloning shares: it is a second handle to the same tensor (for a copy of the
/// elements see [`Tensor::copy`](crate::ops), PyTorch's `clone`).
#[derive(Clone)]
pub struct Tensor(pub(crate) Arc<Impl>);

/// The identity behind a [`Tensor`].
pub struct Impl {
    state: Mutex<State>,
    flags: AtomicU8,
    extra: OnceBox<Extra>,
    /// The Python object that stands for this tensor, not owned: a new one is made when it is null or dying.
    pub(crate) python: AtomicPtr<()>,
}

/// What changes under a tensor's identity; one lock, held for moments, guards both.
pub struct State {
    /// What the tensor is now.
    pub body: Arc<Body>,
    /// The output of the node that made it.
    pub grad_fn: Edge,
}

/// Gradients flow to it (leaf or not).
const REQUIRES_GRAD: u8 = 1;
/// Made under inference mode: no version counter, no autograd ever.
const INFERENCE: u8 = 2;
/// It is a view of another tensor, so its history may have to be rebuilt.
const VIEW: u8 = 4;

/// What a tensor is at one moment.
#[derive(Clone, Debug)]
pub struct Body {
    /// Sizes, strides, offset.
    pub layout: Layout,
    /// Type of the elements.
    pub dtype: DType,
    /// The bytes.
    pub storage: Storage,
    /// The counter of in-place modifications.
    pub version: Version,
}

/// A version counter: shared by all tensors that see the same values by way of views and `detach()`.
#[derive(Clone, Debug)]
pub enum Version {
    /// The counter born with the storage.
    OfStorage,
    /// A counter of its own, as `.data` and `x.data = t` make.
    Own(Arc<AtomicU32>),
}

impl Body {
    /// A body over a storage that is seen whole.
    #[inline]
    pub fn new(storage: Storage, layout: Layout, dtype: DType) -> Body {
        Body { layout, dtype, storage, version: Version::OfStorage }
    }

    /// The same memory and version counter seen through another layout.
    #[inline]
    pub fn with_layout(&self, layout: Layout) -> Body {
        Body { layout, dtype: self.dtype, storage: self.storage.clone(), version: self.version.clone() }
    }

    #[inline]
    fn counter(&self) -> &AtomicU32 {
        match &self.version {
            Version::OfStorage => self.storage.birth_version(),
            Version::Own(counter) => counter,
        }
    }

    /// How often the values have been changed in place.
    #[inline]
    pub fn version(&self) -> u32 {
        self.counter().load(Ordering::Acquire)
    }

    /// Records an in-place change.
    #[inline]
    pub fn bump_version(&self) {
        let counter = self.counter();
        let version = counter.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        writers::note(counter, version);
    }

    /// The line that made the last change in place, if it is known.
    pub(crate) fn last_change(&self) -> CallSite {
        writers::last(self.counter(), self.version())
    }

    /// As a kernel sees it.
    #[inline]
    pub fn operand(&self) -> Operand<'_> {
        Operand { storage: &self.storage, layout: &self.layout, dtype: self.dtype }
    }
}

impl Tensor {
    /// A tensor without history around a body.
    #[inline]
    pub fn from_body(body: Body) -> Tensor {
        Tensor::from_shared(Arc::new(body))
    }

    /// A tensor without history around a body that others may hold too.
    #[inline]
    pub fn from_shared(body: Arc<Body>) -> Tensor {
        Tensor::with_state(State { body, grad_fn: Edge::NONE }, 0)
    }

    /// A tensor that is an output of a node.
    #[inline]
    pub(crate) fn with_edge(body: Arc<Body>, edge: Edge) -> Tensor {
        Tensor::with_state(State { body, grad_fn: edge }, REQUIRES_GRAD)
    }

    #[inline]
    fn with_state(state: State, flags: u8) -> Tensor {
        Tensor(Arc::new(Impl {
            state: Mutex::new(state),
            flags: AtomicU8::new(flags),
            extra: OnceBox::new(),
            python: AtomicPtr::new(std::ptr::null_mut()),
        }))
    }

    /// Body and history as they are, locked. Whoever holds the lock takes no other lock but those of further tensors, in
    /// ascending order of [`id`](Self::id), and never waits for a guard.
    #[inline]
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// Body and history of a tensor that nobody else holds, and that is nothing but a value: without flags, hooks, gradient.
    #[inline]
    pub(crate) fn state_mut(&mut self) -> Option<&mut State> {
        let own = Arc::get_mut(&mut self.0)?;
        let value_only = *own.flags.get_mut() == 0 && own.extra.get().is_none();
        value_only.then(|| own.state.get_mut())
    }

    /// The identity of a tensor that nobody else holds.
    #[inline]
    fn own(&mut self) -> Option<&mut Impl> {
        // Asked first, since to ask for sole access is hardly cheaper than a lock.
        if Arc::strong_count(&self.0) == 1 { Arc::get_mut(&mut self.0) } else { None }
    }

    /// The body of a tensor that nobody else holds.
    #[inline]
    pub(crate) fn own_body(&mut self) -> Option<&mut Arc<Body>> {
        self.own().map(|own| &mut own.state.get_mut().body)
    }

    /// What `look` finds in the body: without a lock where nobody else holds the tensor.
    #[inline]
    pub(crate) fn look<R>(&mut self, look: impl FnOnce(&Body) -> R) -> R {
        if let Some(body) = self.own_body() {
            return look(body);
        }
        look(&self.state().body)
    }

    /// A snapshot of what the tensor is now.
    #[inline]
    pub fn body(&self) -> Arc<Body> {
        self.0.state.lock().body.clone()
    }

    /// Publishes a new body; snapshots taken before keep the old one.
    pub(crate) fn publish(&self, body: Body) {
        let fresh = Arc::new(body);
        let old = std::mem::replace(&mut self.0.state.lock().body, fresh);
        drop(old);
    }

    /// Whether two handles are the same tensor.
    #[inline]
    pub fn is(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that no other living tensor has.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// The sizes.
    pub fn sizes(&self) -> crate::shape::Dims {
        self.0.state.lock().body.layout.sizes.clone()
    }

    /// Number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.0.state.lock().body.layout.rank()
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.0.state.lock().body.layout.numel()
    }

    /// Type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.state.lock().body.dtype
    }

    /// Where the elements are.
    pub fn device(&self) -> Device {
        Device::Cpu
    }

    /// Whether elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.0.state.lock().body.layout.is_contiguous()
    }

    /// How often the values have been changed in place (`_version`).
    pub fn version(&self) -> u32 {
        self.0.state.lock().body.version()
    }

    #[inline]
    pub(crate) fn flag(&self, bit: u8) -> bool {
        self.0.flags.load(Ordering::Acquire) & bit != 0
    }

    pub(crate) fn set_flag(&self, bit: u8, on: bool) {
        if on {
            self.0.flags.fetch_or(bit, Ordering::AcqRel);
        } else {
            self.0.flags.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.to_repr(&PrintOptions::default()))
    }
}

impl std::fmt::Display for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.to_repr(&PrintOptions::default()))
    }
}
