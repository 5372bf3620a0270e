//! Custom functions: `autograd.Function`. The Python package calls `apply` with a context object, which is the graph node's
//! own Python object; the node owns it, and it knows the node weakly.

use super::bind;
use super::error::carry;
use super::graph::{Payload, PyNode};
use super::identity::{wrap, wrap_new};
use super::tensor::PyTensor;
use crate::autograd::mode::{self, GradMode};
use crate::autograd::node::{Backward, Call, Edge, Grads, Meta, Node, NodeRef};
use crate::autograd::saved::{SavedTensor, freed};
use crate::ops;
use crate::tensor::{Creation, Tensor};
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;
use std::any::Any;
use std::borrow::Cow;

/// The node of a custom function.
pub(super) struct PyBackward {
    ctx: Payload,
    name: String,
    /// For each argument of `forward` whether it is a tensor, and so has an edge.
    arguments: Vec<bool>,
    /// For each result of `forward` the output number, if it is a tensor.
    results: Vec<Option<u32>>,
    /// What `save_for_backward` was given; `None` once freed.
    saved: Mutex<Option<Vec<Option<SavedTensor>>>>,
    materialize: bool,
}

impl Backward for PyBackward {
    fn name(&self) -> Cow<'static, str> {
        self.name.clone().into()
    }

    fn backward(&self, call: &Call<'_>, grads: Grads) -> crate::Result<Grads> {
        Python::attach(|py| self.run(py, call, &grads)).map_err(carry)
    }

    fn release(&self) {
        let mut saved = self.saved.lock();
        if saved.as_ref().is_some_and(|s| !s.is_empty()) {
            let old = saved.take();
            drop(saved);
            drop(old);
        }
    }

    fn payload(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.ctx.0)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl PyBackward {
    fn run(&self, py: Python<'_>, call: &Call<'_>, grads: &Grads) -> PyResult<Grads> {
        let ctx = self.ctx.0.bind(py);
        let mut given = Vec::new();
        for result in &self.results {
            let grad = match result {
                None => None,
                Some(nr) => match &grads[*nr as usize] {
                    Some(g) => Some(g.clone()),
                    None if self.materialize => {
                        let meta = &call.node.outputs[*nr as usize];
                        Some(ops::zeros(&meta.sizes, meta.dtype)?)
                    }
                    None => None,
                },
            };
            given.push(grad.map(|g| wrap(py, &g)).transpose()?);
        }
        let returned = ctx.call_method1("_run_backward", (PyTuple::new(py, given)?,))?;
        self.gradients(&returned)
    }

    /// What `backward` returned, one gradient per argument, as one per edge.
    fn gradients(&self, returned: &Bound<'_, PyAny>) -> PyResult<Grads> {
        let mut items: Vec<Bound<'_, PyAny>> = match returned.cast::<PyTuple>() {
            Ok(t) => t.iter().collect(),
            Err(_) => vec![returned.clone()],
        };
        let expected = self.arguments.len();
        while items.len() > expected && items.last().is_some_and(Bound::is_none) {
            items.pop();
        }
        if items.len() != expected {
            return Err(PyRuntimeError::new_err(format!(
                "function {} returned an incorrect number of gradients (expected {expected}, got {})",
                self.name,
                items.len()
            )));
        }
        let mut out = Grads::new();
        for (k, (item, is_tensor)) in items.iter().zip(&self.arguments).enumerate() {
            let grad = match bind::tensor(item) {
                Some(t) => Some(t),
                None if item.is_none() => None,
                None => {
                    let name = item.get_type().name()?;
                    return Err(PyRuntimeError::new_err(format!("expected Variable or None (got {name})")));
                }
            };
            match (is_tensor, grad) {
                (true, grad) => out.push(grad),
                (false, None) => {}
                (false, Some(_)) => {
                    return Err(PyRuntimeError::new_err(format!(
                        "function {} returned a gradient different from None at position {}, but the corresponding forward input was not a Variable",
                        self.name,
                        k + 1
                    )));
                }
            }
        }
        Ok(out)
    }
}

/// The custom function's node behind a context.
fn body_of(node: &NodeRef) -> PyResult<&PyBackward> {
    let body: &dyn Any = match node.body.as_any() {
        Some(any) => any,
        None => return Err(PyRuntimeError::new_err("not the context of a custom function")),
    };
    body.downcast_ref::<PyBackward>().ok_or_else(|| PyRuntimeError::new_err("not the context of a custom function"))
}

