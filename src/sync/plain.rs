//! The real ones.

pub use parking_lot::{Condvar, Mutex};
pub use std::sync::atomic::{AtomicBool, Ordering};
