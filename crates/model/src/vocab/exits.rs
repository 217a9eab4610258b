//! What KVM counts of a vCPU.

use serde::{Serialize, Serializer};

/// Time a vCPU spent polling for a wake-up, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct HaltPoll {
    /// A wake-up came while it polled.
    pub success: u64,
    /// None came.
    pub fail: u64,
}

/// VM exits by class; the classes add up to all exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExitCounts(pub [u64; 7]);

impl ExitCounts {
    /// The names of the classes, see [`crate::facts::Exits`].
    pub const KINDS: [&'static str; 7] = [
        "io",
        "mmio",
        "halt",
        "interrupt",
        "interrupt_window",
        "hypercall",
        "other",
    ];

    /// The classes by name.
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Self::KINDS.into_iter().zip(self.0)
    }

    /// Exits for HLT.
    pub fn halt(&self) -> u64 {
        self.0[2]
    }

    /// Exits of no class: EPT faults, MSRs, CPUID …
    pub fn other(&self) -> u64 {
        self.0[6]
    }

    /// The classes of two vCPUs together.
    #[must_use]
    pub fn plus(mut self, more: Self) -> Self {
        for (sum, count) in self.0.iter_mut().zip(more.0) {
            *sum = sum.saturating_add(count);
        }
        self
    }
}

impl ExitCounts {
    /// The exits that came after those of `then`.
    #[must_use]
    pub fn since(mut self, then: Self) -> Self {
        for (count, before) in self.0.iter_mut().zip(then.0) {
            *count = count.saturating_sub(before);
        }
        self
    }
}

impl Serialize for ExitCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.by_kind())
    }
}
