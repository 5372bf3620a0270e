//! What threads share and wait on, from one door, so that models of what they do can have loom's.

mod plain;

pub use plain::*;
