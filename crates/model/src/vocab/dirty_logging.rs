//! KVM's log of the pages that a guest writes.

use serde::{Deserialize, Serialize};

/// Whether KVM logs which pages the guest writes, as during a live migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DirtyLogging {
    /// KVM logs the writes to at least half of the guest's RAM.
    pub enabled: bool,
    /// Time since the first reading of this agent in which it did so, ns; `None` if it does
    /// not. The log may have begun up to one reading earlier, or before the agent.
    pub seen_ns: Option<u64>,
}
