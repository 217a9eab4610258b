//! The cgroups that can limit a VM's CPU time: each one that holds a thread of the VM,
//! and the ancestors that matter.
//!
//! libvirt gives each vCPU, the emulator and each iothread a cgroup with its own quota
//! (`virDomainCgroupSetupVcpuProcessCgroup` and related functions,
//! `src/hypervisor/domain_cgroup.c`, 11.3); Kata splits a sandbox over two cgroups;
//! `KubeVirt` keeps all threads in one. The cgroup of each thread is therefore read,
//! never assumed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::identify::cgroup;
use crate::identify::place::{Cgroups, ancestors};
use crate::vocab::{CgroupId, Scope};

/// Maximum number of remembered levels without a thread. They are needed because ended
/// threads are still charged to them: an owner retires under at most 128 keys
/// (`NAMES_PER_OWNER`, `bpf/retire.bpf.h`).
const EMPTY_LEVELS_MAX: usize = 128;

/// One cgroup that can limit threads of a VM.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Level {
    /// Kernel id of the cgroup.
    pub id: CgroupId,
    /// Meaning of the cgroup for the VM.
    pub scope: Scope,
    /// Path of the cgroup.
    pub path: Arc<str>,
    /// Whether a living thread is in the cgroup or below.
    pub is_held: bool,
    /// The levels to which its threads are charged, as indexes in the list: this level
    /// and its ancestors.
    #[serde(skip)]
    pub charged: Vec<usize>,
    /// Index of the nearest level above.
    #[serde(skip)]
    pub parent: Option<usize>,
}

/// A cgroup that holds threads, and its nearest level (itself or an ancestor).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    cgroup: CgroupId,
    level: Option<CgroupId>,
}

/// The cgroup that holds the whole VM, as far as it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Whole<'a> {
    /// Path of the pod's or machine's cgroup.
    pub root: Option<&'a str>,
    /// Id of the sandbox.
    pub sandbox_id: Option<&'a str>,
}

/// The levels of one VM.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(into = "Vec<Level>", from = "Vec<Level>")]
pub struct Levels {
    /// Sorted by scope, then by path: an outer level precedes its inner levels.
    all: Vec<Level>,
    /// Indexes in `all`, by id.
    by_id: Vec<(CgroupId, usize)>,
    /// Indexes in `all`, the longest path first.
    inner_first: Vec<usize>,
    /// The cgroups that hold threads, by id.
    held: Vec<Held>,
}

impl Levels {
    /// All levels: an outer level precedes the inner levels of its scope.
    pub fn all(&self) -> &[Level] {
        &self.all
    }

    /// Whether exactly these cgroups, sorted by id, hold threads.
    pub fn are_held_by(&self, cgroups: impl Iterator<Item = CgroupId>) -> bool {
        self.held.iter().map(|held| held.cgroup).eq(cgroups)
    }

    /// Records that exactly the cgroups `held`, sorted by id, hold threads. Returns true
    /// if there is a new level.
    pub fn hold(&mut self, held: &[CgroupId], whole: Whole<'_>, cgroups: &Cgroups<'_>) -> bool {
        self.all.iter_mut().for_each(|level| level.is_held = false);
        let mut is_new = false;
        for cgroup in held {
            for (id, scope, path) in found(*cgroup, whole, cgroups) {
                if let Some(known) = self.all.iter_mut().find(|level| level.id == id) {
                    known.is_held = true;
                } else {
                    is_new = true;
                    self.all.push(Level {
                        id,
                        scope,
                        path,
                        is_held: true,
                        charged: Vec::new(),
                        parent: None,
                    });
                }
            }
        }
        self.forget_empty();
        self.arrange();
        let level = |cgroup| self.search(cgroup, cgroups);
        let held = held.iter().map(|cgroup| Held {
            cgroup: *cgroup,
            level: level(*cgroup),
        });
        self.held = held.collect();
        is_new
    }

    /// The nearest level of `cgroup` (itself or an ancestor); `None` if there is none.
    pub fn of(&self, cgroup: CgroupId, cgroups: &Cgroups<'_>) -> Option<CgroupId> {
        match self.held.binary_search_by_key(&cgroup, |held| held.cgroup) {
            Ok(at) => self.held[at].level,
            Err(_) => self.search(cgroup, cgroups),
        }
    }