/// Runs `forward` and records the node. `ctx` is the context, `needs` its `needs_input_grad`; `run` calls `forward` (and
/// `setup_context`) and returns its output.
#[pyfunction]
pub(super) fn _function_apply<'py>(
    ctx: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    run: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = ctx.py();
    let inputs: Vec<Option<Tensor>> = args.iter().map(|a| bind::tensor(&a)).collect();
    let records = mode::is_grad_enabled() && inputs.iter().flatten().any(Tensor::requires_grad);
    let needs: Vec<bool> = inputs.iter().map(|t| t.as_ref().is_some_and(Tensor::requires_grad)).collect();
    ctx.setattr("needs_input_grad", PyTuple::new(py, &needs)?)?;
    let output = {
        let _mode = GradMode::set(false);
        run.call0()?
    };
    let many = output.cast::<PyTuple>().is_ok();
    let items: Vec<Bound<'py, PyAny>> =
        if many { output.cast::<PyTuple>()?.iter().collect() } else { vec![output.clone()] };
    let listed = |name: &str| -> PyResult<Vec<Tensor>> {
        let list = ctx.getattr(name)?;
        Ok(list.try_iter()?.filter_map(|o| o.ok().and_then(|o| bind::tensor(&o))).collect())
    };
    let (dirty, fixed) = (listed("_dirty")?, listed("_non_differentiable")?);
    for d in &dirty {
        if !items.iter().any(|i| bind::tensor(i).is_some_and(|t| t.is(d))) {
            return Err(PyRuntimeError::new_err(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace must all be outputs of the Function.",
            ));
        }
    }
    let outputs: Vec<Option<Tensor>> = items.iter().map(bind::tensor).collect();
    let apply = Apply { ctx, inputs: &inputs, dirty: &dirty, fixed: &fixed, records };
    let wrapped = apply.finish(&outputs, &items)?;
    if many { Ok(PyTuple::new(py, wrapped)?.into_any()) } else { Ok(wrapped.into_iter().next().unwrap_or(output)) }
}

/// The second half of an application: results get their history.
struct Apply<'a, 'py> {
    ctx: &'a Bound<'py, PyAny>,
    inputs: &'a [Option<Tensor>],
    dirty: &'a [Tensor],
    fixed: &'a [Tensor],
    records: bool,
}

