//! The tensor room: so far only how a tensor prints.

mod format;

pub use format::{Elements, PrintChange, PrintOptions, repr, size_repr};
