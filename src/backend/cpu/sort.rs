//! Order: sorting lines of a tensor, picking their first few, grouping equal elements. Elements are compared by integer
//! keys that grow with the value, all NaNs above everything and both zeros alike, packed with their position into one
//! integer: comparisons have no branches, and every order is stable.

use super::element::{BoolByte, Element, with_element};
use super::elementwise::element_ptr;
use super::shared::Shared;
use super::walk::{parts, walk};
use crate::backend::Operand;
use crate::storage::Guards;
use crate::threads;
use half::{bf16, f16};

/// A storage type with an order-preserving key.
pub(super) trait Ordered: Element {
    /// Whether 32 bits hold the key.
    const NARROW: bool;
    /// The key of NaN, if there is one.
    const NAN: Option<u64>;
    fn key(self) -> u64;
}

macro_rules! ordered_int {
    ($($t:ty, $narrow:literal;)*) => { $(
        impl Ordered for $t {
            const NARROW: bool = $narrow;
            const NAN: Option<u64> = None;
            #[inline(always)]
            fn key(self) -> u64 {
                if $narrow { (self as i64 - i32::MIN as i64) as u64 } else { (self as i64 as u64) ^ (1 << 63) }
            }
        }
    )* };
}
ordered_int! { u8, true; i8, true; i16, true; i32, true; i64, false; }

impl Ordered for BoolByte {
    const NARROW: bool = true;
    const NAN: Option<u64> = None;
    #[inline(always)]
    fn key(self) -> u64 {
        self.load() as u64
    }
}

impl Ordered for f32 {
    const NARROW: bool = true;
    const NAN: Option<u64> = Some(u32::MAX as u64);
    #[inline(always)]
    fn key(self) -> u64 {
        // `+ 0.0` makes the zeros one.
        let bits = (self + 0.0).to_bits();
        let key = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        (if self.is_nan() { u32::MAX } else { key }) as u64
    }
}

impl Ordered for f64 {
    const NARROW: bool = false;
    const NAN: Option<u64> = Some(u64::MAX);
    #[inline(always)]
    fn key(self) -> u64 {
        let bits = (self + 0.0).to_bits();
        let key = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        if self.is_nan() { u64::MAX } else { key }
    }
}

macro_rules! ordered_half {
    ($($t:ty)*) => { $(
        impl Ordered for $t {
            const NARROW: bool = true;
            const NAN: Option<u64> = <f32 as Ordered>::NAN;
            #[inline(always)]
            fn key(self) -> u64 {
                Ordered::key(self.to_f32())
            }
        }
    )* };
}
ordered_half!(f16 bf16);

/// A key and a position in one integer; smaller keys first, then smaller positions.
trait Packed: Copy + Ord {
    const KEY_BYTES: u32;
    fn pack(key: u64, position: usize) -> Self;
    fn key(self) -> u64;
    fn position(self) -> usize;
}

impl Packed for u64 {
    const KEY_BYTES: u32 = 4;
    #[inline(always)]
    fn pack(key: u64, position: usize) -> u64 {
        key << 32 | position as u64
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self >> 32
    }
    #[inline(always)]
    fn position(self) -> usize {
        self as u32 as usize
    }
}

impl Packed for u128 {
    const KEY_BYTES: u32 = 8;
    #[inline(always)]
    fn pack(key: u64, position: usize) -> u128 {
        (key as u128) << 64 | position as u128
    }
    #[inline(always)]
    fn key(self) -> u64 {
        (self >> 64) as u64
    }
    #[inline(always)]
    fn position(self) -> usize {
        self as u64 as usize
    }
}

/// Lines from this length on are sorted by digits instead of comparisons.
const DIGITS_FROM: usize = 1 << 10;

/// Sorts packed elements. They come in order of position, so that sorting by key alone, stably, is enough.
#[allow(clippy::ptr_arg, reason = "the two change places as whole vectors")]
fn sort_packed<P: Packed>(items: &mut Vec<P>, room: &mut Vec<P>) {
    if items.len() < DIGITS_FROM {
        items.sort_unstable();
        return;
    }
    let mut counts = vec![[0usize; 256]; P::KEY_BYTES as usize];
    for range in threads::turns(items.len(), STEP) {
        for item in &items[range] {
            let key = item.key();
            counts.iter_mut().enumerate().for_each(|(d, c)| c[(key >> (8 * d)) as usize & 255] += 1);
        }
    }
    for (d, count) in counts.iter_mut().enumerate() {
        if count.contains(&items.len()) {
            continue;
        }
        let mut start = 0;
        for c in count.iter_mut() {
            start += std::mem::replace(c, start);
        }
        room.clear();
        room.extend_from_slice(items);
        for range in threads::turns(room.len(), STEP) {
            for &item in &room[range] {
                let at = &mut count[(item.key() >> (8 * d)) as usize & 255];
                items[*at] = item;
                *at += 1;
            }
        }
    }
}

