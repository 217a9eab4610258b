//! Parsers must not panic, overflow or contradict themselves, whatever the input.
//!
//! Each module is a target: a function that parses any bytes and checks invariants of the
//! result. `make fuzz` searches for bytes that violate one; `tests/corpus.rs` runs all
//! targets on the named inputs in `corpus` and on those that libFuzzer found, in `found`.
//!
//! ```text
//! the kernel    stat · proc_files · cgroupfs · maps · cpulist · cgroup_path
//!               records · judgement · trace_events: what the BPF programs write
//! a guest       cpuid
//! a VMM         command_line
//! Kubernetes    pods
//! a client      accept · alerts · authorization · query
//! the user      config · web_config · frames · incident
//! ```

#![forbid(unsafe_code)]

pub mod accept;
pub mod alerts;
pub mod authorization;
pub mod cgroup_path;
pub mod cgroupfs;
pub mod command_line;
pub mod config;
pub mod cpuid;
pub mod cpulist;
pub mod frames;
pub mod incident;
pub mod judgement;
pub mod maps;
pub mod pods;
pub mod proc_files;
pub mod query;
pub mod records;
pub mod stat;
pub mod trace_events;
pub mod web_config;

/// Takes any bytes, and panics if an invariant does not hold.
pub type Target = fn(&[u8]);

/// All targets by name, which is also the name of their module and corpus.
pub const TARGETS: [(&str, Target); 20] = [
    ("accept", accept::accept),
    ("alerts", alerts::alerts),
    ("authorization", authorization::authorization),
    ("cgroup_path", cgroup_path::cgroup_path),
    ("cgroupfs", cgroupfs::cgroupfs),
    ("command_line", command_line::command_line),
    ("config", config::config),
    ("cpuid", cpuid::cpuid),
    ("cpulist", cpulist::cpulist),
    ("frames", frames::frames),
    ("incident", incident::incident),
    ("judgement", judgement::judgement),
    ("maps", maps::maps),
    ("pods", pods::pods),
    ("proc_files", proc_files::proc_files),
    ("query", query::query),
    ("records", records::records),
    ("stat", stat::stat),
    ("trace_events", trace_events::trace_events),
    ("web_config", web_config::web_config),
];
