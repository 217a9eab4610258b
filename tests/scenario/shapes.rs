//! The rig's pod in the cgroup layouts ("shapes") of Kata's Go runtime on cgroup v2,
//! under load and with a CPU limit on the pod's slice. `tests/kernel/kata.rs` covers all
//! of Kata's shapes, with minivms.
//!
//! | shape | QEMU | shim, virtiofsd |
//! |---|---|---|
//! | pod | the pod's slice, a scope | same |
//! | split | the pod's slice, a scope | `kata_overhead/<id>` |
//! | stray | a directory at the top, named as a scope of the slice | `kata_overhead/<id>` |
//!
//! The pod's processes are moved from shape to shape as Kata moves them: all of them boot
//! in the overhead cgroup, then the whole QEMU process leaves it. Every expectation comes
//! from `schedstat` of threads and from `cpu.stat` of the cgroups.

mod activity;
mod bench;

use std::collections::BTreeSet;

use activity::{Activity, assert_near, level, used_ns};
use bench::Bench;
use virtlens_model::vocab::Role;

/// Well below the use of the pod's threads without a limit.
const LIMIT_CORES: f64 = 0.6;

#[test]
fn pod_in_each_kata_layout_is_accounted_and_judged() {
    let mut bench = Bench::start();
    bench.load(LIMIT_CORES);
    let pod = observe_in_pod(&mut bench);
    bench.split();
    observe_split(&mut bench);
    bench.stray();
    observe_stray(&mut bench);
    bench.go_home();
    let home = observe_in_pod(&mut bench);
    println!("in all shapes:");
    let whole = Activity {
        pod: pod.pod,
        began: pod.began,
        ended: home.ended,
    };
    whole.assert_accounted();
    // CPU time outside of the pod never counted against the limit.
    let [then, now] = whole.vms();
    let reported = used_ns(level(now)) - used_ns(level(then));
    let truth = whole.grown(|truth| truth.slice_ns);
    let truth = truth.start().saturating_sub(bench.moving_ns)..=truth.end() + bench.moving_ns;
    println!("{} ns between a reading and a move", bench.moving_ns);
    assert_near("used by role", reported, &truth);
}

fn observe_in_pod(bench: &mut Bench) -> Activity {
    println!("in the pod:");
    let over = bench.observe_capped();
    over.assert_accounted();
    let outside = over.outside();
    // Before v6.1 a vhost kernel thread is in no cgroup of the pod on v2.
    let layout = if outside[&Role::Vhost] == 0 {
        "pod"
    } else {
        "split"
    };
    over.assert_shape(layout);
    let inside = [Role::Vcpu, Role::Iothread, Role::Virtiofsd, Role::Helper];
    assert!(inside.iter().all(|role| outside[role] == 0), "{outside:?}");
    over.assert_limited();
    over.assert_found_capped();
    over
}

fn observe_split(bench: &mut Bench) {
    println!("split:");
    let over = bench.observe_capped();
    over.assert_accounted();
    over.assert_shape("split");
    let outside = over.outside();
    assert_eq!((outside[&Role::Vcpu], outside[&Role::Iothread]), (0, 0));
    for role in [Role::Virtiofsd, Role::Helper] {
        assert_eq!(outside[&role] as usize, bench.threads[&role].len());
    }
    over.assert_limited();
    over.assert_found_capped();
}

fn observe_stray(bench: &mut Bench) {
    println!("stray:");
    let over = bench.observe();
    over.assert_accounted();
    over.assert_shape("stray");
    let vm = over.vms()[1];
    for role in &vm.roles {
        assert_eq!(role.outside_pod, Some(role.threads), "{role:?}");
    }
    assert_eq!(
        over.grown(|truth| truth.slice_ns),
        0..=0,
        "the slice is empty"
    );
    assert!(
        vm.quota.iter().all(|one| one.cores.is_none()),
        "{:?}",
        vm.quota
    );
    assert_eq!(vm.limits, []);
    assert_eq!((vm.limit_cores, vm.vcpu_limit_cores), (None, None));
    let unapplied = vm.unapplied_limit.as_ref().expect("the pod has a limit");
    assert_eq!(*unapplied.cgroup, bench.slice());
    assert!((unapplied.cores - LIMIT_CORES).abs() < 1e-9);
    assert_eq!(over.found(), BTreeSet::from(["limit_without_vm"]));
    let finding = over.finding("limit_without_vm");
    let begins = "the pod's limit of 0.60 cores";
    assert!(finding.evidence.starts_with(begins), "{finding:?}");
    let begins = "set sandbox_cgroup_only=true";
    assert!(finding.remedy.starts_with(begins), "{finding:?}");
}
