//! What the parts of a graph hold, one counted reference at a time. Whoever must tell what keeps what alive, as the garbage
//! collector of an embedding language does, adds these up. Nothing here waits for a lock: what another is changing is left
//! out, and counts as held by somebody unknown.

use super::node::{Edge, Node, NodeRef};
use crate::tensor::Tensor;
use std::any::Any;

/// One counted reference.
pub enum Held<'a> {
    /// To a tensor.
    Tensor(&'a Tensor),
    /// To a node.
    Node(&'a NodeRef),
    /// To an object of the embedding language.
    Payload(&'a (dyn Any + Send + Sync)),
}

/// Is shown references one after another.
pub type Visit<'a> = dyn FnMut(Held<'_>) + 'a;

impl Edge {
    /// Shows what the edge holds.
    pub fn held(&self, visit: &mut Visit<'_>) {
        if let Some(node) = self.node() {
            visit(Held::Node(node));
        }
    }
}

impl Node {
    /// Shows what the node holds: the nodes it points to, what it saved, its hooks.
    pub fn held(&self, visit: &mut Visit<'_>) {
        self.edges.iter().for_each(|edge| edge.held(visit));
        self.body.held(visit);
        if let Some(hooks) = self.hooks() {
            hooks.held(visit);
        }
    }
}
