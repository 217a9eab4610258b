//! Parses /proc/PID/task/TID/{stat,schedstat,status}.

use virtlens_model::facts::ThreadKind;
use virtlens_model::vocab::{Comm, CpuSet};

/// The fields of a `stat` file that are used here (fs/proc/array.c, `do_task_stat`;
/// numbered as in proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskStat {
    /// Field 2, the name: any bytes, including `)`, spaces and newlines.
    pub comm: Comm,
    /// Field 3, Z or X: the task has ended and waits for its parent.
    pub has_ended: bool,
    /// Field 9, `task->flags`.
    pub flags: u32,
    /// Fields 14 and 15, CPU time in user and kernel mode, clock ticks.
    pub cpu_ticks: u64,
    /// Field 22, start time, clock ticks since boot.
    pub start_ticks: u64,
    /// Field 39, the present or last CPU.
    pub pcpu: Option<u32>,
    /// Field 41, `task->policy`.
    pub policy: Option<u32>,
    /// Field 43, time in guest mode, clock ticks.
    pub guest_ticks: Option<u64>,
}

/// Parses a `stat` file. The name ends at the last `)`, since all fields after it are
/// numbers.
pub fn parse_stat(bytes: &[u8]) -> Option<TaskStat> {
    let open = bytes.iter().position(|byte| *byte == b'(')?;
    let close = bytes.iter().rposition(|byte| *byte == b')')?;
    let comm = bytes.get(open + 1..close)?;
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    // The first field after the name is field 3.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |at: usize| field(at).and_then(|text| text.parse::<u64>().ok());
    Some(TaskStat {
        comm: Comm::new(comm),
        has_ended: matches!(field(3)?, "Z" | "X"),
        flags: field(9)?.parse().ok()?,
        cpu_ticks: number(14)?.saturating_add(number(15)?),
        start_ticks: number(22)?,
        pcpu: field(39).and_then(|text| text.parse().ok()),
        policy: field(41).and_then(|text| text.parse().ok()),
        guest_ticks: number(43),
    })
}

/// Returns the kind of thread from the flags of a `stat` file (include/linux/sched.h).
///
/// `PF_USER_WORKER` is 0x4000 since v6.4. Older kernels (v5.10) have `PF_USED_ASYNC`
/// there, which is set on a thread that probed a driver. A caller that treats user
/// workers as vhost workers must therefore check the name too.
pub fn thread_kind(flags: u32) -> ThreadKind {
    const PF_IO_WORKER: u32 = 0x10;
    const PF_USER_WORKER: u32 = 0x4000;
    const PF_KTHREAD: u32 = 0x0020_0000;
    if flags & PF_KTHREAD != 0 {
        ThreadKind::Kthread
    } else if flags & PF_IO_WORKER != 0 {
        ThreadKind::IoWorker
    } else if flags & PF_USER_WORKER != 0 {
        ThreadKind::UserWorker
    } else {
        ThreadKind::User
    }
}

/// A `schedstat` file (fs/proc/base.c, `proc_pid_schedstat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedstat {
    /// `se.sum_exec_runtime`, ns.
    pub run_ns: u64,
    /// `sched_info.run_delay`, ns.
    pub wait_ns: u64,
    /// `sched_info.pcount`: how often the thread was put on a CPU.
    pub timeslices: u64,
}

/// Parses a `schedstat` file. Returns `None` also for "0 0 0", which a kernel without
/// these counters writes (`!sched_info_on()`): the third number is positive for every
/// thread that ever ran.
pub fn parse_schedstat(bytes: &[u8]) -> Option<Schedstat> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut numbers = text
        .split_ascii_whitespace()
        .map(|word| word.parse::<u64>().ok());
    let (run_ns, wait_ns, timeslices) = (numbers.next()??, numbers.next()??, numbers.next()??);
    (timeslices > 0).then_some(Schedstat {
        run_ns,
        wait_ns,
        timeslices,
    })
}

/// The lines of a `status` file that are used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// The process of the thread.
    pub tgid: u32,
    /// The process's id in its own pid namespace, `None` if not listed.
    pub own_tgid: Option<u32>,
    /// The CPUs that the thread may run on, `None` if not listed.
    pub affinity: Option<CpuSet>,
    /// Number of times that the thread left the CPU although it was runnable, `None` if
    /// not listed.
    pub involuntary_switches: Option<u64>,
}

