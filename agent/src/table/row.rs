//! What one VM used, in numbers.

use std::time::Duration;

use virtlens_model::snapshot::{Quota, Role, Vm};

use super::Since;
use crate::paint::printable;

/// What one VM used: cores where there is an earlier reading, seconds where
/// there is none. `None` is not known.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) running: bool,
    pub(super) vcpus: u32,
    roles: [Option<f64>; Role::ALL.len()],
    pub(super) unattributed: Option<f64>,
    pub(super) wait: Option<f64>,
    pub(super) quota_cores: Option<f64>,
    pub(super) throttled_percent: Option<f64>,
}

impl Row {
    pub(super) fn new(vm: &Vm, since: Option<Since>) -> Self {
        let Some(Since { before, elapsed }) = since else {
            return Self::between(vm, None, Duration::from_secs(1));
        };
        let same = |earlier: &&Vm| earlier.vm == vm.vm && earlier.pid == vm.pid;
        match before.vms.iter().find(same) {
            Some(earlier) => Self::between(vm, Some(earlier), elapsed),
            None => Self {
                roles: [None; Role::ALL.len()],
                unattributed: None,
                wait: None,
                throttled_percent: None,
                ..Self::between(vm, None, elapsed)
            },
        }
    }

    /// What `vm` used since `earlier` (or ever), a second of `elapsed`.
    fn between(vm: &Vm, earlier: Option<&Vm>, elapsed: Duration) -> Self {
        let rate = |now: u64, before: u64| {
            Duration::from_nanos(now.saturating_sub(before)).div_duration_f64(elapsed)
        };
        let role_use = |vm: &Vm, role| vm.roles.iter().find(|of| of.role == role).copied();
        let quota = tightest(vm);
        Self {
            name: name_of(vm),
            running: vm.running,
            vcpus: vm.vcpu_count.online.unwrap_or(vm.vcpu_count.seen),
            roles: Role::ALL.map(|role| {
                let before = earlier
                    .and_then(|vm| role_use(vm, role))
                    .map_or(0, |of| of.cpu_ns);
                role_use(vm, role).map(|now| rate(now.cpu_ns, before))
            }),
            unattributed: Some(rate(
                vm.unattributed_cpu_ns,
                earlier.map_or(0, |vm| vm.unattributed_cpu_ns),
            )),
            wait: wait_ns(vm).map(|now| rate(now, earlier.and_then(wait_ns).unwrap_or(0))),
            quota_cores: quota.and_then(|quota| quota.cores),
            throttled_percent: quota.and_then(|quota| {
                let before = earlier
                    .and_then(|vm| vm.quota.iter().find(|before| before.cgroup == quota.cgroup));
                throttled_percent(quota, before)
            }),
        }
    }

    /// All that is known to be used.
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

fn name_of(vm: &Vm) -> String {
    let name = match (&vm.namespace, &vm.pod) {
        (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
        _ => vm.vm.to_string(),
    };
    printable(&name)
}

fn wait_ns(vm: &Vm) -> Option<u64> {
    vm.roles
        .iter()
        .filter_map(|role| role.wait_ns)
        .reduce(u64::saturating_add)
}

/// The level that limits the VM most.
fn tightest(vm: &Vm) -> Option<&Quota> {
    let limited = vm
        .quota
        .iter()
        .filter_map(|quota| Some((quota.cores?, quota)));
    limited
        .min_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, quota)| quota)
}

/// In which share of the periods that it ran in it was throttled; `None` if
/// it did not run.
#[expect(clippy::cast_precision_loss, reason = "a percentage with one decimal")]
fn throttled_percent(now: &Quota, before: Option<&Quota>) -> Option<f64> {
    let (periods, throttled) = before.map_or((0, 0), |it| (it.periods, it.throttled_periods));
    let periods = now.periods.saturating_sub(periods);
    let throttled = now.throttled_periods.saturating_sub(throttled);
    (periods > 0).then(|| 100.0 * throttled as f64 / periods as f64)
}
