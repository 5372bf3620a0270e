//! Where NaN and infinity come from: an observer that stops at the operation, or at the node, that makes one of finite
//! values. What merely passes one on is not to blame.

use super::node::{Grads, NodeRef, SavedAttribute};
use super::observe::{After, Observer, Watched};
use crate::error::{Error, Result, bail};
use crate::ops::{describe, survey};
use crate::tensor::Tensor;

/// Stops where a value that is not finite comes into being.
pub struct NonFinite {
    /// Whether results of operations are looked at.
    pub forward: bool,
    /// Whether gradients are looked at.
    pub backward: bool,
}

impl Observer for NonFinite {
    fn operation<'a>(&'a self, call: &'a Watched<'_>) -> Result<After<'a>> {
        if !self.forward || call.given_nonfinite || !all_finite(call.operands.iter())? {
            return Ok(Box::new(|_| Ok(())));
        }
        // What is overwritten cannot be described afterwards.
        let before = if call.in_place { Some(surveys(call.operands)?) } else { None };
        Ok(Box::new(move |results| {
            for result in results {
                let found = survey(result)?;
                if let Some((index, value)) = &found.first {
                    let operands = before.map_or_else(|| surveys(call.operands), Ok)?;
                    bail!(runtime "trace_nonfinite", "{} produced {value} at index {index:?} of its result, while all that went in is finite\nthe call: {}\nresult: {found}{operands}", call.operation, (call.text)());
                }
            }
            Ok(())
        }))
    }

    fn node(&self, node: &NodeRef, cotangents: &Grads, gradients: &Grads) -> Result<()> {
        if !self.backward || !all_finite(cotangents.iter().flatten())? {
            return Ok(());
        }
        for (k, gradient) in gradients.iter().enumerate() {
            let Some(gradient) = gradient else { continue };
            let found = survey(gradient)?;
            let Some((index, value)) = &found.first else { continue };
            let mut text = format!(
                "{} produced {value} at index {index:?} of the gradient of its input {k}, while the gradients that came in are finite\ngradient: {found}",
                node.name(),
            );
            for (nr, cotangent) in cotangents.iter().enumerate() {
                if let Some(cotangent) = cotangent {
                    text +=
                        &format!("\ncame in for output {nr}: {} {}", describe::tensor(cotangent), survey(cotangent)?);
                }
            }
            for (name, saved) in node.body.saved() {
                // What was freed or changed since cannot be shown; the finding stands without it.
                if let SavedAttribute::Tensor(saved) = saved
                    && let Ok(saved) = saved.unpack(node)
                {
                    text += &format!("\nsaved {name}: {} {}", describe::tensor(&saved), survey(&saved)?);
                }
            }
            return Err(
                Error::runtime("trace_nonfinite", text).at(format!("{} was recorded by", node.name()), node.site)
            );
        }
        Ok(())
    }
}

fn all_finite<'a>(mut tensors: impl Iterator<Item = &'a Tensor>) -> Result<bool> {
    tensors.try_fold(true, |finite, t| Ok(finite && survey(t)?.first.is_none()))
}

fn surveys(operands: &[Tensor]) -> Result<String> {
    let mut text = String::new();
    for (k, t) in operands.iter().enumerate() {
        text += &format!("\noperand {k}: {} {}", describe::tensor(t), survey(t)?);
    }
    Ok(text)
}
