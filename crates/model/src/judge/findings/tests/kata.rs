//! Findings about Kata's pods: each remedy must be valid for the observed runtime, cgroup
//! driver and cgroup version.

use std::sync::Arc;

use super::{WINDOW, fresh, limit, names, part, throttle, use_cpu};
use crate::judge::findings::bounds::Bounds;
use crate::judge::findings::judge;
use crate::judge::interval::Interval;
use crate::snapshot::{Finding, Thread, UnappliedLimit, Vm};
use crate::vocab::{Comm, PodSpec, Role};

const SYSTEMD: &str = "/kubepods.slice/kubepods-podx.slice/cri-containerd-ab.scope";
const CGROUPFS: &str = "/kubepods/podx/kata_ab";
const STRAY: &str = "/kubepods-podx.slice:cri-containerd:ab";
const GO: &[&str] = &["containerd-shim-kata-v2"];
const RS: &[&str] = &[
    "containerd-shim-kata-v2",
    "tokio-rt-worker",
    "slog-async-logger",
];

/// A pod of this shim in this cgroup.
fn pod(shim: &[&str], cgroup: &str) -> Vm {
    let mut vm = fresh();
    limit(&mut vm, 2.0);
    vm.cgroup = Some(cgroup.into());
    vm.cgroup_layout = Some("pod");
    let threads = (30..).zip(shim).map(|(tid, name)| Thread {
        tid,
        role: Some(Role::Helper),
        name: Comm::new(name),
        device: None,
        cpu_ns: 0,
        wait_ns: None,
        pcpu: None,
        affinity: None,
        sched_class: None,
    });
    vm.threads = threads.collect();
    vm
}

fn found_on(cgroup: &str, before: &Vm, change: impl FnOnce(&mut Vm)) -> Vec<Finding> {
    let mut before = before.clone();
    before.quota.clone_from(&before.limits);
    let mut now = before.clone();
    change(&mut now);
    now.quota.clone_from(&now.limits);
    let over = Interval::between(&before, &now, WINDOW);
    judge(&over, &Bounds::default(), cgroup)
}

/// The remedy of the only finding with this name.
fn remedy<'f>(found: &'f [Finding], check: &str) -> &'f str {
    let one = found.iter().find(|one| one.check.name() == check);
    &one.unwrap_or_else(|| panic!("no {check} in {found:?}"))
        .remedy
}

/// A role waits under a throttled limit.
fn waits(role: usize) -> impl FnOnce(&mut Vm) {
    move |vm| {
        let limit = &mut vm.limits[0];
        limit.used_ns.insert(vm.roles[role].role, part(100));
        vm.roles[role].wait_ns = Some(part(200));
        use_cpu(vm, Role::Vcpu, 200);
        throttle(vm, 150);
    }
}

#[test]
fn io_remedy_moves_threads_only_where_setting_does() {
    const VHOST: usize = 1;
    const VIRTIOFSD: usize = 2;
    for (shim, cgroup, version, role, moves) in [
        (
            GO,
            CGROUPFS,
            "v1",
            VHOST,
            Some("all threads but the vCPUs'"),
        ),
        (GO, CGROUPFS, "v2", VHOST, None),
        (GO, CGROUPFS, "v2", VIRTIOFSD, Some("virtiofsd")),
        // It would take the VM out of its limit: limit_without_vm.
        (GO, SYSTEMD, "v1", VHOST, None),
        (GO, SYSTEMD, "v2", VIRTIOFSD, None),
        (RS, SYSTEMD, "v2", VHOST, None),
        (RS, SYSTEMD, "v2", VIRTIOFSD, Some("virtiofsd")),
        // The shim is unknown.
        (&[], CGROUPFS, "v1", VHOST, None),
    ] {
        let found = found_on(version, &pod(shim, cgroup), waits(role));
        let text = remedy(&found, "io_throttled");
        let case = format!("{shim:?} {cgroup} {version}: {text}");
        assert!(text.contains("overhead.podFixed.cpu"), "{case}");
        let expected = moves.map(|what| format!("which moves {what} out of the pod's limit"));
        match expected {
            Some(expected) => assert!(text.contains(&expected), "{case}"),
            None => assert!(!text.contains("sandbox_cgroup_only"), "{case}"),
        }
    }
    let mut dragonball = pod(RS, SYSTEMD);
    dragonball.vmm = "dragonball";
    let found = found_on("v2", &dragonball, waits(VIRTIOFSD));
    assert!(!remedy(&found, "io_throttled").contains("sandbox_cgroup_only"));
}

