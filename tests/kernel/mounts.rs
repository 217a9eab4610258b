//! The real program on a host where a file system is not mounted. It runs in a private
//! mount namespace, so the host's mounts stay.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::Value;
use virtlens_model::vocab::Role;
use virtlens_tests::process::Schedstat;
use virtlens_tests::reader;
use virtlens_tests::{
    Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, need, private_mounts, unique_pod_uid,
};

/// The program with mounts that `change` changes for it alone. It is killed when the
/// thread that started it exits. `change` may only make system calls.
pub(crate) fn with_mounts(
    args: &[&str],
    change: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> Command {
    let enter = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        private_mounts()?;
        change()
    };
    let mut command = Command::new(binary("virtlens"));
    // Removes all variables that the program takes settings from.
    command.env_clear().args(args).stdin(Stdio::null());
    // SAFETY: only system calls are made between fork and exec, on strings that were made
    // before.
    unsafe { command.pre_exec(enter) };
    command
}

/// The program with no file system of these kinds mounted.
fn without(kinds: &[&str], args: &[&str]) -> Command {
    let points = mount_points(kinds);
    with_mounts(args, move || {
        for point in &points {
            unmount(point, UnmountFlags::DETACH)?;
        }
        Ok(())
    })
}

/// Mount points of file systems of these kinds, the last mount first. Fields:
/// `proc_pid_mountinfo(5)`.
fn mount_points(kinds: &[&str]) -> Vec<CString> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let mut points: Vec<CString> = table
        .lines()
        .filter_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let kind = filesystem.split(' ').next()?;
            let point = mount.split(' ').nth(4)?;
            kinds
                .contains(&kind)
                .then(|| CString::new(point).expect("a line has no NUL"))
        })
        .collect();
    points.reverse();
    points
}

fn without_cgroups(args: &[&str]) -> Command {
    without(&["cgroup", "cgroup2"], args)
}

pub(crate) fn output(mut command: Command) -> Output {
    command.output().expect("root may change its mounts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("text")
}

/// CPU time of the vCPUs according to the kernel, ns.
fn vcpus_ns(guest: &Minivm) -> u64 {
    let of = |tid| Schedstat::read(guest.pid(), tid).expect("no vCPU ends here");
    let tids = guest.ready.vcpus.iter().map(|vcpu| vcpu.tid);
    tids.map(|tid| of(tid).cpu_ns).sum()
}

/// Returns the member of a JSON list whose `key` has this value.
#[track_caller]
pub(crate) fn by<'v>(list: &'v Value, key: &str, value: impl Into<Value>) -> &'v Value {
    let value = value.into();
    let mut all = list.as_array().expect("a list").iter();
    all.find(|one| one[key] == value)
        .unwrap_or_else(|| panic!("no {key} {value} in {list}"))
}

/// CPU time, ns, and number of the threads with the role vCPU in a snapshot.
fn vcpu_role(snapshot: &Value, guest: &Minivm) -> (u64, u64) {
    let vm = by(&snapshot["vms"], "pid", guest.pid());
    let role = by(&vm["roles"], "role", Role::Vcpu.name());
    let number = |key: &str| role[key].as_u64().expect("a number");
    (number("cpu_ns"), number("threads"))
}

/// BPF reads cgroups in the kernel. Their files are only needed to find cgroups without a
/// VM.
#[test]
fn missing_cgroup_mounts_are_reported_once_with_remedy() {
    let test = "missing_cgroup_mounts_are_reported_once_with_remedy";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let uid = unique_pod_uid();
    let pod = TestCgroup::new(&cgroupfs_pod_path(&uid));
    let container = pod.child(&"ab".repeat(32));
    pod.set_quota(Some(70_000), 100_000);
    let args = ["--vcpus", "2", "--name", "unmounted"];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));
    guest.burn_vcpus("all", 53);

    let low_ns = vcpus_ns(&guest);
    let json = output(without_cgroups(&["snapshot", "-o", "json"]));
    let high_ns = vcpus_ns(&guest);
    assert!(json.status.success() && json.stderr.is_empty(), "{json:?}");
    let snapshot: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let cgroups = by(&snapshot["sources"], "name", "cgroups");
    assert_eq!(cgroups["up"], false);
    assert_eq!(by(&snapshot["sources"], "name", "task_pass")["up"], true);
    let vm = by(&snapshot["vms"], "pid", guest.pid());
    assert_eq!((&vm["vm"], &vm["uid"]), (&"unmounted".into(), &uid.into()));
    let (cpu_ns, threads) = vcpu_role(&snapshot, &guest);
    assert_eq!(threads, 2);
    assert!(
        (low_ns..=high_ns).contains(&cpu_ns),
        "{cpu_ns} is not in {low_ns}..={high_ns}"
    );
    assert_eq!(by(&vm["quota"], "scope", "pod")["cores"], 0.7);

    let table = output(without_cgroups(&["snapshot"]));
    assert!(
        table.status.success() && table.stderr.is_empty(),
        "{table:?}"
    );
    let table = stdout(&table);
    // A kernel without fentry prints a line as well, with or without mounts.
    let of_mounts = |line: &&str| line.contains("off:") && !line.contains("fentry");
    let notes: Vec<_> = table.lines().filter(of_mounts).collect();
    let [note] = notes[..] else {
        panic!("one line says what is off: {table}")
    };
    assert!(note.starts_with("off: cgroups ("), "{note}");
    for word in ["no cgroup file system", "mount cgroup2", "/sys/fs/cgroup"] {
        assert!(note.contains(word), "{word} is not in {note}");
    }
    assert!(table.contains("\nunmounted "), "{table}");
}

