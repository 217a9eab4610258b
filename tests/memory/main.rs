//! Memory that guests give back and take again, inside a VM of tests/vm.
//!
//! The VMMs are minivms, which issue the madvise calls they are ordered to, and QEMUs
//! whose Linux guests have a balloon. The agent's counts are compared with every system
//! call of the VMM and with the orders of the tests.

mod cost;
mod cycle;
mod guest;
mod migration;
mod minivms;

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use virtlens::collect::Collector;
use virtlens_model::snapshot::{Memory, Snapshot};
use virtlens_model::vocab::Discards;
use virtlens_tests::calls::Calls;
use virtlens_tests::reader;

const MIB: u64 = 1 << 20;

/// The agent and the oracle.
struct Bench {
    agent: Agent,
    calls: Calls,
}

/// The one bench of all tests, which run one at a time. The machine has two emulated
/// CPUs, and attaching programs patches the kernel, which such a machine does not always
/// survive.
fn bench() -> MutexGuard<'static, Bench> {
    static BENCH: OnceLock<Mutex<Bench>> = OnceLock::new();
    let bench = BENCH.get_or_init(|| {
        // With huge pages a guest that touches one page may take 2 MiB.
        fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never").expect("it is root");
        Mutex::new(Bench {
            agent: Agent::new(),
            calls: Calls::attach(),
        })
    });
    bench.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bench {
    /// Watches the VM of a process with `ram_bytes` of RAM from now on.
    fn look_at(&mut self, pid: u32, ram_bytes: u64) {
        self.agent.find(pid);
        self.calls.watch(pid, ram_bytes);
    }
}

/// An agent with the memory programs attached.
struct Agent {
    collector: Collector,
}

impl Agent {
    fn new() -> Self {
        let collector = Collector::open(&reader::options());
        let mut agent = Self {
            collector: collector.expect("the host can be read"),
        };
        let snapshot = agent.collector.collect();
        let memory = snapshot.sources.iter().find(|one| one.name == "memory");
        let memory = memory.expect("it is always shown");
        assert!(memory.up, "memory is off: {}", memory.reason);
        agent
    }

    /// Memory of the VM of this process.
    fn memory_of(&mut self, pid: u32) -> Memory {
        let snapshot = self.collector.collect();
        assert_nothing_dropped(&snapshot);
        reader::vm(&snapshot, pid).memory.clone()
    }

    /// Checks raised by the VM's activity since the last call.
    fn judge(&mut self, pid: u32) -> BTreeSet<&'static str> {
        let snapshot = self.collector.collect_judged();
        let findings = reader::vm(&snapshot, pid).findings.as_deref();
        let findings = findings.expect("it was judged before");
        for finding in findings {
            println!("{}: {}", finding.check.name(), finding.evidence);
        }
        findings.iter().map(|one| one.check.name()).collect()
    }

    /// Discards of its RAM.
    fn discards_of(&mut self, pid: u32) -> Discards {
        self.memory_of(pid).discards.expect("they are followed")
    }

    /// Reads until the agent knows where the VM's RAM lies; no call is missed after that.
    fn find(&mut self, pid: u32) {
        virtlens_tests::eventually("the VM to be found", || {
            let snapshot: Arc<Snapshot> = self.collector.collect();
            let vm = snapshot.vms.iter().find(|vm| vm.pid == pid)?;
            vm.memory.guest_bytes
        });
        self.collector.collect();
    }
}

fn assert_nothing_dropped(snapshot: &Snapshot) {
    for dropped in &snapshot.dropped {
        let of_memory = ["memslots", "ram_pieces", "discards_at_once"].contains(&dropped.reason);
        assert!(!of_memory || dropped.count == 0, "{dropped:?}");
    }
}
