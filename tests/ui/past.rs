//! The time line of an agent that records.

use crate::browser::Browser;
use crate::scene::{self, BUSY, Vms, url};

#[test]
fn time_line_goes_back_plays_and_returns() {
    if !scene::is_possible("time_line_goes_back_plays_and_returns") {
        return;
    }
    let _vms = Vms::start();
    let folder = tempfile::tempdir().expect("a directory");
    let agent = scene::recording_agent(folder.path());
    let browser = Browser::start(1280);
    browser.open(&url(&agent, "node"));
    browser.wait(
        "the time line",
        "return Boolean(document.querySelector('.timeline')?.offsetParent)",
    );
    // The recording is long enough to go back in it.
    browser.wait("readings", "window.first ??= document.documentElement.dataset.reading; return Date.parse(document.documentElement.dataset.reading) - Date.parse(window.first) > 15000");
    browser.run("document.querySelector('[title=\"10 seconds earlier\"]').click()");
    browser.wait(
        "the past",
        "return document.querySelector('.status').textContent === 'the past'",
    );
    browser.wait(
        "a time in the address",
        "return location.hash.includes('at=20')",
    );
    let at = "const at = Date.parse(new URLSearchParams(location.hash.split('?')[1]).get('at'));";
    browser.wait("a reading less than 4 s before", &format!("{at} const shown = Date.parse(document.documentElement.dataset.reading); return shown <= at + 999 && at - shown < 4000"));
    browser.wait("rates", "return document.documentElement.dataset.before");
    browser.run(&format!("{at} window.begun = at"));
    // Answers take longer than a step of `play`, which therefore waits for them.
    browser.run("window.begunWith = document.documentElement.dataset.reading; window.usual = window.fetch; window.fetch = async (...all) => { await new Promise((done) => setTimeout(done, 1500)); return window.usual(...all); }");
    browser.run("document.querySelector('[title=\"play the recording\"]').click()");
    browser.wait("a later time", &format!("{at} return at > window.begun"));
    browser.wait("a later reading of the past", "return location.hash.includes('at=') && document.documentElement.dataset.reading > window.begunWith");
    browser.run("window.fetch = window.usual");
    browser.run("document.querySelector('[title=\"show the last reading\"]').click()");
    browser.wait("the present", "return document.querySelector('.status').textContent === 'live' && !location.hash.includes('at=')");
    // The view of a VM begins with what was recorded before it was opened.
    browser.run(&format!("location.hash = '#/vm/{BUSY}'"));
    browser.wait(
        "its charts",
        "return document.querySelector('.chart')?.getAttribute('aria-label')?.includes('cores at')",
    );
    assert_eq!(browser.errors(), Vec::<String>::new());
}
