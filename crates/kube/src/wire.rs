//! A pod as servers send it, and the subset that is kept.
//!
//! Only the fields that are named here are read. All others, including the environment of
//! containers, are dropped during parsing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use virtlens_model::vocab::{Pod, PodSpec};

/// Annotation with the uid of a static pod. Such a pod does not get its uid from the API
/// server: its cgroup name contains this hash, and its mirror pod in the API carries it
/// (`ConfigMirrorAnnotationKey`, `pkg/kubelet/types/pod_update.go`).
const STATIC_UID: &str = "kubernetes.io/config.mirror";
/// `DefaultVCPUs`, Kata's `src/runtime/virtcontainers/pkg/annotations`.
const DEFAULT_VCPUS: &str = "io.katacontainers.config.hypervisor.default_vcpus";
/// `FreePageReportingDisabledAnnotation`, `KubeVirt`'s `api/core/v1/types.go`.
const REPORTING_DISABLED: &str = "kubevirt.io/free-page-reporting-disabled";
/// `DomainAnnotation`, in the same file: the name of the `VirtualMachineInstance`.
const VMI: &str = "kubevirt.io/domain";

/// A list of pods.
#[derive(Debug, Deserialize)]
pub(crate) struct WirePods {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    #[serde(default)]
    pub(crate) items: Vec<WirePod>,
}

