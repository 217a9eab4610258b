//! CPU topology of the host: /sys/devices/system/cpu and /sys/devices/system/node.

use std::path::Path;

use virtlens_model::vocab::CpuSet;
use virtlens_model::vocab::topology::host::{CpuFact, HostTopology};

use crate::error::{Error, Losses};
use crate::root::{HostRoot, SMALL_FILE, read, read_as};

/// Changes with every CPU hotplug event. If it differs from the one before, read
/// [`topology`] again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyStamp([Option<Vec<u8>>; 3]);

/// Reads the mark: 3 small files. Call it before [`topology`], so that a CPU hotplugged
/// in between is noticed the next time.
pub fn topology_stamp(root: &HostRoot) -> TopologyStamp {
    let files = ["cpu/online", "cpu/smt/active", "node/online"];
    TopologyStamp(files.map(|file| read(&system(root, file), SMALL_FILE).ok()))
}

/// Reads the topology of the online CPUs: 4 small files for each CPU, one for each NUMA
/// node, and 2 more.
///
/// Any file below a CPU or node may be missing, in a VM, on an old kernel, or because the
/// CPU was just unplugged: its values are then unknown. Unparsable files are counted in
/// `losses`.
///
/// # Errors
/// If /sys does not list the online CPUs.
pub fn topology(root: &HostRoot, losses: &mut Losses) -> Result<HostTopology, Error> {
    let online = read_as(&system(root, "cpu/online"), CPU_LIST, parse_cpus)?;
    let mut facts: Vec<CpuFact> = online
        .iter()
        .map(|cpu| cpu_fact(root, cpu, losses))
        .collect();
    let nodes = optional(&system(root, "node/online"), losses, CPU_LIST, parse_cpus);
    for node in nodes.iter().flat_map(CpuSet::iter) {
        let cpulist = system(root, format!("node/node{node}/cpulist"));
        let cpus = optional(&cpulist, losses, CPU_LIST, parse_cpus).unwrap_or_default();
        let inside = facts.iter_mut().filter(|fact| cpus.contains(fact.cpu));
        inside.for_each(|fact| fact.node = Some(node));
    }
    Ok(HostTopology::new(&facts, &online))
}

fn cpu_fact(root: &HostRoot, cpu: u32, losses: &mut Losses) -> CpuFact {
    let dir = system(root, format!("cpu/cpu{cpu}"));
    let mut cpus = |file: &str| optional(&dir.join(file), losses, CPU_LIST, parse_cpus);
    CpuFact {
        cpu,
        core_cpus: cpus("topology/core_cpus_list"),
        die_cpus: cpus("topology/die_cpus_list"),
        llc_cpus: cpus("cache/index3/shared_cpu_list"),
        package: optional(
            &dir.join("topology/physical_package_id"),
            losses,
            "a number, or -1",
            parse_id,
        )
        .flatten(),
        node: None,
    }
}

const CPU_LIST: &str = "a CPU list like 0-3,8";

fn parse_cpus(bytes: &[u8]) -> Option<CpuSet> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Parses a number; -1 means that the firmware did not set it.
#[expect(
    clippy::option_option,
    reason = "absent and unparsable are different results"
)]
fn parse_id(bytes: &[u8]) -> Option<Option<u32>> {
    let id: i64 = std::str::from_utf8(bytes).ok()?.trim().parse().ok()?;
    Some(u32::try_from(id).ok())
}

/// Reads and parses a file that may be missing.
fn optional<T>(
    path: &Path,
    losses: &mut Losses,
    expected: &'static str,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    match read_as(path, expected, parse) {
        Err(error) if error.is_gone() => None,
        result => losses.keep(result),
    }
}

fn system(root: &HostRoot, below: impl AsRef<Path>) -> std::path::PathBuf {
    root.sys("devices/system").join(below)
}