    /// Index of a level in [`Levels::all`].
    pub fn at(&self, id: CgroupId) -> Option<usize> {
        let at = self.by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.by_id[at].1)
    }

    /// Indexes of the levels, an inner level before its ancestors.
    pub fn inner_first(&self) -> impl Iterator<Item = usize> + '_ {
        self.inner_first.iter().copied()
    }

    /// Whether a living thread is in the level at this path or below.
    pub fn is_held(&self, path: &str) -> bool {
        let mut all = self.all.iter();
        all.any(|level| level.is_held && &*level.path == path)
    }

    /// Whether a level has this path.
    pub fn has(&self, path: &str) -> bool {
        self.all.iter().any(|level| &*level.path == path)
    }

    fn search(&self, cgroup: CgroupId, cgroups: &Cgroups<'_>) -> Option<CgroupId> {
        let is_level = |id: &CgroupId| self.at(*id).is_some();
        let above = || ancestors(cgroup, cgroups).map(|fact| fact.id);
        Some(cgroup)
            .filter(is_level)
            .or_else(|| above().find(is_level))
    }

    /// Drops levels without a thread beyond [`EMPTY_LEVELS_MAX`], oldest first: cgroup
    /// ids increase.
    fn forget_empty(&mut self) {
        let empty = self.all.iter().filter(|level| !level.is_held);
        let mut ids: Vec<CgroupId> = empty.map(|level| level.id).collect();
        let Some(excess) = ids.len().checked_sub(EMPTY_LEVELS_MAX) else {
            return;
        };
        ids.sort_unstable();
        ids.truncate(excess);
        self.all
            .retain(|level| ids.binary_search(&level.id).is_err());
    }

    /// Sorts the levels and computes to which levels each is charged. Two cgroups with
    /// the same path are one level that was removed and recreated: each is charged to
    /// both.
    fn arrange(&mut self) {
        let key = |level: &Level| (level.scope, Arc::clone(&level.path), level.id);
        self.all.sort_by_cached_key(key);
        let all = self.all.iter();
        let paths: Vec<(bool, Arc<str>)> = all
            .map(|level| (level.is_held, Arc::clone(&level.path)))
            .collect();
        for level in &mut self.all {
            let above = paths.iter().enumerate();
            let above = above.filter(|(_, (_, path))| cgroup::is_within(&level.path, path));
            level.charged = above.map(|(at, _)| at).collect();
            let above = level.charged.iter().copied();
            let above = above.filter(|at| paths[*at].1.len() < level.path.len());
            level.parent = above.max_by_key(|at| (paths[*at].0, paths[*at].1.len()));
        }
        self.inner_first = (0..self.all.len()).collect();
        self.inner_first
            .sort_by_key(|at| std::cmp::Reverse(self.all[*at].path.len()));
        let ids = self.all.iter().map(|level| level.id);
        self.by_id = ids.zip(0..).collect();
        self.by_id.sort_unstable();
    }
}

/// The levels for a cgroup that holds a thread: id, scope and path.
fn found(
    cgroup: CgroupId,
    whole: Whole<'_>,
    cgroups: &Cgroups<'_>,
) -> Vec<(CgroupId, Scope, Arc<str>)> {
    let Some(fact) = cgroups.get(&cgroup) else {
        return Vec::new();
    };
    let root = whole.root;
    let is_outside = root.is_some_and(|root| !cgroup::is_within(&fact.path, root));
    let levels = cgroup::levels(&fact.path, whole.sandbox_id).into_iter();
    let levels = levels.filter_map(|(length, scope)| {
        let fact = ancestors(cgroup, cgroups).find(|fact| fact.path.len() == length)?;
        let scope = if is_outside { Scope::Overhead } else { scope };
        Some((fact.id, scope, Arc::clone(&fact.path)))
    });
    levels.collect()
}

impl From<Levels> for Vec<Level> {
    fn from(levels: Levels) -> Self {
        levels.all
    }
}

