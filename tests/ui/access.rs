//! Ways in: passwords, and the code of `virtlens ui`.

use virtlens_tests::eventually;

use crate::browser::Browser;
use crate::scene::{self, BUSY, Page, Vms, url};

/// User `admin` with the password `secret`.
const USERS: &str = "basic_auth_users: {admin: \
                     $2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW}\n";

const HAS_ROWS: &str = "return document.querySelectorAll('.vms .name').length > 0";

/// Fills in the form and sends it.
fn sign_in(browser: &Browser, password: &str) {
    browser.wait(
        "the form",
        "return Boolean(document.querySelector('#password'))",
    );
    browser.run("document.querySelector('#user').value = 'admin'");
    browser.run(&format!(
        "document.querySelector('#password').value = '{password}'"
    ));
    browser.run("document.querySelector('form').requestSubmit()");
}

#[test]
fn missing_password_leads_to_form_and_traces_arrive_whole() {
    if !scene::is_possible("missing_password_leads_to_form_and_traces_arrive_whole") {
        return;
    }
    let _vms = Vms::start();
    let folder = tempfile::tempdir().expect("a directory");
    let config = folder.path().join("web.yaml");
    std::fs::write(&config, USERS).expect("there is room");
    let config = config.to_str().expect("text");
    let options = ["--web-config", config, "--web-trace-users", "admin"];
    let agent = scene::agent("127.0.0.1:0", &options);
    let browser = Browser::start(1280);
    browser.open(&url(&agent, &format!("vm/{BUSY}")));
    sign_in(&browser, "wrong");
    browser.wait(
        "an empty form",
        "return document.querySelector('#password')?.value === ''",
    );
    sign_in(&browser, "secret");
    browser.wait(
        "the view of the address",
        &format!("return document.querySelector('h1')?.textContent === '{BUSY}'"),
    );
    browser.wait(
        "the button",
        "return Boolean(document.querySelector('#trace')?.offsetParent)",
    );
    browser.run("document.querySelector('#trace').click()");
    browser.wait(
        "the file",
        "return document.querySelector('.tracer a')?.href.startsWith('blob:')",
    );
    browser.download_to(folder.path());
    browser.run("document.querySelector('.tracer a').click()");
    let file = folder.path().join(format!("{BUSY}.pftrace"));
    let length = eventually("the downloaded trace", || {
        let length = std::fs::metadata(&file).ok()?.len();
        (length > 0).then_some(length)
    });
    assert!(length > 1000, "{length}");
    // The tab stays signed in, another one is not.
    browser.open(&url(&agent, "node"));
    browser.wait("rows", HAS_ROWS);
    let other = Browser::start(1280);
    other.open(&url(&agent, "node"));
    other.wait(
        "the form",
        "return Boolean(document.querySelector('#password'))",
    );
}

#[test]
fn code_of_virtlens_ui_is_valid_for_one_browser() {
    if !scene::is_possible("code_of_virtlens_ui_is_valid_for_one_browser") {
        return;
    }
    let _vms = Vms::start();
    let page = Page::start(&[]);
    let browser = Browser::start(1280);
    browser.open(&page.url);
    browser.wait("rows", HAS_ROWS);
    let address = browser.run("return location.href");
    assert!(!address.to_string().contains("code"), "{address}");
    browser.run("location.reload()");
    browser.wait("rows after a reload", HAS_ROWS);
    // The tab has a token, which a used code does not replace.
    browser.open(&page.url);
    browser.wait("rows at the used address", HAS_ROWS);
    let second = Browser::start(1280);
    second.open(&page.url);
    second.wait(
        "a refusal",
        "return Boolean(document.querySelector('.signin'))",
    );
}

#[test]
fn virtlens_ui_plays_recording() {
    if !scene::is_possible("virtlens_ui_plays_recording") {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let vms = Vms::start();
    let mut agent = scene::recording_agent(folder.path());
    let browser = Browser::start(1280);
    browser.open(&url(&agent, "node"));
    browser.wait("rates", "return document.documentElement.dataset.before");
    let recorded = browser.run("return document.documentElement.dataset.before");
    agent.stop();
    drop(vms);
    let page = Page::start(&["--from", folder.path().to_str().expect("text")]);
    browser.open(&page.url);
    browser.wait("rows of the recording", HAS_ROWS);
    browser.wait(
        "the time line",
        "return Boolean(document.querySelector('.timeline')?.offsetParent)",
    );
    browser.wait(
        "its state",
        "return document.querySelector('.status').textContent === 'recording'",
    );
    let shown = browser.run("return document.documentElement.dataset.reading");
    assert!(shown.as_str() >= recorded.as_str(), "{shown} {recorded}");
    browser.picture("recording");
}
