//! The guard of one storage in one atomic word: readers are counted, a writer is alone. A child that is forked off finds words that
//! threads had taken which it does not have; so a word says in which process it was taken, and counts for nothing in another.

use crate::sync::{AtomicU32, Ordering, forks};

const WRITER: u32 = 1 << 31;
/// Readers are counted below it; from it on stands how many forks lie behind the process, up to the writer's bit.
const FORK: u32 = 1 << 24;

/// What the words of this process hold beside their holders.
#[inline]
fn mark() -> u32 {
    forks().wrapping_mul(FORK) & !WRITER
}

/// Nobody's, some readers', or a writer's.
pub(super) struct Word(AtomicU32);

impl Word {
    #[inline]
    pub(super) fn new() -> Word {
        Word(AtomicU32::new(0))
    }

    /// Takes it, to write or to read, unless somebody has it who must be alone or must not be disturbed.
    #[inline]
    pub(super) fn try_take(&self, write: bool) -> bool {
        let (word, mark) = (self.0.load(Ordering::Relaxed), mark());
        // The holders, of whom there are none if they were another process's.
        let held = if (word ^ mark) & !WRITER < FORK { word - mark } else { 0 };
        let next = if write { WRITER } else { held + 1 };
        let free = if write { held == 0 } else { held < FORK - 1 };
        free && self.0.compare_exchange(word, mark | next, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Lets go of it. What the holder did is seen by whoever takes it next and must not meet it.
    #[inline]
    pub(super) fn let_go(&self, write: bool) {
        self.0.fetch_sub(if write { WRITER } else { 1 }, Ordering::Release);
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use crate::sync::model::{Claimed, check, spawn};
    use std::sync::Arc;

    /// A number under a word.
    struct Guarded(Word, Claimed);

    impl Guarded {
        fn new() -> Arc<Guarded> {
            Arc::new(Guarded(Word::new(), Claimed::default()))
        }

        /// Adds 1, if the word can be had at once.
        fn write(&self) -> usize {
            let taken = self.0.try_take(true);
            if taken {
                self.1.add(1);
                self.0.let_go(true);
            }
            taken as usize
        }

        fn read(&self) {
            if self.0.try_take(false) {
                self.1.get();
                self.0.let_go(false);
            }
        }
    }

    #[test]
    fn a_writer_is_alone() {
        check(|| {
            let guarded = Guarded::new();
            let others: Vec<_> = (0..2)
                .map(|k| {
                    let guarded = guarded.clone();
                    spawn(move || {
                        guarded.read();
                        if k == 0 { guarded.write() } else { 0 }
                    })
                })
                .collect();
            let mine = guarded.write();
            guarded.read();
            let all = others.into_iter().fold(mine, |sum, other| sum + other.join().unwrap());
            // Everybody has let go of it, so nobody is refused.
            assert!(guarded.0.try_take(true));
            assert_eq!(guarded.1.get(), all);
        });
    }

    #[test]
    fn readers_share() {
        check(|| {
            let guarded = Guarded::new();
            assert!(guarded.0.try_take(false));
            let other = guarded.clone();
            let other = spawn(move || {
                other.read();
                assert_eq!(other.write(), 0);
            });
            guarded.read();
            other.join().unwrap();
            guarded.0.let_go(false);
            assert_eq!(guarded.write(), 1);
        });
    }
}
