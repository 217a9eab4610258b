//! Activity of the pod between two readings, by the agent and by the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

use virtlens_model::identify::cgroup::is_within;
use virtlens_model::judge::findings::Bounds;
use virtlens_model::snapshot::Finding;
use virtlens_model::snapshot::{Quota, Vm};
use virtlens_model::vocab::{Role, Scope};
use virtlens_tests::reader;
use virtlens_vmtest::scenario::Pod;

use super::LIMIT_CORES;
use super::bench::{Sample, Truth};
use crate::pods::{self, millis};

/// The checks that these tests assert; other findings depend on the machine's load.
const CHECKS: [&str; 5] = [
    "io_throttled",
    "limit_without_vm",
    "quota_capped",
    "threads_outside_pod",
    "vcpus_exceed_quota",
];

/// Activity of the pod between two readings.
pub(super) struct Activity {
    pub(super) pod: Pod,
    pub(super) began: Sample,
    pub(super) ended: Sample,
}

impl Activity {
    pub(super) fn vms(&self) -> [&Vm; 2] {
        [&self.began, &self.ended].map(|one| pods::vm(&one.snapshot, &self.pod))
    }

    /// Least and greatest increase of a sum of the kernel's counters between the
    /// readings.
    pub(super) fn grown(&self, of: impl Fn(&Truth) -> u64) -> RangeInclusive<u64> {
        let (began, ended) = (&self.began, &self.ended);
        let low = of(&ended.low).saturating_sub(of(&began.high));
        low..=of(&ended.high) - of(&began.low)
    }

    /// CPU time as a share of the time between the readings.
    fn share(&self, ns: u64) -> f64 {
        let took = self.ended.low.read - self.began.low.read;
        Duration::from_nanos(ns).div_duration_f64(took)
    }

    /// Asserts that each role used the CPU time of its threads, and all roles that of
    /// their cgroups.
    pub(super) fn assert_accounted(&self) {
        let [then, now] = self.vms();
        for role in self.ended.low.roles.keys() {
            let of = |vm| pods::role(vm, *role).map_or(0, |one| one.cpu_ns);
            let (reported, truth) = (of(now) - of(then), self.grown(|truth| truth.roles[role][0]));
            println!("{}: {} ms", role.name(), millis(reported));
            assert!(
                truth.contains(&reported),
                "{}: {reported} is not in {truth:?}",
                role.name()
            );
        }
        let (reported, truth) = (
            reader::all_ns(now) - reader::all_ns(then),
            self.grown(|truth| truth.all_ns),
        );
        assert_near("all roles", reported, &truth);
        let unattributed = now.unattributed_cpu_ns - then.unattributed_cpu_ns;
        assert!(
            unattributed * 200 <= reported,
            "{unattributed} of {reported} ns"
        );
    }

    /// Whether the limit is used up and the pod is throttled, by the bounds of the
    /// checks.
    pub(super) fn is_capped(&self) -> bool {
        let bounds = Bounds::default();
        let used = self.share(*self.grown(|truth| truth.slice_ns).start()) / LIMIT_CORES;
        let periods = self.grown(|truth| truth.slice.periods);
        let throttled = self.grown(|truth| truth.slice.throttled_periods);
        println!("by the kernel: {used:.2} of the limit, {throttled:?} of {periods:?} periods");
        used > bounds.quota_used + 0.02 && throttled.start() * 3 > *periods.end()
    }

    /// Number of threads outside of the pod's slice per role, by their cgroup files.
    pub(super) fn outside(&self) -> BTreeMap<Role, u32> {
        let path = format!("/{}", self.pod.pod_cgroup.to_string_lossy());
        let mut outside = BTreeMap::new();
        for thread in &self.vms()[1].threads {
            // KVM's `kvm-nx-lpage-recovery` has no role where it is a kernel thread in
            // the pod's cgroup instead of a thread of the VMM.
            if let Some(role) = thread.role {
                let is_outside = !sits_in(thread.tid, &path);
                *outside.entry(role).or_insert(0) += u32::from(is_outside);
            }
        }
        outside
    }

