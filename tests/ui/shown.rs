//! Values on the page are those of the API, and names stay text.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use virtlens_model::judge::interval::Interval;
use virtlens_model::snapshot::Snapshot;
use virtlens_tests::eventually;

use crate::browser::Browser;
use crate::scene::{self, BUSY, HOSTILE, LIMITED, Vms, url};

type Readings = Arc<Mutex<BTreeMap<String, Snapshot>>>;

/// Collects the readings of an agent, by time. Clients within a second share a reading.
fn collect(address: &str) -> Readings {
    let readings = Readings::default();
    let kept = Arc::clone(&readings);
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET /api/v1/stream?interval=1s HTTP/1.0\r\n\r\n").expect("it reads");
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Ok(reading) = serde_json::from_str::<Snapshot>(&line) {
                let mut kept = kept.lock().expect("no test panicked with it");
                kept.insert(reading.time.clone(), reading);
            }
        }
    });
    readings
}

/// The texts of a page and the times of the two readings that it shows, in one script.
const ROWS: &str = "
    const { reading, before } = document.documentElement.dataset;
    const rows = {};
    for (const row of document.querySelectorAll('.vms tbody tr:not(.space)')) {
        const cells = [...row.children].map((cell) => cell.innerText.trim());
        rows[row.querySelector('a').innerText] = cells;
    }
    return reading && before ? { reading, before, rows } : null;";

/// Cores of a VM between two readings, as the page writes them; and its resident memory in MiB.
fn expected(before: &Snapshot, now: &Snapshot, name: &str) -> Option<(String, Option<u64>)> {
    let find = |of: &Snapshot| of.vms.iter().position(|vm| &*vm.vm == name);
    let (then, vm) = (before.vms.get(find(before)?)?, now.vms.get(find(now)?)?);
    let over = Interval::between(then, vm, now.clock_ns - before.clock_ns);
    let cores = over.cores(over.cpu_ns());
    let text = match vm.limit_cores {
        Some(limit) => format!("{cores:.2} of {limit:.2}"),
        None => format!("{cores:.2}"),
    };
    Some((text, vm.memory.resident_bytes))
}

/// Some MiB, as the page writes them.
#[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

