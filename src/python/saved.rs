//! Python's side of saved values: hooks that pack and unpack them, gradient edges, version counters.

use super::bind;
use super::collector::Payload;
use super::error::ClassName;
use super::graph::{PyNode, wrap_node};
use super::identity::wrap;
use super::interrupt::call_python;
use super::tensor::PyTensor;
use crate::autograd::engine::{current_task, queue_callback, runs_whole, will_run};
use crate::autograd::held::{Held, Visit};
use crate::autograd::node::{Edge, Node, NodeRef, SavedAttribute};
use crate::autograd::saved::{Packed, SavedHooks, SavedTensor, freed, pop_hooks, push_hooks};
use crate::autograd::watch::set_watch;
use crate::error::Result;
use crate::shape::{Layout, Strides};
use crate::storage::Storage;
use crate::tensor::{Body, Impl, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::{Arc, Weak};

struct PySavedHooks {
    pack: Payload,
    unpack: Payload,
}

/// What a pair of hooks keeps: an object, and the function that makes a tensor of it. The reference to the function is its
/// own, so that the collector may count it.
struct PyPacked {
    object: Payload,
    unpack: Payload,
}

impl PySavedHooks {
    fn new(pack: Py<PyAny>, unpack: Py<PyAny>) -> PySavedHooks {
        PySavedHooks { pack: Payload::new(pack), unpack: Payload::new(unpack) }
    }
}

impl SavedHooks for PySavedHooks {
    fn pack(&self, value: &Tensor) -> Result<Box<dyn Packed>> {
        call_python(|py| {
            let value = wrap(py, value)?;
            let object = Payload::new(self.pack.0.bind(py).call1((value,))?.unbind());
            let unpack = Payload::new(self.unpack.0.clone_ref(py));
            Ok(Box::new(PyPacked { object, unpack }) as Box<dyn Packed>)
        })
    }
}

impl Packed for PyPacked {
    fn unpack(&self) -> Result<Tensor> {
        call_python(|py| {
            let value = self.unpack.0.bind(py).call1((self.object.0.bind(py),))?;
            bind::tensor(&value).ok_or_else(|| {
                let class = value.class_name();
                PyTypeError::new_err(format!(
                    "Output of saved tensor unpack_hook expected to be a Tensor but got result of type {class}"
                ))
            })
        })
    }

    fn held(&self, visit: &mut Visit<'_>) {
        visit(Held::Payload(&self.object));
        visit(Held::Payload(&self.unpack));
    }
}

/// Installs a pair of hooks on this thread.
#[pyfunction]
pub(super) fn _push_saved_tensors_hooks(pack: Py<PyAny>, unpack: Py<PyAny>) {
    push_hooks(Arc::new(PySavedHooks::new(pack, unpack)));
}

/// Removes the pair installed last.
#[pyfunction]
pub(super) fn _pop_saved_tensors_hooks() {
    pop_hooks();
}

// ---- attributes of nodes -----------------------------------------------------------------------------------------------

/// One saved value of a node, to give it hooks of its own.
#[pyclass(frozen, name = "SavedTensor", module = "rustgrad.autograd.graph")]
pub(super) struct PySavedTensor {
    node: Weak<Node>,
    /// Its place among what the node saved.
    place: usize,
}

#[pymethods]
impl PySavedTensor {
    /// Hands the value to a pair of functions, as `saved_tensors_hooks` does with those saved inside of it.
    fn register_hooks(&self, py: Python<'_>, pack: Py<PyAny>, unpack: Py<PyAny>) -> PyResult<()> {
        for hook in [&pack, &unpack] {
            if !hook.bind(py).is_callable() {
                let class = hook.bind(py).class_name();
                return Err(PyTypeError::new_err(format!(
                    "register_hooks(): incompatible function arguments. Both hooks must be callable, got {class}"
                )));
            }
        }
        let gone = || {
            PyRuntimeError::new_err(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved variables after calling backward.",
            )
        };
        let node = self.node.upgrade().ok_or_else(gone)?;
        let value = match node.body.saved().into_iter().nth(self.place).ok_or_else(gone)?.1 {
            SavedAttribute::Tensor(value) | SavedAttribute::Member(_, Some(value)) => value,
            SavedAttribute::Member(_, None) => {
                return Err(PyRuntimeError::new_err(
                    "Calling register_hooks on a saved tensor with value None is forbidden",
                ));
            }
        };
        let packed = value.packed_by(&PySavedHooks::new(pack, unpack))?;
        if node.body.replace_saved(self.place, packed) { Ok(()) } else { Err(gone()) }
    }
}

/// The prefixes of attributes that show what a node saved: the values, and objects to give them hooks by.
const SAVED: &str = "_saved_";
const RAW_SAVED: &str = "_raw_saved_";

/// The attribute of a node that shows a saved value, or a tuple of them, if it has one of that name.
pub(super) fn attribute<'py>(py: Python<'py>, node: &NodeRef, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (raw, wanted) = match (name.strip_prefix(SAVED), name.strip_prefix(RAW_SAVED)) {
        (Some(wanted), _) => (false, wanted),
        (_, Some(wanted)) => (true, wanted),
        _ => return Ok(None),
    };
    let show = |place: usize, value: &SavedTensor| {
        if raw {
            let node = Arc::downgrade(node);
            Ok(Bound::new(py, PySavedTensor { node, place })?.into_any())
        } else {
            Ok::<_, PyErr>(wrap(py, &value.unpack(node)?)?.into_any())
        }
    };
    let mut members = Vec::new();
    for (place, (saved, value)) in node.body.saved().into_iter().enumerate() {
        match value {
            _ if saved != wanted => {}
            SavedAttribute::Tensor(value) => return show(place, &value).map(Some),
            SavedAttribute::Member(at, value) => {
                members.resize_with(at, || py.None().into_bound(py));
                members.push(match value {
                    Some(value) => show(place, &value)?,
                    None if raw => Bound::new(py, PySavedTensor { node: Arc::downgrade(node), place })?.into_any(),
                    None => py.None().into_bound(py),
                });
            }
        }
    }
    if !members.is_empty() {
        return Ok(Some(PyTuple::new(py, members)?.into_any()));
    }
    match node.body.freed() {
        Some(names) if names.iter().any(|name| name == wanted) => Err(freed(node).into()),
        _ => Ok(None),
    }
}

