//! Cost of the page on a full node, in the browser and in the agent. Not a test: it prints the
//! figures of docs/ui.md, where the command is.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use virtlens_tests::{Agent, Minivm, TestCgroup, cgroupfs_pod_path, unique_pod_uid};

use crate::browser::Browser;
use crate::scene::{self, url};

const VMS: usize = 200;
/// Those of the full node of `benches/agent`, whose vCPUs wake four times a second.
const ARGS: [&str; 8] = [
    "--vcpus",
    "8",
    "--thread",
    "IO iothread0=1",
    "--thread",
    "worker=1",
    "--start",
    "tick:250",
];
/// Starts overlap, because KVM mostly waits.
const STARTERS: usize = 4;
const MEASURED: Duration = Duration::from_secs(20);
const PAGES: usize = 10;
/// Metrics of the main thread; the first includes the others.
const METRICS: [&str; 4] = [
    "TaskDuration",
    "ScriptDuration",
    "LayoutDuration",
    "RecalcStyleDuration",
];

fn start_vms() -> Vec<(Minivm, TestCgroup)> {
    let start = |number: usize| {
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        pod.set_quota(Some(200_000), 100_000);
        let name = format!("cost-{number}");
        let launch = Minivm::launch().args(ARGS).args(["--name", &name]);
        (Minivm::start_launch(launch.cgroup(&pod)), pod)
    };
    let numbers: Vec<usize> = (0..VMS).collect();
    scope(|scope| {
        let chunks = numbers.chunks(VMS / STARTERS);
        let starters = chunks.map(|some| {
            scope.spawn(move || some.iter().map(|one| start(*one)).collect::<Vec<_>>())
        });
        let starters: Vec<_> = starters.collect();
        let started = starters
            .into_iter()
            .map(|one| one.join().expect("VMs start"));
        started.flatten().collect()
    })
}

/// CPU time of all threads of the agent, s.
fn cpu_s(agent: &Agent) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).expect("it runs");
    let used = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum()).as_secs_f64()
}

/// Waits, and returns the CPU time of the agent in this time as a share of one CPU.
fn agent_share(agent: &Agent) -> f64 {
    let (before, began) = (cpu_s(agent), Instant::now());
    sleep(MEASURED);
    (cpu_s(agent) - before) / began.elapsed().as_secs_f64()
}

/// Bytes of a stream with one reading a second, in this time.
fn bytes(agent: &Agent, header: &str) -> usize {
    let mut stream = TcpStream::connect(&agent.address).expect("it listens");
    write!(
        stream,
        "GET /api/v1/stream?interval=1s HTTP/1.1\r\nHost: test\r\n{header}\r\n"
    )
    .expect("it reads");
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a timeout");
    let end = Instant::now() + MEASURED;
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0;
    while Instant::now() < end {
        sum += stream.read(&mut buffer).unwrap_or(0);
    }
    sum
}

#[test]
#[ignore = "a measurement, by hand"]
fn cost_of_page_is_measured() {
    if !scene::is_possible("cost_of_page_is_measured") {
        return;
    }
    let _vms = start_vms();
    let agent = scene::agent("127.0.0.1:0", &[]);
    println!(
        "agent without pages: {:.1} % of a CPU",
        100.0 * agent_share(&agent)
    );
    for header in ["", "Accept-Encoding: gzip\r\n"] {
        let rate = bytes(&agent, header)
            / 1000
            / usize::try_from(MEASURED.as_secs()).expect("it is short");
        println!("stream {header:?}: {rate} kB/s");
    }
    let browser = Browser::start(1280);
    let open = |view: &str| {
        browser.open(&url(&agent, view));
        browser.run("sessionStorage.setItem('virtlens-interval-ms', '1000')");
        browser.run("location.reload()");
        browser.wait("rates", "return document.documentElement.dataset.before");
    };
    for view in ["node", "map", "vm/cost-7"] {
        open(view);
        let readings = "return performance.now()";
        let began = browser.run(readings).as_f64().expect("a number");
        let before = METRICS.map(|name| browser.seconds(name));
        let share = agent_share(&agent);
        let after = METRICS.map(|name| browser.seconds(name));
        let took = (browser.run(readings).as_f64().expect("a number") - began) / 1000.0;
        print!(
            "page {view}: agent {:.1} % of a CPU; main thread, ms a second:",
            100.0 * share
        );
        for ((name, before), after) in METRICS.iter().zip(before).zip(after) {
            print!(" {name} {:.1}", 1000.0 * (after - before) / took);
        }
        println!();
    }
    open("node");
    for _ in 1..PAGES {
        browser.open_window();
        open("node");
    }
    println!(
        "{PAGES} pages: agent {:.1} % of a CPU",
        100.0 * agent_share(&agent)
    );
}
