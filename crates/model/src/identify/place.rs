//! Location of a VM in the cgroup hierarchy: its pod, its cgroups, and the levels with
//! bandwidth control.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::facts::{CgroupFact, Facts};
use crate::identify::cgroup::{self, Location};
use crate::vocab::{CgroupId, Scope};

/// The cgroups of one reading, by id.
pub type Cgroups<'a> = FxHashMap<CgroupId, &'a CgroupFact>;

/// The cgroup of a VM's vCPU threads, and the facts derived from its path.
#[derive(Debug, Clone)]
pub struct Place {
    /// Kernel id of the cgroup.
    pub cgroup: CgroupId,
    /// Path of the cgroup.
    pub path: Arc<str>,
    /// The parsed path.
    pub location: Location,
    /// The pod's cgroup, if the path names one and the reading contains it.
    pub root: Option<CgroupId>,
    /// The levels of interest, outermost first: id and scope.
    pub levels: Vec<(CgroupId, Scope)>,
    /// The overhead cgroups of the sandbox have not been searched yet.
    pub is_new: bool,
}

impl Place {
    /// Builds the place for the cgroup `id` of a VM with this sandbox id; `None` if the
    /// reading lacks the cgroup.
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

    /// Whether a cgroup is inside the VM's root.
    pub fn holds(&self, cgroup: &CgroupFact) -> bool {
        self.location.root.as_deref().is_some_and(|root| {
            // Usually this is the VM's own cgroup, which needs no comparison of paths.
            cgroup.id == self.cgroup || cgroup::is_within(&cgroup.path, root)
        })
    }
}

/// The cgroup `id` and its ancestors, as far as the reading contains them.
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
