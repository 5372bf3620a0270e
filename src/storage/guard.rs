//! Guards: one atomic word a storage, readers counted, a writer alone. An operation takes all it needs at once in
//! ascending order of storage, holds them only inside its kernel, and so can neither race nor deadlock.

use super::Storage;
use super::word::Word;
use smallvec::SmallVec;
use std::sync::OnceLock;

/// How a thread gives way while it waits for a guard. The Python room installs one that lets go of the interpreter.
static WAIT_HOOK: OnceLock<fn(&mut dyn FnMut() -> bool)> = OnceLock::new();

/// Installs how to wait: the function is called with a probe and returns once the probe has returned true.
pub fn set_wait_hook(hook: fn(&mut dyn FnMut() -> bool)) {
    let _ = WAIT_HOOK.set(hook);
}

/// Guards held by one operation; dropping lets go of all.
pub struct Guards<'a>(SmallVec<[(&'a Storage, bool); 4]>);

impl<'a> Guards<'a> {
    /// Takes shared guards for `reads` and exclusive ones for `writes`. A storage may stand in both lists, and several
    /// times. Storages that nobody else can hold need not be named.
    #[inline]
    pub fn take(
        reads: impl IntoIterator<Item = &'a Storage>,
        writes: impl IntoIterator<Item = &'a Storage>,
    ) -> Guards<'a> {
        let mut held: SmallVec<[(&Storage, bool); 4]> = SmallVec::new();
        for (storage, write) in writes.into_iter().map(|s| (s, true)).chain(reads.into_iter().map(|s| (s, false))) {
            // Writes come first, so a storage that is also read keeps the exclusive entry.
            if held.iter().all(|(s, _)| !s.same(storage)) {
                held.push((storage, write));
            }
        }
        match &mut held[..] {
            [] | [_] => {}
            [a, b] if a.0.id() <= b.0.id() => {}
            [a, b] => std::mem::swap(a, b),
            many => many.sort_unstable_by_key(|(s, _)| s.id()),
        }
        for &(storage, write) in &held {
            take(storage.guard_word(), write);
        }
        Guards(held)
    }
}

impl Drop for Guards<'_> {
    #[inline]
    fn drop(&mut self) {
        for &(storage, write) in &self.0 {
            storage.guard_word().let_go(write);
        }
    }
}

/// A shared guard on one storage, taken without waiting.
pub struct Reading<'a>(&'a Storage);

impl<'a> Reading<'a> {
    /// A shared guard, unless somebody is writing.
    #[inline]
    pub fn try_take(storage: &'a Storage) -> Option<Reading<'a>> {
        // Made only if it was taken: dropping one lets go.
        storage.guard_word().try_take(false).then(|| Reading(storage))
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.guard_word().let_go(false);
    }
}

#[inline]
fn take(word: &Word, write: bool) {
    if !word.try_take(write) {
        wait(word, write);
    }
}

#[cold]
fn wait(word: &Word, write: bool) {
    for _ in 0..100 {
        std::hint::spin_loop();
        if word.try_take(write) {
            return;
        }
    }
    let mut probe = || word.try_take(write);
    match WAIT_HOOK.get() {
        Some(hook) => hook(&mut probe),
        None => {
            while !probe() {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_excludes_and_readers_share() {
        let a = Storage::zeroed("test", 64).unwrap();
        let b = Storage::zeroed("test", 64).unwrap();
        {
            let _r1 = Guards::take([&a, &b], []);
            let _r2 = Guards::take([&a, &a], []);
            assert!(!a.guard_word().try_take(true));
        }
        {
            let _w = Guards::take([&a, &b], [&a]);
            assert!(!a.guard_word().try_take(false));
            assert!(b.guard_word().try_take(false));
            b.guard_word().let_go(false);
        }
        assert!(a.guard_word().try_take(true));
    }

    #[test]
    fn who_could_not_read_at_once_lets_go_of_nothing() {
        let a = Storage::zeroed("test", 64).unwrap();
        {
            let _w = Guards::take([], [&a]);
            assert!(Reading::try_take(&a).is_none());
            assert!(!a.guard_word().try_take(false));
        }
        assert!(Reading::try_take(&a).is_some());
        assert!(a.guard_word().try_take(true));
    }

    #[test]
    fn concurrent_increments_are_not_lost() {
        let a = Storage::zeroed("test", 8).unwrap();
        let increment = || {
            let _w = Guards::take([], [&a]);
            let p = a.ptr().cast::<u64>();
            // SAFETY: eight aligned bytes under an exclusive guard.
            unsafe { *p += 1 };
        };
        std::thread::scope(|s| {
            let threads = [(); 4].map(|()| s.spawn(|| (0..1000).for_each(|_| increment())));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        // SAFETY: all writers have ended.
        assert_eq!(unsafe { *a.ptr().cast::<u64>() }, 4000);
    }
}
