//! Runs the agent with libvirt inside a VM of tests/vm: domains with limits and pins for
//! each kind of thread, which change at run time.
//!
//! The agent's values are compared with virsh, QEMU's monitor, `cpu.stat` and `/proc`.
//! Cgroup paths also come from `/proc`, so it does not matter whether systemd or libvirt
//! created the cgroups.

mod agent;
mod cpu;
mod domain;
mod guest;
mod life;
mod limits;
mod manager;
mod memory;
mod pins;
mod roles;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use agent::Agent;
use guest::Guest;
use manager::Libvirt;

/// The domain with limits, pins and all devices.
const DB: &str = "db-01";

/// The domain with one vCPU and no further devices.
const PLAIN: &str = "plain_b";

/// libvirt with its domains, and the agent.
struct Bench {
    libvirt: Libvirt,
    agent: Agent,
    guest: Guest,
    /// Loads that are running in the guest.
    loads: Vec<&'static str>,
    /// Whether the limits differ from those of `db-01.xml`.
    is_limited: bool,
}

/// The one bench of all tests, which run one at a time and restore its state. The agent
/// runs through all of them.
fn bench() -> MutexGuard<'static, Bench> {
    static BENCH: OnceLock<Mutex<Bench>> = OnceLock::new();
    static IS_FIRST: AtomicBool = AtomicBool::new(true);
    let bench = BENCH.get_or_init(|| {
        let is_first = IS_FIRST.swap(false, Ordering::Relaxed);
        assert!(
            is_first,
            "libvirt did not start: the first test that failed says why"
        );
        Mutex::new(Bench::start())
    });
    let mut bench = bench.lock().unwrap_or_else(PoisonError::into_inner);
    bench.restore();
    bench
}

impl Bench {
    fn start() -> Self {
        let libvirt = Libvirt::start();
        let mut agent = Agent::open();
        domain::define(&libvirt);
        let started = std::time::Instant::now();
        libvirt.virsh("start plain_b");
        libvirt.virsh("start db-01");
        println!("virsh start: {} s", started.elapsed().as_secs());
        let guest = Guest::wait();
        println!("the guest is up after {} s", started.elapsed().as_secs());
        agent.find(DB, 2);
        agent.find(PLAIN, 1);
        Self {
            libvirt,
            agent,
            guest,
            loads: Vec::new(),
            is_limited: false,
        }
    }

    /// Reverts the changes of a failed test.
    fn restore(&mut self) {
        self.agent.take_falls();
        // With hardly any CPU time a guest takes long to stop a load.
        if std::mem::take(&mut self.is_limited) {
            self.set_limits(domain::USUAL_US);
        }
        for load in std::mem::take(&mut self.loads) {
            self.guest.order(&format!("stop {load}"));
        }
        let virsh = |command: String| self.libvirt.virsh(&command);
        for (vcpu, cpu) in domain::VCPU_PINS {
            virsh(format!("vcpupin {DB} {vcpu} {cpu} --live"));
        }
        virsh(format!("emulatorpin {DB} {} --live", domain::EMULATOR_PIN));
        virsh(format!(
            "iothreadpin {DB} 1 {} --live",
            domain::IOTHREAD_PIN
        ));
    }

    /// Sets limits by their names in `virsh schedinfo`, µs per period.
    fn set_limits(&self, limits: &[(&str, u64)]) {
        let words = limits.iter().map(|(name, us)| format!(" {name}={us}"));
        let words: String = words.collect();
        self.libvirt.virsh(&format!("schedinfo {DB} --live{words}"));
    }

    /// Runs `work` with these limits, then restores the domain's own.
    fn with_limits<T>(&mut self, limits: &[(&str, u64)], work: impl FnOnce(&mut Self) -> T) -> T {
        self.is_limited = true;
        self.set_limits(limits);
        let seen = work(self);
        self.set_limits(domain::USUAL_US);
        self.is_limited = false;
        seen
    }

    /// Runs `work` with a load in the guest.
    fn under<T>(&mut self, load: &'static str, work: impl FnOnce(&mut Self) -> T) -> T {
        self.loads.push(load);
        self.guest.order(&format!("start {load}"));
        let seen = work(self);
        self.guest.order(&format!("stop {load}"));
        self.loads.pop();
        seen
    }

    /// Fails if any exported counter fell since the test began.
    fn assert_no_counter_fell(&mut self) {
        self.agent.read();
        let falls = self.agent.take_falls();
        assert!(falls.is_empty(), "counters fell: {falls:#?}");
    }
}
