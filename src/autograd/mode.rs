//! Grad modes: whether operations record history. Thread-local; guards restore on drop, whatever happens in between.

use std::cell::Cell;

thread_local! {
    static MODE: Cell<u8> = const { Cell::new(GRAD | MULTITHREADING | GRAD_LAYOUT) };
}

/// Operations record history.
const GRAD: u8 = 1;
/// Inference mode.
const INFERENCE: u8 = 2;
/// Saved values are handed to hooks; see [`saved`](super::saved).
const PACKING: u8 = 4;
/// Operations are watched; see [`observe`](super::observe).
const OBSERVING: u8 = 8;
/// Somebody hears of changes in place; see [`watch`](super::watch).
const WATCHED: u8 = 16;
/// A backward may run on several threads.
const MULTITHREADING: u8 = 32;
/// A leaf's `.grad` has the leaf's layout.
const GRAD_LAYOUT: u8 = 64;

#[inline]
fn set(bit: u8, on: bool) -> bool {
    MODE.with(|mode| {
        let old = mode.get();
        mode.set(if on { old | bit } else { old & !bit });
        old & bit != 0
    })
}

/// All modes of this thread.
pub(super) fn all() -> u8 {
    MODE.get()
}

/// Sets all modes of this thread.
pub(super) fn set_all(modes: u8) {
    MODE.set(modes);
}

/// Whether operations on this thread record history.
#[inline]
pub fn is_grad_enabled() -> bool {
    MODE.get() & (GRAD | INFERENCE) == GRAD
}

/// Whether recording is switched on, though inference mode may overrule it.
#[inline]
pub fn is_grad_switched_on() -> bool {
    MODE.get() & GRAD != 0
}

/// Whether operations on this thread record history; nothing if what they save goes to hooks first, or if they are watched.
#[inline]
pub(crate) fn records_plainly() -> Option<bool> {
    let mode = MODE.get();
    if mode & (PACKING | OBSERVING) != 0 { None } else { Some(mode & (GRAD | INFERENCE) == GRAD) }
}

/// Whether values that this thread saves go to hooks first.
#[inline]
pub(crate) fn is_packing() -> bool {
    MODE.get() & PACKING != 0
}

/// Switches recording on this thread and returns what was before.
#[inline]
pub fn set_grad_enabled(on: bool) -> bool {
    set(GRAD, on)
}

/// Whether this thread is in inference mode.
#[inline]
pub fn is_inference_mode() -> bool {
    MODE.get() & INFERENCE != 0
}

/// Switches inference mode on this thread and returns what was before.
pub fn set_inference_mode(on: bool) -> bool {
    set(INFERENCE, on)
}

/// Whether backwards that this thread starts may use other threads too. The engine runs all of a backward on the thread that
/// started it so far, whatever this says.
pub fn is_multithreading_enabled() -> bool {
    MODE.get() & MULTITHREADING != 0
}

/// Allows or forbids other threads to backwards that this thread starts, and returns what was before.
pub fn set_multithreading_enabled(on: bool) -> bool {
    set(MULTITHREADING, on)
}

/// Whether a gradient that becomes a leaf's `.grad` on this thread is given the leaf's layout. If not, one that nobody else
/// holds is taken over as it lies.
pub fn enforces_grad_layout() -> bool {
    MODE.get() & GRAD_LAYOUT != 0
}

/// Switches that on this thread and returns what was before.
pub fn set_enforces_grad_layout(on: bool) -> bool {
    set(GRAD_LAYOUT, on)
}

pub(super) fn set_packing(on: bool) {
    set(PACKING, on);
}

/// Whether operations on this thread are watched.
#[inline]
pub(crate) fn is_observing() -> bool {
    MODE.get() & OBSERVING != 0
}

pub(super) fn set_observing(on: bool) -> bool {
    set(OBSERVING, on)
}

#[inline]
pub(super) fn is_watched() -> bool {
    MODE.get() & WATCHED != 0
}

pub(super) fn set_watched(on: bool) {
    set(WATCHED, on);
}

/// Restores the grad mode it was made under.
pub struct GradMode(bool);

impl GradMode {
    /// Switches recording until the guard is dropped.
    #[inline]
    pub fn set(on: bool) -> GradMode {
        GradMode(set_grad_enabled(on))
    }
}

impl Drop for GradMode {
    #[inline]
    fn drop(&mut self) {
        set_grad_enabled(self.0);
    }
}

/// Runs `f` without recording history.
///
/// ```
/// use rustgrad::{Tensor, autograd::no_grad};
/// let x = Tensor::from(2.0).requires_grad_(true)?;
/// let y = no_grad(|| &x * &x);
/// assert!(!y.requires_grad());
/// # Ok::<(), rustgrad::Error>(())
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    let _mode = GradMode::set(false);
    f()
}

/// Runs `f` recording history, inside [`no_grad`] too.
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    let _mode = GradMode::set(true);
    f()
}
