//! Tensors from Python data and back: conversion, lists, pickling, copying, printing options.

use super::bind;
use super::collector::detached;
use super::dtype;
use super::error::ClassName;
use super::gather;
use super::identity::{wrap, wrap_new};
use super::interrupt::interruptible;
use super::numpy;
use super::tensor::{PyTensor, make_instance};
use crate::dtype::DType;
use crate::ops;
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout, Strides, checked_numel};
use crate::storage::{Guards, Storage};
use crate::sync::lock::Mutex;
use crate::tensor::{Body, PrintChange, PrintOptions, Tensor, default_dtype};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList, PyString, PyTuple, PyType};

/// So many values are taken from Python's data between two questions whether a signal is waiting.
pub(super) const VALUES_PER_POLL: usize = 1 << 16;

/// A copy of a tensor's values in memory of its own, without history.
pub(super) fn own(t: &Tensor) -> PyResult<Tensor> {
    interruptible(|| Ok(Tensor::from_shared(ops::contiguous("tensor", &t.body())?)))
}

/// The tensor in another dtype; itself if it has it already.
fn converted(t: &Tensor, dtype: DType) -> PyResult<Tensor> {
    interruptible(|| Ok(ops::to_dtype(t, dtype)?))
}

/// A tensor from nested sequences, numbers, arrays or tensors, always a copy.
pub(super) fn from_data(obj: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    let t = if let Some(t) = bind::tensor(obj) {
        own(&t.detach())?
    } else if numpy::is_array(obj)? {
        numpy::copy_of(obj)?
    } else {
        return gather::from_sequences(obj, dtype);
    };
    Ok(match dtype {
        Some(d) if d != t.dtype() => converted(&t, d)?,
        _ => t,
    })
}

fn opt_dtype(obj: Option<&Bound<'_, PyAny>>) -> PyResult<Option<DType>> {
    match obj {
        None => Ok(None),
        Some(o) => match dtype::extract(o) {
            Some(d) => Ok(Some(d)),
            None => Err(PyTypeError::new_err(format!(
                "tensor(): argument 'dtype' must be torch.dtype, not {}",
                o.class_name()
            ))),
        },
    }
}

/// `torch.tensor`: a tensor with a copy of the data.
#[pyfunction]
#[pyo3(signature = (data, *, dtype=None, device=None, requires_grad=false, pin_memory=false))]
pub(super) fn tensor<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    requires_grad: bool,
    pin_memory: bool,
) -> PyResult<Bound<'py, PyTensor>> {
    let _ = pin_memory;
    let py = data.py();
    if let Some(d) = device {
        dtype::available(d)?;
    }
    if data.cast::<PyTensor>().is_ok() {
        let text = c"To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).";
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)?;
    }
    let t = from_data(data, opt_dtype(dtype)?)?.born();
    if requires_grad {
        if !t.dtype().is_float() {
            return Err(PyRuntimeError::new_err(
                "Only Tensors of floating point and complex dtype can require gradients",
            ));
        }
        t.set_requires_grad(true)?;
    }
    wrap_new(py, t)
}

/// `torch.as_tensor`: the data itself where it is a tensor or an array of the dtype asked for, else a copy.
#[pyfunction]
#[pyo3(signature = (data, dtype=None, device=None))]
pub(super) fn as_tensor<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(d) = device {
        dtype::available(d)?;
    }
    let want = opt_dtype(dtype)?;
    let py = data.py();
    if let Some(t) = bind::tensor(data) {
        return match want {
            Some(d) if d != t.dtype() => Ok(wrap(py, &converted(&t, d)?)?.into_any()),
            _ => Ok(data.clone()),
        };
    }
    if numpy::is_array(data)?
        && let Ok(t) = numpy::from_buffer(data, true)
    {
        let t = want.map_or(Ok(t.clone()), |d| converted(&t, d))?;
        return Ok(wrap(py, &t.born())?.into_any());
    }
    Ok(wrap_new(py, from_data(data, want)?.born())?.into_any())
}

