//! Agents that replace one another, and what Prometheus has scraped from them.

use std::collections::BTreeMap;

use proptest::prelude::prop_assert;
use proptest::test_runner::TestCaseError;
use virtlens_model::facts::{Facts, ProcessFact};
use virtlens_model::fleet::{Fleet, Kept};
use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::{Owner, VmKey};

use crate::host::{Host, VM_PODS};
use crate::scrape::{self, Counters, label, sum_ns};

/// Limit on changes of the watched cgroups in one reading, as in the agent.
const ROUNDS: usize = 4;

pub(crate) struct Agents {
    linger_ns: u64,
    fleet: Fleet,
    is_first_reading: bool,
    /// The state that each agent hands over to the next.
    kept: BTreeMap<VmKey, String>,
    seen: Counters,
    now_ns: u64,
}

impl Agents {
    pub(crate) fn new(linger_ns: u64) -> Self {
        Self {
            linger_ns,
            fleet: Fleet::new(linger_ns),
            is_first_reading: true,
            kept: BTreeMap::new(),
            seen: Counters::new(),
            now_ns: 0,
        }
    }

    pub(crate) fn replace(&mut self) {
        self.fleet = Fleet::new(self.linger_ns);
        self.is_first_reading = true;
    }

    pub(crate) fn read(&mut self, host: &mut Host) -> Result<(), TestCaseError> {
        self.now_ns += 1;
        let is_settled = host.is_settled();
        let mut facts = host.facts();
        let is_first = std::mem::take(&mut self.is_first_reading);
        if is_first {
            // A first reading is repeated until no thread retires while it is taken.
            facts = host.facts();
            self.recall(&facts);
        }
        for _ in 0..ROUNDS {
            let mut unknown: Vec<VmKey> = self.fleet.unknown_vms(&facts).into_iter().collect();
            unknown.sort_unstable();
            for vm in unknown {
                self.fleet.admit(vm, &qemu(host.admit(vm)), &facts);
            }
            self.fleet.follow(&facts, |_| None);
            if !host.watch(self.fleet.watched(), self.fleet.levels()) {
                break;
            }
            facts = host.facts();
        }
        let (vms, gone) = self.fleet.account(&facts, self.now_ns);
        for (vm, kept) in self.fleet.unsaved() {
            let text = serde_json::to_string(&kept).expect("it is plain data");
            self.kept.insert(vm, text);
        }
        self.fleet.recycle(vms.clone());
        host.forget(&gone);
        for owner in &gone {
            if let Owner::Vm(vm) = owner {
                self.kept.remove(vm);
            }
        }
        self.look(host, vms, is_first, is_settled || is_first)
    }

    fn recall(&mut self, facts: &Facts) {
        let of = |text: &String| serde_json::from_str::<Kept>(text).expect("it was written");
        let kept = self.kept.iter().map(|(vm, text)| (*vm, of(text)));
        self.fleet.recall(kept.collect(), facts, self.now_ns);
    }

    fn look(
        &mut self,
        host: &mut Host,
        vms: Vec<Vm>,
        is_first: bool,
        is_settled: bool,
    ) -> Result<(), TestCaseError> {
        let names: Vec<String> = vms.iter().map(name_of).collect();
        let counters = scrape::counters(vms);
        let is_there = |series: &str| {
            let vm = label(series, "vm");
            vm.is_some_and(|vm| names.iter().any(|name| name == vm))
        };
        // A VM that was forgotten counts as a new VM when it starts again.
        let removed = std::mem::take(&mut host.cgroup_removed);
        let begins_anew = |series: &str| is_first && may_begin_anew(series, removed);
        self.seen
            .retain(|series, _| is_there(series) && !begins_anew(series));
        for (series, value) in counters.clone() {
            let before = self.seen.insert(series.clone(), value).unwrap_or(0.0);
            prop_assert!(value >= before, "{series} fell from {before} to {value}");
        }
        if self.linger_ns == u64::MAX {
            for (pod, used_ns) in host.used_ns().into_iter().enumerate() {
                look_at_pod(&counters, pod, used_ns, is_settled)?;
            }
        }
        Ok(())
    }
}

/// Whether a counter may reset in the first reading of an agent. This holds for counters
/// of a limit whose cgroup was `removed` since the previous agent read it, and for CPU
/// time by role below a limit, because a thread that moves takes its time along.
fn may_begin_anew(series: &str, removed: bool) -> bool {
    removed && series.starts_with("virtlens_cfs_")
        || series.starts_with("virtlens_cfs_quota_used_seconds_total")
}

/// Checks that the roles, with the time without one, add up to the CPU time of the pod.
fn look_at_pod(
    counters: &Counters,
    pod: usize,
    used_ns: u64,
    is_settled: bool,
) -> Result<(), TestCaseError> {
    let of_pod = (0..VM_PODS.len()).filter(|vm| VM_PODS[*vm] == pod);
    let family = "virtlens_cpu_seconds_total";
    let shown_ns: u64 = of_pod
        .map(|vm| sum_ns(counters, family, &format!("vm{vm}")))
        .sum();
    prop_assert!(
        shown_ns == used_ns || !is_settled && shown_ns < used_ns,
        "pod {pod}: {shown_ns} ns are shown of {used_ns}"
    );
    Ok(())
}

fn name_of(vm: &Vm) -> String {
    vm.vm.to_string()
}

fn qemu(number: usize) -> ProcessFact {
    let name = format!("guest=vm{number}");
    let args = ["qemu-system-x86_64", "-name", &name];
    ProcessFact {
        exe: Some("/usr/bin/qemu-system-x86_64".to_owned()),
        args: args.map(str::to_owned).to_vec(),
        ..ProcessFact::default()
    }
}
