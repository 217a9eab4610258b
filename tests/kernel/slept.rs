//! Threads that have slept since the former pass are emitted as references to it
//! (`bpf/slept.bpf.h`). The oracle is a pass right after it that emits all threads in full: a
//! pass does so if the facts of the one before were not recycled.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use virtlens_model::facts::{Facts, ThreadFact};
use virtlens_model::vocab::SchedClass;
use virtlens_probe::OBJECT;
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_probe::plan::plan;
use virtlens_probe::source::TaskPass;
use virtlens_tests::process::{Schedstat, set_affinity, set_fifo, tids};
use virtlens_tests::{Minivm, TestCgroup, eventually, need, reader};

/// Whether the pass can refer to the former one. The loader of the suite does not matter: aya
/// loads no program that walks.
fn ready(test: &str) -> bool {
    let walks = KernelFacts::probe(Path::new("/")).task_walk;
    let walks = need::that("task_walk", walks, "the kernel lets no program walk");
    reader::ready(test) && need::all(test, [walks, need::cpu_cgroup()])
}

fn source(cgroup: &TestCgroup) -> TaskPass {
    let root = Path::new("/");
    let (object, plan) = (OBJECT, plan(&KernelFacts::probe(root)));
    let loaded = TaskPass::load_object(object, root, Loader::Libbpf, plan, cgroup.is_v1(), None);
    loaded.expect("the kernel loads it")
}

/// Reads until some threads of the last reading are references.
fn settled(source: &mut TaskPass) {
    eventually("a pass refers to the former one", || {
        let facts = source.read().expect("a reading");
        source.accounted();
        source.recycle(facts);
        (source.slept_threads() > 0).then_some(())
    });
}

/// Two readings, with references and then in full.
struct Pair {
    with_references: Facts,
    full: Facts,
    /// Number of threads that the first reading refers to.
    references: usize,
    /// The threads of the VMs that did not run meanwhile, according to /proc.
    slept: BTreeSet<u32>,
}

impl Pair {
    #[track_caller]
    fn read(source: &mut TaskPass, pids: &[u32]) -> Self {
        let before = times(pids);
        let with_references = source.read().expect("a reading");
        let references = source.slept_threads();
        assert!(references > 0);
        let full = source.read().expect("a reading");
        assert_eq!(source.slept_threads(), 0);
        let after = times(pids);
        let slept = before
            .iter()
            .filter(|(tid, time)| after.get(tid) == Some(time));
        Self {
            with_references,
            full,
            references,
            slept: slept.map(|(tid, _)| *tid).collect(),
        }
    }

    /// Fails unless both readings have the same threads of a VM, and those that slept are equal.
    /// Returns their number.
    #[track_caller]
    fn compare(&self, pid: u32) -> usize {
        let (one, other) = (of(&self.with_references, pid), of(&self.full, pid));
        assert!(one.keys().eq(other.keys()), "{one:?}\n{other:?}");
        let mut slept = 0;
        for (tid, thread) in one.iter().filter(|(tid, _)| self.slept.contains(tid)) {
            assert_eq!(thread, &other[tid]);
            slept += 1;
        }
        slept
    }
}

/// CPU time of each thread of the processes.
fn times(pids: &[u32]) -> BTreeMap<u32, u64> {
    let of = |pid: &u32| {
        let pid = *pid;
        tids(pid).into_iter().filter_map(move |tid| {
            let stat = Schedstat::read(pid, tid)?;
            Some((tid.cast_unsigned(), stat.cpu_ns))
        })
    };
    pids.iter().flat_map(of).collect()
}

fn of(facts: &Facts, pid: u32) -> BTreeMap<u32, &ThreadFact> {
    let threads = facts.threads.iter().filter(|thread| thread.tgid == pid);
    threads.map(|thread| (thread.tid, thread)).collect()
}

#[test]
fn threads_that_slept_equal_those_of_a_full_pass() {
    if !ready("threads_that_slept_equal_those_of_a_full_pass") {
        return;
    }
    let halted = Minivm::start(["--vcpus", "6", "--start", "halt", "--thread", "pool=4"]);
    let mut mixed = Minivm::start(["--vcpus", "4", "--start", "halt", "--thread", "pool=4"]);
    let cgroup = TestCgroup::new("virtlens-slept-equal");
    let mut source = source(&cgroup);
    settled(&mut source);
    for round in 0..20 {
        mixed.burn_vcpus("2", 2);
        let burned = mixed.burn_threads("1", 2);
        let pids = [halted.pid(), mixed.pid()];
        let pair = Pair::read(&mut source, &pids);
        for pid in pids {
            // KVM wakes all vCPUs of a VM now and then, to update their clocks.
            let slept = pair.compare(pid);
            assert!(slept >= 4, "round {round}: {slept} threads slept");
        }
        let ran = of(&pair.with_references, mixed.pid())[&burned[0].tid.cast_unsigned()];
        assert_eq!(ran.cpu_ns, burned[0].cpu_ns, "a thread that ran is read");
        source.recycle(pair.full);
        settled(&mut source);
    }
}

