//! State of VMs that ended before a reading could admit them.

use std::fs;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use virtlens_tests::reader;
use virtlens_tests::root::Root;

use crate::pinned;

/// A pid above every limit (`PID_MAX_LIMIT`, `include/linux/threads.h`).
const NO_PID: u32 = 5 << 20;

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
    let maps = fs::read_dir(root.pins().join("maps")).expect("it is there");
    let mut maps = maps.map(|map| map.expect("it can be read"));
    let vms = maps.find(|map| map.file_name().to_string_lossy().starts_with("vms-"));
    let vms = MapHandle::from_pinned_path(vms.expect("it is pinned").path());
    let vms = vms.expect("it can be opened");
    let key = NO_PID.to_ne_bytes();
    let mut value = vec![0; vms.value_size() as usize];
    // Its start time.
    value[0] = 1;
    vms.update(&key, &value, MapFlags::NO_EXIST)
        .expect("it has room");
    collector.collect_judged();
    let left = vms.lookup(&key, MapFlags::ANY).expect("it can be read");
    assert_eq!(left, None);
}
