//! Cgroups of the stream: their numbers in each pass, a name once per session.

use std::cell::LazyCell;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use virtlens_abi as abi;
use virtlens_model::facts::{Bandwidth, CgroupFact, CgroupMemory};
use virtlens_model::vocab::CgroupId;

use super::known;

/// Maximum number of cgroup names kept before those of former cgroups are dropped: all
/// levels of thousands of VMs.
const NAMES_KEPT: usize = 16_384;
/// Maximum depth of a path: more than `MAX_CGROUP_DEPTH` in `bpf/owner.bpf.h`.
const MAX_DEPTH: usize = 32;

/// The parent of each cgroup of a pass.
type Parents<F> = LazyCell<FxHashMap<u64, u64>, F>;

/// The names of cgroups, and the paths built from them.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: FxHashMap<u64, Box<str>>,
    paths: FxHashMap<u64, Arc<str>>,
}

impl Names {
    /// Stores a name.
    pub(super) fn learn(&mut self, record: &abi::record::CgroupNameRecord) {
        let mut parts = record.name.split(|byte| *byte == 0);
        let name = String::from_utf8_lossy(parts.next().unwrap_or_default());
        if self
            .names
            .get(&record.id)
            .is_none_or(|known| **known != *name)
        {
            self.names.insert(record.id, name.into());
            // A renamed cgroup changes every path below it.
            self.paths.clear();
        }
    }

    /// Returns the cgroups of one pass, each once, and the number of cgroups without a
    /// known name.
    pub(super) fn facts(
        &mut self,
        emitted: &mut Vec<abi::record::CgroupRecord>,
    ) -> (Vec<CgroupFact>, usize) {
        // A cgroup that was emitted twice (an entry of `emitted_cgroups` was evicted) is one
        // fact.
        let mut seen = FxHashSet::with_capacity_and_hasher(emitted.len(), FxBuildHasher);
        emitted.retain(|one| seen.insert(one.id));
        // Needed only for cgroups whose path is not known yet.
        let parents = Parents::new(|| emitted.iter().map(|one| (one.id, one.parent)).collect());
        let facts: Vec<CgroupFact> = emitted
            .iter()
            .filter_map(|record| self.fact(record, &parents))
            .collect();
        self.bound(&parents);
        let nameless = emitted.len() - facts.len();
        (facts, nameless)
    }

    fn fact(
        &mut self,
        record: &abi::record::CgroupRecord,
        parents: &Parents<impl FnOnce() -> FxHashMap<u64, u64>>,
    ) -> Option<CgroupFact> {
        let path = if let Some(path) = self.paths.get(&record.id) {
            Arc::clone(path)
        } else {
            let path: Arc<str> = self.path(record.id, parents)?.into();
            self.paths.insert(record.id, Arc::clone(&path));
            path
        };
        Some(CgroupFact {
            id: CgroupId(record.id),
            parent: (record.parent != 0).then_some(CgroupId(record.parent)),
            path,
            bandwidth: bandwidth(record),
            memory: memory(record),
        })
    }

    fn path(
        &self,
        id: u64,
        parents: &Parents<impl FnOnce() -> FxHashMap<u64, u64>>,
    ) -> Option<String> {
        let mut parts: Vec<&str> = Vec::new();
        let mut at = id;
        for _ in 0..MAX_DEPTH {
            match *parents.get(&at)? {
                0 => {
                    let mut path = String::new();
                    for part in parts.iter().rev() {
                        path.push('/');
                        path.push_str(part);
                    }
                    return Some(if path.is_empty() {
                        "/".to_owned()
                    } else {
                        path
                    });
                }
                parent => {
                    parts.push(self.names.get(&at)?);
                    at = parent;
                }
            }
        }
        None
    }

    /// Drops the names of cgroups that are not in this pass, once there are too many
    /// names. The source must then renew the session.
    fn bound(&mut self, emitted: &Parents<impl FnOnce() -> FxHashMap<u64, u64>>) {
        if self.names.len() > NAMES_KEPT {
            self.names.retain(|id, _| emitted.contains_key(id));
            self.paths.retain(|id, _| emitted.contains_key(id));
        }
    }
}

fn bandwidth(record: &abi::record::CgroupRecord) -> Option<Bandwidth> {
    (record.period_ns != 0).then(|| Bandwidth {
        quota_ns: known(record.quota_ns),
        period_ns: record.period_ns,
        burst_ns: known(record.burst_ns),
        periods: record.periods,
        throttled_periods: record.throttled_periods,
        throttled_ns: record.throttled_ns,
    })
}

fn memory(record: &abi::record::CgroupRecord) -> Option<CgroupMemory> {
    known(record.memory_bytes).map(|usage_bytes| CgroupMemory {
        usage_bytes,
        limit_bytes: known(record.memory_limit_bytes),
    })
}
