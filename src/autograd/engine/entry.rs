//! The doors of the engine: `backward` and `grad`, which check their arguments before anything runs.

use super::task::{Roots, Task};
use crate::autograd::node::{Edge, Meta};
use crate::error::{Result, bail};
use crate::ops;
use crate::shape::numel;
use crate::tensor::{Tensor, size_repr};

/// Options of [`backward`].
#[derive(Clone, Default)]
pub struct BackwardOptions {
    /// Keep saved values, so that the graph can be walked again; defaults to `create_graph`.
    pub retain_graph: Option<bool>,
    /// Record the backward itself, so that gradients can be differentiated.
    pub create_graph: bool,
    /// Accumulate into these tensors only. Those that are no leaves retain their gradient from now on, and their nodes run.
    pub inputs: Option<Vec<Tensor>>,
}

/// Options of [`grad`].
#[derive(Clone, Default)]
pub struct GradOptions {
    /// Keep saved values, so that the graph can be walked again; defaults to `create_graph`.
    pub retain_graph: Option<bool>,
    /// Record the backward itself, so that gradients can be differentiated.
    pub create_graph: bool,
    /// Whether an input that no output depends on is `None` in the result instead of an error.
    pub allow_unused: bool,
    /// Whether such an input has zeros in the result instead of `None`.
    pub materialize_grads: bool,
}

/// Computes gradients of the leaves that `tensors` depend on and adds them to their `.grad`.
///
/// `grad_tensors[k]` is the cotangent of `tensors[k]`, of the same shape; `None` stands for 1 and is allowed for
/// one-element tensors only.
///
/// # Errors
/// `RuntimeError` where PyTorch raises one: no graph, non-scalar without cotangent, shape mismatch, freed graph, saved
/// values modified in place, empty `inputs`; and whatever a hook returns.
pub fn backward(tensors: &[Tensor], grad_tensors: &[Option<Tensor>], options: &BackwardOptions) -> Result<()> {
    let roots = roots("backward", tensors, grad_tensors)?;
    let keep = options.retain_graph.unwrap_or(options.create_graph);
    let Some(inputs) = &options.inputs else {
        return Task::new(&roots, 0, keep, options.create_graph)?.run(roots, &mut []);
    };
    if inputs.is_empty() {
        bail!(runtime "backward", "`inputs` argument to `backward()` cannot be empty.");
    }
    let mut targets = Vec::new();
    for (k, input) in inputs.iter().enumerate() {
        if !input.requires_grad() {
            bail!(runtime "backward", "element {k} of the `inputs` to backward() does not require grad");
        }
        input.retain_grad()?;
        targets.push((input.edge()?, true));
    }
    let mut task = Task::new(&roots, oldest(&targets), keep, options.create_graph)?;
    task.restrict(&targets)?;
    task.run(roots, &mut [])
}

/// Gradients of `outputs` with respect to `inputs`, in the order of `inputs`; no `.grad` is touched.
///
/// # Errors
/// As [`backward`], and `RuntimeError` for an input that does not require a gradient, or that no output depends on unless
/// `allow_unused`.
pub fn grad(
    outputs: &[Tensor],
    inputs: &[Tensor],
    grad_outputs: &[Option<Tensor>],
    options: &GradOptions,
) -> Result<Vec<Option<Tensor>>> {
    if inputs.is_empty() {
        bail!(value "grad", "`inputs` argument to `grad()` cannot be empty.");
    }
    let roots = roots("grad", outputs, grad_outputs)?;
    let keep = options.retain_graph.unwrap_or(options.create_graph);
    let mut targets = Vec::new();
    for input in inputs {
        if !input.requires_grad() {
            bail!(runtime "grad", "One of the differentiated Tensors does not require grad");
        }
        targets.push((input.edge()?, false));
    }
    let mut task = Task::new(&roots, oldest(&targets), keep, options.create_graph)?;
    task.restrict(&targets)?;
    let mut results = vec![None; inputs.len()];
    task.run(roots, &mut results)?;
    for (k, result) in results.iter_mut().enumerate() {
        if result.is_none() {
            if options.materialize_grads {
                let zeros = ops::zeros_like(&inputs[k])?;
                *result = Some(if options.create_graph { zeros.requires_grad_(true)? } else { zeros });
            } else if !options.allow_unused {
                bail!(runtime "grad", "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.\nThe differentiated Tensor at index {k} appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.");
            }
        }
    }
    Ok(results)
}

/// The smallest sequence number of a node that may lead to one of the targets: what is older than all of them cannot, and is
/// not walked. A leaf, whose node is made when it is needed, may be reached from anywhere.
fn oldest(targets: &[(Edge, bool)]) -> u64 {
    let sequences =
        targets.iter().map(|(edge, _)| edge.node().filter(|n| !n.is_accumulation()).map_or(0, |n| n.sequence));
    sequences.min().unwrap_or(0)
}

/// The roots with their cotangents, checked.
fn roots(op: &'static str, tensors: &[Tensor], grads: &[Option<Tensor>]) -> Result<Roots> {
    if !grads.is_empty() && grads.len() != tensors.len() {
        bail!(runtime op, "got {} tensors and {} gradients", tensors.len(), grads.len());
    }
    let mut roots = Roots::with_capacity(tensors.len());
    for (k, t) in tensors.iter().enumerate() {
        let (edge, meta) = t.edge_and(Meta::of)?;
        if !edge.is_some() {
            bail!(runtime op, "element {k} of tensors does not require grad and does not have a grad_fn");
        }
        let seed = match grads.get(k).and_then(Option::as_ref) {
            Some(g) => given(op, k, &meta, g)?,
            None if numel(&meta.sizes) == 1 => ops::ones(&meta.sizes, meta.dtype)?,
            None => {
                bail!(runtime op, "grad can be implicitly created only for scalar outputs\nthe output has shape {:?}: reduce it, for example with .sum(), or pass a gradient of its shape", meta.sizes)
            }
        };
        roots.push((edge, seed));
    }
    Ok(roots)
}

fn given(op: &'static str, k: usize, output: &Meta, grad: &Tensor) -> Result<Tensor> {
    if grad.sizes() != output.sizes {
        bail!(runtime op, "Mismatch in shape: grad_output[{k}] has a shape of {} and output[{k}] has a shape of {}.", size_repr(&grad.sizes()), size_repr(&output.sizes));
    }
    if grad.dtype() == output.dtype { Ok(grad.clone()) } else { ops::to_dtype(grad, output.dtype) }
}

impl Tensor {
    /// Computes the gradients of the leaves this one-element tensor depends on and adds them to their `.grad`.
    ///
    /// ```
    /// use rustgrad::Tensor;
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2])?.requires_grad_(true)?;
    /// (&x * &x).sum((), false)?.backward()?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), rustgrad::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`backward`].
    pub fn backward(&self) -> Result<()> {
        backward(std::slice::from_ref(self), &[], &BackwardOptions::default())
    }

    /// [`backward`](Self::backward) for a tensor of any shape, given its cotangent.
    ///
    /// # Errors
    /// See [`backward`].
    pub fn backward_with(&self, gradient: &Tensor, options: &BackwardOptions) -> Result<()> {
        backward(std::slice::from_ref(self), &[Some(gradient.clone())], options)
    }
}
