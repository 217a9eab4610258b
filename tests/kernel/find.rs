//! The pass finds VMs without a running vCPU, and threads of pods in processes without an
//! owner.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use virtlens::collect::Collector;
use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::Role;
use virtlens_probe::plan::Feature;
use virtlens_tests::process::Schedstat;
use virtlens_tests::reader::{self, MS, assert_close, cpu_ns, vm};
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

/// The pass over open files is not loaded.
#[test]
fn vm_without_running_vcpu_is_found_by_task_pass_alone() {
    if !reader::ready("vm_without_running_vcpu_is_found_by_task_pass_alone") {
        return;
    }
    let mut options = reader::options();
    options.features = &[Feature::TaskPass];
    let mut collector = Collector::open(&options).expect("the host can be read");
    let mut never_ran = Minivm::start(["--vcpus", "64", "--mem", "256K", "--start", "pause"]);
    let mut in_user_space = Minivm::start(["--vcpus", "2", "--start", "spin"]);
    in_user_space.wait_for_cpu(&[0, 1], 5);
    in_user_space.command("pause all");
    let online = |snapshot: &Snapshot, pid| vm(snapshot, pid).vcpu_count.online;
    let first = collector.collect();
    assert_eq!(online(&first, never_ran.pid()), Some(64));
    assert_eq!(online(&first, in_user_space.pid()), Some(2));

    never_ran.plug("pause");
    let second = collector.collect();
    assert_eq!(online(&second, never_ran.pid()), Some(65));
    assert_eq!(online(&second, in_user_space.pid()), Some(2));
}

/// A child of vfork has its parent's address space, with the VM's notifier, until it execs.
#[test]
fn child_that_shares_address_space_of_vmm_is_not_a_vm() {
    if !reader::ready("child_that_shares_address_space_of_vmm_is_not_a_vm") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2"]);
    let child = guest.command("share 5000")["pid"].as_u64();
    let child = u32::try_from(child.expect("it started")).expect("a pid");
    let mut collector = reader::collector();
    for _ in 0..2 {
        let snapshot = collector.collect();
        let pids: Vec<_> = snapshot.vms.iter().map(|vm| vm.pid).collect();
        assert!(pids.contains(&guest.pid()), "{pids:?}");
        assert!(!pids.contains(&child), "{pids:?}");
    }
}

/// CPU time that a thread of the test uses.
const BURNED: Duration = Duration::from_millis(60);

/// A thread of this process that burns CPU time on request.
struct Burner {
    tid: i32,
    burn: mpsc::Sender<()>,
    burned: mpsc::Receiver<()>,
}

impl Burner {
    fn spawn<'scope>(scope: &'scope thread::Scope<'scope, '_>) -> Self {
        let (send_tid, tid) = mpsc::channel();
        let (burn, wanted) = mpsc::channel();
        let (done, burned) = mpsc::channel();
        scope.spawn(move || {
            let tid = rustix::thread::gettid().as_raw_pid();
            send_tid.send(tid).expect("the test waits for it");
            for () in wanted {
                let begun = Instant::now();
                while begun.elapsed() < BURNED {
                    std::hint::spin_loop();
                }
                done.send(()).expect("the test waits for it");
            }
        });
        Self {
            tid: tid.recv().expect("it starts"),
            burn,
            burned,
        }
    }

    fn burn(&self) {
        self.burn.send(()).expect("it waits");
        self.burned.recv().expect("it burns");
    }

    fn cpu_ns(&self) -> u64 {
        let stat = Schedstat::read(std::process::id(), self.tid);
        stat.expect("it lives").cpu_ns
    }
}

/// On cgroup v1 a single thread can be in another cgroup than its process.
#[test]
fn single_thread_in_cgroup_of_pod_is_counted() {
    if !reader::ready("single_thread_in_cgroup_of_pod_is_counted") {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let is_v1 = need::that("cgroup_v1", pod.is_v1(), "threads move with their process");
    if !need::all("single_thread_in_cgroup_of_pod_is_counted", [is_v1]) {
        return;
    }
    let container = pod.child(&"ab".repeat(32));
    let guest = Minivm::start_launch(Minivm::launch().args(["--vcpus", "1"]).cgroup(&container));
    let helper_ns = |snapshot: &Snapshot| cpu_ns(vm(snapshot, guest.pid()), Role::Helper);
    let root = TestCgroup::new("virtlens-elsewhere");
    thread::scope(|scope| {
        let (before, after) = (Burner::spawn(scope), Burner::spawn(scope));
        container.add_thread(before.tid);
        let mut collector = reader::collector();
        before.burn();
        let low_ns = before.cpu_ns();
        assert_close(
            "moved before",
            helper_ns(&collector.collect()),
            low_ns,
            5 * MS,
        );
        container.add_thread(after.tid);
        after.burn();
        let both_ns = before.cpu_ns() + after.cpu_ns();
        assert_close(
            "moved after",
            helper_ns(&collector.collect()),
            both_ns,
            5 * MS,
        );
        // Its time stays with the pod when it leaves.
        root.add_thread(after.tid);
        root.add_thread(before.tid);
        let left_ns = helper_ns(&collector.collect());
        assert!(left_ns + 5 * MS > both_ns, "{left_ns} of {both_ns}");
    });
}
