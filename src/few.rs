//! Lists that nearly always hold one item, or at most two, as parts of things of which there are very many: they are no larger
//! than those items if these have a bit pattern to spare, and need no allocation of their own.

use std::ops::{Deref, DerefMut};

/// A list that mostly holds one item.
#[derive(Clone)]
pub enum MostlyOne<T> {
    /// No item.
    None,
    /// One.
    One(T),
    /// More.
    #[allow(clippy::box_collection, reason = "one word, so that the list is as small as an item of two")]
    More(Box<Vec<T>>),
}

/// A list that mostly holds one or two items.
#[derive(Clone)]
pub enum MostlyTwo<T> {
    /// No item.
    None,
    /// One.
    One(T),
    /// Two.
    Two([T; 2]),
    /// More.
    #[allow(clippy::box_collection, reason = "as above")]
    More(Box<Vec<T>>),
}

impl<T> FromIterator<T> for MostlyOne<T> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter();
        let Some(a) = items.next() else { return MostlyOne::None };
        match items.next() {
            None => MostlyOne::One(a),
            Some(b) => MostlyOne::More(Box::new([a, b].into_iter().chain(items).collect())),
        }
    }
}

impl<T> FromIterator<T> for MostlyTwo<T> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter();
        match (items.next(), items.next(), items.next()) {
            (None, ..) => MostlyTwo::None,
            (Some(a), None, _) => MostlyTwo::One(a),
            (Some(a), Some(b), None) => MostlyTwo::Two([a, b]),
            (Some(a), Some(b), Some(c)) => MostlyTwo::More(Box::new([a, b, c].into_iter().chain(items).collect())),
        }
    }
}

impl<T> MostlyOne<T> {
    /// What `f` makes of each of those.
    #[inline]
    pub fn of<S>(items: &mut [S], mut f: impl FnMut(&mut S) -> T) -> Self {
        match items {
            [] => MostlyOne::None,
            [item] => MostlyOne::One(f(item)),
            items => MostlyOne::More(Box::new(items.iter_mut().map(f).collect())),
        }
    }
}

impl<T> MostlyTwo<T> {
    /// Appends an item.
    #[inline]
    pub fn push(&mut self, item: T) {
        *self = match std::mem::replace(self, MostlyTwo::None) {
            MostlyTwo::None => MostlyTwo::One(item),
            MostlyTwo::One(first) => MostlyTwo::Two([first, item]),
            MostlyTwo::Two([first, second]) => MostlyTwo::More(Box::new(vec![first, second, item])),
            MostlyTwo::More(mut items) => {
                items.push(item);
                MostlyTwo::More(items)
            }
        };
    }
}

impl<T> Deref for MostlyOne<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            MostlyOne::None => &[],
            MostlyOne::One(item) => std::slice::from_ref(item),
            MostlyOne::More(items) => items,
        }
    }
}

impl<T> DerefMut for MostlyOne<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            MostlyOne::None => &mut [],
            MostlyOne::One(item) => std::slice::from_mut(item),
            MostlyOne::More(items) => items,
        }
    }
}

impl<T> Deref for MostlyTwo<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            MostlyTwo::None => &[],
            MostlyTwo::One(item) => std::slice::from_ref(item),
            MostlyTwo::Two(items) => items,
            MostlyTwo::More(items) => items,
        }
    }
}

impl<T> DerefMut for MostlyTwo<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            MostlyTwo::None => &mut [],
            MostlyTwo::One(item) => std::slice::from_mut(item),
            MostlyTwo::Two(items) => items,
            MostlyTwo::More(items) => items,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_lists_they_were_made_from() {
        for n in 0..6 {
            let items: Vec<i64> = (0..n).collect();
            assert_eq!(items[..], *items.iter().copied().collect::<MostlyOne<i64>>());
            assert_eq!(items[..], *items.iter().copied().collect::<MostlyTwo<i64>>());
            assert_eq!(items[..], *MostlyOne::of(&mut items.clone(), |item| *item));
            let mut pushed = MostlyTwo::None;
            items.iter().for_each(|item| pushed.push(*item));
            assert_eq!(items[..], *pushed);
        }
    }
}
