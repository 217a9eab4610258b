//! Operations that discard or return guest RAM.

use serde::{Deserialize, Serialize};

/// An operation on guest RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Discard {
    /// The balloon took memory from the guest.
    Inflate,
    /// The balloon gave memory back to the guest.
    Deflate,
    /// The guest reported free pages.
    Report,
    /// Memory unplug, migration, reset.
    Other,
}

impl Discard {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Inflate, Self::Deflate, Self::Report, Self::Other];

    /// Name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inflate => "inflate",
            Self::Deflate => "deflate",
            Self::Report => "report",
            Self::Other => "other",
        }
    }
}

/// Totals of one kind of operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DiscardSum {
    /// Number of operations.
    pub events: u64,
    /// Memory affected, bytes.
    pub bytes: u64,
    /// Time that the VMM spent on it, ns: time in the kernel, and for single pages also
    /// the time between two pages.
    pub ns: u64,
}

/// Totals of the operations on a VM's RAM, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Discards {
    /// The balloon took memory from the guest.
    pub inflate: DiscardSum,
    /// The balloon gave memory back to the guest.
    pub deflate: DiscardSum,
    /// The guest reported free pages.
    pub report: DiscardSum,
    /// Memory unplug, migration, reset.
    pub other: DiscardSum,
}

impl Discards {
    /// The operations that a balloon performs: inflate, deflate and other.
    pub fn balloon(&self) -> [(Discard, DiscardSum); 3] {
        [
            (Discard::Inflate, self.inflate),
            (Discard::Deflate, self.deflate),
            (Discard::Other, self.other),
        ]
    }

    /// Time spent on releasing memory to the host, ns.
    pub fn release_ns(&self) -> u64 {
        [self.inflate, self.report, self.other]
            .iter()
            .fold(0, |sum, one| one.ns.saturating_add(sum))
    }

    /// Number of operations of all kinds.
    pub fn events(&self) -> u64 {
        let all = [self.inflate, self.deflate, self.report, self.other];
        all.iter()
            .fold(0, |sum, one| one.events.saturating_add(sum))
    }
}
