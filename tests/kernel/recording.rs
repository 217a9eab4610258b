//! Recordings of the real agent, of VMs with a known load.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use serde_json::Value;
use virtlens_model::snapshot::{Check, Vm};
use virtlens_record::{Recorded, Recording};
use virtlens_tests::scraped::samples;
use virtlens_tests::{
    Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, eventually, need, reader, unique_pod_uid,
};

const PERIOD_US: u64 = 100_000;

/// An agent that records once a second.
pub(crate) fn recording_agent(folder: &Path) -> Agent {
    recording_agent_with(folder, &[])
}

/// An agent with further options that records once a second.
pub(crate) fn recording_agent_with(folder: &Path, more: &[&str]) -> Agent {
    let mut command = Command::new(binary("virtlens"));
    command.args(["run", "--listen", "127.0.0.1:0", "--no-pin"]);
    command
        .args(["--record-interval", "1s", "--record"])
        .arg(folder);
    command.args(more);
    Agent::start(command)
}

/// A VM with one busy vCPU in a pod without a CPU limit.
pub(crate) struct Busy {
    guest: Minivm,
    pod: TestCgroup,
    _container: TestCgroup,
}

impl Busy {
    pub(crate) fn start() -> Self {
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        let container = pod.child("vm");
        let launch = Minivm::launch().args(["--vcpus", "1", "--start", "spin"]);
        Self {
            guest: Minivm::start_launch(launch.cgroup(&container)),
            pod,
            _container: container,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.guest.pid()
    }

    pub(crate) fn vcpu_tid(&self) -> u32 {
        self.guest.ready.vcpus[0].tid.cast_unsigned()
    }

    /// Sets a limit of half a core; returns a time just before, ns since 1970.
    pub(crate) fn cap(&self) -> u64 {
        let onset_ns = now_ns();
        self.pod.set_quota(Some(PERIOD_US / 2), PERIOD_US);
        onset_ns
    }
}

pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_nanos()).expect("before 2554")
}

/// The readings so far that have the VM of a process.
pub(crate) fn readings(folder: &Path, pid: u32) -> Vec<(u64, Vm)> {
    let Ok((recording, _)) = Recording::open(folder) else {
        return Vec::new();
    };
    let readings = recording.between(0..u64::MAX).filter_map(Result::ok);
    let of_vm = readings.filter_map(|Recorded { unix_ns, snapshot }| {
        let vm = snapshot.vms.into_iter().find(|vm| vm.pid == pid)?;
        Some((unix_ns, vm))
    });
    of_vm.collect()
}

/// The output of a command on the recording.
pub(crate) fn past(command: &str, folder: &Path, more: &[&str]) -> Value {
    let mut program = Command::new(binary("virtlens"));
    program.args([command, "--from"]).arg(folder);
    let output = program.args(more).args(["-o", "json"]).output();
    let output = output.expect("virtlens starts");
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"))
}

/// Time of the first reading in which the VM of a process is capped, to the second.
pub(crate) fn first_capped(folder: &Path, pid: u32) -> Option<String> {
    let (recording, _) = Recording::open(folder).ok()?;
    let mut readings = recording.between(0..u64::MAX).filter_map(Result::ok);
    let is_capped = |vm: &Vm| {
        let mut findings = vm.findings.iter().flat_map(|found| found.iter());
        vm.pid == pid && findings.any(|finding| finding.check == Check::QuotaCapped)
    };
    let first = readings.find(|one| one.snapshot.vms.iter().any(is_capped))?;
    Some(format!("{}Z", first.snapshot.time.get(..19)?))
}

pub(crate) fn throttled(vm: &Vm) -> u64 {
    vm.quota.iter().map(|level| level.throttled_periods).sum()
}

