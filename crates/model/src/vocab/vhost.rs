//! Devices that vhost workers serve.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A vhost device of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VhostDevice {
    /// `/dev/vhost-net`: one per queue pair of a network device.
    Net,
    /// `/dev/vhost-vsock`.
    Vsock,
}

impl VhostDevice {
    /// Name in JSON: that of the device file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Net => "vhost-net",
            Self::Vsock => "vhost-vsock",
        }
    }
}

impl fmt::Display for VhostDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for VhostDevice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for VhostDevice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let mut all = [Self::Net, Self::Vsock].into_iter();
        let found = all.find(|device| device.name() == name);
        found.ok_or_else(|| Error::custom(format!("unknown device {name}")))
    }
}
