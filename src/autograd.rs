//! IN WHICH ORDER: nodes and edges of the graph, saved values, grad modes, hooks and the engine that walks it all
//! backward. Nothing here knows an operation by name, and no formula lives here.

pub mod engine;
pub mod held;
pub mod hooks;
pub mod mode;
pub mod node;
pub mod nonfinite;
pub mod observe;
pub mod saved;
pub mod state;
pub mod watch;
pub(crate) mod writers;

pub use engine::{BackwardOptions, GradOptions, backward, grad};
pub use hooks::HookHandle;
pub use mode::{enable_grad, is_grad_enabled, no_grad};