/// `Tensor(...)`: sizes or data, in the default dtype.
pub(super) fn legacy(args: &Bound<'_, PyTuple>) -> PyResult<Tensor> {
    if args.is_empty() {
        return Ok(ops::zeros(&[0], default_dtype())?);
    }
    let first = args.get_item(0)?;
    if args.len() == 1 && bind::int(&first)?.is_none() {
        return match bind::tensor(&first) {
            Some(t) => Ok(t.detach()),
            None if first.cast::<PyFloat>().is_ok() => {
                Err(PyTypeError::new_err("new(): data must be a sequence (got float)"))
            }
            None => from_data(&first, Some(default_dtype())),
        };
    }
    let mut sizes = Dims::new();
    for arg in args.iter() {
        match bind::int(&arg)? {
            Some(n) if n >= 0 => sizes.push(n as usize),
            Some(n) => {
                return Err(PyRuntimeError::new_err(format!("Trying to create tensor with negative dimension {n}")));
            }
            None => {
                return Err(PyTypeError::new_err(format!(
                    "Tensor(): sizes must be integers, not {}",
                    arg.class_name()
                )));
            }
        }
    }
    Ok(ops::zeros(&sizes, default_dtype())?)
}

/// A number as Python sees it.
pub(super) fn scalar_object<'py>(py: Python<'py>, s: Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match s {
        Scalar::Bool(b) => PyBool::new(py, b).to_owned().into_any(),
        Scalar::Int(i) => i.into_pyobject(py)?.into_any(),
        Scalar::Float(x) => PyFloat::new(py, x).into_any(),
    })
}

/// Nested lists of a tensor's elements; a number for a 0-d tensor.
pub(super) fn to_list<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let sizes = t.sizes();
    let values = t.to_scalars()?;
    nested(py, &sizes, &values)
}

fn nested<'py>(py: Python<'py>, sizes: &[usize], values: &[Scalar]) -> PyResult<Bound<'py, PyAny>> {
    let Some((&n, rest)) = sizes.split_first() else { return scalar_object(py, values[0]) };
    let step: usize = rest.iter().product();
    let item = |i: usize| {
        if i % VALUES_PER_POLL == VALUES_PER_POLL - 1 {
            py.check_signals()?;
        }
        nested(py, rest, &values[i * step..(i + 1) * step])
    };
    Ok(PyList::new(py, (0..n).map(item).collect::<PyResult<Vec<_>>>()?)?.into_any())
}

/// An iterator over the first dimension.
pub(super) fn iterate<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    if t.rank() == 0 {
        return Err(PyTypeError::new_err("iteration over a 0-d tensor"));
    }
    let parts = wrap(py, t)?.call_method1("unbind", (0,))?;
    Ok(parts.try_iter()?.into_any())
}

/// `Tensor.to`.
pub(super) fn to<'py>(
    slf: &Bound<'py, PyTensor>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let t = &slf.get().tensor;
    let mut want = t.dtype();
    let mut copy = false;
    let mut format = String::new();
    let mut flags = 0;
    for arg in args.iter() {
        if let Some(d) = dtype::extract(&arg) {
            want = d;
        } else if let Some(other) = bind::tensor(&arg) {
            want = other.dtype();
        } else if let Ok(b) = arg.cast::<PyBool>() {
            // Positional flags are `non_blocking`, then `copy`.
            flags += 1;
            copy |= flags == 2 && b.is_true();
        } else if !arg.is_none() {
            dtype::available(&arg)?;
        }
    }
    for (key, value) in kwargs.into_iter().flatten() {
        match key.extract::<String>()?.as_str() {
            "dtype" => want = opt_dtype(Some(&value).filter(|v| !v.is_none()))?.unwrap_or(want),
            "device" if !value.is_none() => drop(dtype::available(&value)?),
            "other" => want = bind::tensor(&value).map_or(want, |o| o.dtype()),
            "copy" => copy = value.is_truthy()?,
            "memory_format" if !value.is_none() => format = value.extract()?,
            "device" | "non_blocking" | "memory_format" => {}
            other => return Err(PyTypeError::new_err(format!("to() got an unexpected keyword argument '{other}'"))),
        }
    }
    if want == t.dtype() {
        if !copy {
            return in_format(slf, &format);
        }
        let copied = interruptible(|| Ok(ops::copy::in_format(t.to_copy(t.dtype())?, &format)?))?;
        return Ok(wrap(slf.py(), &copied)?.into_any());
    }
    let t = t.clone();
    let convert = || ops::copy::in_format(ops::to_dtype(&t, want)?, &format);
    let converted = interruptible(|| Ok(detached(slf.py(), convert)?))?;
    Ok(wrap(slf.py(), &converted)?.into_any())
}

