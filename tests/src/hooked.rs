//! The programs that the kernel lists as attached to hooks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter};
use virtlens_model::snapshot::Snapshot;

/// Ids of the programs that this process holds.
fn own() -> BTreeSet<u32> {
    let files = fs::read_dir("/proc/self/fd").expect("every process has it");
    let ids = files.flatten().filter_map(|file| {
        // Files may be closed meanwhile.
        let target = fs::read_link(file.path()).ok()?;
        let is_program = target == Path::new("anon_inode:bpf-prog");
        is_program.then_some(())?;
        let info = Path::new("/proc/self/fdinfo").join(file.file_name());
        let info = fs::read_to_string(info).ok()?;
        let id = info.lines().find_map(|line| line.strip_prefix("prog_id:"));
        Some(id.expect("since v4.13").trim().parse().expect("a number"))
    });
    ids.collect()
}

/// Names of the programs of this process that are attached to hooks: a link of an iterator
/// makes no program run.
pub fn hooked() -> BTreeSet<String> {
    let own = own();
    let programs = ProgInfoIter::default();
    let names = programs.map(|one| (one.id, one.name.to_string_lossy().into_owned()));
    let names: BTreeMap<u32, String> = names.filter(|(id, _)| own.contains(id)).collect();
    let links = LinkInfoIter::default();
    links
        .filter(|link| !matches!(link.info, LinkTypeInfo::Iter(_)))
        .filter_map(|link| names.get(&link.prog_id).cloned())
        .collect()
}

/// The sources whose programs wait for a VM.
pub fn idle(snapshot: &Snapshot) -> BTreeSet<&'static str> {
    let sources = snapshot.sources.iter();
    let idle = sources.filter(|source| source.up && source.mode == "idle");
    idle.map(|source| source.name).collect()
}

/// The programs at functions, which Linux before v5.13 does not detach
/// (`crates/probe/src/source/attach.rs`).
const AT_FUNCTIONS: [&str; 7] = [
    "on_throttle",
    "pre_unthrottle",
    "on_unthrottle",
    "on_madvise",
    "on_madvise_ret",
    "on_fallocate",
    "on_falloc_ret",
];

/// Of the attached programs those that stay attached after the last VM.
pub fn kept(snapshot: &Snapshot, attached: &BTreeSet<String>) -> BTreeSet<String> {
    // A kernel without task storage for tracing programs, before v5.13.
    if snapshot.maps.iter().all(|one| one.map != "marks_hash") {
        return BTreeSet::new();
    }
    let stays = |name: &&String| AT_FUNCTIONS.contains(&name.as_str());
    attached.iter().filter(stays).cloned().collect()
}
