//! What the agent still says where the kernel gives less.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::{Role, Snapshot};
use virtlens_tests::Minivm;

use crate::reader::{self, cpu_ns, options, threads, vm};

/// A tree with the host's /proc, and of /sys only what is named.
fn host_with(sys: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("there is room for a folder");
    symlink("/proc", root.path().join("proc")).expect("a link can be made");
    for path in sys {
        let link = root.path().join(path);
        std::fs::create_dir_all(link.parent().expect("it is below the root")).expect("a folder");
        symlink(Path::new("/").join(path), link).expect("a link can be made");
    }
    root
}

fn read(root: &Path) -> Arc<Snapshot> {
    let options = Options {
        root: root.to_owned(),
        ..options()
    };
    Collector::open(&options).expect("/proc is there").collect()
}

/// Without type information there is no BPF; /proc and names must do.
#[test]
fn without_btf_a_vm_is_read_from_proc() {
    if !reader::ready("without_btf") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2", "--name", "plain"]);
    let burned = guest.burn_vcpus("all", 53);
    let root = host_with(&["sys/devices", "sys/fs/cgroup"]);
    let snapshot = read(root.path());
    let source = |name| {
        snapshot
            .sources
            .iter()
            .find(|one| one.name == name)
            .expect(name)
    };
    assert!(!source("task_pass").up && source("task_pass").reason.contains("BTF"));
    assert!(source("proc").up);
    let vm = vm(&snapshot, guest.pid());
    assert_eq!((&*vm.vm, threads(vm, Role::Vcpu)), ("plain", 2));
    let expected: u64 = burned.iter().map(|one| one.cpu_ns).sum();
    reader::assert_close(
        "from /proc",
        cpu_ns(vm, Role::Vcpu),
        expected,
        2 * reader::MS,
    );
    assert!(
        vm.vcpus.iter().all(|vcpu| vcpu.exits.is_none()),
        "unknown is absent"
    );
}