impl<'py> Apply<'_, 'py> {
    fn is_dirty(&self, t: &Tensor) -> bool {
        self.dirty.iter().any(|d| d.is(t))
    }

    fn is_input(&self, t: &Tensor) -> bool {
        self.inputs.iter().flatten().any(|i| i.is(t))
    }

    fn finish(&self, outputs: &[Option<Tensor>], items: &[Bound<'py, PyAny>]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = self.ctx.py();
        if self.records {
            for t in self.dirty {
                let leaf = t.requires_grad() && t.is_leaf();
                if leaf {
                    return Err(PyRuntimeError::new_err(
                        "a leaf Variable that requires grad has been used in an in-place operation.",
                    ));
                }
            }
        }
        self.dirty.iter().for_each(|d| d.body().bump_version());
        // An input that comes back as it is becomes a view of itself, so that it can have a history of its own.
        let fresh: Vec<Option<Tensor>> = outputs
            .iter()
            .map(|o| {
                o.as_ref().map(|t| {
                    if self.is_dirty(t) {
                        t.clone()
                    } else if self.is_input(t) || (self.records && !t.is_leaf()) {
                        let view = Tensor::from_shared(t.body());
                        if !t.is_inference() {
                            view.set_view(t, Creation::InFunction);
                        }
                        view
                    } else {
                        t.clone()
                    }
                })
            })
            .collect();
        if self.records {
            self.record(outputs, &fresh)?;
        }
        items
            .iter()
            .zip(&fresh)
            .zip(outputs)
            .map(|((item, fresh), old)| match (fresh, old) {
                (Some(f), Some(o)) if f.is(o) => Ok(item.clone()),
                (Some(f), _) => Ok(wrap_new(py, f.clone())?.into_any()),
                (None, _) => Ok(item.clone()),
            })
            .collect()
    }

    fn record(&self, outputs: &[Option<Tensor>], fresh: &[Option<Tensor>]) -> PyResult<()> {
        let mut next = 0;
        let results: Vec<Option<u32>> = fresh
            .iter()
            .map(|t| {
                t.as_ref().map(|_| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        let metas: SmallVec<[Meta; 1]> = fresh
            .iter()
            .flatten()
            .map(|t| {
                let body = t.body();
                Meta { sizes: body.layout.sizes.clone(), dtype: body.dtype }
            })
            .collect();
        let edges: SmallVec<[Edge; 2]> = self.inputs.iter().flatten().map(Tensor::edge).collect::<Result<_, _>>()?;
        let saved = self.saved(outputs, &results)?;
        let class = self.ctx.get_type();
        let node = Node::shared(
            edges,
            metas,
            PyBackward {
                ctx: Payload::new(self.ctx.clone().unbind()),
                name: class.name()?.to_string(),
                arguments: self.inputs.iter().map(Option::is_some).collect(),
                results: results.clone(),
                saved: Mutex::new(Some(saved)),
                materialize: self.ctx.getattr("_materialize")?.is_truthy()?,
            },
        );
        self.ctx.cast::<PyNode>()?.get().attach(&node, self.ctx.as_ptr());
        for ((t, nr), old) in fresh.iter().zip(&results).zip(outputs) {
            let (Some(t), Some(nr), Some(old)) = (t, nr, old) else { continue };
            let fixed = self.fixed.iter().any(|f| f.is(old)) || !t.dtype().is_float();
            if fixed {
                continue;
            }
            if self.is_dirty(old) {
                ops::rebase(t, node.clone(), *nr)?;
            } else {
                t.set_history(Edge::new(node.clone(), *nr));
            }
        }
        Ok(())
    }

    fn saved(&self, outputs: &[Option<Tensor>], results: &[Option<u32>]) -> PyResult<Vec<Option<SavedTensor>>> {
        let list = self.ctx.getattr("_to_save")?;
        let mut saved = Vec::new();
        for (k, item) in list.try_iter()?.enumerate() {
            let item = item?;
            if item.is_none() {
                saved.push(None);
                continue;
            }
            let Some(t) = bind::tensor(&item) else {
                return Err(PyTypeError::new_err(format!(
                    "save_for_backward can only save variables, but argument {k} is of type {}",
                    item.get_type().name()?
                )));
            };
            let result =
                outputs.iter().zip(results).find_map(|(o, nr)| nr.filter(|_| o.as_ref().is_some_and(|o| o.is(&t))));
            saved.push(Some(match result {
                // A result of a differentiable kind finds its history in the node; an input that was also returned is saved
                // as the input it is.
                Some(nr) if t.dtype().is_float() && (self.is_dirty(&t) || !self.is_input(&t)) => {
                    SavedTensor::result("save_for_backward", t.body(), nr)?
                }
                _ => SavedTensor::input("save_for_backward", &t, t.body())?,
            }));
        }
        // The context itself holds nothing any more: saved values are the node's.
        self.ctx.setattr("_to_save", PyTuple::empty(self.ctx.py()))?;
        Ok(saved)
    }
}

/// `ctx.saved_tensors`.
#[pyfunction]
pub(super) fn _function_saved<'py>(ctx: &Bound<'py, PyNode>) -> PyResult<Bound<'py, PyTuple>> {
    let py = ctx.py();
    let Some(node) = ctx.get().try_node() else {
        // Not recorded: what was given is all there is.
        return PyTuple::new(py, ctx.as_any().getattr("_to_save")?.try_iter()?.collect::<PyResult<Vec<_>>>()?);
    };
    let saved = body_of(&node)?.saved.lock().clone();
    let Some(saved) = saved else { return Err(freed(&node).into()) };
    let items = saved
        .iter()
        .map(|s| match s {
            Some(s) => Ok(Some(wrap(py, &s.unpack(&node)?)?)),
            None => Ok(None),
        })
        .collect::<PyResult<Vec<Option<Bound<'py, PyTensor>>>>>()?;
    PyTuple::new(py, items)
}

/// The node that says why something cannot be differentiated.
struct Refusal(&'static str);

impl Backward for Refusal {
    fn name(&self) -> Cow<'static, str> {
        "NotDifferentiable".into()
    }
    fn backward(&self, _: &Call<'_>, _: Grads) -> crate::Result<Grads> {
        Err(crate::Error::runtime("backward", self.0))
    }
}

/// Gives tensors a history that raises when it is walked: `once_differentiable`.
#[pyfunction]
pub(super) fn _refuse_second<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTensor>> {
    let source = &t.get().tensor;
    let out = source.detach();
    let body = out.body();
    let meta = Meta { sizes: body.layout.sizes.clone(), dtype: body.dtype };
    let node = Node::shared(
        SmallVec::new(),
        SmallVec::from_elem(meta, 1),
        Refusal("trying to differentiate twice a function that was marked with @once_differentiable"),
    );
    out.set_history(Edge::new(node, 0));
    wrap_new(t.py(), out)
}
