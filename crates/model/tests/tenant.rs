//! A tenant's view of a reading shows nothing of others.

use std::sync::Arc;

use virtlens_model::snapshot::{
    Check, Finding, Mismatch, Misplaced, Quota, Snapshot, Topology, Vm,
};
use virtlens_model::vocab::{MismatchKind, Scope};
use virtlens_tests::fixture;

/// Names, ids and paths of the VM of another tenant, and of the node's own VM.
const OTHERS: [&str; 8] = [
    "bank",
    "ledger-0",
    "secret-vm",
    "aaaa1111-0000-4000-8000-000000000001",
    "471147114",
    "vms_database",
    "back\\\\slash",
    "/machine.slice",
];

/// The fixture, in which a VM of the namespace `bank` shares a pCPU with that of `shop`.
fn shared_node() -> Snapshot {
    let mut node = fixture::snapshot();
    let overlap = "2 vCPUs are pinned to one pCPU (3): vCPU 0 and vCPU 1 of secret-vm";
    let remedy = "pin each vCPU to a free pCPU: taskset -pc 9 4250";
    let shop = &mut node.vms[0];
    let mut topology = Topology::clone(shop.topology.as_ref().expect("it is judged"));
    topology.mismatches.push(Misplaced {
        mismatch: Mismatch {
            kind: MismatchKind::VcpuOverlap,
            vcpus: vec![0],
            pcpus: [3].into_iter().collect(),
            memory_nodes: Vec::new(),
            evidence: overlap.to_owned(),
            remedy: remedy.to_owned(),
        },
        since: "2026-01-01T00:00:00Z".to_owned(),
    });
    shop.topology = Some(Arc::new(topology));
    let check = Check::Place(MismatchKind::VcpuOverlap);
    let found = Finding::new(check, overlap.to_owned(), 1.0).with(remedy.into());
    let all = shop.findings.iter().flat_map(|all| all.iter()).cloned();
    shop.findings = Some(all.chain([found]).collect());
    node.vms.push(Vm {
        namespace: Some("bank".into()),
        pod: Some("ledger-0".into()),
        uid: Some(OTHERS[3].into()),
        vm: "secret-vm".into(),
        pid: 471_147_114,
        running: true,
        ..Vm::default()
    });
    "cannot read the pod bank/ledger-0".clone_into(&mut node.sources[1].reason);
    node
}

fn json(snapshot: &Snapshot) -> String {
    serde_json::to_string(snapshot).expect("JSON")
}

#[test]
fn tenant_sees_own_vms_and_nothing_of_others() {
    let node = shared_node();
    let whole = json(&node);
    assert!(OTHERS.iter().all(|other| whole.contains(other)), "{whole}");
    let seen = node.for_tenant(|namespace| namespace == "shop");
    assert_eq!(seen.vms.len(), 1);
    let text = json(&seen);
    for other in OTHERS {
        assert!(!text.contains(other), "{other}: {text}");
    }
    // Counts of the whole node, and times that grow with it.
    assert_eq!(
        (&seen.dropped[..], &seen.maps[..], &seen.programs[..]),
        (&[][..], &[][..], &[][..])
    );
    let durations = seen.sources.iter().map(|source| source.duration_ns);
    assert!(durations.clone().all(|one| one.is_none()));
    assert_eq!(seen.sources.len(), node.sources.len());
    assert!(seen.sources.iter().zip(&node.sources).all(|(seen, all)| {
        (seen.up, seen.mode, seen.reason.is_empty()) == (all.up, all.mode, all.reason.is_empty())
    }));
}

/// Apart from the overlap the VM is shown as it is.
#[test]
fn own_vm_of_tenant_is_complete() {
    let node = fixture::snapshot();
    let seen = node.for_tenant(|namespace| namespace == "shop");
    assert_eq!(seen.vms[0], node.vms[0]);
    assert_eq!(
        (&seen.time, seen.clock_ns, &seen.node),
        (&node.time, node.clock_ns, &node.node)
    );
}

#[test]
fn vms_without_a_known_pod_are_shown_to_no_tenant() {
    let node = fixture::snapshot();
    assert!(node.vms.iter().any(|vm| vm.namespace.is_none()));
    let seen = node.for_tenant(|_| true);
    assert!(seen.vms.iter().all(|vm| vm.namespace.is_some()));
    assert_eq!(node.for_tenant(|_| false).vms, []);
}

#[test]
fn free_cpus_are_not_named_to_tenants() {
    let mut node = shared_node();
    let remedies = |node: &Snapshot| json(&node.for_tenant(|_| true)).contains("taskset -pc 9");
    assert!(remedies(&node), "Kubernetes pins Kata's VMs, not a command");
    node.vms[0].runtime = None;
    assert!(!remedies(&node));
}

#[test]
fn limits_of_shared_cgroups_are_not_shown_to_tenants() {
    let mut node = fixture::snapshot();
    let shop = &mut node.vms[0];
    let level = |scope| Quota {
        scope,
        ..shop.quota[0].clone()
    };
    shop.quota = Scope::ALL.into_iter().map(level).collect();
    let scopes = |node: &Snapshot| -> Vec<Scope> {
        let seen = node.for_tenant(|_| true);
        seen.vms[0].quota.iter().map(|level| level.scope).collect()
    };
    let all: Vec<Scope> = Scope::ALL.into_iter().collect();
    let of_kata: Vec<Scope> = all
        .iter()
        .copied()
        .filter(|one| *one != Scope::Machine)
        .collect();
    assert_eq!(scopes(&node), of_kata);
    node.vms[0].runtime = Some("kubevirt");
    let of_pod: Vec<Scope> = of_kata
        .iter()
        .copied()
        .filter(|one| *one != Scope::Overhead)
        .collect();
    assert_eq!(scopes(&node), of_pod);
}
