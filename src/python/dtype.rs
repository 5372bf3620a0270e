//! `dtype` and `device` objects. There is one object for each dtype, compared by identity.

use super::error::ClassName;
use crate::device::Device;
use crate::dtype::DType;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyType};

/// The type of a tensor's elements.
#[pyclass(frozen, name = "dtype", module = "rustgrad")]
pub(super) struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    fn __repr__(&self) -> String {
        self.0.to_string()
    }
    fn __reduce__(&self) -> &'static str {
        self.0.name()
    }
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }
    #[getter]
    fn is_complex(&self) -> bool {
        false
    }
    #[getter]
    fn is_signed(&self) -> bool {
        !matches!(self.0, DType::Bool | DType::U8)
    }
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }
}

static OBJECTS: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();

/// The object of a dtype.
pub(super) fn object(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyDType>> {
    let all =
        OBJECTS.get_or_try_init(py, || DType::ALL.iter().map(|&d| Py::new(py, PyDType(d))).collect::<PyResult<_>>())?;
    Ok(all[dtype as usize].bind(py).clone())
}

/// A dtype from its object, or from Python's `float`, `int` or `bool`.
pub(super) fn extract(obj: &Bound<'_, PyAny>) -> Option<DType> {
    if let Ok(d) = obj.cast::<PyDType>() {
        return Some(d.get().0);
    }
    let py = obj.py();
    let t = obj.cast::<PyType>().ok()?;
    if t.is(py.get_type::<PyFloat>()) {
        Some(crate::tensor::default_dtype())
    } else if t.is(py.get_type::<PyBool>()) {
        Some(DType::Bool)
    } else if t.is(py.get_type::<PyInt>()) {
        Some(DType::I64)
    } else {
        None
    }
}

/// Where tensors live.
#[pyclass(frozen, name = "device", module = "rustgrad", from_py_object)]
#[derive(Clone)]
pub(super) struct PyDevice {
    kind: String,
    number: Option<u32>,
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index=None))]
    fn new(r#type: &Bound<'_, PyAny>, index: Option<u32>) -> PyResult<PyDevice> {
        let mut device = parse(r#type)?;
        if index.is_some() {
            if device.number.is_some() {
                return Err(PyRuntimeError::new_err(
                    "type (string) must not include an index because index was passed explicitly",
                ));
            }
            device.number = index;
        }
        Ok(device)
    }
    #[getter]
    fn r#type(&self) -> &str {
        &self.kind
    }
    #[getter]
    fn index(&self) -> Option<u32> {
        self.number
    }
    fn __repr__(&self) -> String {
        match self.number {
            Some(n) => format!("device(type='{}', index={n})", self.kind),
            None => format!("device(type='{}')", self.kind),
        }
    }
    fn __str__(&self) -> String {
        match self.number {
            Some(n) => format!("{}:{n}", self.kind),
            None => self.kind.clone(),
        }
    }
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyDevice>().is_ok_and(|o| o.get().kind == self.kind && o.get().number == self.number)
    }
    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut h = DefaultHasher::new();
        (&self.kind, self.number).hash(&mut h);
        h.finish()
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (String,)) {
        (py.get_type::<PyDevice>(), (self.__str__(),))
    }
}

/// A device object or its text. Text names a device that exists somewhere; whether it exists here is asked when it is used.
pub(super) fn parse(obj: &Bound<'_, PyAny>) -> PyResult<PyDevice> {
    if let Ok(d) = obj.cast::<PyDevice>() {
        return Ok(d.get().clone());
    }
    let Ok(text) = obj.cast::<PyString>() else {
        return Err(PyTypeError::new_err(format!(
            "device must be a string or a torch.device, not {}",
            obj.class_name()
        )));
    };
    let text = text.to_cow()?;
    let (kind, number) = match text.split_once(':') {
        Some((kind, n)) => (kind, Some(n.parse::<u32>().map_err(|_| invalid(&text))?)),
        None => (&*text, None),
    };
    if !["cpu", "cuda", "mps", "xpu", "meta", "wgpu", "gpu"].contains(&kind) {
        return Err(invalid(&text));
    }
    Ok(PyDevice { kind: kind.into(), number })
}

fn invalid(text: &str) -> PyErr {
    PyRuntimeError::new_err(format!("Invalid device string: '{text}'"))
}

/// The device, which must exist in this build.
pub(super) fn available(obj: &Bound<'_, PyAny>) -> PyResult<Device> {
    let device = parse(obj)?;
    match Device::parse(&device.__str__()) {
        Some(d) => Ok(d),
        None if device.kind == "cuda" => {
            Err(pyo3::exceptions::PyAssertionError::new_err("Torch not compiled with CUDA enabled"))
        }
        None => Err(PyRuntimeError::new_err(format!(
            "device '{}' is not available in this build of rustgrad: tensors live on 'cpu'",
            device.__str__()
        ))),
    }
}

/// The object of the host.
pub(super) fn cpu() -> PyDevice {
    PyDevice { kind: "cpu".into(), number: None }
}
