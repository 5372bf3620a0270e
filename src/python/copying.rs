//! `copy.copy` and `copy.deepcopy` of tensors, and the warning of what a pickle leaves behind.

use super::identity::{wrap, wrap_new};
use super::interrupt::interruptible;
use super::private;
use super::tensor::{PyTensor, make_instance};
use crate::dtype::DType;
use crate::ops;
use crate::shape::Layout;
use crate::tensor::{Body, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// `copy.copy`: another leaf over the same memory.
pub(super) fn shallow<'py>(slf: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    let t = &slf.get().tensor;
    let copy = t.detach();
    copy.set_requires_grad(t.requires_grad())?;
    let object = instance(slf, copy)?;
    let attributes = slf.as_any().getattr("__dict__")?;
    if attributes.is_truthy()? {
        object.getattr("__dict__")?.call_method1("update", (attributes,))?;
    }
    Ok(object)
}

/// `copy.deepcopy`: leaves only; the gradient is copied along, attributes too. Tensors that share memory share it in the
/// copies made with one `memo`.
pub(super) fn deep<'py>(slf: &Bound<'py, PyTensor>, memo: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let t = &slf.get().tensor;
    if !t.is_leaf() {
        return Err(PyRuntimeError::new_err(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001",
        ));
    }
    let key = slf.as_ptr() as usize;
    if let Some(known) = memo.get_item(key)? {
        return Ok(known);
    }
    let copy = Tensor::from_body(copied_body(&t.body(), memo)?);
    copy.set_requires_grad(t.requires_grad())?;
    let object = instance(slf, copy.clone())?;
    memo.set_item(key, &object)?;
    let deep = py.import("copy")?.getattr("deepcopy")?;
    if let Some(g) = t.grad() {
        let g = deep.call1((wrap(py, &g.detach())?, memo))?;
        copy.set_grad(Some(g.cast::<PyTensor>()?.get().tensor.clone()))?;
    }
    let attributes = slf.as_any().getattr("__dict__")?;
    if attributes.is_truthy()? {
        object.getattr("__dict__")?.call_method1("update", (deep.call1((attributes, memo))?,))?;
    }
    Ok(object)
}

/// The same layout over a copy of the whole storage, which `memo` keeps for others that share it.
fn copied_body(body: &Body, memo: &Bound<'_, PyDict>) -> PyResult<Body> {
    let py = memo.py();
    let key = PyString::new(py, &format!("storage at {:p}", body.storage.ptr()));
    let storage = match memo.get_item(&key)? {
        Some(known) => known.cast::<PyTensor>()?.get().tensor.body().storage.clone(),
        None => {
            let bytes = Layout::contiguous([body.storage.bytes()][..].into());
            let whole = Body { layout: bytes, dtype: DType::U8, ..body.clone() };
            let copy = interruptible(|| Ok(ops::copy::duplicate("deepcopy", &whole)?))?;
            memo.set_item(&key, wrap_new(py, Tensor::from_shared(copy.clone()))?)?;
            copy.storage.clone()
        }
    };
    Ok(Body::new(storage, body.layout.clone(), body.dtype))
}

/// A tensor as an object of the class that another has.
fn instance<'py>(like: &Bound<'py, PyTensor>, t: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let class = like.get_type();
    if class.is(like.py().get_type::<PyTensor>()) {
        Ok(wrap_new(like.py(), t)?.into_any())
    } else {
        make_instance(&class, t)
    }
}

/// Says that the hooks of a tensor do not go into a pickle.
pub(super) fn warn_of_hooks(py: Python<'_>, t: &Tensor) -> PyResult<()> {
    let Some(hooks) = private::backward_hooks(py, t)? else { return Ok(()) };
    for hook in hooks.call_method0("values")?.try_iter()? {
        let hook = hook?;
        if hook.getattr("__torch_unserializable__").is_ok() {
            continue;
        }
        let text = format!(
            "backward hook {} on tensor will not be serialized.  If this is expected, you can decorate the function with @torch.utils.hooks.unserializable_hook to suppress this warning",
            hook.repr()?
        );
        let warnings = py.import("warnings")?;
        warnings.call_method1("warn", (text, py.get_type::<PyUserWarning>(), 2))?;
    }
    Ok(())
}
