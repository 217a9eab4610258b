//! Resource usage of one VM, in numbers.

use virtlens_model::judge::interval::{Interval, LimitUse, is_same};
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::vocab::Role;

use crate::views::pick::name_of;

/// Usage of one VM: cores if there is an earlier reading, else seconds. `None` means
/// unknown.
pub(super) struct Row {
    pub(super) name: String,
    /// Its node; empty in a table of one node.
    pub(super) node: String,
    pub(super) running: bool,
    pub(super) vcpus: u32,
    roles: [Option<f64>; Role::ALL.len()],
    pub(super) unattributed: Option<f64>,
    pub(super) wait: Option<f64>,
    pub(super) quota_cores: Option<f64>,
    pub(super) throttled_percent: Option<f64>,
}

impl Row {
    /// Usage since `before`; all values of a new VM are unknown.
    pub(super) fn since(vm: &Vm, before: &Snapshot, elapsed_ns: u64) -> Self {
        match before.vms.iter().find(|then| is_same(then, vm)) {
            Some(then) => Self::of(&Interval::between(then, vm, elapsed_ns)),
            None => Self {
                roles: [None; Role::ALL.len()],
                unattributed: None,
                wait: None,
                throttled_percent: None,
                ..Self::of(&Interval::since_began(vm))
            },
        }
    }

    pub(super) fn of(over: &Interval) -> Self {
        let vm = over.now;
        let limit = over.binding();
        Self {
            name: name_of(vm),
            node: String::new(),
            running: vm.running,
            vcpus: vm.vcpu_count.usable(),
            roles: Role::ALL.map(|role| over.role(role).map(|role| over.cores(role.cpu_ns))),
            unattributed: Some(over.cores(over.unattributed_cpu_ns())),
            wait: over.wait_ns().map(|ns| over.cores(ns)),
            quota_cores: vm.limit_cores,
            throttled_percent: limit.and_then(|limit| throttled_percent(&limit)),
        }
    }

    /// Sum of all known usage.
    pub(super) fn total(&self) -> f64 {
        self.roles
            .iter()
            .chain([&self.unattributed])
            .flatten()
            .sum()
    }

    pub(super) fn role(&self, role: Role) -> Option<f64> {
        Role::ALL
            .iter()
            .zip(self.roles)
            .find(|(of, _)| **of == role)
            .and_then(|(_, used)| used)
    }
}

/// Throttled periods as a percentage of the periods with runnable threads; `None` if
/// there were none.
#[expect(clippy::cast_precision_loss, reason = "a percentage with one decimal")]
fn throttled_percent(limit: &LimitUse) -> Option<f64> {
    let (periods, throttled) = (limit.periods as f64, limit.throttled_periods as f64);
    (limit.periods > 0).then(|| 100.0 * throttled / periods)
}
