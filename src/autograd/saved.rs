//! Values kept for backward: a snapshot of the body, the version it had, and for inputs the tensor itself. A saved result
//! does not own its node, which would be a cycle; it finds its history in the node that unpacks it.

use super::held::{Held, Visit};
use super::mode;
use super::node::{Edge, Meta, NodeRef};
use crate::error::{Error, Result, bail};
use crate::sync::lock::Mutex;
use crate::tensor::{Body, Tensor};
use std::cell::RefCell;
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Functions that put saved values away when they are saved, and bring them back when they are needed.
pub trait SavedHooks: Send + Sync {
    /// Takes a value, without history, and returns what is kept in its place. It must not change the value.
    fn pack(&self, value: &Tensor) -> Result<Box<dyn Packed>>;
}

/// What is kept in the place of a value.
pub trait Packed: Send + Sync {
    /// The value again, of the same shape and dtype.
    fn unpack(&self) -> Result<Tensor>;
    /// Shows what it holds.
    fn held(&self, _visit: &mut Visit<'_>) {}
}

thread_local! {
    static HOOKS: RefCell<Vec<Arc<dyn SavedHooks>>> = const { RefCell::new(Vec::new()) };
}

/// Whether hooks ever put a value away in this process. Most never do, and need not ask each node.
static PACKED: AtomicBool = AtomicBool::new(false);

/// Whether there may be values that hooks have.
#[inline]
pub(super) fn may_be_packed() -> bool {
    PACKED.load(Ordering::Relaxed)
}

/// Hands every value that this thread saves from now on to `hooks`, instead of to those installed before.
pub fn push_hooks(hooks: Arc<dyn SavedHooks>) {
    HOOKS.with_borrow_mut(|all| all.push(hooks));
    mode::set_packing(true);
}

/// Takes the hooks away that were installed last.
pub fn pop_hooks() {
    let old = HOOKS.with_borrow_mut(|all| {
        let old = all.pop();
        mode::set_packing(!all.is_empty());
        old
    });
    drop(old);
}

/// All hooks of this thread, the innermost last.
pub(super) fn all_hooks() -> Vec<Arc<dyn SavedHooks>> {
    HOOKS.with_borrow(Clone::clone)
}

/// Puts hooks in the place of all those of this thread. The modes that say so are the caller's to set.
pub(super) fn set_all_hooks(hooks: Vec<Arc<dyn SavedHooks>>) {
    drop(HOOKS.replace(hooks));
}

/// A tensor saved for backward: the values that forward saw, with the version they had, or what hooks keep in their place.
#[derive(Clone)]
pub struct SavedTensor(Kept);

#[derive(Clone)]
enum Kept {
    /// The tensor itself.
    Input { body: Arc<Body>, version: u32, tensor: Tensor },
    /// This output of the node that holds it.
    Result { body: Arc<Body>, version: u32, nr: u32 },
    /// A copy of an input that was about to be overwritten, with the history it had.
    Copy { body: Arc<Body>, version: u32, history: Box<Edge> },
    /// Put away by hooks.
    Away(Arc<Away>),
}

/// Where a saved value is.
pub enum Holding<'a> {
    /// In memory, with the input that it is; none for results and copies.
    Here(&'a Body, Option<&'a Tensor>),
    /// With the hooks, which keep this in its place.
    Away(&'a Meta, &'a dyn Packed),
}

/// A value that hooks keep.
struct Away {
    packed: Box<dyn Packed>,
    /// The history it had.
    history: Edge,
    /// Which result of its node it is, if it is one.
    result: Option<u32>,
    meta: Meta,
}

impl SavedTensor {
    /// Saves an input.
    ///
    /// # Errors
    /// `RuntimeError` for an inference tensor; whatever a hook raises.
    #[inline]
    pub fn input(op: &'static str, tensor: &Tensor, body: Arc<Body>) -> Result<SavedTensor> {
        if tensor.is_inference() {
            bail!(runtime op, "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`.");
        }
        if mode::is_packing() {
            let value =
                if Arc::ptr_eq(&tensor.body(), &body) { tensor.clone() } else { Tensor::at_edge(body, tensor.edge()?) };
            return SavedTensor::put_away(op, value, tensor.edge()?, None);
        }
        Ok(SavedTensor::plain_input(tensor, body))
    }

    /// [`input`](Self::input) of a tensor that is no inference tensor, where no hooks are installed.
    #[inline]
    pub(crate) fn plain_input(tensor: &Tensor, body: Arc<Body>) -> SavedTensor {
        SavedTensor(Kept::Input { version: body.version(), body, tensor: tensor.clone() })
    }

