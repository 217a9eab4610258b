//! Snapshots of a node on which VMs run, come and go.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::vocab::Comm;
use virtlens_record::{Limits, Recorder};
use virtlens_tests::fixture;

/// A change of a node between two readings.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// The counters of a VM rise.
    Run(Index, u32),
    /// Something known becomes unknown, or the reverse.
    Toggle(Index),
    /// A thread starts.
    StartThread(Index, Index, Vec<u8>),
    /// A thread ends.
    EndThread(Index, Index),
    /// A VM starts: a copy of another one with this pid.
    Start(Index, u32),
    /// A VM ends.
    End(Index),
    /// VMs change their order.
    Swap(Index, Index),
    /// A floating-point number.
    Share(Index, f64),
    /// A text.
    Text(Index, String),
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    let float = prop_oneof![
        any::<f64>().prop_filter("equal to itself", |f| !f.is_nan()),
        0.0..1.0
    ];
    prop_oneof![
        8 => (index(), any::<u32>()).prop_map(|(vm, by)| Change::Run(vm, by)),
        1 => index().prop_map(Change::Toggle),
        1 => (index(), index(), prop::collection::vec(1..=u8::MAX, 0..20))
            .prop_map(|(vm, at, name)| Change::StartThread(vm, at, name)),
        1 => (index(), index()).prop_map(|(vm, at)| Change::EndThread(vm, at)),
        1 => (index(), any::<u32>()).prop_map(|(vm, pid)| Change::Start(vm, pid)),
        1 => index().prop_map(Change::End),
        1 => (index(), index()).prop_map(|(one, other)| Change::Swap(one, other)),
        1 => (index(), float).prop_map(|(vm, share)| Change::Share(vm, share)),
        1 => (index(), ".*").prop_map(|(vm, text)| Change::Text(vm, text)),
    ]
}

impl Change {
    /// The snapshot after this change.
    pub(crate) fn apply(&self, snapshot: &mut Snapshot) {
        snapshot.clock_ns += 1_000_000_000;
        let vms = &mut snapshot.vms;
        if let (Self::Start(_, pid), true) = (self, vms.is_empty()) {
            vms.push(Vm {
                pid: *pid,
                ..Vm::default()
            });
        }
        if vms.is_empty() {
            return;
        }
        match self {
            Self::Run(vm, by) => run(vm.get_mut(vms), (*by).into()),
            Self::Toggle(vm) => toggle(vm.get_mut(vms)),
            Self::StartThread(vm, at, name) => {
                let threads = &mut vm.get_mut(vms).threads;
                if let Some(thread) = threads.first() {
                    let mut thread = thread.clone();
                    thread.name = Comm::new(name);
                    threads.insert(at.index(threads.len() + 1), thread);
                }
            }
            Self::EndThread(vm, at) => {
                let threads = &mut vm.get_mut(vms).threads;
                if !threads.is_empty() {
                    threads.remove(at.index(threads.len()));
                }
            }
            Self::Start(of, pid) => {
                let copy = Vm {
                    pid: *pid,
                    ..of.get(vms).clone()
                };
                vms.insert(of.index(vms.len()), copy);
            }
            Self::End(vm) => {
                vms.remove(vm.index(vms.len()));
            }
            Self::Swap(one, other) => {
                let len = vms.len();
                vms.swap(one.index(len), other.index(len));
            }
            Self::Share(vm, share) => vm.get_mut(vms).limit_cores = Some(*share),
            Self::Text(vm, text) => vm.get_mut(vms).vm = Arc::from(&**text),
        }
    }
}

/// All counters of the VM that a running guest changes rise.
pub(crate) fn run(vm: &mut Vm, by_ns: u64) {
    for role in &mut vm.roles {
        role.cpu_ns += by_ns;
        role.wait_ns = role.wait_ns.map(|ns| ns + by_ns / 3);
    }
    for thread in &mut vm.threads {
        thread.cpu_ns += by_ns;
        thread.wait_ns = thread.wait_ns.map(|ns| ns + by_ns / 3);
    }
    for vcpu in &mut vm.vcpus {
        vcpu.cpu_ns += by_ns;
        vcpu.wait_ns = vcpu.wait_ns.map(|ns| ns + by_ns / 3);
        vcpu.kvm = vcpu.kvm.with(&vcpu.kvm, |now, _| now + by_ns / 5000);
    }
}

fn toggle(vm: &mut Vm) {
    vm.running = !vm.running;
    vm.guest_ns = vm.guest_ns.map_or(Some(7), |_| None);
    vm.pod_spec = None;
    vm.findings = vm.findings.take().map_or(Some(Arc::from([])), |_| None);
    vm.topology = None;
}

/// Readings of a node: the fixture, and one after each list of changes.
pub(crate) fn readings() -> impl Strategy<Value = Vec<Snapshot>> {
    let changes = prop::collection::vec(prop::collection::vec(change(), 0..6), 1..12);
    changes.prop_map(|changes| {
        let mut snapshot = fixture::snapshot();
        let mut readings = vec![snapshot.clone()];
        for some in changes {
            for change in some {
                change.apply(&mut snapshot);
            }
            readings.push(snapshot.clone());
        }
        readings
    })
}

/// Time of a reading, ns since 1970: one each second.
pub(crate) fn at(reading: usize) -> u64 {
    1_800_000_000_000_000_000 + reading as u64 * 1_000_000_000
}

/// A recorder with generous limits.
pub(crate) fn recorder(folder: &std::path::Path) -> Recorder {
    let limits = Limits {
        max_bytes: 1 << 30,
        max_age: Duration::from_hours(24),
    };
    Recorder::open(folder, limits, "node-a", "0.1.0", None).expect("the folder is ours")
}
