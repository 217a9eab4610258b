//! The cgroup hierarchy of the cpu controller: its mount point, paths and ids.
//!
//! A *path* here is absolute from the root of the hierarchy ("/kubepods/…"), whatever
//! cgroup namespace this process is in. The kernel names cgroups relative to the reader's
//! namespace (`cgroup_path_ns`), with "/.." for each level above it.
//! [`Cgroups::process_path`] converts these names to absolute paths if possible:
//!
//! | reader | mount it reads | paths |
//! |---|---|---|
//! | host's namespace | whole | as the kernel names them |
//! | own namespace | the host's ("/../.." in mountinfo) | made absolute |
//! | own namespace | its own | others' are [`Error::OutsideMount`] |

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use virtlens_model::vocab::CgroupId;

use crate::error::{Error, Losses};
use crate::mounts::{CgroupMount, parse_mountinfo};
use crate::root::{HostRoot, SMALL_FILE, parse_number, read, read_as, read_start};

/// Larger than the table of a host with ten thousand mounts.
const MOUNT_TABLE: usize = 16 << 20;

/// Limit on the directories that one walk visits; the memory controller allows 65 535
/// cgroups (`MEM_CGROUP_ID_MAX`).
const MAX_CGROUPS: usize = 65_536;

/// Limit on the thread list of one cgroup: 100 000 threads at 8 bytes.
const THREAD_LIST: usize = 800 << 10;

/// The cgroup interface of the cpu controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A separate hierarchy, or one shared with cpuacct.
    V1,
    /// The unified hierarchy.
    V2,
}

/// The hierarchy of the cpu controller.
#[derive(Debug, Clone)]
pub struct Cgroups {
    pub(crate) root: HostRoot,
    pub(crate) version: CgroupVersion,
    /// Mount point of the cpu controller's hierarchy.
    pub(crate) cpu: PathBuf,
    /// Mount point of the hierarchy that counts CPU time: v1's cpuacct, else `cpu`.
    pub(crate) accounting: Option<PathBuf>,
    /// Mount point of the cpuset controller's hierarchy.
    pub(crate) cpusets: Option<PathBuf>,
    /// The path of the cgroup at the mount point, without a trailing slash: ""
    /// unless only a part of the hierarchy is mounted.
    shown: String,
    /// Depth of this process's cgroup namespace below `shown`, levels.
    namespace_depth: usize,
    /// The path of the namespace, if it was found.
    namespace: Option<String>,
}

/// The threads of a cgroup and its descendants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Thread ids, unordered and unique.
    pub tids: Vec<u32>,
    /// Count of omitted threads.
    pub losses: Losses,
}

impl Cgroups {
    /// Finds the cpu controller. A v1 hierarchy that has it wins over the unified one,
    /// which is also mounted, but without the controller, on hybrid hosts.
    ///
    /// # Errors
    /// [`Error::NotMounted`] if there is neither; otherwise if /proc cannot be read.
    pub fn find(root: &HostRoot) -> Result<Self, Error> {
        let mountinfo = root.proc("self/mountinfo");
        let mut mounts = parse_mountinfo(&read(&mountinfo, MOUNT_TABLE)?);
        mounts.sort_by_key(CgroupMount::narrowness);
        let v1 = |controller: &str| {
            let has = |mount: &&CgroupMount| mount.controllers.iter().any(|c| c == controller);
            mounts.iter().find(has)
        };
        let v2 = || mounts.iter().find(|mount| mount.unified);
        let v1_cpu = v1("cpu").map(|mount| (CgroupVersion::V1, mount));
        let found = v1_cpu.or_else(|| v2().map(|mount| (CgroupVersion::V2, mount)));
        let controller = "cpu";
        let (version, mount) = found.ok_or(Error::NotMounted {
            mountinfo,
            controller,
        })?;
        let cpu = root.mount_point(&mount.point);
        let accounting = match version {
            CgroupVersion::V1 => v1("cpuacct").map(|mount| root.mount_point(&mount.point)),
            CgroupVersion::V2 => Some(cpu.clone()),
        };
        let cpusets = v1("cpuset").or_else(v2);
        let cpusets = cpusets.map(|mount| root.mount_point(&mount.point));
        let namespace_depth = mount.levels_above();
        let shown = if namespace_depth == 0 {
            mount.root.trim_end_matches('/')
        } else {
            ""
        };
        let mut cgroups = Self {
            root: root.clone(),
            version,
            cpu,
            accounting,
            cpusets,
            shown: shown.to_owned(),
            namespace_depth,
            namespace: None,
        };
        if namespace_depth > 0 {
            cgroups.namespace = cgroups.find_namespace();
        }
        Ok(cgroups)
    }

