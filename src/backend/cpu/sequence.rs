//! Memory whose elements follow from their positions: the values of ranges and grids.

use super::element::{Element, with_element};
use super::elementwise::element_ptr;
use super::memory::FromScalar;
use crate::backend::Operand;
use crate::scalar::Scalar;
use crate::storage::Guards;

/// Writes `value(i)`, converted, to element `i` of row-major memory.
pub(crate) fn sequence(to: &Operand<'_>, value: impl Fn(usize) -> Scalar) {
    let n = to.layout.numel();
    let _guards = Guards::take([], [to.storage]);
    with_element!(to.dtype, E => {
        let out = element_ptr(to).cast::<E>();
        for i in 0..n {
            let element = E::store(<<E as Element>::Compute as FromScalar>::from_scalar(value(i)));
            // SAFETY: the layout's memory holds `n` elements of the dtype and is guarded.
            unsafe { out.add(i).write(element) };
        }
    });
}
