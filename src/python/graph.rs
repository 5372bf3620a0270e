//! The graph as Python sees it: nodes, hooks and their handles, and what the garbage collector may know of it.

use super::bind;
use super::collector::{self, Payload};
use super::error::ClassName;
use super::identity::{Slot, alive, wrap};
use super::interrupt::call_python;
use super::tensor::{PyTensor, size};
use super::{dtype, function, saved};
use crate::autograd::hooks::{HookHandle, NodeHook, TensorHook, check_replacement, next_id, remove};
use crate::autograd::mode::{self, GradMode};
use crate::autograd::node::{Grads, Node, NodeRef};
use crate::error::Result;
use crate::sync::lock::Mutex;
use crate::tensor::Tensor;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::any::Any;
use std::sync::Arc;

// ---- hooks -------------------------------------------------------------------------------------------------------------

/// Runs a hook, whatever it does to the grad mode: the next one finds it as it was.
fn run_hook<R>(f: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R> {
    let _mode = GradMode::set(mode::is_grad_enabled());
    call_python(f)
}

fn hook_name(hook: &Bound<'_, PyAny>) -> String {
    hook.getattr("__name__").map_or_else(|_| "hook".into(), |name| name.to_string())
}

/// The error of a hook that returned something else than a tensor or None.
fn no_tensor(returned: &Bound<'_, PyAny>) -> PyErr {
    match returned.get_type().name() {
        Ok(class) => PyTypeError::new_err(format!("expected Variable, but hook returned '{class}'")),
        Err(error) => error,
    }
}

/// The error of a hook that has found a gradient where there is none.
fn no_gradient() -> PyErr {
    PyRuntimeError::new_err("can't replace a None gradient with a non-None value")
}

/// A Python function as a tensor hook.
struct PyTensorHook(Payload);

impl TensorHook for PyTensorHook {
    fn call(&self, grad: &Tensor) -> Result<Option<Tensor>> {
        run_hook(|py| {
            let result = self.0.0.bind(py).call1((wrap(py, grad)?,))?;
            if result.is_none() {
                return Ok(None);
            }
            bind::tensor(&result).map(Some).ok_or_else(|| no_tensor(&result))
        })
    }
    fn call_undefined(&self) -> Result<()> {
        run_hook(|py| {
            let result = self.0.0.bind(py).call1((py.None(),))?;
            if result.is_none() { Ok(()) } else { Err(no_gradient()) }
        })
    }
    fn name(&self) -> String {
        Python::attach(|py| hook_name(self.0.0.bind(py)))
    }
    fn payload(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.0)
    }
}

/// A Python function that is called with a leaf after accumulation.
struct PyPostHook(Payload);

impl TensorHook for PyPostHook {
    fn call(&self, leaf: &Tensor) -> Result<Option<Tensor>> {
        run_hook(|py| {
            let result = self.0.0.bind(py).call1((wrap(py, leaf)?,))?;
            if result.is_none() { Ok(None) } else { Err(no_tensor(&result)) }
        })
    }
    fn payload(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.0)
    }
}

/// A Python function as a node hook.
struct PyNodeHook {
    payload: Payload,
    /// A pre-hook sees the gradients of the outputs alone.
    pre: bool,
}

impl NodeHook for PyNodeHook {
    fn call(&self, grads: &Grads, outputs: &Grads) -> Result<Option<Grads>> {
        run_hook(|py| {
            let (first, second) = (grads_tuple(py, grads)?, grads_tuple(py, outputs)?);
            let hook = self.payload.0.bind(py);
            let result = if self.pre { hook.call1((first,))? } else { hook.call1((first, second))? };
            if result.is_none() { Ok(None) } else { replacements(hook, &result, grads).map(Some) }
        })
    }
    fn payload(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.payload)
    }
}

