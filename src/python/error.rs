//! Errors on their way to Python: each variant becomes the exception class that PyTorch raises. An exception that a hook
//! raised travels through the engine as it is.

use crate::error::Error;
use pyo3::exceptions::{PyIndexError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::fmt;

/// A Python exception inside an [`Error`].
struct Raised(std::sync::Mutex<Option<PyErr>>);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Python exception")
    }
}

impl fmt::Debug for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Raised")
    }
}

impl std::error::Error for Raised {}

/// Carries a Python exception through Rust code.
pub(super) fn carry(err: PyErr) -> Error {
    Error::Foreign(Box::new(Raised(std::sync::Mutex::new(Some(err)))))
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        let text = error.to_string();
        match error {
            Error::Index { .. } => PyIndexError::new_err(text),
            Error::Type { .. } => PyTypeError::new_err(text),
            Error::Value { .. } => PyValueError::new_err(text),
            Error::NotImplemented { .. } => PyNotImplementedError::new_err(text),
            Error::Foreign(inner) => match inner.downcast::<Raised>() {
                Ok(raised) => {
                    let err = raised.0.lock().ok().and_then(|mut slot| slot.take());
                    err.unwrap_or_else(|| PyRuntimeError::new_err(text))
                }
                Err(_) => PyRuntimeError::new_err(text),
            },
            _ => PyRuntimeError::new_err(text),
        }
    }
}

/// Runs Rust code of which a panic would be a bug, and turns one into a `RuntimeError` instead of a crash.
pub(super) fn guarded<R>(f: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Err(PyRuntimeError::new_err(format!("internal error: {}", text.unwrap_or("a panic without message"))))
        }
    }
}
