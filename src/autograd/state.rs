//! What belongs to a thread and changes what operations do: the modes, and the hooks on saved values. A thread that goes on
//! with the work of another takes it over.

use super::{mode, saved};
use std::sync::Arc;

/// The state of a thread.
pub struct ThreadState {
    mode: u8,
    saved_hooks: Vec<Arc<dyn saved::SavedHooks>>,
}

impl ThreadState {
    /// That of this thread.
    pub fn capture() -> ThreadState {
        ThreadState { mode: mode::all(), saved_hooks: saved::all_hooks() }
    }

    /// Makes it this thread's.
    pub fn install(self) {
        saved::set_all_hooks(self.saved_hooks);
        mode::set_all(self.mode);
    }
}
