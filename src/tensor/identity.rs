//! The autograd side of a tensor's identity: whether it requires a gradient, its history, its gradient, and what it is a
//! view of.

use super::{Body, INFERENCE, Impl, REQUIRES_GRAD, State, Tensor, VIEW};
use crate::autograd::engine::AccumulateGrad;
use crate::autograd::held::{Held, Visit};
use crate::autograd::hooks::{List, TensorHook, show};
use crate::autograd::mode;
use crate::autograd::node::{Edge, Node};
use crate::error::{Result, bail};
use crate::sync::lock::Mutex;
use once_cell::race::OnceBox;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// What few tensors need, allocated when first used.
#[derive(Default)]
pub(crate) struct Extra {
    pub grad: Mutex<Option<Tensor>>,
    pub accumulator: Mutex<Option<Weak<Node>>>,
    pub hooks: LeafHooks,
    pub retains: AtomicBool,
    pub view: Option<ViewInfo>,
}

/// Hooks that live on a leaf, whose node comes and goes. Few leaves ever have any.
#[derive(Default)]
pub(crate) struct LeafHooks(OnceBox<HookLists>);

#[derive(Default)]
pub(crate) struct HookLists {
    pub tensor: List<dyn TensorHook>,
    pub post: List<dyn TensorHook>,
}

impl LeafHooks {
    /// The hooks, if any were ever registered.
    #[inline]
    pub fn existing(&self) -> Option<&HookLists> {
        self.0.get()
    }

    /// The hooks, to register one.
    pub fn lists(&self) -> &HookLists {
        self.0.get_or_init(Box::default)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.existing().is_none_or(|lists| lists.tensor.lock().is_empty() && lists.post.lock().is_empty())
    }
}

/// How a view came to be, which decides whether it may be modified in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Creation {
    /// By an ordinary view operation.
    Plain,
    /// While recording was off.
    NoGrad,
    /// Under inference mode, of a tensor that was made outside it.
    Inference,
    /// As one of several views that an operation returned together.
    Multiple,
    /// By a custom function, or because one returned its input.
    InFunction,
}

impl Creation {
    /// How a view operation makes views now; `multiple` if it returns several together.
    pub fn now(multiple: bool) -> Creation {
        if mode::is_inference_mode() {
            Creation::Inference
        } else if !mode::is_grad_enabled() {
            Creation::NoGrad
        } else if multiple {
            Creation::Multiple
        } else {
            Creation::Plain
        }
    }

    /// The error of a change that cannot become part of the history of a view made in this way, in PyTorch's words: nothing
    /// for ordinary views. `history` is the view's; `what` says what was changed.
    fn forbids(self, history: &Edge, what: &str) -> Option<String> {
        let node = history.node();
        let off = match self {
            Creation::Plain => return None,
            Creation::Inference => Some(("inference mode", "in normal mode", "inference_mode")),
            Creation::NoGrad => Some(("no_grad mode", "with grad mode enabled", "no_grad")),
            Creation::Multiple | Creation::InFunction if node.is_none() => {
                Some(("no_grad mode", "with grad mode enabled", "no_grad"))
            }
            Creation::Multiple | Creation::InFunction => None,
        };
        let output = node.map(|n| format!("Output {} of {} is a view", history.nr, n.operation()));
        let head = match (output, off) {
            (Some(output), Some((made, mode, _))) => {
                format!("{output} of a view which was created in {made} and {what} modified inplace {mode}.")
            }
            (Some(output), None) => format!("{output} and {what} modified inplace."),
            (None, _) => {
                let (made, mode, _) = off.unwrap_or_default();
                format!("A view was created in {made} and {what} modified inplace {mode}.")
            }
        };
        let advice = match self {
            Creation::Multiple => "This view is the output of a function that returns multiple views. Such functions do not allow the output views to be modified inplace. You should replace the inplace operation by an out-of-place one.".into(),
            Creation::InFunction => "This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inplace would override the custom backward associated with the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function.".into(),
            _ => {
                let block = off.unwrap_or_default().2;
                format!("Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace either both inside the {block} block (if you don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked).")
            }
        };
        Some(format!("{head} {advice}"))
    }
}