/// The names of those attributes.
pub(super) fn attribute_names(node: &NodeRef) -> impl Iterator<Item = String> {
    let names = node.body.saved().into_iter().map(|(name, _)| name);
    names.flat_map(|name| [format!("{SAVED}{name}"), format!("{RAW_SAVED}{name}")])
}

// ---- edges, versions, the running backward -----------------------------------------------------------------------------

/// The node and output number that the gradient of a tensor goes to.
#[pyfunction]
pub(super) fn _gradient_edge<'py>(t: &Bound<'py, PyTensor>) -> PyResult<(Bound<'py, PyAny>, u32)> {
    let edge = t.get().tensor.edge()?;
    match edge.node() {
        Some(node) => Ok((wrap_node(t.py(), node)?, edge.nr)),
        None => Err(PyRuntimeError::new_err(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients.",
        )),
    }
}

/// A gradient edge (an object with `node` and `output_nr`) as the engine's doors take it: the leaf itself if it leads to one,
/// otherwise a stand-in with the output's shape, dtype and history. It has no memory, and nobody reads any.
pub(super) fn tensor_of_edge(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    let (Ok(node), Ok(nr)) = (object.getattr("node"), object.getattr("output_nr")) else { return Ok(None) };
    let (Ok(node), Ok(nr)) = (node.cast::<PyNode>(), nr.extract::<u32>()) else { return Ok(None) };
    let Some(node) = node.get().try_node() else { return Ok(None) };
    if let Some(leaf) = node.body.leaf() {
        return Ok(Some(leaf.clone()));
    }
    let Some(meta) = node.outputs.get(nr as usize) else {
        return Err(PyRuntimeError::new_err(format!(
            "gradient edge: {} has {} outputs, there is no output {nr}",
            node.name(),
            node.outputs.len()
        )));
    };
    let layout = Layout { sizes: meta.sizes.clone(), strides: Strides::filled(0, meta.sizes.len()), offset: 0 };
    let body = Body::new(Storage::uninit("gradient_edge", 0)?, layout, meta.dtype);
    Ok(Some(Tensor::with_edge(Arc::new(body), Edge::new(node.clone(), nr))))
}

