//! `x[key]` and `x[key] = value`: a key is read once into index items, whose meaning `ops::getitem` knows.

use super::bind;
use super::collector::detached;
use super::data;
use super::error::{ClassName, guarded};
use super::identity::wrap_new;
use super::interrupt::interruptible;
use super::numpy;
use super::tensor::PyTensor;
use crate::dtype::{Category, DType};
use crate::ops::getitem::{IndexItem, IndexValue, getitem, setitem};
use crate::tensor::Tensor;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyUserWarning};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PySlice, PyString, PyTuple};
use smallvec::{SmallVec, smallvec};

type Items = SmallVec<[IndexItem; 2]>;

/// From this many elements on, other Python threads run while elements are gathered or written.
const DETACH_FROM: usize = 1 << 16;

/// `x[key]`.
pub(super) fn get<'py>(slf: &Bound<'py, PyTensor>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let t = &slf.get().tensor;
    let items = read(key)?;
    let run = || Ok(if is_long(t, &items) { detached(py, || getitem(t, &items))? } else { getitem(t, &items)? });
    let gathers = items.iter().any(|i| matches!(i, IndexItem::Tensor(_)));
    let result = if gathers { interruptible(run) } else { guarded(run) }?;
    Ok(wrap_new(py, result)?.into_any())
}

/// `x[key] = value`.
pub(super) fn set(slf: &Bound<'_, PyTensor>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = slf.py();
    let t = &slf.get().tensor;
    let held;
    let value = if let Some(v) = bind::tensor(value) {
        held = v;
        IndexValue::Tensor(&held)
    } else if let Some(n) = bind::number(value)? {
        IndexValue::Number(n)
    } else if value.is_none() || value.cast::<PyString>().is_ok() {
        return Err(PyTypeError::new_err(format!(
            "can't assign a {} to a torch.{}Tensor",
            value.class_name(),
            t.dtype().legacy()
        )));
    } else {
        // Lists and arrays are taken too, where PyTorch wants a tensor.
        held = data::from_data(value, None)?;
        IndexValue::Tensor(&held)
    };
    let items = read(key)?;
    guarded(|| {
        let done =
            if is_long(t, &items) { detached(py, || setitem(t, &items, value)) } else { setitem(t, &items, value) };
        Ok(done?)
    })
}

/// Whether the work is worth letting go of the interpreter.
fn is_long(t: &Tensor, items: &[IndexItem]) -> bool {
    items.iter().any(|i| matches!(i, IndexItem::Tensor(_))) && t.numel() >= DETACH_FROM
}

/// The items of a key.
fn read(key: &Bound<'_, PyAny>) -> PyResult<Items> {
    if let Ok(tuple) = key.cast::<PyTuple>() {
        return tuple.iter_borrowed().map(|k| item(&k)).collect();
    }
    if let Ok(list) = key.cast::<PyList>()
        && list.len() < 32
        && list.iter().any(|k| stands_alone(&k))
    {
        let text = c"Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in pytorch 2.9; use x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will be interpreted as tensor index, x[torch.tensor(seq)], which will result either in an error or a different result";
        PyErr::warn(key.py(), &key.py().get_type::<PyUserWarning>(), text, 1)?;
        return list.iter().map(|k| item(&k)).collect();
    }
    Ok(smallvec![item(key)?])
}

/// Whether a member of a list makes the list stand for a tuple, as PyTorch still has it.
fn stands_alone(obj: &Bound<'_, PyAny>) -> bool {
    obj.is_none()
        || obj.cast::<PyTensor>().is_ok()
        || obj.cast::<PySlice>().is_ok()
        || obj.cast::<PyList>().is_ok()
        || obj.cast::<PyTuple>().is_ok()
        || obj.cast::<PyEllipsis>().is_ok()
}

/// One part of a key.
fn item(obj: &Bound<'_, PyAny>) -> PyResult<IndexItem> {
    // SAFETY: a type check on a valid object.
    if unsafe { ffi::PyLong_CheckExact(obj.as_ptr()) } != 0 {
        return bind::int(obj)?.map(IndexItem::Int).ok_or_else(|| refusal(obj));
    }
    if let Ok(slice) = obj.cast::<PySlice>() {
        return range(slice);
    }
    if let Ok(t) = obj.cast::<PyTensor>() {
        return index_tensor(obj.py(), t.get().tensor.clone());
    }
    if obj.is_none() {
        return Ok(IndexItem::None);
    }
    if obj.cast::<PyEllipsis>().is_ok() {
        return Ok(IndexItem::Ellipsis);
    }
    if let Ok(b) = obj.cast::<PyBool>() {
        return Ok(IndexItem::Bool(b.is_true()));
    }
    if obj.cast::<PyInt>().is_ok() {
        return bind::int(obj)?.map(IndexItem::Int).ok_or_else(|| refusal(obj));
    }
    if let Some(t) = numpy::as_operand(obj)? {
        return index_tensor(obj.py(), t);
    }
    if let Some(n) = bind::int(obj)? {
        return Ok(IndexItem::Int(n));
    }
    // SAFETY: a type check on a valid object.
    let is_sequence = unsafe { ffi::PySequence_Check(obj.as_ptr()) } != 0;
    if is_sequence && obj.cast::<PyString>().is_err() && obj.get_type().getattr("__getitem__").is_ok() {
        let list = PyList::new(obj.py(), obj.try_iter()?.collect::<PyResult<Vec<_>>>()?)?;
        let t = data::from_data(&list, None)?;
        // An empty list has no dtype of its own.
        let t = if t.numel() == 0 { crate::ops::to_dtype(&t, DType::I64)? } else { t };
        return index_tensor(obj.py(), t);
    }
    Err(refusal(obj))
}

/// A range; Python itself reads the ends, cuts off what is out of reach, and refuses a step of 0.
fn range(slice: &Bound<'_, PySlice>) -> PyResult<IndexItem> {
    let (mut start, mut stop, mut step) = (0, 0, 0);
    // SAFETY: a slice and places for the three numbers; an error is fetched at once.
    if unsafe { ffi::PySlice_Unpack(slice.as_ptr(), &mut start, &mut stop, &mut step) } < 0 {
        return Err(PyErr::fetch(slice.py()));
    }
    Ok(IndexItem::Slice { start: Some(start as i64), stop: Some(stop as i64), step: Some(step as i64) })
}

/// A tensor as an index, in a dtype that indices may have.
fn index_tensor(py: Python<'_>, t: Tensor) -> PyResult<IndexItem> {
    let dtype = t.dtype();
    if dtype == DType::U8 {
        PyErr::warn(
            py,
            &py.get_type::<PyUserWarning>(),
            c"indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.",
            1,
        )?;
    }
    if dtype.category() == Category::Float {
        return Err(PyIndexError::new_err("tensors used as indices must be long, int, byte or bool tensors"));
    }
    Ok(IndexItem::Tensor(t))
}

#[cold]
fn refusal(obj: &Bound<'_, PyAny>) -> PyErr {
    let name = obj.get_type().fully_qualified_name().map(|n| n.to_string()).unwrap_or_default();
    PyIndexError::new_err(format!(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {name})"
    ))
}
