//! State of VMs that ended before a reading could admit them.

use libbpf_rs::{MapCore as _, MapFlags};
use virtlens_abi::map::CHANGE_VMS;
use virtlens_tests::reader;
use virtlens_tests::root::Root;

use crate::{pinned, pinned_map};

/// A pid above every limit (`PID_MAX_LIMIT`, `include/linux/threads.h`).
const NO_PID: u32 = 5 << 20;

/// Counts a change of the keys of map `vms`, as the programs do.
fn count_change(root: &Root) {
    let changes = pinned_map(root, "changes").expect("it is pinned");
    let key = CHANGE_VMS.to_ne_bytes();
    let counts = changes.lookup_percpu(&key, MapFlags::ANY);
    let mut counts = counts.expect("it can be read").expect("it has this index");
    counts[0][0] += 1;
    changes
        .update_percpu(&key, &counts, MapFlags::ANY)
        .expect("it can be written");
}

/// A pass that finds a new VM is repeated, and the VM can end in between: the programs
/// know it then, and no reading contains it. The entry stands for such a VM.
#[test]
fn state_of_vm_that_ended_before_it_was_admitted_is_removed() {
    if !reader::ready("state_of_vm_that_ended_before_it_was_admitted_is_removed") {
        return;
    }
    let root = Root::with_bpffs();
    let mut collector = pinned(&root);
    collector.collect();
    let vms = pinned_map(&root, "vms").expect("it is pinned");
    let key = NO_PID.to_ne_bytes();
    let mut value = vec![0; vms.value_size() as usize];
    // Its start time.
    value[0] = 1;
    vms.update(&key, &value, MapFlags::NO_EXIST)
        .expect("it has room");
    count_change(&root);
    collector.collect_judged();
    let left = vms.lookup(&key, MapFlags::ANY).expect("it can be read");
    assert_eq!(left, None);
}
