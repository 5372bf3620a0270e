//! Triangles of matrices: elements on one side of a diagonal are copied, the others become zeros. Elements are moved as
//! bytes, so one kernel serves every dtype of a size.

use super::elementwise::element_ptr;
use super::shared::Shared;
use crate::backend::Operand;
use crate::shape::numel;
use crate::storage::Guards;
use crate::threads;

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
    let (source, target) = (Shared(element_ptr(from).cast::<E>()), Shared(element_ptr(to).cast::<E>()));
    let lines = numel(&sizes[..lead]) * rows * usize::from(columns > 0);
    threads::ranges(lines, 1, 0.2 * columns as f64, |range| {
        let mut at = range.start;
        while at < range.end {
            let (mut matrix, first) = (at / rows, at % rows);
            let (mut line, mut out) = (source.get().cast_const(), target.get().wrapping_add(at * columns));
            line = line.wrapping_offset(first as isize * row_stride);
            for d in (0..lead).rev() {
                line = line.wrapping_offset((matrix % sizes[d]) as isize * strides[d]);
                matrix /= sizes[d];
            }
            let last = rows.min(first + range.end - at);
            for row in first..last {
                // Columns before this one belong to the lower triangle.
                let edge = (row as i64).saturating_add(diagonal).saturating_add(!upper as i64);
                let edge = edge.clamp(0, columns as i64) as usize;
                let (kept, zeroed) = if upper { (edge..columns, 0..edge) } else { (0..edge, edge..columns) };
                // SAFETY: the row and its columns lie inside both layouts, whose memory is guarded and does not overlap;
                // zero bytes are a zero of every dtype. Ranges are apart.
                unsafe {
                    std::ptr::write_bytes(out.add(zeroed.start), 0, zeroed.len());
                    if column_stride == 1 {
                        std::ptr::copy_nonoverlapping(line.add(kept.start), out.add(kept.start), kept.len());
                    } else {
                        kept.for_each(|c| out.add(c).write(line.offset(c as isize * column_stride).read()));
                    }
                }
                (line, out) = (line.wrapping_offset(row_stride), out.wrapping_add(columns));
            }
            at += last - first;
        }
    });
}
