//! Sizes, strides and layouts, and the pure functions on them: broadcasting, dimension wrapping, view geometry.
//! No memory and no tensor: a [`Layout`] describes where elements lie, in elements from the start of some storage.

use crate::error::{Error, Result, bail};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// How many dimensions are kept without a heap allocation.
const INLINE: usize = 4;

/// A short list of numbers, one per dimension, inline up to rank 4. A plain struct on purpose: moving an enum with so small
/// a tag makes the compiler copy from odd addresses, which stalls on values just written, and these lists move all the time.
#[derive(Clone)]
pub struct Dims<T: Copy + Default = usize> {
    /// How many numbers `inline` holds, if there is no heap.
    count: usize,
    inline: [T; INLINE],
    #[allow(clippy::box_collection, reason = "one word where there is none, which is nearly always")]
    heap: Option<Box<Vec<T>>>,
}

/// Strides in elements, one per dimension.
pub type Strides = Dims<isize>;

impl<T: Copy + Default> Dims<T> {
    /// No dimensions.
    #[inline]
    pub fn new() -> Self {
        Dims { count: 0, inline: [T::default(); INLINE], heap: None }
    }

    /// A copy of a slice.
    #[inline]
    pub fn from_slice(s: &[T]) -> Self {
        let mut dims = Dims::new();
        if s.len() <= INLINE {
            dims.count = s.len();
            // A loop: for so few numbers a call of memcpy costs more than it does.
            for (to, from) in dims.inline.iter_mut().zip(s) {
                *to = *from;
            }
        } else {
            dims.heap = Some(Box::new(s.to_vec()));
        }
        dims
    }

    /// `n` times the same value.
    #[inline]
    pub fn filled(value: T, n: usize) -> Self {
        if n <= INLINE {
            Dims { count: n, inline: [value; INLINE], heap: None }
        } else {
            Dims { heap: Some(Box::new(vec![value; n])), ..Dims::new() }
        }
    }

    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: T) {
        match &mut self.heap {
            None if self.count < INLINE => {
                self.inline[self.count] = value;
                self.count += 1;
            }
            None => {
                let mut all = self.inline.to_vec();
                all.push(value);
                self.heap = Some(Box::new(all));
            }
            Some(all) => all.push(value),
        }
    }

    /// Inserts a value before position `at`.
    pub fn insert(&mut self, at: usize, value: T) {
        self.push(value);
        self[at..].rotate_right(1);
    }

    /// Removes and returns the value at position `at`.
    #[inline]
    pub fn remove(&mut self, at: usize) -> T {
        let value = self[at];
        match &mut self.heap {
            None => {
                self.inline.copy_within(at + 1..self.count, at);
                self.count -= 1;
            }
            Some(all) => {
                all.remove(at);
            }
        }
        value
    }
}

impl<T: Copy + Default> Default for Dims<T> {
    fn default() -> Self {
        Dims::new()
    }
}

impl<T: Copy + Default> Deref for Dims<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match &self.heap {
            None => &self.inline[..self.count],
            Some(all) => all,
        }
    }
}

impl<T: Copy + Default> DerefMut for Dims<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.heap {
            None => &mut self.inline[..self.count],
            Some(all) => all,
        }
    }
}

impl<T: Copy + Default> FromIterator<T> for Dims<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        let mut d = Dims::new();
        for x in iter {
            d.push(x);
        }
        d
    }
}

impl<T: Copy + Default> From<&[T]> for Dims<T> {
    fn from(s: &[T]) -> Self {
        Dims::from_slice(s)
    }
}

impl<'a, T: Copy + Default> IntoIterator for &'a Dims<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Copy + Default + PartialEq> PartialEq for Dims<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        is_same(self, other)
    }
}

/// Whether two lists are the same. A loop: for so few numbers a call of memcmp costs more than it does.
#[inline]
fn is_same<T: PartialEq>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

impl<T: Copy + Default + Eq> Eq for Dims<T> {}

impl<T: Copy + Default + fmt::Debug> fmt::Debug for Dims<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self[..], f)
    }
}

/// Sizes as PyTorch's messages print them: `[2, 3]`.
pub struct Shown<'a>(pub &'a [usize]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The number of elements, or an error if it passes what memory can address.
pub fn checked_numel(op: &'static str, sizes: &[usize]) -> Result<usize> {
    if sizes.contains(&0) {
        return Ok(0);
    }
    sizes.iter().try_fold(1usize, |n, &s| n.checked_mul(s)).filter(|&n| n <= isize::MAX as usize).ok_or_else(|| {
        Error::runtime(op, format!("numel: integer multiplication overflow: sizes {sizes:?} are too large"))
    })
}

/// The number of elements of sizes that are known to be addressable.
#[inline]
pub fn numel(sizes: &[usize]) -> usize {
    sizes.iter().fold(1usize, |n, &s| n.wrapping_mul(s))
}

