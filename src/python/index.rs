//! `x[key]` and `x[key] = value`: a key is read once into index items, which `ops::getitem` understands.

use super::bind;
use super::data;
use super::error::guarded;
use super::identity::wrap;
use super::tensor::PyTensor;
use crate::dtype::DType;
use crate::ops::getitem::{IndexItem, IndexValue, getitem, setitem};
use crate::tensor::Tensor;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyFloat, PySlice, PyString, PyTuple};
use smallvec::{SmallVec, smallvec};

type Items = SmallVec<[IndexItem; 4]>;

/// `x[key]`.
pub(super) fn get<'py>(slf: &Bound<'py, PyTensor>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let items = items(key)?;
    let result = guarded(|| Ok(getitem(&slf.get().tensor, &items)?))?;
    Ok(wrap(slf.py(), &result)?.into_any())
}

/// `x[key] = value`.
pub(super) fn set(slf: &Bound<'_, PyTensor>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let items = items(key)?;
    let t = &slf.get().tensor;
    if let Some(v) = bind::tensor(value) {
        return guarded(|| Ok(setitem(t, &items, IndexValue::Tensor(&v))?));
    }
    if let Some(n) = bind::number(value)? {
        return guarded(|| Ok(setitem(t, &items, IndexValue::Number(n))?));
    }
    if value.cast::<PyString>().is_ok() || value.is_none() {
        return Err(PyTypeError::new_err(format!("can't assign a {} to a torch.{}Tensor", value.get_type().name()?, t.dtype().legacy())));
    }
    let v = data::from_data(value, None)?;
    guarded(|| Ok(setitem(t, &items, IndexValue::Tensor(&v))?))
}

fn items(key: &Bound<'_, PyAny>) -> PyResult<Items> {
    match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|k| item(&k)).collect(),
        Err(_) => Ok(smallvec![item(key)?]),
    }
}

fn item(key: &Bound<'_, PyAny>) -> PyResult<IndexItem> {
    if let Some(n) = plain_int(key)? {
        return Ok(IndexItem::Int(n));
    }
    if let Ok(slice) = key.cast::<PySlice>() {
        let part = |name: &str| -> PyResult<Option<i64>> {
            let bound = slice.getattr(name)?;
            match bind::int(&bound)? {
                Some(n) => Ok(Some(n)),
                None if bound.is_none() => Ok(None),
                None => Err(PyTypeError::new_err("slice indices must be integers or None or have an __index__ method")),
            }
        };
        return Ok(IndexItem::Slice { start: part("start")?, stop: part("stop")?, step: part("step")? });
    }
    if key.is_none() {
        return Ok(IndexItem::None);
    }
    if key.cast::<PyEllipsis>().is_ok() {
        return Ok(IndexItem::Ellipsis);
    }
    if let Ok(b) = key.cast::<PyBool>() {
        return Ok(IndexItem::Bool(b.is_true()));
    }
    if let Some(t) = bind::tensor(key) {
        return Ok(IndexItem::Tensor(t));
    }
    if key.cast::<PyFloat>().is_ok() || key.cast::<PyString>().is_ok() {
        return Err(PyIndexError::new_err(format!(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})",
            key.get_type().name()?
        )));
    }
    if let Some(n) = bind::int(key)? {
        return Ok(IndexItem::Int(n));
    }
    // Lists, arrays and other sequences are indices or masks.
    let t: Tensor = data::from_data(key, None).map_err(|_| {
        let name = key.get_type().name().map(|n| n.to_string()).unwrap_or_default();
        PyIndexError::new_err(format!("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {name})"))
    })?;
    let empty_list = t.numel() == 0 && t.dtype().is_float();
    Ok(IndexItem::Tensor(if empty_list { crate::ops::to_dtype(&t, DType::I64)? } else { t }))
}

/// Python's own integers; tensors that could stand for one stay tensors.
fn plain_int(key: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if key.cast::<pyo3::types::PyInt>().is_ok() { bind::int(key) } else { Ok(None) }
}
