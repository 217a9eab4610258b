//! The page with as many VMs as hosts of microVMs have.

use std::sync::Arc;
use std::time::Duration;

use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_record::{Limits, Recorder};
use virtlens_tests::fixture;

use crate::browser::Browser;
use crate::scene::{self, Page};

const VMS: u32 = 4000;

/// Time of the first reading, ns since 1970, and of the readings of the fixture.
const START_NS: u64 = 1_767_225_600_000_000_000;

/// A reading of [`VMS`] VMs, which differ in their CPU time.
fn reading(second: u32) -> Snapshot {
    let mut snapshot = fixture::snapshot();
    let vm = snapshot.vms.remove(0);
    snapshot.time = format!("2026-01-01T00:00:{second:02}Z");
    snapshot.clock_ns = u64::from(second) * 1_000_000_000;
    let numbered = |number: u32| {
        let mut vm = Vm {
            vm: Arc::from(format!("micro-{number:04}")),
            pod: None,
            namespace: None,
            pid: 10_000 + number,
            ..vm.clone()
        };
        for role in &mut vm.roles {
            role.cpu_ns += u64::from(second * number) * 1000;
        }
        vm
    };
    snapshot.vms = (0..VMS).map(numbered).collect();
    snapshot
}

#[test]
fn recording_of_4000_vms_is_shown_sorted_and_searched() {
    if !scene::is_possible("recording_of_4000_vms_is_shown_sorted_and_searched") {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let limits = Limits {
        max_bytes: 1 << 30,
        max_age: Duration::from_hours(24),
    };
    let recorder = Recorder::open(folder.path(), limits, "node-a", "0.1.0", None);
    let mut recorder = recorder.expect("the folder is ours");
    for second in 0..3 {
        let at_ns = START_NS + u64::from(second) * 1_000_000_000;
        recorder
            .record(&reading(second), at_ns)
            .expect("there is room");
    }
    drop(recorder);
    let page = Page::start(&["--from", folder.path().to_str().expect("text")]);
    let browser = Browser::start(1280);
    browser.open(&page.url);
    browser.wait(
        "all VMs",
        "return document.querySelector('.vms')?.getAttribute('aria-rowcount') === '4001'",
    );
    let drawn = "return document.querySelectorAll('.vms .name').length";
    let count = browser.run(drawn).as_u64().expect("a number");
    // Only rows on the screen exist.
    assert!((5..200).contains(&count), "{count} rows");
    browser.wait(
        "the busiest VM first",
        "return document.querySelector('.vms .name')?.textContent === 'micro-3999'",
    );
    browser.run("window.scrollTo(0, document.body.scrollHeight)");
    browser.wait(
        "the VM that did nothing last",
        "return [...document.querySelectorAll('.vms .name')].at(-1)?.textContent === 'micro-0000'",
    );
    browser.run(
        "const box = document.querySelector('#search'); box.value = 'micro-123'; \
         box.dispatchEvent(new Event('input', { bubbles: true }))",
    );
    browser.wait(
        "the VMs with the name",
        "return document.querySelector('.vms').getAttribute('aria-rowcount') === '11'",
    );
    browser.run("location.hash = '#/vm/micro-1234'");
    browser.wait(
        "the view of a VM",
        "return document.querySelector('h1')?.textContent === 'micro-1234'",
    );
    browser.run("location.hash = '#/map'");
    browser.wait(
        "the map",
        "return document.querySelectorAll('.map .thread').length > 0",
    );
    assert_eq!(browser.errors(), Vec::<String>::new());
}
