//! VMs with bad placement.

use std::sync::Arc;

use super::{found, fresh, raises};
use crate::snapshot::{Check, Mismatch, Misplaced, Topology, Vm};
use crate::vocab::{CpuSet, MismatchKind};

#[test]
fn every_mismatch_is_a_finding() {
    for kind in MismatchKind::ALL {
        let misplaced = |count| {
            move |vm: &mut Vm| {
                let one = Misplaced {
                    mismatch: Mismatch {
                        kind,
                        vcpus: vec![0, 1],
                        pcpus: CpuSet::default(),
                        memory_nodes: Vec::new(),
                        evidence: "vCPUs 0 and 1 are on 2 cores".to_owned(),
                        remedy: "virsh vcpupin web 1 4 --live".to_owned(),
                    },
                    since: String::new(),
                };
                vm.topology = Some(Arc::new(Topology {
                    mismatches: vec![one; count],
                    ..Topology::default()
                }));
            }
        };
        let evidence = raises(Check::Place(kind), &fresh(), misplaced(4), misplaced(0));
        assert!(
            evidence.ends_with("vCPUs 0 and 1 are on 2 cores; and 1 more"),
            "{evidence}"
        );
        let found = found(&fresh(), misplaced(1));
        assert_eq!(found[0].remedy, "virsh vcpupin web 1 4 --live");
    }
}
