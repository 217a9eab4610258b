//! Where vCPUs sit, inside the machine `smt` of tests/vm: twelve CPUs with two
//! threads a core, two cores a cache, a node of two caches and a node of one.
//!
//! The guests are minivms that need nothing of a machine but /dev/kvm, and
//! Linux kernels that tell what they believe. What the agent says is held
//! against sysfs, /proc, the guests' own words, and against what the tests did.
//!
//! Its clock may be set, and its cgroups are v2's: what is hostile about that is here too.
//!
//! As no other machine has all that they tell of, the rules and dashboards are
//! shown here, too.

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
#[path = "../kernel/reader.rs"]
#[allow(dead_code, reason = "the kernel suite asks for more")]
mod reader;
mod residency;
mod seats;
mod study;
mod sysfs;
mod verdicts;
#[path = "../kernel/walk.rs"]
mod walk;

use reader::options;
