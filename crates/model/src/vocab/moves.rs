//! Moves of vCPUs from one pCPU to another.

use serde::{Serialize, Serializer};

use crate::vocab::topology::host::Distance;

/// How often vCPUs moved from one pCPU to another, by how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moves {
    /// In the order of [`Distance::ALL`].
    pub by_distance: [u64; Distance::ALL.len()],
    /// Where the host does not tell how far apart the two are.
    pub unknown: u64,
}

impl Serialize for Moves {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.by_name())
    }
}

impl Moves {
    /// Moves by the name of their distance; "unknown" only if there are any.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let known = Distance::ALL
            .map(Distance::name)
            .into_iter()
            .zip(self.by_distance);
        let unknown = (self.unknown > 0).then_some(("unknown", self.unknown));
        known.chain(unknown)
    }
}
