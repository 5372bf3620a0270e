//! rustgrad: PyTorch's autograd as a small Rust library.

#[doc(hidden)]
pub mod backend;
pub mod device;
pub mod dtype;
pub mod error;
pub mod scalar;
