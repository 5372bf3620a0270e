//! Grad modes: whether operations record history. Thread-local; guards restore on drop, whatever happens in between.

use std::cell::Cell;

thread_local! {
    static GRAD: Cell<bool> = const { Cell::new(true) };
    static INFERENCE: Cell<bool> = const { Cell::new(false) };
}

/// Whether operations on this thread record history.
#[inline]
pub fn is_grad_enabled() -> bool {
    GRAD.get()
}

/// Switches recording on this thread and returns what was before.
#[inline]
pub fn set_grad_enabled(on: bool) -> bool {
    GRAD.replace(on)
}

/// Whether this thread is in inference mode.
#[inline]
pub fn is_inference_mode() -> bool {
    INFERENCE.get()
}

/// Switches inference mode on this thread and returns what was before.
pub fn set_inference_mode(on: bool) -> bool {
    INFERENCE.replace(on)
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
