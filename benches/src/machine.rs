//! Place and time of a measurement.

use std::fs;
use std::process::Command;
use std::thread;

/// One paragraph that names machine, kernel, date and commit.
pub fn describe() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let kernel = file("/proc/sys/kernel/osrelease");
    let load = file("/proc/loadavg");
    let load: Vec<&str> = load.split_whitespace().take(3).collect();
    format!(
        "{cpu}, {cores} CPUs, {memory:.0} GiB; Linux {kernel}; {date}; commit {commit}; \
         load average before: {load}.",
        cpu = field("/proc/cpuinfo", "model name"),
        memory = memory_gib(),
        date = output("date", &["-u", "+%F"]),
        commit = commit(),
        load = load.join(" "),
    )
}

fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short", "HEAD"]);
    let changed = output("git", &["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_empty() {
        commit
    } else {
        format!("{commit} with changes")
    }
}

fn memory_gib() -> f64 {
    f64::from(memory_kib("MemTotal")) / f64::from(1 << 20)
}

/// Half of the memory that is available: a measurement leaves the other half free.
pub fn half_of_available_kib() -> u32 {
    memory_kib("MemAvailable") / 2
}

/// A value of `/proc/meminfo`; 0 if it is absent.
fn memory_kib(name: &str) -> u32 {
    let text = field("/proc/meminfo", name);
    text.trim_end_matches(" kB").parse().unwrap_or(0)
}

fn file(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The value of the first line `name : value`.
fn field(path: &str, name: &str) -> String {
    let text = file(path);
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(field, _)| field.trim() == name);
    found.map_or_else(
        || "unknown".to_owned(),
        |(_, value)| value.trim().to_owned(),
    )
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(args)
        .output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
