//! HTTP requests to the real agent.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flate2::read::GzDecoder;

use crate::program::{Agent, Answer};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

#[test]
fn metrics_have_negotiated_format() {
    let agent = Agent::start(&[]);
    for (accept, format) in [
        (
            "Accept: application/openmetrics-text; version=1.0.0",
            OPEN_METRICS,
        ),
        ("Accept: */*", TEXT),
    ] {
        let plain = agent.ask("GET", "/metrics", &[accept]);
        assert_eq!(
            (plain.status, plain.header("content-type")),
            (200, Some(format))
        );
        assert_eq!(plain.header("content-encoding"), None);
        assert_eq!(plain.text().ends_with("\n# EOF\n"), format == OPEN_METRICS);

        let packed = agent.ask("GET", "/metrics", &[accept, "Accept-Encoding: gzip"]);
        assert_eq!(packed.header("content-encoding"), Some("gzip"));
        let mut text = String::new();
        GzDecoder::new(&*packed.body)
            .read_to_string(&mut text)
            .expect("gzip");
        assert!(text.contains("virtlens_build_info{"), "{text}");
    }
}

#[test]
fn promtool_accepts_metrics_of_agent() {
    let metrics = Agent::start(&[]).get("/metrics");
    virtlens_tests::promtool::assert_accepts("promtool_accepts_metrics_of_agent", &metrics.body);
}

#[test]
fn every_path_and_method_has_expected_status() {
    let agent = Agent::start(&[]);
    for (method, path, status) in [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/ui/app.js", 200),
        ("GET", "/ui/app.css", 200),
        ("GET", "/ui/", 404),
        ("GET", "/ui/../app.js", 404),
        ("GET", "/sources", 200),
        ("GET", "/metrics", 200),
        ("GET", "/metrics?x=y", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("POST", "/metrics", 405),
        ("DELETE", "/", 405),
        ("POST", "/ui/app.js", 405),
        ("GET", "/nothing", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/nothing", 404),
    ] {
        let answer = agent.ask(method, path, &[]);
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(
            answer.header("allow").is_some(),
            status == 405,
            "{method} {path}"
        );
        assert_eq!(answer.body.is_empty(), method == "HEAD", "{method} {path}");
    }
    let page = agent.get("/sources");
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(page.text().contains("href=\"/metrics\""), "{}", page.text());
}

#[test]
fn files_of_page_have_strict_policy_and_fit_their_type() {
    let agent = Agent::start(&[]);
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/ui/app.js", "text/javascript; charset=utf-8"),
        ("/ui/app.css", "text/css; charset=utf-8"),
    ] {
        let file = agent.get(path);
        assert_eq!(file.header("content-type"), Some(content_type), "{path}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(file.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(file.header("cache-control"), Some("no-cache"));
        let policy = file.header("content-security-policy").expect("a policy");
        let rules: BTreeSet<&str> = policy.split("; ").collect();
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(rules.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");

        let compressed = agent.ask("GET", path, &["Accept-Encoding: gzip"]);
        assert_eq!(compressed.header("content-encoding"), Some("gzip"));
        let mut text = Vec::new();
        let mut decoder = GzDecoder::new(compressed.body.as_slice());
        decoder.read_to_end(&mut text).expect("it is compressed");
        assert!(text == file.body, "{path} differs if it is compressed");
    }
}

#[test]
fn oversized_request_head_is_refused() {
    let agent = Agent::start(&[]);
    let large = format!("X-Filler: {}", "x".repeat(64 << 10));
    let mut stream = agent.connect();
    // The agent may close the connection before it has read everything, so the write may
    // fail.
    drop(stream.write_all(format!("GET /metrics HTTP/1.1\r\n{large}\r\n\r\n").as_bytes()));
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer));
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    assert_eq!(agent.get("/healthz").status, 200);
}

#[test]
fn slow_clients_do_not_block_scrape() {
    let agent = Agent::start(&[]);
    let silent: Vec<_> = (0..50).map(|_| agent.connect()).collect();
    let mut trickle = agent.connect();
    let scraped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Sends a byte at a time until the others have finished.
            for byte in b"GET /metrics HTTP/1.1\r\n".iter().cycle() {
                if scraped.load(Ordering::Relaxed) || trickle.write_all(&[*byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let answers: Vec<Answer> = (0..5).map(|_| agent.get("/metrics")).collect();
        scraped.store(true, Ordering::Relaxed);
        assert!(answers.iter().all(|answer| answer.status == 200));
    });
    drop(silent);
}

#[test]
fn agent_without_requests_uses_no_cpu() {
    let agent = Agent::start(&[]);
    assert_eq!(agent.get("/metrics").status, 200);
    // The work that the scrape caused has ended when the count stays constant.
    let mut last = wakeups(agent.pid());
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(100));
        let now = wakeups(agent.pid());
        if now == last {
            break;
        }
        last = now;
    }
    let before = wakeups(agent.pid());
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(wakeups(agent.pid()), before, "it woke up unasked");
}

/// Number of voluntary context switches of a process's threads: one for each wake-up.
fn wakeups(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    tasks
        .map(|task| {
            let status = task.expect("a thread").path().join("status");
            let text = std::fs::read_to_string(status).expect("a status");
            let count = text
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count
                .and_then(|count| count.trim().parse::<u64>().ok())
                .expect("a count")
        })
        .sum()
}

#[test]
fn sigterm_ends_agent_with_status_0() {
    let agent = Agent::start(&["--log-format", "json"]);
    let (code, log) = agent.stop();
    assert_eq!(code, Some(0), "{log:#?}");
    assert!(
        log.iter().any(|line| line.contains("\"stopped\"")),
        "{log:#?}"
    );
}

#[test]
fn run_with_table_serves_metrics_too() {
    let mut agent = Agent::start(&["--table", "--node-name", "here"]);
    let caption = agent.first_line();
    assert!(
        caption.starts_with("here: ") && caption.contains("cores used"),
        "{caption}"
    );
    assert_eq!(agent.get("/metrics").status, 200);
}