/// virtiofsd is already outside, and vhost is throttled: the remedies for one pod must
/// not contradict.
#[test]
fn remedies_of_one_pod_do_not_contradict_each_other() {
    for version in ["v1", "v2"] {
        let mut vm = pod(GO, CGROUPFS);
        vm.cgroup_layout = Some("split");
        vm.roles[2].outside_pod = Some(5);
        let found = found_on(version, &vm, |vm| {
            use_cpu(vm, Role::Virtiofsd, 300);
            waits(1)(vm);
        });
        let io = remedy(&found, "io_throttled");
        assert!(!io.contains("sandbox_cgroup_only"), "{io}");
        let outside = remedy(&found, "threads_outside_pod");
        assert!(outside.contains("sandbox_cgroup_only=true"), "{outside}");
        assert!(
            outside.contains("add 0.30 cores to overhead.podFixed.cpu"),
            "{outside}"
        );
    }
}

/// The kernel thread `kvm-pit/7` in the root cgroup, and other threads outside.
#[test]
fn timer_of_vm_does_not_count_as_outside_pod() {
    let mut vm = pod(GO, CGROUPFS);
    vm.threads.push(Thread {
        tid: 99,
        role: Some(Role::Emulator),
        name: Comm::new("kvm-pit/7"),
        device: None,
        cpu_ns: 0,
        wait_ns: None,
        pcpu: None,
        affinity: None,
        sched_class: None,
    });
    let emulator = |vm: &mut Vm, outside| {
        let role = vm.roles.iter_mut().find(|one| one.role == Role::Emulator);
        role.expect("it has one").outside_pod = Some(outside);
    };
    let uses = |vm: &mut Vm, timer: u64, others: u64| {
        let timers = vm.threads.iter_mut().filter(|one| one.tid == 99);
        timers.for_each(|one| one.cpu_ns += part(timer));
        use_cpu(vm, Role::Emulator, timer + others);
    };
    emulator(&mut vm, 1);
    let found = found_on("v2", &vm, |vm| uses(vm, 300, 0));
    assert!(!names(&found).contains(&"threads_outside_pod"), "{found:?}");
    emulator(&mut vm, 2);
    let found = found_on("v2", &vm, |vm| uses(vm, 300, 60));
    let outside = found
        .iter()
        .find(|one| one.check.name() == "threads_outside_pod");
    let evidence = &outside.expect("60 of 1000 are above 0.05").evidence;
    assert!(
        evidence.contains("1 emulator thread with 0.06 cores"),
        "{evidence}"
    );
}

