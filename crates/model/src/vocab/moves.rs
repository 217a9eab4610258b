//! Migrations of vCPUs between pCPUs.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::vocab::topology::host::Distance;

/// Number of vCPU migrations between pCPUs, by distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moves {
    /// In the order of [`Distance::ALL`].
    pub by_distance: [u64; Distance::ALL.len()],
    /// Migrations whose distance the host's topology leaves unknown.
    pub unknown: u64,
}

impl Serialize for Moves {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.by_name())
    }
}

impl<'de> Deserialize<'de> for Moves {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let by_name = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let count = |name: &str| by_name.get(name).copied().unwrap_or(0);
        Ok(Self {
            by_distance: Distance::ALL.map(|distance| count(distance.name())),
            unknown: count("unknown"),
        })
    }
}

impl Moves {
    /// Migrations by the name of their distance; "unknown" only if nonzero.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let known = Distance::ALL
            .map(Distance::name)
            .into_iter()
            .zip(self.by_distance);
        let unknown = (self.unknown > 0).then_some(("unknown", self.unknown));
        known.chain(unknown)
    }
}
