//! Where a tensor lives. One device so far; the type exists so that signatures and messages need not change.

use std::fmt;

/// A device that owns memory and runs kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Device {
    /// The host.
    #[default]
    Cpu,
}

impl Device {
    /// Parses `"cpu"` or `"cpu:0"`; anything else is `None`.
    pub fn parse(text: &str) -> Option<Device> {
        matches!(text, "cpu" | "cpu:0").then_some(Device::Cpu)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cpu")
    }
}
