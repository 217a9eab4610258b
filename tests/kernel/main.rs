//! Runs the agent on the running kernel, as root, against real KVM guests, and compares
//! its values with the kernel's own files.
//!
//! Tests here run one after another (`--test-threads=1`, as `make test` does): they
//! measure CPU time on a machine that may have two CPUs.

#![expect(unsafe_code, reason = "closures between fork and exec")]

mod alerts;
mod api;
mod broken;
mod capabilities;
mod children;
mod co_stop;
mod commands;
mod conservation;
mod degraded;
mod doctor;
mod documented;
mod find;
mod guest_memory;
mod identity;
mod idle;
mod incidents;
mod interrupts;
mod kata;
mod kata_ctr;
mod kvm_stats;
mod levels;
mod lifecycle;
mod loaders;
mod missing_types;
mod mounts;
mod moved;
mod names;
mod placement;
mod process_identity;
mod prometheus;
mod ready;
mod recording;
mod refused;
mod roles;
mod shapes;
mod slept;
mod timer;
mod times;
mod top;
mod trace;
mod walk;
