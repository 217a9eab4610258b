//! Saturated and starved workers and vCPUs.

use std::sync::Arc;

use super::{found, fresh, limited, names, part, raises, throttle, use_cpu};
use crate::snapshot::{Check, Interrupts, Thread, Topology, VcpuInterrupts, Vm, Worker};
use crate::vocab::{Comm, HaltPoll, KvmCounters, KvmValues, Role, Scope, VhostDevice};

#[test]
fn worker_that_uses_its_core_raises_saturated() {
    for (check, role) in [
        (Check::VhostSaturated, Role::Vhost),
        (Check::VirtiofsdSaturated, Role::Virtiofsd),
        (Check::IothreadSaturated, Role::Iothread),
    ] {
        // The vCPUs use more CPU time than the worker.
        let of = |permille| {
            move |vm: &mut Vm| {
                use_cpu(vm, role, permille);
                use_cpu(vm, Role::Vcpu, 1500);
            }
        };
        let evidence = raises(check, &fresh(), of(860), of(840));
        let name = role.name();
        assert_eq!(
            evidence,
            format!("{name} worker 0 (thread 20) used 0.86 of 1 core")
        );
    }
}

#[test]
fn saturated_vhost_worker_is_named_with_its_device() {
    let mut vm = fresh();
    vm.workers[0].device = Some(VhostDevice::Vsock);
    let found = found(&vm, |vm| {
        use_cpu(vm, Role::Vhost, 860);
        use_cpu(vm, Role::Vcpu, 1500);
    });
    let evidence = "vhost worker 0 (thread 20, vhost-vsock) used 0.86 of 1 core";
    assert_eq!(found[0].evidence, evidence);
}

#[test]
fn two_half_busy_workers_raise_nothing() {
    let mut vm = fresh();
    let other = Worker {
        worker: 1,
        ..vm.workers[0]
    };
    vm.workers.push(other);
    let found = found(&vm, |vm| {
        use_cpu(vm, Role::Vhost, 600);
        use_cpu(vm, Role::Vcpu, 1500);
    });
    assert_eq!(names(&found), [] as [&str; 0]);
}

#[test]
fn busy_vcpus_raise_vcpus_saturated() {
    let of = |permille| move |vm: &mut Vm| use_cpu(vm, Role::Vcpu, permille);
    let evidence = raises(Check::VcpusSaturated, &fresh(), of(1940), of(1880));
    assert_eq!(
        evidence,
        "the VM's 2 vCPUs ran for 97 % of the time on average"
    );
}

/// QEMU parks an unplugged vCPU, and KVM still holds it.
#[test]
fn vcpus_saturated_is_raised_with_a_parked_vcpu() {
    let mut vm = fresh();
    vm.vcpu_count.online = Some(3);
    let busy = |vm: &mut Vm| use_cpu(vm, Role::Vcpu, 1940);
    // The third vCPU was never seen to run: it may be idle.
    vm.vcpu_count.parked = Some(0);
    assert_eq!(names(&found(&vm, busy)), [] as [&str; 0]);
    vm.vcpu_count.parked = Some(1);
    assert_eq!(names(&found(&vm, busy)), ["vcpus_saturated"]);
}

#[test]
fn waiting_vcpu_raises_vcpu_starved() {
    let waits = |permille| move |vm: &mut Vm| vm.vcpus[1].wait_ns = Some(part(permille));
    let evidence = raises(Check::VcpuStarved, &fresh(), waits(110), waits(90));
    assert_eq!(evidence, "vCPU 1 waited for a CPU for 1.1 s of 10.0 s");
    // A thread that is first seen to run a vCPU has older CPU time.
    let new = found(&fresh(), |vm| {
        waits(900)(vm);
        vm.vcpus[1].tid = Some(99);
    });
    assert_eq!(names(&new), [] as [&str; 0]);
    // Throttled time does not count as starvation.
    let throttled = found(&limited(), |vm| {
        waits(300)(vm);
        throttle(vm, 240);
    });
    assert_eq!(names(&throttled), [] as [&str; 0]);
}

#[test]
fn mean_wait_and_co_stop_are_in_the_evidence() {
    let evidence = |slices: u64, ran: u64| {
        let found = found(&fresh(), |vm| {
            vm.vcpus[0].cpu_ns += part(ran);
            vm.vcpus[1].wait_ns = Some(part(400));
            vm.vcpus[1].timeslices = Some(slices);
        });
        found[0].evidence.clone()
    };
    assert_eq!(
        evidence(100, 800),
        "vCPU 1 waited for a CPU for 4.0 s of 10.0 s, 40 ms each time on average; co-stop: 2.0 s \
         to 4.0 s in which some vCPUs ran while others waited"
    );
    assert_eq!(
        evidence(100_000, 0),
        "vCPU 1 waited for a CPU for 4.0 s of 10.0 s, 40 us each time on average"
    );
}