/// The `k` smallest items in order. Few are ever kept: most lose against a bound that only falls.
fn smallest<P: Packed>(items: &[P], k: usize, kept: &mut Vec<P>) {
    kept.clear();
    if k == 0 {
        return;
    }
    let room = (2 * k).max(64);
    let mut bound = None;
    for range in threads::turns(items.len(), STEP) {
        for &item in &items[range] {
            if bound.is_none_or(|b| item < b) {
                kept.push(item);
                if kept.len() >= room {
                    kept.select_nth_unstable(k - 1);
                    kept.truncate(k);
                    bound = Some(kept[k - 1]);
                }
            }
        }
    }
    kept.sort_unstable();
    kept.truncate(k);
}

/// About how many nanoseconds an element takes in a step of a sort.
const STEP: f64 = 1.0;
/// About how many nanoseconds an element of a line takes that is sorted, and of one in which something is looked for.
const SORTED: f64 = 10.0;
const SEARCHED: f64 = 4.0;

/// What [`order`] picks of each line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pick {
    /// The first `k`, in order.
    First(usize),
    /// Only the one that is `k`-th (from 0) in order.
    Nth(usize),
}

/// For each line of `from` along `dim`, in ascending or descending order: writes the elements that `pick` says to `values`
/// and their positions to `indices` (int64). The results have the sizes of `from` but for `dim`. Lines are shared among
/// threads; one line is sorted by one.
pub(crate) fn order(
    from: &Operand<'_>,
    dim: usize,
    descending: bool,
    pick: Pick,
    values: &Operand<'_>,
    indices: &Operand<'_>,
) {
    let _guards = Guards::take([from.storage], [values.storage, indices.storage]);
    with_element!(from.dtype, E => {
        let base = if from.layout.sizes[dim] <= u32::MAX as usize { narrow_base::<E>(from) } else { None };
        match base {
            Some(base) => order_lines::<E, u64>(from, dim, base, descending, pick, values, indices),
            None => order_lines::<E, u128>(from, dim, 0, descending, pick, values, indices),
        }
    });
}

/// What to take from all keys so that they fit 32 bits: nothing from narrow types, the smallest from integers that lie
/// close together; `None` if they do not fit.
fn narrow_base<E: Ordered>(of: &Operand<'_>) -> Option<u64> {
    if E::NARROW {
        return Some(0);
    }
    if E::NAN.is_some() {
        return None;
    }
    let src = element_ptr(of).cast::<E>();
    let (mut low, mut high) = (u64::MAX, 0);
    let done = walk::<1, ()>(&of.layout.sizes, [&of.layout.strides], |[s], n, [ds]| {
        for j in 0..n as isize {
            // SAFETY: positions inside the layout, guarded by the caller.
            let key = unsafe { src.offset(s + j * ds).read() }.key();
            (low, high) = (low.min(key), high.max(key));
        }
        Ok(())
    });
    (done.is_ok() && high.wrapping_sub(low) <= u32::MAX as u64).then_some(low)
}

