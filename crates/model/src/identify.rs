//! Classification of processes, thread names and cgroup paths. Tenants choose names, so a
//! name never proves that a process is a VMM; only KVM does.

pub mod cgroup;
pub mod features;
pub mod name;
pub mod place;
pub mod roles;
pub mod vmm;
