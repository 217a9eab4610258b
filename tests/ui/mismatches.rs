//! The map of a machine with SMT, caches and NUMA nodes, from a recording that an agent made there
//! next to VMs with each kind of mismatch (`scripts/record-misplaced`).

use std::env;
use std::path::PathBuf;

use serde_json::Value;
use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::MismatchKind;
use virtlens_tests::need::{self, Missing, that};

use crate::browser::{self, Browser};
use crate::keyboard::violations;
use crate::scene::Page;

/// The last recorded reading, from the API of the page.
const READING: &str = "
    const token = sessionStorage.getItem('virtlens-authorization');
    const answer = await fetch('api/v1/snapshot', { headers: { Authorization: token } });
    return await answer.text();";

fn recording() -> Result<PathBuf, Missing> {
    let path = env::var_os("VIRTLENS_MISPLACED").map(PathBuf::from);
    let found = path.filter(|path| path.is_dir());
    let cause = "VIRTLENS_MISPLACED names no recording; run scripts/test ui";
    that("misplaced", found.is_some(), cause)?;
    Ok(found.unwrap_or_default())
}

/// Opens the view `map` of a recording.
fn open(page: &Page) -> Browser {
    let browser = Browser::start(1280);
    browser.open(&page.url);
    browser.wait(
        "a reading",
        "return document.documentElement.dataset.before",
    );
    browser.run("location.hash = '#/map'");
    browser.wait(
        "vCPUs",
        "return document.querySelectorAll('.chip').length > 10",
    );
    browser
}

/// Whether the map shows the mark of this mismatch, as a condition in JavaScript.
fn mark(kind: MismatchKind, vm: &str, vcpus: &[u32], pcpus: &[u32]) -> String {
    let name = kind.name();
    let chip = |vcpu: &u32| {
        format!(
            "Boolean(document.querySelector('.chip.misplaced[data-vm=\"{vm}\"][data-vcpu=\"{vcpu}\"]'))"
        )
    };
    let chips = vcpus.iter().map(chip).collect::<Vec<_>>().join(" && ");
    let drawn = match kind {
        MismatchKind::VcpuOverlap | MismatchKind::HelperOnVcpu => {
            let signs = pcpus.iter().map(|cpu| {
                format!("[...document.querySelectorAll('.thread.bad')].some((box) => box.querySelector('.label').textContent.startsWith('CPU {cpu} ') && box.querySelector('.signs[data-kinds~={name}]')?.textContent)")
            });
            signs.collect::<Vec<_>>().join(" && ")
        }
        MismatchKind::RemoteMemory => format!(
            "Boolean(document.querySelector('.box.node .memory[data-memory-of=\"{vm}\"]')) && document.querySelectorAll('.lines path[data-kind={name}]').length === 1"
        ),
        _ => format!("document.querySelectorAll('.lines path[data-kind={name}]').length === 1"),
    };
    format!("return {chips} && {drawn}")
}

#[test]
fn map_marks_each_kind_of_mismatch_of_smt_machine() {
    let found = recording();
    let needs = [
        browser::browser(),
        found.as_ref().map(drop).map_err(Clone::clone),
    ];
    if !need::all("map_marks_each_kind_of_mismatch_of_smt_machine", needs) {
        return;
    }
    let path = found.expect("it was checked");
    let page = Page::start(&["--from", path.to_str().expect("text")]);
    let browser = open(&page);
    let text = browser.run_async(READING);
    let reading: Snapshot = serde_json::from_str(text.as_str().expect("text")).expect("JSON");
    // Each VM has one mismatch: the list of them is complete, and no mark belongs to another one.
    let mut kinds = Vec::new();
    for vm in &reading.vms {
        let topology = vm.topology.as_ref().expect("it is judged");
        for one in &topology.mismatches {
            let one = &one.mismatch;
            let pcpus: Vec<u32> = one.pcpus.iter().collect();
            let name = &*vm.vm;
            browser.wait(one.kind.name(), &mark(one.kind, name, &one.vcpus, &pcpus));
            let item = format!(
                "return document.querySelector('.problems [data-kind={}][data-of=\"{name}\"]')?.innerText",
                one.kind.name()
            );
            let shown = browser.wait("its sentence", &item);
            let shown = shown.as_str().expect("text");
            assert!(shown.contains(&one.evidence), "{shown}: {one:?}");
            assert!(shown.contains(&one.remedy), "{shown}: {one:?}");
            assert!(!one.remedy.is_empty(), "{one:?}");
            kinds.push(one.kind);
        }
    }
    kinds.sort_unstable();
    let mut all = MismatchKind::ALL.to_vec();
    all.sort_unstable();
    assert_eq!(kinds, all);
    let listed = browser.run("return document.querySelectorAll('.problems [data-kind]').length");
    assert_eq!(listed, Value::from(all.len()));
    let good = "return document.querySelectorAll('.chip.misplaced[data-vm=\"mail-0\"]').length";
    assert_eq!(browser.run(good), 0);
    browser.picture("mismatches");
    assert_eq!(violations(&browser), Value::Array(Vec::new()));
    assert_eq!(browser.errors(), Vec::<String>::new());
}
