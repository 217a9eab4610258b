//! Memory of `top` on a cluster, by the bytes that it allocates.

#![expect(
    unsafe_code,
    reason = "an allocator that counts what it passes on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use virtlens::views::top::lists::Lister;
use virtlens::views::top::state::Top;
use virtlens_model::snapshot::Snapshot;
use virtlens_tests::fixture;

/// Bytes in use.
static USED: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: both calls are passed on to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const NODES: usize = 100;
const VMS_OF_NODE: usize = 40;

/// The JSON of two readings of a node.
fn readings() -> [String; 2] {
    [1, 2].map(|second| {
        let mut reading = fixture::snapshot();
        reading.clock_ns = second * 1_000_000_000;
        let vm = reading.vms[0].clone();
        let numbered = (0..VMS_OF_NODE).map(|number| {
            let mut vm = vm.clone();
            vm.vm = format!("{}-{number}", vm.vm).into();
            vm
        });
        reading.vms = numbered.collect();
        serde_json::to_string(&reading).expect("JSON")
    })
}

fn parsed(json: &str) -> Snapshot {
    serde_json::from_str(json).expect("a reading")
}

/// Bytes that `made` keeps in use per node.
fn bytes_per_node<T>(make: impl FnOnce() -> T) -> usize {
    let before = USED.load(Ordering::Relaxed);
    let made = make();
    let used = USED.load(Ordering::Relaxed) - before;
    drop(made);
    used / NODES
}

/// One test only, because the count is that of the process.
#[test]
fn list_of_a_cluster_needs_a_fraction_of_its_readings() {
    let texts = readings();
    let whole = bytes_per_node(|| {
        let nodes = (0..NODES).map(|_| texts.each_ref().map(|text| Arc::new(parsed(text))));
        nodes.collect::<Vec<_>>()
    });
    let listed = bytes_per_node(|| {
        let names = (0..NODES).map(|number| format!("node-{number}"));
        let mut top = Top::of_cluster(Duration::from_secs(1), names);
        let mut listers = Vec::new();
        for number in 0..NODES {
            let mut lister = Lister::new(number, "node");
            for text in &texts {
                let listed = lister.list(&parsed(text));
                top.list_of(number, listed.expect("it is new"));
            }
            listers.push(lister);
        }
        assert_eq!(top.rows().len(), NODES * VMS_OF_NODE);
        (top, listers)
    });
    println!("a node of {VMS_OF_NODE} VMs: two readings {whole} bytes, its list {listed} bytes");
    assert!(listed * 4 < whole, "{listed} bytes, of {whole}");
}
