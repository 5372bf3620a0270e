//! Walking an index space in row-major order with several operands at once: dimensions that lie evenly for all of them are
//! merged, and the innermost one is handed out whole, so that kernels loop over rows and pay for bookkeeping once a row.
//! Large spaces are cut into boxes for several threads. What is done with a row is the kernels' affair.

use super::shared::Lowest;
use crate::shape::{Dims, Strides, numel};
use crate::threads;
use std::ops::Range;

/// Calls `row` with the offsets of its first element, its length and its strides, for each row of the index space `sizes`.
/// The order is that of the elements, whatever the strides; the first error ends the walk.
#[inline]
pub(super) fn walk<const K: usize, E>(
    sizes: &[usize],
    strides: [&[isize]; K],
    row: impl FnMut([isize; K], usize, [isize; K]) -> Result<(), E>,
) -> Result<(), E> {
    Part::whole(sizes, strides).walk(row)
}

/// A box of an index space: its sizes, the strides of the operands, and the offsets of its first element.
pub(super) struct Part<'a, const K: usize> {
    sizes: &'a [usize],
    strides: [&'a [isize]; K],
    first: [isize; K],
}

impl<'a, const K: usize> Part<'a, K> {
    /// All of the space.
    #[inline]
    pub(super) fn whole(sizes: &'a [usize], strides: [&'a [isize]; K]) -> Part<'a, K> {
        Part { sizes, strides, first: [0; K] }
    }

    /// The box to be cut along its first dimension, so that one piece after the other is row-major order; `None` if it has
    /// no dimension.
    pub(super) fn cut(&self) -> Option<Cut<K>> {
        let (sizes, strides) = merge(self.sizes, self.strides);
        if sizes.is_empty() { None } else { Some(Cut { sizes, strides, first: self.first, dim: 0 }) }
    }

    /// Calls `part` with the box, or with pieces of it one after the other, between which it may be stopped.
    fn in_turn<E>(self, ns: f64, part: &dyn Fn(Part<'_, K>) -> Result<(), E>) -> Result<(), E> {
        match self.cut() {
            Some(cut) => threads::turns(cut.len(), ns * cut.width() as f64).try_for_each(|range| cut.part(range, part)),
            None => part(self),
        }
    }

    /// [`walk`] over the box.
    #[inline]
    pub(super) fn walk<E>(self, mut row: impl FnMut([isize; K], usize, [isize; K]) -> Result<(), E>) -> Result<(), E> {
        if self.sizes.contains(&0) {
            return Ok(());
        }
        let (sizes, strides) = merge(self.sizes, self.strides);
        let mut at = self.first;
        let Some((&inner, outer)) = sizes.split_last() else { return row(at, 1, [0; K]) };
        let steps: [isize; K] = std::array::from_fn(|k| strides[k][outer.len()]);
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
}

/// A box that is cut along one of its dimensions.
pub(super) struct Cut<const K: usize> {
    sizes: Dims,
    strides: [Strides; K],
    first: [isize; K],
    dim: usize,
}

impl<const K: usize> Cut<K> {
    /// The space cut along the first dimension that allows it and is long enough for many threads, else along the longest
    /// that does.
    fn best(sizes: &[usize], strides: [&[isize]; K], allows: &dyn Fn([isize; K]) -> bool) -> Option<Cut<K>> {
        let (sizes, strides) = merge(sizes, strides);
        let allowed = |d: &usize| allows(std::array::from_fn(|k| strides[k][*d]));
        let dims = || (0..sizes.len()).filter(allowed);
        let dim = dims().find(|&d| sizes[d] >= MANY).or_else(|| dims().max_by_key(|&d| sizes[d]))?;
        Some(Cut { sizes, strides, first: [0; K], dim })
    }

    /// How long the dimension is.
    pub(super) fn len(&self) -> usize {
        self.sizes[self.dim]
    }

    /// How many elements one step along it has.
    fn width(&self) -> usize {
        numel(&self.sizes) / self.len()
    }

    /// Borders between boxes are multiples of this, if an element takes `ns` nanoseconds. Neighbours stay together unless a
    /// few are work enough; columns are cut into no more than threads need, since every box goes through all rows.
    fn grain(&self, ns: f64) -> usize {
        let run = RUN.min((1000.0 / ns) as usize).max(1);
        if self.dim + 1 < self.sizes.len() {
            1
        } else if self.dim == 0 {
            run
        } else {
            self.len().div_ceil(2 * threads::num_threads()).next_multiple_of(run)
        }
    }

    /// Calls `part` with boxes that together are the space, several at once.
    fn each<E: Send>(&self, ns: f64, part: &(dyn Fn(Part<'_, K>) -> Result<(), E> + Sync)) -> Result<(), E> {
        let error = Lowest::new();
        threads::ranges(self.len(), self.grain(ns), ns * self.width() as f64, |range| {
            let start = range.start;
            if let Err(e) = self.part(range, |one| one.in_turn(ns, part)) {
                error.put(start, e);
            }
        });
        error.result()
    }

    /// Calls `f` with the box of a range of the dimension.
    pub(super) fn part<R>(&self, range: Range<usize>, f: impl FnOnce(Part<'_, K>) -> R) -> R {
        let mut sizes = self.sizes.clone();
        sizes[self.dim] = range.len();
        let first = std::array::from_fn(|k| self.first[k] + self.strides[k][self.dim] * range.start as isize);
        f(Part { sizes: &sizes, strides: self.strides.each_ref().map(|s| &s[..]), first })
    }
}

/// A dimension of this length has work for all threads.
const MANY: usize = 32;

/// Neighbours that stay together: two cache lines of floats.
const RUN: usize = 32;

/// Calls `part` with boxes that together are the index space, on several threads if that is worth it at `ns` nanoseconds an
/// element. Only dimensions are cut whose strides `allows` accepts; within a box the order is that of the elements.
///
/// # Errors
/// One of those that boxes return.
#[inline(always)]
pub(super) fn parts<const K: usize, E: Send>(
    sizes: &[usize],
    strides: [&[isize]; K],
    ns: f64,
    allows: impl Fn([isize; K]) -> bool,
    part: impl Fn(Part<'_, K>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    if threads::is_cut(numel(sizes) as f64 * ns) {
        return several(sizes, strides, ns, &allows, &part);
    }
    part(Part::whole(sizes, strides))
}

/// [`parts`] for what takes some time. If it cannot be cut for several threads, it is done in turn.
#[cold]
fn several<const K: usize, E: Send>(
    sizes: &[usize],
    strides: [&[isize]; K],
    ns: f64,
    allows: &dyn Fn([isize; K]) -> bool,
    part: &(dyn Fn(Part<'_, K>) -> Result<(), E> + Sync),
) -> Result<(), E> {
    let cut = if threads::idle() > 0 { Cut::best(sizes, strides, allows) } else { None };
    match cut.filter(|cut| cut.len() > cut.grain(ns)) {
        Some(cut) => cut.each(ns, part),
        None => Part::whole(sizes, strides).in_turn(ns, part),
    }
}

/// [`parts`] for what cannot fail and writes the first operand, each element once.
#[inline]
pub(super) fn rows<const K: usize>(
    sizes: &[usize],
    strides: [&[isize]; K],
    ns: f64,
    row: impl Fn([isize; K], usize, [isize; K]) + Sync,
) {
    let done = parts::<K, ()>(
        sizes,
        strides,
        ns,
        |steps| steps[0] != 0,
        |part| {
            part.walk(|at, n, steps| {
                row(at, n, steps);
                Ok(())
            })
        },
    );
    debug_assert!(done.is_ok());
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

    #[test]
    fn boxes_of_a_cut_are_the_whole_space() {
        let spaces: [(&[usize], [&[isize]; 2]); 4] = [
            (&[7, 3, 5], [&[15, 5, 1], &[1, 7, 21]]),
            (&[40, 33], [&[33, 1], &[0, 1]]),
            (&[1, 9], [&[5, 2], &[0, -3]]),
            (&[64], [&[1], &[0]]),
        ];
        for (sizes, strides) in spaces {
            let (whole, _) = offsets(sizes, strides);
            let boxes = |cut: &Cut<2>| {
                let mut all = Vec::new();
                for k in 0..3 {
                    let range = k * cut.len() / 3..(k + 1) * cut.len() / 3;
                    let row = |at: [isize; 2], n: usize, steps: [isize; 2]| {
                        all.extend((0..n as isize).map(|j| [at[0] + j * steps[0], at[1] + j * steps[1]]));
                        Ok::<(), ()>(())
                    };
                    cut.part(range, |part| part.walk(row)).unwrap();
                }
                all
            };
            assert_eq!(boxes(&Part::whole(sizes, strides).cut().unwrap()), whole);
            // Where the second operand does not move, everything meets: such a dimension is not cut.
            if let Some(cut) = Cut::best(sizes, strides, &|steps| steps[1] != 0) {
                assert!(cut.strides[1][cut.dim] != 0);
                let (mut all, mut whole) = (boxes(&cut), whole);
                all.sort();
                whole.sort();
                assert_eq!(all, whole);
            } else {
                assert_eq!(sizes, [64]);
            }
        }
        assert!(Part::<1>::whole(&[1, 1], [&[1, 1]]).cut().is_none());
    }
}
