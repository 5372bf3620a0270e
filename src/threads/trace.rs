//! Who did what when, while somebody wants to know.

use crate::sync::lock::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

/// What a thread did for a while.
#[derive(Clone, Debug)]
pub struct Event {
    /// The thread, by a number of its own.
    pub lane: u32,
    /// What kind of thing: `compute`, `retire`, `wait`, `slices`.
    pub kind: &'static str,
    /// What exactly.
    pub what: String,
    /// Nanoseconds from the beginning of the trace.
    pub begin: u64,
    /// The same of its end.
    pub end: u64,
}

struct Trace {
    since: Instant,
    events: Vec<Event>,
}

static WATCHED: AtomicBool = AtomicBool::new(false);
static TRACE: Mutex<Option<Trace>> = Mutex::new(None);
static LANES: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static LANE: u32 = LANES.fetch_add(1, Ordering::Relaxed);
}

/// The calling thread's number.
pub fn lane() -> u32 {
    LANE.with(|lane| *lane)
}

/// From now on events are kept. False if they were already.
pub fn begin() -> bool {
    let mut trace = TRACE.lock();
    if trace.is_some() {
        return false;
    }
    *trace = Some(Trace { since: Instant::now(), events: Vec::new() });
    WATCHED.store(true, Ordering::Release);
    true
}

/// What was kept, in the order in which it ended. No more is.
pub fn end() -> Vec<Event> {
    WATCHED.store(false, Ordering::Release);
    TRACE.lock().take().map_or_else(Vec::new, |trace| trace.events)
}

/// While this lives, its thread does something.
pub struct Span {
    kind: &'static str,
    what: String,
    begin: Instant,
}

/// Notes what the calling thread does until the result is dropped, if anybody wants to know.
#[inline]
pub fn span(kind: &'static str, what: impl FnOnce() -> String) -> Option<Span> {
    if WATCHED.load(Ordering::Relaxed) { Some(Span { kind, what: what(), begin: Instant::now() }) } else { None }
}

impl Drop for Span {
    fn drop(&mut self) {
        let end = Instant::now();
        if let Some(trace) = &mut *TRACE.lock() {
            let since = |at: Instant| at.saturating_duration_since(trace.since).as_nanos() as u64;
            let (begin, end) = (since(self.begin), since(end));
            trace.events.push(Event {
                lane: lane(),
                kind: self.kind,
                what: std::mem::take(&mut self.what),
                begin,
                end,
            });
        }
    }
}
