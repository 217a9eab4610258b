//! The dashboards, a file each.

mod agent;
mod fleet;
mod memory;
mod node;
mod pod;
mod throttling;
mod topology;

use crate::dashboard::Dashboard;

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