#[test]
fn interrupts_on_pcpus_of_starved_vcpu_are_in_the_evidence() {
    let evidence = |soft, hard| {
        let found = found(&fresh(), |vm| {
            vm.vcpus[1].wait_ns = Some(part(110));
            let interrupts = [(0, 0.9), (1, soft)].map(|(vcpu, soft)| VcpuInterrupts {
                vcpu,
                interrupts: Interrupts {
                    hard,
                    soft,
                    steal: 0.0,
                },
            });
            vm.topology = Some(Arc::new(Topology {
                interrupts: interrupts.to_vec(),
                ..Topology::default()
            }));
        });
        found[0].evidence.clone()
    };
    let waited = "vCPU 1 waited for a CPU for 1.1 s of 10.0 s";
    assert_eq!(
        evidence(0.31, 0.021),
        format!("{waited}; of the pCPUs of vCPU 1: hard interrupts 2 % and soft interrupts 31 %")
    );
    assert_eq!(
        evidence(0.31, 0.001),
        format!("{waited}; of the pCPUs of vCPU 1: soft interrupts 31 %")
    );
    assert_eq!(evidence(0.004, 0.004), waited, "too little to matter");
}

/// libvirt throttles one vCPU's cgroup: this vCPU is not starved, the other one is.
#[test]
fn throttling_is_subtracted_only_for_vcpus_below_limit() {
    let mut of_one = limited();
    of_one.limits[0].scope = Scope::Vcpu;
    of_one.limits[0].cgroup = "/machine/vcpu1".into();
    of_one.vcpus[1].cgroup = Some("/machine/vcpu1".into());
    let waits = |vcpu: usize| {
        found(&of_one, |vm: &mut Vm| {
            vm.vcpus[vcpu].wait_ns = Some(part(300));
            throttle(vm, 240);
        })
    };
    assert_eq!(names(&waits(1)), [] as [&str; 0]);
    assert_eq!(names(&waits(0)), ["vcpu_starved"]);
}

fn polling(poll_ns: HaltPoll) -> KvmCounters {
    KvmCounters::from(KvmValues {
        halt_poll_ns: Some(poll_ns),
        ..KvmValues::default()
    })
}

#[test]
fn polling_vcpus_raise_halt_poll_spin() {
    let polls = |permille: u64| {
        move |vm: &mut Vm| {
            use_cpu(vm, Role::Vcpu, 1000);
            vm.vcpus[0].kvm = polling(HaltPoll {
                success: part(permille / 4),
                fail: part(permille - permille / 4),
            });
        }
    };
    let evidence = raises(Check::HaltPollSpin, &fresh(), polls(240), polls(190));
    assert_eq!(
        evidence,
        "vCPUs spent 0.24 of their 1.00 cores (24 %) on halt polling, 75 % of it without a wake-up"
    );
    // A large share of very little CPU time.
    let little = found(&fresh(), |vm| {
        use_cpu(vm, Role::Vcpu, 100);
        vm.vcpus[0].kvm = polling(HaltPoll {
            success: 0,
            fail: part(90),
        });
    });
    assert_eq!(names(&little), [] as [&str; 0]);
}

#[test]
fn polling_does_not_count_as_busy() {
    let found = found(&fresh(), |vm| {
        use_cpu(vm, Role::Vcpu, 2000);
        for vcpu in &mut vm.vcpus {
            vcpu.kvm = polling(HaltPoll {
                success: part(500),
                fail: 0,
            });
        }
    });
    assert_eq!(names(&found), ["halt_poll_spin"]);
}

#[test]
fn threads_other_than_vcpus_raise_overhead_high() {
    let of = |emulator| {
        move |vm: &mut Vm| {
            use_cpu(vm, Role::Vcpu, 300);
            use_cpu(vm, Role::Emulator, emulator);
        }
    };
    let evidence = raises(Check::OverheadHigh, &fresh(), of(310), of(290));
    assert_eq!(
        evidence,
        "threads other than vCPUs used 0.31 of 0.61 cores (51 %): emulator 0.31"
    );
}

#[test]
fn qemu_thread_pool_raises_thread_pool_io() {
    let pool = |threads: usize| {
        move |vm: &mut Vm| {
            let worker = Thread {
                tid: 30,
                role: Some(Role::Emulator),
                name: Comm::new("worker"),
                device: None,
                cpu_ns: 0,
                wait_ns: None,
                pcpu: None,
                affinity: None,
                sched_class: None,
            };
            vm.threads = vec![worker; threads];
        }
    };
    let evidence = raises(Check::ThreadPoolIo, &fresh(), pool(8), pool(7));
    assert_eq!(evidence, "QEMU has 8 threads named worker");
}
