//! Short names for the common parts of rules' and dashboards' queries.
//!
//! | token | stands for |
//! |---|---|
//! | `@namespace`, `@pod` | the labels with the namespace and the name of a VM's pod |
//! | `@vm` | the labels that identify a VM |
//! | `@sel` | the VMs selected in a dashboard |
//! | `@fleet` | the namespaces selected in a dashboard |
//! | `@node` | the agents selected in a dashboard |
//! | `@who` | a VM in the text of an alert |
//! | `@q{NAME}` | in the text of an alert: the series NAME of its VM and scope |

/// Names under which a Prometheus stores the labels `namespace` and `pod` of the agent's
/// series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodLabels {
    /// `namespace` and `pod`: the Prometheus scrapes with `honor_labels: true`.
    Kept,
    /// `exported_namespace` and `exported_pod`: the Prometheus scrapes with
    /// `honor_labels: false`, and sets `namespace` and `pod` to the agent's own pod. A
    /// Prometheus operator can enforce this with `overrideHonorLabels`, as in the monitoring
    /// of `OpenShift` for user-defined projects (openshift-docs, pull request 70004).
    Exported,
}

impl PodLabels {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Kept, Self::Exported];

    /// The labels that identify a VM. `vm` is unique on a node. `instance` distinguishes nodes
    /// without pods, and survives restarts of the agent if the scraper sets it to the node's
    /// name.
    pub fn of_vm(self) -> String {
        self.name(VM)
    }

    /// Replaces `@namespace` and `@pod`.
    pub fn name(self, text: &str) -> String {
        let prefix = match self {
            Self::Kept => "",
            Self::Exported => "exported_",
        };
        text.replace("@namespace", &format!("{prefix}namespace"))
            .replace("@pod", &format!("{prefix}pod"))
    }
}

const VM: &str = "cluster, instance, @namespace, @pod, vm";

const SELECT_NODE: &str = r#"cluster=~"$cluster", instance=~"$instance""#;

const SELECT_NAMESPACE: &str =
    r#"cluster=~"$cluster", instance=~"$instance", @namespace=~"$namespace""#;

const SELECT_VM: &str = r#"cluster=~"$cluster", instance=~"$instance", @namespace=~"$namespace", @pod=~"$pod", vm=~"$vm""#;

const WHO: &str = "VM {{ $labels.vm }}{{ with $labels.@pod }} (pod {{ $labels.@namespace }}/{{ . }})\
                   {{ end }} on {{ $labels.instance }}";

/// Replaces the tokens of a query.
pub fn query(text: &str, labels: PodLabels) -> String {
    let text = text
        .replace("@vm", VM)
        .replace("@sel", SELECT_VM)
        .replace("@fleet", SELECT_NAMESPACE)
        .replace("@node", SELECT_NODE);
    labels.name(&text)
}

/// Replaces the tokens of an alert's text.
pub fn text(text: &str, labels: PodLabels) -> String {
    let mut parts = text.split("@q{");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').expect("@q{ has its brace");
        out.push_str(&series_of_vm(name));
        out.push_str(rest);
    }
    labels.name(&out.replace("@who", WHO))
}

/// A template that queries the series of the alert's VM and scope, highest value first.
/// `%q` quotes a label for `PromQL`.
fn series_of_vm(name: &str) -> String {
    let labels = ["cluster", "instance", "@namespace", "@pod", "vm", "scope"];
    let matchers = labels.map(|label| format!("{label}=%q")).join(",");
    let values = labels.map(|label| format!("$labels.{label}")).join(" ");
    format!("printf \"sort_desc({name}{{{matchers}}})\" {values} | query")
}
