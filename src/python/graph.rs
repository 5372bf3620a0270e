//! The graph as Python sees it: nodes, hooks and their handles, `backward` and `grad`, and what the garbage collector may
//! know of it.

use super::bind;
use super::error::{carry, guarded};
use super::identity::{Slot, alive, wrap};
use super::tensor::{PyTensor, size};
use super::{data, dtype};
use crate::autograd::hooks::{HookHandle, NodeHook, TensorHook, next_id};
use crate::autograd::node::{Grads, Node, NodeRef, SavedAttribute};
use crate::autograd::{self, BackwardOptions, GradOptions};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError, PyUserWarning};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Python objects that the graph holds; while there are none, the collector need not look into it.
static PAYLOADS: AtomicUsize = AtomicUsize::new(0);

/// A Python object held by the graph.
pub(super) struct Payload(pub(super) Py<PyAny>);

impl Payload {
    pub(super) fn new(object: Py<PyAny>) -> Payload {
        PAYLOADS.fetch_add(1, Ordering::Relaxed);
        Payload(object)
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        PAYLOADS.fetch_sub(1, Ordering::Relaxed);
    }
}

// ---- hooks -------------------------------------------------------------------------------------------------------------

/// A Python function as a tensor hook.
struct PyTensorHook(Payload);

impl TensorHook for PyTensorHook {
    fn call(&self, grad: &Tensor) -> Result<Option<Tensor>> {
        Python::attach(|py| {
            let result = self.0.0.bind(py).call1((wrap(py, grad)?,))?;
            if result.is_none() {
                return Ok(None);
            }
            match bind::tensor(&result) {
                Some(t) => Ok(Some(t)),
                None => Err(PyTypeError::new_err(format!(
                    "expected Variable, but hook returned '{}'",
                    result.get_type().name()?
                ))),
            }
        })
        .map_err(carry)
    }
    fn name(&self) -> String {
        Python::attach(|py| self.0.0.bind(py).getattr("__name__").map_or_else(|_| "hook".into(), |n| n.to_string()))
    }
    fn payload(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.0.0)
    }
}

/// A Python function that is called with a leaf after accumulation.
struct PyPostHook(Payload);

impl TensorHook for PyPostHook {
    fn call(&self, leaf: &Tensor) -> Result<Option<Tensor>> {
        Python::attach(|py| {
            let result = self.0.0.bind(py).call1((wrap(py, leaf)?,))?;
            if result.is_none() {
                return Ok(None);
            }
            Err(PyTypeError::new_err(format!(
                "expected None, but post accumulate grad hook returned '{}'",
                result.get_type().name()?
            )))
        })
        .map_err(carry)
    }
    fn payload(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.0.0)
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
        Python::attach(|py| {
            let (first, second) = (grads_tuple(py, grads)?, grads_tuple(py, outputs)?);
            let hook = self.payload.0.bind(py);
            let result = if self.pre { hook.call1((first,))? } else { hook.call1((first, second))? };
            if result.is_none() {
                return Ok(None);
            }
            let items = if let Some(t) = bind::tensor(&result) {
                vec![Some(t)]
            } else {
                let Some(items) = bind::sequence(&result) else {
                    return Err(PyTypeError::new_err(format!(
                        "expected Variable or tuple, but hook returned '{}'",
                        result.get_type().name()?
                    )));
                };
                items.iter().map(bind::tensor).collect()
            };
            if items.len() != grads.len() {
                return Err(PyRuntimeError::new_err(format!(
                    "hook returned {} gradients, expected {}",
                    items.len(),
                    grads.len()
                )));
            }
            Ok(Some(items.into_iter().collect()))
        })
        .map_err(carry)
    }
    fn payload(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.payload.0)
    }
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
        Err(PyTypeError::new_err(format!("a hook must be callable, got {}", hook.bind(py).get_type().name()?)))
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
    node: OnceLock<Link>,
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
            self.slot.clear(&node.python);
        }
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

/// The object of a node.
pub(super) fn wrap_node<'py>(py: Python<'py>, node: &NodeRef) -> PyResult<Bound<'py, PyAny>> {
    if let Some(object) = alive::<PyNode>(py, &node.python) {
        return Ok(object.into_any());
    }
    let object = class_of(py, &node.name())?.call0()?;
    let inner = object.cast::<PyNode>()?;
    let _ = inner.get().node.set(Link::Strong(node.clone()));
    inner.get().slot.fill(object.as_ptr(), &node.python);
    Ok(object)
}

impl PyNode {
    /// The node, if there is one and it is alive.
    pub(super) fn try_node(&self) -> Option<NodeRef> {
        match self.node.get()? {
            Link::Strong(node) => Some(node.clone()),
            Link::Weak(node) => node.upgrade(),
        }
    }

    fn node(&self) -> PyResult<NodeRef> {
        self.try_node().ok_or_else(|| PyRuntimeError::new_err("this node belongs to no graph"))
    }

