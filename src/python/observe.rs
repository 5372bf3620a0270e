//! Python's side of watching: the tracer of values that are not finite, a Python function that sees every call, and the line
//! that recorded a node.

use super::collector::Payload;
use super::error::unless_overtaken;
use super::graph::PyNode;
use super::identity::wrap;
use super::interrupt::call_python;
use crate::autograd::node::{Grads, NodeRef};
use crate::autograd::nonfinite::NonFinite;
use crate::autograd::observe::{After, Observer, Watched, pop_observer, push_observer};
use crate::callsite::CallSite;
use crate::error::Result;
use crate::tensor::Tensor;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// From now on operations and nodes of this thread that turn finite values into others raise.
#[pyfunction]
pub(super) fn _push_nonfinite_tracer(forward: bool, backward: bool) {
    push_observer(Arc::new(NonFinite { forward, backward }));
}

/// From now on `function(operation, operands, results, line)` is called after each operation of this thread.
#[pyfunction]
pub(super) fn _push_observer(function: Py<PyAny>) {
    push_observer(Arc::new(PyObserver(Payload::new(function))));
}

/// Sends the observer away that came last.
#[pyfunction]
pub(super) fn _pop_observer() {
    pop_observer();
}

/// File, number and function of a line, and what it says.
type PyLine = (String, u32, String, Option<String>);

fn line(site: CallSite) -> PyResult<Option<PyLine>> {
    unless_overtaken(site.line().map(|line| (line.file, line.number, line.function, line.text)))
}

/// The line that recorded a node: file, number, function and what the line says; None if it is not known.
#[pyfunction]
pub(super) fn _node_location(node: &Bound<'_, PyNode>) -> PyResult<Option<PyLine>> {
    match node.get().try_node() {
        Some(node) => line(node.site),
        None => Err(PyRuntimeError::new_err("this node belongs to no graph")),
    }
}

struct PyObserver(Payload);

impl Observer for PyObserver {
    fn operation<'a>(&'a self, call: &'a Watched<'_>) -> Result<After<'a>> {
        Ok(Box::new(move |results| {
            call_python(|py| {
                let tuple = |tensors: &[Tensor]| {
                    let objects: PyResult<Vec<_>> = tensors.iter().map(|t| wrap(py, t)).collect();
                    PyTuple::new(py, objects?)
                };
                let seen = (call.operation, tuple(call.operands)?, tuple(results)?, line(CallSite::here())?);
                self.0.0.bind(py).call1(seen).map(drop)
            })
        }))
    }

    fn node(&self, _: &NodeRef, _: &Grads, _: &Grads) -> Result<()> {
        Ok(())
    }
}