    /// The raised checks among [`CHECKS`].
    pub(super) fn found(&self) -> BTreeSet<&'static str> {
        let found = self.vms()[1].findings.as_ref().expect("it was judged");
        for one in found.iter() {
            println!("{}: {}", one.check.name(), one.evidence);
        }
        let names = found.iter().map(|one| one.check.name());
        names.filter(|name| CHECKS.contains(name)).collect()
    }

    pub(super) fn finding(&self, check: &str) -> &Finding {
        let found = self.vms()[1].findings.as_ref().expect("it was judged");
        let mut of_check = found.iter().filter(|one| one.check.name() == check);
        of_check.next().expect("it was found")
    }

    /// Asserts the findings and remedies of a pod that its limit holds back.
    pub(super) fn assert_found_capped(&self) {
        let mut found = self.found();
        let mut expected = BTreeSet::from(["quota_capped", "vcpus_exceed_quota"]);
        let (outside, bounds) = (self.outside(), Bounds::default());
        let truth = |role: Role, at: usize| {
            let ns = *self.grown(|truth| truth.roles[&role][at]).start();
            self.share(ns)
        };
        // The kernel's counters decide either check, unless they are near the bound.
        let io = [Role::Vhost, Role::Virtiofsd];
        let inside = io.iter().filter(|role| outside[role] == 0);
        let waited = inside.map(|role| truth(*role, 1)).fold(0.0, f64::max);
        let is_outside = |role: &&Role| outside.get(role).is_some_and(|count| *count > 0);
        let roles = self.ended.low.roles.keys().filter(is_outside);
        let used: f64 = roles.map(|role| truth(*role, 0)).sum();
        for (check, share, bound) in [
            ("io_throttled", waited, bounds.io_throttled),
            ("threads_outside_pod", used, bounds.outside_cores),
        ] {
            println!("by the kernel: {share:.3} of {bound} for {check}");
            if share > bound * 1.2 {
                expected.insert(check);
            } else if share > bound * 0.8 {
                found.remove(check);
            }
        }
        assert_eq!(found, expected);
        self.assert_remedies(&expected);
    }

    fn assert_remedies(&self, found: &BTreeSet<&str>) {
        let remedy = |check| &*self.finding(check).remedy;
        let begins = |check, text: &str| {
            let remedy = remedy(check);
            assert!(remedy.starts_with(text), "{check}: {remedy}");
        };
        // One vCPU less the limit of 0.6 cores leaves 0.4 for default_vcpus.
        begins("vcpus_exceed_quota", "set default_vcpus=0.4 ");
        // vCPUs are in the slice; their earlier use elsewhere does not count here.
        let used = self.grown(|truth| truth.slice_ns);
        let vcpus = self.grown(|truth| truth.roles[&Role::Vcpu][0]);
        let beside = [(used.start(), vcpus.end()), (used.end(), vcpus.start())];
        let beside = beside.map(|(all, vcpus)| all.saturating_sub(*vcpus));
        let [low, high] = beside.map(|ns| self.share(ns) / LIMIT_CORES);
        println!("by the kernel: {low:.3} to {high:.3} of the limit is not the vCPUs'");
        if low > 0.12 {
            begins(
                "quota_capped",
                "raise overhead.podFixed.cpu of the RuntimeClass",
            );
        } else if high < 0.08 {
            begins("quota_capped", "raise resources.limits.cpu of the pod's");
        }
        if found.contains("threads_outside_pod") {
            begins("threads_outside_pod", "set sandbox_cgroup_only=true");
        }
        // With the systemd driver that setting removes the limit of the whole pod, not
        // only of its I/O.
        for one in self.vms()[1].findings.iter().flat_map(|found| found.iter()) {
            assert!(!one.remedy.contains("sandbox_cgroup_only=false"), "{one:?}");
        }
    }

    /// Asserts the layout, the threads outside of the pod, and that all files agree.
    pub(super) fn assert_shape(&self, layout: &str) {
        let vm = self.vms()[1];
        assert_eq!((vm.runtime, vm.cgroup_layout), (Some("kata"), Some(layout)));
        assert_eq!(vm.uid.as_deref(), Some(&*self.pod.uid));
        let outside = self.outside();
        for role in &vm.roles {
            assert_eq!(
                role.outside_pod,
                outside.get(&role.role).copied(),
                "{role:?}"
            );
        }
    }

    /// Asserts that the limit is shown with the counters of its file and with its users.
    pub(super) fn assert_limited(&self) {
        let [then, now] = self.vms();
        for (sample, vm) in [(&self.began, then), (&self.ended, now)] {
            let limit = level(vm);
            let (low, high) = (sample.low.slice, sample.high.slice);
            assert_eq!(limit.cores, Some(LIMIT_CORES));
            assert!((low.periods..=high.periods).contains(&limit.periods));
            let throttled = low.throttled_periods..=high.throttled_periods;
            assert!(throttled.contains(&limit.throttled_periods));
            // The file has a resolution of 1 µs.
            let stood = low.throttled_ns..=high.throttled_ns + 999;
            assert!(stood.contains(&limit.throttled_ns), "{limit:?} {stood:?}");
            assert_eq!(vm.limits.len(), 1, "{:?}", vm.limits);
            assert_eq!(vm.limit_cores, Some(LIMIT_CORES));
            assert_eq!(vm.vcpu_limit_cores, Some(LIMIT_CORES));
            assert_eq!(vm.unapplied_limit, None);
        }
        let reported = used_ns(level(now)) - used_ns(level(then));
        assert_near(
            "used by role",
            reported,
            &self.grown(|truth| truth.slice_ns),
        );
    }
}

fn sits_in(tid: u32, path: &str) -> bool {
    let text = fs::read_to_string(format!("/proc/{tid}/cgroup")).expect("it lives");
    let at = text.lines().find_map(|line| line.strip_prefix("0::"));
    is_within(at.expect("v2 is mounted"), path)
}

pub(super) fn level(vm: &Vm) -> &Quota {
    let level = vm.quota.iter().find(|one| one.scope == Scope::Pod);
    level.expect("the pod has a level")
}

pub(super) fn used_ns(level: &Quota) -> u64 {
    level.used_ns.values().sum()
}

/// Asserts with a tolerance: `cpu.stat` lags behind the CPU time of threads by up to one
/// tick per thread.
#[track_caller]
pub(super) fn assert_near(what: &str, reported: u64, truth: &RangeInclusive<u64>) {
    let slack = (truth.start() / 200).max(20_000_000);
    println!("{what}: {reported} of {truth:?} ns");
    assert!(
        (truth.start().saturating_sub(slack)..=truth.end() + slack).contains(&reported),
        "{what}: {reported} is not in {truth:?}"
    );
}
