//! A Kata sandbox that `ctr run` started with a chosen name: it has no pod, and only the
//! VMM's name and sockets have its id. Kata 4.1, Go runtime, `sandbox_cgroup_only=false`.

use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::Role;
use virtlens_tests::reader::{self, MS, all_ns, assert_close, find, threads, vm};
use virtlens_tests::{Minivm, TestCgroup, eventually, need};

/// The VMM sits in `kata_<id>` of the namespace, shim and virtiofsd in `kata_overhead/<id>`:
/// the sandbox has the CPU time of both cgroups.
#[test]
fn sandbox_with_custom_name_has_threads_of_its_overhead_cgroup() {
    let test = "sandbox_with_custom_name_has_threads_of_its_overhead_cgroup";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let id = format!("demo-{}", std::process::id());
    let own = TestCgroup::new(&format!("default/kata_{id}"));
    let overhead = TestCgroup::new(&format!("kata_overhead/{id}"));
    let other = TestCgroup::new(&format!("kata_overhead/{id}-other"));
    let name = format!("sandbox-{id}");
    let socket = format!("unix:/run/vc/vm/{id}/qmp.sock,server=on,wait=off");
    let vmm = Minivm::launch()
        .arg0("/usr/bin/qemu-system-x86_64")
        .args(["--name", &name, "--qmp", &socket, "--vcpus", "1"])
        .args(["--comm", "qemu-system-x86", "--vcpu-name", "same"]);
    let mut vmm = Minivm::start_launch(vmm.cgroup(&own));
    let helper = |comm: &str, thread: &str, cgroup: &TestCgroup| {
        let launch = Minivm::launch().args(["--vcpus", "0", "--comm", comm]);
        Minivm::start_launch(launch.args(["--thread", thread]).cgroup(cgroup))
    };
    let mut virtiofsd = helper("virtiofsd", "virtiofsd=2", &overhead);
    let mut shim = helper("containerd-shim", "containerd-shim=9", &overhead);
    let mut unrelated = helper("virtiofsd", "virtiofsd=2", &other);
    let mut collector = reader::collector();
    eventually("the agent to find the helpers", || {
        let snapshot = collector.collect();
        let vm = find(&snapshot, vmm.pid())?;
        (threads(vm, Role::Virtiofsd) > 0).then_some(())
    });

    vmm.burn_vcpus("all", 60);
    for helper in [&mut virtiofsd, &mut shim, &mut unrelated] {
        helper.burn_threads("0", 50);
    }
    let used_ns = || own.usage_ns() + overhead.usage_ns();
    let used = |snapshot: &Snapshot| all_ns(vm(snapshot, vmm.pid()));
    let snapshot = collector.collect();
    assert_close("the sandbox", used(&snapshot), used_ns(), 20 * MS);
    let vm = vm(&snapshot, vmm.pid());
    assert_eq!((vm.runtime, vm.vmm), (Some("kata"), "qemu"));
    assert_eq!((&*vm.vm, vm.unattributed_cpu_ns), (&*name, 0));
    assert_eq!(threads(vm, Role::Virtiofsd), 3, "{:?}", vm.roles);
    assert_eq!(threads(vm, Role::Helper), 10, "{:?}", vm.roles);
}
