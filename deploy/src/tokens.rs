//! What the queries of rules and dashboards repeat, by a short name.
//!
//! | token | stands for |
//! |---|---|
//! | `@vm` | the labels by which a VM is told from all others |
//! | `@sel` | a dashboard's choice of VMs |
//! | `@node` | a dashboard's choice of agents |
//! | `@who` | a VM in the text of an alert |
//! | `@q{NAME}` | in the text of an alert: the series NAME of its VM and scope |

/// The labels of a VM. On a node `vm` is unique; `instance` tells nodes apart
/// where there are no pods, and stays the same over restarts of the agent if the
/// scraper sets it to the node's name.
pub const VM: &str = "cluster, instance, namespace, pod, vm";

const SELECT_NODE: &str = r#"cluster=~"$cluster", instance=~"$instance""#;

const SELECT_VM: &str = r#"cluster=~"$cluster", instance=~"$instance", namespace=~"$namespace", pod=~"$pod", vm=~"$vm""#;

const WHO: &str = "VM {{ $labels.vm }}{{ with $labels.pod }} (pod {{ $labels.namespace }}/{{ . }})\
                   {{ end }} on {{ $labels.instance }}";

/// A query with its tokens replaced.
pub fn query(text: &str) -> String {
    text.replace("@vm", VM)
        .replace("@sel", SELECT_VM)
        .replace("@node", SELECT_NODE)
}

/// The text of an alert with its tokens replaced.
pub fn text(text: &str) -> String {
    let mut parts = text.split("@q{");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').expect("@q{ has its brace");
        out.push_str(&series_of_vm(name));
        out.push_str(rest);
    }
    out.replace("@who", WHO)
}

/// A template that asks for the series of the alert's VM and scope, the highest
/// first. `%q` quotes a label as `PromQL` wants it.
fn series_of_vm(name: &str) -> String {
    let labels = ["cluster", "instance", "namespace", "pod", "vm", "scope"];
    let matchers = labels.map(|label| format!("{label}=%q")).join(",");
    let values = labels.map(|label| format!("$labels.{label}")).join(" ");
    format!("printf \"sort_desc({name}{{{matchers}}})\" {values} | query")
}
