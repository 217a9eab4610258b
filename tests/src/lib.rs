//! Shared helpers of test suites and benchmarks.
//!
//! - a running [`Agent`], a real [`prometheus`] that scrapes it, and checks that rules
//!   and dashboards show data ([`mixin`], [`grafana`]);
//! - objects to observe: a [`Minivm`] with commands, a real [`Qemu`], cgroups with a
//!   quota ([`TestCgroup`]);
//! - a private [`Bpffs`] for an agent;
//! - a [`FaultyHost`], whose files fail on demand, and a [`Refusal`] of system calls;
//! - a cluster's API server without the other components ([`ApiServer`]), and with the
//!   controllers that nodes need ([`ControlPlane`]);
//! - a collector in the test's process ([`reader`]), also for pinned VMs ([`seats`]), on a
//!   host with a private bpffs ([`root`]);
//! - counters as Prometheus sees them: of snapshots ([`exposed`]), of agents ([`scraped`]);
//! - oracles to compare with: [`process`], [`sysfs`] and [`kvm_stats`] read the kernel's
//!   values, [`calls`] counts system calls, [`hooked`] lists attached programs;
//! - snapshots without a host: [`blank`], a small [`fixture`], a large [`fleet`]; and the
//!   comparison of outputs with reviewed files ([`golden`]);
//! - a checker of expositions ([`promtool`]) and a reader of traces ([`perfetto`]);
//! - requirements of a test on its host ([`need`]), and paths of the binaries.
//!
//! All of these panic on an error, as a test does.

#![expect(
    unsafe_code,
    reason = "bpf(2), seccomp(2), and closures between fork and exec"
)]

mod agent;
pub mod alertmanager;
mod api_server;
mod binary;
pub mod blank;
mod bpffs;
pub mod calls;
mod cgroup;
mod control_plane;
pub mod dice;
pub mod exposed;
mod faulty;
pub mod filter;
pub mod fixture;
pub mod fleet;
pub mod golden;
pub mod grafana;
pub mod hooked;
pub mod http;
pub mod kvm_stats;
mod launch;
mod minivm;
pub mod mixin;
pub mod need;
pub mod page_commands;
pub mod pages;
pub mod perfetto;
pub mod process;
pub mod prometheus;
pub mod promtool;
mod qemu;
pub mod reader;
mod refusal;
pub mod root;
pub mod scraped;
pub mod seats;
pub mod sysfs;
pub mod terminal;

pub use agent::Agent;
pub use api_server::ApiServer;
pub use binary::binary;
pub use bpffs::Bpffs;
pub use cgroup::{
    TestCgroup, Throttling, cgroupfs_pod_path, roots as cpu_cgroup_roots, systemd_pod_path,
    unique_pod_uid,
};
pub use control_plane::ControlPlane;
pub use faulty::{Fault, FaultyHost};
pub use launch::{Launch, private_mounts, private_network};
pub use minivm::{Minivm, Receipt, Status, Thread, Vcpu};
pub use qemu::Qemu;
pub use refusal::Refusal;

use std::time::{Duration, Instant};

/// Waits until `found` yields. Panics after a minute, naming `what`: long enough for the
/// slowest emulated machine, and only meant to end a hung test.
pub fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(Instant::now() < end, "waited a minute in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
