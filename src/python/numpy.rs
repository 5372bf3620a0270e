//! numpy, both ways without copying, through the buffer protocol; numpy itself is imported only when an array is asked for.

use super::data;
use super::error::ClassName;
use super::tensor::refuse_history;
use crate::dtype::DType;
use crate::shape::{Dims, Layout, Strides, numel};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyUserWarning, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

/// The buffer protocol's name of a dtype.
fn format_of(dtype: DType) -> Option<&'static CStr> {
    Some(match dtype {
        DType::Bool => c"?",
        DType::U8 => c"B",
        DType::I8 => c"b",
        DType::I16 => c"h",
        DType::I32 => c"i",
        DType::I64 => c"q",
        DType::F16 => c"e",
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::BF16 => return None,
    })
}

/// The dtype of a buffer's elements.
fn dtype_of(format: &str, itemsize: usize) -> Option<DType> {
    let code = format.trim_start_matches(['@', '=', '<', '|']);
    Some(match (code, itemsize) {
        ("?", 1) => DType::Bool,
        ("B", 1) => DType::U8,
        ("b", 1) => DType::I8,
        ("h", 2) => DType::I16,
        ("i" | "l", 4) => DType::I32,
        ("q" | "l", 8) => DType::I64,
        ("e", 2) => DType::F16,
        ("f", 4) => DType::F32,
        ("d", 8) => DType::F64,
        _ => return None,
    })
}

/// Whether an object is a numpy array; numpy is not imported for the question.
pub(super) fn is_array(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    let modules = obj.py().import("sys")?.getattr("modules")?;
    match modules.get_item("numpy") {
        Ok(numpy) => obj.is_instance(&numpy.getattr("ndarray")?),
        Err(_) => Ok(false),
    }
}

/// An operand that is an array, as a tensor over the same memory.
pub(super) fn as_operand(obj: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    if is_array(obj)? { from_buffer(obj, false).map(Some) } else { Ok(None) }
}

/// A buffer held for as long as a storage uses its memory.
struct Held(Box<ffi::Py_buffer>);

// SAFETY: the buffer is only released, and that attached to the interpreter.
unsafe impl Send for Held {}
// SAFETY: as above; nothing reads the struct concurrently.
unsafe impl Sync for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        // After the interpreter has ended there is nobody to give the buffer back to.
        Python::try_attach(|_| {
            // SAFETY: filled by PyObject_GetBuffer, released once.
            unsafe { ffi::PyBuffer_Release(&mut *self.0) }
        });
    }
}

