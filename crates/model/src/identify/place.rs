//! Where a VM sits: its pod, the cgroups that belong to it, and the bandwidth
//! control on the way up.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::facts::{CgroupFact, Facts};
use crate::identify::cgroup::{self, Location};
use crate::vocab::{CgroupId, Scope};

/// The cgroups of one reading, by id.
pub type Cgroups<'a> = FxHashMap<CgroupId, &'a CgroupFact>;

/// Where a VM's vCPU threads sit, and what follows from it.
#[derive(Debug, Clone)]
pub struct Place {
    /// The cgroup itself.
    pub cgroup: CgroupId,
    /// Its path.
    pub path: Arc<str>,
    /// What the path tells.
    pub location: Location,
    /// The pod's cgroup, where the path tells one and it was seen.
    pub root: Option<CgroupId>,
    /// The levels that matter, outermost first: id and scope.
    pub levels: Vec<(CgroupId, Scope)>,
    /// Its sandbox's overhead cgroups were not looked for yet.
    pub is_new: bool,
}

impl Place {
    /// Judges the cgroup `id`, where a VM of this sandbox sits; `None` if it was not told.
    pub fn of(id: CgroupId, cgroups: &Cgroups<'_>, sandbox_id: Option<&str>) -> Option<Self> {
        let fact = cgroups.get(&id)?;
        let location = cgroup::locate(&fact.path, sandbox_id);
        let scopes = cgroup::levels(&fact.path, sandbox_id);
        let by_length: HashMap<usize, CgroupId> = ancestors(id, cgroups)
            .map(|fact| (fact.path.len(), fact.id))
            .collect();
        let root = location
            .root
            .as_deref()
            .and_then(|root| by_length.get(&root.len()).copied());
        Some(Self {
            cgroup: id,
            path: Arc::clone(&fact.path),
            location,
            root,
            levels: scopes
                .into_iter()
                .filter_map(|(length, scope)| Some((*by_length.get(&length)?, scope)))
                .collect(),
            is_new: true,
        })
    }

    /// Whether a cgroup lies inside the VM's root.
    pub fn holds(&self, cgroup: &CgroupFact) -> bool {
        self.location.root.as_deref().is_some_and(|root| {
            // It is mostly the very cgroup whose path tells the root.
            cgroup.id == self.cgroup || cgroup::is_within(&cgroup.path, root)
        })
    }
}

/// The cgroup `id` and those above it, as far as they were told.
pub fn ancestors<'a>(
    id: CgroupId,
    cgroups: &'a Cgroups<'_>,
) -> impl Iterator<Item = &'a CgroupFact> {
    std::iter::successors(cgroups.get(&id).copied(), |fact| {
        fact.parent.and_then(|parent| cgroups.get(&parent).copied())
    })
}

/// The cgroups of a reading, by id.
pub fn by_id(facts: &Facts) -> Cgroups<'_> {
    facts.cgroups.iter().map(|fact| (fact.id, fact)).collect()
}
