//! The engine: walks the graph from the roots to the leaves, each node once all gradients of its outputs are in.
//!
//! Serial order is descending sequence number, `AccumulateGrad` as soon as it is ready. Gradients that meet are added in
//! the order of the nodes that produce them, which is the order in which they arrive here. At a node: tensor hooks of its
//! outputs, retained gradients, capture, node pre-hooks, the node, node post-hooks. Nothing recurses.

mod accumulate;
mod ahead;
mod board;
mod entry;
mod fit;
mod outlook;
mod ready;
mod send;
mod task;

pub use accumulate::AccumulateGrad;
pub use ahead::is_shared;
pub use entry::{BackwardOptions, GradOptions, backward, grad};
pub use task::{current_task, nesting, queue_callback, runs_whole, set_interrupt_hook, will_run};
