//! Triangles of matrices: elements on one side of a diagonal are copied, the others become zeros. Elements are moved as
//! bytes, so one kernel serves every dtype of a size.

use super::elementwise::element_ptr;
use crate::backend::Operand;
use crate::shape::{Dims, numel};
use crate::storage::Guards;

/// Copies the lower triangle (up to `diagonal` places above the main one) or the upper one (from there on) of each matrix of
/// `from` to `to`, which has its sizes and dtype and lies row-major in memory of its own; the rest of `to` becomes zeros.
pub(crate) fn triangle(from: &Operand<'_>, to: &Operand<'_>, diagonal: i64, upper: bool) {
    let _guards = Guards::take([from.storage], [to.storage]);
    // Half types and integers of one size are moved alike.
    match from.dtype.size() {
        1 => copy::<u8>(from, to, diagonal, upper),
        2 => copy::<u16>(from, to, diagonal, upper),
        4 => copy::<u32>(from, to, diagonal, upper),
        _ => copy::<u64>(from, to, diagonal, upper),
    }
}

fn copy<E: Copy + Default>(from: &Operand<'_>, to: &Operand<'_>, diagonal: i64, upper: bool) {
    let (sizes, strides) = (&from.layout.sizes, &from.layout.strides);
    let Some(lead) = sizes.len().checked_sub(2) else { return };
    let (rows, columns) = (sizes[lead], sizes[lead + 1]);
    let (row_stride, column_stride) = (strides[lead], strides[lead + 1]);
    let (mut source, mut target) = (element_ptr(from).cast::<E>().cast_const(), element_ptr(to).cast::<E>());
    let mut index = Dims::<usize>::filled(0, lead);
    for _ in 0..numel(&sizes[..lead]) * usize::from(rows * columns > 0) {
        for row in 0..rows {
            // Columns before this one belong to the lower triangle.
            let edge =
                (row as i64).saturating_add(diagonal).saturating_add(!upper as i64).clamp(0, columns as i64) as usize;
            let (kept, zeroed) = if upper { (edge..columns, 0..edge) } else { (0..edge, edge..columns) };
            // SAFETY: the row and its columns lie inside both layouts, whose memory is guarded and does not overlap; zero
            // bytes are a zero of every dtype.
            unsafe {
                let (line, out) = (source.offset(row as isize * row_stride), target.add(row * columns));
                std::ptr::write_bytes(out.add(zeroed.start), 0, zeroed.len());
                if column_stride == 1 {
                    std::ptr::copy_nonoverlapping(line.add(kept.start), out.add(kept.start), kept.len());
                } else {
                    kept.for_each(|c| out.add(c).write(line.offset(c as isize * column_stride).read()));
                }
            }
        }
        target = target.wrapping_add(rows * columns);
        for d in (0..lead).rev() {
            index[d] += 1;
            source = source.wrapping_offset(strides[d]);
            if index[d] < sizes[d] {
                break;
            }
            source = source.wrapping_offset(-(strides[d] * sizes[d] as isize));
            index[d] = 0;
        }
    }
}
