//! Random number generators as Python sees them.

use super::bind;
use super::dtype::{self, PyDevice};
use super::identity::wrap;
use super::tensor::PyTensor;
use crate::ops::random::Generator;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// A source of random numbers.
#[pyclass(frozen, name = "Generator", module = "rustgrad")]
pub(super) struct PyGenerator(pub Generator);

/// A seed: any integer of 64 bits, negative ones as they wrap.
fn seed_of(obj: &Bound<'_, PyAny>) -> PyResult<u64> {
    let wrapped = obj.extract::<u64>().or_else(|_| obj.extract::<i64>().map(|n| n as u64));
    wrapped.map_err(|err| {
        if obj.is_instance_of::<pyo3::types::PyInt>() { PyValueError::new_err("Overflow when unpacking long long") } else { err }
    })
}

fn state_of(obj: &Bound<'_, PyAny>) -> PyResult<crate::tensor::Tensor> {
    bind::tensor(obj).ok_or_else(|| PyTypeError::new_err(format!("expected a torch.ByteTensor, but got {}", obj.get_type())))
}

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=None))]
    fn new(device: Option<&Bound<'_, PyAny>>) -> PyResult<PyGenerator> {
        if let Some(device) = device {
            dtype::available(device)?;
        }
        Ok(PyGenerator(Generator::new()))
    }
    #[getter]
    fn device(&self) -> PyDevice {
        dtype::cpu()
    }
    fn manual_seed<'py>(slf: &Bound<'py, Self>, seed: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        slf.get().0.manual_seed(seed_of(seed)?);
        Ok(slf.clone())
    }
    fn seed(&self) -> u64 {
        self.0.seed()
    }
    fn initial_seed(&self) -> u64 {
        self.0.initial_seed()
    }
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTensor>> {
        wrap(py, &self.0.get_state()?)
    }
    fn set_state<'py>(slf: &Bound<'py, Self>, new_state: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        slf.get().0.set_state(&state_of(new_state)?)?;
        Ok(slf.clone())
    }
}

/// Seeds the default generator and returns it.
#[pyfunction]
pub(super) fn manual_seed(seed: &Bound<'_, PyAny>) -> PyResult<PyGenerator> {
    Ok(PyGenerator(crate::ops::random::manual_seed(seed_of(seed)?)))
}

/// Seeds the default generator by chance and returns the seed.
#[pyfunction]
pub(super) fn seed() -> u64 {
    Generator::default().seed()
}

/// The seed that the default generator started from.
#[pyfunction]
pub(super) fn initial_seed() -> u64 {
    Generator::default().initial_seed()
}

/// The state of the default generator.
#[pyfunction]
pub(super) fn get_rng_state(py: Python<'_>) -> PyResult<Bound<'_, PyTensor>> {
    wrap(py, &Generator::default().get_state()?)
}

/// Puts the default generator into a state.
#[pyfunction]
pub(super) fn set_rng_state(new_state: &Bound<'_, PyAny>) -> PyResult<()> {
    Ok(Generator::default().set_state(&state_of(new_state)?)?)
}

/// Fills the module.
pub(super) fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGenerator>()?;
    m.add("default_generator", PyGenerator(Generator::default()))?;
    m.add_function(wrap_pyfunction!(manual_seed, m)?)?;
    m.add_function(wrap_pyfunction!(seed, m)?)?;
    m.add_function(wrap_pyfunction!(initial_seed, m)?)?;
    m.add_function(wrap_pyfunction!(get_rng_state, m)?)?;
    m.add_function(wrap_pyfunction!(set_rng_state, m)?)?;
    Ok(())
}
