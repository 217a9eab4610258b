//! A handle on a running `minivm`, the tiny VMM of tests/minivm.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde::Deserialize;
use serde_json::Value;

use crate::process::Schedstat;
use crate::{Launch, binary, eventually};

/// A running minivm; killed on drop. `minivm --help` lists its arguments and commands.
#[derive(Debug)]
pub struct Minivm {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Status when the VM became ready.
    pub ready: Status,
}

/// Threads and CPU time of a VM.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// Pid of the process.
    pub pid: u32,
    /// CPU time of all threads that ever existed in the process, ns.
    pub process_cpu_ns: u64,
    /// vCPUs by index.
    pub vcpus: Vec<Vcpu>,
    /// The helper threads, in the order of the command line.
    pub threads: Vec<Thread>,
}

/// A living vCPU.
#[derive(Clone, Debug, Deserialize)]
pub struct Vcpu {
    /// Position in the topology; commands name the vCPU by it.
    pub index: u32,
    /// KVM's `vcpu_id`, the APIC id.
    pub id: u32,
    /// Tid of its thread.
    pub tid: i32,
    /// `spin`, `halt`, `pause`, `duty:PERCENT` or `tick:MS`.
    pub mode: String,
    /// CPU time of the thread, ns.
    pub cpu_ns: u64,
}

/// A helper thread.
#[derive(Clone, Debug, Deserialize)]
pub struct Thread {
    /// Name as requested, not truncated to 15 bytes.
    pub name: String,
    /// Tid.
    pub tid: i32,
    /// CPU time, ns.
    pub cpu_ns: u64,
}

/// CPU time that one thread burned, read once the thread was idle.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Receipt {
    /// Index of the vCPU or helper.
    pub index: u32,
    /// Tid of its thread.
    pub tid: i32,
    /// CPU time since before the order, ns: if the thread was idle then, exactly the
    /// increase of its schedstat. That of a halted vCPU increases by some microseconds
    /// more now and then, above all 100 ms after it first ran: KVM wakes it to update its
    /// clock (`kvmclock_update_fn`, `arch/x86/kvm/x86.c`).
    pub burned_ns: u64,
    /// CPU time since the thread's start, ns.
    pub cpu_ns: u64,
}

impl Minivm {
    /// A minivm to be started: add arguments, a cgroup, a name; then
    /// [`start_launch`](Self::start_launch).
    pub fn launch() -> Launch {
        Launch::new(binary("minivm"))
    }

    /// Starts a minivm and waits until it is ready.
    pub fn start<'a>(args: impl IntoIterator<Item = &'a str>) -> Self {
        Self::start_launch(Self::launch().args(args))
    }

    /// Starts a prepared minivm and waits until it is ready.
    pub fn start_launch(mut launch: Launch) -> Self {
        let command = launch.command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("minivm can be started");
        let stdin = child.stdin.take().expect("it is piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let ready = read_reply(&mut stdout);
        let ready = serde_json::from_value(ready).expect("the ready line has all of Status");
        Self {
            child,
            stdin,
            stdout,
            ready,
        }
    }

    /// Pid of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command; returns its reply, which is `ok`. Panics with the reply's error.
    pub fn command(&mut self, line: &str) -> Value {
        let reply = self.try_command(line);
        assert_eq!(reply["ok"], true, "minivm: {line}: {reply}");
        reply
    }

    /// Sends a command; returns its reply, which may be an error.
    pub fn try_command(&mut self, line: &str) -> Value {
        writeln!(self.stdin, "{line}").expect("minivm reads its stdin: is it alive?");
        read_reply(&mut self.stdout)
    }

    /// Present threads and CPU time.
    pub fn status(&mut self) -> Status {
        let reply = self.command("status");
        serde_json::from_value(reply).expect("the reply has all of Status")
    }

    /// Runs vCPUs (`all`, `0,2-3`) in guest mode at the same time, then halts them.
    pub fn burn_vcpus(&mut self, list: &str, ms: u32) -> Vec<Receipt> {
        self.burn(&format!("burn vcpu {list} {ms}"))
    }

    /// Runs helper threads in user space at the same time.
    pub fn burn_threads(&mut self, list: &str, ms: u32) -> Vec<Receipt> {
        self.burn(&format!("burn thread {list} {ms}"))
    }

    /// Runs a vCPU's thread in user space, and leaves it paused.
    pub fn burn_in_user_space(&mut self, index: u32, ms: u32) -> Receipt {
        let receipts = self.burn(&format!("burn user {index} {ms}"));
        receipts.into_iter().next().expect("of this vCPU")
    }

    /// Renames a helper thread.
    pub fn rename_thread(&mut self, index: u32, name: &str) {
        self.command(&format!("rename thread {index} {name}"));
    }

    /// Adds a vCPU in a mode (`halt`, `spin`, `pause`, `duty:PERCENT`).
    pub fn plug(&mut self, mode: &str) -> Vcpu {
        let mut reply = self.command(&format!("plug {mode}"));
        serde_json::from_value(reply["vcpu"].take()).expect("the reply has all of Vcpu")
    }

    /// Ends a vCPU's thread; returns its CPU time, ns.
    pub fn unplug(&mut self, index: u32) -> u64 {
        number(&self.command(&format!("unplug {index}")), "cpu_ns")
    }

    /// Waits until each of these vCPUs has used `ms` more CPU time.
    pub fn wait_for_cpu(&self, vcpus: &[usize], ms: u64) {
        let used_ns = |vcpu: usize| {
            let times = Schedstat::read(self.pid(), self.ready.vcpus[vcpu].tid);
            times.expect("no vCPU ends here").cpu_ns
        };
        let ends = vcpus
            .iter()
            .map(|vcpu| (*vcpu, used_ns(*vcpu) + ms * 1_000_000));
        let ends: Vec<_> = ends.collect();
        eventually("the vCPUs run", || {
            let have_run = ends.iter().all(|(vcpu, end)| used_ns(*vcpu) >= *end);
            have_run.then_some(())
        });
    }

    /// Ends all vCPUs and closes their files: KVM releases the VM, and the VMM lives on.
    pub fn release(&mut self) {
        self.command("release");
    }

    /// Starts threads that burn CPU time and end, and waits for their end; returns the
    /// sum of their CPU time, ns.
    pub fn spawn(&mut self, count: u32, ms: u32, name: &str) -> u64 {
        number(
            &self.command(&format!("spawn {count} {ms} {name}")),
            "burned_ns",
        )
    }

    /// Forks the VMM; the child holds all its files for `ms`. Returns the child's pid.
    pub fn fork(&mut self, ms: u32) -> u32 {
        let pid = number(&self.command(&format!("fork {ms}")), "pid");
        u32::try_from(pid).expect("pids are small")
    }

    /// Lets the process exec the same program again: another VM.
    pub fn exec(&mut self) {
        let ready = self.try_command("exec");
        self.ready = serde_json::from_value(ready).expect("the ready line has all of Status");
    }

    fn burn(&mut self, line: &str) -> Vec<Receipt> {
        let mut reply = self.command(line);
        serde_json::from_value(reply["burned"].take()).expect("the reply has receipts")
    }
}

impl Drop for Minivm {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn read_reply(stdout: &mut BufReader<ChildStdout>) -> Value {
    let mut line = String::new();
    stdout
        .read_line(&mut line)
        .expect("minivm's stdout can be read");
    assert!(!line.is_empty(), "minivm ended; the cause is on stderr");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON: {line}: {error}"))
}

fn number(reply: &Value, key: &str) -> u64 {
    reply[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no {key} in {reply}"))
}
