//! Values kept for backward: a snapshot of the body, the version it had, and for inputs the tensor itself. A saved result
//! does not own its node, which would be a cycle; it finds its history in the node that unpacks it.

use super::node::{Edge, NodeRef};
use crate::error::{Error, Result, bail};
use crate::tensor::{Body, Tensor};
use std::sync::Arc;

/// A tensor saved for backward.
#[derive(Clone)]
pub struct SavedTensor {
    /// The values that forward saw.
    body: Arc<Body>,
    origin: Origin,
    version: u32,
}

#[derive(Clone)]
enum Origin {
    /// The tensor itself.
    Input(Tensor),
    /// This output of the node that holds it.
    Result(u32),
    /// A copy of an input that was about to be overwritten, with the history it had.
    Copy(Edge),
}

impl SavedTensor {
    /// Saves an input.
    ///
    /// # Errors
    /// `RuntimeError` for an inference tensor.
    #[inline]
    pub fn input(op: &'static str, tensor: &Tensor, body: Arc<Body>) -> Result<SavedTensor> {
        if tensor.is_inference() {
            bail!(runtime op, "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`.");
        }
        Ok(SavedTensor { version: body.version(), body, origin: Origin::Input(tensor.clone()) })
    }

    /// Saves a copy of an input's values, together with the history the input had.
    pub fn copy(body: Arc<Body>, history: Edge) -> SavedTensor {
        SavedTensor { version: body.version(), body, origin: Origin::Copy(history) }
    }

    /// Saves output `nr` of the node that will hold it.
    #[inline]
    pub fn result(body: Arc<Body>, nr: u32) -> SavedTensor {
        SavedTensor { version: body.version(), body, origin: Origin::Result(nr) }
    }

    /// The values, if nobody has changed them since.
    ///
    /// # Errors
    /// `RuntimeError` if they were modified in place.
    #[inline]
    pub fn body(&self, node: &NodeRef) -> Result<&Arc<Body>> {
        let now = self.body.version();
        if now != self.version { Err(self.modified(node, now)) } else { Ok(&self.body) }
    }

    /// The tensor with its history.
    ///
    /// # Errors
    /// `RuntimeError` if it was modified in place.
    pub fn unpack(&self, node: &NodeRef) -> Result<Tensor> {
        let body = self.body(node)?;
        Ok(match &self.origin {
            // A tensor that was given other data since (`x.data = t`) comes back as forward saw it.
            Origin::Input(tensor) if Arc::ptr_eq(&tensor.body(), body) => tensor.clone(),
            Origin::Input(tensor) => Tensor::with_history(body.clone(), tensor.edge()),
            Origin::Result(_) if !body.dtype.is_float() => Tensor::from_shared(body.clone()),
            Origin::Result(nr) => Tensor::with_history(body.clone(), Edge::new(node.clone(), *nr)),
            Origin::Copy(edge) => Tensor::with_history(body.clone(), edge.clone()),
        })
    }

    #[cold]
    fn modified(&self, node: &NodeRef, now: u32) -> Error {
        let of = match &self.origin {
            Origin::Result(nr) => Some((node.name(), *nr)),
            Origin::Input(t) => {
                let edge = t.grad_fn();
                edge.node().map(|n| (n.name(), edge.nr))
            }
            Origin::Copy(_) => None,
        };
        let of = of.map_or(String::new(), |(name, nr)| format!(", which is output {nr} of {name},"));
        Error::runtime(
            "backward",
            format!(
                "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.{}Tensor {:?}]{of} is at version {now}; expected version {} instead. Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable in question was changed in there or anywhere later. Good luck!\nsaved by: {}",
                self.body.dtype.legacy(),
                self.body.layout.sizes,
                self.version,
                node.name(),
            ),
        )
    }
}

/// The error of using a graph whose saved values are gone.
#[cold]
pub fn freed(node: &NodeRef) -> Error {
    Error::runtime(
        "backward",
        format!(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after calling backward.\nfreed node: {}",
            node.name()
        ),
    )
}
