//! WHAT: the catalogue of operations. Every operation is one row, a static [`op::Op`] declared by the `op!` macro: its
//! signature, its rule (a formula, a view, a kernel with its derivative, or a composition of other operations), its
//! documentation and its samples. Methods, functions, in-place forms, graph nodes, stubs, reference and tests follow from
//! the row. [`apply`] is the one road every operation takes.

pub mod activation;
mod address;
pub mod aliases;
pub mod apply;
pub mod arg;
pub mod args;
pub mod batch_norm;
pub mod catalogue;
pub mod classes;
pub mod combine;
pub mod comparison;
pub mod contract;
pub mod copy;
pub mod create;
pub mod difference;
pub mod einsum;
pub mod elementwise;
pub mod embedding;
mod factory;
pub mod formula;
pub mod generator;
pub mod getitem;
pub mod index;
pub mod index_view;
mod inplace;
pub mod linalg;
pub mod loss;
pub mod matmul;
pub mod memory;
pub mod moments;
pub mod movement;
pub mod norm;
pub mod op;
mod pieces;
pub mod quantile;
pub mod random;
pub mod random_fill;
pub mod rearrange;
pub mod reduce;
pub mod samples;
pub mod scan;
pub mod scatter;
pub mod scatter_reduce;
pub mod search;
pub mod selection;
pub mod slicing;
pub mod softmax;
pub mod sort;
pub mod special;
pub mod strided;
pub mod structured;
pub mod transcendental;
mod unsafe_pieces;
pub mod update;
pub mod vector_norm;
pub mod view;

pub(crate) use copy::contiguous;
pub use copy::{add_assign, copy_like, is_exclusive, sum_of, sum_to_size, to_dtype};
pub use factory::{full, ones, zeros, zeros_like};
pub(crate) use inplace::rebase;
pub(crate) use strided::view_of;
