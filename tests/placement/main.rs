//! Placement of vCPUs, inside the machine `smt` of tests/vm: twelve CPUs with two threads
//! per core, two cores per cache, a node of two caches and a node of one.
//!
//! The guests are minivms, which need only /dev/kvm, and Linux kernels that print the
//! topology that they see. The agent's values are compared with sysfs, /proc, the output
//! of the guests, and the actions of the tests.
//!
//! The machine's clock may be set, and its cgroups are v2: tests of hostile changes of
//! both are here, too.
//!
//! Rules and dashboards are shown here, too, because no other machine has all the
//! features that they use.

mod clock;
mod guests;
mod host;
mod hotplug;
#[path = "../kernel/loaders.rs"]
mod loaders;
#[path = "../kernel/moved.rs"]
mod moved;
#[path = "../kernel/prometheus.rs"]
mod prometheus;
mod residency;
mod study;
mod verdicts;
#[path = "../kernel/walk.rs"]
mod walk;