/// Row-major strides.
#[inline]
pub fn contiguous_strides(sizes: &[usize]) -> Strides {
    let mut strides = Strides::filled(1, sizes.len());
    let mut step = 1isize;
    for (stride, &size) in strides.iter_mut().zip(sizes).rev() {
        *stride = step;
        step = step.wrapping_mul(size.max(1) as isize);
    }
    strides
}

/// The shape to which both broadcast.
#[inline]
pub fn broadcast(op: &'static str, a: &[usize], b: &[usize]) -> Result<Dims> {
    if a == b {
        return Ok(Dims::from_slice(a));
    }
    let rank = a.len().max(b.len());
    let mut out = Dims::filled(1, rank);
    for i in 0..rank {
        let x = if i + a.len() >= rank { a[i + a.len() - rank] } else { 1 };
        let y = if i + b.len() >= rank { b[i + b.len() - rank] } else { 1 };
        out[i] = match (x, y) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => {
                bail!(runtime op, "The size of tensor a ({x}) must match the size of tensor b ({y}) at non-singleton dimension {i}\n{op}: got shapes {a:?} and {b:?}")
            }
        };
    }
    Ok(out)
}

/// Whether `from` can be broadcast to exactly `to`.
pub fn expandable(from: &[usize], to: &[usize]) -> bool {
    from.len() <= to.len() && from.iter().rev().zip(to.iter().rev()).all(|(&f, &t)| f == t || f == 1)
}

/// A dimension number counted from the end if negative, checked. A 0-d tensor accepts -1 and 0.
#[inline]
pub fn wrap_dim(op: &'static str, dim: i64, rank: usize) -> Result<usize> {
    let n = rank.max(1) as i64;
    if dim < -n || dim >= n {
        bail!(index op, "Dimension out of range (expected to be in range of [{}, {}], but got {dim})", -n, n - 1);
    }
    Ok(if dim < 0 { dim + n } else { dim } as usize)
}

/// Several dimension numbers, wrapped; none may come twice. An empty list stands for all dimensions.
pub fn wrap_dims(op: &'static str, dims: &[i64], rank: usize) -> Result<Dims> {
    if dims.is_empty() {
        return Ok((0..rank).collect());
    }
    let mut out = Dims::new();
    for &d in dims {
        let d = wrap_dim(op, d, rank)?;
        if out.contains(&d) {
            bail!(runtime op, "dim {d} appears multiple times in the list of dims");
        }
        out.push(d);
    }
    if rank == 0 {
        // It has none, though one may be named.
        return Ok(Dims::new());
    }
    out.sort_unstable();
    Ok(out)
}

/// Where the elements of a tensor lie: sizes, strides and the first element's position, in elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Elements per dimension.
    pub sizes: Dims,
    /// Distance of neighbours, per dimension.
    pub strides: Strides,
    /// Position of the first element in the storage.
    pub offset: usize,
}

impl Layout {
    /// Row-major, from the start of the storage.
    #[inline]
    pub fn contiguous(sizes: Dims) -> Layout {
        Layout { strides: contiguous_strides(&sizes), sizes, offset: 0 }
    }

