//! The roles of threads.

use serde::{Deserialize, Serialize};

/// The role of a thread: the closed set of DESIGN 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs a vCPU.
    Vcpu,
    /// A vhost worker in the kernel.
    Vhost,
    /// A thread of a virtiofsd process.
    Virtiofsd,
    /// A thread of the VMM that does mostly I/O.
    Iothread,
    /// Any other thread of the VMM.
    Emulator,
    /// A thread of another process of the pod.
    Helper,
}

impl Role {
    /// All roles, in display order.
    pub const ALL: [Self; 6] = [
        Self::Vcpu,
        Self::Vhost,
        Self::Virtiofsd,
        Self::Iothread,
        Self::Emulator,
        Self::Helper,
    ];

    /// Name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vcpu => "vcpu",
            Self::Vhost => "vhost",
            Self::Virtiofsd => "virtiofsd",
            Self::Iothread => "iothread",
            Self::Emulator => "emulator",
            Self::Helper => "helper",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Role;

    #[test]
    fn name_is_that_of_json() {
        for role in Role::ALL {
            let json = serde_json::to_value(role).expect("a text");
            assert_eq!(json, role.name());
        }
    }
}
