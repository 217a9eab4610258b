//! Synthetic hosts for tests.

use crate::vocab::cpuset::CpuSet;
use crate::vocab::topology::host::{CpuFact, HostTopology};

/// How Linux numbers the threads of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Siblings {
    /// 0-1, 2-3 …
    Adjacent,
    /// 0 and N, 1 and N + 1 …, of N cores: firmware lists the first threads first.
    Apart,
}

/// A host; each count is per unit of the level above. A die is a NUMA node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) packages: u32,
    pub(crate) dies: u32,
    pub(crate) llcs: u32,
    pub(crate) cores: u32,
    pub(crate) threads: u32,
    pub(crate) siblings: Siblings,
}

impl Machine {
    pub(crate) fn cores(self) -> u32 {
        self.packages * self.dies * self.llcs * self.cores
    }

    pub(crate) fn cpus(self) -> u32 {
        self.cores() * self.threads
    }

    /// CPU number of a thread of a core; cores are numbered across the host.
    pub(crate) fn cpu(self, core: u32, thread: u32) -> u32 {
        match self.siblings {
            Siblings::Adjacent => core * self.threads + thread,
            Siblings::Apart => thread * self.cores() + core,
        }
    }

    /// Core of a CPU; cores are numbered across the host.
    pub(crate) fn core(self, cpu: u32) -> u32 {
        match self.siblings {
            Siblings::Adjacent => cpu / self.threads,
            Siblings::Apart => cpu % self.cores(),
        }
    }

    /// sysfs facts while only `online` is online.
    pub(crate) fn facts(self, online: &CpuSet) -> Vec<CpuFact> {
        let (llc, die) = (self.cores, self.llcs * self.cores);
        let package = self.dies * die;
        let near = |cpu: u32, cores: u32| -> CpuSet {
            let mates = |other: &u32| self.core(*other) / cores == self.core(cpu) / cores;
            online.iter().filter(mates).collect()
        };
        let fact = |cpu| CpuFact {
            cpu,
            package: Some(self.core(cpu) / package),
            die_cpus: Some(near(cpu, die)),
            core_cpus: Some(near(cpu, 1)),
            llc_cpus: Some(near(cpu, llc)),
            node: Some(self.core(cpu) / die),
        };
        online.iter().map(fact).collect()
    }

    /// The host with all CPUs online.
    pub(crate) fn host(self) -> HostTopology {
        let online = (0..self.cpus()).collect();
        HostTopology::new(&self.facts(&online), &online)
    }
}

/// Hosts of 1 to 512 CPUs, each with both numberings.
pub(crate) fn machines() -> Vec<Machine> {
    let shapes = [
        (1, 1, 1, 1, 1),
        (1, 1, 1, 1, 2),
        (1, 1, 1, 2, 1),
        (1, 1, 1, 4, 2),
        (2, 1, 1, 8, 2),
        (1, 2, 1, 6, 2),
        (1, 1, 4, 8, 2),
        (2, 4, 2, 8, 1),
        (2, 2, 2, 16, 2),
        (2, 4, 4, 8, 2),
    ];
    let numbered = |(packages, dies, llcs, cores, threads)| {
        [Siblings::Adjacent, Siblings::Apart].map(|siblings| Machine {
            packages,
            dies,
            llcs,
            cores,
            threads,
            siblings,
        })
    };
    shapes.into_iter().flat_map(numbered).collect()
}