#[allow(clippy::too_many_arguments, reason = "what a sort is told")]
fn order_lines<E: Ordered, P: Packed>(
    from: &Operand<'_>,
    dim: usize,
    base: u64,
    descending: bool,
    pick: Pick,
    values: &Operand<'_>,
    indices: &Operand<'_>,
) {
    let n = from.layout.sizes[dim];
    let without = |l: &crate::shape::Layout| {
        let mut strides = l.strides.clone();
        let step = strides.remove(dim);
        (strides, step)
    };
    let mut sizes = from.layout.sizes.clone();
    sizes.remove(dim);
    let ((src_strides, src_step), (val_strides, val_step), (idx_strides, idx_step)) =
        (without(from.layout), without(values.layout), without(indices.layout));
    let (src, val) = (Shared(element_ptr(from).cast::<E>()), Shared(element_ptr(values).cast::<E>()));
    let idx = Shared(element_ptr(indices).cast::<i64>());
    // Descending is ascending by the complement of the key, within the key's bits.
    let mask = if P::KEY_BYTES == 4 { u32::MAX as u64 } else { u64::MAX };
    let flip = if descending { mask } else { 0 };
    let ns = if pick == Pick::First(n) { SORTED } else { SEARCHED } * n as f64;
    let done = parts::<3, ()>(
        &sizes,
        [&src_strides, &val_strides, &idx_strides],
        ns,
        |_| true,
        |part| {
            let (src, val, idx) = (src.get(), val.get(), idx.get());
            let (mut items, mut room): (Vec<P>, Vec<P>) = (Vec::with_capacity(n), Vec::new());
            part.walk(|at, lines, steps| {
                for line in 0..lines as isize {
                    let [s, v, x] = [0, 1, 2].map(|k| at[k] + line * steps[k]);
                    items.clear();
                    // SAFETY: positions of this line, inside the layout, guarded.
                    let key = |j: usize| unsafe { src.offset(s + j as isize * src_step).read() }.key();
                    // A key that somebody else's write has moved out of range meanwhile is cut off.
                    for range in threads::turns(n, STEP) {
                        items.extend(range.map(|j| P::pack((key(j).wrapping_sub(base) & mask) ^ flip, j)));
                    }
                    let picked: &[P] = match pick {
                        Pick::First(k) if k == n => {
                            sort_packed(&mut items, &mut room);
                            &items
                        }
                        Pick::First(k) => {
                            smallest(&items, k, &mut room);
                            &room
                        }
                        Pick::Nth(k) => {
                            items.select_nth_unstable(k);
                            &items[k..=k]
                        }
                    };
                    for r in threads::turns(picked.len(), STEP).flatten() {
                        let position = picked[r].position();
                        // SAFETY: places of this line in the results, and a position in it; guarded, and lines are apart.
                        unsafe {
                            val.offset(v + r as isize * val_step)
                                .write(src.offset(s + position as isize * src_step).read());
                            idx.offset(x + r as isize * idx_step).write(position as i64);
                        }
                    }
                }
                Ok(())
            })
        },
    );
    debug_assert!(done.is_ok());
}

/// Equal elements, or equal rows.
pub(crate) struct Groups {
    /// The position of the first member of each group.
    pub first: Vec<i64>,
    /// The group of each element.
    pub group: Vec<i64>,
    /// The number of members.
    pub count: Vec<i64>,
}

/// Groups the `n` rows of `width` elements that `of`, row-major, consists of: neighbours only, or wherever they stand, the
/// groups in ascending order. NaN equals nothing. `members` says whether [`Groups::group`] is wanted.
pub(crate) fn groups(of: &Operand<'_>, n: usize, width: usize, neighbours_only: bool, members: bool) -> Groups {
    let _guards = Guards::take([of.storage], []);
    with_element!(of.dtype, E => {
        let src = element_ptr(of).cast::<E>();
        // SAFETY: `n * width` elements, guarded.
        let key = |i: usize| unsafe { src.add(i).read() }.key();
        let nan = <E as Ordered>::NAN;
        let row = |i: usize| (0..width).map(move |k| key(i * width + k));
        let equal = |a: usize, b: usize| row(a).zip(row(b)).all(|(x, y)| x == y && Some(x) != nan);
        match (neighbours_only, width) {
            (false, 1) => match narrow_base::<E>(of) {
                Some(base) if n <= u32::MAX as usize => {
                    group_keys(sorted::<u64>(n, |i| key(i).wrapping_sub(base) & u32::MAX as u64), nan, members)
                }
                _ => group_keys(sorted::<u128>(n, key), nan, members),
            },
            (false, _) => {
                let mut order: Vec<usize> = (0..n).collect();
                sort_in_turns(&mut order, |&a, &b| row(a).cmp(row(b)).then(a.cmp(&b)));
                group_by(n, order.into_iter(), equal, members)
            }
            (true, _) => group_by(n, 0..n, equal, members),
        }
    })
}

/// Sorts items of which none equals another, or equal ones are alike, and asks meanwhile whether to stop.
fn sort_in_turns<T>(items: &mut [T], compare: impl Fn(&T, &T) -> std::cmp::Ordering) {
    let mut compared = 0u32;
    items.sort_unstable_by(|a, b| {
        compared = compared.wrapping_add(1);
        if compared.is_multiple_of(1 << 16) {
            threads::stop_if_wanted();
        }
        compare(a, b)
    });
}

