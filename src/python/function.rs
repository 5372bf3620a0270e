//! Custom functions: `autograd.Function`. The Python package calls `apply` with a context object, which is the graph node's
//! own Python object; the node owns it, and it knows the node weakly.

use super::bind;
use super::collector::Payload;
use super::error::{ClassName, name_of};
use super::graph::PyNode;
use super::identity::{wrap, wrap_new};
use super::interrupt::call_python;
use super::tensor::PyTensor;
use crate::autograd::held::{Held, Visit};
use crate::autograd::mode::{self, GradMode};
use crate::autograd::node::{Backward, Call, Edge, Edges, Grads, Meta, Node, NodeRef, SavedAttribute};
use crate::autograd::saved::{SavedTensor, freed};
use crate::dtype::DType;
use crate::few::MostlyOne;
use crate::ops;
use crate::shape::Dims;
use crate::sync::lock::Mutex;
use crate::tensor::{Creation, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::any::Any;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name, among a node's attributes, of what `save_for_backward` was given.
const TENSORS: &str = "tensors";

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
    /// Whether the context keeps this node, as this node keeps it.
    bound: AtomicBool,
}

impl Backward for PyBackward {
    fn name(&self) -> Cow<'static, str> {
        self.name.clone().into()
    }

    fn backward(&self, call: &Call<'_>, grads: Grads) -> crate::Result<Grads> {
        // Whatever it does to the grad mode, the next node finds it as it was.
        let _mode = GradMode::set(call.create_graph);
        call_python(|py| self.run(py, call, &grads))
    }

    fn release(&self) {
        let saved = self.saved.lock().take();
        drop(saved);
    }

    fn freed(&self) -> Option<Vec<Cow<'static, str>>> {
        self.saved.lock().is_none().then(|| vec![TENSORS.into()])
    }

    fn saved(&self) -> Vec<(Cow<'static, str>, SavedAttribute)> {
        let saved = self.saved.lock();
        let tensors = saved.iter().flatten().enumerate();
        tensors.map(|(at, value)| (TENSORS.into(), SavedAttribute::Member(at, value.clone()))).collect()
    }

    fn replace_saved(&self, k: usize, value: SavedTensor) -> bool {
        let mut saved = self.saved.lock();
        let Some(slot) = saved.as_mut().and_then(|s| s.get_mut(k)) else { return false };
        let old = slot.replace(value);
        drop(saved);
        drop(old);
        true
    }

    fn held(&self, visit: &mut Visit<'_>) {
        visit(Held::Payload(&self.ctx));
        let Some(saved) = self.saved.try_lock() else { return };
        saved.iter().flatten().flatten().for_each(|value| value.held(visit));
    }

    fn is_foreign(&self) -> bool {
        true
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
                    let name = item.class_name();
                    return Err(PyRuntimeError::new_err(format!("expected Variable or None (got {name})")));
                }
            };
            match (is_tensor, grad) {
                (true, grad) => out.push(grad),
                (false, None) => {}
                (false, Some(_)) => {
                    return Err(PyRuntimeError::new_err(format!(
                        "function {} returned a gradient different than None at position {}, but the corresponding forward input was not a Variable",
                        self.name,
                        k + 1
                    )));
                }
            }
        }
        Ok(out)
    }
}

/// Notes whether a custom function's context keeps its node. Other nodes keep no object that could.
pub(super) fn bind(node: &NodeRef, bound: bool) {
    if let Ok(body) = body_of(node) {
        body.bound.store(bound, Ordering::Relaxed);
    }
}

/// The context of a custom function that keeps its node.
pub(super) fn bound_context(node: &NodeRef) -> Option<&Payload> {
    body_of(node).ok().filter(|body| body.bound.load(Ordering::Relaxed)).map(|body| &body.ctx)
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
    let dirty = marked(ctx, "dirty_tensors", |k, class| {
        format!("mark_dirty can only accept variables, but argument {k} is of type {class}")
    })?;
    let fixed = marked(ctx, "non_differentiable", |_, class| {
        format!("mark_non_differentiable only accepts variable arguments, but got {class}")
    })?;
    for d in &dirty {
        if !items.iter().any(|i| bind::tensor(i).is_some_and(|t| t.is(d))) {
            return Err(PyRuntimeError::new_err(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace must all be outputs of the Function.",
            ));
        }
        if !inputs.iter().flatten().any(|input| input.is(d)) {
            let text = c"ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated should be passed to ctx.mark_dirty().";
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 2)?;
        }
    }
    let outputs: Vec<Option<Tensor>> = items.iter().map(bind::tensor).collect();
    let apply = Apply { ctx, inputs: &inputs, dirty: &dirty, fixed: &fixed, records };
    let wrapped = apply.finish(&outputs, &items)?;
    if many { Ok(PyTuple::new(py, wrapped)?.into_any()) } else { Ok(wrapped.into_iter().next().unwrap_or(output)) }
}

/// The tensors that `forward` put on the context under `name`.
fn marked(ctx: &Bound<'_, PyAny>, name: &str, refusal: impl Fn(usize, String) -> String) -> PyResult<Vec<Tensor>> {
    ctx.getattr(name)?
        .try_iter()?
        .enumerate()
        .map(|(k, item)| {
            let item = item?;
            match bind::tensor(&item) {
                Some(t) => Ok(t),
                None => Err(PyRuntimeError::new_err(refusal(k, item.class_name()))),
            }
        })
        .collect()
}

/// The second half of an application: results get their history.
struct Apply<'a, 'py> {
    ctx: &'a Bound<'py, PyAny>,
    inputs: &'a [Option<Tensor>],
    dirty: &'a [Tensor],
    fixed: &'a [Tensor],
    records: bool,
}

