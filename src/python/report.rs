//! What reports of the graph read beside its public face: what a node keeps and how many hooks it has, which memory a tensor
//! lies in. Nothing here runs a hook, brings a saved value back or looks at values.

use super::collector::Payload;
use super::dtype;
use super::graph::PyNode;
use super::tensor::{PyTensor, size};
use crate::autograd::held::Held;
use crate::autograd::node::{Backward, NodeRef, SavedAttribute, upcoming_sequence};
use crate::autograd::saved::{Holding, SavedTensor};
use crate::storage::{self, WeakStorage};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

fn node_of(node: &Bound<'_, PyNode>) -> PyResult<NodeRef> {
    node.get().try_node().ok_or_else(|| PyRuntimeError::new_err("this node belongs to no graph"))
}

/// A saved value: its name, shape and dtype, what it is (`leaf`, `value` or `constant` for an input that is a leaf, has
/// history, or requires no gradient; `result` for what the node computed or copied; `packed` for what hooks have), the
/// number and size in bytes of its memory, and what hooks keep in its place.
type Entry<'py> = (
    String,
    Bound<'py, PyAny>,
    Bound<'py, dtype::PyDType>,
    &'static str,
    Option<(usize, usize)>,
    Option<Bound<'py, PyAny>>,
);

/// What a node keeps for backward; `None` once it has let go of it.
#[pyfunction]
pub(super) fn _node_saved<'py>(node: &Bound<'py, PyNode>) -> PyResult<Option<Vec<Entry<'py>>>> {
    let py = node.py();
    let node = node_of(node)?;
    let mut kept = Vec::new();
    let mut whole = keep(&node.body, &mut kept);
    // A change of a part keeps what the change saved, in a node of its own.
    node.body.held(&mut |held| {
        if let Held::Node(inner) = held {
            whole &= keep(&inner.body, &mut kept);
        }
    });
    if !whole {
        return Ok(None);
    }
    kept.iter().map(|(name, value)| entry(py, name, value)).collect::<PyResult<_>>().map(Some)
}

/// Adds what a node's body keeps; false if it has let go of it.
fn keep(body: &dyn Backward, kept: &mut Vec<(String, SavedTensor)>) -> bool {
    for (name, value) in body.saved() {
        match value {
            SavedAttribute::Tensor(value) => kept.push((name.into_owned(), value)),
            SavedAttribute::Member(at, Some(value)) => kept.push((format!("{name}[{at}]"), value)),
            SavedAttribute::Member(_, None) => {}
        }
    }
    body.freed().is_none()
}

fn entry<'py>(py: Python<'py>, name: &str, value: &SavedTensor) -> PyResult<Entry<'py>> {
    let (sizes, element, kind, memory, packed) = match value.holding() {
        Holding::Away(meta, packed) => {
            let mut object = None;
            packed.held(&mut |held| {
                // What was packed comes first, then the function that unpacks it.
                if let (None, Held::Payload(payload)) = (&object, held) {
                    object = payload.downcast_ref::<Payload>().map(|p| p.0.bind(py).clone());
                }
            });
            (&meta.sizes, meta.dtype, "packed", None, object)
        }
        Holding::Here(body, input) => {
            let kind = match input {
                None => "result",
                Some(t) if !t.requires_grad() => "constant",
                Some(t) if t.is_leaf() => "leaf",
                Some(_) => "value",
            };
            (&body.layout.sizes, body.dtype, kind, Some((body.storage.id(), body.storage.bytes())), None)
        }
    };
    Ok((name.to_owned(), size(py, sizes)?, dtype::object(py, element)?, kind, memory, packed))
}

/// How many hooks a node has: on gradients of its outputs (a leaf's own among them), before it, after it, after a leaf's
/// accumulation; and the numbers of the outputs whose gradients are retained.
#[pyfunction]
pub(super) fn _node_hooks(node: &Bound<'_, PyNode>) -> PyResult<(usize, usize, usize, usize, Vec<u32>)> {
    let node = node_of(node)?;
    let leaf = node.body.leaf().and_then(|l| l.existing_extra()?.hooks.existing());
    let mut tensor = leaf.map_or(0, |hooks| hooks.tensor.lock().len());
    let accumulated = leaf.map_or(0, |hooks| hooks.post.lock().len());
    let Some(hooks) = node.hooks() else { return Ok((tensor, 0, 0, accumulated, Vec::new())) };
    tensor += hooks.tensor.lock().len();
    let retained = hooks.retain.lock().iter().filter(|(_, t)| t.strong_count() > 0).map(|(nr, _)| *nr).collect();
    Ok((tensor, hooks.pre.lock().len(), hooks.post.lock().len(), accumulated, retained))
}

/// The memory of a tensor, known but not kept. While this object lives no other memory has its number.
#[pyclass(frozen, name = "_StorageRef", module = "rustgrad._core")]
pub(super) struct StorageRef {
    storage: WeakStorage,
    bytes: usize,
}

#[pymethods]
impl StorageRef {
    #[getter]
    fn id(&self) -> usize {
        self.storage.id()
    }
    #[getter]
    fn bytes(&self) -> usize {
        self.bytes
    }
    #[getter]
    fn alive(&self) -> bool {
        self.storage.is_alive()
    }
}

/// The memory that a tensor lies in.
#[pyfunction]
pub(super) fn _storage_of(t: &Bound<'_, PyTensor>) -> StorageRef {
    let body = t.get().tensor.body();
    StorageRef { storage: body.storage.downgrade(), bytes: body.storage.bytes() }
}

/// The least sequence number that this thread's next node can have, and the first one and the one past the last of the
/// block it is in, which is this thread's alone.
#[pyfunction]
pub(super) fn _upcoming_sequence_nr() -> (u64, u64, u64) {
    let (next, block) = upcoming_sequence();
    (next, block.start, block.end)
}

/// Bytes of blocks of 3 MiB and more that storages hold now.
#[pyfunction]
pub(super) fn _memory_large() -> usize {
    storage::large_bytes()
}
