//! What tools read of a tensor that PyTorch does not document: which hooks it has, how many hold it; and assignments to
//! `requires_grad`.

use super::collector::Payload;
use crate::autograd::hooks::TensorHook;
use crate::tensor::{HookLists, Tensor};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use std::sync::Arc;

type Hooks = Vec<(u64, Arc<dyn TensorHook>)>;

/// `t.requires_grad = on`: stricter than `requires_grad_`, as PyTorch is.
pub(super) fn set_requires_grad(t: &Tensor, on: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(on) = on.cast::<PyBool>() else { return Err(PyRuntimeError::new_err("requires_grad must be a bool")) };
    if on.is_true() && !t.is_leaf() {
        return Err(PyRuntimeError::new_err("you can only change requires_grad flags of leaf variables."));
    }
    Ok(t.set_requires_grad(on.is_true())?)
}

/// The hooks registered with `register_hook` that will see the next gradient, by the ids of their handles.
pub(super) fn backward_hooks<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Option<Bound<'py, PyAny>>> {
    let edge = t.grad_fn_as_is();
    let hooks: Hooks = match edge.node() {
        Some(node) => node.hooks().map_or_else(Vec::new, |hooks| {
            let all = hooks.tensor.lock();
            all.iter().filter(|h| h.1 == edge.nr).map(|h| (h.0, h.2.clone())).collect()
        }),
        None => leaf_hooks(t).map_or_else(Vec::new, |hooks| hooks.tensor.lock().clone()),
    };
    by_id(py, hooks)
}

/// The hooks registered with `register_post_accumulate_grad_hook`, by the ids of their handles.
pub(super) fn post_accumulate_grad_hooks<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Option<Bound<'py, PyAny>>> {
    by_id(py, leaf_hooks(t).map_or_else(Vec::new, |hooks| hooks.post.lock().clone()))
}

/// The hooks that live on the tensor itself, if it ever had any.
fn leaf_hooks(t: &Tensor) -> Option<&HookLists> {
    t.existing_extra()?.hooks.existing()
}

/// The Python functions among the hooks in an ordered dictionary; nothing if there is none.
fn by_id(py: Python<'_>, hooks: Hooks) -> PyResult<Option<Bound<'_, PyAny>>> {
    let dict = py.import("collections")?.getattr("OrderedDict")?.call0()?;
    for (id, hook) in &hooks {
        if let Some(function) = hook.payload().and_then(|p| p.downcast_ref::<Payload>()) {
            dict.set_item(id, function.0.bind(py))?;
        }
    }
    Ok(dict.is_truthy()?.then_some(dict))
}

/// Whether a tensor lies in memory as a memory format asks: not, if it has not the rank that the format is for.
pub(super) fn is_contiguous(t: &Tensor, format: &str) -> PyResult<bool> {
    let layout = t.body().layout.clone();
    match (format, layout.rank()) {
        ("channels_last", 4) | ("channels_last_3d", 5) | ("" | "contiguous_format", _) => {
            Ok(crate::ops::copy::is_formatted("is_contiguous", &layout, format)?)
        }
        ("channels_last" | "channels_last_3d", _) => Ok(false),
        _ => Err(PyRuntimeError::new_err("preserve memory format is unsupported by the contiguous operator")),
    }
}

/// How many handles to the tensor there are, the Python object's included.
pub(super) fn use_count(t: &Tensor) -> usize {
    Arc::strong_count(&t.0)
}
