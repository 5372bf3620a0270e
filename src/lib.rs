//! rustgrad: PyTorch's autograd as a small Rust library.

#![recursion_limit = "512"]
// The Python face lives in this crate and uses doors that nothing else does. `make lint` also checks with it compiled
// in, where code that is truly dead is an error.
#![cfg_attr(not(feature = "python"), allow(dead_code, unused_imports))]

#[cfg(target_endian = "big")]
compile_error!("rustgrad stores scalars and files little-endian; big-endian machines are not supported");

pub mod autograd;
#[doc(hidden)]
pub mod backend;
pub mod callsite;
pub mod device;
pub mod dtype;
pub mod error;
mod few;
pub mod ops;
pub mod program;
#[cfg(feature = "python")]
mod python;
pub mod scalar;
pub mod shape;
pub mod storage;
mod sync;
pub mod tensor;
pub mod threads;

pub use device::Device;
pub use dtype::DType;
pub use error::{Error, Result};
pub use scalar::Scalar;
pub use tensor::Tensor;
