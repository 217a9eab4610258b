//! Where vCPUs sit, inside the machine `smt` of tests/vm: twelve CPUs with two
//! threads a core, two cores a cache, a node of two caches and a node of one.
//!
//! The guests are minivms that need nothing of a machine but /dev/kvm, and
//! Linux kernels that tell what they believe. What the agent says is held
//! against sysfs, /proc, the guests' own words, and against what the tests did.
//!
//! As no other machine has all that they tell of, the rules and dashboards are
//! shown here, too.

mod guests;
mod host;
mod hotplug;
#[path = "../kernel/options.rs"]
mod options;
#[path = "../kernel/prometheus.rs"]
mod prometheus;
mod residency;
mod seats;
mod study;
mod verdicts;
