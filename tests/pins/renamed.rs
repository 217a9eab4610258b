//! Threads that change their role while no agent runs.

use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::Role;
use virtlens_tests::process::{Schedstat, tids};
use virtlens_tests::reader::{self, MS, all_ns, assert_close, cpu_ns, vm};
use virtlens_tests::root::{Root, TASK_STORAGE};
use virtlens_tests::{Launch, Minivm, binary};

use crate::pinned;

fn roles(vm: &Vm) -> [u64; 3] {
    [Role::Vcpu, Role::Iothread, Role::Emulator].map(|role| cpu_ns(vm, role))
}

/// One thread is renamed and one becomes a vCPU. Their earlier CPU time stays with the
/// former role, with task storage and with the hash map.
#[test]
fn role_change_without_agent_leaves_time_to_former_role() {
    if !reader::ready("role_change_without_agent_leaves_time_to_former_role") {
        return;
    }
    for knows_task_storage in [true, false] {
        let root = Root::with_bpffs();
        root.set_knows(TASK_STORAGE, knows_task_storage);
        let dir = tempfile::tempdir().expect("a folder can be made");
        let file = dir.path().join("qemu-system-x86_64");
        std::fs::copy(binary("minivm"), &file).expect("there is room for a copy");
        let args = ["--vcpus", "1", "--thread", "worker=1"];
        let mut guest = Minivm::start_launch(Launch::new(&file).args(args));
        let pid = guest.pid();
        let late = guest.plug("pause");
        let run_ns = |tid| Schedstat::read(pid, tid).expect("it lives").cpu_ns;

        let mut collector = pinned(&root);
        collector.collect();
        guest.burn_threads("0", 83);
        guest.burn_in_user_space(late.index, 61);
        let before = collector.collect();
        let [_, _, emulator] = roles(vm(&before, pid));
        assert!(emulator >= 144 * MS, "both are the emulator's");
        drop(collector);

        let worked_ns = run_ns(guest.ready.threads[0].tid);
        guest.rename_thread(0, "IO io0");
        guest.burn_threads("0", 37);
        guest.burn_vcpus(&late.index.to_string(), 29);
        let mut collector = pinned(&root);
        for _ in 0..2 {
            let snapshot = collector.collect();
            let found = vm(&snapshot, pid);
            let [_, iothread, still] = roles(found);
            assert!(still >= emulator, "the emulator fell to {still}");
            let of_iothread = run_ns(guest.ready.threads[0].tid) - worked_ns;
            assert_close("iothread", iothread, of_iothread, MS);
            let used: u64 = tids(pid).into_iter().map(run_ns).sum();
            assert_close("all roles", all_ns(found), used, MS);
            assert!(found.vcpus[1].cpu_ns <= 29 * MS + MS, "{:?}", found.vcpus);
        }
        let receipt = guest.burn_vcpus(&late.index.to_string(), 23);
        let before = vm(&collector.collect(), pid).vcpus[1].cpu_ns;
        assert!(before >= receipt[0].burned_ns, "a vCPU by now: {before}");
    }
}
