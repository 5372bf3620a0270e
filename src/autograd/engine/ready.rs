//! The nodes that can run, in the order in which a backward runs them.

use std::collections::BinaryHeap;

/// Nodes for which nothing more is to come, by sequence number, the newest first.
#[derive(Default)]
pub(super) struct Ready {
    /// The newest, kept out of the heap: in a chain it is the only one.
    newest: Option<(u64, u32)>,
    others: BinaryHeap<(u64, u32)>,
    /// Those that came lately, if somebody wants to know.
    fresh: Vec<u32>,
    remembers: bool,
}

impl Ready {
    #[inline]
    pub(super) fn push(&mut self, sequence: u64, number: u32) {
        let item = (sequence, number);
        if self.remembers {
            self.fresh.push(number);
        }
        match self.newest {
            None if self.others.peek().is_none_or(|other| *other < item) => self.newest = Some(item),
            Some(newest) if newest < item => {
                self.newest = Some(item);
                self.others.push(newest);
            }
            _ => self.others.push(item),
        }
    }

    /// Whether more than one is ready.
    #[inline]
    pub(super) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// From now on remembers who comes; all that are here are new.
    pub(super) fn remember(&mut self) {
        let all = self.newest.iter().chain(&self.others);
        self.fresh = all.map(|(_, number)| *number).collect();
        self.remembers = true;
    }

    /// Those that came since this was asked last.
    pub(super) fn fresh(&mut self) -> impl Iterator<Item = u32> {
        self.fresh.drain(..)
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        self.newest.take().or_else(|| self.others.pop()).map(|(_, number)| number)
    }
}
