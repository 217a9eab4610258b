//! A collector in this process, and helpers to read its snapshots.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::vocab::Role;

use crate::{eventually, need};

/// Default options of collectors, with the loader of `VIRTLENS_LOADER`, as in the
/// programs that tests start.
pub fn options() -> Options {
    let named = std::env::var("VIRTLENS_LOADER").ok();
    let loader = named.map(|name| name.parse().expect("VIRTLENS_LOADER is a loader's name"));
    Options {
        loader: loader.unwrap_or_default(),
        ..Options::default()
    }
}

/// Whether the requirements of every test here are met.
pub fn ready(test: &str) -> bool {
    need::all(test, [need::root(), need::kvm(), need::bpf()])
}

/// A collector with a working task pass.
pub fn collector() -> Collector {
    collector_with(&options())
}

/// A collector with these options and a working task pass.
pub fn collector_with(options: &Options) -> Collector {
    let mut collector = Collector::open(options).expect("the host can be read");
    let snapshot = collector.collect();
    let pass = snapshot
        .sources
        .iter()
        .find(|source| source.name == "task_pass");
    let pass = pass.expect("it is always listed");
    assert!(pass.up, "the task pass is off: {}", pass.reason);
    collector
}

/// An agent with BPF, and one without.
pub fn collectors() -> (Vec<Collector>, tempfile::TempDir) {
    let without_btf = host_with(&["sys/devices", "sys/fs/cgroup"]);
    let without_bpf = Collector::open(&Options {
        root: without_btf.path().to_owned(),
        ..options()
    });
    let both = vec![collector(), without_bpf.expect("/proc is there")];
    (both, without_btf)
}

/// A tree with the host's /proc and only the named parts of /sys.
pub fn host_with(sys: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("there is room for a folder");
    symlink("/proc", root.path().join("proc")).expect("a link can be made");
    for path in sys {
        let link = root.path().join(path);
        std::fs::create_dir_all(link.parent().expect("it is below the root")).expect("a folder");
        symlink(Path::new("/").join(path), link).expect("a link can be made");
    }
    root
}

/// The VM of a process.
pub fn vm(snapshot: &Snapshot, pid: u32) -> &Vm {
    find(snapshot, pid).unwrap_or_else(|| {
        panic!("pid {pid} is no VM; those are: {:?}", names(snapshot));
    })
}

/// The VM of a process, if it is one.
pub fn find(snapshot: &Snapshot, pid: u32) -> Option<&Vm> {
    snapshot.vms.iter().find(|vm| vm.pid == pid)
}

fn names(snapshot: &Snapshot) -> Vec<(u32, &str)> {
    snapshot.vms.iter().map(|vm| (vm.pid, &*vm.vm)).collect()
}

/// CPU time of a role, ns; 0 if the VM lacks the role.
pub fn cpu_ns(vm: &Vm, role: Role) -> u64 {
    vm.roles
        .iter()
        .find(|one| one.role == role)
        .map_or(0, |one| one.cpu_ns)
}

/// Number of living threads of a role.
pub fn threads(vm: &Vm, role: Role) -> u32 {
    vm.roles
        .iter()
        .find(|one| one.role == role)
        .map_or(0, |one| one.threads)
}

/// CPU time of all roles and of threads without a role, ns.
pub fn all_ns(vm: &Vm) -> u64 {
    vm.roles.iter().map(|role| role.cpu_ns).sum::<u64>() + vm.unattributed_cpu_ns
}

/// Number of losses for this reason.
pub fn dropped(snapshot: &Snapshot, reason: &str) -> u64 {
    let found = snapshot.dropped.iter().find(|one| one.reason == reason);
    found.expect("it is always listed").count
}

/// Fails unless the two differ by less than `within_ns`.
#[track_caller]
pub fn assert_close(what: &str, found_ns: u64, expected_ns: u64, within_ns: u64) {
    let off = found_ns.abs_diff(expected_ns);
    assert!(
        off <= within_ns,
        "{what}: {found_ns} ns instead of {expected_ns} ns, off by {off} ns (allowed {within_ns})"
    );
}

/// Reads until `value` of a snapshot equals the expected value, and fails if it is more.
/// The last CPU time of a thread is final once the kernel frees it, after its exit.
#[track_caller]
pub fn assert_settles(
    collector: &mut Collector,
    what: &str,
    expected_ns: u64,
    within_ns: u64,
    value: impl Fn(&Snapshot) -> u64,
) -> Arc<Snapshot> {
    let least_ns = expected_ns.saturating_sub(within_ns);
    let snapshot = eventually(what, || {
        let snapshot = collector.collect();
        (value(&snapshot) >= least_ns).then_some(snapshot)
    });
    assert_close(what, value(&snapshot), expected_ns, within_ns);
    snapshot
}

/// Upper bound of the CPU time that a thread uses to begin and end a burn of this length:
/// some µs, but on a shared machine the host charges interrupts and its own work to the
/// thread.
pub fn beside(burned_ns: u64) -> u64 {
    (burned_ns / 20).max(5 * MS)
}

/// One millisecond.
pub const MS: u64 = 1_000_000;
