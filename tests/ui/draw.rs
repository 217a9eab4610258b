//! Pictures of each view for the documentation, from the recording of `scripts/record-misplaced`.
//! Not a test: `scripts/draw-ui` runs it.

use std::env;

use crate::browser::Browser;
use crate::scene::Page;

/// Opens a view of the recording and waits until all is drawn.
fn draw(page: &Page, name: &str, scheme: &str, height: u32, hash: &str, drawn: &str) {
    let browser = Browser::sized(1280, height);
    browser.prefer(scheme);
    browser.open(&page.url);
    browser.wait(
        "a reading",
        "return document.documentElement.dataset.before",
    );
    browser.wait(
        "the time line",
        "return Boolean(document.querySelector('.timeline')?.offsetParent)",
    );
    browser.run(&format!("location.hash = '{hash}'"));
    browser.wait("the view", drawn);
    browser.picture(name);
}

#[test]
#[ignore = "draws pictures for the documentation"]
fn pictures_of_each_view_are_drawn() {
    let path = env::var("VIRTLENS_MISPLACED").expect("scripts/draw-ui sets it");
    let open = || Page::start(&["--from", &path]);
    let rows = "return document.querySelectorAll('.vms .name').length > 5";
    draw(&open(), "ui-vms", "light", 800, "#/node", rows);
    let lines = "return document.querySelectorAll('.lines path').length > 4";
    draw(&open(), "ui-map", "light", 1000, "#/map", lines);
    let chart = "return Number(document.querySelector('.chart')?.dataset.readings) > 30";
    draw(&open(), "ui-vm", "dark", 1500, "#/vm/web-0", chart);
}
