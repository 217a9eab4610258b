//! The network of the cluster: only this thread and the processes that it starts have it.
//!
//! ```text
//!   API server, controllers, kubectl        the node, a VM       pods
//!   lo     10.0.0.1 (service kubernetes)
//!   node0  10.231.0.1                 ----  eth0 10.231.0.2
//!                                           cni0 10.244.0.1 ---- 10.244.0.0/24
//!   node1  10.231.1.1                 ----  eth0 10.231.1.2
//!                                           cni0 10.244.1.1 ---- 10.244.1.0/24
//! ```
//! Nothing translates addresses: the API server reaches kubelets and pods directly, and a
//! pod reaches the API server's address of the service by its default route.

use std::net::Ipv4Addr;
use std::process::Command;

use virtlens_tests::private_network;

/// Address of the API server for the nodes.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);
/// Address of the service `kubernetes`: the first of the API server's range.
const SERVICE: &str = "10.0.0.1/32";

/// The link to a node.
pub(crate) struct Link {
    /// The interface of the host, as in `kernels.toml`.
    interface: &'static str,
    /// Address of the host.
    pub(crate) host: Ipv4Addr,
    /// Address of the node.
    pub(crate) node: Ipv4Addr,
    /// Addresses of the node's pods.
    pub(crate) pods: &'static str,
}

/// The links, in the order of the nodes.
pub(crate) const LINKS: [Link; 2] = [
    Link {
        interface: "node0",
        host: HOST,
        node: Ipv4Addr::new(10, 231, 0, 2),
        pods: "10.244.0.0/24",
    },
    Link {
        interface: "node1",
        host: Ipv4Addr::new(10, 231, 1, 1),
        node: Ipv4Addr::new(10, 231, 1, 2),
        pods: "10.244.1.0/24",
    },
];

/// Creates the network and moves this thread into it. The machines of `kernels.toml` use
/// its interfaces.
pub(crate) fn enter() {
    private_network().expect("root may create a network namespace");
    ip("link set lo up");
    ip(&format!("address add {SERVICE} dev lo"));
    for Link {
        interface,
        host,
        node,
        pods,
    } in LINKS
    {
        ip(&format!("tuntap add {interface} mode tap"));
        ip(&format!("address add {host}/24 dev {interface}"));
        ip(&format!("link set {interface} up"));
        ip(&format!("route add {pods} via {node}"));
    }
}

fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.expect("ip is in PATH");
    assert!(output.status.success(), "ip {line}: {output:?}");
}