    /// Saves a copy of an input's values, together with the history the input had.
    ///
    /// # Errors
    /// Whatever a hook raises.
    pub fn copy(op: &'static str, body: Arc<Body>, history: Edge) -> Result<SavedTensor> {
        if mode::is_packing() {
            return SavedTensor::put_away(op, Tensor::at_edge(body, history.clone()), history, None);
        }
        Ok(SavedTensor(Kept::Copy { version: body.version(), body, history: Box::new(history) }))
    }

    /// Saves output `nr` of the node that will hold it.
    ///
    /// # Errors
    /// Whatever a hook raises.
    pub fn result(op: &'static str, body: Arc<Body>, nr: u32) -> Result<SavedTensor> {
        if mode::is_packing() {
            // Its node is not made yet: it comes without history.
            return SavedTensor::put_away(op, Tensor::from_shared(body), Edge::NONE, Some(nr));
        }
        Ok(SavedTensor::plain_result(body, nr))
    }

    /// [`result`](Self::result) where no hooks are installed.
    #[inline]
    pub(crate) fn plain_result(body: Arc<Body>, nr: u32) -> SavedTensor {
        SavedTensor(Kept::Result { version: body.version(), body, nr })
    }

    fn put_away(op: &'static str, value: Tensor, history: Edge, result: Option<u32>) -> Result<SavedTensor> {
        let hooks = HOOKS.with_borrow(|all| all.last().cloned());
        let hooks = hooks.expect("the mode says that hooks are installed");
        SavedTensor::hand_to(&*hooks, op, value, history, result)
    }

    /// The same value, put away by hooks of its own.
    ///
    /// # Errors
    /// `RuntimeError` if hooks have it already, or change it; whatever a hook raises.
    pub fn packed_by(&self, hooks: &dyn SavedHooks) -> Result<SavedTensor> {
        const OP: &str = "register_hooks";
        let (body, history, result) = match &self.0 {
            Kept::Input { body, tensor, .. } => (body, tensor.edge()?, None),
            Kept::Result { body, nr, .. } => (body, Edge::NONE, Some(*nr)),
            Kept::Copy { body, history, .. } => (body, (**history).clone(), None),
            Kept::Away(_) => {
                bail!(runtime OP, "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is allowed at a time.")
            }
        };
        // As in PyTorch, hooks that come later get the values alone.
        SavedTensor::hand_to(hooks, OP, Tensor::from_shared(body.clone()), history, result)
    }

    fn hand_to(
        hooks: &dyn SavedHooks,
        op: &'static str,
        value: Tensor,
        history: Edge,
        result: Option<u32>,
    ) -> Result<SavedTensor> {
        let body = value.body();
        let version = body.version();
        PACKED.store(true, Ordering::Relaxed);
        let packed = {
            let _mode = mode::GradMode::set(false);
            hooks.pack(&value)?
        };
        if body.version() != version {
            bail!(runtime op, "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if you need to perform in-place operations on the input to a pack hook.");
        }
        let meta = Meta { sizes: body.layout.sizes.clone(), dtype: body.dtype };
        Ok(SavedTensor(Kept::Away(Arc::new(Away { packed, history, result, meta }))))
    }

    /// Whether hooks have it.
    #[inline]
    pub fn is_packed(&self) -> bool {
        matches!(self.0, Kept::Away(_))
    }