/// A tensor over the memory of an object with the buffer protocol. `warn` says whether read-only memory is worth a warning.
pub(super) fn from_buffer(obj: &Bound<'_, PyAny>, warn: bool) -> PyResult<Tensor> {
    let py = obj.py();
    let mut buffer = Box::new(ffi::Py_buffer::new());
    // SAFETY: a valid object and a fresh buffer structure; the result is checked.
    if unsafe { ffi::PyObject_GetBuffer(obj.as_ptr(), &mut *buffer, ffi::PyBUF_FULL_RO) } != 0 {
        let err = PyErr::fetch(py);
        return Err(PyTypeError::new_err(format!(
            "can't convert an object of type {}: {}",
            obj.class_name(),
            err.value(py)
        )));
    }
    let held = Held(buffer);
    let view = &held.0;
    let format = if view.format.is_null() {
        "B".into()
    } else {
        // SAFETY: the exporter filled in a NUL-terminated format.
        unsafe { CStr::from_ptr(view.format) }.to_string_lossy()
    };
    let itemsize = view.itemsize as usize;
    if format.starts_with(['>', '!']) && itemsize > 1 {
        return Err(PyValueError::new_err(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is currently not supported.",
        ));
    }
    let Some(dtype) = dtype_of(&format, itemsize) else {
        let name = obj
            .getattr("dtype")
            .and_then(|d| d.getattr("type"))
            .and_then(|t| t.getattr("__name__"))
            .map(|n| n.to_string());
        return Err(PyTypeError::new_err(format!(
            "can't convert np.ndarray of type numpy.{}. The only supported types are: float64, float32, float16, int64, int32, int16, int8, uint8, and bool.",
            name.unwrap_or_else(|_| format.to_string())
        )));
    };
    let rank = view.ndim as usize;
    // SAFETY: with PyBUF_FULL_RO the exporter gives `ndim` sizes and strides (both may be null for rank 0).
    let read =
        |p: *mut ffi::Py_ssize_t| unsafe { if rank == 0 { &[][..] } else { std::slice::from_raw_parts(p, rank) } };
    let sizes: Dims = read(view.shape).iter().map(|&s| s as usize).collect();
    let mut strides = Strides::new();
    for (d, &stride) in read(view.strides).iter().enumerate() {
        if stride % itemsize as isize != 0 && sizes[d] > 1 {
            return Err(PyValueError::new_err(
                "given numpy array strides not a multiple of the element byte size. Try copying the numpy array to reallocate the memory.",
            ));
        }
        if stride < 0 && sizes[d] > 1 {
            return Err(PyValueError::new_err(
                "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently supported. (You can probably work around this by making a copy of your array  with array.copy().) ",
            ));
        }
        strides.push(if stride < 0 { 1 } else { stride / itemsize as isize });
    }
    if !(view.buf as usize).is_multiple_of(itemsize) && numel(&sizes) > 0 {
        // Elements that do not lie on their own boundaries are copied to where they do.
        drop(held);
        let copy = obj.call_method0("copy")?;
        return from_buffer(&copy, false);
    }
    let writable = view.readonly == 0;
    if !writable && warn {
        let text = c"The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means writing to this tensor will result in undefined behavior. You may want to copy the array to protect its data or make it writable before converting it to a tensor. rustgrad refuses to write to it.";
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)?;
    }
    let layout = Layout { sizes, strides, offset: 0 };
    let bytes = layout.extent().map_or(0, |(_, end)| end * itemsize);
    let ptr = view.buf.cast::<u8>();
    // SAFETY: the exporter guarantees the memory that shape and strides describe for as long as the buffer is held.
    let storage = unsafe { Storage::foreign(ptr, bytes, writable, Box::new(held)) };
    Ok(Tensor::from_body(Body::new(storage, layout, dtype)))
}

/// `from_numpy`: a tensor over an array's memory.
#[pyfunction]
pub(super) fn from_numpy<'py>(ndarray: &Bound<'py, PyAny>) -> PyResult<Bound<'py, super::tensor::PyTensor>> {
    if !is_array(ndarray)? {
        return Err(PyTypeError::new_err(format!("expected np.ndarray (got {})", ndarray.class_name())));
    }
    super::identity::wrap_new(ndarray.py(), from_buffer(ndarray, true)?.born())
}

/// Exports a tensor's memory through the buffer protocol, keeping it alive.
#[pyclass(frozen, module = "rustgrad")]
struct Exporter {
    body: Arc<Body>,
}

/// What a buffer view points into.
struct Shape {
    sizes: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

#[pymethods]
impl Exporter {
    /// # Safety
    /// By the buffer protocol.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let body = slf.get().body.clone();
        let Some(format) = format_of(body.dtype) else {
            return Err(PyBufferError::new_err("bfloat16 has no buffer format; convert with .float() first"));
        };
        let writable = body.storage.is_writable();
        if flags & ffi::PyBUF_WRITABLE != 0 && !writable {
            return Err(PyBufferError::new_err("the memory of this tensor is read-only"));
        }
        let size = body.dtype.size();
        let shape = Box::new(Shape {
            sizes: body.layout.sizes.iter().map(|&s| s as ffi::Py_ssize_t).collect(),
            strides: body.layout.strides.iter().map(|&s| s * size as isize).collect(),
        });
        let shape = Box::into_raw(shape);
        // SAFETY: the interpreter passes a buffer structure to fill; sizes and strides live until the release.
        unsafe {
            (*view).buf = body.storage.ptr().wrapping_add(body.layout.offset * size).cast::<c_void>();
            (*view).len = (body.layout.numel() * size) as ffi::Py_ssize_t;
            (*view).itemsize = size as ffi::Py_ssize_t;
            (*view).readonly = !writable as c_int;
            (*view).ndim = body.layout.rank() as c_int;
            (*view).format = format.as_ptr().cast_mut();
            (*view).shape = (*shape).sizes.as_mut_ptr();
            (*view).strides = (*shape).strides.as_mut_ptr();
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = shape.cast();
            (*view).obj = slf.into_ptr();
        }
        Ok(())
    }

