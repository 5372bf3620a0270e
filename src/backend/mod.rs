//! HOW kernels run: one module per device.

pub mod cpu;
