//! Memory events of a pod's cgroup and swap of a VM, compared with the kernel's files.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use virtlens::collect::Collector;
use virtlens_model::snapshot::Memory;
use virtlens_model::vocab::MemoryEvents;
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, eventually, reader, unique_pod_uid};

/// A VM in a container of a pod with the memory controller.
struct PodVm {
    collector: Collector,
    vm: Minivm,
    container: TestCgroup,
    pod: TestCgroup,
}

impl PodVm {
    fn start() -> Self {
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        let container = pod.child("ctr");
        container.enable(&["memory"]);
        let launch = Minivm::launch().args(["--vcpus", "1", "--mem", "64M"]);
        let vm = Minivm::start_launch(launch.cgroup(&container));
        let mut collector = reader::collector();
        eventually("the VM is found", || {
            reader::find(&collector.collect(), vm.pid()).map(|_| ())
        });
        Self {
            collector,
            vm,
            container,
            pod,
        }
    }

    fn memory(&mut self) -> Memory {
        reader::vm(&self.collector.collect(), self.vm.pid())
            .memory
            .clone()
    }
}

/// The counts of memory.events, in the order of [`MemoryEvents::by_name`].
fn events_file(folder: &Path) -> [u64; 4] {
    let text = fs::read_to_string(folder.join("memory.events")).expect("it can be read");
    MemoryEvents::default().by_name().map(|(name, _)| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let (_, count) = lines.find(|(key, _)| *key == name).expect("it is listed");
        count.parse().expect("a number")
    })
}

/// A process in `cgroup` that allocates memory without end.
fn eater(cgroup: &TestCgroup) -> Child {
    let procs = cgroup.dir().join("cgroup.procs");
    let script = format!("echo $$ > {} && exec tail /dev/zero", procs.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    command.spawn().expect("it starts")
}

#[test]
fn memory_events_equal_file_of_pod() {
    let mut pod_vm = PodVm::start();
    let shown = |pod_vm: &mut PodVm| {
        let before = events_file(pod_vm.pod.dir());
        let shown = pod_vm
            .memory()
            .cgroup_events
            .expect("it has the controller");
        let after = events_file(pod_vm.pod.dir());
        for ((low, high), (name, count)) in before.iter().zip(&after).zip(shown.by_name()) {
            assert!((*low..=*high).contains(&count), "{name}: {shown:?}");
        }
        shown
    };
    assert_eq!(shown(&mut pod_vm), MemoryEvents::default());

    let other = pod_vm.pod.child("other");
    other.set("memory.max", "16M");
    // Without this some kernels swap instead.
    if other.dir().join("memory.swap.max").exists() {
        other.set("memory.swap.max", "0");
    }
    let mut killed = eater(&other);
    killed.wait().expect("it is killed");
    let events = shown(&mut pod_vm);
    println!("{events:?}");
    assert!(events.max > 0 && events.oom > 0);
    assert_eq!((events.oom_kill, events.high), (1, 0));

    other.set("memory.high", "4M");
    let mut slowed = eater(&other);
    eventually("the usage is over memory.high", || {
        let high = events_file(pod_vm.pod.dir())[0];
        (high > 0 || slowed.try_wait().expect("a child").is_some()).then_some(())
    });
    slowed.kill().expect("it is a child");
    slowed.wait().expect("it ends");
    let events = shown(&mut pod_vm);
    println!("{events:?}");
    assert!(events.high > 0, "{events:?}");

    let json = serde_json::to_value(pod_vm.memory()).expect("it is plain data");
    assert_eq!(json["cgroup_events"]["high"], events.high);
}

/// Swap on a loop device over a file in memory, until this is dropped.
struct Swap {
    device: String,
    file: tempfile::NamedTempFile,
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

impl Swap {
    fn on(bytes: u64) -> Self {
        let file = tempfile::NamedTempFile::new().expect("there is room for a file");
        file.as_file().set_len(bytes).expect("it may be as large");
        let path = file.path().to_str().expect("it has a plain name");
        let device = run("losetup", &["--find", "--show", path]);
        let device = device.trim().to_owned();
        run("mkswap", &[&device]);
        run("swapon", &[&device]);
        Self { device, file }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // Best effort: the machine ends with the suites.
        for (program, args) in [("swapoff", vec![]), ("losetup", vec!["--detach"])] {
            let mut command = Command::new(program);
            command.args(args).arg(&self.device).status().ok();
        }
        println!("{} is released", self.file.path().display());
    }
}

/// `VmSwap` of a process, bytes.
fn swapped(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:"));
    let kib = line.map(|line| line.trim().trim_end_matches(" kB"));
    let kib: u64 = kib.expect("it is listed").parse().expect("a number");
    kib << 10
}

#[test]
fn swap_of_vm_equals_proc_status() {
    const MIB: u64 = 1 << 20;
    let _swap = Swap::on(128 * MIB);
    let mut pod_vm = PodVm::start();
    assert_eq!(pod_vm.memory().swap_bytes, Some(0));
    pod_vm.vm.command("touch 0 48M");
    // The kernel swaps out memory before the write returns.
    pod_vm.container.set("memory.high", "8M");
    let before = swapped(pod_vm.vm.pid());
    let memory = pod_vm.memory();
    let after = swapped(pod_vm.vm.pid());
    pod_vm.container.set("memory.high", "max");
    let shown = memory.swap_bytes.expect("it is known");
    println!("{} MiB in swap: {before}..{after}", shown / MIB);
    // Each CPU or thread batches up to 64 pages.
    let error = 4 * 64 * 4096;
    let (low, high) = (before.min(after), before.max(after));
    assert!((low.saturating_sub(error)..=high + error).contains(&shown));
    assert!(shown > 16 * MIB, "{shown} bytes");
    let resident = memory.resident_bytes.expect("it is known");
    assert!(resident < 40 * MIB, "{resident} bytes are resident");
}
