//! CPU limits of a VM: each level, the binding level of each scope, and the CPU time that
//! all limits together allow.

use crate::account::allowed::allowed;
use crate::account::charge::Charges;
use crate::account::ledger::Ledger;
use crate::account::level::LevelReading;
use crate::account::quota::BindingMeter;
use crate::facts::ThrottlingFacts;
use crate::fleet::member::Member;
use crate::identify::place::Cgroups;
use crate::snapshot::Quota;
use crate::vocab::Scope;

/// Reads the levels that hold threads of the VM. Once the VM has ended its cgroups are
/// gone, and the last values are kept.
pub(super) fn read(
    member: &mut Member,
    cgroups: &Cgroups<'_>,
    charges: &Charges,
    throttling: Option<&ThrottlingFacts>,
) {
    if member.ended_ns.is_some() {
        let ledger = &mut member.ledger;
        let binding = ledger.limits.values_mut();
        for meter in binding.filter(|meter| meter.cgroup().is_some()) {
            meter.detach();
            ledger.changes += 1;
        }
        return;
    }
    let levels = levels(member, cgroups, charges, throttling);
    member.allowed = allowed(&member.levels, charges, cgroups);
    let ledger = &mut member.ledger;
    let binding = binding(&levels, ledger);
    for (scope, meter) in &mut ledger.limits {
        let now = binding.of(*scope).map(|at| &levels[at].fact.path);
        let Some(cgroup) = meter.cgroup().filter(|_| meter.path() != now) else {
            continue;
        };
        // Another level became binding while no agent was running, or no level is binding
        // any more.
        if meter.is_recalled() {
            let at = member.levels.at(cgroup);
            let level = |at| LevelReading::read(at, &member.levels, cgroups, charges, throttling);
            let its = meter.path().and_then(|path| ledger.quotas.get(path));
            meter.read_last(
                at.and_then(level).as_ref(),
                its.cloned().unwrap_or_default(),
            );
        }
        if now.is_none() {
            meter.detach();
            ledger.changes += 1;
        }
    }
    let unread = switch(&binding, &levels, ledger);
    member.limits.clear();
    for (at, level) in levels.iter().enumerate() {
        let meter = ledger.quotas.of(&level.fact.path);
        ledger.changes += u64::from(meter.read(level));
        let is_binding = binding.of(level.scope) == Some(at);
        member.limits.push(level.limit(is_binding));
    }
    for (scope, at) in binding.all() {
        let level = &levels[at];
        let Some(its) = ledger.quotas.get(&level.fact.path) else {
            continue;
        };
        let meter = ledger.limits.entry(scope).or_default();
        if unread.contains(&scope) {
            meter.switch_to(its);
        }
        ledger.changes += u64::from(meter.read(level, its));
    }
}

/// Adds the levels, and the binding level of each scope, with their limits as last read.
pub(super) fn show(member: &Member, levels: &mut Vec<Quota>, scopes: &mut Vec<Quota>) {
    let (ledger, limits) = (&member.ledger, &member.limits);
    levels.extend(limits.iter().filter_map(|limit| {
        let meter = ledger.quotas.get(&limit.cgroup)?;
        Some(meter.show(limit))
    }));
    let binding = limits.iter().filter(|limit| limit.is_binding);
    scopes.extend(binding.filter_map(|limit| {
        let meter = ledger.limits.get(&limit.scope)?;
        Some(meter.show(limit))
    }));
}

/// The binding level of each scope, as an index in the levels.
#[derive(Default)]
struct Binding([Option<usize>; Scope::ALL.len()]);

impl Binding {
    fn of(&self, scope: Scope) -> Option<usize> {
        self.0[scope as usize]
    }

    fn all(&self) -> impl Iterator<Item = (Scope, usize)> {
        let scopes = Scope::ALL.into_iter().zip(self.0);
        scopes.filter_map(|(scope, at)| Some((scope, at?)))
    }
}

/// The binding level of each scope: the level that was throttled in the most periods
/// since the last reading, then for the longest time. Without throttling the previously
/// binding level stays, or else the lowest limit is chosen.
fn binding(levels: &[LevelReading<'_>], ledger: &Ledger) -> Binding {
    let mut binding = Binding::default();
    let throttled = |at: usize| {
        let level = &levels[at];
        let known = ledger.limits.get(&level.scope);
        let bound_before = known.is_some_and(|meter| meter.path() == Some(&level.fact.path));
        let since = match ledger.quotas.get(&level.fact.path) {
            // The value of each level at the previous agent's last reading is unknown.
            _ if known.is_some_and(BindingMeter::is_recalled) => None,
            Some(meter) => meter.throttled_since(&level.bandwidth),
            // The first level of its scope counts fully.
            None if known.is_none() => Some((
                level.bandwidth.throttled_periods,
                level.bandwidth.throttled_ns,
            )),
            None => None,
        };
        (since.unwrap_or_default(), bound_before)
    };
    for at in (0..levels.len()).filter(|at| levels[*at].counts()) {
        let best = binding.0[levels[at].scope as usize].get_or_insert(at);
        if *best == at {
            continue;
        }
        let limit = |at: usize| levels[at].cores().unwrap_or(f64::INFINITY);
        let is_better = match throttled(at).cmp(&throttled(*best)) {
            std::cmp::Ordering::Equal => limit(at) < limit(*best),
            order => order.is_gt(),
        };
        if is_better {
            *best = at;
        }
    }
    binding
}

/// Switches the meters of the scopes whose binding level changed. Returns the scopes
/// whose new level has not been read yet: the caller switches these after reading it.
fn switch(binding: &Binding, levels: &[LevelReading<'_>], ledger: &mut Ledger) -> Vec<Scope> {
    let mut unread = Vec::new();
    for (scope, at) in binding.all() {
        let path = &levels[at].fact.path;
        let Some(meter) = ledger.limits.get_mut(&scope) else {
            continue;
        };
        match (meter.path(), ledger.quotas.get(path)) {
            (None, _) => {}
            (Some(before), _) if before == path && meter.cgroup().is_some() => {}
            (Some(_), Some(its)) if !meter.is_recalled() => meter.switch_to(its),
            (Some(_), _) => unread.push(scope),
        }
    }
    unread
}

/// Readings of the levels: those on the path of the vCPUs, and each other one that has or
/// had a limit.
fn levels<'a>(
    member: &Member,
    cgroups: &Cgroups<'a>,
    charges: &Charges,
    throttling: Option<&'a ThrottlingFacts>,
) -> Vec<LevelReading<'a>> {
    let path = member.place.as_ref();
    let path = path.map_or(&[][..], |place| place.levels.as_slice());
    let held = member.levels.all().iter().enumerate();
    let held = held.filter(|(_, level)| level.is_held);
    let matters = |level: &LevelReading<'_>| {
        path.iter().any(|(id, _)| *id == level.fact.id) || level.counts()
    };
    held.filter_map(|(at, _)| LevelReading::read(at, &member.levels, cgroups, charges, throttling))
        .filter(matters)
        .collect()
}
