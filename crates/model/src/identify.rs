//! What a process, the name of a thread and the path of a cgroup say. Names are chosen by
//! tenants: none of them is proof of a VM, which only KVM is.

pub mod cgroup;
pub mod features;
pub mod name;
pub mod place;
pub mod roles;
pub mod vmm;
