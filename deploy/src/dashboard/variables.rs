//! The variables of dashboards, which select their objects.

use super::Of;

/// A variable: its values are those of a label. The series depend on the preceding variables.
#[derive(Clone, Copy)]
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) series: &'static str,
    pub(super) label: &'static str,
}

/// The pattern of all values. It matches objects without the label too: hosts without pods, a
/// single cluster.
pub(super) const ALL: &str = ".*";

const OF_AGENTS: [Variable; 2] = [
    Variable {
        name: "cluster",
        title: "Cluster",
        series: "virtlens_build_info",
        label: "cluster",
    },
    Variable {
        name: "instance",
        title: "Node",
        series: r#"virtlens_build_info{cluster=~"$cluster"}"#,
        label: "instance",
    },
];

const OF_VMS: [Variable; 3] = [
    Variable {
        name: "namespace",
        title: "Namespace",
        series: r#"virtlens_vm_info{cluster=~"$cluster", instance=~"$instance"}"#,
        label: "@namespace",
    },
    Variable {
        name: "pod",
        title: "Pod",
        series: r#"virtlens_vm_info{cluster=~"$cluster", instance=~"$instance", @namespace=~"$namespace"}"#,
        label: "@pod",
    },
    Variable {
        name: "vm",
        title: "VM",
        series: r#"virtlens_vm_info{cluster=~"$cluster", instance=~"$instance", @namespace=~"$namespace", @pod=~"$pod"}"#,
        label: "vm",
    },
];

/// The variables of a dashboard.
pub(super) fn of(of: Of) -> impl Iterator<Item = Variable> {
    let vms: &[Variable] = match of {
        Of::Vm | Of::Node => &OF_VMS,
        Of::Namespaces => &OF_VMS[..1],
        Of::Agents => &[],
    };
    OF_AGENTS.iter().chain(vms).copied()
}

/// Whether a dashboard opens with the first value of a variable: queries over all VMs of a
/// fleet would take seconds.
pub(super) fn opens_with_one(of: Of, name: &str) -> bool {
    [(Of::Node, "instance"), (Of::Vm, "vm")].contains(&(of, name))
}
