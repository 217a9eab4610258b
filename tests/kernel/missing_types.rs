//! Kernels with a smaller configuration: this kernel's BTF without the fields that they
//! lack. Loaders resolve fields by BTF and replace an access to a missing one by a call
//! that the verifier rejects.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;

use rustix::mount::mount_bind;
use serde_json::Value;
use virtlens_model::vocab::Role;
use virtlens_probe::loader::Loader;
use virtlens_tests::reader;
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::mounts::{by, output, with_mounts};

const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// `BTF_KIND_STRUCT`, `_FUNC` (`include/uapi/linux/btf.h`).
const STRUCT: u32 = 4;
const FUNC: u32 = 12;

/// Types that a kernel of another configuration lacks.
struct Lacks {
    /// Missing members per structure; an empty list means the whole structure.
    members: &'static [(&'static str, &'static [&'static str])],
    functions: &'static [&'static str],
}

/// BTF (`Documentation/bpf/btf.rst`) with these names removed. Every type keeps its
/// number and size.
fn without(types: &[u8], lacks: &Lacks) -> Vec<u8> {
    let word = |at: usize| u32::from_ne_bytes(types[at..at + 4].try_into().expect("four bytes"));
    let header = word(4) as usize;
    let (begin, end) = (
        header + word(8) as usize,
        header + (word(8) + word(12)) as usize,
    );
    let names = &types[header + word(16) as usize..];
    let name = |at: usize| {
        let rest = &names[word(at) as usize..];
        let end = rest.iter().position(|byte| *byte == 0).expect("a NUL");
        std::str::from_utf8(&rest[..end]).expect("a name")
    };
    let mut less = types.to_vec();
    let (mut at, mut taken) = (begin, 0);
    let mut take = |at: usize| {
        less[at..at + 4].fill(0);
        taken += 1;
    };
    while at < end {
        let (kind, entries) = (word(at + 4) >> 24 & 0x1f, (word(at + 4) & 0xffff) as usize);
        let members = lacks.members.iter().find(|(of, _)| *of == name(at));
        if let (STRUCT, Some((_, members))) = (kind, members) {
            let all = (0..entries).map(|entry| at + 12 + 12 * entry);
            let is_lacking = |at: &usize| members.is_empty() || members.contains(&name(*at));
            all.filter(is_lacking).for_each(&mut take);
        } else if kind == FUNC && lacks.functions.contains(&name(at)) {
            take(at);
        }
        at += 12
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * entries,
                6 | 13 => 8 * entries,
                _ => 0,
            };
    }
    assert!(taken > 0, "this kernel has what the other lacks");
    less
}

/// A JSON snapshot on a kernel that lacks these types.
fn snapshot(lacks: &Lacks, loader: Loader) -> Value {
    let types = std::fs::read(TYPES).expect("it has types");
    let file = tempfile::NamedTempFile::new().expect("there is room");
    std::fs::write(file.path(), without(&types, lacks)).expect("there is room");
    let from = CString::new(file.path().as_os_str().as_bytes()).expect("no NUL");
    let to = CString::new(TYPES).expect("no NUL");
    let args = ["snapshot", "-o", "json", "--loader", loader.name()];
    let done = output(with_mounts(&args, move || Ok(mount_bind(&from, &to)?)));
    assert!(done.status.success(), "{done:?}");
    serde_json::from_slice(&done.stdout).expect("JSON")
}

/// `CONFIG_CFS_BANDWIDTH=n` (`kernel/sched/sched.h`: the structure is empty then).
const NO_LIMITS: Lacks = Lacks {
    members: &[("cfs_bandwidth", &[])],
    functions: &["throttle_cfs_rq", "unthrottle_cfs_rq"],
};

/// `CONFIG_CGROUP_SCHED=n` (`include/linux/sched.h`).
const NO_GROUPS: Lacks = Lacks {
    members: &[("task_struct", &["sched_task_group"])],
    functions: &["throttle_cfs_rq", "unthrottle_cfs_rq"],
};

#[test]
fn kernel_without_cpu_limits_lacks_only_quotas() {
    let test = "kernel_without_cpu_limits_lacks_only_quotas";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(70_000), 100_000);
    let args = ["--vcpus", "2", "--name", "unlimited"];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
    guest.burn_vcpus("all", 31);
    for loader in Loader::ALL {
        let with = snapshot_here(*loader);
        let quota = &by(&with["vms"], "pid", guest.pid())["quota"];
        assert_eq!(by(quota, "scope", "pod")["cores"], 0.7);
        for lacks in [&NO_LIMITS, &NO_GROUPS] {
            let less = snapshot(lacks, *loader);
            let up = |name| by(&less["sources"], "name", name)["up"] == true;
            for source in ["task_pass", "file_pass", "lifetime", "placement"] {
                assert!(up(source), "{loader}: {}", less["sources"]);
            }
            let throttle = by(&less["sources"], "name", "throttle");
            let reason = throttle["reason"].as_str().expect("it is down");
            assert!(reason.contains("CONFIG_CFS_BANDWIDTH"), "{reason}");
            let vm = by(&less["vms"], "pid", guest.pid());
            assert_eq!(vm["quota"].as_array().map(Vec::len), Some(0), "{vm}");
            let vcpus = by(&vm["roles"], "role", Role::Vcpu.name());
            assert_eq!(vcpus["threads"], 2);
            let exits = |vcpu: &Value| vcpu["kvm"]["exits"].is_object();
            let all = vm["vcpus"].as_array().expect("vCPUs");
            assert!(all.iter().all(exits), "{vm}");
        }
    }
}

fn snapshot_here(loader: Loader) -> Value {
    let args = ["snapshot", "-o", "json", "--loader", loader.name()];
    let done = output(with_mounts(&args, || Ok(())));
    serde_json::from_slice(&done.stdout).expect("JSON")
}