    /// Makes this object, which lies at `address`, the node's own.
    pub(super) fn attach(&self, node: &NodeRef, address: *mut pyo3::ffi::PyObject) {
        let _ = self.node.set(Link::Weak(Arc::downgrade(node)));
        self.slot.fill(address, &node.python);
    }
}

#[pymethods]
impl PyNode {
    #[new]
    fn new() -> PyNode {
        PyNode { node: OnceLock::new(), slot: Slot::default() }
    }
    fn name(&self) -> PyResult<String> {
        let node = self.node()?;
        let name = if node.body.leaf().is_some() { "AccumulateGrad".into() } else { node.name() };
        // PyTorch names nodes that it wrote by hand with their namespace.
        let by_hand = matches!(&*name, "AccumulateGrad" | "CopySlices" | "CopyBackwards");
        Ok(if by_hand { format!("torch::autograd::{name}") } else { name.into_owned() })
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
        let dict = slf.as_any().getattr("__dict__")?;
        if let Ok(known) = dict.get_item("_metadata") {
            return Ok(known);
        }
        let fresh = PyDict::new(slf.py());
        dict.set_item("_metadata", &fresh)?;
        Ok(fresh.into_any())
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
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(format!("<{} object at {:#x}>", slf.get_type().name()?, slf.as_ptr() as usize))
    }
    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let node = slf.get().node()?;
        if name == "variable"
            && let Some(leaf) = node.body.leaf()
        {
            return Ok(wrap(py, leaf)?.into_any());
        }
        if let Some(wanted) = name.strip_prefix("_saved_") {
            for (saved, value) in node.body.saved() {
                if saved == wanted {
                    return match value {
                        SavedAttribute::Tensor(t) => Ok(wrap(py, &t.unpack(&node)?)?.into_any()),
                        SavedAttribute::Scalar(s) => data::scalar_object(py, s),
                    };
                }
            }
        }
        Err(PyAttributeError::new_err(format!("'{}' object has no attribute '{name}'", slf.get_type().name()?)))
    }
    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Vec<String>> {
        let mut names: Vec<String> = slf.py().get_type::<PyAny>().call_method1("__dir__", (slf,))?.extract()?;
        if let Some(node) = slf.get().try_node() {
            names.extend(node.body.saved().into_iter().map(|(n, _)| format!("_saved_{n}")));
        }
        Ok(names)
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
                list.lock().retain(|h| h.0 != id);
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

// ---- the engine's doors ------------------------------------------------------------------------------------------------

fn tensors(items: &[Bound<'_, PyAny>], what: &str) -> PyResult<Vec<Tensor>> {
    items
        .iter()
        .enumerate()
        .map(|(k, o)| match bind::tensor(o) {
            Some(t) => Ok(t),
            None => super::saved::tensor_of_edge(o)?.map_or_else(
                || {
                    let class = o.get_type().name()?;
                    Err(PyTypeError::new_err(format!(
                        "element {k} of {what} must be a Tensor or a GradientEdge, not {class}"
                    )))
                },
                Ok,
            ),
        })
        .collect()
}

fn cotangents(items: &[Bound<'_, PyAny>]) -> PyResult<Vec<Option<Tensor>>> {
    items
        .iter()
        .map(|o| match bind::tensor(o) {
            Some(t) => Ok(Some(t)),
            None if o.is_none() => Ok(None),
            None => Err(PyTypeError::new_err(format!(
                "gradients can be either Tensors or None, but got {}",
                o.get_type().name()?
            ))),
        })
        .collect()
}

fn warn_cycle(py: Python<'_>, create_graph: bool) -> PyResult<()> {
    if !create_graph {
        return Ok(());
    }
    let text = c"Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you have to use this function, make sure to reset the .grad fields of your parameters to None after use to break the cycle and avoid the leak.";
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 2)
}

/// `autograd.backward` after its arguments were sorted out.
#[pyfunction]
#[pyo3(signature = (tensors, grad_tensors, retain_graph, create_graph, inputs=None))]
pub(super) fn backward(
    py: Python<'_>,
    tensors: Vec<Bound<'_, PyAny>>,
    grad_tensors: Vec<Bound<'_, PyAny>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    inputs: Option<Vec<Bound<'_, PyAny>>>,
) -> PyResult<()> {
    let roots = self::tensors(&tensors, "tensors")?;
    let grads = cotangents(&grad_tensors)?;
    let inputs = inputs.map(|i| self::tensors(&i, "the `inputs` to backward()")).transpose()?;
    warn_cycle(py, create_graph)?;
    guarded(|| Ok(autograd::backward(&roots, &grads, &BackwardOptions { retain_graph, create_graph, inputs })?))
}

/// `Tensor.backward`.
pub(super) fn tensor_backward(
    slf: &Bound<'_, PyTensor>,
    gradient: Option<&Bound<'_, PyAny>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    inputs: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = slf.py();
    let grads = match gradient {
        None => vec![],
        Some(g) => cotangents(std::slice::from_ref(g))?,
    };
    let inputs = match inputs {
        None => None,
        Some(one) if one.cast::<PyTensor>().is_ok() => {
            Some(tensors(std::slice::from_ref(one), "the `inputs` to backward()")?)
        }
        Some(many) => Some(tensors(&many.try_iter()?.collect::<PyResult<Vec<_>>>()?, "the `inputs` to backward()")?),
    };
    if create_graph {
        warn_cycle(py, true)?;
    }
    let root = slf.get().tensor.clone();
    guarded(|| Ok(autograd::backward(&[root], &grads, &BackwardOptions { retain_graph, create_graph, inputs })?))
}

/// `autograd.grad` after its arguments were sorted out.
#[pyfunction]
#[pyo3(signature = (outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads=false))]
#[allow(clippy::too_many_arguments, reason = "the options of autograd.grad")]
pub(super) fn grad<'py>(
    py: Python<'py>,
    outputs: Vec<Bound<'py, PyAny>>,
    inputs: Vec<Bound<'py, PyAny>>,
    grad_outputs: Vec<Bound<'py, PyAny>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    allow_unused: bool,
    materialize_grads: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let roots = tensors(&outputs, "outputs")?;
    let targets = tensors(&inputs, "inputs")?;
    let grads = cotangents(&grad_outputs)?;
    let options = GradOptions { retain_graph, create_graph, allow_unused, materialize_grads };
    let results = guarded(|| Ok(autograd::grad(&roots, &targets, &grads, &options)?))?;
    let items = results.iter().map(|g| g.as_ref().map(|g| wrap(py, g)).transpose()).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, items)
}

