//! What Kubernetes tells of a pod: its name, and what was asked for.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;

/// The pods of a node by uid, as in cgroup paths.
pub type Pods = FxHashMap<Arc<str>, Pod>;

/// One pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name; another pod can have it later, with another uid.
    pub name: Arc<str>,
    /// What was asked for it.
    pub spec: Arc<PodSpec>,
}

/// What the pod's maker asked for, as far as it matters to its VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PodSpec {
    /// The `VirtualMachineInstance` that `KubeVirt` made the pod for.
    pub vmi: Option<Arc<str>>,
    /// Its runtime class.
    pub runtime_class: Option<Arc<str>>,
    /// The limit of its containers together, without the overhead, in thousandths of
    /// a core; `None` where one of them has none.
    pub cpu_limit_millis: Option<u64>,
    /// What the runtime class adds to the limit for the VMM, in thousandths of a core.
    pub cpu_overhead_millis: Option<u64>,
    /// vCPUs that Kata shall boot, whatever the limit (it can be a fraction since
    /// Kata 3): `io.katacontainers.config.hypervisor.default_vcpus`.
    pub default_vcpus: Option<f64>,
    /// Free page reporting was turned off for this VM alone:
    /// `kubevirt.io/free-page-reporting-disabled` (`KubeVirt`'s api/core/v1/types.go).
    pub reporting_disabled: bool,
}

impl PodSpec {
    /// The limit that kubelet sets, with the overhead (`ResourceConfigForPod`,
    /// `pkg/kubelet/cm/helpers_linux.go`), in thousandths of a core.
    pub fn quota_millis(&self) -> Option<u64> {
        let overhead = self.cpu_overhead_millis.unwrap_or(0);
        self.cpu_limit_millis
            .map(|limit| limit.saturating_add(overhead))
    }
}

#[cfg(test)]
mod tests {
    use super::PodSpec;

    #[test]
    fn a_limit_of_any_size_has_room_for_the_overhead() {
        let quota = |cpu_limit_millis, cpu_overhead_millis| {
            let spec = PodSpec {
                cpu_limit_millis,
                cpu_overhead_millis,
                ..PodSpec::default()
            };
            spec.quota_millis()
        };
        assert_eq!(quota(Some(1000), Some(250)), Some(1250));
        assert_eq!(quota(Some(u64::MAX), Some(250)), Some(u64::MAX));
        assert_eq!(quota(None, Some(250)), None);
    }
}
