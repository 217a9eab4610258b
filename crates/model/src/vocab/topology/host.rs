//! The host's CPUs and the cores, last-level caches and NUMA nodes that they share.
//!
//! Numbers are unique on the host. Packages and nodes have the kernel's numbers. A core,
//! a die and a last-level cache have the number of their lowest online CPU: the kernel's
//! `core_id` is unique only inside its package and has gaps, and a dense index would
//! renumber all later cores when a core goes offline. A reader of sysfs also looks for
//! the lowest CPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::vocab::cpuset::CpuSet;

mod listed;

/// sysfs facts of one CPU, uninterpreted. `None`: sysfs lacks the value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuFact {
    /// The CPU.
    pub cpu: u32,
    /// Its package (`topology/physical_package_id`).
    pub package: Option<u32>,
    /// The CPUs of its die (`topology/die_cpus_list`).
    pub die_cpus: Option<CpuSet>,
    /// The CPUs of its core including itself (`topology/core_cpus_list`).
    pub core_cpus: Option<CpuSet>,
    /// The CPUs that share its level 3 cache (`cache/index3/shared_cpu_list`); missing in
    /// many VMs.
    pub llc_cpus: Option<CpuSet>,
    /// Its NUMA node (`/sys/devices/system/node/nodeN/cpulist`); `None` on a kernel
    /// without NUMA.
    pub node: Option<u32>,
}

/// Position of an online CPU in the host's topology. `None`: unknown to the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct HostPlace {
    /// Its package, as the kernel numbers it.
    pub package: Option<u32>,
    /// Its die: the lowest online CPU of the die.
    pub die: Option<u32>,
    /// Its NUMA node, as the kernel numbers it.
    pub node: Option<u32>,
    /// Its last-level cache: the lowest online CPU that shares the cache.
    pub llc: Option<u32>,
    /// Its core: the lowest online CPU of the core.
    pub core: Option<u32>,
    /// Its rank among the online CPUs of its core, from 0.
    pub thread: Option<u32>,
}

/// Distance between two CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distance {
    /// On the same core.
    Smt,
    /// On another core of the same last-level cache.
    Core,
    /// On another last-level cache of the same NUMA node.
    Llc,
    /// On another NUMA node.
    Numa,
}

impl Distance {
    /// All distances, nearest first.
    pub const ALL: [Self; 4] = [Self::Smt, Self::Core, Self::Llc, Self::Numa];

    /// Name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smt => "smt",
            Self::Core => "core",
            Self::Llc => "llc",
            Self::Numa => "numa",
        }
    }
}

/// The online CPUs of a host and their positions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostTopology {
    online: CpuSet,
    /// Indexed by CPU; `None` if the CPU is offline.
    places: Vec<Option<HostPlace>>,
    cores: BTreeMap<u32, Vec<u32>>,
    llcs: BTreeMap<u32, CpuSet>,
    nodes: BTreeMap<u32, CpuSet>,
}

impl HostTopology {
    /// Builds the topology from sysfs facts. Facts of offline CPUs are ignored; an online
    /// CPU without facts has an empty place.
    ///
    /// A cache that spans several NUMA nodes counts as one cache per node. With sub-NUMA
    /// clustering, Intel's CPUID and thus sysfs report one cache per package, which the
    /// scheduler does not treat as one either (`match_llc`, arch/x86/kernel/smpboot.c,
    /// v6.12).
    pub fn new(facts: &[CpuFact], online: &CpuSet) -> Self {
        let unknown = |cpu| online.contains(cpu).then(HostPlace::default);
        let mut host = Self {
            online: online.clone(),
            places: online
                .iter()
                .last()
                .map_or_else(Vec::new, |last| (0..=last).map(unknown).collect()),
            ..Self::default()
        };
        let facts = || facts.iter().filter(|fact| online.contains(fact.cpu));
        for fact in facts() {
            if let Some(node) = fact.node {
                host.nodes.entry(node).or_default().insert(fact.cpu);
            }
        }
        for fact in facts() {
            let near = fact.node.and_then(|node| host.nodes.get(&node));
            let place = HostPlace {
                package: fact.package,
                die: lowest(fact.die_cpus.as_ref(), online, fact.cpu),
                node: fact.node,
                llc: lowest(fact.llc_cpus.as_ref(), near.unwrap_or(online), fact.cpu),
                core: lowest(fact.core_cpus.as_ref(), online, fact.cpu),
                thread: None,
            };
            if let Some(known) = host.places.get_mut(fact.cpu as usize) {
                *known = Some(place);
            }
        }
        host.group();
        host
    }

