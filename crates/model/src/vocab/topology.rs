//! CPU topology: the host's from sysfs, a guest's from the CPUID leaves that KVM holds
//! for its vCPUs.

pub mod guest;
pub mod host;
#[cfg(test)]
pub(crate) mod synthetic;
