//! From node to node: what a node's gradients do when they leave it, whoever computed them.

use super::ahead::Done;
use super::fit::fit;
use super::ready::Ready;
use super::task::{Graph, Progress};
use crate::autograd::node::{Edge, Grads, Node, NodeRef, Zeros};
use crate::error::Result;
use crate::ops;
use crate::tensor::Tensor;

impl Progress {
    /// Notes that what an edge brings has come in; says whether nothing more is to come.
    #[inline]
    fn arrived(&mut self, number: u32) -> bool {
        let waiting = &mut self.waiting[number as usize];
        *waiting -= 1;
        *waiting == 0
    }
}

impl Graph {
    /// Takes in a gradient of a node's output `nr`: the first is kept, others are added to it.
    #[inline]
    pub(super) fn receive(&self, node: &NodeRef, nr: u32, grad: Tensor, grads: &mut Grads) -> Result<()> {
        let nr = nr as usize;
        if grads.len() <= nr {
            if nr == grads.len() {
                grads.push(Some(grad));
                return Ok(());
            }
            grads.resize(node.outputs.len().max(nr + 1), None);
        }
        let slot = &mut grads[nr];
        *slot = Some(match slot.take() {
            None => grad,
            Some(sum) if !self.create_graph && ops::is_exclusive(&sum) => {
                ops::add_assign(&sum, &grad)?;
                sum
            }
            Some(sum) => ops::sum_of(&sum, &grad)?,
        });
        Ok(())
    }

    /// Sends gradients along the edges of a node, and queues the nodes for which nothing more is to come.
    #[inline]
    pub(super) fn send(
        &self,
        node: &NodeRef,
        grads: Grads,
        zeros: &Zeros,
        progress: &mut Progress,
        ready: &mut Ready,
    ) -> Result<()> {
        let own: &Node = node;
        // A hook may have put anything in the place of a node's gradients.
        let fitting = own.body.fits() && own.hooks().is_none();
        let mut grads = grads.into_iter();
        for (k, edge) in own.edges.iter().enumerate() {
            let grad = grads.next().flatten();
            let Some(to) = edge.node() else { continue };
            let Some(to_number) = self.number(to) else { continue };
            if let Some(grad) = grad {
                let grad = if fitting { grad } else { fit(node, k, edge, grad)? };
                self.receive(to, edge.nr, grad, &mut progress.grads[to_number as usize])?;
            } else if !zeros.is_empty() && zeros.has(k) {
                progress.zeros.insert((to_number, edge.nr));
            }
            if !progress.arrived(to_number) {
                continue;
            }
            if to.is_accumulation() {
                ready.push(to.sequence, to_number);
            } else {
                ready.push_fresh(to.sequence, to_number);
            }
        }
        Ok(())
    }

    /// Takes over what another thread computed for a node. What it had saved must not have changed until now, where it would
    /// have been read had the caller come to it.
    #[inline]
    pub(super) fn retire(
        &self,
        number: u32,
        recheck: bool,
        done: Option<Done>,
        zeros: &Zeros,
        progress: &mut Progress,
    ) -> Result<Grads> {
        let node = &self.nodes()[number as usize];
        if recheck {
            node.body.check_saved(node)?;
        }
        let mut out = Grads::new();
        if let Some(done) = done {
            out = done.grads?;
            zeros.copy(&done.zeros);
            for (leaf, sums) in done.sums {
                for (nr, sum) in (0..).zip(sums) {
                    let Some(sum) = sum else { continue };
                    self.receive(&self.nodes()[leaf as usize], nr, sum, &mut progress.grads[leaf as usize])?;
                }
            }
        }
        if !self.keep_graph {
            node.body.release();
        }
        Ok(out)
    }

    /// Takes over that another thread computed a node in the middle of a run, and that all it made went into the next.
    #[inline]
    pub(super) fn pass(&self, number: u32, recheck: bool, progress: &mut Progress, ready: &mut Ready) -> Result<()> {
        self.retire(number, recheck, None, &Zeros::default(), progress)?;
        for to in self.nodes()[number as usize].edges.iter().filter_map(Edge::node) {
            if let Some(number) = self.number(to)
                && progress.arrived(number)
            {
                // Nothing to offer: the run went on there.
                ready.push(to.sequence, number);
            }
        }
        Ok(())
    }
}
