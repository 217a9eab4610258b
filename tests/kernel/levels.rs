//! CPU limits on parts of a VM, in the cgroups that libvirt creates per part. Each level
//! is read from its own files, and the level that binds is found.

use virtlens_model::judge::interval::Interval;
use virtlens_model::snapshot::{Quota, Vm};
use virtlens_model::vocab::{Role, Scope};
use virtlens_tests::reader::{self, vm};
use virtlens_tests::{Minivm, TestCgroup, Throttling, eventually, need};

const PERIOD_US: u64 = 100_000;

/// libvirt's cgroups without systemd (`virCgroupNewDomainPartition` and
/// `virCgroupNewThread`, `src/util/vircgroup.c`, 11.3), with limits in hundredths of a core.
struct Machine {
    /// The cgroups of the parts come first: a cgroup is dropped before its parent.
    parts: [TestCgroup; 3],
    whole: TestCgroup,
}

/// Names of the parts.
const PARTS: [&str; 3] = ["vcpu0", "vcpu1", "emulator"];

impl Machine {
    fn new(name: &str, global: Option<u64>, percent: [Option<u64>; 3]) -> Self {
        let whole = TestCgroup::new(&format!("machine/qemu-1-{name}.libvirt-qemu"));
        let us = |percent: Option<u64>| percent.map(|percent| percent * PERIOD_US / 100);
        whole.set_quota(us(global), PERIOD_US);
        let parts = PARTS.map(|part| whole.child(part));
        for (part, percent) in parts.iter().zip(percent) {
            part.threaded();
            part.set_quota(us(percent), PERIOD_US);
        }
        Self { parts, whole }
    }

    /// Starts a VM of two vCPUs with its threads in libvirt's cgroups.
    fn start(&self, name: &str) -> Minivm {
        let args = ["--vcpus", "2", "--thread", "IO iothread1=1", "--name", name];
        let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&self.whole));
        for (part, vcpu) in self.parts.iter().zip(&guest.ready.vcpus) {
            part.add_thread(vcpu.tid);
        }
        let main = i32::try_from(guest.pid()).expect("pids are small");
        self.parts[2].add_thread(main);
        guest
    }

    /// Returns the cgroup of a level, by its path.
    fn of(&self, level: &Quota) -> &TestCgroup {
        let mut all = self.parts.iter().chain([&self.whole]);
        all.find(|cgroup| cgroup.path() == *level.cgroup)
            .unwrap_or_else(|| panic!("{} is no cgroup of the VM", level.cgroup))
    }
}

fn ready(test: &str) -> bool {
    reader::ready(test) && need::all(test, [need::cpu_cgroup()])
}

fn is_between(level: &Quota, low: Throttling, high: Throttling) -> bool {
    (low.periods..=high.periods).contains(&level.periods)
        && (low.throttled_periods..=high.throttled_periods).contains(&level.throttled_periods)
        && (low.throttled_ns..=high.throttled_ns + 1000).contains(&level.throttled_ns)
}

/// Two readings of a VM that did `work` between them.
fn over(machine: &Machine, guest: &mut Minivm, work: &str) -> [Vm; 2] {
    let mut collector = reader::collector();
    eventually("the agent to find both vCPUs in their cgroups", || {
        let snapshot = collector.collect();
        (vm(&snapshot, guest.pid()).quota.len() == 4).then_some(())
    });
    guest.command(work);
    let before = vm(&collector.collect(), guest.pid()).clone();
    let periods = || machine.whole.throttling().periods;
    let from = periods();
    eventually("its cgroup to run for 20 periods", || {
        (periods() >= from + 20).then_some(())
    });
    let low = |level: &Quota| machine.of(level).throttling();
    let now = vm(&collector.collect(), guest.pid()).clone();
    // The kernel's counters rise during a reading, so they are read before and after it.
    let mut bounds = Vec::new();
    for level in &now.quota {
        let then = before.quota.iter().find(|then| then.cgroup == level.cgroup);
        let then = then.expect("its levels do not change");
        let then = Throttling {
            periods: then.periods,
            throttled_periods: then.throttled_periods,
            throttled_ns: then.throttled_ns,
        };
        bounds.push((level, then, low(level)));
    }
    for (level, then, now) in bounds {
        assert!(
            is_between(level, then, now),
            "{level:?}: {then:?} to {now:?}"
        );
    }
    [before, now]
}

