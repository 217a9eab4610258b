//! Accessibility: axe-core finds no violation, and the keyboard reaches everything.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::browser::{Browser, ENTER, TAB};
use crate::scene::{self, BUSY, Vms, url};

/// Levels A and AA.
const AXE: &str = "
    const found = await axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] });
    return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html + ' ' + node.failureSummary).join(' | ')}`);";

pub(crate) fn violations(browser: &Browser) -> Value {
    let axe = std::env::var("VIRTLENS_AXE").expect("scripts/test ui sets it");
    let script = std::fs::read_to_string(axe).expect("it is unpacked");
    browser.run(&script);
    browser.run_async(AXE)
}

#[test]
fn axe_finds_no_violation_in_any_view_in_light_and_dark() {
    if !scene::is_possible("axe_finds_no_violation_in_any_view_in_light_and_dark") {
        return;
    }
    let _vms = Vms::start();
    let folder = tempfile::tempdir().expect("a directory");
    let agent = scene::recording_agent(folder.path());
    for width in [1280, 500] {
        let browser = Browser::start(width);
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            for view in ["node", "map", &format!("vm/{BUSY}")] {
                browser.open(&url(&agent, view));
                browser.wait("rates", "return document.documentElement.dataset.before");
                browser.wait(
                    "the time line",
                    "return Boolean(document.querySelector('.timeline')?.offsetParent)",
                );
                let found = violations(&browser);
                assert_eq!(
                    found,
                    Value::Array(Vec::new()),
                    "{view} in {scheme} at {width}"
                );
                let name = view.split('/').next().unwrap_or_default();
                browser.picture(&format!("{name}-{scheme}-{width}"));
                let is_wide =
                    browser.run("return document.documentElement.scrollWidth > innerWidth + 1");
                assert_eq!(is_wide, false, "{view} scrolls sideways at {width}");
            }
        }
    }
}

/// Elements that a keyboard must reach, by number.
const MARK: &str = "
    const all = [...document.querySelectorAll('a[href], button, input, select, [tabindex=\"0\"]')];
    const seen = all.filter((one) => one.checkVisibility() && !one.disabled);
    seen.forEach((one, index) => one.dataset.number = index);
    return seen.length;";

/// Presses Tab through the page; returns how many elements did not get the focus.
fn unreached(browser: &Browser) -> usize {
    let count = browser.run(MARK).as_u64().expect("a number");
    let count = usize::try_from(count).expect("few");
    assert!(count > 8, "{count}");
    let mut reached = BTreeSet::new();
    for _ in 0..count + 10 {
        browser.press(TAB);
        let focus = browser.run(
            "const { activeElement: one } = document; const { outlineStyle } = getComputedStyle(one); \
             return [one.dataset.number ?? '', outlineStyle !== 'none', one.outerHTML.slice(0, 80)]",
        );
        let number = focus[0].as_str().unwrap_or_default().to_owned();
        if !number.is_empty() {
            assert_eq!(focus[1], true, "the focus is invisible: {focus}");
            reached.insert(number);
        }
    }
    count - reached.len()
}

#[test]
fn keyboard_reaches_everything_and_opens_vm() {
    if !scene::is_possible("keyboard_reaches_everything_and_opens_vm") {
        return;
    }
    let _vms = Vms::start();
    let folder = tempfile::tempdir().expect("a directory");
    let agent = scene::recording_agent(folder.path());
    let browser = Browser::start(1280);
    for view in [
        "map".to_owned(),
        format!("vm/{BUSY}"),
        "node?sort=name".to_owned(),
    ] {
        browser.open(&url(&agent, &view));
        browser.wait("rates", "return document.documentElement.dataset.before");
        browser.wait(
            "the time line",
            "return Boolean(document.querySelector('.timeline')?.offsetParent)",
        );
        // A reading or an incident can replace a link while the keys are pressed.
        let is_reached = (0..5).any(|_| unreached(&browser) == 0);
        assert!(is_reached, "{view}");
    }
    // By keyboard alone from the list to a VM.
    browser.run("document.querySelector('#search').focus()");
    browser.press(BUSY);
    browser.wait(
        "one row",
        "return document.querySelectorAll('.vms .name').length === 1",
    );
    for _ in 0..20 {
        browser.press(TAB);
        if browser.run("return document.activeElement.className === 'name'") == true {
            break;
        }
    }
    browser.press(ENTER);
    browser.wait(
        "the view of the VM",
        &format!("return document.querySelector('h1')?.textContent === '{BUSY}'"),
    );
    assert_eq!(browser.run("return document.activeElement.id"), "main");
}
