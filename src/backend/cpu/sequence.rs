//! Memory whose elements follow from their positions: the values of ranges and grids.

use super::element::{Element, with_element};
use super::elementwise::element_ptr;
use super::memory::FromScalar;
use super::shared::Shared;
use crate::backend::Operand;
use crate::scalar::Scalar;
use crate::storage::Guards;
use crate::threads;

/// Writes `value(i)`, converted, to element `i` of row-major memory.
pub(crate) fn sequence(to: &Operand<'_>, value: impl Fn(usize) -> Scalar + Sync) {
    let _guards = Guards::take([], [to.storage]);
    with_element!(to.dtype, E => {
        let out = Shared(element_ptr(to).cast::<E>());
        threads::ranges(to.layout.numel(), 64, 0.5, |range| {
            for i in range {
                let element = E::store(<<E as Element>::Compute as FromScalar>::from_scalar(value(i)));
                // SAFETY: an element of the layout, whose memory is guarded; ranges are apart.
                unsafe { out.get().add(i).write(element) };
            }
        });
    });
}
