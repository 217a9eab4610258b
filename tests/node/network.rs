//! The network of the cluster: only this thread and the processes that it starts have it.
//!
//! ```text
//!   API server, controllers, kubectl        the node, a VM       pods
//!   lo     10.0.0.1 (service kubernetes)
//!   node0  10.231.0.1                 ----  eth0 10.231.0.2
//!                                           cni0 10.244.0.1 ---- 10.244.0.0/24
//! ```
//! Nothing translates addresses: the API server reaches kubelets and pods directly, and a
//! pod reaches the API server's address of the service by its default route.

use std::net::Ipv4Addr;
use std::process::Command;

use virtlens_tests::private_network;

/// Address of the API server for the node.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);
/// Address of the node.
pub(crate) const NODE: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 2);
/// Addresses of the pods, as in `pods.conflist`.
const PODS: &str = "10.244.0.0/24";
/// Address of the service `kubernetes`: the first of the API server's range.
const SERVICE: &str = "10.0.0.1/32";

/// Creates the network and moves this thread into it. The machine of `kernels.toml` uses
/// the interface `node0`.
pub(crate) fn enter() {
    private_network().expect("root may create a network namespace");
    for line in [
        "link set lo up".to_owned(),
        format!("address add {SERVICE} dev lo"),
        "tuntap add node0 mode tap".to_owned(),
        format!("address add {HOST}/24 dev node0"),
        "link set node0 up".to_owned(),
        format!("route add {PODS} via {NODE}"),
    ] {
        let mut ip = Command::new("ip");
        let output = ip.args(line.split(' ')).output();
        let output = output.expect("ip is in PATH");
        assert!(output.status.success(), "ip {line}: {output:?}");
    }
}
