//! The nodes that can run, in the order in which a backward runs them.

use std::collections::BinaryHeap;

/// Nodes for which nothing more is to come, by sequence number, the newest first.
#[derive(Default)]
pub(super) struct Ready {
    /// The newest, kept out of the heap: in a chain it is the only one.
    newest: Option<(u64, u32)>,
    others: BinaryHeap<(u64, u32)>,
    /// Those of which nobody has asked yet, if somebody wants to know.
    fresh: BinaryHeap<(u64, u32)>,
    remembers: bool,
}

impl Ready {
    /// One that may be asked about.
    #[inline]
    pub(super) fn push_fresh(&mut self, sequence: u64, number: u32) {
        if self.remembers {
            self.fresh.push((sequence, number));
        }
        self.push(sequence, number);
    }

    #[inline]
    pub(super) fn push(&mut self, sequence: u64, number: u32) {
        let item = (sequence, number);
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
        self.fresh = self.newest.iter().chain(&self.others).copied().collect();
        self.remembers = true;
    }

    /// The first in the order that this was not asked about yet and whose turn comes after that of a node.
    #[inline]
    pub(super) fn fresh_after(&mut self, sequence: u64) -> Option<u32> {
        while let Some((own, number)) = self.fresh.pop() {
            if own < sequence {
                return Some(number);
            }
        }
        None
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        self.newest.take().or_else(|| self.others.pop()).map(|(_, number)| number)
    }
}
