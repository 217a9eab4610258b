//! The wall clock is set, as a time service does on a host with a wrong clock. Counters
//! and durations use clocks that cannot be set. The test is in this suite because it
//! needs a machine for itself.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::Role;
use virtlens_tests::process::Schedstat;
use virtlens_tests::seats::agent;
use virtlens_tests::{Minivm, reader};

const HOUR_S: i64 = 3600;

/// Sets the wall clock some seconds off, and restores it on drop.
struct Wrong {
    began: Instant,
    right: Timespec,
}

impl Wrong {
    fn by(seconds: i64) -> Self {
        let right = clock_gettime(ClockId::Realtime);
        let wrong = Self {
            began: Instant::now(),
            right,
        };
        set(Timespec {
            tv_sec: right.tv_sec + seconds,
            ..right
        });
        wrong
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        let began = Duration::try_from(self.right).expect("after 1970");
        let now = began + self.began.elapsed();
        set(now.try_into().expect("far from its end"));
    }
}

fn set(time: Timespec) {
    clock_settime(ClockId::Realtime, time).expect("root may set it");
}

fn vcpu_ns(snapshot: &Snapshot, pid: u32) -> u64 {
    let mut roles = reader::vm(snapshot, pid).roles.iter();
    roles
        .find(|one| one.role == Role::Vcpu)
        .expect("it has one")
        .cpu_ns
}

#[test]
fn wall_clock_change_does_not_affect_values() {
    let mut vm = Minivm::start(["--vcpus", "2", "--name", "timeless"]);
    let mut agent = agent();
    let mut last = agent.collect_judged();
    for seconds in [HOUR_S, -HOUR_S, HOUR_S] {
        vm.burn_vcpus("all", 11);
        let began = Instant::now();
        let wrong = Wrong::by(seconds);
        let low: u64 = truth_ns(&vm);
        let now = agent.collect_judged();
        let range = low..=truth_ns(&vm);
        drop(wrong);
        let back = agent.collect_judged();
        let took = u64::try_from(began.elapsed().as_nanos()).expect("some seconds");

        let used = vcpu_ns(&now, vm.pid());
        assert!(range.contains(&used), "{used} is not in {range:?}");
        for (before, after) in [(&last, &now), (&now, &back)] {
            assert!(
                after.clock_ns > before.clock_ns,
                "the agent's own clock goes on"
            );
            let own = reader::vm(after, vm.pid());
            assert!(own.running && &*own.vm == "timeless", "{own:?}");
            let read_ns = after.sources.iter().filter_map(|one| one.duration_ns).max();
            assert!(
                read_ns.is_some_and(|ns| ns <= took),
                "{read_ns:?} in {took}"
            );
        }
        assert!(back.clock_ns - now.clock_ns <= took);
        assert_ne!(
            now.time[..13],
            back.time[..13],
            "deviation of the wall clock: {}",
            now.time
        );
        last = back;
    }
}

/// CPU time of the vCPUs according to the kernel, ns.
fn truth_ns(vm: &Minivm) -> u64 {
    let tids = vm.ready.vcpus.iter().map(|vcpu| vcpu.tid);
    tids.map(|tid| Schedstat::read(vm.pid(), tid).expect("it lives").cpu_ns)
        .sum()
}