/// What a view knows of its base.
pub(crate) struct ViewInfo {
    /// The tensor that is no view itself.
    pub base: Tensor,
    pub creation: Mutex<Creation>,
    /// The version at which `grad_fn` was right; history is rebuilt when the base has moved on.
    pub version: AtomicU32,
}

impl Tensor {
    /// A tensor that is the output of a node.
    #[inline]
    pub(crate) fn with_history(body: Arc<Body>, edge: Edge) -> Tensor {
        if edge.is_some() { Tensor::with_edge(body, edge) } else { Tensor::from_shared(body) }
    }

    /// A tensor that stands where an edge leads: an output of a node, or a leaf, whose gradient is accumulated where that of
    /// the leaf itself is.
    pub(crate) fn at_edge(body: Arc<Body>, edge: Edge) -> Tensor {
        match edge.node() {
            Some(node) if node.is_accumulation() => {
                let leaf = Tensor::from_shared(body);
                *leaf.extra().accumulator.lock() = Some(Arc::downgrade(node));
                leaf.set_flag(REQUIRES_GRAD, true);
                leaf
            }
            _ => Tensor::with_history(body, edge),
        }
    }

    /// Makes this tensor the output of a node.
    #[inline]
    pub(crate) fn set_history(&self, edge: Edge) {
        let old = std::mem::replace(&mut self.0.state.lock().grad_fn, edge);
        self.set_flag(REQUIRES_GRAD, true);
        drop(old);
    }

    /// [`set_history`](Self::set_history) of a tensor that most likely nobody else holds.
    #[inline]
    pub(crate) fn become_output(&mut self, edge: Edge) {
        match self.own() {
            Some(own) => {
                own.state.get_mut().grad_fn = edge;
                *own.flags.get_mut() |= REQUIRES_GRAD;
            }
            None => self.set_history(edge),
        }
    }

    /// Makes this fresh tensor a view of `base`. What forbids a change of the base forbids it here, unless the way this view
    /// was made has a say of its own.
    pub(crate) fn set_view(&self, base: &Tensor, creation: Creation) {
        let (base, creation) = match base.view_info() {
            Some(info) => {
                let inherited = *info.creation.lock();
                (info.base.clone(), if creation == Creation::Plain { inherited } else { creation })
            }
            None => (base.clone(), creation),
        };
        let info = ViewInfo { base, creation: Mutex::new(creation), version: AtomicU32::new(self.version()) };
        let _ = self.0.extra.set(Box::new(Extra { view: Some(info), ..Extra::default() }));
        self.set_flag(VIEW, true);
    }

    pub(crate) fn extra(&self) -> &Extra {
        self.0.extra.get_or_init(Box::default)
    }

    pub(crate) fn existing_extra(&self) -> Option<&Extra> {
        self.0.extra.get()
    }

    pub(crate) fn view_info(&self) -> Option<&ViewInfo> {
        if self.flag(VIEW) { self.existing_extra().and_then(|e| e.view.as_ref()) } else { None }
    }

    /// Whether it is a view of another tensor.
    pub fn is_view(&self) -> bool {
        self.flag(VIEW)
    }

    /// The tensor it is a view of.
    pub fn base(&self) -> Option<Tensor> {
        self.view_info().map(|v| v.base.clone())
    }

    /// Whether gradients flow to it. A view is seen to require one if its base does, though it may have been made while
    /// recording was off and have no history.
    #[inline]
    pub fn requires_grad(&self) -> bool {
        self.flag(REQUIRES_GRAD) || (self.flag(VIEW) && self.view_info().is_some_and(|v| v.base.flag(REQUIRES_GRAD)))
    }