    /// Number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        numel(&self.sizes)
    }

    /// Whether elements lie in row-major order without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1isize;
        for (&size, &stride) in self.sizes.iter().zip(self.strides.iter()).rev() {
            if size == 0 {
                return true;
            }
            if size != 1 {
                if stride != step {
                    return false;
                }
                step = step.wrapping_mul(size as isize);
            }
        }
        true
    }

    /// Whether it has these sizes and elements lie in row-major order without gaps.
    #[inline]
    pub fn is_row_major(&self, sizes: &[usize]) -> bool {
        is_same(&self.sizes, sizes) && self.is_contiguous()
    }

    /// Whether elements fill a gapless piece of memory in the order of some permutation of the dimensions.
    pub fn is_dense(&self) -> bool {
        if self.is_contiguous() {
            return true;
        }
        let mut dims: Dims = (0..self.rank()).filter(|&d| self.sizes[d] != 1).collect();
        dims.sort_by_key(|&d| self.strides[d]);
        let mut step = 1isize;
        for &d in &dims {
            if self.strides[d] != step {
                return false;
            }
            step *= self.sizes[d] as isize;
        }
        true
    }

    /// Whether two logical elements may share one place in memory (as in an expanded tensor). May say yes too often for
    /// exotic strides, never no wrongly.
    pub fn overlaps_itself(&self) -> bool {
        if self.numel() < 2 {
            return false;
        }
        let mut dims: Dims = (0..self.rank()).filter(|&d| self.sizes[d] != 1).collect();
        dims.sort_by_key(|&d| self.strides[d].unsigned_abs());
        let mut reach = 0usize;
        for &d in &dims {
            let stride = self.strides[d].unsigned_abs();
            if stride <= reach {
                return true;
            }
            reach += stride * (self.sizes[d] - 1);
        }
        false
    }

    /// First and one-past-last position that elements occupy; `None` if there are no elements.
    pub fn extent(&self) -> Option<(usize, usize)> {
        if self.numel() == 0 {
            return None;
        }
        let (mut low, mut high) = (self.offset as isize, self.offset as isize);
        for (&size, &stride) in self.sizes.iter().zip(self.strides.iter()) {
            let reach = stride * (size as isize - 1);
            if reach < 0 { low += reach } else { high += reach }
        }
        Some((low as usize, high as usize + 1))
    }

    /// Sizes broadcast to `sizes`; expanded dimensions get stride 0. The caller has checked that this is possible.
    #[inline]
    pub fn broadcast_strides(&self, sizes: &[usize]) -> Strides {
        let pad = sizes.len() - self.rank();
        let mut strides = Strides::filled(0, sizes.len());
        for d in 0..self.rank() {
            strides[d + pad] = if self.sizes[d] == 1 { 0 } else { self.strides[d] };
        }
        strides
    }

    /// The layout of `permute`: dimension `d` of the result is dimension `order[d]` of this one.
    pub fn permuted(&self, order: &[usize]) -> Layout {
        Layout {
            sizes: order.iter().map(|&d| self.sizes[d]).collect(),
            strides: order.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
        }
    }

    /// The strides with which the same elements can be seen in `sizes` (of equal element count), if any exist.
    pub fn view_strides(&self, sizes: &[usize]) -> Option<Strides> {
        if self.numel() == 0 || self.is_contiguous() {
            return Some(contiguous_strides(sizes));
        }
        let mut strides = Strides::filled(1, sizes.len());
        let mut view = sizes.len();
        // Walk runs of old dimensions that are contiguous among themselves, and split each into new dimensions.
        let (mut chunk_numel, mut chunk_base) = (1usize, *self.strides.last().unwrap_or(&1));
        for d in (0..self.rank()).rev() {
            chunk_numel *= self.sizes[d];
            let ends = d == 0 || (self.sizes[d - 1] != 1 && self.strides[d - 1] != chunk_numel as isize * chunk_base);
            if !ends {
                continue;
            }
            let mut taken = 1usize;
            while view > 0 && (taken < chunk_numel || sizes[view - 1] == 1) {
                strides[view - 1] = taken as isize * chunk_base;
                taken *= sizes[view - 1];
                view -= 1;
            }
            if taken != chunk_numel {
                return None;
            }
            if d > 0 {
                chunk_base = self.strides[d - 1];
                chunk_numel = 1;
            }
        }
        (view == 0).then_some(strides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sizes: &[usize], strides: &[isize]) -> Layout {
        Layout { sizes: sizes.into(), strides: strides.into(), offset: 0 }
    }

    #[test]
    fn broadcasting() {
        assert_eq!(&broadcast("add", &[3, 1], &[2]).unwrap()[..], &[3, 2]);
        assert_eq!(&broadcast("add", &[], &[0, 2]).unwrap()[..], &[0, 2]);
        assert!(broadcast("add", &[3], &[2]).unwrap_err().to_string().contains("must match the size of tensor b (2)"));
    }

    #[test]
    fn view_strides_follow_pytorch() {
        let t = layout(&[4, 6], &[6, 1]);
        assert_eq!(&t.view_strides(&[24]).unwrap()[..], &[1]);
        let t = layout(&[6, 4], &[1, 6]); // a transpose
        assert!(t.view_strides(&[24]).is_none());
        assert_eq!(&t.view_strides(&[2, 3, 4]).unwrap()[..], &[3, 1, 6]);
        assert_eq!(&t.view_strides(&[6, 1, 2, 2]).unwrap()[..], &[1, 24, 12, 6]);
        let expanded = layout(&[3, 2], &[0, 0]);
        assert_eq!(&expanded.view_strides(&[6]).unwrap()[..], &[0]);
    }

    #[test]
    fn overlap_and_density() {
        assert!(layout(&[4, 5], &[0, 0]).overlaps_itself());
        assert!(!layout(&[2, 3], &[3, 1]).overlaps_itself());
        assert!(!layout(&[2, 3], &[1, 2]).overlaps_itself());
        assert!(layout(&[2, 3], &[1, 1]).overlaps_itself());
        assert!(layout(&[3, 2], &[1, 3]).is_dense());
        assert!(!layout(&[3, 2], &[1, 4]).is_dense());
    }

    #[test]
    fn ranks_past_the_inline_limit() {
        let d: Dims = (0..9).collect();
        assert_eq!(d.len(), 9);
        let mut d2 = d.clone();
        d2.insert(0, 7);
        assert_eq!(d2[..3], [7, 0, 1]);
        assert_eq!(d2.remove(9), 8);
    }
}
