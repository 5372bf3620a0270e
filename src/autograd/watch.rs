//! Who asks to hear of changes in place before they happen. Per thread; at most one at a time.

use super::mode;
use crate::error::Result;
use crate::tensor::Tensor;
use std::cell::RefCell;
use std::sync::Arc;

/// Called with a tensor whose memory is about to be written.
pub type Watch = Arc<dyn Fn(&Tensor) -> Result<()> + Send + Sync>;

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Installs a watch on this thread in the place of the one before, or none.
pub fn set_watch(watch: Option<Watch>) {
    mode::set_watched(watch.is_some());
    let old = WATCH.with_borrow_mut(|slot| std::mem::replace(slot, watch));
    drop(old);
}

pub(super) fn current() -> Option<Watch> {
    WATCH.with_borrow(Clone::clone)
}

/// Tells this thread's watch, if there is one, that a tensor is about to be changed in place.
///
/// # Errors
/// Whatever the watch raises; nothing has been changed then.
#[inline]
pub(crate) fn before_write(target: &Tensor) -> Result<()> {
    if mode::is_watched() { tell(target) } else { Ok(()) }
}

#[cold]
fn tell(target: &Tensor) -> Result<()> {
    let _mode = mode::GradMode::set(false);
    match WATCH.with_borrow(Clone::clone) {
        Some(watch) => watch(target),
        None => Ok(()),
    }
}