    /// [`requires_grad`](Self::requires_grad) of an operand that is about to be recorded: its history is made to be right.
    ///
    /// # Errors
    /// As [`grad_fn`](Self::grad_fn).
    #[inline]
    pub(crate) fn records_gradient(&self) -> Result<bool> {
        if self.flag(VIEW) {
            self.refresh_history()?;
        }
        Ok(self.requires_grad())
    }

    /// Whether gradients flow to the tensor itself, whatever they do to the base of a view.
    #[inline]
    pub(crate) fn has_gradient_flag(&self) -> bool {
        self.flag(REQUIRES_GRAD)
    }

    /// Whether it is a leaf: made by the user, or not requiring a gradient.
    pub fn is_leaf(&self) -> bool {
        !self.0.state.lock().grad_fn.is_some()
    }

    /// Whether it was made under inference mode.
    #[inline]
    pub fn is_inference(&self) -> bool {
        self.flag(INFERENCE)
    }

    pub(crate) fn mark_inference(&self) {
        self.set_flag(INFERENCE, true);
    }

    /// A fresh tensor that no operation made, in the mode of this thread.
    pub(crate) fn born(self) -> Tensor {
        if mode::is_inference_mode() {
            self.mark_inference();
        }
        self
    }

    /// The output of the node that made it; nothing for leaves. Of a view whose base was modified since, it is made anew.
    ///
    /// # Errors
    /// `RuntimeError` if the base of a view was modified that cannot follow: one of several that came together, one made
    /// while recording was off, or by a custom function.
    pub fn grad_fn(&self) -> Result<Edge> {
        if self.flag(VIEW) {
            self.refresh_history()?;
        }
        Ok(self.grad_fn_as_is())
    }

    /// The history as it is, though the base of a view may have moved on.
    pub(crate) fn grad_fn_as_is(&self) -> Edge {
        self.0.state.lock().grad_fn.clone()
    }

    /// Shows what it holds of the graph: its history, its gradient, its hooks, the base it is a view of.
    pub(crate) fn held(&self, visit: &mut Visit<'_>) {
        if let Some(state) = self.0.state.try_lock() {
            state.grad_fn.held(visit);
        }
        let Some(extra) = self.existing_extra() else { return };
        if let Some(Some(grad)) = extra.grad.try_lock().as_deref() {
            visit(Held::Tensor(grad));
        }
        for list in extra.hooks.existing().into_iter().flat_map(|lists| [&lists.tensor, &lists.post]) {
            if let Some(hooks) = list.try_lock() {
                show(hooks.iter().map(|(_, hook)| hook), |hook| hook.payload(), visit);
            }
        }
        if let Some(view) = &extra.view {
            visit(Held::Tensor(&view.base));
        }
    }

    /// Lets go of history, gradient and hooks, for a tensor that nobody will see again.
    pub(crate) fn let_go(&self) {
        let history = std::mem::take(&mut self.0.state.lock().grad_fn);
        let Some(extra) = self.existing_extra() else { return };
        let grad = extra.grad.lock().take();
        let hooks = extra.hooks.existing();
        let hooks = hooks.map(|all| (std::mem::take(&mut *all.tensor.lock()), std::mem::take(&mut *all.post.lock())));
        // Here no lock is held: what goes may run anything.
        drop((history, grad, hooks));
    }

    /// Where the gradient of this tensor goes: to the node that made it, or to its own accumulation.
    ///
    /// # Errors
    /// As [`grad_fn`](Self::grad_fn).
    #[inline]
    pub fn edge(&self) -> Result<Edge> {
        if self.flag(VIEW) {
            self.refresh_history()?;
        }
        if !self.flag(REQUIRES_GRAD) {
            return Ok(Edge::NONE);
        }
        let mut edge = Edge::NONE;
        self.put_edge(&self.state(), &mut edge);
        Ok(edge)
    }

    /// [`edge`](Self::edge), and what is to be known of the body at the same moment.
    #[inline]
    pub(crate) fn edge_and<R>(&self, look: impl FnOnce(&Body) -> R) -> Result<(Edge, R)> {
        if self.flag(VIEW) {
            self.refresh_history()?;
        }
        let state = self.state();
        let mut edge = Edge::NONE;
        if self.flag(REQUIRES_GRAD) {
            self.put_edge(&state, &mut edge);
        }
        Ok((edge, look(&state.body)))
    }

