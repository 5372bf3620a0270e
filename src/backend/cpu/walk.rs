//! Walking an index space in row-major order with several operands at once: dimensions that lie evenly for all of them are
//! merged, and the innermost one is handed out whole, so that kernels loop over rows and pay for bookkeeping once a row.
//! What is done with a row is the kernels' affair.

use crate::shape::{Dims, Strides};

/// Calls `row` with the offsets of its first element, its length and its strides, for each row of the index space `sizes`.
/// The order is that of the elements, whatever the strides; the first error ends the walk.
pub(super) fn walk<const K: usize, E>(
    sizes: &[usize],
    strides: [&[isize]; K],
    mut row: impl FnMut([isize; K], usize, [isize; K]) -> Result<(), E>,
) -> Result<(), E> {
    if sizes.contains(&0) {
        return Ok(());
    }
    let (sizes, strides) = merge(sizes, strides);
    let Some((&inner, outer)) = sizes.split_last() else { return row([0; K], 1, [0; K]) };
    let steps: [isize; K] = std::array::from_fn(|k| strides[k][outer.len()]);
    let mut at = [0isize; K];
    if outer.is_empty() {
        return row(at, inner, steps);
    }
    let mut index = Dims::filled(0usize, outer.len());
    loop {
        row(at, inner, steps)?;
        let mut d = outer.len();
        loop {
            if d == 0 {
                return Ok(());
            }
            d -= 1;
            index[d] += 1;
            if index[d] < outer[d] {
                (0..K).for_each(|k| at[k] += strides[k][d]);
                break;
            }
            index[d] = 0;
            (0..K).for_each(|k| at[k] -= strides[k][d] * (outer[d] as isize - 1));
        }
    }
}

/// The index space without dimensions of size 1, and with neighbours joined that all operands step through evenly.
fn merge<const K: usize>(sizes: &[usize], strides: [&[isize]; K]) -> (Dims, [Strides; K]) {
    let mut out = Dims::new();
    let mut out_strides: [Strides; K] = std::array::from_fn(|_| Strides::new());
    for (d, &size) in sizes.iter().enumerate() {
        if size == 1 {
            continue;
        }
        let last = out.len().wrapping_sub(1);
        let joins =
            !out.is_empty() && (0..K).all(|k| out_strides[k][last] == strides[k][d].wrapping_mul(size as isize));
        if joins {
            out[last] *= size;
            (0..K).for_each(|k| out_strides[k][last] = strides[k][d]);
        } else {
            out.push(size);
            (0..K).for_each(|k| out_strides[k].push(strides[k][d]));
        }
    }
    (out, out_strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets of all elements, by the walk.
    fn offsets<const K: usize>(sizes: &[usize], strides: [&[isize]; K]) -> (Vec<[isize; K]>, usize) {
        let (mut all, mut rows) = (Vec::new(), 0);
        walk::<K, ()>(sizes, strides, |at, n, steps| {
            rows += 1;
            all.extend((0..n as isize).map(|j| std::array::from_fn(|k| at[k] + j * steps[k])));
            Ok(())
        })
        .unwrap();
        (all, rows)
    }

    #[test]
    fn all_elements_in_order_in_few_rows() {
        let (all, rows) = offsets(&[2, 3, 4], [&[12, 4, 1], &[0, 0, 0]]);
        assert_eq!(rows, 1);
        assert!(all.iter().enumerate().all(|(i, &[a, b])| a == i as isize && b == 0));
        let (all, rows) = offsets(&[2, 3, 1, 4], [&[12, 4, 9, 1], &[1, 2, 7, 0]]);
        assert_eq!(rows, 6);
        let want: Vec<[isize; 2]> = (0..2)
            .flat_map(|i| (0..3).flat_map(move |j| (0..4).map(move |k| [12 * i + 4 * j + k, i + 2 * j])))
            .collect();
        assert_eq!(all, want);
        assert_eq!(offsets(&[], [&[]]), (vec![[0]], 1));
        assert_eq!(offsets(&[3, 0], [&[1, 1]]), (vec![], 0));
    }
}
