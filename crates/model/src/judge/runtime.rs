//! The runtime that started a VM, as far as remedies depend on it.

use crate::snapshot::Vm;
use crate::vocab::{Comm, Role};

/// Runtime of a VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Runtime {
    /// Kata's Go runtime.
    KataGo,
    /// Kata's runtime-rs with a separate VMM process.
    KataRs,
    /// Kata's runtime-rs with its built-in VMM.
    Dragonball,
    /// Kata with an unknown shim.
    Kata,
    /// `KubeVirt`.
    KubeVirt,
    /// libvirt without `KubeVirt`.
    Libvirt,
    /// Any other, or unknown.
    #[default]
    Unknown,
}

impl Runtime {
    /// The runtime of a VM.
    pub fn of(vm: &Vm) -> Self {
        match vm.runtime {
            Some("kata") if vm.vmm == "dragonball" => Self::Dragonball,
            Some("kata") => shim_of(vm),
            Some("kubevirt") => Self::KubeVirt,
            Some("libvirt") => Self::Libvirt,
            _ => Self::Unknown,
        }
    }

    /// Whether it is Kata, with any shim.
    pub fn is_kata(self) -> bool {
        matches!(
            self,
            Self::KataGo | Self::KataRs | Self::Dragonball | Self::Kata
        )
    }
}

/// Identifies the Kata shim by the names of its threads. Threads of runtime-rs have names
/// of tokio and slog; all threads of the Go runtime are named after the program (Kata
/// 4.1).
fn shim_of(vm: &Vm) -> Runtime {
    let helpers = || {
        vm.threads
            .iter()
            .filter(|thread| thread.role == Some(Role::Helper))
    };
    let is_named = |name: &str| helpers().any(|thread| thread.name == Comm::new(name));
    if is_named("tokio-rt-worker") || is_named("slog-async-logg") {
        Runtime::KataRs
    } else if is_named("containerd-shim-kata-v2") {
        Runtime::KataGo
    } else {
        Runtime::Kata
    }
}
