//! The host's topology as a list of its CPUs, in JSON and in recordings.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{HostPlace, HostTopology};
use crate::vocab::cpuset::MAX_CPU;

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Host {
    /// The online CPUs, lowest first.
    cpus: Vec<Place>,
}

/// An online CPU; see [`HostPlace`].
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Place {
    cpu: u32,
    package: Option<u32>,
    die: Option<u32>,
    node: Option<u32>,
    llc: Option<u32>,
    core: Option<u32>,
    thread: Option<u32>,
}

impl Serialize for HostTopology {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cpus = (0..).zip(&self.places).filter_map(|(cpu, place)| {
            let place = (*place)?;
            Some(Place {
                cpu,
                package: place.package,
                die: place.die,
                node: place.node,
                llc: place.llc,
                core: place.core,
                thread: place.thread,
            })
        });
        let cpus = cpus.collect();
        Host { cpus }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HostTopology {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Host { cpus } = Host::deserialize(deserializer)?;
        // The places are indexed by CPU.
        if cpus.iter().any(|one| one.cpu > MAX_CPU) {
            return Err(D::Error::custom("too high a CPU number"));
        }
        let places = cpus.into_iter().map(|one| {
            let place = HostPlace {
                package: one.package,
                die: one.die,
                node: one.node,
                llc: one.llc,
                core: one.core,
                thread: one.thread,
            };
            (one.cpu, place)
        });
        Ok(Self::placed(places))
    }
}