#[test]
fn each_cgroup_of_a_libvirt_vm_is_a_level_with_its_own_counters() {
    if !ready("each_cgroup_of_a_libvirt_vm_is_a_level_with_its_own_counters") {
        return;
    }
    let machine = Machine::new("levels", Some(80), [Some(30), Some(30), Some(10)]);
    let mut guest = machine.start("levels");
    let [_, now] = over(&machine, &mut guest, "spin all");
    let shown: Vec<_> = now
        .quota
        .iter()
        .map(|level| (level.scope, level.cores))
        .collect();
    assert_eq!(
        shown,
        [
            (Scope::Machine, Some(0.8)),
            (Scope::Vcpu, Some(0.3)),
            (Scope::Vcpu, Some(0.3)),
            (Scope::Emulator, Some(0.1)),
        ]
    );
    assert_eq!(
        (now.limit_cores, now.vcpu_limit_cores),
        (Some(0.8), Some(0.6))
    );
    let of = |part: usize| {
        let path = machine.parts[part].path();
        let level = now.quota.iter().find(|level| *level.cgroup == path);
        level.expect("it is a level")
    };
    assert!(of(0).used_ns.contains_key(&Role::Vcpu) && of(1).used_ns.contains_key(&Role::Vcpu));
    assert!(!of(0).used_ns.contains_key(&Role::Emulator));
    assert!(of(2).used_ns.contains_key(&Role::Emulator));
    for (vcpu, part) in now.vcpus.iter().zip(&machine.parts) {
        assert_eq!(vcpu.cgroup.as_deref(), Some(&*part.path()));
    }
    drop(guest);
}

/// Only the second vCPU's limit binds: that limit is shown, and the vCPU is not reported
/// as starved of CPU by the host.
#[test]
fn throttled_second_vcpu_is_found_and_is_not_starved() {
    if !ready("throttled_second_vcpu_is_found_and_is_not_starved") {
        return;
    }
    let machine = Machine::new("second", None, [Some(50), Some(20), None]);
    let mut guest = machine.start("second");
    // The levels with a limit, and the VM's own level.
    let mut collector = reader::collector();
    eventually("the agent to find both vCPUs in their cgroups", || {
        let snapshot = collector.collect();
        (vm(&snapshot, guest.pid()).quota.len() == 3).then_some(())
    });
    guest.command("spin 1");
    collector.collect_judged();
    let before = vm(&collector.collect(), guest.pid()).clone();
    let throttled = || machine.parts[1].throttling().throttled_periods;
    let from = throttled();
    eventually("the limit to be used up in 20 periods", || {
        (throttled() >= from + 20).then_some(())
    });
    let now = vm(&collector.collect_judged(), guest.pid()).clone();
    let over = Interval::between(&before, &now, 2_000_000_000);
    let binding = over.binding().expect("there are limits");
    assert_eq!(*binding.now.cgroup, machine.parts[1].path());
    assert!(binding.throttled_periods >= 15, "{binding:?}");
    let shown = now.limits.iter().find(|limit| limit.scope == Scope::Vcpu);
    let shown = shown.expect("its vCPUs have limits");
    assert_eq!(*shown.cgroup, machine.parts[1].path());
    let findings = now.findings.as_deref().expect("it was judged");
    let names: Vec<_> = findings.iter().map(|one| one.check.name()).collect();
    assert!(!names.contains(&"vcpu_starved"), "{findings:#?}");
    assert!(names.contains(&"quota_capped"), "{findings:#?}");
    drop(guest);
}
