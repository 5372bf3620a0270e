//! `x[key]`: a key is read once into index items, which the tensor room understands.

use super::bind;
use super::identity::wrap;
use super::tensor::PyTensor;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// `x[key]`.
pub(super) fn get<'py>(slf: &Bound<'py, PyTensor>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let t = &slf.get().tensor;
    if let Some(n) = bind::int(key)? {
        return Ok(wrap(slf.py(), &t.select(0, n)?)?.into_any());
    }
    Err(PyTypeError::new_err("index"))
}

/// `x[key] = value`.
pub(super) fn set(_slf: &Bound<'_, PyTensor>, _key: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
    Err(PyTypeError::new_err("index"))
}
