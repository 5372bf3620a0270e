//! rustgrad: PyTorch's autograd as a small Rust library.

pub mod backend;
pub mod device;
pub mod dtype;
pub mod error;
pub mod program;
pub mod scalar;
pub mod shape;
pub mod storage;