    /// What is kept, as reports show it: no hook runs and no value is read.
    pub fn holding(&self) -> Holding<'_> {
        match &self.0 {
            Kept::Away(away) => Holding::Away(&away.meta, &*away.packed),
            Kept::Input { body, tensor, .. } => Holding::Here(body, Some(tensor)),
            Kept::Result { body, .. } | Kept::Copy { body, .. } => Holding::Here(body, None),
        }
    }

    /// Shows what it holds. Copies of it share what hooks keep, which is then nobody's alone.
    pub fn held(&self, visit: &mut Visit<'_>) {
        match &self.0 {
            Kept::Input { tensor, .. } => visit(Held::Tensor(tensor)),
            Kept::Result { .. } => {}
            Kept::Copy { history, .. } => history.held(visit),
            Kept::Away(away) if Arc::strong_count(away) == 1 => {
                away.history.held(visit);
                away.packed.held(visit);
            }
            Kept::Away(_) => {}
        }
    }

    /// The values, if nobody has changed them since; nothing if a hook has them.
    ///
    /// # Errors
    /// `RuntimeError` if they were modified in place.
    #[inline]
    pub fn body(&self, node: &NodeRef) -> Result<Option<&Arc<Body>>> {
        let (body, version) = match &self.0 {
            Kept::Input { body, version, .. }
            | Kept::Result { body, version, .. }
            | Kept::Copy { body, version, .. } => (body, *version),
            Kept::Away(_) => return Ok(None),
        };
        let now = body.version();
        if now != version { Err(self.modified(body, node, version, now)) } else { Ok(Some(body)) }
    }

    /// The values, wherever they are. A hook may run: the caller holds no lock.
    ///
    /// # Errors
    /// `RuntimeError` if they were modified in place; whatever a hook raises.
    pub fn fetch(&self, node: &NodeRef) -> Result<Arc<Body>> {
        match (self.body(node)?, &self.0) {
            (Some(body), _) => Ok(body.clone()),
            (None, Kept::Away(away)) => away.fetch(),
            (None, _) => Err(freed(node)),
        }
    }

    /// The tensor with its history. A hook may run: the caller holds no lock.
    ///
    /// # Errors
    /// `RuntimeError` if it was modified in place; whatever a hook raises.
    pub fn unpack(&self, node: &NodeRef) -> Result<Tensor> {
        let body = self.fetch(node)?;
        let edge = match &self.0 {
            // A tensor that was given other data since (`x.data = t`) comes back as forward saw it.
            Kept::Input { tensor, .. } if Arc::ptr_eq(&tensor.body(), &body) => return Ok(tensor.clone()),
            Kept::Input { tensor, .. } => tensor.edge()?,
            Kept::Result { nr, .. } => Edge::new(node.clone(), *nr),
            Kept::Copy { history, .. } => (**history).clone(),
            Kept::Away(away) => match away.result {
                Some(nr) => Edge::new(node.clone(), nr),
                None => away.history.clone(),
            },
        };
        let differentiable = body.dtype.is_float();
        Ok(Tensor::at_edge(body, if differentiable { edge } else { Edge::NONE }))
    }

    #[cold]
    fn modified(&self, body: &Body, node: &NodeRef, expected: u32, now: u32) -> Error {
        let of = match &self.0 {
            Kept::Result { nr, .. } => Some((node.operation(), *nr)),
            Kept::Input { tensor, .. } => {
                let edge = tensor.grad_fn_as_is();
                edge.node().map(|n| (n.operation(), edge.nr))
            }
            Kept::Copy { .. } | Kept::Away(_) => None,
        };
        let of = of.map_or(String::new(), |(name, nr)| format!(", which is output {nr} of {name},"));
        Error::runtime(
            "backward",
            format!(
                "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.{}Tensor {:?}]{of} is at version {now}; expected version {expected} instead. Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable in question was changed in there or anywhere later. Good luck!",
                body.dtype.legacy(),
                body.layout.sizes,
            ),
        )
        .at(format!("saved for {} by", node.name()), node.site)
        .at("changed in place, last, by", body.last_change())
    }
}

impl Away {
    fn fetch(&self) -> Result<Arc<Body>> {
        let _mode = mode::GradMode::set(false);
        let body = self.packed.unpack()?.body();
        if body.layout.sizes != self.meta.sizes || body.dtype != self.meta.dtype {
            return Err(Error::runtime(
                "backward",
                format!(
                    "A saved tensor unpack hook returned a tensor of shape {:?} and dtype {}, but what was packed has shape {:?} and dtype {}",
                    body.layout.sizes, body.dtype, self.meta.sizes, self.meta.dtype
                ),
            ));
        }
        Ok(body)
    }
}

/// An item of a node's list of saved values.
pub trait Item {
    /// The value.
    fn value(&self) -> &SavedTensor;
    /// The value, to put another in its place.
    fn value_mut(&mut self) -> &mut SavedTensor;
}

impl Item for SavedTensor {
    fn value(&self) -> &SavedTensor {
        self
    }
    fn value_mut(&mut self) -> &mut SavedTensor {
        self
    }
}

impl<K> Item for (K, SavedTensor) {
    fn value(&self) -> &SavedTensor {
        &self.1
    }
    fn value_mut(&mut self) -> &mut SavedTensor {
        &mut self.1
    }
}

/// Puts another value in the place of number `k` of what a node saved; false if there is none.
pub fn replace<I: Item>(list: &Mutex<Option<impl DerefMut<Target = [I]>>>, k: usize, value: SavedTensor) -> bool {
    let mut saved = list.lock();
    let Some(slot) = saved.as_mut().and_then(|s| s.get_mut(k)) else { return false };
    let old = std::mem::replace(slot.value_mut(), value);
    // What it held is let go of without the lock.
    drop(saved);
    drop(old);
    true
}

/// Shows what the values hold that a node saved.
pub fn held_in<I: Item>(list: &Mutex<Option<impl DerefMut<Target = [I]>>>, visit: &mut Visit<'_>) {
    let Some(saved) = list.try_lock() else { return };
    saved.iter().flat_map(|s| s.iter()).for_each(|item| item.value().held(visit));
}

/// The error of using a graph whose saved values are gone.
#[cold]
pub fn freed(node: &NodeRef) -> Error {
    Error::runtime(
        "backward",
        format!(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after calling backward.\nfreed node: {}",
            node.name()
        ),
    )
    .at("recorded by", node.site)
}