#[test]
fn rows_equal_readings_of_api() {
    if !scene::is_possible("rows_equal_readings_of_api") {
        return;
    }
    let _vms = Vms::start();
    let agent = scene::agent("127.0.0.1:0", &[]);
    let readings = collect(&agent.address);
    let browser = Browser::start(1280);
    browser.open(&url(&agent, "node"));
    let mut compared = 0;
    eventually("five readings of the page are those of the API", || {
        let shown = browser.wait("rows", ROWS);
        let time = |key: &str| shown[key].as_str().expect("a time").to_owned();
        let readings = readings.lock().expect("no thread panicked with it");
        let (before, now) = readings
            .get(&time("before"))
            .zip(readings.get(&time("reading")))?;
        for name in [BUSY, HOSTILE, LIMITED] {
            let cells = &shown["rows"][name];
            let (cores, resident) = expected(before, now, name)?;
            assert_eq!(cells[1].as_str(), Some(&*cores), "{name}: {shown}");
            let memory = cells[5].as_str().expect("text");
            assert_eq!(Some(memory), resident.map(mib).as_deref(), "{name}");
        }
        compared += 1;
        (compared == 5).then_some(())
    });
    // The limited VM uses its whole limit.
    browser.wait(
        "throttling",
        &format!("return [...document.querySelectorAll('.vms tr')].some((row) => row.innerText.includes('{LIMITED}') && row.querySelector('.high'))"),
    );
    browser.picture("node");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn hostile_name_stays_text_in_every_view() {
    if !scene::is_possible("hostile_name_stays_text_in_every_view") {
        return;
    }
    let _vms = Vms::start();
    let agent = scene::agent("127.0.0.1:0", &[]);
    let browser = Browser::start(1280);
    browser.open(&url(&agent, "node"));
    let quoted = Value::from(HOSTILE).to_string();
    let link = format!(
        "[...document.querySelectorAll('main a')].find((a) => a.textContent.includes({quoted}))"
    );
    browser.wait("the row", &format!("return Boolean({link})"));
    browser.run(&format!("{link}.click()"));
    browser.wait(
        "the view of the VM",
        &format!("return document.querySelector('h1')?.textContent === {quoted}"),
    );
    browser.wait(
        "its charts",
        "return document.querySelectorAll('.lane canvas').length > 1",
    );
    browser.run("location.hash = '#/map'");
    browser.wait(
        "the map",
        &format!("return Boolean(document.querySelector('.chip') && {link})"),
    );
    assert_eq!(browser.run("return document.images.length"), 0);
    let title = browser.run("return document.title");
    assert!(
        title.as_str().is_some_and(|title| title.starts_with("Map")),
        "{title}"
    );
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn view_of_vm_and_map_show_its_vcpus() {
    if !scene::is_possible("view_of_vm_and_map_show_its_vcpus") {
        return;
    }
    let _vms = Vms::start();
    let agent = scene::agent("127.0.0.1:0", &[]);
    let browser = Browser::start(1280);
    browser.open(&url(&agent, &format!("vm/{BUSY}")));
    let rows = "return [...document.querySelectorAll('[aria-label=vCPUs] tbody tr')].map((row) => row.innerText.split('\\t'))";
    let rows = eventually("both vCPUs have rates", || {
        let rows = browser.wait("vCPUs", rows);
        let known = |row: &Value| row[1].as_str().is_some_and(|cpu| cpu != "-");
        rows.as_array()
            .is_some_and(|rows| rows.len() == 2 && rows.iter().all(known))
            .then_some(rows)
    });
    assert_eq!(rows[0][0], "0");
    assert_eq!(rows[1][10], "socket 0, core 0, thread 1");
    browser.wait("the guest's topology", "return document.querySelector('main .sub').textContent.includes('1 sockets × 1 cores × 2 threads')");
    browser.wait(
        "a drawn chart",
        "return document.querySelector('.chart canvas')?.width > 0",
    );
    browser.picture("vm");
    browser.run("location.hash = '#/map'");
    let cpus = browser.wait(
        "CPUs",
        "return document.querySelectorAll('.map .thread').length",
    );
    let snapshot = agent.get("/api/v1/snapshot");
    let json = snapshot.split_once("\r\n\r\n").expect("a head").1;
    let snapshot: Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(cpus, snapshot["node"]["cpus"]);
    let here =
        format!("return document.querySelectorAll('.chip.here[data-vm={BUSY}]').length === 2");
    browser.wait("both vCPUs on the map", &here);
    browser.run(&format!(
        "document.querySelector('.chip.here[data-vm={BUSY}]').focus()"
    ));
    browser.wait(
        "its mask",
        "return document.querySelectorAll('.thread.mask').length > 0",
    );
    browser.picture("map");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn restarted_agent_is_found_again() {
    if !scene::is_possible("restarted_agent_is_found_again") {
        return;
    }
    let _vms = Vms::start();
    let mut agent = scene::agent("127.0.0.1:0", &[]);
    let address = agent.address.clone();
    let browser = Browser::start(1280);
    browser.open(&url(&agent, "node"));
    let state = |state: &str| {
        format!("return document.querySelector('.status').dataset.state === '{state}'")
    };
    browser.wait("a live page", &state("live"));
    browser.wait("rates", ROWS);
    agent.stop();
    browser.wait("the lost agent", &state("lost"));
    let last = browser.run("return document.documentElement.dataset.reading");
    let _agent = scene::agent(&address, &[]);
    browser.wait("the agent again", &state("live"));
    let next = format!(
        "const {{ reading, before }} = document.documentElement.dataset; return Boolean(before) && before > {last}"
    );
    browser.wait("rates of the restarted agent", &next);
}