#[test]
fn limit_on_empty_cgroup_is_a_warning_alone() {
    let mut vm = pod(GO, STRAY);
    vm.limits.clear();
    vm.cgroup_layout = Some("stray");
    for role in &mut vm.roles {
        role.outside_pod = Some(role.threads);
    }
    let uses = |vm: &mut Vm| use_cpu(vm, Role::Vcpu, 1190);
    assert_eq!(
        names(&found_on("v2", &vm, uses)),
        ["threads_outside_pod"],
        "it has no limit"
    );
    let mut by_spec = vm.clone();
    by_spec.pod_spec = Some(Arc::new(PodSpec {
        cpu_limit_millis: Some(550),
        cpu_overhead_millis: Some(250),
        ..PodSpec::default()
    }));
    vm.unapplied_limit = Some(UnappliedLimit {
        cgroup: "/kubepods.slice/kubepods-podx.slice".into(),
        cores: 0.8,
    });
    for (vm, of) in [
        (&vm, "the empty /kubepods.slice/kubepods-podx.slice"),
        (&by_spec, "the pod's spec"),
    ] {
        let found = found_on("v2", vm, uses);
        assert_eq!(names(&found), ["limit_without_vm"]);
        assert_eq!(
            found[0].evidence,
            format!(
                "the pod's limit of 0.80 cores ({of}) applies to no thread of its VM, which used \
                 1.19 cores in {STRAY}"
            )
        );
        assert!(found[0].remedy.contains("sandbox_cgroup_only=true"));
        assert!((found[0].excess - 1.4875).abs() < 1e-9);
    }
    // If the VM is inside its pod, the limit is one of its levels.
    vm.cgroup_layout = Some("pod");
    vm.roles
        .iter_mut()
        .for_each(|role| role.outside_pod = Some(0));
    assert_eq!(names(&found_on("v2", &vm, uses)), [] as [&str; 0]);
}

#[test]
fn fractional_default_fits_into_the_last_core() {
    let remedy_of = |cores, asked: Option<u64>| {
        let mut vm = pod(GO, SYSTEMD);
        limit(&mut vm, cores);
        vm.pod_spec = asked.map(|millis| {
            Arc::new(PodSpec {
                cpu_limit_millis: Some(millis),
                ..PodSpec::default()
            })
        });
        let found = found_on("v2", &vm, |vm| {
            use_cpu(vm, Role::Vcpu, 300);
            throttle(vm, 200);
        });
        remedy(&found, "vcpus_exceed_quota").to_owned()
    };
    assert!(remedy_of(0.8, None).starts_with("set default_vcpus=0.2 "));
    assert!(remedy_of(0.8, Some(550)).starts_with("set default_vcpus=0.4 "));
    // A limit of whole cores leaves no fraction.
    assert!(remedy_of(1.25, Some(1000)).starts_with("raise resources.limits.cpu"));
}

#[test]
fn capped_remedy_is_a_setting_of_the_runtime() {
    let text = |change: &dyn Fn(&mut Vm)| {
        let mut vm = pod(GO, SYSTEMD);
        change(&mut vm);
        let found = found_on("v2", &vm, |vm| {
            use_cpu(vm, Role::Vcpu, 1950);
            throttle(vm, 400);
        });
        remedy(&found, "quota_capped").to_owned()
    };
    let kata = text(&|_| {});
    assert_eq!(kata, "raise resources.limits.cpu of the pod's containers");
    let kubevirt = text(&|vm| vm.runtime = Some("kubevirt"));
    assert!(kubevirt.contains("VirtualMachine"), "{kubevirt}");
    let libvirt = |cgroup: &'static str| {
        text(&move |vm: &mut Vm| {
            (vm.runtime, vm.vm) = (Some("libvirt"), "my db".into());
            vm.limits[0].cgroup = cgroup.into();
            vm.limits[0].scope = crate::vocab::Scope::Machine;
        })
    };
    for (cgroup, parameter) in [
        ("/machine.slice/x.scope/libvirt/vcpu0", "vcpu_quota"),
        ("/machine.slice/x.scope/libvirt/emulator", "emulator_quota"),
        ("/machine.slice/x.scope/libvirt", "global_quota"),
    ] {
        let expected = format!("virsh schedinfo 'my db' --live --set {parameter}=-1");
        let text = libvirt(cgroup);
        assert!(text.ends_with(&expected), "{text}");
    }
    let shared = libvirt("/machine.slice");
    assert!(
        shared.contains("systemctl set-property machine.slice CPUQuota="),
        "{shared}"
    );
    let unit = text(&|vm| {
        vm.runtime = None;
        vm.limits[0].cgroup = "/system.slice/vm.service".into();
        vm.limits[0].scope = crate::vocab::Scope::Machine;
    });
    assert!(
        unit.contains("systemctl set-property vm.service CPUQuota="),
        "{unit}"
    );
}