    /// Makes `edge` that of a tensor that requires a gradient and whose state is locked.
    #[inline(always)]
    pub(crate) fn put_edge(&self, state: &State, edge: &mut Edge) {
        match state.grad_fn.node() {
            Some(node) => edge.point(node.clone(), state.grad_fn.nr),
            None => *edge = self.accumulator(&state.body),
        }
    }

    #[inline(never)]
    fn accumulator(&self, body: &Body) -> Edge {
        let mut slot = self.extra().accumulator.lock();
        if let Some(node) = slot.as_ref().and_then(Weak::upgrade) {
            return Edge::new(node, 0);
        }
        let node = AccumulateGrad::node(self, body);
        *slot = Some(Arc::downgrade(&node));
        Edge::new(node, 0)
    }

    /// Rebuilds the history of a view whose base was modified in place since.
    fn refresh_history(&self) -> Result<()> {
        let Some(view) = self.view_info() else { return Ok(()) };
        let now = self.version();
        if view.version.load(Ordering::Acquire) == now || self.is_inference() {
            return Ok(());
        }
        let has_history = self.flag(REQUIRES_GRAD) && !self.is_leaf();
        if !has_history && !view.base.requires_grad() {
            return Ok(());
        }
        self.may_follow(view, "its base or another view of its base has been")?;
        view.version.store(now, Ordering::Release);
        let base = view.base.edge()?;
        if base.is_some() {
            let old = self.grad_fn_as_is();
            let new = crate::ops::view_of(&view.base, &self.body(), base)?;
            self.set_history(new.clone());
            self.move_retain_grad(&old, &new);
        }
        Ok(())
    }

    /// Whether a view's history can follow a change; `what` says what was changed.
    fn may_follow(&self, view: &ViewInfo, what: &str) -> Result<()> {
        let creation = *view.creation.lock();
        match creation.forbids(&self.grad_fn_as_is(), what) {
            Some(text) => Err(crate::error::Error::runtime("view", text)),
            None => Ok(()),
        }
    }

    /// Whether this tensor may be modified in place by an operation that is recorded.
    ///
    /// # Errors
    /// `RuntimeError` for leaves that require a gradient, views of such leaves, and views whose history cannot follow.
    pub(crate) fn check_recorded_change(&self, op: &'static str) -> Result<()> {
        if let Some(view) = self.view_info() {
            self.may_follow(view, "is being")?;
            // Also where the base wants no gradient and only the view was made to.
            if self.requires_grad() && view.base.is_leaf() {
                bail!(runtime op, "a view of a leaf Variable that requires grad is being used in an in-place operation.");
            }
        }
        if self.requires_grad() && self.is_leaf() {
            bail!(runtime op, "a leaf Variable that requires grad is being used in an in-place operation.");
        }
        Ok(())
    }

    /// Asks for gradients, or stops asking (`requires_grad_`).
    ///
    /// # Errors
    /// `RuntimeError` for dtypes that have no gradient, for inference tensors, and for turning it off on a non-leaf.
    pub fn requires_grad_(self, on: bool) -> Result<Tensor> {
        self.set_requires_grad(on)?;
        Ok(self)
    }

    /// Sets `requires_grad`; see [`requires_grad_`](Self::requires_grad_).
    pub fn set_requires_grad(&self, on: bool) -> Result<()> {
        if !self.is_leaf() {
            if !on {
                bail!(runtime "requires_grad_", "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach().");
            }
            return Ok(());
        }
        if on && !self.dtype().is_float() {
            bail!(runtime "requires_grad_", "only Tensors of floating point dtype can require gradients");
        }
        if on && self.is_inference() && !mode::is_inference_mode() {
            bail!(runtime "requires_grad_", "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.");
        }
        self.set_flag(REQUIRES_GRAD, on);
        Ok(())
    }

