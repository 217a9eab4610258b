//! The drawing of a host's CPUs.

use virtlens::term::Style;
use virtlens::views::pick::is_called;
use virtlens::views::topology::{View, render};
use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::CpuSet;
use virtlens_model::vocab::topology::host::{CpuFact, HostTopology};
use virtlens_tests::fixture;
use virtlens_tests::golden::assert_golden;

use crate::golden;

/// Packages of two cores with two threads each; siblings have adjacent numbers.
fn host(packages: u32) -> HostTopology {
    let facts: Vec<CpuFact> = (0..packages * 4)
        .map(|cpu| {
            let of = |size: u32| -> CpuSet {
                let first = cpu / size * size;
                (first..first + size).collect()
            };
            CpuFact {
                cpu,
                package: Some(cpu / 4),
                die_cpus: Some(of(4)),
                core_cpus: Some(of(2)),
                llc_cpus: Some(of(4)),
                node: Some(cpu / 4),
            }
        })
        .collect();
    HostTopology::new(&facts, &facts.iter().map(|fact| fact.cpu).collect())
}

/// The fixture, with the vCPUs of its first VM pinned to threads of two cores.
fn snapshot() -> Snapshot {
    let mut snapshot = fixture::snapshot();
    for (vcpu, pcpu) in snapshot.vms[0].vcpus.iter_mut().zip([0, 2]) {
        vcpu.pcpu = Some(pcpu);
        vcpu.affinity = Some(std::sync::Arc::new([pcpu].into_iter().collect()));
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
    let drawn = render(&snapshot(), &host(2), |_| true, view(80, false));
    assert_golden(golden("topology-80.txt"), &drawn);
    let one = |vm: &_| is_called(vm, "shop/web-0");
    let ascii = render(&snapshot(), &host(2), one, view(80, true));
    assert_golden(golden("topology-ascii.txt"), &ascii);
    assert!(ascii.is_ascii());
}

#[test]
fn topology_lines_fit_terminal() {
    for width in [60, 80, 132] {
        let drawn = render(&snapshot(), &host(64), |_| true, view(width, true));
        for line in drawn.lines() {
            assert!(line.len() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn topology_of_unknown_host_lists_cpus() {
    let online: CpuSet = (0..2).collect();
    let drawn = render(
        &snapshot(),
        &HostTopology::new(&[], &online),
        |_| true,
        view(80, true),
    );
    assert!(drawn.contains("cpu 0    A0!"), "{drawn}");
    assert!(drawn.contains("cpu 1\n"), "{drawn}");
}