/// What a node hook returned in the place of `grads`.
fn replacements(hook: &Bound<'_, PyAny>, returned: &Bound<'_, PyAny>, grads: &Grads) -> PyResult<Grads> {
    let Ok(items) = returned.cast::<PyTuple>() else {
        let class = returned.class_name();
        return Err(PyTypeError::new_err(format!("expected tuple, but hook returned '{class}'")));
    };
    if items.len() != grads.len() {
        return Err(PyRuntimeError::new_err(format!(
            "hook '{}' has returned an incorrect number of values (got {}, but expected {})",
            hook_name(hook),
            items.len(),
            grads.len()
        )));
    }
    let replaced = items.iter().zip(grads).map(|(item, old)| match (bind::tensor(&item), old) {
        (Some(_), None) => Err(no_gradient()),
        (Some(new), Some(old)) => {
            check_replacement(old, &new, || hook_name(hook))?;
            Ok(Some(new))
        }
        (None, _) if item.is_none() => Ok(None),
        (None, _) => Err(no_tensor(&item)),
    });
    replaced.collect()
}

fn grads_tuple<'py>(py: Python<'py>, grads: &Grads) -> PyResult<Bound<'py, PyTuple>> {
    let items = grads.iter().map(|g| g.as_ref().map(|g| wrap(py, g)).transpose()).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, items)
}

/// Removes its hook.
#[pyclass(frozen, name = "RemovableHandle", module = "rustgrad.utils.hooks")]
pub(super) struct PyHandle(HookHandle);

#[pymethods]
impl PyHandle {
    fn remove(&self) {
        self.0.remove();
    }
    #[getter]
    fn id(&self) -> u64 {
        self.0.id
    }
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }
    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyTuple>) {
        self.0.remove();
    }
}

fn refuse_uncallable(py: Python<'_>, hook: &Py<PyAny>) -> PyResult<()> {
    if hook.bind(py).is_callable() {
        Ok(())
    } else {
        Err(PyTypeError::new_err(format!("a hook must be callable, got {}", hook.bind(py).class_name())))
    }
}

/// `Tensor.register_hook`.
pub(super) fn register_tensor_hook(t: &Tensor, hook: Py<PyAny>) -> PyResult<PyHandle> {
    Python::attach(|py| refuse_uncallable(py, &hook))?;
    Ok(PyHandle(t.register_shared_hook(Arc::new(PyTensorHook(Payload::new(hook))))?))
}

/// `Tensor.register_post_accumulate_grad_hook`.
pub(super) fn register_post_hook(t: &Tensor, hook: Py<PyAny>) -> PyResult<PyHandle> {
    Python::attach(|py| refuse_uncallable(py, &hook))?;
    Ok(PyHandle(t.register_post_accumulate_grad_hook(PyPostHook(Payload::new(hook)))?))
}

// ---- nodes -------------------------------------------------------------------------------------------------------------

/// A step of the graph. Each kind of node has a class of its own, named as PyTorch names it.
#[pyclass(subclass, dict, weakref, frozen, name = "Node", module = "rustgrad.autograd.graph")]
pub(super) struct PyNode {
    node: Mutex<Option<Link>>,
    slot: Slot,
}

/// How an object knows its node: a view of it owns it, the context of a custom function is owned by it.
enum Link {
    Strong(NodeRef),
    Weak(std::sync::Weak<Node>),
}

impl Drop for PyNode {
    fn drop(&mut self) {
        if let Some(node) = self.try_node() {
            forget(&self.slot, &node);
        }
    }
}

/// The living object of a node.
fn object_of<'py>(py: Python<'py>, node: &Node) -> Option<Bound<'py, PyNode>> {
    alive(py, node.python()?)
}

/// Has a node no longer name the object with this slot.
fn forget(slot: &Slot, node: &Node) {
    if let Some(named) = node.python() {
        slot.clear(named);
    }
}

