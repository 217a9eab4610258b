//! The scopes of cgroups.

use serde::{Deserialize, Serialize};

/// The meaning of a cgroup path level for the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The pod's cgroup.
    Pod,
    /// The cgroup that Kata creates for a sandbox inside the pod's cgroup.
    Sandbox,
    /// A container's cgroup or a descendant of it.
    Container,
    /// A cgroup outside the pod's or the machine's that holds threads of the VM: Kata's
    /// overhead cgroup, or the service of a manager that runs a virtiofsd.
    Overhead,
    /// The cgroup of a VM without a pod: libvirt's machine scope, a systemd unit, or the
    /// cgroup in which the VMM was started.
    Machine,
    /// libvirt's cgroup of one vCPU (`vcpu_quota`).
    Vcpu,
    /// libvirt's cgroup of the VMM's other threads and its vhost workers
    /// (`emulator_quota`).
    Emulator,
    /// libvirt's cgroup of one iothread (`iothread_quota`).
    Iothread,
}

impl Scope {
    /// All scopes, in display order.
    pub const ALL: [Self; 8] = [
        Self::Pod,
        Self::Sandbox,
        Self::Container,
        Self::Overhead,
        Self::Machine,
        Self::Vcpu,
        Self::Emulator,
        Self::Iothread,
    ];

    /// Name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Sandbox => "sandbox",
            Self::Container => "container",
            Self::Overhead => "overhead",
            Self::Machine => "machine",
            Self::Vcpu => "vcpu",
            Self::Emulator => "emulator",
            Self::Iothread => "iothread",
        }
    }
}
