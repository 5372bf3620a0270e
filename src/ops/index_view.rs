//! Views that indexing makes and no other operation: ranges of a dimension, and the whole tensor as a view of itself.
//! `select` is among the movement operations.

use super::address::ints;
use super::args::{Arg, Read};
use super::copy;
use super::op::Rule::{Structured as S, View as V};
use super::op::op;
use super::structured::Structured;
use super::view::View;
use crate::error::{Result, bail};
use crate::shape::{Dims, Layout, wrap_dim};
use smallvec::smallvec;

/// First index and length of a range over `n` elements, ends counted and cut off as Python does. `step` is positive.
#[inline]
fn range(n: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> (usize, usize) {
    let n = n as i64;
    let inside = |i: i64| if i < 0 { i.saturating_add(n).max(0) } else { i.min(n) };
    let start = inside(start.unwrap_or(0));
    let stop = inside(stop.unwrap_or(i64::MAX)).max(start);
    (start as usize, ((stop - start) as u64).div_ceil(step as u64) as usize)
}

/// The layout of a range of one dimension.
///
/// # Errors
/// `IndexError` for a 0-d tensor, `RuntimeError` for a step below 1.
#[inline]
pub(super) fn sliced(input: &Layout, dim: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Result<Layout> {
    if input.rank() == 0 {
        bail!(index "slice", "slice() cannot be applied to a 0-dim tensor.");
    }
    let dim = wrap_dim("slice", dim, input.rank())?;
    if step < 1 {
        bail!(runtime "slice", "slice step must be positive");
    }
    let (first, len) = range(input.sizes[dim], start, stop, step);
    let mut layout = input.clone();
    layout.offset = layout.offset.wrapping_add_signed(first as isize * layout.strides[dim]);
    layout.sizes[dim] = len;
    layout.strides[dim] = layout.strides[dim].wrapping_mul(step as isize);
    Ok(layout)
}

op! {
    /// A range of a dimension, without copying: indices from `start` up to `stop`, `step` apart. Negative ends count from
    /// the end, ends outside are cut off.
    ///
    /// # Errors
    /// `IndexError` for a 0-d tensor or a dimension that is not there, `RuntimeError` for a step below 1.
    SLICE slice(self, dim: Int = 0, start: OptInt = None, stop: OptInt = None, step: Int = 1) -> Tensor = "SliceBackward0", 0,
        V(View {
            layouts: |input, a| Ok(smallvec![sliced(input, a.int(1)?, a.opt_int(2), a.opt_int(3), a.int(4)?)?]),
            backward: |c| {
                Ok(smallvec![c.when(0, |g| {
                    let dim = wrap_dim("slice", c.int(1)?, c.sizes(0).len())?;
                    let step = c.int(4)?;
                    let (first, len) = range(c.sizes(0)[dim], c.opt_int(2), c.opt_int(3), step);
                    let stop = (first as i64).saturating_add((len as i64).saturating_mul(step));
                    g.slice_backward(ints(c.sizes(0)), dim as i64, first as i64, stop, step)
                })?])
            },
            multiple: false,
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[3, 5])), Arg::Int(1), Arg::Int(-4), Arg::None, Arg::Int(2)],
            smallvec![Arg::Tensor(s.t(&[3, 5])), Arg::Int(0), Arg::Int(1), Arg::Int(2), Arg::Int(1)],
        ];
    /// Zeros of `size` with `input` at a range of a dimension: the transpose of `slice`.
    ///
    /// # Errors
    /// `RuntimeError` if the input is not of the shape of that range.
    SLICE_BACKWARD slice_backward(self, size: Ints, dim: Int, start: Int, stop: Int, step: Int) -> Tensor = "SliceBackwardBackward0", 0,
        S(Structured {
            forward: |a| {
                let grad = a.tensor(0)?.body();
                let sizes: Dims = a.ints(1)?.iter().map(|&s| s as usize).collect();
                let out = super::zeros(&sizes, grad.dtype)?;
                let whole = out.body();
                let part = sliced(&whole.layout, a.int(2)?, a.opt_int(3), a.opt_int(4), a.int(5)?)?;
                if part.sizes != grad.layout.sizes {
                    bail!(runtime "slice_backward", "the gradient has shape {:?}, the range {:?}", grad.layout.sizes, part.sizes);
                }
                copy::convert("slice_backward", &grad, &whole.with_layout(part))?;
                Ok(smallvec![out])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.slice(c.int(2)?, c.opt_int(3), c.opt_int(4), c.int(5)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[3, 2])), Arg::Ints([3, 5][..].into()), Arg::Int(1), Arg::Int(1), Arg::Int(5), Arg::Int(2)]];
    /// The tensor as a view of itself.
    ALIAS alias(self) -> Tensor = "AliasBackward0", 0,
        V(View {
            layouts: |input, _| Ok(smallvec![input.clone()]),
            backward: |c| Ok(smallvec![c.grad(0)]),
            multiple: false,
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3]))]];
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_those_of_python() {
        // Python: len(range(n)[start:stop:step]) and its first element.
        let cases = [
            (5, None, None, 1, (0, 5)),
            (5, Some(1), Some(4), 2, (1, 2)),
            (5, Some(-4), None, 2, (1, 2)),
            (5, Some(-9), Some(9), 3, (0, 2)),
            (5, Some(4), Some(2), 1, (4, 0)),
            (5, Some(7), Some(9), 1, (5, 0)),
            (0, None, None, 1, (0, 0)),
            (5, None, None, i64::MAX, (0, 1)),
            (5, Some(i64::MIN), Some(i64::MAX), 1, (0, 5)),
        ];
        for (n, start, stop, step, want) in cases {
            assert_eq!(range(n, start, stop, step), want, "{n} {start:?} {stop:?} {step}");
        }
    }
}
