//! A node without VMs has no program attached to a hook.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::vocab::Role;
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::plan::{Feature, Plan, plan};
use virtlens_tests::hooked::{hooked, idle, kept};
use virtlens_tests::process::{Schedstat, set_affinity};
use virtlens_tests::reader::{self, MS, all_ns, assert_close, cpu_ns, find, vm};
use virtlens_tests::{
    Launch, Minivm, TestCgroup, binary, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

/// Shorter than `virtlens run`'s, and longer than one reading takes.
const DETACH_AFTER: Duration = Duration::from_millis(300);

fn open(detach_after: Duration) -> Collector {
    let options = Options {
        detach_after: Some(detach_after),
        linger: Duration::ZERO,
        pcpu_series: true,
        ..reader::options()
    };
    Collector::open(&options).expect("the host can be read")
}

/// The plan of these collectors, as far as the kernel takes it.
fn planned(snapshot: &Snapshot) -> Plan {
    let mut plan = plan(&KernelFacts::probe(Path::new("/")).seen_by(reader::options().loader));
    let mut programs = snapshot.programs.iter();
    plan.walks = programs.any(|one| one.program == "walk_tasks");
    plan
}

/// Names of the programs that are attached while VMs run, whatever VMs these are.
fn expected(plan: &Plan, snapshot: &Snapshot) -> BTreeSet<String> {
    let is_up = |feature: &Feature| {
        let mut sources = snapshot.sources.iter();
        sources.any(|source| source.name == feature.name() && source.up)
    };
    let features = Feature::ALL
        .into_iter()
        .filter(|one| one.has_hooks() && is_up(one));
    features
        .flat_map(|feature| {
            let names = plan.programs_of(feature).iter();
            names.filter(move |name| !feature.attached_at_need().contains(name))
        })
        .map(|name| (*name).to_owned())
        .collect()
}

/// The attached programs without those that only some VMs need.
fn always(attached: &BTreeSet<String>) -> BTreeSet<String> {
    let needed: Vec<&str> = Feature::ALL
        .iter()
        .flat_map(|feature| feature.attached_at_need())
        .copied()
        .collect();
    let mut always = attached.clone();
    always.retain(|name| !needed.contains(&name.as_str()));
    always
}

/// Opens a collector on the host without VMs, and reads it. Tests of this host may run beside
/// other VMs, which end.
fn without_vms(detach_after: Duration) -> (Collector, Arc<Snapshot>) {
    eventually("the host has no VM", || {
        let mut collector = open(detach_after);
        let snapshot = collector.collect();
        snapshot.vms.is_empty().then_some((collector, snapshot))
    })
}

/// Reads until no program is attached.
fn detached(collector: &mut Collector, keeps: &BTreeSet<String>) -> Arc<Snapshot> {
    eventually(&format!("only {keeps:?} are attached"), || {
        let snapshot = collector.collect();
        (hooked() == *keeps && snapshot.vms.is_empty()).then_some(snapshot)
    })
}

/// The usage of a VM in its pod, and what was counted of it.
struct Usage {
    counted_ns: u64,
    used_ns: u64,
}

impl Usage {
    fn of(vm: &Vm, pod: &TestCgroup) -> Self {
        Self {
            counted_ns: all_ns(vm),
            used_ns: pod.usage_ns(),
        }
    }

    /// Asserts that all usage since then is counted.
    #[track_caller]
    fn assert_counted(&self, vm: &Vm, pod: &TestCgroup) {
        let used_ns = pod.usage_ns() - self.used_ns;
        let counted_ns = all_ns(vm) - self.counted_ns;
        assert_close("the pod", counted_ns, used_ns, (used_ns / 200).max(20 * MS));
    }
}

/// The CPU time of the first vCPU by pCPU, beyond its residency in `before`, ns.
fn residency_ns(before: &Vm, after: &Vm, pcpu: u32) -> u64 {
    let of = |vm: &Vm| {
        let vcpu = vm.vcpus.first().expect("it has one");
        vcpu.residency_ns.get(&pcpu).copied().unwrap_or(0)
    };
    of(after) - of(before)
}

/// Runs a VM whose threads end, change their name and move, and asserts that each is
/// attributed from the first reading that shows the VM.
fn assert_attributed(collector: &mut Collector, name: &str) {
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    // Only threads of QEMU have roles by their names.
    let dir = tempfile::tempdir().expect("a folder can be made");
    let file = dir.path().join("qemu-system-x86_64");
    std::fs::copy(binary("minivm"), &file).expect("there is room for a copy");
    let args = ["--vcpus", "1", "--thread", "worker=1", "--name", name];
    let mut guest = Minivm::start_launch(Launch::new(&file).args(args).cgroup(&pod));
    let (pid, tid) = (guest.pid(), guest.ready.vcpus[0].tid);
    set_affinity(tid, &[0]);
    guest.burn_vcpus("0", 20);
    let first = collector.collect_judged();
    let first = vm(&first, pid);
    let used_ns = |tid| Schedstat::read(pid, tid).expect("the thread lives").cpu_ns;
    // The main thread reads the orders and reports their end.
    let main_ns = || used_ns(pid.cast_signed());
    let main_before_ns = main_ns();
    let vcpu_before_ns = used_ns(tid);
    let usage = Usage::of(first, &pod);

    let ended_ns = guest.spawn(3, 20, "passing");
    let as_emulator_ns = guest.burn_threads("0", 90)[0].burned_ns + ended_ns;
    guest.rename_thread(0, "IO io0");
    let as_iothread_ns = guest.burn_threads("0", 30)[0].burned_ns;
    guest.burn_vcpus("0", 40);
    let on_first_ns = used_ns(tid) - vcpu_before_ns;
    set_affinity(tid, &[1]);
    guest.burn_vcpus("0", 60);
    let on_both_ns = used_ns(tid) - vcpu_before_ns;
    set_affinity(tid, &[0]);
    // The kernel moves a sleeping thread when it wakes.
    guest.burn_vcpus("0", 1);
    let last_ns = used_ns(tid) - vcpu_before_ns - on_both_ns;
    let on_pcpus_ns = [on_first_ns + last_ns, on_both_ns - on_first_ns];
    let as_emulator_ns = as_emulator_ns + main_ns() - main_before_ns;
    let before_ns = cpu_ns(first, Role::Emulator);
    let what = "its main thread, its ended threads, and one under its first name";
    let last = reader::assert_settles(collector, what, as_emulator_ns, 20 * MS, |now| {
        cpu_ns(vm(now, pid), Role::Emulator) - before_ns
    });
    let last = vm(&last, pid);
    usage.assert_counted(last, &pod);
    let counted_ns = cpu_ns(last, Role::Iothread);
    let within_ns = reader::beside(as_iothread_ns);
    assert_close("under its new name", counted_ns, as_iothread_ns, within_ns);
    if first.moves.is_some() {
        for (pcpu, expected_ns) in (0..).zip(on_pcpus_ns) {
            let resident_ns = residency_ns(first, last, pcpu);
            let within_ns = reader::beside(expected_ns);
            assert_close(&format!("pCPU {pcpu}"), resident_ns, expected_ns, within_ns);
        }
    }
}

/// The first VM attaches all programs, which are detached after the last one. Of a VM that
/// starts later nothing is lost.
#[test]
fn programs_are_attached_while_vms_run() {
    let test = "programs_are_attached_while_vms_run";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup(), two_cpus()]) {
        return;
    }
    let (mut collector, empty) = without_vms(DETACH_AFTER);
    assert_eq!(hooked(), BTreeSet::new(), "no VM, no hook");
    let waiting = idle(&empty);
    assert!(
        waiting.contains("lifetime") && !waiting.contains("task_pass"),
        "{waiting:?}"
    );

    let guest = Minivm::start(["--vcpus", "1", "--name", "first"]);
    let snapshot = collector.collect();
    assert!(vm(&snapshot, guest.pid()).running);
    let attached = hooked();
    println!("{attached:?}");
    assert_eq!(always(&attached), expected(&planned(&snapshot), &snapshot));
    assert_eq!(idle(&snapshot), BTreeSet::new());

    drop(guest);
    let kept = kept(&snapshot, &attached);
    let last = detached(&mut collector, &kept);
    assert_eq!(idle(&last), waiting);
    assert_attributed(&mut collector, "second");
    detached(&mut collector, &kept);
    // Missed runs and losses of programs that are detached stay counted.
    let after = collector.collect();
    for (now, then) in after.dropped.iter().zip(&last.dropped) {
        assert!(now.count >= then.count, "{now:?} after {then:?}");
    }
}

