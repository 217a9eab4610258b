//! Short names for the common parts of rules' and dashboards' queries.
//!
//! | token | stands for |
//! |---|---|
//! | `@vm` | the labels that identify a VM |
//! | `@sel` | the VMs selected in a dashboard |
//! | `@node` | the agents selected in a dashboard |
//! | `@who` | a VM in the text of an alert |
//! | `@q{NAME}` | in the text of an alert: the series NAME of its VM and scope |

/// The labels of a VM. `vm` is unique on a node. `instance` distinguishes nodes without
/// pods, and survives restarts of the agent if the scraper sets it to the node's name.
pub const VM: &str = "cluster, instance, namespace, pod, vm";

const SELECT_NODE: &str = r#"cluster=~"$cluster", instance=~"$instance""#;

const SELECT_VM: &str = r#"cluster=~"$cluster", instance=~"$instance", namespace=~"$namespace", pod=~"$pod", vm=~"$vm""#;

const WHO: &str = "VM {{ $labels.vm }}{{ with $labels.pod }} (pod {{ $labels.namespace }}/{{ . }})\
                   {{ end }} on {{ $labels.instance }}";

/// Replaces the tokens of a query.
pub fn query(text: &str) -> String {
    text.replace("@vm", VM)
        .replace("@sel", SELECT_VM)
        .replace("@node", SELECT_NODE)
}

/// Replaces the tokens of an alert's text.
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

/// A template that queries the series of the alert's VM and scope, highest value first.
/// `%q` quotes a label for `PromQL`.
fn series_of_vm(name: &str) -> String {
    let labels = ["cluster", "instance", "namespace", "pod", "vm", "scope"];
    let matchers = labels.map(|label| format!("{label}=%q")).join(",");
    let values = labels.map(|label| format!("$labels.{label}")).join(" ");
    format!("printf \"sort_desc({name}{{{matchers}}})\" {values} | query")
}