/// Threads that are created or exit shift the places of all threads behind them.
#[test]
fn threads_that_come_and_go_shift_references() {
    if !ready("threads_that_come_and_go_shift_references") {
        return;
    }
    let args = ["--vcpus", "3", "--start", "halt", "--thread", "pool=4"];
    let mut vms: Vec<Minivm> = (0..6).map(|_| Minivm::start(args)).collect();
    let cgroup = TestCgroup::new("virtlens-slept-shift");
    let mut source = source(&cgroup);
    settled(&mut source);
    for round in 0..12 {
        let changed = round % vms.len();
        match round % 3 {
            0 => drop(vms[changed].plug("halt")),
            // A reference ends before the thread that exits, and another begins behind it.
            1 => drop(vms[changed].unplug(if round < 6 { 2 } else { 1 })),
            _ => vms[changed] = Minivm::start(args),
        }
        if round % 3 == 2 {
            // Passes after the start of a VM emit all threads in full.
            settled(&mut source);
        }
        let pids: Vec<u32> = vms.iter().map(Minivm::pid).collect();
        let pair = Pair::read(&mut source, &pids);
        // Also to threads behind one that has exited.
        assert!(
            2 * pair.references >= pair.slept.len(),
            "round {round}: {} references, {} threads slept",
            pair.references,
            pair.slept.len()
        );
        for pid in pids {
            let slept = pair.compare(pid);
            assert!(slept >= 4, "round {round}: {slept} threads slept");
            let seen = of(&pair.with_references, pid);
            let there: BTreeSet<u32> = tids(pid).into_iter().map(i32::cast_unsigned).collect();
            assert!(seen.keys().copied().eq(there), "round {round}");
        }
        source.recycle(pair.full);
        settled(&mut source);
    }
}

/// A name, affinity, policy or cgroup that another process sets for a sleeping thread.
#[test]
fn change_of_a_sleeping_thread_is_in_the_next_reading() {
    if !ready("change_of_a_sleeping_thread_is_in_the_next_reading") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "3", "--start", "halt", "--thread", "pool=4"]);
    let pid = guest.pid();
    let (vcpu, helper) = (guest.ready.vcpus[2].tid, guest.ready.threads[0].tid);
    let cgroup = TestCgroup::new("virtlens-slept-change");
    let mut source = source(&cgroup);
    let mut next = |guest: &mut Minivm,
                    change: &dyn Fn(&mut Minivm),
                    is_changed: &dyn Fn(&ThreadFact) -> bool| {
        settled(&mut source);
        change(guest);
        let facts = source.read().expect("a reading");
        for tid in [vcpu, helper] {
            let thread = of(&facts, pid)[&tid.cast_unsigned()];
            assert!(is_changed(thread), "{thread:?}");
        }
        source.recycle(facts);
    };

    next(
        &mut guest,
        &|guest| guest.rename_thread(0, "renamed"),
        // The time before a new name counts for the former role.
        &|thread| {
            let is_renamed = thread.comm.to_string() == "renamed" && thread.cpu_ns == 0;
            thread.vcpu.is_some() || is_renamed
        },
    );
    next(
        &mut guest,
        &|guest| drop(guest.command("rename process leader")),
        &|thread| thread.process_comm.to_string() == "leader",
    );
    let both = [vcpu, helper].into_iter();
    next(
        &mut guest,
        &|_| both.clone().for_each(|tid| set_affinity(tid, &[0])),
        &|thread| thread.affinity.as_ref().map(ToString::to_string) == Some("0".to_owned()),
    );
    next(
        &mut guest,
        &|_| both.clone().for_each(|tid| set_fifo(tid, true)),
        &|thread| thread.sched_class == Some(SchedClass::Realtime),
    );
    next(
        &mut guest,
        &|_| both.clone().for_each(|tid| set_fifo(tid, false)),
        &|thread| thread.sched_class == Some(SchedClass::Fair),
    );
    // The last change, because v1 may allow no realtime threads in a new cgroup.
    let id = fs::metadata(cgroup.dir()).expect("it exists").ino();
    next(
        &mut guest,
        &|_| {
            if cgroup.is_v1() {
                both.clone().for_each(|tid| cgroup.add_thread(tid));
            } else {
                cgroup.add_process(pid);
            }
        },
        &|thread| thread.cgroup.0 == id,
    );
}
