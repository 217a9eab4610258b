//! Readings of a node on which some VMs run.

use std::sync::Arc;
use virtlens_model::snapshot::{Interrupts, Snapshot, Topology, VcpuInterrupts, Vm};

/// Share of a CPU that a busy vCPU uses on average.
const BUSY: f64 = 0.4;

/// A node whose counters rise from reading to reading.
pub(crate) struct Node {
    snapshot: Snapshot,
    numbers: u64,
    /// One VM of this many runs; 0 for none.
    one_of: usize,
}

impl Node {
    pub(crate) fn new(snapshot: Snapshot, one_of: usize) -> Self {
        Self {
            snapshot,
            numbers: 1,
            one_of,
        }
    }

    /// The reading after `seconds`.
    pub(crate) fn next(&mut self, seconds: f64) -> &Snapshot {
        let mut vms = std::mem::take(&mut self.snapshot.vms);
        for (index, vm) in vms.iter_mut().enumerate() {
            if self.one_of > 0 && index % self.one_of == 0 {
                self.run(vm, seconds);
            }
        }
        self.snapshot.vms = vms;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds"
        )]
        let ns = (seconds * 1e9) as u64;
        self.snapshot.clock_ns += ns + self.below(1_000_000);
        self.snapshot.time = format!("2026-01-01T00:00:00.{:09}Z", self.below(1_000_000_000));
        &self.snapshot
    }

    /// Each vCPU runs for some time; of the other threads the main one and the first
    /// iothread do.
    fn run(&mut self, vm: &mut Vm, seconds: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds"
        )]
        let most_ns = (seconds * 2e9 * BUSY) as u64;
        let mut interrupts = Vec::new();
        for vcpu in &mut vm.vcpus {
            let (cpu_ns, wait_ns) = (self.below(most_ns), self.below(most_ns / 20));
            let switches = self.below(most_ns / 200_000);
            vcpu.cpu_ns += cpu_ns;
            vcpu.wait_ns = vcpu.wait_ns.map(|ns| ns + wait_ns);
            vcpu.guest_ns = vcpu.guest_ns.map(|ns| ns + cpu_ns / 4_000_000 * 4_000_000);
            vcpu.timeslices = vcpu.timeslices.map(|number| number + switches);
            let involuntary = self.below(switches.max(4) / 4);
            vcpu.involuntary_switches =
                vcpu.involuntary_switches.map(|number| number + involuntary);
            let numbers = std::cell::Cell::new(self.numbers);
            // Times in ns rise faster than counts; most counters are counts.
            vcpu.kvm = vcpu.kvm.with(&vcpu.kvm, |now, _| {
                let mut number = numbers.get();
                let rise = below(&mut number, most_ns / 100_000);
                numbers.set(number);
                now + rise
            });
            self.numbers = numbers.get();
            vcpu.pcpu = Some(u32::try_from(self.below(96)).expect("it is small"));
            interrupts.push(VcpuInterrupts {
                vcpu: vcpu.id,
                interrupts: Interrupts {
                    hard: 0.0,
                    soft: self.share(),
                    steal: self.share(),
                },
            });
            let (tid, pcpu) = (vcpu.tid, vcpu.pcpu);
            let mut threads = vm.threads.iter_mut();
            if let Some(thread) = threads.find(|thread| Some(thread.tid) == tid) {
                thread.cpu_ns += cpu_ns;
                thread.wait_ns = thread.wait_ns.map(|ns| ns + wait_ns);
                thread.pcpu = pcpu;
            }
        }
        for thread in vm
            .threads
            .iter_mut()
            .filter(|thread| thread.role.is_some())
            .take(2)
        {
            thread.cpu_ns += self.below(most_ns / 20);
        }
        for role in &mut vm.roles {
            role.cpu_ns += self.below(most_ns);
            role.wait_ns = role.wait_ns.map(|ns| ns + self.below(most_ns / 20));
        }
        vm.guest_ns = vm.guest_ns.map(|ns| ns + self.below(most_ns));
        for quota in vm.quota.iter_mut().chain(&mut vm.limits) {
            quota.periods += self.below(100);
            quota
                .used_ns
                .values_mut()
                .for_each(|ns| *ns += self.below(most_ns));
        }
        vm.topology = Some(Arc::new(Topology {
            interrupts,
            ..Topology::default()
        }));
    }

    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.numbers, bound)
    }

    /// A small share with six decimal places, as a judgement has.
    fn share(&mut self) -> f64 {
        let millionths = u32::try_from(self.below(20_000)).expect("it is small");
        f64::from(millionths) / 1e6
    }
}

/// The next number of an LCG (Knuth's constants) below a bound.
fn below(numbers: &mut u64, bound: u64) -> u64 {
    *numbers = numbers
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*numbers >> 16) % bound.max(1)
}