    /// The cgroup interface of the cpu controller.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// The id of a cgroup: the inode number of its directory (`kn->id` on 64-bit kernels
    /// since v5.5). `None` if the cgroup does not exist.
    pub fn id_of(&self, path: &str) -> Option<CgroupId> {
        let metadata = fs::metadata(self.dir(&self.cpu, path).ok()?).ok()?;
        metadata.is_dir().then(|| CgroupId(metadata.ino()))
    }

    /// Returns the path of a cgroup by its id. It walks the hierarchy at the cost of a
    /// directory read for each cgroup, so it is only for rare unknown ids.
    pub fn path_of(&self, id: CgroupId) -> Option<String> {
        let top = if self.shown.is_empty() {
            "/"
        } else {
            &self.shown
        };
        if self.id_of(top) == Some(id) {
            return Some(top.to_owned());
        }
        let mut found = None;
        self.walk(top, &mut Losses::default(), |path, found_id| {
            if found_id != id {
                return ControlFlow::Continue(());
            }
            found = Some(path.to_owned());
            ControlFlow::Break(())
        });
        found
    }

    /// Returns the cgroup of a process or thread (any tid works).
    ///
    /// A v2 cgroup that was removed under a zombie keeps its path, but has no id.
    ///
    /// # Errors
    /// If the process is gone, or its cgroup is outside the mounted hierarchy.
    pub fn process_path(&self, pid: u32) -> Result<String, Error> {
        self.path_in(&self.root.proc_of(pid, "cgroup"))
    }

    /// Returns the absolute path of the cgroup in one of /proc's `cgroup` files.
    pub(crate) fn path_in(&self, file: &Path) -> Result<String, Error> {
        self.absolute(&self.named_in(file)?)
    }

    /// Returns the cgroup path as the kernel names it, relative to this process's
    /// namespace.
    fn named_in(&self, file: &Path) -> Result<String, Error> {
        read_as(file, "a line of the cpu controller", |bytes| {
            parse_process_cgroup(bytes, self.version)
        })
    }

    /// Returns the threads of all processes in a cgroup and its descendants, by their ids
    /// in this process's pid namespace. Threads invisible in that namespace and threads
    /// beyond `limit` are counted.
    ///
    /// # Errors
    /// If the cgroup is gone.
    pub fn members(&self, path: &str, limit: usize) -> Result<Members, Error> {
        let mut members = read_threads(&self.dir(&self.cpu, path)?.join(self.thread_list()))?;
        let mut walked = Losses::default();
        self.walk(path, &mut walked, |below, _| {
            let dir = self.dir(&self.cpu, below);
            let list = dir.and_then(|dir| read_threads(&dir.join(self.thread_list())));
            if let Some(more) = members.losses.keep(list) {
                members.tids.extend(more.tids);
                members.losses.add(more.losses);
            }
            if members.tids.len() > limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        members.losses.add(walked);
        // A thread that moved between two reads is in both lists.
        members.tids.sort_unstable();
        members.tids.dedup();
        members.losses.over_limit += members.tids.len().saturating_sub(limit) as u64;
        members.tids.truncate(limit);
        Ok(members)
    }

    fn thread_list(&self) -> &'static str {
        match self.version {
            CgroupVersion::V1 => "tasks",
            // `cgroup.procs` cannot be read in a threaded cgroup.
            CgroupVersion::V2 => "cgroup.threads",
        }
    }

    /// Directory of a cgroup below a mount point.
    pub(crate) fn dir(&self, mount: &Path, path: &str) -> Result<PathBuf, Error> {
        let below = path
            .strip_prefix(&self.shown)
            .filter(|below| below.is_empty() || below.starts_with('/'))
            .map(|below| Path::new(below.trim_start_matches('/')))
            .filter(|below| {
                below
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)))
            });
        below
            .map(|below| mount.join(below))
            .ok_or_else(|| Error::OutsideMount {
                mount: mount.to_owned(),
                cgroup: path.to_owned(),
            })
    }

    /// Converts a cgroup path relative to this process's cgroup namespace to an absolute
    /// path.
    fn absolute(&self, named: &str) -> Result<String, Error> {
        let mut rest = named;
        let mut up = 0;
        while let Some(below) = rest
            .strip_prefix("/..")
            .filter(|b| b.is_empty() || b.starts_with('/'))
        {
            rest = below;
            up += 1;
        }
        let outside = || Error::OutsideMount {
            mount: self.cpu.clone(),
            cgroup: named.to_owned(),
        };
        let kept = self.namespace_depth.checked_sub(up).ok_or_else(outside)?;
        let namespace = match kept {
            0 => "",
            _ => self.namespace.as_deref().ok_or_else(outside)?,
        };
        let above: String = namespace
            .split_inclusive('/')
            .take(if kept == 0 { 0 } else { kept + 1 })
            .collect();
        let path = format!(
            "{}{}",
            above.trim_end_matches('/'),
            rest.trim_end_matches('/')
        );
        Ok(if path.is_empty() {
            "/".to_owned()
        } else {
            path
        })
    }

    /// Finds the path of this process's cgroup namespace. The kernel shows only its
    /// depth, so this searches the hierarchy for the process's own cgroup.
    fn find_namespace(&self) -> Option<String> {
        let own = fs::read_link(self.root.proc("self")).ok()?;
        let own: u32 = own.to_str()?.parse().ok()?;
        let named = self.named_in(&self.root.proc("self/cgroup")).ok()?;
        let mut found = None;
        self.walk("/", &mut Losses::default(), |path, _| {
            let list = self
                .dir(&self.cpu, path)
                .map(|dir| dir.join("cgroup.procs"));
            let members = list.and_then(|list| read_threads(&list));
            if !members.is_ok_and(|members| members.tids.contains(&own)) {
                return ControlFlow::Continue(());
            }
            found = path
                .strip_suffix(named.trim_end_matches('/'))
                .map(str::to_owned);
            ControlFlow::Break(())
        });
        found.filter(|path| path.matches('/').count() == self.namespace_depth)
    }

    /// Visits every descendant of the cgroup `path`, with its id.
    fn walk(
        &self,
        path: &str,
        losses: &mut Losses,
        mut visit: impl FnMut(&str, CgroupId) -> ControlFlow<()>,
    ) {
        let mut open = vec![path.trim_end_matches('/').to_owned()];
        let mut visited = 0;
        while let Some(above) = open.pop() {
            let Some(dir) = losses.keep(self.dir(&self.cpu, &above)) else {
                continue;
            };
            let failed = |source| Error::io(&dir, source);
            let entries = losses.keep(fs::read_dir(&dir).map_err(failed));
            for entry in entries.into_iter().flatten() {
                let Some(entry) = losses.keep(entry.map_err(failed)) else {
                    break;
                };
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                    losses.unparsed += 1;
                    continue;
                };
                if visited == MAX_CGROUPS {
                    losses.over_limit += 1;
                    return;
                }
                visited += 1;
                let below = format!("{above}/{name}");
                if visit(&below, CgroupId(entry.ino())).is_break() {
                    return;
                }
                open.push(below);
            }
        }
    }
}

