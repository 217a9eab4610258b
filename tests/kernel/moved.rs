//! Pods whose cgroups change during the life of a VM: the VM keeps its CPU time and is
//! reported in its present cgroup.

use std::fs;
use std::sync::Arc;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::vocab::Role;
use virtlens_tests::process::Schedstat;
use virtlens_tests::reader::{self, cpu_ns, host_with, vm};
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

/// Agents with and without BPF, and a VM that they watch.
struct Watched {
    collectors: Vec<Collector>,
    guest: Minivm,
    _without_btf: tempfile::TempDir,
    /// The highest CPU time that each agent reported per role, ns.
    reported_ns: Vec<[u64; 2]>,
}

const ROLES: [Role; 2] = [Role::Vcpu, Role::Emulator];

impl Watched {
    fn new(pod: &TestCgroup) -> Self {
        let args = ["--vcpus", "2", "--thread", "io=1", "--name", "movable"];
        let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(pod));
        let without_btf = host_with(&["sys/devices", "sys/fs/cgroup"]);
        let without_bpf = Collector::open(&Options {
            root: without_btf.path().to_owned(),
            ..reader::options()
        });
        let collectors = vec![reader::collector(), without_bpf.expect("/proc is there")];
        Self {
            reported_ns: vec![[0; 2]; collectors.len()],
            collectors,
            guest,
            _without_btf: without_btf,
        }
    }

    /// Reads each agent: the vCPUs' time equals the kernel's, and nothing fell.
    fn read(&mut self, what: &str) -> Vec<Arc<Snapshot>> {
        self.guest.burn_vcpus("all", 7);
        self.guest.burn_threads("0", 3);
        let pid = self.guest.pid();
        let vcpus_ns = || -> u64 {
            let tids = self.guest.ready.vcpus.iter().map(|vcpu| vcpu.tid);
            let of = |tid| Schedstat::read(pid, tid).expect("no vCPU ends here");
            tids.map(|tid| of(tid).cpu_ns).sum()
        };
        let mut snapshots = Vec::new();
        for (collector, reported_ns) in self.collectors.iter_mut().zip(&mut self.reported_ns) {
            let low_ns = vcpus_ns();
            let snapshot = collector.collect();
            let truth = low_ns..=vcpus_ns();
            let now = ROLES.map(|role| cpu_ns(vm(&snapshot, pid), role));
            assert!(
                truth.contains(&now[0]),
                "{what}: {now:?} is not in {truth:?}"
            );
            assert!(
                now[0] >= reported_ns[0] && now[1] >= reported_ns[1],
                "{what}: {now:?} fell"
            );
            *reported_ns = now;
            snapshots.push(snapshot);
        }
        snapshots
    }

    /// Asserts a value in the snapshots of all agents.
    #[track_caller]
    fn assert_all<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        of: impl Fn(&Vm) -> T,
        expected: &T,
    ) {
        for (index, snapshot) in self.read(what).iter().enumerate() {
            let found = of(vm(snapshot, self.guest.pid()));
            assert_eq!(found, *expected, "{what}: agent {index}");
        }
    }
}

fn uid(vm: &Vm) -> Option<String> {
    vm.uid.as_deref().map(str::to_owned)
}

fn cores(vm: &Vm) -> Option<f64> {
    vm.quota.first().and_then(|level| level.cores)
}

fn ready(test: &str) -> bool {
    reader::ready(test) && need::all(test, [need::cpu_cgroup()])
}

#[test]
fn vm_moved_to_another_pod_is_reported_there() {
    if !ready("vm_moved_to_another_pod_is_reported_there") {
        return;
    }
    let uids = [unique_pod_uid(), unique_pod_uid()];
    let pods = uids
        .each_ref()
        .map(|uid| TestCgroup::new(&cgroupfs_pod_path(uid)));
    pods[0].set_quota(Some(50_000), 100_000);
    pods[1].set_quota(Some(80_000), 100_000);
    let mut watched = Watched::new(&pods[0]);
    for (at, cores_of) in [(0, 0.5), (1, 0.8), (0, 0.5)] {
        pods[at].add_process(watched.guest.pid());
        watched.assert_all("its pod", uid, &Some(uids[at].clone()));
        watched.assert_all("its quota", cores, &Some(cores_of));
    }
    let [first, second] = pods;
    second.add_process(watched.guest.pid());
    drop(first);
    watched.assert_all("the other pod is gone", uid, &Some(uids[1].clone()));
    drop(watched);
}

/// Only v1 can rename cgroups. A name is read once, so the pod may keep its former name;
/// nothing else changes.
#[test]
fn vm_with_renamed_cgroup_continues_counters() {
    if !ready("vm_with_renamed_cgroup_continues_counters") {
        return;
    }
    let uids = [unique_pod_uid(), unique_pod_uid()];
    let pod = TestCgroup::new(&cgroupfs_pod_path(&uids[0]));
    pod.set_quota(Some(50_000), 100_000);
    let mut watched = Watched::new(&pod);
    watched.assert_all("before", uid, &Some(uids[0].clone()));
    let (from, to) = (
        pod.dir(),
        pod.dir().with_file_name(format!("pod{}", uids[1])),
    );
    if !pod.is_v1() {
        assert!(fs::rename(from, &to).is_err(), "v2 renames no cgroup");
        return;
    }
    fs::rename(from, &to).expect("v1 renames cgroups");
    let known = |vm: &Vm| uid(vm).is_some_and(|uid| uids.contains(&uid));
    watched.assert_all("renamed", known, &true);
    watched.assert_all("its quota", cores, &Some(0.5));
    fs::rename(&to, from).expect("v1 renames cgroups");
    watched.assert_all("renamed back", uid, &Some(uids[0].clone()));
    drop(watched);
}
