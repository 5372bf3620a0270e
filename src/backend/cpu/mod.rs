//! Kernels for the host processor: raw pointers and strides in, numbers out. Nothing here knows a tensor.

pub mod matmul;
pub mod random;