/// The version of a list, and whether further pages follow.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) next: String,
}

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WirePod {
    pub(crate) metadata: Meta,
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    uid: String,
    name: String,
    namespace: String,
    annotations: BTreeMap<String, String>,
    pub(crate) resource_version: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    runtime_class_name: Option<String>,
    overhead: BTreeMap<String, String>,
    resources: Resources,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    resources: Resources,
    restart_policy: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Resources {
    limits: BTreeMap<String, String>,
}

impl WirePod {
    /// The pod's uid, as in its cgroup name.
    ///
    /// Users who may create pods may write any annotation, so an annotation that could be
    /// another pod's uid is ignored.
    pub(crate) fn uid(&self) -> &str {
        let hash = self.metadata.annotations.get(STATIC_UID);
        hash.filter(|hash| is_hash(hash))
            .unwrap_or(&self.metadata.uid)
    }

    /// Whether the pod is on this node, or its node is unknown.
    pub(crate) fn is_on(&self, node: &str) -> bool {
        ["", node].contains(&self.spec.node_name.as_str())
    }

    /// Returns the uid and the subset that is kept.
    pub(crate) fn keep(&self) -> (Arc<str>, Pod) {
        let annotation = |name: &str| self.metadata.annotations.get(name).map(String::as_str);
        let spec = PodSpec {
            vmi: annotation(VMI).map(Arc::from),
            runtime_class: self.spec.runtime_class_name.as_deref().map(Arc::from),
            cpu_limit_millis: self.spec.cpu_limit_millis(),
            cpu_overhead_millis: cpu_millis(&self.spec.overhead),
            default_vcpus: annotation(DEFAULT_VCPUS).and_then(|text| text.parse().ok()),
            reporting_disabled: annotation(REPORTING_DISABLED) == Some("true"),
        };
        let pod = Pod {
            namespace: self.metadata.namespace.as_str().into(),
            name: self.metadata.name.as_str().into(),
            spec: Arc::new(spec),
        };
        (self.uid().into(), pod)
    }
}

impl Spec {
    /// Sums limits as the scheduler does (`PodLimits`,
    /// `k8s.io/component-helpers/resource`): containers and sidecars together, or the
    /// largest sum while init containers run. The pod-level limit takes precedence.
    /// Kubelet sets a quota only if every container has a limit (`ResourceConfigForPod`,
    /// `pkg/kubelet/cm/helpers_linux.go`).
    fn cpu_limit_millis(&self) -> Option<u64> {
        if let Some(limit) = cpu_millis(&self.resources.limits) {
            return Some(limit);
        }
        let mut sum = 0u64;
        let mut largest = 0u64;
        for init in &self.init_containers {
            let limit = cpu_millis(&init.resources.limits)?;
            if init.restart_policy == "Always" {
                sum = sum.saturating_add(limit);
            }
            let beside = if init.restart_policy == "Always" {
                0
            } else {
                limit
            };
            largest = largest.max(sum.saturating_add(beside));
        }
        for container in &self.containers {
            sum = sum.saturating_add(cpu_millis(&container.resources.limits)?);
        }
        (!self.containers.is_empty()).then_some(sum.max(largest))
    }
}

/// Whether `text` is a hash of a static pod's manifest (`applyDefaults`,
/// `pkg/kubelet/config/common.go`): 32 digits without dashes, unlike a uid of the API
/// server.
fn is_hash(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn cpu_millis(amounts: &BTreeMap<String, String>) -> Option<u64> {
    amounts.get("cpu").and_then(|text| millis(text))
}

/// Parses a quantity of cores, in thousandths, rounded up as Kubernetes does
/// (`Quantity.MilliValue`, `k8s.io/apimachinery/pkg/api/resource`).
fn millis(text: &str) -> Option<u64> {
    const SCALES: [(char, f64); 4] = [('n', 1e-6), ('u', 1e-3), ('m', 1.0), ('k', 1e6)];
    let scaled = |(suffix, scale): &(char, f64)| Some((text.strip_suffix(*suffix)?, *scale));
    let (number, scale) = SCALES.iter().find_map(scaled).unwrap_or((text, 1000.0));
    let value = number.parse::<f64>().ok()? * scale;
    // The rounding error of decimal fractions must not add a thousandth.
    let value = (value - 1e-6).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is whole and its range was checked"
    )]
    (0.0..1e15).contains(&value).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::{WirePod, millis};

    fn parse(json: &str) -> WirePod {
        serde_json::from_str(json).expect("a pod")
    }

    #[test]
    fn cpu_quantities_parse_in_every_kubernetes_form() {
        for (text, expected) in [
            ("1", Some(1000)),
            ("250m", Some(250)),
            ("1.25", Some(1250)),
            ("0.1", Some(100)),
            ("1e1", Some(10_000)),
            ("100u", Some(1)),
            ("2500000n", Some(3)),
            ("1k", Some(1_000_000)),
            ("0", Some(0)),
            ("", None),
            ("m", None),
            ("-1", None),
            ("inf", None),
            ("NaN", None),
            ("one", None),
        ] {
            assert_eq!(millis(text), expected, "{text:?}");
        }
    }

    /// The study's pod: a limit of one core, and 250m of overhead from the runtime class.
    #[test]
    fn pod_keeps_identity_and_requested_resources() {
        let (uid, pod) = parse(
            r#"{"metadata": {"uid": "8c2d", "name": "web", "namespace": "shop",
                 "managedFields": [{"manager": "x"}],
                 "annotations": {"io.katacontainers.config.hypervisor.default_vcpus": "2",
                                 "kubevirt.io/domain": "db",
                                 "kubevirt.io/free-page-reporting-disabled": "true"}},
                "spec": {"nodeName": "a", "runtimeClassName": "kata",
                         "overhead": {"cpu": "250m", "memory": "160Mi"},
                         "containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "x"}],
                                         "resources": {"limits": {"cpu": "1"}}}]}}"#,
        )
        .keep();
        assert_eq!(
            (&*uid, &*pod.namespace, &*pod.name),
            ("8c2d", "shop", "web")
        );
        let spec = pod.spec;
        assert_eq!(spec.runtime_class.as_deref(), Some("kata"));
        assert_eq!(spec.cpu_limit_millis, Some(1000));
        assert_eq!(spec.quota_millis(), Some(1250));
        assert_eq!(spec.default_vcpus, Some(2.0));
        assert_eq!(spec.vmi.as_deref(), Some("db"));
        assert!(spec.reporting_disabled);
    }

    #[test]
    fn static_pod_uid_is_config_hash_of_its_cgroup() {
        let pod = parse(
            r#"{"metadata": {"uid": "of-the-api", "name": "etcd-a", "namespace": "kube-system",
                 "annotations": {"kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef"}}}"#,
        );
        assert_eq!(pod.uid(), "0123456789abcdef0123456789abcdef");
    }

    /// A tenant must not be able to give its pod's name to another tenant's VM.
    #[test]
    fn annotations_do_not_change_pod_identity() {
        for reported in ["0d2aeb12-7a42-4a2b-9c3e-1f2d3c4b5a69", "victim", ""] {
            let pod = parse(&format!(
                r#"{{"metadata": {{"uid": "its-own",
                     "annotations": {{"kubernetes.io/config.mirror": "{reported}"}}}}}}"#
            ));
            assert_eq!(pod.uid(), "its-own", "{reported}");
        }
    }

    #[test]
    fn pods_of_other_nodes_are_excluded() {
        let on = |node: &str| parse(&format!(r#"{{"spec": {{"nodeName": "{node}"}}}}"#));
        assert!(on("a").is_on("a") && on("").is_on("a"));
        assert!(!on("b").is_on("a"));
    }

    fn limit(spec: &str) -> Option<u64> {
        let pod = parse(&format!(r#"{{"spec": {spec}}}"#));
        pod.keep().1.spec.cpu_limit_millis
    }

    #[test]
    fn pod_limit_is_sum_as_in_kubelet() {
        let one = r#"{"resources": {"limits": {"cpu": "1"}}}"#;
        let none = r#"{"resources": {}}"#;
        let big = r#"{"resources": {"limits": {"cpu": "3"}}}"#;
        let sidecar = r#"{"restartPolicy": "Always", "resources": {"limits": {"cpu": "500m"}}}"#;
        for (spec, expected) in [
            (format!(r#"{{"containers": [{one}, {one}]}}"#), Some(2000)),
            (format!(r#"{{"containers": [{one}, {none}]}}"#), None),
            (
                format!(r#"{{"containers": [{one}], "initContainers": [{big}]}}"#),
                Some(3000),
            ),
            (
                format!(r#"{{"containers": [{one}], "initContainers": [{sidecar}]}}"#),
                Some(1500),
            ),
            (
                format!(r#"{{"containers": [{one}], "initContainers": [{sidecar}, {big}]}}"#),
                Some(3500),
            ),
            (
                format!(r#"{{"resources": {{"limits": {{"cpu": "4"}}}}, "containers": [{none}]}}"#),
                Some(4000),
            ),
            ("{}".to_owned(), None),
        ] {
            assert_eq!(limit(&spec), expected, "{spec}");
        }
    }
}
