//! Child processes of a VM's helpers in another cgroup. libvirt causes this: it moves the
//! virtiofsd that it knows to the VM's cgroup and leaves the child of that process in
//! libvirt's own service.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use virtlens::collect::Collector;
use virtlens_model::snapshot::{RoleUse, Snapshot};
use virtlens_model::vocab::Role;
use virtlens_tests::process::Schedstat;
use virtlens_tests::reader::{self, MS, assert_close, cpu_ns, vm};
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, eventually, need, unique_pod_uid};

/// A process with one child, which executes commands: burn, fork, end.
struct Family {
    parent: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _dir: tempfile::TempDir,
    /// The process that executes commands now.
    worker: u32,
}

const SCRIPT: &str = "\
work() {
    while read -r order <&3; do
        case $order in
        fork) work & echo $!; wait ;;
        *) i=0; while [ $i -lt $order ]; do i=$((i+1)); done; echo done ;;
        esac
    done
}
read -r start
exec 3<&0
work &
echo $!
wait";

impl Family {
    /// Starts the parent in `cgroup` and the child in `elsewhere`, both with the name
    /// `name`.
    fn start(name: &str, cgroup: &TestCgroup, elsewhere: &TestCgroup) -> Self {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let program = dir.path().join(name);
        symlink("/bin/sh", &program).expect("a link can be made");
        let mut command = Command::new(&program);
        let command = command.args(["-c", SCRIPT]);
        let mut parent = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        cgroup.add_process(parent.id());
        let stdin = parent.stdin.take().expect("it is piped");
        let stdout = BufReader::new(parent.stdout.take().expect("it is piped"));
        let mut family = Self {
            parent,
            stdin,
            stdout,
            _dir: dir,
            worker: 0,
        };
        family.fork("start", elsewhere);
        family
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.stdin, "{order}").expect("the shell reads");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        line.trim().to_owned()
    }

    fn fork(&mut self, order: &str, elsewhere: &TestCgroup) {
        self.worker = self.order(order).parse().expect("a pid");
        elsewhere.add_process(self.worker);
    }

    /// The child uses about 50 ms of CPU time.
    fn burn(&mut self) {
        assert_eq!(self.order("50000"), "done");
    }

    fn end_parent(&mut self) {
        self.parent.kill().expect("it lives");
        self.parent.wait().expect("it is our child");
    }

    /// Ends all processes that execute commands and waits for them.
    fn end(mut self) {
        let (worker, stdin) = (self.worker, self.stdin);
        drop(stdin);
        eventually("its end", || {
            (!Path::new(&format!("/proc/{worker}")).exists()).then_some(())
        });
        self.parent.wait().expect("it is our child");
    }
}

/// A pod with a VM, a cgroup for its helpers, and a service outside of the pod.
struct Scene {
    guest: Minivm,
    helpers: TestCgroup,
    elsewhere: TestCgroup,
    _main: TestCgroup,
}

impl Scene {
    fn new() -> Self {
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        let (main, helpers) = (pod.child(&"ab".repeat(32)), pod.child(&"cd".repeat(32)));
        let elsewhere = TestCgroup::new(&format!("virtlens-manager-{}", std::process::id()));
        let launch = Minivm::launch().args(["--vcpus", "1"]).cgroup(&main);
        Self {
            guest: Minivm::start_launch(launch),
            helpers,
            elsewhere,
            _main: main,
        }
    }

    fn family(&self) -> Family {
        Family::start("virtiofsd", &self.helpers, &self.elsewhere)
    }

    fn virtiofsd<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s RoleUse> {
        let mut roles = vm(snapshot, self.guest.pid()).roles.iter();
        roles.find(|one| one.role == Role::Virtiofsd)
    }

    /// Asserts that the role shows the CPU time of `pids` plus `ended_ns`.
    #[track_caller]
    fn read(&self, collector: &mut Collector, pids: &[u32], ended_ns: u64) -> RoleUse {
        let used = || {
            pids.iter()
                .map(|pid| Schedstat::sum(*pid).cpu_ns)
                .sum::<u64>()
                + ended_ns
        };
        let low = used();
        let snapshot = collector.collect();
        let high = used();
        let role = *self.virtiofsd(&snapshot).expect("there is such a role");
        let truth = low..=high + 5 * MS;
        assert!(truth.contains(&role.cpu_ns), "{role:?} is not in {truth:?}");
        role
    }
}

fn ready(test: &str) -> bool {
    reader::ready(test) && need::all(test, [need::cpu_cgroup()])
}

#[test]
fn child_of_a_helper_in_another_cgroup_counts_as_helper() {
    if !ready("child_of_a_helper_in_another_cgroup_counts_as_helper") {
        return;
    }
    let scene = Scene::new();
    let mut family = scene.family();
    let mut unrelated = Family::start("virtiofsd", &scene.elsewhere, &scene.elsewhere);
    for collector in &mut reader::collectors().0 {
        family.burn();
        unrelated.burn();
        let pids = [family.parent.id(), family.worker];
        let role = scene.read(collector, &pids, 0);
        assert_eq!((role.threads, role.outside_pod), (2, Some(1)), "{role:?}");
        family.burn();
        scene.read(collector, &pids, 0);
    }
    family.end();
    unrelated.end();
}

#[test]
fn child_whose_parent_ended_first_stays_a_helper() {
    if !ready("child_whose_parent_ended_first_stays_a_helper") {
        return;
    }
    for collector in &mut reader::collectors().0 {
        let scene = Scene::new();
        let mut family = scene.family();
        family.burn();
        scene.read(collector, &[family.parent.id(), family.worker], 0);
        let parent_ns = Schedstat::sum(family.parent.id()).cpu_ns;
        family.end_parent();
        family.burn();
        let role = scene.read(collector, &[family.worker], parent_ns);
        assert_eq!((role.threads, role.outside_pod), (1, Some(1)), "{role:?}");
        // A process that the child starts belongs to the VM, too.
        let child = family.worker;
        family.fork("fork", &scene.elsewhere);
        family.burn();
        let role = scene.read(collector, &[child, family.worker], parent_ns);
        assert_eq!(role.threads, 2, "{role:?}");
        family.end();
        let role = eventually("the end of all", || {
            let role = scene.virtiofsd(&collector.collect()).copied();
            role.filter(|role| role.threads == 0)
        });
        let used_ns = scene.helpers.usage_ns() + scene.elsewhere.usage_ns();
        assert_close("all that ended", role.cpu_ns, used_ns, 10 * MS);
    }
}

#[test]
fn unseen_child_is_counted_when_it_ends() {
    if !ready("unseen_child_is_counted_when_it_ends") {
        return;
    }
    let scene = Scene::new();
    let mut collector = reader::collector();
    collector.collect();
    let mut family = scene.family();
    family.burn();
    family.end();
    let used_ns = scene.helpers.usage_ns() + scene.elsewhere.usage_ns();
    let shown_ns = eventually("its end to be counted", || {
        let shown_ns = cpu_ns(vm(&collector.collect(), scene.guest.pid()), Role::Virtiofsd);
        (shown_ns + 10 * MS >= used_ns).then_some(shown_ns)
    });
    assert_close("a child that ended unseen", shown_ns, used_ns, 10 * MS);
}
