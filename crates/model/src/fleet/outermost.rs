//! The outermost level of a VM's path: the pressure of the whole pod or machine.

use rustc_hash::FxHashMap;

use crate::facts::LevelFact;
use crate::fleet::member::Member;
use crate::identify::place::Cgroups;
use crate::vocab::CgroupId;

/// Reads the outermost level. Once the VM has ended its cgroups are gone, and the last
/// values are kept.
pub(super) fn read(
    member: &mut Member,
    levels: Option<&FxHashMap<CgroupId, LevelFact>>,
    cgroups: &Cgroups<'_>,
) {
    let meter = &mut member.ledger.outermost;
    let has_changed = if member.ended_ns.is_some() {
        meter.detach()
    } else {
        let place = member.place.as_ref();
        let outermost = place.and_then(|place| cgroups.get(&place.levels.first()?.0));
        outermost
            .zip(levels)
            .is_some_and(|(cgroup, levels)| meter.read(cgroup.id, &cgroup.path, levels))
    };
    member.ledger.changes += u64::from(has_changed);
}