/// Counts a change in place that happened elsewhere.
#[pyfunction]
pub(super) fn _increment_version(t: &Bound<'_, PyTensor>) -> PyResult<()> {
    let t = &t.get().tensor;
    if t.is_inference() {
        return Err(PyRuntimeError::new_err("Inference tensors do not track version counter."));
    }
    t.body().bump_version();
    Ok(())
}

/// The number of the backward that runs on this thread now; -1 if there is none.
#[pyfunction]
pub(super) fn _current_graph_task_id() -> i64 {
    current_task().map_or(-1, i64::from)
}

/// Whether the backward that runs on this thread now runs a node, or captures its gradient.
#[pyfunction]
pub(super) fn _will_engine_execute_node(node: &Bound<'_, PyNode>) -> PyResult<bool> {
    let node = node.get().try_node().ok_or_else(|| PyRuntimeError::new_err("this node belongs to no graph"))?;
    runs(&node)
}

fn runs(node: &NodeRef) -> PyResult<bool> {
    will_run(node).ok_or_else(|| {
        PyRuntimeError::new_err("_will_engine_execute_node should only be called during a backward, from a hook")
    })
}

/// Where the gradient of a tensor goes, not kept alive: whoever asks of a running backward need not own its graph.
#[pyclass(frozen, module = "rustgrad.autograd.graph")]
pub(super) struct GradientProbe(Target);

enum Target {
    /// A leaf, whose node comes and goes.
    Leaf(Weak<Impl>),
    Node(Weak<Node>),
}

/// The probe of a tensor.
#[pyfunction]
pub(super) fn _gradient_probe(t: &Bound<'_, PyTensor>) -> PyResult<GradientProbe> {
    let t = &t.get().tensor;
    Ok(GradientProbe(match t.grad_fn()?.node() {
        Some(node) => Target::Node(Arc::downgrade(node)),
        None => Target::Leaf(Arc::downgrade(&t.0)),
    }))
}

#[pymethods]
impl GradientProbe {
    /// Whether the backward that runs on this thread now computes the gradient.
    fn is_computed(&self) -> PyResult<bool> {
        let node = match &self.0 {
            Target::Node(node) => node.upgrade(),
            Target::Leaf(leaf) => match leaf.upgrade() {
                Some(leaf) => Tensor(leaf).edge()?.node().cloned(),
                None => None,
            },
        };
        node.map_or(Ok(false), |node| runs(&node))
    }
}

/// Whether the backward that runs on this thread computes all gradients there are, and not those of some inputs.
#[pyfunction]
pub(super) fn _is_checkpoint_valid() -> bool {
    runs_whole()
}

/// Has the backward that runs on this thread call a function when it is done.
#[pyfunction]
pub(super) fn _queue_callback(callback: Py<PyAny>) -> PyResult<()> {
    let call = move || call_python(|py| callback.bind(py).call0().map(drop));
    Ok(queue_callback(Box::new(call))?)
}

/// Has a function called with each tensor that is about to be changed in place on this thread; None ends that.
#[pyfunction]
pub(super) fn _set_write_watch(watch: Option<Py<PyAny>>) {
    set_watch(watch.map(|watch| {
        let watch: crate::autograd::watch::Watch =
            Arc::new(move |target: &Tensor| call_python(|py| watch.bind(py).call1((wrap(py, target)?,)).map(drop)));
        watch
    }));
}
