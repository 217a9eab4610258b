//! What is done with the RAM of guests.

use serde::Serialize;

/// What was done with a guest's RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Discard {
    /// The balloon took it from the guest.
    Inflate,
    /// The balloon gave it back.
    Deflate,
    /// The guest told that it is free.
    Report,
    /// Unplugged, migrated away, reset.
    Other,
}

impl Discard {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Inflate, Self::Deflate, Self::Report, Self::Other];

    /// The name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inflate => "inflate",
            Self::Deflate => "deflate",
            Self::Report => "report",
            Self::Other => "other",
        }
    }
}

/// What was done so far, of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DiscardSum {
    /// How often.
    pub events: u64,
    /// How much, bytes.
    pub bytes: u64,
    /// Time that the VMM spent for it, ns: in the kernel, and of single pages also
    /// from one to the next.
    pub ns: u64,
}

/// What was done with a VM's RAM, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Discards {
    /// The balloon took it.
    pub inflate: DiscardSum,
    /// The balloon gave it back.
    pub deflate: DiscardSum,
    /// The guest reported it free.
    pub report: DiscardSum,
    /// Unplugged, migrated away, reset.
    pub other: DiscardSum,
}

impl Discards {
    /// What a balloon does: taking, giving back, and what is neither.
    pub fn balloon(&self) -> [(Discard, DiscardSum); 3] {
        [
            (Discard::Inflate, self.inflate),
            (Discard::Deflate, self.deflate),
            (Discard::Other, self.other),
        ]
    }

    /// Time spent on giving memory back to the host, ns.
    pub fn release_ns(&self) -> u64 {
        [self.inflate, self.report, self.other]
            .iter()
            .fold(0, |sum, one| one.ns.saturating_add(sum))
    }

    /// How often something was done with it.
    pub fn events(&self) -> u64 {
        let all = [self.inflate, self.deflate, self.report, self.other];
        all.iter()
            .fold(0, |sum, one| one.events.saturating_add(sum))
    }
}
