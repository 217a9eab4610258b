//! What test suites and benchmarks share.
//!
//! - a running [`Agent`], a real [`prometheus`] that scrapes it, and whether rules
//!   and dashboards then show something ([`mixin`], [`grafana`]);
//! - things to observe: a [`Minivm`] that does what it is told, a real
//!   [`Qemu`], cgroups with a quota ([`TestCgroup`]);
//! - a [`Bpffs`] on which an agent is alone;
//! - a [`FaultyHost`], whose files fail when they are told to, and a [`Refusal`] of
//!   system calls;
//! - a cluster's API server without the rest of it ([`ApiServer`]);
//! - oracles to compare with: [`process`] reads what the kernel shows in /proc;
//! - a judge of expositions ([`promtool`]) and a reader of traces ([`perfetto`]);
//! - what a test needs of its host ([`need`]), and where the binaries are.
//!
//! A test here panics where something goes wrong: so do all of these.

#![expect(
    unsafe_code,
    reason = "what a test needs to be told or done by system calls"
)]

mod agent;
mod api_server;
mod binary;
mod bpffs;
mod cgroup;
mod faulty;
pub mod grafana;
mod launch;
mod minivm;
pub mod mixin;
pub mod need;
pub mod perfetto;
pub mod process;
pub mod prometheus;
pub mod promtool;
mod qemu;
mod refusal;

pub use agent::Agent;
pub use api_server::ApiServer;
pub use binary::binary;
pub use bpffs::Bpffs;
pub use cgroup::{TestCgroup, Throttling, cgroupfs_pod_path, systemd_pod_path, unique_pod_uid};
pub use faulty::{Fault, FaultyHost};
pub use launch::Launch;
pub use minivm::{Minivm, Receipt, Status, Thread, Vcpu};
pub use qemu::Qemu;
pub use refusal::Refusal;

use std::time::{Duration, Instant};

/// Waits until `found` yields. Panics after a minute, naming `what`: long
/// enough for the slowest emulated machine, and only to end a hung test.
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