    /// # Safety
    /// By the buffer protocol.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: made in `__getbuffer__` of this very view, released once.
        unsafe { drop(Box::from_raw((*view).internal.cast::<Shape>())) };
    }
}

/// `Tensor.numpy()`: an array over the tensor's memory.
pub(super) fn to_numpy<'py>(py: Python<'py>, t: &Tensor, force: bool) -> PyResult<Bound<'py, PyAny>> {
    if !force {
        refuse_history(t)?;
    }
    if t.dtype() == DType::BF16 {
        return Err(PyTypeError::new_err(
            "Got unsupported ScalarType BFloat16: numpy has no such type; convert with .float() first",
        ));
    }
    let exporter = Bound::new(py, Exporter { body: t.body() })?;
    py.import("numpy")?.call_method1("asarray", (exporter,))
}

/// `Tensor.__array__`.
pub(super) fn array<'py>(
    py: Python<'py>,
    t: &Tensor,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let array = to_numpy(py, t, false)?;
    let array = match dtype {
        Some(d) => {
            let converted = array.call_method1("astype", (d,))?;
            if copy == Some(false) && !converted.getattr("dtype")?.eq(array.getattr("dtype")?)? {
                return Err(PyValueError::new_err("Unable to avoid copy while creating an array as requested."));
            }
            converted
        }
        None => array,
    };
    if copy == Some(true) && dtype.is_none() { array.call_method0("copy") } else { Ok(array) }
}

/// A tensor over any object with the buffer protocol (`frombuffer`).
#[pyfunction]
#[pyo3(signature = (buffer, *, dtype, count=-1, offset=0, requires_grad=false))]
pub(super) fn frombuffer<'py>(
    buffer: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    count: i64,
    offset: usize,
    requires_grad: bool,
) -> PyResult<Bound<'py, super::tensor::PyTensor>> {
    let Some(dtype) = super::dtype::extract(dtype) else {
        return Err(PyTypeError::new_err("dtype must be a torch.dtype"));
    };
    let bytes = from_buffer(
        &buffer.py().get_type::<pyo3::types::PyMemoryView>().call1((buffer,))?.call_method1("cast", ("B",))?,
        true,
    )?;
    let body = bytes.body();
    let len = body.layout.numel();
    let size = dtype.size();
    let room = len.checked_sub(offset).ok_or_else(|| {
        PyValueError::new_err(format!("offset must be non-negative and no greater than buffer length ({len} bytes)"))
    })?;
    let n = if count < 0 { room / size } else { count as usize };
    if n == 0 || n.checked_mul(size).is_none_or(|b| b > room) || (count < 0 && room % size != 0) {
        return Err(PyValueError::new_err(format!(
            "buffer of {len} bytes has no room for {count} elements of {size} bytes from offset {offset}"
        )));
    }
    if !offset.is_multiple_of(size) {
        return Err(PyValueError::new_err(format!("offset {offset} is no multiple of the element size {size}")));
    }
    let layout = Layout { sizes: Dims::from_slice(&[n]), strides: Strides::from_slice(&[1]), offset: offset / size };
    let t = Tensor::from_body(Body::new(body.storage.clone(), layout, dtype)).born();
    t.set_requires_grad(requires_grad)?;
    super::identity::wrap_new(buffer.py(), t)
}

/// The values of an array as a tensor of its own.
pub(super) fn copy_of(obj: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let obj = match from_buffer(obj, false) {
        Ok(t) => return data::own(&t),
        // Negative strides and foreign byte orders: numpy makes a plain copy.
        Err(err) if err.is_instance_of::<PyValueError>(obj.py()) => {
            let native = obj.getattr("dtype")?.call_method1("newbyteorder", ("=",))?;
            obj.call_method1("astype", (native,))?
        }
        Err(err) => return Err(err),
    };
    let obj = obj.py().import("numpy")?.call_method1("ascontiguousarray", (obj,))?;
    data::own(&from_buffer(&obj, false)?)
}
