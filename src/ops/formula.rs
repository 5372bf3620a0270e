//! Elementwise operations: from a row's formula to specialised Programs, and from there to results and graph nodes. A
//! formula is traced once per combination of dtypes and kinds of operands; gradient Programs of every order are derived
//! and cached with it.

pub(crate) mod fast;
mod node;
mod run;
mod spec;

pub(crate) use node::not_implemented;
pub(crate) use run::{forward, in_place, into_out};
pub use spec::Accept;
pub use spec::{Derivative, Elementwise, F, Promote, Reduced};