/// Parses a `status` file. The kernel escapes newlines in the name, so no line can be
/// forged.
pub fn parse_status(bytes: &[u8]) -> Option<TaskStatus> {
    let line = |key: &[u8]| {
        let value = bytes
            .split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_prefix(key))?;
        std::str::from_utf8(value).ok().map(str::trim)
    };
    Some(TaskStatus {
        tgid: line(b"Tgid:")?.parse().ok()?,
        own_tgid: line(b"NStgid:")
            .and_then(|ids| ids.split_ascii_whitespace().next_back()?.parse().ok()),
        affinity: line(b"Cpus_allowed_list:")
            .filter(|list| !list.is_empty())
            .and_then(|list| list.parse().ok()),
        involuntary_switches: line(b"nonvoluntary_ctxt_switches:")
            .and_then(|count| count.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use virtlens_model::facts::ThreadKind;

    use super::{parse_schedstat, parse_stat, parse_status, thread_kind};

    /// Fields 3 to 52 of a thread that ran 250 + 3 ticks, 200 of them in the guest.
    fn stat(comm: &[u8]) -> Vec<u8> {
        let mut bytes = b"4711 (".to_vec();
        bytes.extend_from_slice(comm);
        bytes.extend_from_slice(
            b") S 1 4711 4711 0 -1 4194304 100 0 0 0 250 3 0 0 20 0 4 0 121969 3133440 410 \
              18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 5 0 0 0 200 0 0 0 0 0 0 0 0 0\n",
        );
        bytes
    }

    #[test]
    fn stat_name_with_any_bytes_is_parsed() {
        for comm in [
            &b"CPU 0/KVM"[..],
            b"a) R 1 (b",
            b") S 9 9",
            b"",
            b"new\nline",
            b"\xff\xfe(",
        ] {
            let parsed = parse_stat(&stat(comm)).expect("a stat line");
            assert_eq!(parsed.comm.as_bytes(), comm);
            assert_eq!(parsed.cpu_ticks, 253);
            assert_eq!(parsed.start_ticks, 121_969);
            assert_eq!(parsed.pcpu, Some(5));
            assert_eq!(parsed.policy, Some(0));
            assert_eq!(parsed.guest_ticks, Some(200));
        }
    }

    #[test]
    fn truncated_stat_line_yields_present_fields() {
        let whole = stat(b"x");
        let parsed = parse_stat(&whole[..80]).expect("fields up to 22");
        assert_eq!((parsed.pcpu, parsed.guest_ticks), (None, None));
        assert_eq!(parse_stat(&whole[..40]), None);
        assert_eq!(parse_stat(b")("), None);
    }

    #[test]
    fn thread_kind_is_parsed_from_flags() {
        assert_eq!(thread_kind(0x0040_0000), ThreadKind::User);
        assert_eq!(thread_kind(0x0040_4000), ThreadKind::UserWorker);
        assert_eq!(thread_kind(0x0040_4010), ThreadKind::IoWorker);
        assert_eq!(thread_kind(0x0020_8040), ThreadKind::Kthread);
    }

    #[test]
    fn schedstat_without_timeslices_is_absent() {
        let parsed = parse_schedstat(b"844685 12 3\n").expect("three numbers");
        assert_eq!((parsed.run_ns, parsed.wait_ns), (844_685, 12));
        assert_eq!(parsed.timeslices, 3);
        assert_eq!(parse_schedstat(b"0 0 0\n"), None);
        assert_eq!(parse_schedstat(b"1 2\n"), None);
        assert_eq!(parse_schedstat(b""), None);
    }

    #[test]
    fn status_gives_process_affinity_and_switches() {
        let text = b"Name:\tx\\nTgid:\t9\nTgid:\t42\nPid:\t43\nCpus_allowed_list:\t0-3,8\n\
            voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t17\n";
        let parsed = parse_status(text).expect("a status file");
        assert_eq!(parsed.involuntary_switches, Some(17));
        assert_eq!((parsed.tgid, parsed.own_tgid), (42, None));
        assert_eq!(parsed.affinity.expect("a list").to_string(), "0-3,8");
        let bare = parse_status(b"Tgid:\t42\nCpus_allowed_list:\t?\n").expect("a tgid");
        assert_eq!((bare.affinity, bare.involuntary_switches), (None, None));
        let within = parse_status(b"Tgid:\t42\nNStgid:\t42\t7\t1\n").expect("a tgid");
        assert_eq!(within.own_tgid, Some(1));
        assert_eq!(parse_status(b"Name:\tx\n"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_stat(&bytes);
            let _ = parse_schedstat(&bytes);
            let _ = parse_status(&bytes);
        }

        #[test]
        fn every_thread_name_round_trips(comm in proptest::collection::vec(1u8.., 0..=15)) {
            let parsed = parse_stat(&stat(&comm)).expect("a stat line");
            prop_assert_eq!(parsed.comm.as_bytes(), &comm[..]);
        }
    }
}
