//! Pod metadata from Kubernetes: name and requested resources.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// The pods of a node by uid, as in cgroup paths.
pub type Pods = FxHashMap<Arc<str>, Pod>;

/// One pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Name of the pod; a later pod with another uid can reuse it.
    pub name: Arc<str>,
    /// The part of the pod's specification that concerns its VM.
    pub spec: Arc<PodSpec>,
}

/// The part of a pod's specification that concerns its VM.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
pub struct PodSpec {
    /// The `VirtualMachineInstance` that `KubeVirt` made the pod for.
    pub vmi: Option<Arc<str>>,
    /// Runtime class of the pod.
    pub runtime_class: Option<Arc<str>>,
    /// Sum of the containers' CPU limits without the overhead, millicores; `None` if a
    /// container has no limit.
    pub cpu_limit_millis: Option<u64>,
    /// CPU overhead that the runtime class adds to the limit for the VMM, millicores.
    pub cpu_overhead_millis: Option<u64>,
    /// vCPUs that Kata boots regardless of the limit (can be a fraction since Kata 3):
    /// `io.katacontainers.config.hypervisor.default_vcpus`.
    pub default_vcpus: Option<f64>,
    /// Free page reporting is disabled for this VM:
    /// `kubevirt.io/free-page-reporting-disabled` (`KubeVirt`'s api/core/v1/types.go).
    pub reporting_disabled: bool,
}

impl PodSpec {
    /// The limit that kubelet sets, with the overhead, millicores
    /// (`ResourceConfigForPod`, `pkg/kubelet/cm/helpers_linux.go`).
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
    fn limit_plus_overhead_saturates() {
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
