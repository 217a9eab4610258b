//! CPU topology of the host: /sys/devices/system/cpu and /sys/devices/system/node.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use virtlens_model::vocab::CpuSet;
use virtlens_model::vocab::topology::host::{CpuFact, HostTopology};

use crate::error::{Error, Losses};
use crate::root::{HostRoot, read_as};

/// Changes with every CPU hotplug event. If it differs from the one before, read
/// [`topology`] again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyStamp([Option<Vec<u8>>; 3]);

/// The three files of a [`TopologyStamp`], which stay open: opening a file of sysfs costs
/// more than reading it.
#[derive(Debug, Default)]
pub struct TopologyFiles([Option<File>; 3]);

impl TopologyFiles {
    /// Reads the stamp. Call it before [`topology`], so that a CPU hotplugged in between is
    /// noticed the next time. Each call must have the same `root`.
    pub fn stamp(&mut self, root: &HostRoot) -> TopologyStamp {
        let paths = ["cpu/online", "cpu/smt/active", "node/online"];
        let mut files = self.0.iter_mut().zip(paths);
        TopologyStamp(std::array::from_fn(|_| {
            let (file, path) = files.next()?;
            if file.is_none() {
                *file = File::open(system(root, path)).ok();
            }
            let text = read_again(file.as_ref()?);
            if text.is_none() {
                *file = None;
            }
            text
        }))
    }
}

/// Reads an open file from its start: sysfs then returns its present content. `None` if it
/// cannot be read, or is longer than a stamp's files.
fn read_again(file: &File) -> Option<Vec<u8>> {
    let mut bytes = [0; STAMP_FILE];
    let read = file.read_at(&mut bytes, 0).ok()?;
    let text = bytes.get(..read)?;
    (read < STAMP_FILE).then(|| text.to_vec())
}

/// Longer than any file of a stamp: sysfs returns at most one page.
const STAMP_FILE: usize = 4097;

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