static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// The class of nodes of a name.
fn class_of<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let classes = CLASSES.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(class) = classes.get_item(name)? {
        return Ok(class);
    }
    let body = PyDict::new(py);
    body.set_item("__module__", "rustgrad.autograd.graph")?;
    let class = py.get_type::<PyType>().call1((name, (py.get_type::<PyNode>(),), body))?;
    classes.set_item(name, &class)?;
    Ok(class)
}

/// The object of a node, for a moment's use: where it is a custom function's context, it does not keep the graph.
fn wrap_loosely<'py>(py: Python<'py>, node: &NodeRef) -> PyResult<Bound<'py, PyAny>> {
    match object_of(py, node) {
        Some(object) => Ok(object.into_any()),
        None => wrap_node(py, node),
    }
}

/// What `grad_fn` gives, for a moment's use.
#[pyfunction]
pub(super) fn _grad_fn<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Option<Bound<'py, PyAny>>> {
    t.get().tensor.grad_fn()?.node().map(|node| wrap_loosely(t.py(), node)).transpose()
}

/// The object of a node.
pub(super) fn wrap_node<'py>(py: Python<'py>, node: &NodeRef) -> PyResult<Bound<'py, PyAny>> {
    if let Some(object) = object_of(py, node) {
        object.get().keep(node);
        return Ok(object.into_any());
    }
    let object = class_of(py, &node.name())?.call0()?;
    let inner = object.cast::<PyNode>()?;
    *inner.get().node.lock() = Some(Link::Strong(node.clone()));
    inner.get().slot.fill(object.as_ptr(), node.python_mut());
    Ok(object)
}

impl PyNode {
    /// The node, if there is one and it is alive.
    pub(super) fn try_node(&self) -> Option<NodeRef> {
        match self.node.lock().as_ref()? {
            Link::Strong(node) => Some(node.clone()),
            Link::Weak(node) => node.upgrade(),
        }
    }

    /// The node, if this object keeps it alive.
    pub(super) fn owned(&self) -> Option<NodeRef> {
        match self.node.lock().as_ref()? {
            Link::Strong(node) => Some(node.clone()),
            Link::Weak(_) => None,
        }
    }

    fn node(&self) -> PyResult<NodeRef> {
        self.try_node().ok_or_else(|| PyRuntimeError::new_err("this node belongs to no graph"))
    }

    /// From now on this object keeps its node. The context of a custom function, which its node keeps, does so only once
    /// somebody has asked for it as a node: the two are a cycle then, which the collector has to find.
    fn keep(&self, node: &NodeRef) {
        let mut link = self.node.lock();
        if matches!(*link, Some(Link::Weak(_))) {
            function::bind(node, true);
            *link = Some(Link::Strong(node.clone()));
        }
    }

    /// Makes this object, which lies at `address`, the node's own.
    pub(super) fn attach(&self, node: &NodeRef, address: *mut pyo3::ffi::PyObject) {
        *self.node.lock() = Some(Link::Weak(Arc::downgrade(node)));
        self.slot.fill(address, node.python_mut());
    }
}

