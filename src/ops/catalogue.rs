//! The catalogue: every operation there is, family by family. Rows with one Python name are overloads, tried in this order.

use super::op::Op;
use super::{combine, contract, copy, create, elementwise, matmul, movement, random, rearrange, reduce, slicing, strided};

/// The rows of each family.
pub static FAMILIES: &[&[&Op]] = &[
    elementwise::ROWS,
    reduce::ROWS,
    movement::ROWS,
    slicing::ROWS,
    combine::ROWS,
    rearrange::ROWS,
    matmul::ROWS,
    contract::ROWS,
    create::ROWS,
    random::ROWS,
    copy::ROWS,
    strided::ROWS,
];

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Op> {
    FAMILIES.iter().flat_map(|f| f.iter().copied())
}

/// The row of that Rust name.
pub fn find(rust: &str) -> Option<&'static Op> {
    rows().find(|op| op.rust == rust)
}
