//! What belongs to a thread and changes what operations do: the modes, hooks on saved values, who watches. A thread that
//! goes on with the work of another takes it over.

use super::observe::{self, Observer};
use super::watch::{self, Watch};
use super::{mode, saved};
use crate::callsite::{CallSite, Held};
use std::sync::Arc;

/// The state of a thread.
pub struct ThreadState {
    mode: u8,
    saved_hooks: Vec<Arc<dyn saved::SavedHooks>>,
    observers: Vec<Arc<dyn Observer>>,
    watch: Option<Watch>,
    /// The line for which it works.
    site: CallSite,
}

impl ThreadState {
    /// That of this thread.
    pub fn capture() -> ThreadState {
        ThreadState {
            mode: mode::all(),
            saved_hooks: saved::all_hooks(),
            observers: observe::all(),
            watch: watch::current(),
            site: CallSite::here(),
        }
    }

    /// Makes it this thread's, which works for that line until the result is dropped.
    #[must_use = "dropping it ends the work for that line"]
    pub fn install(self) -> Held {
        saved::set_all_hooks(self.saved_hooks);
        observe::set_all(self.observers);
        watch::set_watch(self.watch);
        mode::set_all(self.mode);
        CallSite::hold(self.site)
    }
}
