//! The engine's doors as Python knows them: `backward` and `grad`.

use super::bind;
use super::collector::detached;
use super::error::{ClassName, guarded};
use super::identity::wrap;
use super::interrupt::interruptible;
use super::saved::tensor_of_edge;
use super::tensor::PyTensor;
use crate::autograd::engine::nesting;
use crate::autograd::state::ThreadState;
use crate::autograd::{self, BackwardOptions, GradOptions};
use crate::error::Result;
use crate::tensor::Tensor;
use pyo3::exceptions::{PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

fn tensors(items: &[Bound<'_, PyAny>], what: &str) -> PyResult<Vec<Tensor>> {
    items
        .iter()
        .enumerate()
        .map(|(k, o)| match bind::tensor(o) {
            Some(t) => Ok(t),
            None => tensor_of_edge(o)?.map_or_else(
                || {
                    let class = o.class_name();
                    Err(PyTypeError::new_err(format!(
                        "element {k} of {what} must be a Tensor or a GradientEdge, not {class}"
                    )))
                },
                Ok,
            ),
        })
        .collect()
}

fn cotangents(items: &[Bound<'_, PyAny>]) -> PyResult<Vec<Option<Tensor>>> {
    items
        .iter()
        .map(|o| match bind::tensor(o) {
            Some(t) => Ok(Some(t)),
            None if o.is_none() => Ok(None),
            None => Err(PyTypeError::new_err(format!(
                "gradients can be either Tensors or None, but got {}",
                o.class_name()
            ))),
        })
        .collect()
}

/// How many backwards may run inside one another on one thread.
const DEEPEST: usize = 60;

/// Runs a backward. One that runs inside many others moves to a thread of its own, which has a stack, and a count of Python's
/// recursion, to begin again with.
fn run_engine<R: Send>(py: Python<'_>, run: impl FnOnce() -> Result<R> + Send) -> PyResult<R> {
    if nesting() < DEEPEST {
        return interruptible(|| Ok(run()?));
    }
    let state = ThreadState::capture();
    let run = || {
        let _place = state.install();
        run()
    };
    let result = detached(py, || {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("nested backward".into()).spawn_scoped(scope, run);
            thread.map(std::thread::ScopedJoinHandle::join)
        })
    });
    match result? {
        Ok(result) => Ok(result?),
        Err(panic) => guarded(|| std::panic::resume_unwind(panic)),
    }
}

fn warn_cycle(py: Python<'_>, create_graph: bool) -> PyResult<()> {
    if !create_graph {
        return Ok(());
    }
    let text = c"Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you have to use this function, make sure to reset the .grad fields of your parameters to None after use to break the cycle and avoid the leak.";
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 2)
}

/// `autograd.backward` after its arguments were sorted out.
#[pyfunction]
#[pyo3(signature = (tensors, grad_tensors, retain_graph, create_graph, inputs=None))]
pub(super) fn backward(
    py: Python<'_>,
    tensors: Vec<Bound<'_, PyAny>>,
    grad_tensors: Vec<Bound<'_, PyAny>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    inputs: Option<Vec<Bound<'_, PyAny>>>,
) -> PyResult<()> {
    let roots = self::tensors(&tensors, "tensors")?;
    let grads = cotangents(&grad_tensors)?;
    let inputs = inputs.map(|i| self::tensors(&i, "the `inputs` to backward()")).transpose()?;
    warn_cycle(py, create_graph)?;
    let options = BackwardOptions { retain_graph, create_graph, inputs };
    run_engine(py, || autograd::backward(&roots, &grads, &options))
}

/// The `inputs` of `Tensor.backward`: one tensor or gradient edge, several, or a dict of them.
fn targets(given: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    let what = "the `inputs` to backward()";
    if bind::tensor(given).is_some() || tensor_of_edge(given)?.is_some() {
        return tensors(std::slice::from_ref(given), what);
    }
    let items = match given.cast::<PyDict>() {
        Ok(named) => named.values().iter().collect(),
        Err(_) => given.try_iter()?.collect::<PyResult<Vec<_>>>()?,
    };
    tensors(&items, what)
}

/// `Tensor.backward`.
pub(super) fn tensor_backward(
    slf: &Bound<'_, PyTensor>,
    gradient: Option<&Bound<'_, PyAny>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    inputs: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = slf.py();
    let grads = match gradient {
        None => vec![],
        Some(one) if bind::tensor(one).is_some() => cotangents(std::slice::from_ref(one))?,
        Some(given) => match bind::sequence(given) {
            Some(items) => cotangents(&items)?,
            None => cotangents(std::slice::from_ref(given))?,
        },
    };
    let inputs = inputs.map(targets).transpose()?;
    if create_graph {
        warn_cycle(py, true)?;
    }
    let root = std::slice::from_ref(&slf.get().tensor);
    let options = BackwardOptions { retain_graph, create_graph, inputs };
    run_engine(py, || autograd::backward(root, &grads, &options))
}

/// `autograd.grad` after its arguments were sorted out.
#[pyfunction]
#[pyo3(signature = (outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads=false))]
#[allow(clippy::too_many_arguments, reason = "the options of autograd.grad")]
pub(super) fn grad<'py>(
    py: Python<'py>,
    outputs: Vec<Bound<'py, PyAny>>,
    inputs: Vec<Bound<'py, PyAny>>,
    grad_outputs: Vec<Bound<'py, PyAny>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    allow_unused: bool,
    materialize_grads: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let roots = tensors(&outputs, "outputs")?;
    let targets = tensors(&inputs, "inputs")?;
    let grads = cotangents(&grad_outputs)?;
    let options = GradOptions { retain_graph, create_graph, allow_unused, materialize_grads };
    let results = run_engine(py, || autograd::grad(&roots, &targets, &grads, &options))?;
    let items = results.iter().map(|g| g.as_ref().map(|g| wrap(py, g)).transpose()).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, items)
}
