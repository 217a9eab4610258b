//! Plain readers of /proc for the rig's self-tests. They deliberately do not use the
//! agent's readers, because the rig checks those.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// All threads of a process.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// All processes, kernel threads included.
pub(crate) fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Name of a thread; empty if the thread has ended.
pub(crate) fn comm(tid: u32) -> String {
    fs::read_to_string(format!("/proc/{tid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// CPU time of a thread since its start, ns: the first field of its schedstat,
/// `sum_exec_runtime` (kernel/sched: `proc_pid_schedstat`).
pub(crate) fn run_ns(tid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{tid}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let first = text
        .split_whitespace()
        .next()
        .with_context(|| path.clone())?;
    first.parse().with_context(|| path)
}

/// The CPU on which a thread ran last: field 39 of its stat (proc(5)).
pub(crate) fn last_cpu(tid: u32) -> anyhow::Result<u32> {
    let path = format!("/proc/{tid}/stat");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name is in brackets and may contain anything; the state behind it is field 3.
    let behind = text.rsplit_once(") ").map(|(_, behind)| behind);
    let cpu = behind.and_then(|behind| behind.split(' ').nth(39 - 3)?.parse().ok());
    cpu.with_context(|| format!("{path}: {text:?}"))
}

/// Sum of the CPU time that these threads use within `window`, ns.
pub(crate) fn burn_ns(tids: &[u32], window: Duration) -> anyhow::Result<u64> {
    let total = || {
        tids.iter()
            .try_fold(0, |sum, tid| anyhow::Ok(sum + run_ns(*tid)?))
    };
    let before = total()?;
    sleep(window);
    Ok(total()? - before)
}

/// A number in a `key value` file such as cpu.stat or status.
pub(crate) fn keyed(path: &Path, key: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.split_whitespace().next());
    let value = value.with_context(|| format!("{}: no {key}", path.display()))?;
    Ok(value.parse()?)
}

/// Repeats a query until it has an answer or the time is over.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        ensure!(
            began.elapsed() < limit,
            "{what}: not within {} s",
            limit.as_secs()
        );
        sleep(Duration::from_millis(50));
    }
}

/// `(number, second argument)` of the system call that a sleeping thread is in, from
/// /proc/TID/syscall.
pub(crate) fn blocked_in(tid: u32) -> anyhow::Result<Option<(u64, u64)>> {
    let text = fs::read_to_string(format!("/proc/{tid}/syscall"))?;
    let mut words = text.split_whitespace();
    let Some(Ok(number)) = words.next().map(str::parse::<u64>) else {
        return Ok(None);
    };
    let Some(second) = words.nth(1).and_then(|word| word.strip_prefix("0x")) else {
        bail!("/proc/{tid}/syscall: cannot read {text:?}");
    };
    Ok(Some((number, u64::from_str_radix(second, 16)?)))
}
