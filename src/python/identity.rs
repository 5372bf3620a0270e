//! One Python object per tensor: `x.grad is x.grad`, `node.variable is p`. The Rust tensor knows its object without owning
//! it; an object that dies clears the slot, and the next question makes a new one.

use crate::ops::args::Read;
use crate::ops::op::Outputs;
use crate::tensor::Tensor;
use pyo3::PyTypeInfo;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::tensor::PyTensor;

/// The slot in an object that remembers its own address, to clear the Rust side's slot when it dies.
pub(super) struct Slot(AtomicPtr<()>);

impl Default for Slot {
    fn default() -> Slot {
        Slot(AtomicPtr::new(std::ptr::without_provenance_mut(Slot::NOWHERE)))
    }
}

impl Slot {
    /// What an object remembers that is not registered: no address, and not null.
    const NOWHERE: usize = 1;

    /// Whether the object it lies in has been given its value. While Python makes an object of a subclass, the collector may
    /// come by before that and finds zeroed memory.
    pub(super) fn is_made(&self) -> bool {
        !self.0.load(Ordering::Acquire).is_null()
    }

    pub(super) fn fill(&self, object: *mut ffi::PyObject, owner: &AtomicPtr<()>) {
        self.0.store(object.cast(), Ordering::Release);
        owner.store(object.cast(), Ordering::Release);
    }

    /// Clears the owner's slot if it still names this object.
    pub(super) fn clear(&self, owner: &AtomicPtr<()>) {
        // The slot changes under the interpreter's lock only.
        if owner.load(Ordering::Acquire) == self.0.load(Ordering::Acquire) {
            owner.store(std::ptr::null_mut(), Ordering::Release);
        }
    }
}

/// The living object that a slot names.
pub(super) fn alive<'py, T: pyo3::PyTypeInfo>(py: Python<'py>, slot: &AtomicPtr<()>) -> Option<Bound<'py, T>> {
    let object = slot.load(Ordering::Acquire).cast::<ffi::PyObject>();
    if object.is_null() {
        return None;
    }
    // SAFETY: an object clears the slot when it is deallocated, which happens while the interpreter is held, as it is here;
    // one that is being torn down has no references left and is not revived.
    unsafe {
        if ffi::Py_REFCNT(object) <= 0 {
            return None;
        }
        Some(Bound::from_borrowed_ptr(py, object).cast_into_unchecked::<T>())
    }
}

/// The object of a tensor.
pub(super) fn wrap<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyTensor>> {
    wrap_owned(py, tensor.clone())
}

/// [`wrap`] for a handle that is not needed any more.
#[inline]
fn wrap_owned(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyTensor>> {
    match alive::<PyTensor>(py, &tensor.0.python) {
        Some(object) => Ok(object),
        None => wrap_new(py, tensor),
    }
}

/// The object of a tensor that has none yet.
#[inline]
pub(super) fn wrap_new(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyTensor>> {
    let object = new_object(py, tensor)?;
    register(&object);
    Ok(object)
}

/// Where an object of class `Tensor` keeps its Rust value, in bytes from its start; 0 until the first was made.
static VALUE_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// A fresh object. `Bound::new` would call `object.__new__`, which gives each its `__dict__` at once; few tensors ever use
/// one, and Python makes it on demand.
#[inline]
fn new_object(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyTensor>> {
    let offset = VALUE_OFFSET.load(Ordering::Relaxed);
    if offset == 0 {
        let object = Bound::new(py, PyTensor::new(tensor))?;
        let start = object.as_ptr() as usize;
        VALUE_OFFSET.store(std::ptr::from_ref(object.get()) as usize - start, Ordering::Relaxed);
        return Ok(object);
    }
    // SAFETY: the object is of the class whose values lie at this offset, and zeroed memory is what pyo3 starts its other
    // fields with (no `__dict__`, no weak references; a frozen class has no borrow flag). Nothing runs before the value is
    // there.
    unsafe {
        let object = ffi::PyType_GenericAlloc(PyTensor::type_object_raw(py), 0);
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        object.byte_add(offset).cast::<PyTensor>().write(PyTensor::new(tensor));
        Ok(Bound::from_owned_ptr(py, object).cast_into_unchecked())
    }
}

/// Makes an object its tensor's own.
#[inline]
pub(super) fn register(object: &Bound<'_, PyTensor>) {
    let this = object.get();
    this.slot.fill(object.as_ptr(), &this.tensor.0.python);
}

/// What an operation returns, as Python sees it.
pub(super) fn wrap_outputs<'py>(
    py: Python<'py>,
    op: &'static crate::ops::op::Op,
    args: &crate::ops::args::Args,
    outputs: Outputs,
) -> PyResult<Bound<'py, PyAny>> {
    use crate::ops::op::Returns;
    let returns = match op.returns {
        Returns::Bool => {
            let truth: bool = crate::ops::op::FromOutputs::from_outputs(op, outputs)?;
            return Ok(pyo3::types::PyBool::new(py, truth).to_owned().into_any());
        }
        Returns::TupleIf(flags) if flags.iter().any(|&f| args.bool(f)) => Returns::Tuple,
        Returns::TupleIf(_) => Returns::Tensor,
        other => other,
    };
    match returns {
        Returns::Tensor | Returns::Bool => match outputs.into_iter().next() {
            Some(t) => Ok(wrap_owned(py, t)?.into_any()),
            None => Ok(py.None().into_bound(py)),
        },
        Returns::Tuple | Returns::TupleIf(_) => {
            let items: Vec<_> = outputs.iter().map(|t| wrap(py, t)).collect::<PyResult<_>>()?;
            Ok(PyTuple::new(py, items)?.into_any())
        }
        Returns::Fields(names) => {
            let items: Vec<_> = outputs.iter().map(|t| wrap(py, t)).collect::<PyResult<_>>()?;
            let make = py.import("rustgrad._return_types")?.getattr("make")?;
            make.call1((op.name, PyTuple::new(py, names)?, PyTuple::new(py, items)?))
        }
    }
}
