//! The pod's CPU limit, for VMs outside their pod's cgroup.

use std::sync::Arc;

use virtlens_host::Cgroups;
use virtlens_model::identify::cgroup::pod_of_stray;
use virtlens_model::snapshot::{UnappliedLimit, Vm};

/// The pod's limit, if the VM is outside the pod's cgroup. Costs three files for each such
/// VM; there are none if Kata is configured well.
pub(super) fn of(vm: &Vm, cgroups: Option<&Cgroups>) -> Option<UnappliedLimit> {
    let cgroup = vm.cgroup.as_deref().filter(|_| vm.running)?;
    limit_of(&pod_of_stray(cgroup)?, cgroups?)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "quotas are far below 2^53 ns (104 days)"
)]
fn limit_of(pod: &str, cgroups: &Cgroups) -> Option<UnappliedLimit> {
    // Pods that have no limit or are gone are skipped.
    let bandwidth = cgroups.bandwidth(pod).ok()??;
    let cores = bandwidth.quota_ns? as f64 / bandwidth.period_ns.max(1) as f64;
    Some(UnappliedLimit {
        cgroup: Arc::from(pod),
        cores,
    })
}
