//! Second names of operations: PyTorch has several of some. An alias stands for every overload of the name that it means;
//! the row itself knows nothing of it.

use super::op::{EVERYWHERE, FUNCTION, INPLACE, INPLACE_FUNCTION, LINALG, METHOD, OUT, SPECIAL, Surface};

/// A second name.
#[derive(Debug)]
pub struct Alias {
    /// The name.
    pub name: &'static str,
    /// The name of the rows it stands for.
    pub of: &'static str,
    /// Where Python finds it.
    pub surface: Surface,
}

const fn alias(name: &'static str, of: &'static str, surface: u16) -> Alias {
    Alias { name, of, surface: Surface(surface) }
}

/// All second names.
pub static ALIASES: &[Alias] = &[
    alias("subtract", "sub", EVERYWHERE),
    alias("multiply", "mul", EVERYWHERE),
    alias("divide", "div", EVERYWHERE),
    alias("true_divide", "div", EVERYWHERE),
    alias("negative", "neg", EVERYWHERE | INPLACE_FUNCTION),
    alias("absolute", "abs", EVERYWHERE),
    alias("greater", "gt", EVERYWHERE),
    alias("greater_equal", "ge", EVERYWHERE),
    alias("less", "lt", EVERYWHERE),
    alias("less_equal", "le", EVERYWHERE),
    alias("not_equal", "ne", EVERYWHERE),
    alias("arccos", "acos", EVERYWHERE | INPLACE_FUNCTION),
    alias("arcsin", "asin", EVERYWHERE | INPLACE_FUNCTION),
    alias("arctan", "atan", EVERYWHERE | INPLACE_FUNCTION),
    alias("arctan2", "atan2", EVERYWHERE),
    alias("arccosh", "acosh", EVERYWHERE | INPLACE_FUNCTION),
    alias("arcsinh", "asinh", EVERYWHERE | INPLACE_FUNCTION),
    alias("arctanh", "atanh", EVERYWHERE | INPLACE_FUNCTION),
    alias("clip", "clamp", EVERYWHERE | INPLACE_FUNCTION),
    alias("fix", "trunc", EVERYWHERE | INPLACE_FUNCTION),
    alias("concat", "cat", FUNCTION | OUT),
    alias("concatenate", "cat", FUNCTION | OUT),
    alias("row_stack", "vstack", FUNCTION | OUT),
    alias("moveaxis", "movedim", METHOD | FUNCTION),
    alias("swapdims", "transpose", METHOD | FUNCTION | INPLACE),
    alias("ger", "outer", METHOD | FUNCTION | OUT),
    alias("inv", "inverse", LINALG | OUT),
    alias("expit", "sigmoid", SPECIAL),
    alias("gammaln", "lgamma", SPECIAL),
    alias("psi", "digamma", SPECIAL),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::catalogue::rows;

    #[test]
    fn every_alias_means_a_row_and_hides_none() {
        for a in ALIASES {
            assert!(rows().any(|op| op.name == a.of), "{} stands for {}, which is not there", a.name, a.of);
            assert!(!rows().any(|op| op.name == a.name), "{} is a row of its own", a.name);
        }
    }
}
