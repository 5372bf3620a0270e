//! TO WHOM: the extension module `rustgrad._core`. The only room that names pyo3. Methods and functions of operations are
//! installed from the catalogue; what is written by hand here is Python's own protocol: operators, indexing, numbers,
//! buffers, identity, hooks.

mod allocator;
mod bind;
mod callsite;
mod collector;
mod copying;
mod data;
mod dispatch;
mod dtype;
mod engine;
mod error;
mod function;
mod gather;
mod generator;
mod graph;
mod identity;
mod index;
mod interrupt;
mod module;
mod numpy;
mod observe;
mod private;
mod report;
mod saved;
mod stubs;
mod tensor;

use pyo3::prelude::*;

/// The extension module.
#[pymodule(gil_used = true)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    module::init(m)
}
