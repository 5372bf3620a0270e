//! Hooks: functions that see or replace gradients, and the handles that remove them.

use super::held::{Held, Visit};
use super::node::Grads;
use crate::error::{Result, bail};
use crate::sync::lock::Mutex;
use crate::tensor::{Impl, Tensor};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Called with the gradient of a tensor; may return another in its place.
pub trait TensorHook: Send + Sync {
    /// The call.
    fn call(&self, grad: &Tensor) -> Result<Option<Tensor>>;
    /// Called in a backward that has no gradient for the tensor.
    fn call_undefined(&self) -> Result<()> {
        Ok(())
    }
    /// A name for messages.
    fn name(&self) -> String {
        "hook".into()
    }
    /// The object of the embedding language it holds, for its garbage collector.
    fn payload(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
}

impl<F: Fn(&Tensor) -> Option<Tensor> + Send + Sync> TensorHook for F {
    fn call(&self, grad: &Tensor) -> Result<Option<Tensor>> {
        Ok(self(grad))
    }
}

/// Called with gradients before or after a node has run; may return others in their place.
pub trait NodeHook: Send + Sync {
    /// A pre-hook gets the gradients of the outputs twice; a post-hook those of the inputs, then those of the outputs.
    fn call(&self, grads: &Grads, outputs: &Grads) -> Result<Option<Grads>>;
    /// The object of the embedding language it holds, for its garbage collector.
    fn payload(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
}

/// A list of hooks with their numbers, run over snapshots so that hooks may come and go while they run.
pub type List<H> = Mutex<Vec<(u64, Arc<H>)>>;

/// The hooks of a list as they are now. The list is not locked while they run, so that they may change it.
pub(super) fn snapshot<T: Clone>(list: &Mutex<Vec<T>>) -> Vec<T> {
    list.lock().clone()
}

/// Takes hooks out of a list. They are dropped when it is no longer locked: that may run code of the embedding language.
pub(crate) fn remove<T>(list: &Mutex<Vec<T>>, is_gone: impl Fn(&T) -> bool) {
    let gone: Vec<T> = list.lock().extract_if(.., |hook| is_gone(hook)).collect();
    drop(gone);
}

/// Hooks that live on a node.
#[derive(Default)]
pub struct NodeHooks {
    /// Tensor hooks, each with the output number it belongs to.
    pub tensor: Mutex<Vec<(u64, u32, Arc<dyn TensorHook>)>>,
    /// Non-leaf tensors that keep their gradient, each with the output number.
    pub retain: Mutex<Vec<(u32, Weak<Impl>)>>,
    /// Run before the node.
    pub pre: List<dyn NodeHook>,
    /// Run after the node.
    pub post: List<dyn NodeHook>,
    /// What users note about the node: an object of the embedding language.
    pub metadata: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl NodeHooks {
    /// Shows what the hooks hold.
    pub fn held(&self, visit: &mut Visit<'_>) {
        if let Some(hooks) = self.tensor.try_lock() {
            show(hooks.iter().map(|(_, _, hook)| hook), |hook| hook.payload(), visit);
        }
        for list in [&self.pre, &self.post] {
            if let Some(hooks) = list.try_lock() {
                show(hooks.iter().map(|(_, hook)| hook), |hook| hook.payload(), visit);
            }
        }
        if let Some(metadata) = self.metadata.get() {
            visit(Held::Payload(&**metadata));
        }
    }
}

/// Shows the objects of hooks. One that runs just now is held by the engine too, which may not be counted on.
pub(crate) fn show<'a, H: ?Sized + 'a>(
    hooks: impl Iterator<Item = &'a Arc<H>>,
    payload: impl Fn(&H) -> Option<&(dyn Any + Send + Sync)>,
    visit: &mut Visit<'_>,
) {
    for hook in hooks.filter(|hook| Arc::strong_count(hook) == 1) {
        if let Some(payload) = payload(hook) {
            visit(Held::Payload(payload));
        }
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A number that no other hook has.
pub fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Removes its hook, at once or never; dropping it does nothing.
#[derive(Clone)]
pub struct HookHandle {
    /// The hook's number.
    pub id: u64,
    remove: Arc<dyn Fn(u64) + Send + Sync>,
}

impl HookHandle {
    /// A handle that calls `remove` with the hook's number.
    pub fn new(id: u64, remove: impl Fn(u64) + Send + Sync + 'static) -> HookHandle {
        HookHandle { id, remove: Arc::new(remove) }
    }

    /// Removes the hook. Doing it again is harmless.
    pub fn remove(&self) {
        (self.remove)(self.id)
    }
}

/// Runs one tensor hook and checks what it returns.
pub fn run_tensor_hook(hook: &dyn TensorHook, grad: Option<Tensor>) -> Result<Option<Tensor>> {
    let Some(grad) = grad else {
        hook.call_undefined()?;
        return Ok(None);
    };
    let Some(new) = hook.call(&grad)? else { return Ok(Some(grad)) };
    check_replacement(&grad, &new, || hook.name())?;
    Ok(Some(new))
}

/// Whether a hook may put `new` in the place of `grad`.
///
/// # Errors
/// `RuntimeError` for another shape or dtype.
pub(crate) fn check_replacement(grad: &Tensor, new: &Tensor, name: impl FnOnce() -> String) -> Result<()> {
    if new.sizes() != grad.sizes() {
        bail!(runtime "register_hook", "hook '{}' has changed the size of value\nthe gradient has shape {:?}, the hook returned {:?}", name(), grad.sizes(), new.sizes());
    }
    if new.dtype() != grad.dtype() {
        bail!(runtime "register_hook", "hook '{}' has changed the type of value (was torch.{}Tensor got torch.{}Tensor)", name(), grad.dtype().legacy(), new.dtype().legacy());
    }
    Ok(())
}

impl Tensor {
    /// Registers a function that sees the gradient of this tensor, and may replace it, each time one is computed.
    ///
    /// ```
    /// use rustgrad::Tensor;
    /// let x = Tensor::from(3.0).requires_grad_(true)?;
    /// x.register_hook(|g: &Tensor| Some(g * 10.0))?;
    /// (&x * 2.0).backward()?;
    /// assert_eq!(x.grad().unwrap().item()?.to_f64(), 20.0);
    /// # Ok::<(), rustgrad::Error>(())
    /// ```
    ///
    /// # Errors
    /// `RuntimeError` if the tensor does not require a gradient.
    pub fn register_hook(&self, hook: impl TensorHook + 'static) -> Result<HookHandle> {
        self.register_shared_hook(Arc::new(hook))
    }

    /// [`register_hook`](Self::register_hook) for a hook that is shared already.
    pub fn register_shared_hook(&self, hook: Arc<dyn TensorHook>) -> Result<HookHandle> {
        if !self.requires_grad() {
            bail!(runtime "register_hook", "cannot register a hook on a tensor that doesn't require gradient");
        }
        let id = next_id();
        let edge = self.grad_fn()?;
        match edge.node() {
            Some(node) => {
                node.hooks_mut().tensor.lock().push((id, edge.nr, hook));
                let weak = Arc::downgrade(node);
                Ok(HookHandle::new(id, move |id| {
                    if let Some(hooks) = weak.upgrade().as_deref().and_then(|n| n.hooks()) {
                        remove(&hooks.tensor, |h| h.0 == id);
                    }
                }))
            }
            None => {
                self.extra().hooks.lists().tensor.lock().push((id, hook));
                let weak = Arc::downgrade(&self.0);
                Ok(HookHandle::new(id, move |id| {
                    if let Some(leaf) = weak.upgrade() {
                        remove(&Tensor(leaf).extra().hooks.lists().tensor, |h| h.0 == id);
                    }
                }))
            }
        }
    }

    /// Registers a function that is called with this leaf each time a gradient has been accumulated into it.
    ///
    /// # Errors
    /// `RuntimeError` if the tensor is not a leaf or does not require a gradient.
    pub fn register_post_accumulate_grad_hook(&self, hook: impl TensorHook + 'static) -> Result<HookHandle> {
        if !self.requires_grad() {
            bail!(runtime "register_post_accumulate_grad_hook", "cannot register a hook on a tensor that doesn't require gradient");
        }
        if !self.is_leaf() {
            bail!(runtime "register_post_accumulate_grad_hook", "post accumulate grad hooks cannot be registered on non-leaf tensors");
        }
        let id = next_id();
        self.extra().hooks.lists().post.lock().push((id, Arc::new(hook)));
        let weak = Arc::downgrade(&self.0);
        Ok(HookHandle::new(id, move |id| {
            if let Some(leaf) = weak.upgrade() {
                remove(&Tensor(leaf).extra().hooks.lists().post, |h| h.0 == id);
            }
        }))
    }

    /// Keeps the gradient of this non-leaf tensor in `.grad`; the value is the one after all hooks.
    ///
    /// # Errors
    /// `RuntimeError` if the tensor does not require a gradient.
    pub fn retain_grad(&self) -> Result<()> {
        if !self.requires_grad() {
            bail!(runtime "retain_grad", "can't retain_grad on Tensor that has requires_grad=False");
        }
        let edge = self.grad_fn()?;
        if let Some(node) = edge.node()
            && !self.retains_grad()
        {
            self.extra().retains.store(true, Ordering::Release);
            node.hooks_mut().retain.lock().push((edge.nr, Arc::downgrade(&self.0)));
        }
        Ok(())
    }
}
