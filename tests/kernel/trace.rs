//! `virtlens trace` of VMs with a known load, on this host's kernel.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use rustix::process::{Pid, Signal, kill_process};
use virtlens_tests::perfetto::{self, Trace, assert_seamless, took_ns};
use virtlens_tests::process::{Schedstat, Uncounted};
use virtlens_tests::reader;
use virtlens_tests::{Minivm, binary, eventually, need};

fn ready(test: &str) -> bool {
    reader::ready(test) && need::all(test, [perfetto::there()])
}

/// `virtlens trace` of a VM into a file.
fn trace(guest: &Minivm, file: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(binary("virtlens"));
    command.arg("trace").arg(guest.pid().to_string());
    command.arg("--output").arg(file).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is room for a folder")
}

/// Number of loaded programs that belong to a trace.
pub(crate) fn programs() -> usize {
    let names = ProgInfoIter::default().map(|program| program.name);
    let names = names.filter(|name| name.to_string_lossy().starts_with("trace_"));
    names.count()
}

/// Waits until the trace has begun: its programs are loaded and the file is not empty.
fn begun(file: &Path) {
    eventually("the trace to begin", || {
        let written = fs::metadata(file).map_or(0, |file| file.len());
        (programs() > 0 && written > 0).then_some(())
    });
}

fn interrupted(mut child: Child, signal: Signal) -> String {
    kill_process(Pid::from_child(&child), signal).expect("it is our child");
    child.wait().expect("it ends");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().expect("a pipe"), &mut said)
        .expect("text");
    said
}

fn cpu_ns(guest: &Minivm, tid: i32) -> u64 {
    let times = Schedstat::read(guest.pid(), tid);
    times.expect("the vCPU lives").cpu_ns
}

/// A vCPU is idle, burns 2 s, and is idle again; its slices show that. This host's kernel
/// omits a switch event now and then; the trace reports that time as unknown. A slice
/// includes interrupts and steal, the thread's CPU time may not.
#[test]
fn sum_of_slices_equals_thread_cpu_time() {
    if !ready("sum_of_slices_equals_thread_cpu_time") {
        return;
    }
    let folder = folder();
    let file = folder.path().join("t.pftrace");
    let mut guest = Minivm::start(["--vcpus", "2"]);
    let tid = guest.ready.vcpus[0].tid;
    let child = trace(&guest, &file, &["--for", "60s"]).spawn();
    let child = child.expect("virtlens starts");
    begun(&file);
    let (before, uncounted) = (cpu_ns(&guest, tid), Uncounted::read());
    guest.burn_vcpus("0", 2000);
    eventually("the vCPU to rest", || {
        let now = cpu_ns(&guest, tid);
        sleep(Duration::from_millis(50));
        (cpu_ns(&guest, tid) == now).then_some(())
    });
    let truth = cpu_ns(&guest, tid) - before;
    let most = truth + Uncounted::read().most_ns_since(uncounted);
    let said = interrupted(child, Signal::INT);
    assert!(said.contains("stopped early by a signal"), "{said}");

    let decoded = Trace::decode(&file);
    assert_eq!(decoded.clocks, 1);
    let tid = tid.cast_unsigned();
    let slices = decoded.of_thread(tid);
    assert_seamless(&slices);
    let running = took_ns(&slices, "running");
    let unknown = took_ns(&slices, "unknown");
    println!("burned {truth} ns, reported {running} ns, unknown {unknown} ns");
    assert!(truth > 1_800_000_000, "it did not burn");
    assert!(
        running <= most + most / 100,
        "{running} of {truth} to {most}"
    );
    assert!(
        running + unknown >= truth - truth / 100,
        "{running} of {truth}"
    );
    // The tracks of the CPUs show the same slices.
    let title = &decoded.tracks[&slices[0].track].name;
    let is_pcpu = |track: &perfetto::Track| {
        let parent = decoded.tracks.get(&track.parent);
        parent.is_some_and(|parent| parent.name == "host CPUs")
    };
    assert_eq!(took_ns(&decoded.on(is_pcpu), title), running);
    assert!(decoded.counts.iter().any(|(_, _, value)| *value > 0.0));
}

#[test]
fn killed_trace_leaves_nothing_in_kernel() {
    if !ready("killed_trace_leaves_nothing_in_kernel") {
        return;
    }
    let folder = folder();
    let file = folder.path().join("t.pftrace");
    let guest = Minivm::start(["--vcpus", "1", "--start", "duty:30"]);
    // The kernel frees the programs of the previous test some time after its process
    // ended.
    eventually("no other trace", || (programs() == 0).then_some(()));
    let child = trace(&guest, &file, &["--for", "60s"]).spawn();
    let child = child.expect("virtlens starts");
    begun(&file);
    interrupted(child, Signal::KILL);
    eventually("the programs to go", || (programs() == 0).then_some(()));
}

#[test]
fn trace_at_size_limit_ends_with_valid_file() {
    if !ready("trace_at_size_limit_ends_with_valid_file") {
        return;
    }
    let folder = folder();
    let file = folder.path().join("t.pftrace");
    let guest = Minivm::start(["--vcpus", "2", "--start", "duty:50"]);
    // The vCPUs switch some hundred times a second: 1 MiB is half a minute.
    let child = trace(&guest, &file, &["--for", "10m", "--max-size", "1"]).spawn();
    let child = child.expect("virtlens starts");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("the file reached 1.0 MiB"), "{said}");
    let size = fs::metadata(&file).expect("a file").len();
    assert!((1 << 20..2 << 20).contains(&size), "{size} bytes");
    let decoded = Trace::decode(&file);
    for vcpu in &guest.ready.vcpus {
        assert_seamless(&decoded.of_thread(vcpu.tid.cast_unsigned()));
    }
}

#[test]
fn trace_to_stdout_is_valid_and_separate_from_summary() {
    if !ready("trace_to_stdout_is_valid_and_separate_from_summary") {
        return;
    }
    let guest = Minivm::start(["--vcpus", "1", "--start", "duty:50"]);
    let output = trace(&guest, Path::new("-"), &["--for", "1s"]).output();
    let output = output.expect("virtlens runs");
    let summary = String::from_utf8_lossy(&output.stderr);
    assert!(
        summary.contains("compared with the kernel's counters"),
        "{summary}"
    );
    let folder = folder();
    let file = folder.path().join("t.pftrace");
    fs::write(&file, &output.stdout).expect("there is room for it");
    let decoded = Trace::decode(&file);
    let slices = decoded.of_thread(guest.ready.vcpus[0].tid.cast_unsigned());
    assert!(slices.len() > 20, "{} slices", slices.len());
    assert_seamless(&slices);
}

#[test]
fn unknown_vm_fails_before_file_is_written() {
    if !reader::ready("unknown_vm_fails_before_file_is_written") {
        return;
    }
    let folder = folder();
    let file = folder.path().join("t.pftrace");
    let guest = Minivm::start(["--vcpus", "1"]);
    let mut command = Command::new(binary("virtlens"));
    let nearly = format!("minivm-{}x", guest.pid());
    let output = command.args(["trace", &nearly, "-o"]).arg(&file).output();
    let output = output.expect("virtlens runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("nearest"), "{said}");
    assert!(!file.exists());
}
