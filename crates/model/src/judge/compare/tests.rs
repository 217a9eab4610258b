use serde_json::json;

use super::{Comparison, FindingChange, Observed, compare};
use crate::judge::measure::Measure;
use crate::snapshot::{Check, Finding, Quota, RoleUse, Snapshot, Vcpu, Vm};
use crate::vocab::{ExitCounts, KvmCounters, KvmValues, Role, Scope};

const SECOND: u64 = 1_000_000_000;

fn snapshot(clock_ns: u64, vms: Vec<Vm>) -> Snapshot {
    let empty = json!({
        "apiVersion": "virtlens/v1", "kind": "Snapshot", "time": "", "clock_ns": clock_ns,
        "reading_age_ns": 0, "sources": [], "dropped": [], "maps": [], "programs": [], "vms": [],
        "node": {"name": "node", "kernel": "6.12", "cpus": 4, "cgroup": "v2"},
    });
    Snapshot {
        vms,
        ..serde_json::from_value(empty).expect("a snapshot")
    }
}

/// The use of a VM with one vCPU, per second.
#[derive(Clone, Copy)]
struct Load {
    vcpu_ns: u64,
    vhost_ns: u64,
    wait_ns: u64,
    exits: u64,
    throttled_periods: u64,
    pcpu: u32,
    resident_bytes: u64,
}

const CALM: Load = Load {
    vcpu_ns: SECOND / 2,
    vhost_ns: SECOND / 10,
    wait_ns: SECOND / 100,
    exits: 1000,
    throttled_periods: 0,
    pcpu: 1,
    resident_bytes: 1 << 30,
};

/// The VM `name` of this pod after so many seconds of a load.
fn vm(pid: u32, name: &str, load: Load, seconds: u64) -> Vm {
    let role = |role, cpu_ns| RoleUse {
        role,
        threads: 1,
        cpu_ns: cpu_ns * seconds,
        wait_ns: None,
        outside_pod: None,
        throttle_hits: None,
    };
    let mut exits = [0; 7];
    exits[0] = load.exits * seconds;
    let quota = Quota {
        scope: Scope::Pod,
        cgroup: "/pod".into(),
        cores: Some(1.0),
        period_ns: SECOND / 10,
        periods: 10 * seconds,
        throttled_periods: load.throttled_periods * seconds,
        throttled_ns: load.throttled_periods * seconds * SECOND / 10,
        used_ns: [(Role::Vcpu, load.vcpu_ns * seconds)].into(),
        throttle: None,
    };
    let mut vm = Vm {
        vm: name.into(),
        pid,
        running: true,
        roles: vec![
            role(Role::Vcpu, load.vcpu_ns),
            role(Role::Vhost, load.vhost_ns),
        ],
        vcpus: vec![Vcpu {
            tid: Some(pid + 1),
            cpu_ns: load.vcpu_ns * seconds,
            wait_ns: Some(load.wait_ns * seconds),
            timeslices: Some(100 * seconds),
            kvm: KvmCounters::from(KvmValues {
                exits: Some(ExitCounts(exits)),
                ..KvmValues::default()
            }),
            pcpu: Some(load.pcpu),
            ..Vcpu::default()
        }],
        quota: vec![quota],
        limit_cores: Some(1.0),
        findings: Some([].into()),
        ..Vm::default()
    };
    vm.vcpu_count.seen = 1;
    vm.memory.resident_bytes = Some(load.resident_bytes);
    vm
}

/// A window with readings each second.
fn window(of: impl Fn(u64) -> Vec<Vm>) -> Observed {
    let mut observed = Observed::default();
    for seconds in 10..15 {
        observed.add(snapshot(seconds * SECOND, of(seconds)), seconds * SECOND);
    }
    observed
}

fn one(load: Load) -> Observed {
    window(|seconds| vec![vm(7, "vm", load, seconds)])
}

/// The measures that changed, with their values before and now, and the ratio.
fn values(before: &Observed, now: &Observed) -> Vec<(Measure, [f64; 3])> {
    let Comparison { both, .. } = compare(before, now);
    let values = both.iter().flat_map(|vm| &vm.values);
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    values
        .map(|one| (one.measure, [one.before, one.now, one.ratio].map(rounded)))
        .collect()
}

#[test]
fn changed_measures_are_listed_by_their_ratio() {
    let busy = Load {
        vcpu_ns: SECOND * 9 / 10,
        vhost_ns: SECOND * 3 / 5,
        wait_ns: SECOND / 10,
        exits: 50_000,
        throttled_periods: 4,
        resident_bytes: 3 << 30,
        ..CALM
    };
    let found = values(&one(CALM), &one(busy));
    let gib = f64::from(1 << 30);
    assert_eq!(
        found,
        [
            (Measure::Exits, [1000.0, 50_000.0, 50.0]),
            // The least change of a share, 0.02, is the smaller value.
            (Measure::Throttled, [0.0, 0.4, 20.0]),
            (Measure::VcpuMeanRunDelay, [0.0001, 0.001, 10.0]),
            (Measure::RoleCpu(Role::Vhost), [0.1, 0.6, 6.0]),
            (Measure::VcpuRunDelay, [0.01, 0.1, 5.0]),
            (Measure::Resident, [gib, 3.0 * gib, 3.0]),
            (Measure::Cpu, [0.6, 1.5, 2.5]),
            (Measure::RoleCpu(Role::Vcpu), [0.5, 0.9, 1.8]),
            (Measure::QuotaUsed, [0.5, 0.9, 1.8]),
        ]
    );
}