/// Refuses a change in place that the graph cannot follow. It has happened already.
fn check_dirty(t: &Tensor) -> PyResult<()> {
    if t.requires_grad() && t.is_leaf() {
        return Err(PyRuntimeError::new_err(
            "a leaf Variable that requires grad has been used in an in-place operation.",
        ));
    }
    Ok(ops::check_inplace_history("mark_dirty", t, true)?)
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
            self.dirty.iter().try_for_each(check_dirty)?;
        }
        self.dirty.iter().for_each(|d| d.body().bump_version());
        if self.records && outputs.iter().flatten().count() > 1 && self.dirty.iter().any(Tensor::is_view) {
            return Err(PyRuntimeError::new_err(
                "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one Tensor. This is not supported by the current autograd engine. You should either make sure the input is not a view (using .clone() for example) or make your Function only return one Tensor (potentially splitting it into two Functions: one doing the inplace that returns a single Tensor and a second one that does the other operations). You can ask on the forum https://discuss.pytorch.org/ if you need help to do this change.",
            ));
        }
        let fresh: Vec<Option<Tensor>> =
            outputs.iter().map(|o| o.as_ref().map(|t| self.result(t)).transpose()).collect::<crate::Result<_>>()?;
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

    /// Whether gradients flow to an output of `forward`.
    fn is_differentiable(&self, output: &Tensor) -> bool {
        self.records && output.dtype().is_float() && !self.fixed.iter().any(|f| f.is(output))
    }

    /// The tensor that the caller gets for an output of `forward`, without its history.
    fn result(&self, output: &Tensor) -> crate::Result<Tensor> {
        let (input, dirty) = (self.is_input(output), self.is_dirty(output));
        if !self.is_differentiable(output) && output.requires_grad() {
            // An input keeps its history; what `forward` recorded for itself ends here.
            if input {
                return Ok(output.detach());
            }
            if !output.is_view() {
                output.detach_()?;
            }
        }
        if !input || dirty {
            return Ok(output.clone());
        }
        // An input that comes back as it is becomes a view of itself, so that it can have a history of its own.
        let view = Tensor::from_shared(output.body());
        if output.is_inference() {
            view.mark_inference();
        } else {
            view.set_view(output, Creation::InFunction);
        }
        Ok(view)
    }

    fn record(&self, outputs: &[Option<Tensor>], fresh: &[Option<Tensor>]) -> PyResult<()> {
        // A node's outputs are those of `forward`, also where they are no tensors and get no gradient.
        let results: Vec<Option<u32>> = (0..).zip(fresh).map(|(nr, t)| t.as_ref().map(|_| nr)).collect();
        let metas = fresh
            .iter()
            .map(|t| match t.as_ref().map(Tensor::body) {
                Some(body) => Meta { sizes: body.layout.sizes.clone(), dtype: body.dtype },
                None => Meta { sizes: Dims::new(), dtype: DType::F32 },
            })
            .collect();
        let edges: Edges = self.inputs.iter().flatten().map(Tensor::edge).collect::<Result<_, _>>()?;
        let saved = self.saved(outputs, &results)?;
        let class = self.ctx.get_type();
        let node = Node::shared(
            edges,
            metas,
            PyBackward {
                ctx: Payload::new(self.ctx.clone().unbind()),
                name: name_of(&class),
                arguments: self.inputs.iter().map(Option::is_some).collect(),
                results: results.clone(),
                saved: Mutex::new(Some(saved)),
                materialize: self.ctx.getattr("materialize_grads")?.is_truthy()?,
                bound: AtomicBool::new(false),
            },
        );
        self.ctx.cast::<PyNode>()?.get().attach(&node, self.ctx.as_ptr());
        let several = outputs.iter().flatten().filter(|o| self.is_differentiable(o)).count() > 1;
        let creation = if several { Creation::Multiple } else { Creation::InFunction };
        for ((t, nr), old) in fresh.iter().zip(&results).zip(outputs) {
            let (Some(t), Some(nr), Some(old)) = (t, nr, old) else { continue };
            if !self.is_differentiable(old) {
                continue;
            }
            if self.is_dirty(old) {
                ops::rebase(t, node.clone(), *nr)?;
                continue;
            }
            t.set_history(Edge::new(node.clone(), *nr));
            if let Some(view) = t.view_info() {
                *view.creation.lock() = creation;
            }
        }
        Ok(())
    }

    fn saved(&self, outputs: &[Option<Tensor>], results: &[Option<u32>]) -> PyResult<Vec<Option<SavedTensor>>> {
        let list = self.ctx.getattr("to_save")?;
        let mut saved = Vec::new();
        if list.is_none() {
            return Ok(saved);
        }
        for (k, item) in list.try_iter()?.enumerate() {
            let item = item?;
            if item.is_none() {
                saved.push(None);
                continue;
            }
            let Some(t) = bind::tensor(&item) else {
                return Err(PyTypeError::new_err(format!(
                    "save_for_backward can only save variables, but argument {k} is of type {}",
                    item.class_name()
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
        self.ctx.delattr("to_save")?;
        Ok(saved)
    }
}

/// `ctx.saved_tensors`.
#[pyfunction]
pub(super) fn _function_saved<'py>(ctx: &Bound<'py, PyNode>) -> PyResult<Bound<'py, PyTuple>> {
    let py = ctx.py();
    let Some(node) = ctx.get().try_node() else {
        // Not recorded, or not yet.
        return Ok(PyTuple::empty(py));
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
        "Error".into()
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
        Edges::None,
        MostlyOne::One(meta),
        Refusal("trying to differentiate twice a function that was marked with @once_differentiable"),
    );
    out.set_history(Edge::new(node, 0));
    wrap_new(t.py(), out)
}