/// Between VMs that follow each other the programs stay attached.
#[test]
fn programs_stay_attached_for_some_time_after_last_vm() {
    let test = "programs_stay_attached_for_some_time_after_last_vm";
    if !reader::ready(test) {
        return;
    }
    let (mut collector, _) = without_vms(Duration::from_hours(1));
    let guest = Minivm::start(["--vcpus", "1"]);
    let pid = guest.pid();
    let snapshot = collector.collect();
    let attached = hooked();
    assert_eq!(always(&attached), expected(&planned(&snapshot), &snapshot));
    drop(guest);
    eventually("the VM is gone", || {
        find(&collector.collect(), pid).is_none().then_some(())
    });
    collector.collect();
    assert_eq!(hooked(), attached);
}

/// Cloud Hypervisor after `vm.shutdown`: its VMM lives on, and starts a VM again.
#[test]
fn vmm_without_vm_attaches_nothing_until_it_has_one_again() {
    let test = "vmm_without_vm_attaches_nothing_until_it_has_one_again";
    if !reader::ready(test) {
        return;
    }
    let (mut collector, _) = without_vms(DETACH_AFTER);
    let mut guest = Minivm::start(["--vcpus", "2", "--name", "again"]);
    let snapshot = collector.collect();
    assert!(vm(&snapshot, guest.pid()).running);
    let attached = hooked();
    guest.release();
    detached(&mut collector, &kept(&snapshot, &attached));

    guest.exec();
    let first = collector.collect();
    assert_eq!(hooked(), attached);
    let burned = guest.burn_vcpus("all", 30);
    let burned_ns: u64 = burned.iter().map(|one| one.burned_ns).sum();
    let last = collector.collect();
    let vcpus_ns = |snapshot: &Snapshot| cpu_ns(vm(snapshot, guest.pid()), Role::Vcpu);
    let counted_ns = vcpus_ns(&last) - vcpus_ns(&first);
    assert_close(
        "its vCPUs",
        counted_ns,
        burned_ns,
        reader::beside(burned_ns),
    );
}

/// A command that shows the host once needs no VM to attach its programs.
#[test]
fn live_command_attaches_at_once() {
    if !reader::ready("live_command_attaches_at_once") {
        return;
    }
    let mut collector = Collector::open(&reader::options()).expect("the host can be read");
    let at_start = hooked();
    let snapshot = collector.collect();
    assert_eq!(always(&at_start), expected(&planned(&snapshot), &snapshot));
}

/// `virtlens check` attaches the programs as a test, and then reports what runs here.
#[test]
fn check_rests_without_vms() {
    if !reader::ready("check_rests_without_vms") {
        return;
    }
    let rows = eventually("the host has no VM", || {
        let mut collector = Collector::open(&reader::options()).expect("the host can be read");
        let snapshot = collector.collect();
        collector.rest().expect("they can be detached");
        snapshot.vms.is_empty().then(|| collector.check())
    });
    let row = rows.iter().find(|row| row.feature == "lifetime");
    let row = row.expect("it is listed");
    let expected = ("on", "not attached: no VM on this node");
    assert_eq!((row.state, &*row.detail), expected);
}

fn two_cpus() -> Result<(), need::Missing> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    need::that("two_cpus", cpus >= 2, "this host has one CPU")
}
