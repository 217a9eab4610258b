//! The program with exactly the capabilities of the chart sees what root sees. Further
//! tests take each capability away and check which function is lost.
//!
//! The VM belongs to another user and has no capabilities, as `KubeVirt`'s do.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::mount_bind;
use rustix::process::{Gid, Resource, Rlimit, Uid, setrlimit};
use rustix::thread::{
    CapabilitySet, remove_capability_from_bounding_set, set_no_new_privs, set_thread_gid,
    set_thread_groups, set_thread_uid,
};
use serde_json::Value;
use tempfile::TempDir;
use virtlens_tests::{Launch, Minivm, binary, filter, need, private_mounts};

/// The file that defines the set.
const VALUES: &str = include_str!("../../deploy/chart/virtlens/values.yaml");

/// `include/uapi/linux/capability.h`.
const NUMBERS: [(&str, u32); 5] = [
    ("DAC_READ_SEARCH", 2),
    ("SYS_PTRACE", 19),
    ("SYS_RESOURCE", 24),
    ("PERFMON", 38),
    ("BPF", 39),
];

/// UID of `KubeVirt`'s QEMU.
const QEMU_USER: u32 = 107;

type Set = BTreeSet<String>;

/// Returns the capabilities that the chart grants.
fn chart() -> Set {
    let values: Value = serde_norway::from_str(VALUES).expect("it is YAML");
    let added = &values["securityContext"]["capabilities"]["add"];
    let names = added.as_array().expect("a list").iter();
    names
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}

/// Returns the capabilities to grant on this kernel. Kernels that account BPF maps as
/// locked memory need one more than the chart's; v5.11 ended that ("bpf: Use memcg-based
/// memory accounting") and brought task storage.
fn given() -> Set {
    let mut set = chart();
    if maps_are_locked_memory() {
        set.insert("SYS_RESOURCE".to_owned());
    }
    set
}

fn maps_are_locked_memory() -> bool {
    let types = fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has types");
    let name = b"BPF_MAP_TYPE_TASK_STORAGE";
    !types.windows(name.len()).any(|part| part == name)
}

fn without(mut set: Set, name: &str) -> Set {
    assert!(set.remove(name), "the chart gives {name}");
    set
}

/// The program as a container runtime starts it. `None` is root with all capabilities.
fn virtlens(set: Option<&Set>, args: &[&str]) -> Command {
    bounded(Command::new(binary("virtlens")), set, args)
}

/// A program as root with at most this set and no way to gain more.
fn bounded(mut command: Command, set: Option<&Set>, args: &[&str]) -> Command {
    command.env_clear().args(args).stdin(Stdio::null());
    let Some(set) = set else { return command };
    let kept: Vec<u32> = set.iter().map(|name| number(name)).collect();
    let bound = move || {
        // The default limit of locked memory.
        let locked = Rlimit {
            current: Some(64 << 10),
            maximum: Some(64 << 10),
        };
        setrlimit(Resource::Memlock, locked)?;
        set_no_new_privs(true)?;
        // The kernel rejects the first number that is not a capability.
        let remove = |one| {
            remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1_u64 << one))
        };
        let mut all = 0..64;
        while let Some(one) = all.next()
            && (kept.contains(&one) || remove(one).is_ok())
        {}
        Ok(())
    };
    // SAFETY: only system calls are made between fork and exec; the list was made before.
    unsafe { command.pre_exec(bound) };
    command
}

fn number(name: &str) -> u32 {
    let found = NUMBERS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name}: which number?")).1
}

fn ready(test: &str) -> bool {
    need::all(test, [need::root(), need::kvm(), need::bpf(), need::btf()])
}

