//! Several agents one after another show the same values as a single agent.

use std::collections::BTreeMap;

use proptest::prelude::{
    Just, Strategy, TestCaseError, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

use super::{POD, facts, level, read, retired, switches, thread, vcpu, vm};
use crate::facts::{EndedVcpuFact, Facts, RetiredFact, ThreadFact};
use crate::fleet::kept::Kept;
use crate::fleet::registry::Fleet;
use crate::snapshot::Vm;
use crate::vocab::{KvmCounters, KvmValues, Owner, VmKey};

/// An event on a host whose VM always has the same name.
#[derive(Debug, Clone)]
enum Step {
    Run(usize, u64),
    Born,
    Ends(usize),
    VmStartsAgain,
    Reading,
    AnotherAgent,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0usize..8, 1u64..1_000_000).prop_map(|(who, ns)| Step::Run(who, ns)),
        2 => Just(Step::Born),
        2 => (1usize..8).prop_map(Step::Ends),
        1 => Just(Step::VmStartsAgain),
        5 => Just(Step::Reading),
        2 => Just(Step::AnotherAgent),
    ];
    proptest::collection::vec(step, 1..120)
}

/// The host: the counters of its kernel, whether or not an agent runs.
struct Host {
    vm: VmKey,
    living: Vec<ThreadFact>,
    ended: Vec<RetiredFact>,
    ended_vcpus: Vec<EndedVcpuFact>,
    next_tid: u32,
    /// CPU time of threads while an agent knew the VM.
    used_ns: u64,
    /// Pressure of the pod's cgroup.
    stalled_ns: u64,
    /// CPU time of the present VM's threads, which may not be known to any agent.
    new_ns: u64,
    is_known: bool,
}

impl Host {
    fn new() -> Self {
        Self {
            vm: vm(100),
            living: vec![vcpu(vm(100), 100, 0, 0)],
            ended: Vec::new(),
            ended_vcpus: Vec::new(),
            next_tid: 101,
            used_ns: 0,
            stalled_ns: 0,
            new_ns: 0,
            is_known: false,
        }
    }

    fn run(&mut self, who: usize, ns: u64) {
        let who = who % self.living.len();
        self.stalled_ns += ns;
        let thread = &mut self.living[who];
        thread.cpu_ns += ns;
        thread.switches = Some(switches(thread.cpu_ns));
        if let Some(stats) = thread.vcpu.as_mut().and_then(|vcpu| vcpu.stats.as_mut()) {
            // An exit outside the known classes.
            let mut exits = stats.counters.exits().unwrap_or_default();
            exits.0[6] += ns;
            stats.counters = KvmCounters::from(KvmValues {
                exits: Some(exits),
                ..KvmValues::from(stats.counters)
            });
        }
        if matches!(thread.owner, Owner::Vm(_)) {
            self.new_ns += ns;
        } else {
            self.used_ns += ns;
        }
    }

    fn born(&mut self) {
        // The pod's other processes are known once its first VM is known.
        let of_pod = self.next_tid.is_multiple_of(3) && self.is_known;
        let (owner, name) = if of_pod {
            (Owner::Pod(POD), "helper")
        } else {
            (Owner::Vm(self.vm), "IO io0")
        };
        self.living.push(thread(owner, self.next_tid, name, 0));
        self.next_tid += 1;
    }

    fn ends(&mut self, who: usize) {
        if self.living.len() > 1 {
            let gone = self.living.remove(1 + who % (self.living.len() - 1));
            self.retire(&gone);
        }
    }

    fn retire(&mut self, gone: &ThreadFact) {
        let known = self.is_known || matches!(gone.owner, Owner::Pod(_));
        if known {
            let mut sum = retired(gone.owner, gone.comm.to_string().as_str(), gone.cpu_ns);
            sum.class.cgroup = Some(gone.cgroup);
            sum.class.vcpu_id = gone.vcpu.as_ref().map(|vcpu| vcpu.id);
            self.ended.push(sum);
            self.ended_vcpus.extend(ended_vcpu(gone));
        } else {
            self.new_ns -= gone.cpu_ns;
        }
    }

    fn start_again(&mut self) {
        let is_own = |thread: &ThreadFact| matches!(thread.owner, Owner::Vm(_));
        let (own, others) = self.living.drain(..).partition(is_own);
        let own: Vec<ThreadFact> = own;
        self.living = others;
        for gone in &own {
            self.retire(gone);
        }
        if self.is_known {
            self.used_ns += self.new_ns;
        }
        self.new_ns = 0;
        self.is_known = false;
        self.vm = vm(self.next_tid);
        // Its kvm_vcpu has the address of the former one.
        let first = vcpu(self.vm, self.next_tid, 0, 0);
        self.living.insert(0, first);
        self.next_tid += 1;
    }

    fn facts(&self) -> Facts {
        Facts {
            ended_vcpus: self.ended_vcpus.clone(),
            levels: [(POD, level(self.stalled_ns))].into_iter().collect(),
            ..facts(self.living.clone(), self.ended.clone())
        }
    }
}

