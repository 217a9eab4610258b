mod ends;
mod law;
mod levels;
mod names;
mod outermost;
mod parked;
mod pods;
mod quota;
mod recall;
mod recycle;
mod shapes;
mod stray;
mod vhost;
mod watched;

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::facts::{
    Bandwidth, CgroupFact, Facts, LevelFact, ProcessFact, RetiredFact, ThreadClass, ThreadFact,
    ThreadKind, VcpuFact, VcpuStats,
};
use crate::fleet::registry::Fleet;
use crate::snapshot::Vm;
use crate::vocab::{
    CgroupId, Comm, DURATIONS, ExitCounts, HaltPoll, KvmCounters, KvmValues, Owner, Pod, Pods,
    Pressure, Role, SchedClass, Scope, Switches, VmKey,
};

const UID: &str = "0d2aeb12-7a42-4a2b-9c3e-1f2d3c4b5a69";
const POD: CgroupId = CgroupId(30);
const CONTAINER: CgroupId = CgroupId(40);

/// A Kubernetes host: /kubepods.slice/…-pod.slice/cri-containerd-….scope.
fn cgroups() -> Vec<CgroupFact> {
    let slice = "/kubepods.slice";
    let pod = format!("{slice}/kubepods-pod{}.slice", UID.replace('-', "_"));
    let container = format!("{pod}/cri-containerd-{}.scope", "ab".repeat(32));
    let fact = |id, parent: u64, path: &str, quota_ns| CgroupFact {
        id,
        parent: (parent != 0).then_some(CgroupId(parent)),
        path: path.into(),
        bandwidth: (parent != 0).then_some(Bandwidth {
            quota_ns,
            period_ns: 100_000_000,
            periods: 7,
            throttled_periods: 2,
            throttled_ns: 5000,
            burst_ns: None,
        }),
        memory: None,
    };
    vec![
        fact(CgroupId(1), 0, "/", None),
        fact(CgroupId(10), 1, slice, None),
        fact(POD, 10, &pod, Some(125_000_000)),
        fact(CONTAINER, 30, &container, None),
    ]
}

fn vm(tgid: u32) -> VmKey {
    VmKey {
        start_ns: u64::from(tgid) * 1000,
        tgid,
    }
}

fn thread(owner: Owner, tid: u32, comm: &str, cpu_ns: u64) -> ThreadFact {
    ThreadFact {
        owner,
        tid,
        tgid: tid,
        start_ns: u64::from(tid) * 1000,
        kind: ThreadKind::User,
        comm: Comm::new(comm),
        process_comm: Comm::new("qemu-system-x86"),
        cpu_ns,
        wait_ns: Some(cpu_ns / 10),
        guest_ns: Some(cpu_ns / 2),
        switches: Some(switches(cpu_ns)),
        cgroup: CONTAINER,
        pcpu: Some(1),
        affinity: None,
        sched_class: Some(SchedClass::Fair),
        vcpu: None,
        class_changes: 0,
    }
}

fn vcpu(vm: VmKey, tid: u32, id: u32, cpu_ns: u64) -> ThreadFact {
    let stats = VcpuStats {
        instance: 77,
        counters: KvmCounters::from(KvmValues {
            halt_poll_ns: Some(HaltPoll::default()),
            exits: Some(ExitCounts::default()),
            pf_fixed: Some(0),
            ..KvmValues::default()
        }),
        preempted: false,
    };
    ThreadFact {
        vcpu: Some(VcpuFact {
            charged_ns: None,
            id,
            index: Some(id),
            stats: Some(stats),
        }),
        ..thread(Owner::Vm(vm), tid, "qemu-system-x86", cpu_ns)
    }
}

fn retired(owner: Owner, comm: &str, cpu_ns: u64) -> RetiredFact {
    RetiredFact {
        class: ThreadClass {
            owner,
            cgroup: None,
            kind: ThreadKind::User,
            vcpu_id: None,
            comm: Comm::new(comm),
            process_comm: Comm::new(if comm.is_empty() {
                ""
            } else {
                "qemu-system-x86"
            }),
        },
        threads: 1,
        cpu_ns,
        wait_ns: 0,
        guest_ns: 0,
        switches: switches(cpu_ns),
    }
}

/// Context switches of a thread with this CPU time: one each nanosecond.
fn switches(cpu_ns: u64) -> Switches {
    Switches {
        timeslices: cpu_ns,
        involuntary: cpu_ns,
    }
}

fn qemu(name: &str) -> ProcessFact {
    let args = ["qemu-system-x86_64", "-name", name]
        .map(str::to_owned)
        .to_vec();
    ProcessFact {
        exe: Some("/usr/bin/qemu-system-x86_64".to_owned()),
        args,
        ..ProcessFact::default()
    }
}

