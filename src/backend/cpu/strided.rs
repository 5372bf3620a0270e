//! Element loops over arbitrary strides, for the few kernels whose target may hold one element in several places.

use super::element::{Element, with_element};
use super::elementwise::element_ptr;
use crate::backend::Operand;
use crate::shape::numel;

/// Adds each element of `from` to the place of `to` with the same index, one after another. Both have the same sizes and
/// dtype; the caller holds guards.
pub(crate) fn accumulate(from: &Operand<'_>, to: &Operand<'_>) {
    let sizes = &from.layout.sizes;
    let (src, dst) = (element_ptr(from), element_ptr(to));
    let mut index = vec![0usize; sizes.len()];
    with_element!(from.dtype, E => {
        for _ in 0..numel(sizes) {
            let at = |strides: &[isize]| index.iter().zip(strides).map(|(&i, &s)| i as isize * s).sum::<isize>();
            // SAFETY: an index inside both layouts, whose memory the caller guards.
            unsafe {
                let value = src.cast::<E>().offset(at(&from.layout.strides)).read().load();
                let place = dst.cast::<E>().offset(at(&to.layout.strides));
                place.write(E::store(Add::add(place.read().load(), value)));
            }
            for d in (0..sizes.len()).rev() {
                index[d] += 1;
                if index[d] < sizes[d] {
                    break;
                }
                index[d] = 0;
            }
        }
    });
}

/// Addition of compute types: wrapping for integers, "or" for truth values.
trait Add {
    fn add(self, other: Self) -> Self;
}

impl Add for f32 {
    fn add(self, other: f32) -> f32 {
        self + other
    }
}

impl Add for f64 {
    fn add(self, other: f64) -> f64 {
        self + other
    }
}

impl Add for i64 {
    fn add(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
}

impl Add for u8 {
    fn add(self, other: u8) -> u8 {
        self | other
    }
}