#[test]
fn noise_is_not_listed() {
    assert_eq!(values(&one(CALM), &one(CALM)), []);
    let little_more = Load {
        // A fifth more.
        vcpu_ns: SECOND * 6 / 10,
        // Half as much again, but only 0.04 cores.
        vhost_ns: SECOND * 14 / 100,
        exits: 1090,
        resident_bytes: (1 << 30) + (63 << 20),
        ..CALM
    };
    assert_eq!(values(&one(CALM), &one(little_more)), []);
}

#[test]
fn small_change_of_a_setting_is_listed() {
    let limited = |cores| {
        window(move |seconds| {
            let mut vm = vm(7, "vm", CALM, seconds);
            (vm.limit_cores, vm.quota[0].cores) = (Some(cores), Some(cores));
            vec![vm]
        })
    };
    let found = values(&limited(2.0), &limited(1.9));
    assert_eq!(found, [(Measure::Limit, [2.0, 1.9, 1.052_632])]);
}

#[test]
fn time_between_readings_of_two_agents_is_not_measured() {
    // The clock of the second agent begins at 0, or by chance above that of the first one.
    for start in [0, 40] {
        let mut observed = Observed::default();
        for seconds in 10..20 {
            let clock = if seconds < 15 {
                seconds
            } else {
                start + seconds - 15
            };
            let vms = vec![vm(7, "vm", CALM, seconds)];
            observed.add(snapshot(clock * SECOND, vms), seconds * SECOND);
        }
        let measured = observed.measured(&observed.vms()[0].vm);
        let cores = measured.and_then(|measured| measured.of(Measure::Cpu));
        let cores = cores.expect("it is known");
        assert!((cores - 0.6).abs() < 1e-9, "{start}: {cores}");
    }
}

fn judged(vm: Vm, found: &[Check]) -> Vm {
    let findings = found
        .iter()
        .map(|check| Finding::new(*check, String::new(), 1.0));
    Vm {
        findings: Some(findings.collect()),
        ..vm
    }
}

#[test]
fn findings_appear_end_and_remain() {
    let window =
        |found: &'static [Check]| window(|seconds| vec![judged(vm(7, "vm", CALM, seconds), found)]);
    let before = window(&[Check::MemoryKept, Check::VcpuStarved]);
    let now = window(&[Check::VcpuStarved, Check::QuotaCapped]);
    let Comparison { both, .. } = compare(&before, &now);
    let found = both[0]
        .findings
        .iter()
        .flatten()
        .map(|change| match change {
            FindingChange::Appeared(one) => ("appeared", one.finding.check),
            FindingChange::Ended(one) => ("ended", one.finding.check),
            FindingChange::Remained { now, .. } => ("remained", now.finding.check),
        });
    let mut all: Vec<_> = found.collect();
    all.sort_unstable_by_key(|(fate, _)| *fate);
    assert_eq!(
        all,
        [
            ("appeared", Check::QuotaCapped),
            ("ended", Check::MemoryKept),
            ("remained", Check::VcpuStarved),
        ]
    );

    let unjudged = self::window(|seconds| {
        let vm = vm(7, "vm", CALM, seconds);
        vec![Vm {
            findings: None,
            ..vm
        }]
    });
    assert!(compare(&before, &unjudged).both[0].findings.is_none());
}

#[test]
fn vm_is_compared_with_its_predecessor() {
    let of_pod = |mut vm: Vm, pod: &str| {
        (vm.namespace, vm.pod) = (Some("shop".into()), Some(pod.into()));
        vm
    };
    let before = window(|seconds| {
        vec![
            of_pod(vm(1, "sandbox-1", CALM, seconds), "web-0"),
            of_pod(vm(2, "sandbox-2", CALM, seconds), "web-1"),
            vm(3, "db", CALM, seconds),
            vm(4, "gone", CALM, seconds),
        ]
    });
    let now = window(|seconds| {
        vec![
            // The same one.
            of_pod(vm(2, "sandbox-2", CALM, seconds), "web-1"),
            // The pod was started again; so was the VM without a pod.
            of_pod(vm(5, "sandbox-5", CALM, seconds), "web-0"),
            vm(6, "db", CALM, seconds),
            vm(8, "new", CALM, seconds),
        ]
    });
    let found = compare(&before, &now);
    let pids: Vec<_> = found
        .both
        .iter()
        .map(|one| (one.before.vm.pid, one.now.vm.pid))
        .collect();
    assert_eq!(pids, [(2, 2), (1, 5), (3, 6)]);
    let pids = |vms: &[&super::PastVm]| vms.iter().map(|one| one.vm.pid).collect::<Vec<_>>();
    assert_eq!(
        (pids(&found.only_before), pids(&found.only_now)),
        (vec![4], vec![8])
    );
}

#[test]
fn pcpus_are_listed_if_most_are_other_ones() {
    let on = |pcpus: &'static [u32]| {
        window(|seconds| {
            let at = usize::try_from(seconds).expect("it is small") % pcpus.len();
            let pcpu = pcpus[at];
            vec![vm(7, "vm", Load { pcpu, ..CALM }, seconds)]
        })
    };
    let listed = |before, now| {
        let (before, now) = (on(before), on(now));
        let found = compare(&before, &now);
        found.both[0]
            .pcpus
            .as_ref()
            .map(|both| both.clone().map(|set| set.to_string()))
    };
    assert_eq!(listed(&[1, 2], &[1, 2]), None);
    assert_eq!(listed(&[1, 2], &[2, 1, 3]), None);
    let other = Some(["1-2", "2-3"].map(str::to_owned));
    assert_eq!(listed(&[1, 2], &[2, 3]), other);
}
