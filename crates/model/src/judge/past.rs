//! The findings of a past time, from those of its readings.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::snapshot::{Check, Finding, Snapshot, Vm};

/// The findings on the VMs in a time.
#[derive(Debug, Default)]
pub struct Past {
    vms: Vec<PastVm>,
    /// By pid and name, as in [`is_same`](crate::judge::interval::is_same).
    index: FxHashMap<(u32, Arc<str>), usize>,
    readings: u64,
}

/// A VM and its findings in a time.
#[derive(Debug, Default)]
pub struct PastVm {
    /// The last reading of the VM, without its findings.
    pub vm: Vm,
    /// The findings, one of each check.
    pub found: Vec<Found>,
    /// Whether the VM was judged at least once.
    is_judged: bool,
}

/// A finding in a time.
#[derive(Debug)]
pub struct Found {
    /// The finding with the highest excess of its check.
    pub finding: Finding,
    /// When findings of the check held.
    pub held: Held,
}

/// When a finding held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Time of the first reading that had it, ns since 1970.
    pub since_ns: u64,
    /// Time of the last reading that had it, ns since 1970.
    pub until_ns: u64,
    /// Whether the readings between them had it too.
    pub is_continuous: bool,
    /// Number of the last reading that had it.
    last: u64,
}

impl PastVm {
    /// Adds the findings of reading number `number`.
    fn add(&mut self, now: Vm, unix_ns: u64, number: u64) {
        self.is_judged |= now.findings.is_some();
        for finding in now.findings.iter().flat_map(|found| found.iter()) {
            let mut found = self.found.iter_mut();
            if let Some(known) = found.find(|known| known.finding.check == finding.check) {
                if finding.excess > known.finding.excess {
                    known.finding = finding.clone();
                }
                let held = &mut known.held;
                // A reading between two judgements repeats the findings of the first one.
                held.is_continuous &= held.last + 1 == number;
                (held.until_ns, held.last) = (unix_ns, number);
            } else {
                self.found.push(Found {
                    finding: finding.clone(),
                    held: Held {
                        since_ns: unix_ns,
                        until_ns: unix_ns,
                        is_continuous: true,
                        last: number,
                    },
                });
            }
        }
        self.vm = Vm {
            findings: None,
            ..now
        };
    }

    /// The VM with its findings; they are unknown if it was never judged.
    pub fn judged(&self) -> Vm {
        let findings = self.found.iter().map(|found| found.finding.clone());
        Vm {
            findings: self.is_judged.then(|| findings.collect()),
            ..self.vm.clone()
        }
    }

    /// Whether the VM was judged at least once, so that its findings are known.
    pub fn is_judged(&self) -> bool {
        self.is_judged
    }

    /// When the finding of a check held.
    pub fn held(&self, check: Check) -> Option<Held> {
        let mut found = self.found.iter();
        let found = found.find(|found| found.finding.check == check);
        found.map(|found| found.held)
    }
}

impl Past {
    /// Adds a reading; readings are added in their order.
    pub fn add(&mut self, snapshot: Snapshot, unix_ns: u64) {
        self.readings += 1;
        for vm in snapshot.vms {
            let key = (vm.pid, Arc::clone(&vm.vm));
            let vms = &mut self.vms;
            let at = *self.index.entry(key).or_insert_with(|| {
                vms.push(PastVm::default());
                vms.len() - 1
            });
            if let Some(past) = vms.get_mut(at) {
                past.add(vm, unix_ns, self.readings);
            }
        }
    }

    /// The same VM in the readings so far.
    pub fn of(&self, vm: &Vm) -> Option<&PastVm> {
        let key = (vm.pid, Arc::clone(&vm.vm));
        self.index.get(&key).and_then(|at| self.vms.get(*at))
    }

    /// The VMs in the order in which they were seen first.
    pub fn vms(&self) -> &[PastVm] {
        &self.vms
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Past;
    use crate::snapshot::{API_VERSION, Check, Finding, Node, Snapshot, Vm};

    /// A reading of two VMs, of which the first one has these findings.
    fn reading(found: &[(Check, f64)]) -> Snapshot {
        let found = found.iter();
        let found = found.map(|(check, excess)| Finding::new(*check, format!("{excess}"), *excess));
        let vm = |pid, findings| Vm {
            pid,
            vm: "vm".into(),
            findings,
            ..Vm::default()
        };
        Snapshot {
            api_version: API_VERSION,
            kind: "Snapshot",
            time: String::new(),
            clock_ns: 0,
            reading_age_ns: Some(0),
            node: Node {
                name: "node".to_owned(),
                kernel: "6.12".to_owned(),
                cpus: 4,
                cgroup: "v2",
            },
            host: Arc::default(),
            sources: Vec::new(),
            dropped: Vec::new(),
            maps: Vec::new(),
            programs: Vec::new(),
            vms: vec![vm(7, Some(found.collect())), vm(8, None)],
        }
    }

    #[test]
    fn findings_of_a_time_are_the_worst_ones_with_their_times() {
        let (capped, starved) = (Check::QuotaCapped, Check::VcpuStarved);
        let mut past = Past::default();
        let readings: [&[(Check, f64)]; 5] = [
            &[],
            &[(capped, 2.0)],
            &[(capped, 3.0), (starved, 1.5)],
            &[(capped, 1.0)],
            &[(starved, 1.2)],
        ];
        for (at, found) in (100..).zip(readings) {
            past.add(reading(found), at);
        }
        let [first, second] = past.vms() else {
            panic!("two VMs");
        };
        let judged = first.judged();
        let found = judged.findings.expect("it was judged");
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.check, &*one.evidence))
            .collect();
        assert_eq!(found, [(capped, "3"), (starved, "1.5")]);
        let held = |check| {
            let held = first.held(check).expect("it held");
            (held.since_ns, held.until_ns, held.is_continuous)
        };
        assert_eq!(held(capped), (101, 103, true));
        assert_eq!(held(starved), (102, 104, false));
        assert_eq!(first.held(Check::MemoryKept), None);
        assert_eq!(second.judged().findings, None);
    }
}
