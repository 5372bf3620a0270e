//! What threads share and wait on: atomics, locks, sleep, and the making of threads. Code whose interleavings are modelled takes
//! them from here; they are the standard ones, and loom's where its models run (`make loom`). There time stands still: who sleeps
//! is woken by somebody or never, so that no model passes because a timeout saved it. Locks that nobody models are `lock`'s.

mod forks;
#[cfg(not(sanitized))]
pub mod lock;
#[cfg(all(test, loom))]
mod loomed;
#[cfg(test)]
pub mod model;
#[cfg(not(all(test, loom)))]
mod plain;
#[cfg(sanitized)]
#[allow(missing_docs, reason = "they are those of `lock`")]
pub mod seen;

pub use forks::{forked, forks};
#[cfg(all(test, loom))]
pub use loomed::*;
#[cfg(not(all(test, loom)))]
pub use plain::*;
#[cfg(sanitized)]
pub use seen as lock;
