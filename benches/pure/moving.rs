//! Readings of a node on which VMs are at rest, idle or busy.

use std::collections::BTreeMap;
use std::sync::Arc;

use virtlens_model::snapshot::{Interrupts, Quota, Snapshot, Topology, Vcpu, VcpuInterrupts, Vm};
use virtlens_model::vocab::{KvmValues, Role};

/// A guest without work: its timers wake a vCPU 1 to 20 times a second, for 20 to 50 µs.
const IDLE: Guest = Guest {
    wakes_per_s: (1, 20),
    run_us: (20, 50),
};

/// A guest that serves requests: 0.02 to 0.9 cores for each vCPU.
const BUSY: Guest = Guest {
    wakes_per_s: (200, 3000),
    run_us: (100, 300),
};

/// Work of the vCPUs of a guest: bounds of the averages of its vCPUs.
#[derive(Clone, Copy)]
struct Guest {
    wakes_per_s: (u64, u64),
    run_us: (u64, u64),
}

/// A node whose counters rise from reading to reading.
pub(crate) struct Node {
    snapshot: Snapshot,
    numbers: Numbers,
    load: Load,
}

/// The VMs that are not at rest.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    None,
    /// All are idle.
    Idle,
    /// One of this many is busy, and the others are idle.
    Busy(usize),
}

impl Node {
    pub(crate) fn new(snapshot: Snapshot, load: Load) -> Self {
        Self {
            snapshot,
            numbers: Numbers(1),
            load,
        }
    }

    /// The reading after `seconds`.
    pub(crate) fn next(&mut self, seconds: u64) -> &Snapshot {
        for (index, vm) in self.snapshot.vms.iter_mut().enumerate() {
            let guest = match self.load {
                Load::None => continue,
                Load::Busy(one_of) if index % one_of == 0 => BUSY,
                _ => IDLE,
            };
            run(vm, guest, seconds, &mut self.numbers);
        }
        let ns = seconds * 1_000_000_000;
        self.snapshot.clock_ns += ns + self.numbers.below(1_000_000);
        let fraction = self.numbers.below(1_000_000_000);
        self.snapshot.time = format!("2026-01-01T00:00:00.{fraction:09}Z");
        &self.snapshot
    }
}

/// What a thread used.
#[derive(Clone, Copy, Default)]
struct Used {
    cpu_ns: u64,
    wait_ns: u64,
}

fn run(vm: &mut Vm, guest: Guest, seconds: u64, numbers: &mut Numbers) {
    let mut by_role: BTreeMap<Role, Used> = BTreeMap::new();
    let mut interrupts = Vec::new();
    let mut of_thread = BTreeMap::new();
    for vcpu in &mut vm.vcpus {
        let used = run_vcpu(vcpu, guest, seconds, numbers);
        vm.guest_ns = vm.guest_ns.map(|ns| ns + ticks(used.cpu_ns));
        if let Some(tid) = vcpu.tid {
            of_thread.insert(tid, (used, vcpu.pcpu));
        }
        interrupts.push(VcpuInterrupts {
            vcpu: vcpu.id,
            interrupts: Interrupts {
                hard: 0.0,
                soft: numbers.share(),
                steal: numbers.share(),
            },
        });
    }
    // Of the other threads the main one and the first iothread run.
    let mut others = 2;
    for thread in &mut vm.threads {
        let used = match of_thread.get(&thread.tid) {
            Some((used, pcpu)) => {
                thread.pcpu = *pcpu;
                *used
            }
            None if others > 0 && thread.role.is_some() => {
                others -= 1;
                let wakes = numbers.within(guest.wakes_per_s) * seconds;
                Used {
                    cpu_ns: wakes * numbers.within((3_000, 9_000)),
                    wait_ns: wakes * numbers.within((500, 2_000)),
                }
            }
            None => continue,
        };
        thread.cpu_ns += used.cpu_ns;
        thread.wait_ns = thread.wait_ns.map(|ns| ns + used.wait_ns);
        if let Some(role) = thread.role {
            let sum = by_role.entry(role).or_default();
            sum.cpu_ns += used.cpu_ns;
            sum.wait_ns += used.wait_ns;
        }
    }
    for role in &mut vm.roles {
        let used = by_role.get(&role.role).copied().unwrap_or_default();
        role.cpu_ns += used.cpu_ns;
        role.wait_ns = role.wait_ns.map(|ns| ns + used.wait_ns);
    }
    for quota in vm.quota.iter_mut().chain(&mut vm.limits) {
        use_quota(quota, &by_role, seconds);
    }
    vm.topology = Some(Arc::new(Topology {
        interrupts,
        ..Topology::default()
    }));
}

