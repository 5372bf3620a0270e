//! Errors on their way to Python: each variant becomes the exception class that PyTorch raises. An exception that a hook
//! raised travels through the engine as it is.

use super::interrupt;
use crate::callsite::CallSite;
use crate::error::Error;
use crate::threads;
use pyo3::exceptions::{PyException, PyIndexError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::cell::Cell;
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
    Error::foreign(Raised(std::sync::Mutex::new(Some(err))))
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        let nodes: Vec<String> = error.nodes().map(|(node, site)| note(node, site)).collect();
        let raised = raise(error);
        for note in nodes {
            // A note that cannot be added takes nothing from the error.
            Python::attach(|py| {
                unless_it_fails(py, raised.value(py).call_method1("add_note", (note,)).map(drop));
            });
        }
        unless_overtaken(()).err().unwrap_or(raised)
    }
}

/// What an exception says of a node that was computing gradients.
fn note(node: &str, site: CallSite) -> String {
    let line = site.line().map_or(String::new(), |line| format!(", recorded by\n{line}"));
    format!("raised in the backward of {node}{line}")
}

/// The exception that an error stands for.
fn raise(error: Error) -> PyErr {
    let mut text = error.to_string();
    if error.nodes().next().is_none() && !matches!(error, Error::Foreign { .. }) {
        text.push_str(&Python::attach(context));
    }
    match error {
        Error::Index { .. } => PyIndexError::new_err(text),
        Error::Type { .. } => PyTypeError::new_err(text),
        Error::Value { .. } => PyValueError::new_err(text),
        Error::NotImplemented { .. } => PyNotImplementedError::new_err(text),
        Error::Foreign { error, .. } => match error.downcast::<Raised>() {
            Ok(raised) => {
                let err = raised.0.lock().ok().and_then(|mut slot| slot.take());
                err.unwrap_or_else(|| PyRuntimeError::new_err(text))
            }
            Err(_) => PyRuntimeError::new_err(text),
        },
        _ => PyRuntimeError::new_err(text),
    }
}

/// The user's line that runs now, and the module whose `forward` it is in, each on lines of their own.
fn context(py: Python<'_>) -> String {
    let mut text = CallSite::here().line().map_or(String::new(), |line| format!("\n{line}"));
    let module = py.import("rustgrad._where").and_then(|m| m.call_method0("module_path"));
    if let Some(Some(module)) = unless_it_fails(py, module.and_then(|m| m.extract::<Option<String>>())) {
        text.push_str("\nin module ");
        text.push_str(&module);
    }
    text
}

thread_local! {
    /// What a signal's handler raised while Python was asked what an error should say.
    static OVERTAKING: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// What was asked of Python to make an error clearer. The error is told without it if that fails; but `KeyboardInterrupt` and its
/// like, which a handler may raise wherever Python runs, take the error's place.
pub(super) fn unless_it_fails<T>(py: Python<'_>, answer: PyResult<T>) -> Option<T> {
    answer
        .map_err(|raised| {
            if !raised.is_instance_of::<PyException>(py) {
                OVERTAKING.set(Some(raised));
            }
        })
        .ok()
}

/// What was found out with [`unless_it_fails`].
///
/// # Errors
/// What a handler raised meanwhile.
pub(super) fn unless_overtaken<T>(found: T) -> PyResult<T> {
    OVERTAKING.take().map_or(Ok(found), Err)
}

/// Names of classes, read as they stand. To format a Python object calls its `__str__`, where a signal's handler may run, whose
/// exception is lost.
pub(super) trait ClassName {
    /// The name of an object's class.
    fn class_name(&self) -> String;
}

impl<T> ClassName for Bound<'_, T> {
    fn class_name(&self) -> String {
        name_of(&self.as_any().get_type())
    }
}

/// The name of a class.
pub(super) fn name_of(class: &Bound<'_, PyType>) -> String {
    class.name().map_or_else(|_| "?".into(), |name| name.to_string_lossy().into_owned())
}

/// Runs Rust code of which a panic would be a bug, and turns one into a `RuntimeError` instead of a crash. A kernel that was
/// stopped becomes what stopped it.
pub(super) fn guarded<R>(f: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(caught) if threads::is_cancelled(&*caught) => Err(interrupt::raised()),
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Err(PyRuntimeError::new_err(format!("internal error: {}", text.unwrap_or("a panic without message"))))
        }
    }
}