/// The tensor lying as a memory format asks; the object itself if it does, or if nothing is asked for.
pub(super) fn in_format<'py>(slf: &Bound<'py, PyTensor>, format: &str) -> PyResult<Bound<'py, PyAny>> {
    let t = &slf.get().tensor;
    let laid = interruptible(|| Ok(ops::copy::in_format(t.clone(), format)?))?;
    if laid.is(t) { Ok(slf.clone().into_any()) } else { Ok(wrap(slf.py(), &laid)?.into_any()) }
}

/// `Tensor.type`: the legacy name, or a conversion.
pub(super) fn type_of<'py>(
    slf: &Bound<'py, PyTensor>,
    want: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let t = &slf.get().tensor;
    let py = slf.py();
    let Some(want) = want else {
        return Ok(format!("torch.{}Tensor", t.dtype().legacy()).into_pyobject(py)?.into_any());
    };
    let named = |s: &str| DType::ALL.into_iter().find(|d| s == format!("torch.{}Tensor", d.legacy()));
    let dtype = match want.cast::<PyString>() {
        Ok(s) => named(&s.to_cow()?).ok_or_else(|| PyValueError::new_err(format!("invalid type: '{want}'")))?,
        Err(_) => {
            dtype::extract(want).ok_or_else(|| PyTypeError::new_err("dtype must be a type, str, or dtype object"))?
        }
    };
    Ok(wrap(py, &converted(t, dtype)?)?.into_any())
}

// ---- copying and pickling ----------------------------------------------------------------------------------------------

/// All bytes of a tensor's storage.
pub(super) fn storage_bytes(t: &Tensor) -> Vec<u8> {
    let body = t.body();
    let _guards = Guards::take([&body.storage], []);
    crate::backend::cpu::memory::read(&body.storage, 0, body.storage.bytes())
}

/// A tensor over a copy of raw bytes.
#[pyfunction]
pub(super) fn _tensor_from_bytes<'py>(
    buffer: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    sizes: Vec<usize>,
    strides: Vec<isize>,
    offset: usize,
) -> PyResult<Bound<'py, PyTensor>> {
    let py = buffer.py();
    let dtype = dtype::extract(dtype).ok_or_else(|| PyTypeError::new_err("dtype must be a torch.dtype"))?;
    let bytes = buffer.cast::<PyBytes>().map(|b| b.as_bytes().to_vec()).or_else(|_| buffer.extract::<Vec<u8>>())?;
    if sizes.len() != strides.len() || strides.iter().any(|s| *s < 0) {
        return Err(PyValueError::new_err(format!("sizes {sizes:?} and strides {strides:?} do not describe a tensor")));
    }
    let n = checked_numel("tensor", &sizes)?;
    let last = sizes
        .iter()
        .zip(&strides)
        .try_fold(offset, |n, (&s, &d)| s.saturating_sub(1).checked_mul(d as usize).and_then(|r| n.checked_add(r)));
    if n > 0 && last.is_none_or(|l| l >= bytes.len() / dtype.size()) {
        return Err(PyValueError::new_err(format!(
            "sizes {sizes:?}, strides {strides:?} and offset {offset} reach past {} bytes of {dtype}",
            bytes.len()
        )));
    }
    let storage = Storage::uninit("tensor", bytes.len())?;
    crate::backend::cpu::memory::write(&bytes, &storage);
    let layout = Layout { sizes: sizes[..].into(), strides: Strides::from_slice(&strides), offset };
    wrap_new(py, Tensor::from_body(Body::new(storage, layout, dtype)))
}