fn ended_vcpu(gone: &ThreadFact) -> Option<EndedVcpuFact> {
    let (Owner::Vm(vm), Some(vcpu)) = (gone.owner, &gone.vcpu) else {
        return None;
    };
    Some(EndedVcpuFact {
        vm,
        id: vcpu.id,
        stats: vcpu.stats?,
    })
}

/// An agent, the state that it saves for the next, and the values seen from all agents.
struct Agents {
    fleet: Fleet,
    is_first_reading: bool,
    kept: BTreeMap<VmKey, String>,
    seen: BTreeMap<String, u64>,
}

impl Agents {
    fn new() -> Self {
        Self {
            fleet: Fleet::new(u64::MAX),
            is_first_reading: true,
            kept: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    fn replace(&mut self) {
        self.fleet = Fleet::new(u64::MAX);
        self.is_first_reading = true;
    }

    fn read(&mut self, host: &mut Host) -> Vm {
        let facts = host.facts();
        if std::mem::take(&mut self.is_first_reading) {
            let of = |text: &String| serde_json::from_str::<Kept>(text).expect("it was written");
            let kept = self.kept.iter().map(|(vm, text)| (*vm, of(text)));
            self.fleet.recall(kept.collect(), &facts, 0);
        }
        let (mut vms, gone) = read(&mut self.fleet, &facts, "web", 0);
        for (vm, kept) in self.fleet.unsaved() {
            let text = serde_json::to_string(&kept).expect("it is plain data");
            self.kept.insert(vm, text);
            self.fleet.saved(vm, &kept);
        }
        for owner in gone {
            host.ended.retain(|sum| sum.class.owner != owner);
            if let Owner::Vm(vm) = owner {
                host.ended_vcpus.retain(|ended| ended.vm != vm);
                self.kept.remove(&vm);
            }
        }
        host.is_known = true;
        assert_eq!(vms.len(), 1, "one takes over from the other: {vms:?}");
        vms.remove(0)
    }

    fn note(&mut self, series: &str, value: u64) -> Result<(), TestCaseError> {
        let before = self.seen.insert(series.to_owned(), value).unwrap_or(0);
        prop_assert!(value >= before, "{series} fell from {before} to {value}");
        Ok(())
    }

    /// Checks that no counter has decreased.
    fn note_all(&mut self, shown: &Vm) -> Result<(), TestCaseError> {
        for role in &shown.roles {
            self.note(&format!("role {}", role.role.name()), role.cpu_ns)?;
        }
        for vcpu in &shown.vcpus {
            self.note(&format!("vcpu {}", vcpu.id), vcpu.cpu_ns)?;
            let slices = vcpu.timeslices.unwrap_or(0);
            self.note(&format!("timeslices {}", vcpu.id), slices)?;
        }
        for worker in &shown.workers {
            self.note(&format!("worker {}", worker.worker), worker.cpu_ns)?;
        }
        let limits = shown.quota.iter().chain(&shown.limits);
        for (number, quota) in limits.enumerate() {
            self.note(&format!("periods {number}"), quota.periods)?;
            for (role, ns) in &quota.used_ns {
                self.note(&format!("quota {number} {}", role.name()), *ns)?;
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn next_agent_continues_counters(steps in steps()) {
        let (mut host, mut agents) = (Host::new(), Agents::new());
        for step in steps {
            match step {
                Step::Run(who, ns) => host.run(who, ns),
                Step::Born => host.born(),
                Step::Ends(who) => host.ends(who),
                Step::VmStartsAgain => host.start_again(),
                Step::AnotherAgent => agents.replace(),
                Step::Reading => {
                    let shown = agents.read(&mut host);
                    let sum: u64 = shown.roles.iter().map(|role| role.cpu_ns).sum();
                    let used_ns = host.used_ns + host.new_ns;
                    prop_assert!(
                        sum + shown.unattributed_cpu_ns == used_ns,
                        "{sum} and {} of {used_ns}", shown.unattributed_cpu_ns
                    );
                    agents.note_all(&shown)?;
                    let vcpu = &shown.vcpus[0];
                    let slices = Some(vcpu.cpu_ns).filter(|ns| *ns > 0);
                    prop_assert_eq!(vcpu.timeslices, slices, "one each nanosecond");
                    let exits = vcpu.kvm.exits().map(|exits| exits.other());
                    prop_assert_eq!(exits, Some(vcpu.cpu_ns), "one each nanosecond");
                    let pressure = shown.pressure.map(|pressure| pressure.cpu.some_ns);
                    prop_assert_eq!(pressure, Some(Some(host.stalled_ns)));
                }
            }
        }
    }
}

/// If no source reported KVM's final counters, the counter restarts instead of keeping a
/// part.
#[test]
fn incomplete_exit_counts_restart() {
    let (mut host, mut agents) = (Host::new(), Agents::new());
    let exits = |shown: &Vm| shown.vcpus[0].kvm.exits().map(|exits| exits.other());
    host.run(0, 100);
    agents.read(&mut host);
    host.start_again();
    host.run(0, 30);
    assert_eq!(exits(&agents.read(&mut host)), Some(130));
    agents.replace();
    host.start_again();
    host.ended_vcpus.clear();
    host.run(0, 7);
    let shown = agents.read(&mut host);
    assert_eq!((exits(&shown), shown.vcpus[0].cpu_ns), (Some(7), 137));
}
