//! `Generator` objects, and the functions of the process's own.

use super::bind;
use super::dtype::{self, PyDevice};
use super::error::ClassName;
use super::identity::wrap_new;
use super::tensor::PyTensor;
use crate::ops::random::{self, Generator};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// A source of random numbers.
#[pyclass(frozen, name = "Generator", module = "rustgrad")]
pub(super) struct PyGenerator(pub Generator);

/// A seed: any integer that fits 64 bits, negative ones by their bits.
fn seed_bits(seed: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(n) = seed.extract::<u64>() {
        return Ok(n);
    }
    match seed.extract::<i64>() {
        Ok(n) => Ok(n as u64),
        Err(_) if seed.cast::<PyInt>().is_ok() => Err(pyo3::exceptions::PyRuntimeError::new_err(
            "Overflow when unpacking unsigned long long: a seed has at most 64 bits",
        )),
        Err(_) => Err(PyTypeError::new_err(format!("manual_seed expected a long, but got {}", seed.class_name()))),
    }
}

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=None))]
    fn new(device: Option<&Bound<'_, PyAny>>) -> PyResult<PyGenerator> {
        if let Some(d) = device {
            dtype::available(d)?;
        }
        Ok(PyGenerator(Generator::new()))
    }
    #[getter]
    fn device(&self) -> PyDevice {
        dtype::cpu()
    }
    fn manual_seed<'py>(slf: &Bound<'py, Self>, seed: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        slf.get().0.manual_seed(seed_bits(seed)?);
        Ok(slf.clone())
    }
    fn seed(&self) -> u64 {
        self.0.seed()
    }
    fn initial_seed(&self) -> u64 {
        self.0.initial_seed()
    }
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTensor>> {
        wrap_new(py, self.0.get_state()?)
    }
    fn set_state<'py>(slf: &Bound<'py, Self>, new_state: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let Some(t) = bind::tensor(new_state) else {
            return Err(PyTypeError::new_err("expected a torch.ByteTensor as the generator's state"));
        };
        slf.get().0.set_state(&t)?;
        Ok(slf.clone())
    }
    fn clone_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyGenerator>> {
        let copy = Generator::new();
        copy.set_state(&self.0.get_state()?)?;
        Bound::new(py, PyGenerator(copy))
    }
}

/// The generator behind an object.
pub(super) fn extract(obj: &Bound<'_, PyAny>) -> Option<Generator> {
    obj.cast::<PyGenerator>().ok().map(|g| g.get().0.clone())
}

/// Seeds the process's generator and returns it.
#[pyfunction]
pub(super) fn manual_seed<'py>(seed: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyGenerator>> {
    Bound::new(seed.py(), PyGenerator(random::manual_seed(seed_bits(seed)?)))
}

/// Seeds the process's generator by chance and returns the seed.
#[pyfunction]
pub(super) fn seed() -> u64 {
    Generator::default().seed()
}

/// The seed that the process's generator started from.
#[pyfunction]
pub(super) fn initial_seed() -> u64 {
    Generator::default().initial_seed()
}

/// The state of the process's generator.
#[pyfunction]
pub(super) fn get_rng_state(py: Python<'_>) -> PyResult<Bound<'_, PyTensor>> {
    wrap_new(py, Generator::default().get_state()?)
}

/// Puts the process's generator back to a state.
#[pyfunction]
pub(super) fn set_rng_state(new_state: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some(t) = bind::tensor(new_state) else {
        return Err(PyTypeError::new_err("expected a torch.ByteTensor as the generator's state"));
    };
    Ok(Generator::default().set_state(&t)?)
}