fn run_vcpu(vcpu: &mut Vcpu, guest: Guest, seconds: u64, numbers: &mut Numbers) -> Used {
    // Averages of the vCPU, and 10 % around them.
    let mut own = Numbers(u64::from(vcpu.id) * 977 + u64::from(vcpu.tid.unwrap_or(0)));
    let (wakes_per_s, run_us) = (own.within(guest.wakes_per_s), own.within(guest.run_us));
    let wakes = numbers.about(wakes_per_s * seconds).max(1);
    let used = Used {
        cpu_ns: numbers.about(wakes * run_us * 1000),
        wait_ns: numbers.about(wakes * 5000),
    };
    let involuntary = numbers.below(wakes / 20 + 1);
    vcpu.cpu_ns += used.cpu_ns;
    vcpu.wait_ns = vcpu.wait_ns.map(|ns| ns + used.wait_ns);
    vcpu.guest_ns = vcpu.guest_ns.map(|ns| ns + ticks(used.cpu_ns));
    vcpu.timeslices = vcpu.timeslices.map(|number| number + wakes + involuntary);
    vcpu.involuntary_switches = vcpu.involuntary_switches.map(|number| number + involuntary);
    vcpu.pcpu = Some(u32::try_from(numbers.below(96)).expect("it is small"));

    let mut kvm = KvmValues::from(vcpu.kvm);
    let polled = numbers.below(wakes / 4 + 1);
    if let Some(poll) = &mut kvm.halt_poll_ns {
        poll.success += numbers.about(polled * 10_000);
        poll.fail += numbers.about((wakes - polled) * 40_000);
    }
    let slept_ns = (seconds * 1_000_000_000).saturating_sub(used.cpu_ns + used.wait_ns);
    kvm.halt_wait_ns = kvm.halt_wait_ns.map(|ns| ns + slept_ns);
    if let Some(exits) = &mut kvm.exits {
        let [io, _, halt, interrupt, _, _, other] = &mut exits.0;
        *io += numbers.below(wakes / 16 + 1);
        *halt += wakes;
        *interrupt += numbers.below(wakes / 2 + 1);
        *other += 2 * wakes + numbers.below(wakes);
    }
    kvm.halt_wakeups = kvm.halt_wakeups.map(|number| number + wakes - polled);
    if let Some(polls) = &mut kvm.halt_polls {
        polls.attempted += wakes;
        polls.successful += polled;
    }
    kvm.preemptions_reported = kvm.preemptions_reported.map(|number| number + involuntary);
    vcpu.kvm = kvm.into();
    used
}

fn use_quota(quota: &mut Quota, by_role: &BTreeMap<Role, Used>, seconds: u64) {
    quota.periods += seconds * 10;
    for (role, ns) in &mut quota.used_ns {
        *ns += by_role.get(role).map_or(0, |used| used.cpu_ns);
    }
}

/// The part of a time that ticks of 4 ms account as time of the guest.
fn ticks(cpu_ns: u64) -> u64 {
    cpu_ns / 4_000_000 * 4_000_000
}

/// An LCG (Knuth's constants).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 16) % bound.max(1)
    }

    fn within(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Within 10 % of a mean.
    fn about(&mut self, mean: u64) -> u64 {
        mean - mean / 10 + self.below(mean / 5 + 1)
    }

    /// A small share with three decimal places, as a judgement has.
    fn share(&mut self) -> f64 {
        let thousandths = u32::try_from(self.below(20)).expect("it is small");
        f64::from(thousandths) / 1e3
    }
}
