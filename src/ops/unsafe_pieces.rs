//! Pieces of a tensor that share its memory without being views of it: whoever modifies one vouches that the others, and the
//! whole, are not used for gradients.

use super::args::{Arg, Read};
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, METHOD, Outputs, op};
use super::slicing::{even_lengths, given_lengths, joined, piece_dim, pieces};
use super::structured::Structured;
use crate::error::{Result, bail};
use crate::shape::wrap_dim;
use crate::tensor::Tensor;
use smallvec::smallvec;

op! {
    /// [`split`](Self::split) into pieces that may be modified in place: they share memory, but neither history nor version
    /// counter.
    ///
    /// # Errors
    /// As `split`.
    UNSAFE_SPLIT unsafe_split(self, split_size: Int, dim: Int = 0) -> Vec<Tensor> = "UnsafeSplitBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let dim = piece_dim("unsafe_split", a.tensor(0)?.rank(), a.int(2)?)?;
                apart(a.tensor(0)?, dim, &even_lengths(a.tensor(0)?.sizes()[dim], a.int(1)?)?)
            },
            backward: Some(|c| {
                let dim = wrap_dim("unsafe_split", c.int(2)?, c.sizes(0).len())?;
                joined(c, dim, &even_lengths(c.sizes(0)[dim], c.int(1)?)?)
            }),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 5])), Arg::Int(2), Arg::Int(-1)]];
    /// [`unsafe_split`](Self::unsafe_split) into pieces of the given sizes.
    ///
    /// # Errors
    /// As `split_with_sizes`.
    UNSAFE_SPLIT_WITH_SIZES unsafe_split_with_sizes(self, split_sizes: Ints, dim: Int = 0) -> Vec<Tensor> = "UnsafeSplitWithSizesBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let dim = piece_dim("unsafe_split_with_sizes", a.tensor(0)?.rank(), a.int(2)?)?;
                apart(a.tensor(0)?, dim, &given_lengths(a.tensor(0)?.sizes()[dim], dim, a.ints(1)?)?)
            },
            backward: Some(|c| {
                let dim = wrap_dim("unsafe_split_with_sizes", c.int(2)?, c.sizes(0).len())?;
                joined(c, dim, &given_lengths(c.sizes(0)[dim], dim, c.ints(1)?)?)
            }),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 5])), Arg::Ints([1, 0, 4][..].into()), Arg::Int(-1)]];
    /// [`unsafe_split`](Self::unsafe_split) into at most `chunks` pieces, of one size but for the last.
    ///
    /// # Errors
    /// As `chunk`.
    UNSAFE_CHUNK unsafe_chunk(self, chunks: Int, dim: Int = 0) -> Vec<Tensor> = "", METHOD | FUNCTION,
        C(|a| {
            let (t, chunks) = (a.tensor(0)?, a.int(1)?);
            if chunks <= 0 {
                bail!(runtime "unsafe_chunk", "chunk expects `chunks` to be greater than 0, got: {chunks}");
            }
            let dim = piece_dim("chunk", t.rank(), a.int(2)?)?;
            let n = t.sizes()[dim] as i64;
            if n == 0 {
                crate::storage::affordable("unsafe_chunk", chunks as usize, super::pieces::VIEW)?;
                return Ok(t.unsafe_split_with_sizes(&vec![0i64; chunks as usize][..], dim as i64)?.into());
            }
            Ok(t.unsafe_split((n + chunks - 1) / chunks, dim as i64)?.into())
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[5, 2])), Arg::Int(3), Arg::Int(0)]];
}

/// Pieces that share the memory, each with a version counter of its own.
fn apart(t: &Tensor, dim: usize, lengths: &[usize]) -> Result<Outputs> {
    let whole = t.data().body();
    let layouts = pieces(&whole.layout, dim, lengths)?;
    Ok(layouts.into_iter().map(|layout| Tensor::from_body(whole.with_layout(layout)).data()).collect())
}