#[test]
fn onset_of_a_limit_is_recorded_and_found_although_the_agent_is_killed() {
    let test = "onset_of_a_limit_is_recorded_and_found_although_the_agent_is_killed";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let guest = Busy::start();
    let pid = guest.pid();
    let agent = recording_agent(folder.path());
    eventually("a reading of the VM", || {
        (readings(folder.path(), pid).len() >= 2).then_some(())
    });

    let onset_ns = guest.cap();
    eventually("the onset in the recording", || {
        let last = readings(folder.path(), pid).pop()?;
        (throttled(&last.1) > 0).then_some(())
    });
    // SIGKILL.
    drop(agent);
    let killed_ns = now_ns();
    let _agent = recording_agent(folder.path());
    let pid_text = pid.to_string();
    let since = format!("-{}s", (now_ns() - onset_ns) / 1_000_000_000 + 5);
    let found = eventually("the finding", || {
        let diagnosis = past("doctor", folder.path(), &["--since", &since, &pid_text]);
        let findings = diagnosis["findings"].as_array()?;
        findings
            .iter()
            .find(|one| one["check"] == "quota_capped")
            .cloned()
    });
    println!("{found:#}");
    assert_eq!(found["continuous"], true);
    let first = first_capped(folder.path(), pid).expect("a reading has the finding");
    assert_eq!(
        found["since"], first,
        "the time of the first reading that has it"
    );

    let readings = readings(folder.path(), pid);
    let first = readings.iter().position(|(_, vm)| throttled(vm) > 0);
    let first = first.expect("it was throttled");
    let [before, after] = [first - 1, first].map(|index| readings[index].0);
    // One period passes before the first throttling is counted.
    assert!(after > onset_ns, "no reading shows it before it happened");
    assert!(
        before < onset_ns + 1_000_000_000,
        "no reading after it misses it"
    );
    let mut counters = readings
        .iter()
        .map(|(_, vm)| (throttled(vm), vm.vcpus[0].cpu_ns));
    let mut last = counters.next().expect("there are readings");
    for now in counters {
        assert!(now.0 >= last.0 && now.1 >= last.1, "{now:?} after {last:?}");
        last = now;
    }
    assert!(readings.iter().any(|(unix_ns, _)| *unix_ns > killed_ns));
    let shown = past("snapshot", folder.path(), &["--at", "now"]);
    let shown_vms = shown["vms"].as_array().expect("VMs");
    assert!(shown_vms.iter().any(|vm| vm["pid"] == pid));
}

/// A file system of this size, mounted until it is dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(bytes: u32) -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let options = std::ffi::CString::new(format!("size={bytes}")).expect("no NUL");
        let (kind, flags) = (c"tmpfs", MountFlags::empty());
        mount(kind, folder.path(), kind, flags, Some(&*options)).expect("root may mount");
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn set_read_only(&self, is_read_only: bool) {
        let flags = if is_read_only {
            MountFlags::RDONLY
        } else {
            MountFlags::empty()
        };
        mount_remount(self.path(), flags, c"").expect("root may mount");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(self.path(), UnmountFlags::DETACH).expect("it is mounted");
    }
}

/// Readings by result, according to the agent's metrics.
fn results(agent: &Agent) -> [f64; 2] {
    let name = "virtlens_recorded_readings_total";
    let all = samples(agent, |series| series.starts_with(name));
    ["kept", "failed"].map(|result| {
        let series = format!("{name}{{result=\"{result}\"}}");
        all.get(&series).copied().expect("it is exported")
    })
}

#[test]
fn full_and_read_only_disk_costs_readings_and_nothing_else() {
    let test = "full_and_read_only_disk_costs_readings_and_nothing_else";
    if !reader::ready(test) {
        return;
    }
    let disk = Disk::new(256 << 10);
    let guest = Minivm::start(["--vcpus", "1", "--start", "duty:20"]);
    let records = disk.path().join("records");
    disk.set_read_only(true);
    let agent = recording_agent(&records);
    let rises = |index: usize, what: &str| {
        let before = results(&agent)[index];
        eventually(what, || (results(&agent)[index] > before).then_some(()));
    };
    rises(1, "a reading that is lost to a read-only disk");
    disk.set_read_only(false);
    rises(0, "a reading that is kept once the disk is writable");

    // More than the disk has, in pieces: the last one fails.
    let mut filler = File::create(disk.path().join("filler")).expect("there is room");
    while filler.write_all(&[0; 4096]).is_ok() {}
    rises(1, "a reading that is lost to a full disk");
    drop(filler);
    fs::remove_file(disk.path().join("filler")).expect("it is there");
    rises(0, "a reading that is kept on a disk with room again");

    let kept = results(&agent)[0];
    let (recording, refused) = Recording::open(&records).expect("it is there");
    assert!(refused.is_empty(), "{refused:?}");
    let read: Vec<_> = recording.between(0..u64::MAX).collect();
    let whole = read.iter().filter(|one| one.is_ok()).count();
    println!("{kept} were kept, {whole} are there");
    // A full disk removed the oldest ones.
    assert!(
        read.iter()
            .flatten()
            .any(|one| one.snapshot.vms.iter().any(|vm| vm.pid == guest.pid()))
    );
}

#[test]
fn agent_without_a_usable_directory_serves_and_counts() {
    let test = "agent_without_a_usable_directory_serves_and_counts";
    if !reader::ready(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("there is room");
    let mut agent = recording_agent(&file);
    eventually("a reading that is lost", || {
        (results(&agent)[1] > 0.0).then_some(())
    });
    let (code, log) = agent.stop();
    assert_eq!(code, Some(0));
    let warnings = log
        .iter()
        .filter(|line| line.contains("cannot record"))
        .count();
    assert_eq!(warnings, 1, "the reason is logged once: {log:#?}");
}
