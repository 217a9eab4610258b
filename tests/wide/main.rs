//! Hosts with many CPUs, inside the machine `cpus64` of tests/vm.
//!
//! Kernel masks have a bit for each possible CPU, so every test reads from sysfs how many
//! there are. The guests are minivms, which need only /dev/kvm.

#[path = "../scenario/features.rs"]
mod features;
mod masks;
mod residency;

use std::collections::BTreeSet;

use virtlens_tests::sysfs;

/// The online CPUs.
fn online() -> BTreeSet<u32> {
    sysfs::list(&sysfs::read("cpu/online"))
}

/// The possible CPUs: the kernel has masks and per-CPU values for them.
fn possible() -> BTreeSet<u32> {
    sysfs::list(&sysfs::read("cpu/possible"))
}

/// The last `count` online CPUs, lowest first.
fn last_online(count: usize) -> Vec<usize> {
    let mut cpus: Vec<usize> = online()
        .into_iter()
        .rev()
        .take(count)
        .map(|cpu| cpu as usize)
        .collect();
    cpus.reverse();
    cpus
}
