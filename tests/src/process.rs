//! Oracles: the kernel's values of processes and threads in /proc, and functions that use
//! CPU time deliberately.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use virtlens_model::vocab::Switches;

/// One thread's /proc/PID/task/TID/schedstat: cumulative since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a CPU, ns (`sum_exec_runtime`); lags by up to a tick while the
    /// thread runs.
    pub cpu_ns: u64,
    /// Time runnable on a queue, ns (`run_delay`), throttled time included.
    pub wait_ns: u64,
}

impl Schedstat {
    /// Values of a thread; `None` if the thread has ended.
    pub fn read(pid: u32, tid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        let mut fields = text
            .split_ascii_whitespace()
            .map(|field| field.parse().ok());
        Some(Self {
            cpu_ns: fields.next()??,
            wait_ns: fields.next()??,
        })
    }

    /// Values of the main thread of an existing process.
    pub fn of_main(pid: u32) -> Self {
        Self::read(pid, pid.cast_signed()).expect("the process is there")
    }

    /// Sum over all living threads of a process.
    pub fn sum(pid: u32) -> Self {
        let none = Self {
            cpu_ns: 0,
            wait_ns: 0,
        };
        tids(pid)
            .into_iter()
            .filter_map(|tid| Self::read(pid, tid))
            .fold(none, |sum, one| Self {
                cpu_ns: sum.cpu_ns + one.cpu_ns,
                wait_ns: sum.wait_ns + one.wait_ns,
            })
    }
}

/// Time of all CPUs that the kernel does not count for threads, if it accounts for it: hard
/// and soft interrupts (`CONFIG_IRQ_TIME_ACCOUNTING`) and steal
/// (`CONFIG_PARAVIRT_TIME_ACCOUNTING`; `update_rq_clock_task`, kernel/sched/core.c).
#[derive(Clone, Copy, Debug)]
pub struct Uncounted {
    ticks: [u64; 3],
}

impl Uncounted {
    /// Reads /proc/stat.
    pub fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").expect("it can be read");
        let mut times = stat.split_ascii_whitespace().skip(6);
        let ticks = std::array::from_fn(|_| {
            let time = times.next().and_then(|time| time.parse().ok());
            time.expect("a number of ticks")
        });
        Self { ticks }
    }

    /// Upper bound of the time since an earlier reading, ns: each value is rounded down to
    /// a tick of 10 ms.
    pub fn most_ns_since(self, before: Self) -> u64 {
        let grown = self.ticks.iter().zip(before.ticks);
        grown.map(|(now, then)| (now - then + 1) * 10_000_000).sum()
    }
}

/// Context switches of a thread, from its files `schedstat` and `status`; `None` if the
/// thread has ended.
pub fn switches(pid: u32, tid: i32) -> Option<Switches> {
    let file = |name| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).ok();
    let (schedstat, status) = (file("schedstat")?, file("status")?);
    let timeslices = schedstat.split_ascii_whitespace().nth(2)?;
    let mut lines = status.lines();
    let involuntary = lines.find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    Some(Switches {
        timeslices: timeslices.parse().ok()?,
        involuntary: involuntary.trim().parse().ok()?,
    })
}

/// Thread ids of a process, ascending; empty if it has ended.
pub fn tids(pid: u32) -> Vec<i32> {
    let mut tids: Vec<i32> = names(&format!("/proc/{pid}/task"))
        .filter_map(|name| name.parse().ok())
        .collect();
    tids.sort_unstable();
    tids
}

/// A thread's name, at most 15 bytes; `None` if the thread has ended.
pub fn comm(pid: u32, tid: i32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

/// Pid and tid of the worker of a VMM's vhost device. It is named after the thread that
/// set the owner, here the main thread. It is a kernel thread up to v6.3, and a thread of
/// the VMM since then (`drivers/vhost/vhost.c`).
pub fn vhost_worker(vmm: u32) -> Option<(u32, i32)> {
    let name = format!("vhost-{vmm}");
    let own = tids(vmm).into_iter().map(|tid| (vmm, tid));
    let processes = names("/proc").filter_map(|name| name.parse::<u32>().ok());
    let all = own.chain(processes.map(|pid| (pid, pid.cast_signed())));
    all.into_iter()
        .find(|(pid, tid)| comm(*pid, *tid).as_ref() == Some(&name))
}

/// Ids of the vCPUs whose files a process holds, ascending. The kernel names such a file
/// by its vCPU's id (`kvm-vcpu:N`, `virt/kvm/kvm_main.c`).
pub fn vcpu_ids(pid: u32) -> Vec<u32> {
    let dir = format!("/proc/{pid}/fd");
    let mut ids: Vec<u32> = names(&dir)
        .filter_map(|name| fs::read_link(format!("{dir}/{name}")).ok())
        .filter_map(|to| {
            to.to_str()?
                .strip_prefix("anon_inode:kvm-vcpu:")?
                .parse()
                .ok()
        })
        .collect();
    ids.sort_unstable();
    ids
}

/// Whether a thread is blocked in the kernel's part of `KVM_RUN`: its guest is halted.
/// The kernel's own worker in a VMM (`kvm-nx-lpage-re`, a thread of the process since
/// v6.14) looks the same, because it has the registers of the vCPU thread that started
/// it.
pub fn is_halted(pid: u32, tid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    matches!(fields[..], ["16", _, "0xae80", ..])
}

/// Pins a thread to CPUs; panics if the kernel refuses.
pub fn set_affinity(tid: i32, cpus: &[usize]) {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    sched_setaffinity(Pid::from_raw(tid), &set)
        .unwrap_or_else(|error| panic!("pin {tid} to {cpus:?}: {error}"));
}

/// Sets a thread's scheduling policy, `SCHED_FIFO` with priority 1 or `SCHED_OTHER`; panics
/// if the kernel refuses.
pub fn set_fifo(tid: i32, is_fifo: bool) {
    let policy = if is_fifo {
        libc::SCHED_FIFO
    } else {
        libc::SCHED_OTHER
    };
    let param = libc::sched_param {
        sched_priority: i32::from(is_fifo),
    };
    // SAFETY: `param` lives for the call.
    let result = unsafe { libc::sched_setscheduler(tid, policy, &raw const param) };
    let error = std::io::Error::last_os_error();
    assert_eq!(result, 0, "set the policy {policy} of {tid}: {error}");
}

/// Uses CPU in the calling thread until its CPU clock has advanced by `cpu`; returns the
/// exact increase, ns.
pub fn burn(cpu: Duration) -> u64 {
    let start_ns = own_cpu_ns();
    let wanted_ns = u64::try_from(cpu.as_nanos()).expect("a load of less than 584 years");
    loop {
        let burned_ns = own_cpu_ns() - start_ns;
        if burned_ns >= wanted_ns {
            return burned_ns;
        }
        std::hint::spin_loop();
    }
}

/// CPU time of the calling thread since its start, ns.
pub fn own_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let now = Duration::try_from(now).expect("a CPU clock is never negative");
    u64::try_from(now.as_nanos()).expect("584 years")
}

fn names(dir: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}