/// Throttlings of the shortest kind.
fn in_first_bucket(count: u64) -> [u64; DURATIONS] {
    let mut counts = [0; DURATIONS];
    counts[0] = count;
    counts
}

fn facts(threads: Vec<ThreadFact>, retired: Vec<RetiredFact>) -> Facts {
    Facts {
        threads: threads.into(),
        retired,
        cgroups: cgroups(),
        ..Facts::default()
    }
}

/// A cgroup whose tasks were stalled for this time, ns, on CPU.
fn level(stalled_ns: u64) -> LevelFact {
    let mut pressure = Pressure::default();
    pressure.cpu.some_ns = Some(stalled_ns);
    LevelFact {
        pressure: Some(pressure),
        memory_events: None,
    }
}

/// Admits all unknown VMs under `name` and accounts.
fn read(fleet: &mut Fleet, facts: &Facts, name: &str, now_ns: u64) -> (Vec<Vm>, FxHashSet<Owner>) {
    for vm in fleet.unknown_vms(facts) {
        fleet.admit(vm, &qemu(name), facts);
    }
    fleet.follow(facts, |_| None);
    fleet.account(facts, now_ns)
}

fn cpu_ns(vm: &Vm, role: Role) -> u64 {
    vm.roles
        .iter()
        .find(|one| one.role == role)
        .map_or(0, |one| one.cpu_ns)
}

#[test]
fn pod_cpu_time_is_split_by_role_and_scope() {
    let own = Owner::Vm(vm(100));
    let virtiofsd = ThreadFact {
        process_comm: Comm::new("virtiofsd"),
        ..thread(Owner::Pod(POD), 200, "vring_worker", 40)
    };
    let vhost = ThreadFact {
        kind: ThreadKind::UserWorker,
        ..thread(own, 103, "vhost-100", 30)
    };
    let living = vec![
        thread(own, 100, "qemu-system-x86", 10),
        vcpu(vm(100), 101, 0, 1000),
        vcpu(vm(100), 102, 8, 2000),
        vhost,
        thread(own, 104, "IO io0", 20),
        virtiofsd,
    ];
    let ended = vec![retired(own, "worker", 5), retired(Owner::Pod(POD), "", 3)];
    let (vms, _) = read(&mut Fleet::new(0), &facts(living, ended), "guest=web", 0);
    let [web] = vms.as_slice() else {
        panic!("one VM: {vms:?}")
    };
    let by_role = Role::ALL.map(|role| cpu_ns(web, role));
    assert_eq!(by_role, [3000, 30, 40, 20, 15, 0]);
    assert_eq!(
        web.unattributed_cpu_ns, 3,
        "what lost its names has no role"
    );
    assert_eq!(
        (&*web.vm, web.uid.as_deref(), web.cgroup_layout),
        ("web", Some(UID), Some("pod"))
    );
    assert_eq!(
        web.vcpus.iter().map(|vcpu| vcpu.id).collect::<Vec<_>>(),
        [0, 8]
    );
    assert_eq!(web.workers.len(), 3);
    let scopes: Vec<_> = web
        .quota
        .iter()
        .map(|quota| (quota.scope, quota.cores))
        .collect();
    assert_eq!(scopes, [(Scope::Pod, Some(1.25)), (Scope::Container, None)]);
}

#[test]
fn vm_has_pod_name_and_keeps_it() {
    let pods = |name: &str| {
        let pod = Pod {
            namespace: "shop".into(),
            name: name.into(),
            spec: Arc::default(),
        };
        Arc::new([(Arc::from(UID), pod)].into_iter().collect())
    };
    let living = facts(vec![vcpu(vm(100), 101, 0, 1000)], Vec::new());
    let mut fleet = Fleet::new(0);
    let mut called = |pods: Option<Arc<Pods>>| {
        fleet.call(pods.unwrap_or_default());
        let (vms, _) = read(&mut fleet, &living, "guest=web", 0);
        vms[0].namespace.clone().zip(vms[0].pod.clone())
    };
    let name = |name: &str| Some((Arc::from("shop"), Arc::from(name)));
    assert_eq!(called(None), None, "the source has no answer yet");
    assert_eq!(called(Some(pods("web-0"))), name("web-0"));
    assert_eq!(called(Some(pods("renamed"))), name("renamed"));
    assert_eq!(
        called(None),
        name("renamed"),
        "the pod is gone, its VM is not"
    );
}

#[test]
fn vm_names_are_unique_on_node() {
    let facts = facts(
        vec![vcpu(vm(100), 101, 0, 1), vcpu(vm(200), 201, 0, 1)],
        vec![],
    );
    let (vms, _) = read(&mut Fleet::new(0), &facts, "same", 0);
    let mut names: Vec<&str> = vms.iter().map(|vm| &*vm.vm).collect();
    names.sort_unstable();
    assert!(
        names == ["same", "same-100"] || names == ["same", "same-200"],
        "{names:?}"
    );
}

