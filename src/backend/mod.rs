//! How operations are computed: one room per kind of device. Nothing here knows a tensor.

pub mod cpu;
