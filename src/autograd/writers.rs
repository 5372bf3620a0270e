//! Who changed a version counter last: a table of fixed size, so that an error about values that were changed in place can
//! name the line that changed them. It is a help for people; an entry that another has pushed out is simply not there.

use crate::callsite::CallSite;
use crate::sync::lock::Mutex;
use std::sync::atomic::AtomicU32;

#[derive(Clone, Copy)]
struct Write {
    /// Address of the counter.
    counter: usize,
    version: u32,
    site: CallSite,
}

/// Counters by address; two that fall on one place push each other out.
const PLACES: usize = 1 << 12;

static WRITES: Mutex<[Write; PLACES]> =
    Mutex::new([Write { counter: 0, version: 0, site: CallSite { unit: 0, offset: 0 } }; PLACES]);

fn place(counter: usize) -> usize {
    // Counters lie in allocations of 16 bytes at least; the multiplication spreads those that are pages apart.
    (counter >> 4).wrapping_mul(0x9e37_79b9) >> 8 & (PLACES - 1)
}

/// Notes that the line that runs now has brought a counter to `version`.
pub(crate) fn note(counter: &AtomicU32, version: u32) {
    let site = CallSite::here();
    if !site.is_known() {
        return;
    }
    let counter = std::ptr::from_ref(counter) as usize;
    if let Some(mut writes) = WRITES.try_lock() {
        writes[place(counter)] = Write { counter, version, site };
    }
}

/// The line that brought a counter to `version`, if it is still known.
pub(crate) fn last(counter: &AtomicU32, version: u32) -> CallSite {
    let counter = std::ptr::from_ref(counter) as usize;
    let write = WRITES.lock()[place(counter)];
    if (write.counter, write.version) == (counter, version) { write.site } else { CallSite::default() }
}
