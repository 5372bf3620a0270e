//! The CPU: the block VM that runs Programs, reductions, matrix products, index kernels, random numbers.

pub(crate) mod accumulate;
pub(crate) mod arg;
pub(crate) mod classes;
pub(crate) mod count;
pub(crate) mod draw;
mod element;
mod elementwise;
pub(crate) mod index;
pub(crate) mod integer;
mod kernels;
pub(crate) mod linalg;
pub(crate) mod mask;
pub mod math;
pub mod matmul;
pub(crate) mod memory;
pub(crate) mod normalise;
mod plain;
pub(crate) mod product;
pub mod random;
pub(crate) mod rank;
mod reduce;
pub(crate) mod scan;
pub(crate) mod search;
pub(crate) mod sequence;
mod shared;
pub(crate) mod single;
mod slices;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod strided;
pub(crate) mod triangle;
mod vm;
mod walk;

pub use elementwise::{Executable, force_limits};
pub use plain::{Sink, Source};

/// Whether the vector kernels for AVX2 and FMA may be called.
#[inline]
pub fn has_fma() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        false
    }
}
