//! A VM that works while others start and end. Its true values come from its cgroup and,
//! for discards, from a BPF program of the test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use virtlens_tests::calls::Calls;
use virtlens_tests::reader::{self, MS, assert_close};
use virtlens_tests::root::Root;
use virtlens_tests::scraped::{Counters, counters, cpu_ns, not_fallen, samples, whole};
use virtlens_tests::{Agent, Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::run;

const RAM_BYTES: u64 = 64 << 20;

/// The VM and the values seen of it.
pub(crate) struct Scene {
    pub(crate) root: Root,
    /// The highest value of each series so far.
    pub(crate) seen: Counters,
    // Before its cgroups, which can only be removed once they are empty.
    guest: Minivm,
    _container: TestCgroup,
    pod: TestCgroup,
    /// Counts the discards, where agents can follow them.
    calls: Option<Calls>,
    first: Counters,
    used_before_ns: u64,
}

impl Scene {
    /// Returns `None` if the host lacks a requirement of the test.
    pub(crate) fn new(test: &str) -> Option<Self> {
        if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
            return None;
        }
        let root = Root::with_bpffs();
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        pod.set_quota(Some(50_000), 100_000);
        let container = pod.child(&"ab".repeat(32));
        let args = [
            "--vcpus", "2", "--start", "duty:40", "--thread", "io=1", "--mem", "64M", "--name",
            "steady",
        ];
        let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));
        let mut seen = Counters::new();
        let agent = Agent::start(run(&root));
        // The second reading knows where the RAM lies.
        not_fallen(&mut seen, counters(&agent));
        let calls = follows_discards(&agent).then(Calls::attach);
        if let Some(calls) = &calls {
            calls.watch(guest.pid(), RAM_BYTES);
        }
        let first = counters(&agent);
        let used_before_ns = pod.usage_ns();
        not_fallen(&mut seen, first.clone());
        Some(Self {
            root,
            seen,
            guest,
            _container: container,
            pod,
            calls,
            first,
            used_before_ns,
        })
    }

    /// Runs `done` on agents while the VM works and others start and end. Then asserts
    /// that the next agent's counters are correct.
    pub(crate) fn under_load(mut self, done: impl FnOnce(&Root, &mut Counters)) {
        let is_over = AtomicBool::new(false);
        let (guest, seen) = (&mut self.guest, &mut self.seen);
        let burned_ns = thread::scope(|scope| {
            let churning = scope.spawn(|| churn(guest, &is_over));
            let over = Over(&is_over);
            done(&self.root, seen);
            drop(over);
            churning.join().expect("it ends by itself")
        });
        assert!(burned_ns > 100 * MS, "{burned_ns} ns are no load");
        self.judge(burned_ns);
    }

    fn judge(mut self, burned_ns: u64) {
        let agent = Agent::start(run(&self.root));
        let last = counters(&agent);
        let used = self.pod.usage_ns() - self.used_before_ns;
        not_fallen(&mut self.seen, last.clone());
        let reported = cpu_ns(&last, "steady") - cpu_ns(&self.first, "steady");
        println!(
            "reported {} ms, used {} ms, of it {} ms by threads that ended",
            reported / MS,
            used / MS,
            burned_ns / MS
        );
        assert_close("the pod", reported, used, (used / 200).max(20 * MS));
        self.judge_throttling(&last);
        self.judge_discards(&last);
    }

    fn judge_throttling(&self, last: &Counters) {
        let throttling = self.pod.throttling();
        let of_pod = "virtlens_cfs_throttled_periods_total{";
        let periods = sum(last, of_pod, &["scope=\"pod\""]);
        let truth = throttling.throttled_periods;
        assert!(
            truth >= periods && truth - periods <= 3,
            "{periods} of {truth}"
        );
    }

    fn judge_discards(&self, last: &Counters) {
        let Some(calls) = &self.calls else {
            need::left_out("the kill test's discards", "memory is not followed here");
            return;
        };
        let operation = |name| format!("operation=\"{name}\"");
        let balloon = |family: &str, name| sum(last, family, &[&operation(name)]);
        let events = |name| balloon("virtlens_balloon_events_total{", name);
        let bytes = |name| balloon("virtlens_balloon_bytes_total{", name);
        let reports = sum(last, "virtlens_free_page_reports_total{", &[]);
        let reported = sum(last, "virtlens_free_page_reported_bytes_total{", &[]);
        println!(
            "inflated {} times, deflated {}, reported {reports}",
            events("inflate"),
            events("deflate")
        );
        let freed = (events("inflate") + reports, bytes("inflate") + reported);
        assert_eq!(freed, calls.freed(false, |_| true), "freed");
        assert_eq!(
            (events("deflate"), bytes("deflate")),
            calls.wanted(),
            "taken again"
        );
        assert!(freed.0 > 100 && reports > 10, "that is no load");
    }
}

/// Whether agents on this kernel can follow discards; on the kernels of tests/vm they
/// must.
fn follows_discards(agent: &Agent) -> bool {
    let up = samples(agent, |series| {
        series == "virtlens_source_up{source=\"memory\"}"
    });
    let is_up = up.values().any(|up| *up > 0.5);
    let must = std::env::var_os("VIRTLENS_VM").is_some();
    assert!(is_up || !must, "memory is off");
    is_up
}

/// Sum of the VM's series of this family with these labels.
fn sum(counters: &Counters, family: &str, labels: &[&str]) -> u64 {
    let of_vm = counters.iter().filter(|(series, _)| {
        series.starts_with(family)
            && series.contains("vm=\"steady\"")
            && labels.iter().all(|label| series.contains(label))
    });
    whole(of_vm.map(|(_, value)| value).sum())
}

/// Starts and ends threads and VMs, discards memory and touches it again, until `is_over`
/// is set. Returns the CPU time of the threads, ns.
fn churn(guest: &mut Minivm, is_over: &AtomicBool) -> u64 {
    let mut burned_ns = 0;
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        burned_ns += guest.spawn(3, 5, "passing");
        guest.command("madvise dontneed 0 4K 20");
        guest.command("madvise willneed 0 4K 10");
        guest.command("madvise dontneed 0 4M 3");
        let name = format!("passing-{number}");
        drop(Minivm::start([
            "--vcpus", "1", "--start", "duty:50", "--name", &name,
        ]));
    }
    burned_ns
}

/// Ends the churn on drop, also on a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