/// Reads `tasks`, `cgroup.threads` or `cgroup.procs` of one cgroup.
fn read_threads(list: &Path) -> Result<Members, Error> {
    let (mut bytes, cut) = read_start(list, THREAD_LIST)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n');
    let whole = whole.map_or(0, |last| last + 1);
    let is_half = whole < bytes.len();
    // The last line may be truncated.
    bytes.truncate(whole);
    let mut members = parse_threads(&bytes);
    members.losses.over_limit += u64::from(cut);
    members.losses.unparsed += u64::from(is_half && !cut);
    Ok(members)
}

/// Parses a list of threads or processes, one per line. Entries outside this pid
/// namespace and entries that are not numbers are counted.
pub fn parse_threads(bytes: &[u8]) -> Members {
    let mut members = Members::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        match parse_number(line).and_then(|tid| u32::try_from(tid).ok()) {
            // The kernel shows 0 for a thread outside this pid namespace.
            Some(0) => members.losses.denied += 1,
            Some(tid) => members.tids.push(tid),
            None if line.is_empty() => {}
            None => members.losses.unparsed += 1,
        }
    }
    members
}

/// Determines the kernel's cgroup interface of the cpu controller, even if no cgroup file
/// system is mounted here: every process's cgroup file lists a v1 hierarchy that has it.
pub fn cgroup_version(root: &HostRoot) -> CgroupVersion {
    let own = read(&root.proc("self/cgroup"), SMALL_FILE).unwrap_or_default();
    let v1 = parse_process_cgroup(&own, CgroupVersion::V1);
    if v1.is_some() {
        CgroupVersion::V1
    } else {
        CgroupVersion::V2
    }
}

/// Parses the cpu controller's cgroup from a `/proc/PID/cgroup` file, as the kernel names
/// it: `ID:CONTROLLERS:PATH` with "cpu" among the controllers on v1, `0::PATH` on v2. The
/// path may contain colons, as Kata's do. The suffix " (deleted)" of a removed v2 cgroup
/// is stripped.
pub fn parse_process_cgroup(bytes: &[u8], version: CgroupVersion) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.lines().find_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        let found = match version {
            CgroupVersion::V1 => controllers.split(',').any(|name| name == "cpu"),
            CgroupVersion::V2 => controllers.is_empty(),
        };
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        (found && path.starts_with('/')).then(|| path.to_owned())
    })
}