/// Asks Python whether a signal has come in; `KeyboardInterrupt` stops the backward.
pub(super) fn check_signals() -> Result<()> {
    Python::attach(|py| py.check_signals()).map_err(|e: PyErr| -> Error { carry(e) })
}

// ---- garbage collection ------------------------------------------------------------------------------------------------

fn visit_payload(
    payload: Option<&(dyn Any + Send + Sync)>,
    visit: &PyVisit<'_>,
) -> std::result::Result<(), PyTraverseError> {
    match payload.and_then(|p| p.downcast_ref::<Py<PyAny>>()) {
        Some(object) => visit.call(object),
        None => Ok(()),
    }
}

/// Shows the collector the Python objects that only this tensor keeps alive: its own hooks, and those of the nodes behind
/// it for as long as each is held by the one before alone. What others hold too is not this tensor's to show.
pub(super) fn traverse_tensor(t: &Tensor, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
    if PAYLOADS.load(Ordering::Relaxed) == 0 || Arc::strong_count(&t.0) != 1 {
        return Ok(());
    }
    if let Some(extra) = t.existing_extra() {
        for list in [&extra.hooks.tensor, &extra.hooks.post] {
            if let Some(hooks) = list.try_lock() {
                for (_, hook) in hooks.iter().filter(|(_, h)| Arc::strong_count(h) == 1) {
                    visit_payload(hook.payload(), visit)?;
                }
            }
        }
    }
    let Some(edge) = t.try_grad_fn() else { return Ok(()) };
    let mut next: Vec<NodeRef> = edge.node().cloned().into_iter().collect();
    drop(edge);
    while let Some(node) = next.pop() {
        // One reference is the edge's that led here, one is the walk's.
        if Arc::strong_count(&node) != 2 {
            continue;
        }
        visit_payload(node.body.payload(), visit)?;
        if let Some(hooks) = node.hooks() {
            if let Some(list) = hooks.tensor.try_lock() {
                for (_, _, hook) in list.iter().filter(|(_, _, h)| Arc::strong_count(h) == 1) {
                    visit_payload(hook.payload(), visit)?;
                }
            }
            for list in [&hooks.pre, &hooks.post] {
                if let Some(list) = list.try_lock() {
                    for (_, hook) in list.iter().filter(|(_, h)| Arc::strong_count(h) == 1) {
                        visit_payload(hook.payload(), visit)?;
                    }
                }
            }
        }
        next.extend(node.edges.iter().filter_map(|e| e.node().cloned()));
    }
    Ok(())
}

/// Breaks the cycles that run through this tensor.
pub(super) fn clear_tensor(t: &Tensor) {
    if let Some(extra) = t.existing_extra() {
        let tensor = std::mem::take(&mut *extra.hooks.tensor.lock());
        let post = std::mem::take(&mut *extra.hooks.post.lock());
        drop((tensor, post));
    }
    if Arc::strong_count(&t.0) == 1 && PAYLOADS.load(Ordering::Relaxed) > 0 {
        t.drop_history();
    }
}