/// A VM of an unprivileged user. A second device node for /dev/kvm, in a private mount
/// namespace, gives it access; the host's node is unchanged.
fn guest() -> (Minivm, TempDir) {
    let dir = tempfile::tempdir().expect("there is room for a folder");
    let path = |name: &str| dir.path().join(name);
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    open(dir.path(), 0o755);
    // Other users may not be able to enter the build directory.
    fs::copy(binary("minivm"), path("minivm")).expect("there is room for a program");
    let node = CString::new(path("kvm").into_os_string().into_vec()).expect("no NUL");
    let (kind, device) = (FileType::CharacterDevice, makedev(10, 232));
    mknodat(CWD, &node, kind, Mode::empty(), device).expect("a device node");
    open(&path("kvm"), 0o666);
    let become_user = move || {
        private_mounts()?;
        mount_bind(&node, c"/dev/kvm")?;
        set_thread_groups(&[])?;
        set_thread_gid(Gid::from_raw(QEMU_USER))?;
        Ok(set_thread_uid(Uid::from_raw(QEMU_USER))?)
    };
    let launch = Launch::new(path("minivm"));
    let launch = launch.args(["--vcpus", "2", "--mem", "16M", "--name", "of-another-user"]);
    // SAFETY: the closure only makes system calls; the strings were made before.
    let launch = unsafe { launch.before_exec(become_user) };
    (Minivm::start_launch(launch), dir)
}

/// Structure of a reading, without its numbers.
#[derive(Debug, PartialEq)]
struct Sight {
    /// State of each source: up, or the reason why it is down.
    sources: BTreeMap<String, String>,
    /// Paths of the VM's values; `None` if the VM is not seen.
    vm: Option<BTreeSet<String>>,
}

fn sight(set: Option<&Set>, guest: &Minivm) -> Sight {
    let snapshot = snapshot(virtlens(set, &["snapshot", "-o", "json"]));
    let sources = snapshot["sources"].as_array().expect("a list").iter();
    let vm = vm(&snapshot, guest).map(|vm| {
        let mut known = BTreeSet::new();
        note_known(vm, String::new(), &mut known);
        known
    });
    Sight {
        sources: sources
            .map(|one| {
                (
                    one["name"].to_string(),
                    format!("{} {}", one["up"], one["reason"]),
                )
            })
            .collect(),
        vm,
    }
}

fn snapshot(mut command: Command) -> Value {
    let output = command.output().expect("root may bound a child");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn vm<'v>(snapshot: &'v Value, guest: &Minivm) -> Option<&'v Value> {
    let vms = snapshot["vms"].as_array().expect("a list");
    vms.iter().find(|vm| vm["pid"] == guest.pid())
}

fn note_known(value: &Value, path: String, known: &mut BTreeSet<String>) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (key, value) in map {
                note_known(value, format!("{path}.{key}"), known);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                note_known(value, format!("{path}[{index}]"), known);
            }
        }
        _ => drop(known.insert(path)),
    }
}

#[test]
fn chart_capabilities_suffice_for_all_data() {
    if !ready("chart_capabilities_suffice_for_all_data") {
        return;
    }
    let (guest, _dir) = guest();
    let root = sight(None, &guest);
    assert!(root.vm.is_some(), "root sees it");
    assert_eq!(sight(Some(&given()), &guest), root);
}

#[test]
fn missing_bpf_or_perfmon_capability_loads_nothing() {
    if !ready("missing_bpf_or_perfmon_capability_loads_nothing") {
        return;
    }
    let (guest, _dir) = guest();
    for name in ["BPF", "PERFMON"] {
        let sight = sight(Some(&without(given(), name)), &guest);
        let pass = &sight.sources["\"task_pass\""];
        assert!(pass.starts_with("false"), "without {name}: {pass}");
    }
}

