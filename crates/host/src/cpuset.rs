//! Reads the cpuset controller's files.

use std::path::Path;

use virtlens_model::vocab::CpuSet;

use crate::cgroupfs::Cgroups;
use crate::root::read_as;

/// File names on v2 and on v1 (Documentation/admin-guide/cgroup-v2.rst,
/// cgroup-v1/cpusets.rst).
const EFFECTIVE: [&str; 2] = ["cpuset.cpus.effective", "cpuset.effective_cpus"];

impl Cgroups {
    /// Union of the CPUs that the cgroups of these threads allow. For each thread the
    /// nearest ancestor with the cpuset controller counts. Ended threads are skipped.
    /// `None` if no cpuset is known.
    ///
    /// libvirt creates a cgroup for each vCPU, other VMMs one for all: if the first and
    /// the last thread share a cgroup, the others are not read.
    pub fn cpuset(&self, tids: &[u32]) -> Option<CpuSet> {
        let (first, rest) = tids.split_first()?;
        let mut paths: Vec<String> = self.cpuset_path(*first).into_iter().collect();
        if let Some((last, between)) = rest.split_last() {
            let last = self.cpuset_path(*last);
            if last != paths.first().cloned() {
                paths.extend(last);
                paths.extend(between.iter().filter_map(|tid| self.cpuset_path(*tid)));
            }
        }
        paths.sort_unstable();
        paths.dedup();
        let sets = paths.iter().filter_map(|path| self.cpuset_at(path));
        sets.reduce(|mut all, more| {
            all.extend(more.iter());
            all
        })
    }

    /// The cgroup of a thread in the cpuset controller's hierarchy.
    fn cpuset_path(&self, tid: u32) -> Option<String> {
        let file = self.root.proc_of(tid, "cpuset");
        let path = read_as(&file, "a path", |bytes| {
            Some(std::str::from_utf8(bytes).ok()?.trim_end().to_owned())
        });
        path.ok()
    }

    fn cpuset_at(&self, path: &str) -> Option<CpuSet> {
        let mount = self.cpusets.as_ref()?;
        Path::new(path).ancestors().find_map(|level| {
            let dir = self.dir(mount, level.to_str()?).ok()?;
            let mut files = EFFECTIVE.iter().map(|name| dir.join(name));
            files.find_map(|file| read_as(&file, "a CPU list like 0-3,8", parse).ok())
        })
    }
}

fn parse(bytes: &[u8]) -> Option<CpuSet> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
