//! Files of a thread in /proc; its name may contain any bytes.

use virtlens_host::{parse_schedstat, parse_stat, parse_status, thread_kind};

/// `data` is the content of any of these files.
pub fn stat(data: &[u8]) {
    if let Some(stat) = parse_stat(data) {
        let _ = thread_kind(stat.flags);
        let name = stat.comm.as_bytes();
        assert!(name.len() < 16);
        assert!(data.windows(name.len().max(1)).any(|part| part == name) || name.is_empty());
    }
    if let Some(sched) = parse_schedstat(data) {
        let again = format!("{} {} {}\n", sched.run_ns, sched.wait_ns, sched.timeslices);
        assert_eq!(parse_schedstat(again.as_bytes()), Some(sched));
    }
    if let Some(status) = parse_status(data)
        && let Some(cpus) = status.affinity
    {
        assert_eq!(cpus.to_string().parse(), Ok(cpus));
    }
}
