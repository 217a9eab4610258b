//! Child processes of a pod's processes that were moved to another cgroup: see
//! `pod_of_parent` in `bpf/owner.bpf.h`.

use std::collections::HashMap;

use virtlens_model::vocab::CgroupId;

use super::threads::ThreadReader;
use super::{MAX_THREADS, Owner, PartialFacts};
use crate::root::{HostRoot, SMALL_FILE, numbered, read_start};

/// Known children, by process id. They are kept because a process whose parent ends is
/// reparented.
#[derive(Debug, Default)]
pub(super) struct Children(HashMap<u32, Child>);

#[derive(Debug)]
struct Child {
    start_ns: u64,
    pod: CgroupId,
}

impl Children {
    /// Reads the children of `parents`, threads in a pod's cgroups, with all descendants,
    /// and the children that earlier readings found.
    pub(super) fn read(
        &mut self,
        root: &HostRoot,
        reader: &mut ThreadReader,
        reading: &mut PartialFacts,
        mut parents: Vec<(u32, CgroupId)>,
        is_watched: impl Fn(CgroupId) -> bool,
    ) {
        self.0.retain(|pid, child| {
            let started = reader.started(*pid).ok().flatten();
            let lives = started == Some(child.start_ns) && is_watched(child.pod);
            if lives {
                parents.extend(reading.read_child(root, reader, *pid, child.pod));
            }
            lives
        });
        while let Some((tid, pod)) = parents.pop() {
            for pid in children_of(root, tid) {
                if reading.owners.contains_key(&pid) {
                    continue;
                }
                let Some(start_ns) = reader.started(pid).ok().flatten() else {
                    continue;
                };
                parents.extend(reading.read_child(root, reader, pid, pod));
                self.0.insert(pid, Child { start_ns, pod });
            }
        }
    }
}

impl PartialFacts {
    /// Reads the threads of a child process and returns those that were read.
    fn read_child(
        &mut self,
        root: &HostRoot,
        reader: &mut ThreadReader,
        pid: u32,
        pod: CgroupId,
    ) -> Vec<(u32, CgroupId)> {
        let tids = numbered(&root.proc_of(pid, "task"), MAX_THREADS);
        let Some((tids, is_cut)) = reader.losses.keep(tids) else {
            return Vec::new();
        };
        reader.losses.over_limit += u64::from(is_cut);
        let mut read = Vec::new();
        for tid in tids {
            self.push(reader, Owner::Pod(pod), tid);
            read.push((tid, pod));
        }
        read
    }
}

/// The child processes of a thread. Empty if the kernel does not list them
/// (`CONFIG_PROC_CHILDREN`) or the thread is gone.
fn children_of(root: &HostRoot, tid: u32) -> Vec<u32> {
    let file = root.thread_of(tid, tid, "children");
    let bytes = read_start(&file, SMALL_FILE).map(|(bytes, _)| bytes);
    parse_children(&bytes.unwrap_or_default())
}

/// Parses a `children` file (`children_seq_show`, fs/proc/array.c). A blank follows each
/// number, so a number without one is truncated.
pub fn parse_children(bytes: &[u8]) -> Vec<u32> {
    let numbers = bytes.split_inclusive(|byte| *byte == b' ');
    let whole = numbers.filter_map(|number| number.strip_suffix(b" "));
    whole
        .filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::parse_children;

    #[test]
    fn children_parse_as_whole_numbers() {
        assert_eq!(parse_children(b"12 345 6789 "), [12, 345, 6789]);
        assert_eq!(parse_children(b"12 34"), [12]);
        assert!(parse_children(b"").is_empty());
    }
}
