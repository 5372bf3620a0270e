//! The catalogue: every operation there is, family by family. Rows with one Python name are overloads, tried in this order.

use super::op::Op;
use super::{
    activation, arg, batch_norm, classes, combine, comparison, contract, copy, create, difference, einsum, elementwise,
    embedding, index, index_view, linalg, loss, matmul, memory, moments, movement, norm, quantile, random, random_fill,
    rearrange, reduce, scan, scatter, scatter_reduce, search, selection, slicing, softmax, sort, special, strided,
    transcendental, unsafe_pieces, vector_norm,
};

/// The rows of each family.
pub static FAMILIES: &[&[&Op]] = &[
    elementwise::ROWS,
    selection::ROWS,
    transcendental::ROWS,
    special::ROWS,
    comparison::ROWS,
    activation::ROWS,
    reduce::ROWS,
    arg::ROWS,
    moments::ROWS,
    vector_norm::ROWS,
    scan::ROWS,
    difference::ROWS,
    quantile::ROWS,
    softmax::ROWS,
    loss::ROWS,
    classes::ROWS,
    norm::ROWS,
    batch_norm::ROWS,
    movement::ROWS,
    slicing::ROWS,
    unsafe_pieces::ROWS,
    memory::ROWS,
    combine::ROWS,
    rearrange::ROWS,
    matmul::ROWS,
    contract::ROWS,
    einsum::ROWS,
    linalg::ROWS,
    create::ROWS,
    random::ROWS,
    random_fill::ROWS,
    copy::ROWS,
    strided::ROWS,
    index::ROWS,
    index_view::ROWS,
    scatter::ROWS,
    scatter_reduce::ROWS,
    sort::ROWS,
    search::ROWS,
    embedding::ROWS,
];

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Op> {
    FAMILIES.iter().flat_map(|f| f.iter().copied())
}

/// The row of that Rust name.
pub fn find(rust: &str) -> Option<&'static Op> {
    rows().find(|op| op.rust == rust)
}