#[pymethods]
impl PyNode {
    #[new]
    fn new() -> PyNode {
        PyNode { node: Mutex::new(None), slot: Slot::default() }
    }
    fn name(&self) -> PyResult<String> {
        let name = self.node()?.name();
        // PyTorch's nodes that stand for no operation carry the namespace of their C++ class.
        let bare = matches!(&*name, "AccumulateGrad" | "CopySlices" | "CopyBackwards" | "Error");
        Ok(if bare { format!("torch::autograd::{name}") } else { name.into_owned() })
    }
    #[getter]
    fn next_functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let items = self
            .node()?
            .edges
            .iter()
            .map(|e| Ok((e.node().map(|n| wrap_node(py, n)).transpose()?, e.nr)))
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, items)
    }
    #[getter]
    fn metadata<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let fresh = || PyDict::new(py).into_any();
        let Some(node) = slf.get().owned() else {
            // The context of a custom function lives as long as its node.
            let attributes = slf.as_any().getattr("__dict__")?;
            return attributes.call_method1("setdefault", ("_metadata", fresh()));
        };
        let kept = node.hooks_mut().metadata.get_or_init(|| Box::new(Payload::new(fresh().unbind())));
        match kept.downcast_ref::<Payload>() {
            Some(kept) => Ok(kept.0.bind(py).clone()),
            None => Err(PyRuntimeError::new_err("the metadata of this node is no Python object")),
        }
    }
    fn _sequence_nr(&self) -> PyResult<u64> {
        Ok(self.node()?.sequence)
    }
    #[getter]
    fn _input_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let items = self
            .node()?
            .outputs
            .iter()
            .map(|m| Bound::new(py, InputMetadata(m.clone())))
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, items)
    }
    fn register_hook(&self, hook: Py<PyAny>) -> PyResult<PyHandle> {
        self.add_hook(hook, false)
    }
    fn register_prehook(&self, hook: Py<PyAny>) -> PyResult<PyHandle> {
        self.add_hook(hook, true)
    }
    fn __repr__(slf: &Bound<'_, Self>) -> String {
        format!("<{} object at {:#x}>", slf.class_name(), slf.as_ptr() as usize)
    }
    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let node = slf.get().node()?;
        if name == "variable"
            && let Some(leaf) = node.body.leaf()
        {
            return Ok(wrap(py, leaf)?.into_any());
        }
        if let Some(found) = saved::attribute(py, &node, name)? {
            return Ok(found);
        }
        Err(PyAttributeError::new_err(format!("'{}' object has no attribute '{name}'", slf.class_name())))
    }
    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Vec<String>> {
        let mut names: Vec<String> = slf.py().get_type::<PyAny>().call_method1("__dir__", (slf,))?.extract()?;
        // The context of a custom function has names of its own for what it saved.
        if let Some(node) = slf.get().try_node().filter(|node| !node.body.is_foreign()) {
            names.extend(saved::attribute_names(&node));
        }
        Ok(names)
    }
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        if !self.slot.is_made() {
            return Ok(());
        }
        match self.node.try_lock().as_deref() {
            Some(Some(Link::Strong(node))) => collector::traverse_node(node, &visit),
            _ => Ok(()),
        }
    }
    fn __clear__(&self) {
        let link = self.node.lock().take_if(|link| matches!(link, Link::Strong(_)));
        if let Some(Link::Strong(node)) = link {
            function::bind(&node, false);
            forget(&self.slot, &node);
        }
    }
}

impl PyNode {
    fn add_hook(&self, hook: Py<PyAny>, pre: bool) -> PyResult<PyHandle> {
        Python::attach(|py| refuse_uncallable(py, &hook))?;
        let node = self.node()?;
        let id = next_id();
        let hook: Arc<dyn NodeHook> = Arc::new(PyNodeHook { payload: Payload::new(hook), pre });
        let hooks = node.hooks_mut();
        if pre {
            hooks.pre.lock().push((id, hook))
        } else {
            hooks.post.lock().push((id, hook))
        }
        let weak = Arc::downgrade(&node);
        Ok(PyHandle(HookHandle::new(id, move |id| {
            if let Some(hooks) = weak.upgrade().as_deref().and_then(|n| n.hooks()) {
                let list = if pre { &hooks.pre } else { &hooks.post };
                remove(list, |h| h.0 == id);
            }
        })))
    }
}

/// What a node expects as a gradient of one of its outputs.
#[pyclass(frozen, module = "rustgrad.autograd.graph")]
struct InputMetadata(crate::autograd::node::Meta);

#[pymethods]
impl InputMetadata {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        size(py, &self.0.sizes)
    }
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, dtype::PyDType>> {
        dtype::object(py, self.0.dtype)
    }
    #[getter]
    fn device(&self) -> dtype::PyDevice {
        dtype::cpu()
    }
}
