//! Python's side of saved values: hooks that pack and unpack them, gradient edges, version counters.

use super::bind;
use super::error::carry;
use super::graph::{Payload, PyNode, wrap_node};
use super::identity::wrap;
use super::tensor::PyTensor;
use crate::autograd::engine::{current_task, runs_whole, will_run};
use crate::autograd::node::Edge;
use crate::autograd::saved::{Packed, SavedHooks, pop_hooks, push_hooks};
use crate::error::{Error, Result};
use crate::shape::{Layout, Strides};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use std::sync::Arc;

struct PySavedHooks {
    pack: Payload,
    unpack: Payload,
}

impl SavedHooks for PySavedHooks {
    fn pack(&self, value: &Tensor) -> Result<Packed> {
        Python::attach(|py| {
            let value = wrap(py, value)?;
            let packed = self.pack.0.bind(py).call1((value,))?;
            Ok(Box::new(Payload::new(packed.unbind())) as Packed)
        })
        .map_err(carry)
    }

    fn unpack(&self, packed: &Packed) -> Result<Tensor> {
        let Some(object) = packed.downcast_ref::<Payload>() else {
            return Err(Error::runtime("saved_tensors_hooks", "what was packed is no Python object"));
        };
        Python::attach(|py| {
            let value = self.unpack.0.bind(py).call1((object.0.bind(py),))?;
            bind::tensor(&value).ok_or_else(|| {
                let class = value.get_type().name().map_or_else(|_| "?".into(), |n| n.to_string());
                PyTypeError::new_err(format!(
                    "Output of saved tensor unpack_hook expected to be a Tensor but got result of type {class}"
                ))
            })
        })
        .map_err(carry)
    }
}

/// Installs a pair of hooks on this thread.
#[pyfunction]
pub(super) fn _push_saved_tensors_hooks(pack: Py<PyAny>, unpack: Py<PyAny>) {
    push_hooks(Arc::new(PySavedHooks { pack: Payload::new(pack), unpack: Payload::new(unpack) }));
}

/// Removes the pair installed last.
#[pyfunction]
pub(super) fn _pop_saved_tensors_hooks() {
    pop_hooks();
}

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
    will_run(&node).ok_or_else(|| {
        PyRuntimeError::new_err("_will_engine_execute_node should only be called during a backward, from a hook")
    })
}

/// Whether the backward that runs on this thread computes all gradients there are, and not those of some inputs.
#[pyfunction]
pub(super) fn _is_checkpoint_valid() -> bool {
    runs_whole()
}