fn sorted<P: Packed>(n: usize, key: impl Fn(usize) -> u64) -> Vec<P> {
    let mut items: Vec<P> = Vec::with_capacity(n);
    for range in threads::turns(n, STEP) {
        items.extend(range.map(|i| P::pack(key(i), i)));
    }
    sort_packed(&mut items, &mut Vec::new());
    items
}

/// Groups of sorted packed elements.
fn group_keys<P: Packed>(items: Vec<P>, nan: Option<u64>, members: bool) -> Groups {
    let n = items.len();
    // Positions among the sorted are what is compared, positions in the tensor what is reported.
    let equal = |a: usize, b: usize| items[a].key() == items[b].key() && Some(items[a].key()) != nan;
    let mut g = group_by(n, 0..n, equal, false);
    if members {
        g.group = vec![0; n];
        let mut at = 0;
        for (group, &count) in g.count.iter().enumerate() {
            items[at..at + count as usize].iter().for_each(|item| g.group[item.position()] = group as i64);
            at += count as usize;
        }
    }
    g.first.iter_mut().for_each(|f| *f = items[*f as usize].position() as i64);
    g
}

/// Groups of what stands side by side in an order.
fn group_by(
    n: usize,
    order: impl Iterator<Item = usize>,
    equal: impl Fn(usize, usize) -> bool,
    members: bool,
) -> Groups {
    let mut g = Groups { first: Vec::new(), group: vec![0; if members { n } else { 0 }], count: Vec::new() };
    let mut previous = None;
    for (at, i) in order.enumerate() {
        if at % (1 << 16) == 0 {
            threads::stop_if_wanted();
        }
        if previous.is_none_or(|p| !equal(p, i)) {
            g.first.push(i as i64);
            g.count.push(0);
        }
        previous = Some(i);
        let group = g.first.len() - 1;
        if members {
            g.group[i] = group as i64;
        }
        g.count[group] += 1;
    }
    g
}

/// The keys of a row-major operand's elements, ascending, without NaNs.
pub(super) fn sorted_keys(of: &Operand<'_>) -> Vec<u64> {
    let n = of.layout.numel();
    with_element!(of.dtype, E => {
        let src = element_ptr(of).cast::<E>();
        // SAFETY: `n` elements, guarded by the caller.
        let mut keys: Vec<u64> = (0..n).map(|i| unsafe { src.add(i).read() }.key()).filter(|&k| Some(k) != <E as Ordered>::NAN).collect();
        sort_in_turns(&mut keys, u64::cmp);
        keys
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn keys_grow_with_values() {
        let values = [f32::NEG_INFINITY, -1e30, -1.0, -1e-45, 0.0, 1e-45, 1.0, 1e30, f32::INFINITY];
        assert!(values.windows(2).all(|w| w[0].key() < w[1].key() && (w[0] as f64).key() < (w[1] as f64).key()));
        assert_eq!((0f32).key(), (-0f32).key());
        assert_eq!((0f64).key(), (-0f64).key());
        for nan in [f32::NAN, -f32::NAN] {
            assert!(nan.key() > f32::INFINITY.key() && (nan as f64).key() > f64::INFINITY.key());
            assert_eq!(Some(nan.key()), <f32 as Ordered>::NAN);
            assert_eq!(Some((nan as f64).key()), <f64 as Ordered>::NAN);
        }
        assert!(i64::MIN.key() < (-1i64).key() && (-1i64).key() < 0i64.key() && 0i64.key() < i64::MAX.key());
        assert!((-128i8).key() < 127i8.key() && i32::MIN.key() == 0 && i32::MAX.key() == u32::MAX as u64);
        let narrow = |d: DType| with_element!(d, E => <E as Ordered>::NARROW);
        assert!(DType::ALL.into_iter().all(|d| narrow(d) == (d.size() < 8)));
    }

    #[test]
    fn digits_sort_as_comparisons_do() {
        let mut state = 9u64;
        let mut draw = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 20
        };
        for n in [DIGITS_FROM, 5000] {
            let mut items: Vec<u64> = (0..n).map(|i| Packed::pack(draw() & 0xFFFF_00FF, i)).collect();
            let mut want = items.clone();
            want.sort();
            sort_packed(&mut items, &mut Vec::new());
            assert_eq!(items, want);
            let mut items: Vec<u128> = (0..n).map(|i| Packed::pack(draw() << 24 | draw() & 3, i)).collect();
            let mut want = items.clone();
            want.sort();
            sort_packed(&mut items, &mut Vec::new());
            assert_eq!(items, want);
        }
    }
}