    /// The accumulated gradient.
    pub fn grad(&self) -> Option<Tensor> {
        self.existing_extra().and_then(|e| e.grad.lock().clone())
    }

    /// Sets or clears the gradient.
    ///
    /// # Errors
    /// `RuntimeError` if shape, dtype or device do not match, or if it is the tensor itself.
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        if let Some(g) = &grad {
            if g.is(self) {
                bail!(runtime "grad", "can't assign Variable as its own grad");
            }
            if g.dtype() != self.dtype() {
                bail!(runtime "grad", "attempting to assign a gradient with dtype '{}' to a tensor with grad_dtype '{}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's dtype). You can set the tensor's grad_dtype attribute with a specific dtype, or None to allow any dtype.", g.dtype().c_name(), self.dtype().legacy());
            }
            if g.sizes() != self.sizes() {
                bail!(runtime "grad", "attempting to assign a gradient of size '{:?}' to a tensor of size '{:?}'. Please ensure that the gradient and the tensor are the same size", g.sizes(), self.sizes());
            }
        }
        let old = std::mem::replace(&mut *self.extra().grad.lock(), grad);
        drop(old);
        Ok(())
    }

    /// Whether this non-leaf keeps its gradient.
    pub fn retains_grad(&self) -> bool {
        self.existing_extra().is_some_and(|e| e.retains.load(Ordering::Acquire)) && !self.is_leaf()
    }

    /// The same values without history; in-place changes of either are seen, and counted, by both.
    pub fn detach(&self) -> Tensor {
        let t = Tensor::from_shared(self.body());
        if self.is_inference() {
            t.mark_inference();
        }
        t
    }

    /// The same memory with a version counter of its own: in-place changes through it go unnoticed.
    pub fn data(&self) -> Tensor {
        let mut body = (*self.body()).clone();
        body.version = super::Version::Own(Arc::new(AtomicU32::new(0)));
        let t = Tensor::from_body(body);
        if self.is_inference() {
            t.mark_inference();
        }
        t
    }

    /// Gives the tensor the values, shape and dtype of another (`x.data = t`), keeping its identity, history, gradient and
    /// version counter.
    pub fn set_data(&self, other: &Tensor) -> Result<()> {
        if self.requires_grad() && !other.dtype().is_float() {
            bail!(runtime "set_data", "data set to a tensor that requires gradients must be floating point or complex dtype");
        }
        let mut body = (*other.body()).clone();
        // The counter stays the tensor's own: the number it shows does not change, and `other`'s changes do not reach it.
        body.version = super::Version::Own(Arc::new(AtomicU32::new(self.version())));
        self.publish(body);
        Ok(())
    }

    /// Removes the history: the tensor becomes a leaf that requires no gradient.
    ///
    /// # Errors
    /// `RuntimeError` for a view.
    pub fn detach_(&self) -> Result<()> {
        if self.is_view() {
            bail!(runtime "detach_", "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be called on these gradients. To fix this error, please refer to the Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution.");
        }
        let old = std::mem::take(&mut self.0.state.lock().grad_fn);
        drop(old);
        self.set_flag(REQUIRES_GRAD, false);
        if let Some(e) = self.existing_extra() {
            e.retains.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Hands `retain_grad` over to the node that an in-place operation has put before the tensor.
    pub(crate) fn move_retain_grad(&self, old: &Edge, new: &Edge) {
        if !self.existing_extra().is_some_and(|e| e.retains.load(Ordering::Acquire)) {
            return;
        }
        let me = Arc::as_ptr(&self.0);
        if let Some(hooks) = old.node().and_then(|n| n.hooks()) {
            hooks.retain.lock().retain(|(_, t)| t.as_ptr() != me);
        }
        if let Some(node) = new.node() {
            node.hooks_mut().retain.lock().push((new.nr, Arc::downgrade(&self.0)));
        }
    }
}

impl std::fmt::Debug for Impl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Impl")
    }
}
