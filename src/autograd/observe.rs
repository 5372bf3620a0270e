//! Watching: a thread's observer sees each operation that the user calls, and each node that a backward runs. While there is
//! one, every call takes the ordinary road; while there is none, nothing is paid.

use super::mode;
use super::node::{Grads, NodeRef};
use crate::error::Result;
use crate::tensor::Tensor;
use std::cell::RefCell;
use std::sync::Arc;

/// What is done once the results of a watched operation are there.
pub type After<'a> = Box<dyn FnOnce(&[Tensor]) -> Result<()> + 'a>;

/// A call that an observer sees.
pub struct Watched<'a> {
    /// The operation's name.
    pub operation: &'a str,
    /// The call as messages show it.
    pub text: &'a dyn Fn() -> String,
    /// Its tensors, before it runs.
    pub operands: &'a [Tensor],
    /// Whether a number among its arguments is not finite.
    pub given_nonfinite: bool,
    /// Whether it overwrites one of its operands.
    pub in_place: bool,
}

/// Somebody who watches.
pub trait Observer: Send + Sync {
    /// Called before an operation; what it returns is called with the results.
    ///
    /// # Errors
    /// An error becomes that of the operation.
    fn operation<'a>(&'a self, call: &'a Watched<'_>) -> Result<After<'a>>;

    /// Called after a node has turned cotangents into gradients.
    ///
    /// # Errors
    /// An error stops the backward.
    fn node(&self, node: &NodeRef, cotangents: &Grads, gradients: &Grads) -> Result<()>;
}

thread_local! {
    static OBSERVERS: RefCell<Vec<Arc<dyn Observer>>> = const { RefCell::new(Vec::new()) };
}

/// Lets an observer watch this thread, instead of those before.
pub fn push_observer(observer: Arc<dyn Observer>) {
    OBSERVERS.with_borrow_mut(|all| all.push(observer));
    mode::set_observing(true);
}

/// Sends the observer away that came last.
pub fn pop_observer() {
    let old = OBSERVERS.with_borrow_mut(|all| {
        let old = all.pop();
        mode::set_observing(!all.is_empty());
        old
    });
    drop(old);
}

pub(super) fn all() -> Vec<Arc<dyn Observer>> {
    OBSERVERS.with_borrow(Clone::clone)
}

pub(super) fn set_all(observers: Vec<Arc<dyn Observer>>) {
    drop(OBSERVERS.replace(observers));
}

/// The observer of this thread, if what runs now is to be seen.
#[inline]
pub(crate) fn observer() -> Option<Arc<dyn Observer>> {
    if mode::is_observing() { last() } else { None }
}

#[cold]
fn last() -> Option<Arc<dyn Observer>> {
    OBSERVERS.with_borrow(|all| all.last().cloned())
}

/// Until it is dropped, what runs on this thread is not seen: the inside of an operation, of a backward, of an observer.
pub(crate) struct Unobserved(bool);

impl Unobserved {
    pub(crate) fn new() -> Unobserved {
        Unobserved(mode::set_observing(false))
    }
}

impl Drop for Unobserved {
    fn drop(&mut self) {
        mode::set_observing(self.0);
    }
}