    /// The topology of online CPUs with known places.
    fn placed(cpus: impl Iterator<Item = (u32, HostPlace)>) -> Self {
        let mut host = Self::default();
        for (cpu, place) in cpus {
            let at = cpu as usize;
            if host.places.len() <= at {
                host.places.resize(at + 1, None);
            }
            if let Some(known) = host.places.get_mut(at) {
                *known = Some(place);
            }
            host.online.insert(cpu);
            if let Some(node) = place.node {
                host.nodes.entry(node).or_default().insert(cpu);
            }
        }
        host.group();
        host
    }

    /// Fills the levels from the places, and the rank of each CPU in its core.
    fn group(&mut self) {
        for (cpu, place) in (0u32..).zip(&mut self.places) {
            let Some(place) = place else { continue };
            if let Some(llc) = place.llc {
                self.llcs.entry(llc).or_default().insert(cpu);
            }
            if let Some(core) = place.core {
                let siblings = self.cores.entry(core).or_default();
                place.thread = u32::try_from(siblings.len()).ok();
                siblings.push(cpu);
            }
        }
    }

    /// The online CPUs.
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// Position of a CPU; `None` if it is not online.
    pub fn place(&self, cpu: u32) -> Option<&HostPlace> {
        self.places.get(cpu as usize)?.as_ref()
    }

    /// The online CPUs of a CPU's core including itself, lowest first; empty if its core
    /// is unknown.
    pub fn siblings(&self, cpu: u32) -> &[u32] {
        let core = self.place(cpu).and_then(|place| place.core);
        core.map_or(&[], |core| self.core_cpus(core))
    }

    /// The online CPUs of a core ([`HostPlace::core`]), lowest first.
    pub fn core_cpus(&self, core: u32) -> &[u32] {
        self.cores.get(&core).map_or(&[], Vec::as_slice)
    }

    /// The known cores: number and online CPUs.
    pub fn cores(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.cores.iter().map(|(core, cpus)| (*core, &cpus[..]))
    }

    /// The known last-level caches: number and online CPUs.
    pub fn llcs(&self) -> impl Iterator<Item = (u32, &CpuSet)> {
        self.llcs.iter().map(|(llc, cpus)| (*llc, cpus))
    }

    /// The NUMA nodes that have online CPUs: number and CPUs.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &CpuSet)> {
        self.nodes.iter().map(|(node, cpus)| (*node, cpus))
    }

    /// The online CPUs of a NUMA node, if it has any.
    pub fn node_cpus(&self, node: u32) -> Option<&CpuSet> {
        self.nodes.get(&node)
    }

    /// The online CPUs that share a last-level cache ([`HostPlace::llc`]).
    pub fn llc_cpus(&self, llc: u32) -> Option<&CpuSet> {
        self.llcs.get(&llc)
    }

    /// Whether every online CPU's core is known.
    pub fn knows_cores(&self) -> bool {
        let mut places = self.places.iter().flatten();
        places.all(|place| place.core.is_some())
    }

    /// Number of online CPUs of the largest core: 1 without SMT or with SMT off; `None`
    /// if no core is known.
    pub fn threads_per_core(&self) -> Option<usize> {
        self.cores.values().map(Vec::len).max()
    }

    /// Distance between two online CPUs, [`Distance::Smt`] for a CPU and itself; `None`
    /// if the host's topology is incomplete.
    pub fn distance(&self, from: u32, to: u32) -> Option<Distance> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        if from.core? == to.core? {
            return Some(Distance::Smt);
        }
        if from.llc.is_some() && from.llc == to.llc {
            return Some(Distance::Core);
        }
        if from.node? != to.node? {
            return Some(Distance::Numa);
        }
        from.llc.and(to.llc).map(|_| Distance::Llc)
    }
}

/// The lowest CPU of `cpus` that is also in `among`: the number of a level.
fn lowest(cpus: Option<&CpuSet>, among: &CpuSet, cpu: u32) -> Option<u32> {
    let lowest = cpus?.iter().find(|other| among.contains(*other));
    // A set without its own CPU is stale: the CPU went offline and came back.
    cpus?.contains(cpu).then_some(lowest).flatten()
}

#[cfg(test)]
mod tests;
