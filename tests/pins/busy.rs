//! Task storage that the kernel does not look up: before v6.2 a lookup fails while its CPU
//! is inside another operation on task storage (`enum drop_reason`, `DROP_MARK_BUSY`).

use std::fs;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore as _, MapFlags};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use virtlens_tests::process::set_affinity;
use virtlens_tests::reader::{self, dropped};
use virtlens_tests::root::{Root, TASK_STORAGE};
use virtlens_tests::{Minivm, need};

use crate::{pinned, pinned_map};

const BUSY: &str = "mark_busy";

/// Lets the kernel preempt a thread inside of a system call, where it can be set.
struct Preemption(Option<String>);

const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

impl Preemption {
    fn full() -> Self {
        // "none voluntary (full)": the mode in use is in parentheses.
        let modes = fs::read_to_string(PREEMPT).unwrap_or_default();
        let words = &mut modes.split_whitespace();
        let before = words.find_map(|word| word.strip_prefix('(')?.strip_suffix(')'));
        let before = before.map(str::to_owned);
        if before.is_some() {
            fs::write(PREEMPT, "full").expect("the mode can be set");
        }
        Self(before)
    }
}

impl Drop for Preemption {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            drop(fs::write(PREEMPT, before));
        }
    }
}

/// Whether a lookup in task storage may fail on this kernel, by its version.
fn may_miss() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("it is there");
    let mut numbers = release.split(['.', '-']).map_while(|one| one.parse().ok());
    let version: (u32, u32) = (
        numbers.next().expect("a major number"),
        numbers.next().expect("a minor number"),
    );
    let types = fs::read("/sys/kernel/btf/vmlinux").expect("it has types");
    let mut windows = types.windows(TASK_STORAGE.len());
    version < (6, 2) && windows.any(|bytes| bytes == TASK_STORAGE.as_bytes())
}

/// Another thread of this CPU is inside an update of task storage, again and again, when
/// the agent reads. A missed lookup is counted where the kernel can miss one, and nowhere
/// else.
#[test]
fn missed_lookup_of_thread_state_is_counted() {
    if !reader::ready("missed_lookup_of_thread_state_is_counted") {
        return;
    }
    let root = Root::with_bpffs();
    let mut guest = Minivm::start(["--vcpus", "8", "--name", "busy"]);
    guest.burn_vcpus("all", 5);
    let mut collector = pinned(&root);
    collector.collect();
    let Some(states) = pinned_map(&root, "marks") else {
        assert!(!may_miss());
        need::left_out(
            "missed lookups",
            "this kernel's thread states are in a hash",
        );
        return;
    };
    let task = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process lives");
    let key = task.as_raw_fd().to_ne_bytes();
    let value = vec![0; usize::try_from(states.value_size()).expect("it is small")];

    let _preemption = Preemption::full();
    let is_over = AtomicBool::new(false);
    let missed = thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                set_affinity(0, &[0]);
                while !is_over.load(Ordering::Relaxed) {
                    // It fails with EBUSY while the other thread is inside of one.
                    drop(states.update(&key, &value, MapFlags::ANY));
                }
            });
        }
        let reading = threads.spawn(|| {
            set_affinity(0, &[0]);
            let end = Instant::now() + Duration::from_secs(if may_miss() { 60 } else { 3 });
            loop {
                let missed = dropped(&collector.collect(), BUSY);
                if missed > 0 || Instant::now() > end {
                    return missed;
                }
            }
        });
        let missed = reading.join().expect("the reading thread ends");
        is_over.store(true, Ordering::Relaxed);
        missed
    });
    drop(states.delete(&key));
    println!("{missed} missed lookups");
    assert_eq!(missed > 0, may_miss(), "{missed}");
}