impl From<Vec<Level>> for Levels {
    fn from(all: Vec<Level>) -> Self {
        let mut levels = Self {
            all,
            ..Self::default()
        };
        levels.arrange();
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::{EMPTY_LEVELS_MAX, Levels, Whole};
    use crate::facts::CgroupFact;
    use crate::identify::place::Cgroups;
    use crate::vocab::{CgroupId, Scope};

    fn fact(id: u64, parent: u64, path: &str) -> CgroupFact {
        CgroupFact {
            id: CgroupId(id),
            parent: (parent > 0).then_some(CgroupId(parent)),
            path: path.into(),
            bandwidth: None,
            memory: None,
        }
    }

    const SCOPE: &str = r"/machine.slice/machine-qemu\x2d1\x2ddb.scope";

    fn libvirt() -> Vec<CgroupFact> {
        let below = |id, parent, rest: &str| fact(id, parent, &format!("{SCOPE}{rest}"));
        vec![
            fact(1, 0, "/"),
            fact(2, 1, "/machine.slice"),
            below(3, 2, ""),
            below(4, 3, "/libvirt"),
            below(5, 4, "/libvirt/vcpu0"),
            below(6, 4, "/libvirt/vcpu1"),
            below(7, 4, "/libvirt/emulator"),
            below(8, 4, "/libvirt/iothread1"),
            fact(9, 1, "/system.slice"),
            fact(10, 9, "/system.slice/libvirtd.service"),
        ]
    }

    fn held(levels: &mut Levels, facts: &[CgroupFact], ids: &[u64]) -> bool {
        let cgroups: Cgroups<'_> = facts.iter().map(|fact| (fact.id, fact)).collect();
        let ids: Vec<CgroupId> = ids.iter().map(|id| CgroupId(*id)).collect();
        let whole = Whole {
            root: Some(SCOPE),
            ..Whole::default()
        };
        let is_new = levels.hold(&ids, whole, &cgroups);
        assert!(levels.are_held_by(ids.iter().copied()));
        is_new
    }

    #[test]
    fn every_cgroup_of_libvirt_that_holds_a_thread_is_a_level() {
        let (mut levels, facts) = (Levels::default(), libvirt());
        assert!(held(&mut levels, &facts, &[5, 6, 7, 8, 10]));
        let shown = levels.all().iter();
        let shown: Vec<_> = shown.map(|level| (level.id.0, level.scope)).collect();
        assert_eq!(
            shown,
            [
                (10, Scope::Overhead),
                (3, Scope::Machine),
                (4, Scope::Machine),
                (5, Scope::Vcpu),
                (6, Scope::Vcpu),
                (7, Scope::Emulator),
                (8, Scope::Iothread),
            ]
        );
        let at = levels.at(CgroupId(6)).expect("it is a level");
        let charged = levels.all()[at].charged.iter();
        let charged: Vec<u64> = charged.map(|at| levels.all()[*at].id.0).collect();
        assert_eq!(charged, [3, 4, 6], "itself and those above it");
        assert!(!held(&mut levels, &facts, &[5, 7]), "none of them is new");
    }

    #[test]
    fn recreated_level_is_charged_with_threads_of_both() {
        let (mut levels, mut facts) = (Levels::default(), libvirt());
        held(&mut levels, &facts, &[5, 6]);
        facts[5].id = CgroupId(66);
        assert!(held(&mut levels, &facts, &[5, 66]));
        let place = |id| levels.at(CgroupId(id)).expect("it is a level");
        let (gone, made) = (place(6), place(66));
        assert!(!levels.all()[gone].is_held && levels.all()[made].is_held);
        assert!(levels.all()[gone].charged.contains(&made));
        assert!(levels.all()[made].charged.contains(&gone));
    }

    #[test]
    fn levels_without_a_thread_are_bounded() {
        let (mut levels, mut facts) = (Levels::default(), libvirt());
        for id in 100..400 {
            facts[5].id = CgroupId(id);
            held(&mut levels, &facts, &[5, id]);
        }
        let empty = levels.all().iter().filter(|level| !level.is_held).count();
        assert_eq!(empty, EMPTY_LEVELS_MAX);
        assert!(levels.at(CgroupId(399)).is_some() && levels.at(CgroupId(101)).is_none());
    }

    #[test]
    fn thread_is_charged_to_the_first_level_above_it() {
        let (mut levels, facts) = (Levels::default(), libvirt());
        held(&mut levels, &facts, &[1, 5]);
        let cgroups: Cgroups<'_> = facts.iter().map(|fact| (fact.id, fact)).collect();
        let of = |id| levels.of(CgroupId(id), &cgroups).map(|id| id.0);
        assert_eq!(
            [of(5), of(6), of(1), of(99)],
            [Some(5), Some(4), None, None]
        );
    }
}
