//! Domain types: roles, scopes, exits, CPU sets, topology. Every other layer uses this
//! one; this one uses none.

mod comm;
pub mod cpuset;
mod dirty_logging;
mod discard;
mod durations;
mod features;
mod halts;
mod ids;
mod kvm;
mod memory_events;
mod mismatch;
mod mmu;
mod moves;
pub mod name;
pub mod pod;
mod pressure;
mod role;
mod sched_class;
mod scope;
mod switches;
mod throttle;
pub mod topology;
mod vhost;

pub use self::comm::Comm;
pub use self::cpuset::CpuSet;
pub use self::dirty_logging::DirtyLogging;
pub use self::discard::{Discard, DiscardSum, Discards};
pub use self::durations::{BOUNDS_MS, DURATIONS, Durations};
pub use self::features::{Feature, Features};
pub use self::halts::{HALT_BUCKETS, HaltBuckets, Halts};
pub use self::ids::{CgroupId, Owner, ThreadKey, VmKey};
pub use self::kvm::{ExitCounts, HaltPoll, KvmCounters, KvmValues, Polls, Yields};
pub use self::memory_events::{MEMORY_EVENTS, MemoryEvents};
pub use self::mismatch::{MismatchKind, MismatchTimes};
pub use self::mmu::{Mapped, Mmu};
pub use self::moves::Moves;
pub use self::pod::{Pod, PodSpec, Pods};
pub use self::pressure::{PRESSURES, Pressure, Stalls};
pub use self::role::Role;
pub use self::sched_class::SchedClass;
pub use self::scope::Scope;
pub use self::switches::Switches;
pub use self::throttle::Throttle;
pub use self::vhost::VhostDevice;
