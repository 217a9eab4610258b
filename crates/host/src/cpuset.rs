//! The cpuset controller's own files.

use std::path::Path;

use virtlens_model::cpuset::CpuSet;

use crate::cgroupfs::Cgroups;
use crate::root::read_as;

/// On v2, and on v1 (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst).
const EFFECTIVE: [&str; 2] = ["cpuset.cpus.effective", "cpuset.effective_cpus"];

impl Cgroups {
    /// The CPUs that the cgroup of a process allows to its threads; of the
    /// nearest above it that has the cpuset controller. `None` where that is
    /// not told, or the process is gone.
    pub fn cpuset(&self, pid: u32) -> Option<CpuSet> {
        let mount = self.cpusets.as_ref()?;
        let file = self.root.proc_of(pid, "cpuset");
        let path = read_as(&file, "a path", |bytes| {
            Some(std::str::from_utf8(bytes).ok()?.trim_end().to_owned())
        });
        Path::new(&path.ok()?).ancestors().find_map(|level| {
            let dir = self.dir(mount, level.to_str()?).ok()?;
            let mut files = EFFECTIVE.iter().map(|name| dir.join(name));
            files.find_map(|file| read_as(&file, "a CPU list like 0-3,8", parse).ok())
        })
    }
}

fn parse(bytes: &[u8]) -> Option<CpuSet> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
