//! The dashboards, one file each.

mod agent;
mod fleet;
mod memory;
mod node;
mod pod;
mod throttling;
mod topology;

use crate::dashboard::{Dashboard, Target, target};

/// Memory that the selected VMs report free, and refaults of it.
const REPORTED_AND_REFAULTED: &[Target] = &[
    target(
        "sum(rate(virtlens_free_page_reported_bytes_total{@sel}[$__rate_interval]))",
        "reported",
    ),
    target(
        "sum(rate(virtlens_memory_refault_bytes_total{@sel}[$__rate_interval]))",
        "refaulted",
    ),
];

/// All dashboards.
pub const DASHBOARDS: &[Dashboard] = &[
    fleet::FLEET,
    node::NODE,
    pod::POD,
    throttling::THROTTLING,
    topology::TOPOLOGY,
    memory::MEMORY,
    agent::AGENT,
];
