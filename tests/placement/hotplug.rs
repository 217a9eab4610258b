//! CPUs that go offline and online while the agent runs: the next reading is correct.

use std::fs;

use virtlens_model::snapshot::{Snapshot, Topology, Unjudged};
use virtlens_model::vocab::MismatchKind::SmtShared;
use virtlens_tests::process::set_affinity;
use virtlens_tests::reader;
use virtlens_tests::seats::{agent, assert_found, judged, pin, pinned, topology};
use virtlens_tests::sysfs::assert_is_sysfs;

/// Writes a file of /sys/devices/system/cpu, and writes the opposite value on drop.
struct Switched {
    file: String,
    back: &'static str,
}

impl Switched {
    fn new(file: &str, to: &str, back: &'static str) -> Self {
        let file = format!("/sys/devices/system/cpu/{file}");
        fs::write(&file, to).unwrap_or_else(|error| panic!("{to} to {file}: {error}"));
        Self { file, back }
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        fs::write(&self.file, self.back).expect("what was switched off can be switched on");
    }
}

/// Number of a VM's vCPUs on each core. vCPUs last seen on an offline CPU have no core.
fn cores(snapshot: &Snapshot, pid: u32) -> Vec<Option<u32>> {
    let vcpus = reader::vm(snapshot, pid).vcpus.iter();
    vcpus.map(|vcpu| vcpu.host?.core).collect()
}

#[test]
fn cpu_hotplug_is_known_at_next_reading() {
    let mut vm = pinned("cores=2,threads=2", &[0, 1, 2, 3]);
    let mut agent = agent();
    let before = judged(&mut agent, &vm);
    assert_eq!((before.pinned_vcpus, aligned(&before)), (4, 2));

    let away = Switched::new("cpu3/online", "0", "1");
    let snapshot = agent.collect();
    assert_eq!(snapshot.node.cpus, 11);
    assert_is_sysfs(&snapshot.host);
    // A thread whose only CPU goes offline may run on any CPU.
    let found = topology(&snapshot, vm.pid());
    assert_found(&found, &[]);
    assert_eq!((found.pinned_vcpus, aligned(&found)), (3, 1));
    assert_eq!(cores(&snapshot, vm.pid())[..3], [Some(0), Some(0), Some(2)]);

    drop(away);
    let snapshot = agent.collect();
    assert_eq!(snapshot.node.cpus, 12);
    assert_is_sysfs(&snapshot.host);
    pin(&vm, &[0, 1, 2, 3]);
    let after = judged(&mut agent, &vm);
    assert_found(&after, &[]);
    assert_eq!((after.pinned_vcpus, aligned(&after)), (4, 2));

    // The agent's BPF programs know the CPU again, too.
    let pid = vm.pid();
    let moves = |snapshot: &Snapshot| reader::vm(snapshot, pid).moves.expect("followed");
    let then = moves(&agent.collect());
    vm.command("spin 2");
    for pcpu in [3, 2] {
        set_affinity(vm.ready.vcpus[2].tid, &[pcpu]);
    }
    vm.command("halt 2");
    let now = moves(&agent.collect());
    assert!(
        now.by_distance[0] >= then.by_distance[0] + 2,
        "{then:?}, {now:?}"
    );
    assert_eq!(now.unknown, then.unknown);
}

#[test]
fn smt_switch_is_known_at_next_reading() {
    let with_threads = pinned("threads=2", &[8, 9]);
    let vm = pinned("cores=2", &[0, 1]);
    let shared = [(SmtShared, &[0, 1][..], "0-1")];
    let mut agent = agent();
    assert_eq!(aligned(&judged(&mut agent, &with_threads)), 1);
    assert_found(&judged(&mut agent, &vm), &shared);

    let off = Switched::new("smt/control", "off", "on");
    let snapshot = agent.collect();
    assert_eq!(snapshot.node.cpus, 6);
    assert_is_sysfs(&snapshot.host);
    for vm in [&with_threads, &vm] {
        let found = topology(&snapshot, vm.pid());
        assert_found(&found, &[]);
        assert_eq!((found.pairs, found.unknown), (None, Some(Unjudged::NoSmt)));
    }

    drop(off);
    let snapshot = agent.collect();
    assert_eq!(snapshot.node.cpus, 12);
    assert_is_sysfs(&snapshot.host);
    pin(&with_threads, &[8, 9]);
    pin(&vm, &[0, 1]);
    assert_eq!(aligned(&judged(&mut agent, &with_threads)), 1);
    assert_found(&judged(&mut agent, &vm), &shared);
}

/// Number of pairs of guest siblings that share a host core.
fn aligned(found: &Topology) -> u32 {
    found.pairs.expect("host and guest are known").aligned
}