#[test]
fn ended_vm_lingers_and_releases_its_owners() {
    let mut fleet = Fleet::new(60);
    let own = Owner::Vm(vm(100));
    read(
        &mut fleet,
        &facts(vec![vcpu(vm(100), 101, 0, 500)], vec![]),
        "a",
        0,
    );
    let late = retired(own, "qemu-system-x86", 700);
    let ended = Facts {
        cgroups: Vec::new(),
        ..facts(vec![], vec![late])
    };
    let (vms, gone) = read(&mut fleet, &ended, "a", 10);
    assert!(!vms[0].running && gone.is_empty());
    assert_eq!(
        cpu_ns(&vms[0], Role::Emulator),
        700,
        "what it used at its end still comes"
    );
    assert_eq!(
        vms[0].quota.len(),
        2,
        "its last quota stays though its cgroups are gone"
    );
    assert_eq!(read(&mut fleet, &ended, "a", 70).0.len(), 1);
    let (vms, gone) = read(&mut fleet, &ended, "a", 71);
    assert!(vms.is_empty());
    assert_eq!(gone, FxHashSet::from_iter([own, Owner::Pod(POD)]));
}

#[test]
fn vm_restarted_under_its_name_continues_counters() {
    let mut fleet = Fleet::new(1000);
    let helper = || thread(Owner::Pod(POD), 50, "shim", 7);
    read(
        &mut fleet,
        &facts(vec![vcpu(vm(100), 101, 0, 500), helper()], vec![]),
        "a",
        0,
    );
    read(&mut fleet, &facts(vec![helper()], vec![]), "a", 1);
    let again = facts(vec![vcpu(vm(200), 201, 0, 20), helper()], vec![]);
    let (vms, gone) = read(&mut fleet, &again, "a", 2);
    let [a] = vms.as_slice() else {
        panic!("one VM: {vms:?}")
    };
    assert!(a.running);
    let former = Owner::Vm(vm(100));
    assert_eq!(gone, FxHashSet::from_iter([former]), "its pod is not gone");
    assert_eq!((&*a.vm, a.pid, cpu_ns(a, Role::Vcpu)), ("a", 200, 520));
    assert_eq!(
        cpu_ns(a, Role::Helper),
        7,
        "the pod's other processes count once"
    );
    assert_eq!(a.vcpus[0].cpu_ns, 520);
    assert_eq!(a.vcpus[0].timeslices, Some(520));
    assert_eq!(a.vcpus[0].involuntary_switches, Some(520));
}

#[test]
fn switches_are_absent_if_one_thread_lacks_them() {
    let lacking = ThreadFact {
        switches: None,
        ..vcpu(vm(100), 102, 1, 7)
    };
    let facts = facts(vec![vcpu(vm(100), 101, 0, 5), lacking], vec![]);
    let (vms, _) = read(&mut Fleet::new(0), &facts, "a", 0);
    for vcpu in &vms[0].vcpus {
        assert_eq!((vcpu.timeslices, vcpu.involuntary_switches), (None, None));
    }
}

#[test]
fn thread_named_like_vcpu_is_not_a_vcpu() {
    let liar = thread(Owner::Vm(vm(100)), 102, "CPU 1/KVM", 9);
    let facts = facts(vec![vcpu(vm(100), 101, 0, 1), liar], vec![]);
    let (vms, _) = read(&mut Fleet::new(0), &facts, "a", 0);
    assert_eq!(
        (cpu_ns(&vms[0], Role::Vcpu), cpu_ns(&vms[0], Role::Emulator)),
        (1, 9)
    );
}

#[test]
fn exiting_thread_does_not_lower_counters() {
    let mut fleet = Fleet::new(0);
    let own = Owner::Vm(vm(100));
    let with = facts(
        vec![vcpu(vm(100), 101, 0, 9), thread(own, 102, "worker", 300)],
        vec![],
    );
    let (before, _) = read(&mut fleet, &with, "a", 0);
    let between = facts(vec![vcpu(vm(100), 101, 0, 9)], vec![]);
    let (during, _) = read(&mut fleet, &between, "a", 1);
    let counted = facts(
        vec![vcpu(vm(100), 101, 0, 9)],
        vec![retired(own, "worker", 310)],
    );
    let (after, _) = read(&mut fleet, &counted, "a", 2);
    let emulator = [before, during, after].map(|vms| cpu_ns(&vms[0], Role::Emulator));
    assert_eq!(emulator, [300, 300, 310]);
}