/// `Tensor.__reduce_ex__`: the elements' memory, shape and strides, whether a gradient is required, and attributes.
pub(super) fn reduce<'py>(slf: &Bound<'py, PyTensor>, _protocol: i32) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let t = &slf.get().tensor;
    super::copying::warn_of_hooks(py, t)?;
    // Only the memory that the elements span goes along, not the whole storage of a small view.
    let body = t.body();
    let (start, end) = body.layout.extent().unwrap_or((0, 0));
    let size = body.dtype.size();
    let bytes = {
        let _guards = Guards::take([&body.storage], []);
        crate::backend::cpu::memory::read::<u8>(&body.storage, start * size, (end - start) * size)
    };
    let offset = body.layout.offset.saturating_sub(start);
    let rebuild = py.import("rustgrad._core")?.getattr("_rebuild_tensor")?;
    let attributes = slf.as_any().getattr("__dict__")?;
    let attributes = if attributes.is_truthy()? { attributes } else { py.None().into_bound(py) };
    let class = slf.get_type();
    let args = (
        class,
        PyBytes::new(py, &bytes),
        dtype::object(py, body.dtype)?,
        PyTuple::new(py, &body.layout.sizes[..])?,
        PyTuple::new(py, &body.layout.strides[..])?,
        offset,
        t.requires_grad(),
        attributes,
    );
    Ok((rebuild, args).into_pyobject(py)?.into_any())
}

/// What unpickling a tensor calls.
#[pyfunction]
#[pyo3(signature = (class, buffer, dtype, sizes, strides, offset, requires_grad, attributes=None))]
#[allow(clippy::too_many_arguments, reason = "what a pickled tensor consists of")]
pub(super) fn _rebuild_tensor<'py>(
    class: &Bound<'py, PyType>,
    buffer: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    sizes: Vec<usize>,
    strides: Vec<isize>,
    offset: usize,
    requires_grad: bool,
    attributes: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let plain = _tensor_from_bytes(buffer, dtype, sizes, strides, offset)?;
    let plain_class = class.is(class.py().get_type::<PyTensor>());
    let object = if plain_class { plain.into_any() } else { make_instance(class, plain.get().tensor.clone())? };
    object.cast::<PyTensor>()?.get().tensor.set_requires_grad(requires_grad)?;
    if let Some(attributes) = attributes {
        object.getattr("__dict__")?.call_method1("update", (attributes,))?;
    }
    Ok(object)
}

// ---- printing ----------------------------------------------------------------------------------------------------------

static OPTIONS: Mutex<Option<PrintOptions>> = Mutex::new(None);

/// How tensors print now.
pub(super) fn print_options() -> PrintOptions {
    OPTIONS.lock().unwrap_or_default()
}

/// `torch.set_printoptions`.
#[pyfunction]
#[pyo3(signature = (precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None))]
pub(super) fn set_printoptions(
    precision: Option<usize>,
    threshold: Option<f64>,
    edgeitems: Option<usize>,
    linewidth: Option<usize>,
    profile: Option<&str>,
    sci_mode: Option<bool>,
) {
    // A threshold may be any number, infinity included: the count of elements is compared with it.
    let threshold = threshold.map(|t| t.floor().max(0.0) as usize);
    let change = PrintChange { precision, threshold, edgeitems, linewidth, profile, sci_mode };
    let mut options = OPTIONS.lock();
    *options = Some(options.unwrap_or_default().updated(&change));
}
