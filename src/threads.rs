//! WHO WORKS: one pool of threads, which serves slices of kernels and nodes of graphs. Work is offered, not assigned: idle
//! workers take slices one by one, and the thread that offers them takes them too, so that a worker which the system has put
//! aside delays at most the slice it holds. What runs where never changes a result. Nothing here knows tensors or graphs.

mod crew;
mod fork;
mod pool;
mod slices;
mod stop;
pub mod trace;

pub use fork::{Forked, Tally, watch_forks};
pub use pool::{Work, environment, idle, invite, num_threads, rouse, set_num_threads, shutdown};
pub use slices::{each, is_cut, ranges, turns};
pub use stop::{Cancelled, Stoppable, asking_nobody, asking_user, cancel, heeding};
pub use stop::{is_cancelled, is_stop_wanted, set_stop_hook, stop_if_wanted};