/// `virtlens check` reports one feature as off, and exits accordingly.
#[test]
fn check_without_cgroup_mounts_reports_only_them() {
    let test = "check_without_cgroup_mounts_reports_only_them";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let there = output(with_mounts(&["check"], || Ok(())));
    let gone = output(without_cgroups(&["check"]));
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    let pairs = stdout(&there).lines().zip(stdout(&gone).lines());
    let changed: Vec<_> = pairs.filter(|(there, gone)| there != gone).collect();
    let [(_, row)] = changed[..] else {
        panic!("one row differs: {changed:?}")
    };
    let words: Vec<_> = row.split_whitespace().take(2).collect();
    assert_eq!(words, ["cgroups", "off"]);
    assert!(row.contains("mount cgroup2"), "{row}");
}

#[test]
fn agent_without_cgroup_mounts_serves_and_warns_once() {
    let test = "agent_without_cgroup_mounts_serves_and_warns_once";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let mut guest = Minivm::start(["--name", "served"]);
    guest.burn_vcpus("all", 31);
    let command = without_cgroups(&["run", "--listen", "127.0.0.1:0", "--no-pin"]);
    let mut agent = Agent::start(command);

    assert!(agent.get("/readyz").starts_with("HTTP/1.1 200 "));
    let metrics = agent.get("/metrics");
    let has = |words: &[&str]| {
        let of = |line: &&str| words.iter().all(|word| line.contains(word));
        metrics.lines().find(of)
    };
    for line in [
        r#"virtlens_source_up{source="cgroups"} 0"#,
        r#"virtlens_source_up{source="task_pass"} 1"#,
        "virtlens_vcpu_cpu_seconds_total{",
    ] {
        assert!(has(&[line]).is_some(), "{line} is not in {metrics}");
    }
    let cpu = ["virtlens_cpu_seconds_total{", r#""served""#, r#""vcpu""#];
    let seconds = has(&cpu).and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    assert!(seconds.is_some_and(|s| s >= 0.031), "{metrics}");

    let (code, log) = agent.stop();
    assert_eq!(code, Some(0), "{log:#?}");
    let warned: Vec<_> = log
        .iter()
        .filter(|line| !line.contains("level=info") && !line.contains("fentry"))
        .collect();
    let [line] = warned[..] else {
        panic!("one warning: {log:#?}")
    };
    assert!(line.contains("sources=cgroups") && line.contains("mount cgroup2"));
}

/// A one-shot command pins nothing, so it does not report a missing bpffs.
#[test]
fn missing_bpffs_changes_no_values() {
    if !reader::ready("missing_bpffs_changes_no_values") {
        return;
    }
    let with = |args: &[&str]| {
        output(with_mounts(args, || {
            let none = None::<&CStr>;
            Ok(mount(
                c"bpf",
                c"/sys/fs/bpf",
                c"bpf",
                MountFlags::empty(),
                none,
            )?)
        }))
    };
    let without = |args: &[&str]| output(without(&["bpf"], args));

    let (there, gone) = (with(&["check"]), without(&["check"]));
    assert_eq!(stdout(&gone), stdout(&there));
    assert_eq!((gone.status, gone.stderr), (there.status, there.stderr));

    let mut guest = Minivm::start(["--vcpus", "2"]);
    guest.burn_vcpus("all", 29);
    let read = |output: Output| -> Value {
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let there = read(with(&["snapshot", "-o", "json"]));
    let low_ns = vcpus_ns(&guest);
    let gone = read(without(&["snapshot", "-o", "json"]));
    let high_ns = vcpus_ns(&guest);
    let sources = |snapshot: &Value| -> Vec<(Value, Value)> {
        let all = snapshot["sources"].as_array().expect("a list").iter();
        all.map(|one| (one["name"].clone(), one["reason"].clone()))
            .collect()
    };
    assert_eq!(sources(&gone), sources(&there));
    let (cpu_ns, threads) = vcpu_role(&gone, &guest);
    assert_eq!(threads, 2);
    assert!(
        (low_ns..=high_ns).contains(&cpu_ns),
        "{cpu_ns} is not in {low_ns}..={high_ns}"
    );
}