/// Default profiles of old container runtimes allow bpf(2) only with `SYS_ADMIN`.
#[test]
fn seccomp_filter_is_named_as_the_cause() {
    let test = "seccomp_filter_is_named_as_the_cause";
    if !need::all(test, [need::root(), need::bpf()]) {
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let mut command = virtlens(None, &["check"]);
        filter::refuse(&mut command, libc::SYS_bpf, None, errno);
        let output = command.output().expect("virtlens starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let row = text.lines().find(|line| line.contains("bpf_allowed"));
        let row = row.expect("check has the row");
        assert!(row.contains("off") && row.contains("seccomp"), "{row}");
    }
}

/// The chart omits `SYS_RESOURCE`: only kernels that account BPF maps as locked memory
/// need it, and they load nothing without it.
#[test]
fn missing_sys_resource_on_memlock_kernel_loads_nothing() {
    if !ready("missing_sys_resource_on_memlock_kernel_loads_nothing") {
        return;
    }
    let (guest, _dir) = guest();
    let sight = sight(Some(&chart()), &guest);
    let pass = &sight.sources["\"task_pass\""];
    let locked = maps_are_locked_memory();
    assert_eq!(pass.starts_with("true"), !locked, "{pass}");
}

/// Without BPF a VM is identified by the open files of its process. Listing /proc/PID/fd
/// needs DAC rights, because the directory belongs to the VM's user; reading the links
/// needs the right to trace the process.
#[test]
fn vm_of_other_user_without_bpf_needs_two_capabilities() {
    let extra = "DAC_READ_SEARCH";
    if !ready("vm_of_other_user_without_bpf_needs_two_capabilities") {
        return;
    }
    assert!(!chart().contains(extra), "for hosts without BPF only");
    let (guest, _dir) = guest();
    let mut both = without(given(), "BPF");
    both.insert(extra.to_owned());
    let seen = |set: &Set| sight(Some(set), &guest).vm.is_some();
    assert!(seen(&both));
    for name in ["SYS_PTRACE", extra] {
        assert!(!seen(&without(both.clone(), name)), "without {name}");
    }
}

/// /proc/PID/maps shows where a VM's RAM lies and needs the right to trace the process.
/// On a kernel without fentry programs the agent does not read it.
#[test]
fn missing_sys_ptrace_limits_memory_tracking_to_readable_maps() {
    if !ready("missing_sys_ptrace_limits_memory_tracking_to_readable_maps") {
        return;
    }
    let (mut guest, _dir) = guest();
    let source = sight(None, &guest).sources["\"memory\""].clone();
    if !source.starts_with("true") {
        assert!(source.contains("fentry"), "off for what is known: {source}");
        return;
    }
    let seen = discards(&given(), &mut guest);
    assert!(seen.is_some_and(|events| events > 0), "{seen:?}");
    let blind = without(given(), "SYS_PTRACE");
    let seen = discards(&blind, &mut guest);
    if reads_maps(&blind, &guest) {
        // Since v6.15 PERFMON is enough (0c555a3c1bc9 "mm,procfs: allow read-only
        // remote mm access under CAP_PERFMON").
        assert!(seen.is_some_and(|events| events > 0), "{seen:?}");
    } else {
        assert_eq!(seen, None, "unknown is not 0");
    }
}

/// Whether a program with this set may read the VM's memory map.
fn reads_maps(set: &Set, guest: &Minivm) -> bool {
    let file = format!("/proc/{}/maps", guest.pid());
    let mut cat = bounded(Command::new("cat"), Some(set), &[&file]);
    let output = cat.output().expect("cat can be started");
    output.status.success() && !output.stdout.is_empty()
}

/// Number of discards of the VM that a program with this set counted while the VM
/// discarded memory continuously; `None` if it is unknown.
fn discards(set: &Set, guest: &mut Minivm) -> Option<u64> {
    let out = tempfile::NamedTempFile::new().expect("there is room for a file");
    let file = out.reopen().expect("it is ours");
    let args = ["snapshot", "--interval", "1s", "-o", "json"];
    let mut child = virtlens(Some(set), &args)
        .stdout(file)
        .spawn()
        .expect("it starts");
    let status = loop {
        guest.command("touch 0 4M");
        guest.command("madvise dontneed 0 2M 2");
        // Leaves CPU time for the program on an emulated machine.
        sleep(Duration::from_millis(100));
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
    };
    assert!(status.success(), "{status}");
    let text = fs::read(out.path()).expect("it was written");
    let snapshot: Value = serde_json::from_slice(&text).expect("JSON");
    let vm = vm(&snapshot, guest).expect("BPF finds it");
    let classes = vm["memory"]["discards"].as_object();
    classes.map(|classes| {
        let events = classes
            .values()
            .filter_map(|class| class["events"].as_u64());
        events.sum()
    })
}
