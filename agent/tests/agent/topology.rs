//! The drawing of a host's CPUs.

use std::sync::Arc;

use virtlens::term::Style;
use virtlens::views::pick::is_called;
use virtlens::views::topology::{View, render};
use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::CpuSet;
use virtlens_model::vocab::topology::host::HostTopology;
use virtlens_tests::fixture::{self, host};
use virtlens_tests::golden::assert_golden;

use crate::golden;

/// The fixture, with the vCPUs of its first VM pinned to threads of two cores.
fn snapshot(host: HostTopology) -> Snapshot {
    let mut snapshot = fixture::snapshot();
    snapshot.host = Arc::new(host);
    for (vcpu, pcpu) in snapshot.vms[0].vcpus.iter_mut().zip([0, 2]) {
        vcpu.pcpu = Some(pcpu);
        vcpu.affinity = Some(Arc::new([pcpu].into_iter().collect()));
    }
    snapshot
}

fn view(width: usize, ascii: bool) -> View {
    View {
        style: Style {
            width: Some(width),
            color: false,
        },
        ascii,
    }
}

#[test]
fn topology_tree_equals_golden() {
    let drawn = render(&snapshot(host(2)), |_| true, view(80, false));
    assert_golden(golden("topology-80.txt"), &drawn);
    let one = |vm: &_| is_called(vm, "shop/web-0");
    let ascii = render(&snapshot(host(2)), one, view(80, true));
    assert_golden(golden("topology-ascii.txt"), &ascii);
    assert!(ascii.is_ascii());
}

#[test]
fn topology_lines_fit_terminal() {
    for width in [60, 80, 132] {
        let drawn = render(&snapshot(host(64)), |_| true, view(width, true));
        for line in drawn.lines() {
            assert!(line.len() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn topology_of_unknown_host_lists_cpus() {
    let online: CpuSet = (0..2).collect();
    let drawn = render(
        &snapshot(HostTopology::new(&[], &online)),
        |_| true,
        view(80, true),
    );
    assert!(drawn.contains("cpu 0    A0!"), "{drawn}");
    assert!(drawn.contains("cpu 1\n"), "{drawn}");
}
