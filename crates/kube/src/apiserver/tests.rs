//! Tests with a minimal API server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::{Cluster, Store, follow_with};

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";

const LISTED: &str = concat!(
    r#"{"type": "ADDED", "object": {"metadata": {"uid": "1", "resourceVersion": "6"}}}"#,
    "\n",
    r#"{"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": "#,
    r#"{"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}}"#,
    "\n",
);

const EXPIRED: &str = concat!(
    r#"{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "#,
    r#""status": "Failure", "message": "too old", "reason": "Expired", "code": 410}}"#,
    "\n",
);

/// The answer to a request line; with `true` the connection stays open.
type Answer = fn(&str) -> (&'static str, bool);

/// The requests that a server received.
struct Received {
    lines: Vec<String>,
    /// Time in front of each request since the one before.
    pauses: Vec<Duration>,
    failures: u64,
}

/// Follows a server until it has received `times` requests.
fn requests(times: usize, answer: Answer) -> Received {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    // It ends with the test process.
    thread::spawn(move || {
        let mut open: Vec<TcpStream> = Vec::new();
        for mut client in listener.incoming().flatten() {
            let mut head = BufReader::new(client.try_clone().expect("a copy")).lines();
            let line = head.next().and_then(Result::ok).unwrap_or_default();
            let rest = head.map_while(Result::ok);
            rest.take_while(|line| !line.is_empty()).for_each(drop);
            let now = (Instant::now(), line.clone());
            kept.lock().expect("nobody panicked").push(now);
            let (text, stays) = answer(&line);
            drop(client.write_all(format!("{STREAM}{text}").as_bytes()));
            open.extend(stays.then_some(client));
        }
    });
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("kubeconfig");
    let config = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, users: [], \
         clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: ''}}}}]}}"
    );
    fs::write(&path, config).expect("written");
    let store = Store::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let cluster = Cluster::Kubeconfig(path);
    let enough = async {
        while lines.lock().expect("nobody panicked").len() < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let silence = Duration::from_millis(200);
    runtime.block_on(async {
        tokio::select! {
            () = follow_with(&cluster, "a", &store, silence) => {}
            _ = tokio::time::timeout(Duration::from_mins(1), enough) => {}
        }
    });
    let lines = lines.lock().expect("nobody panicked").clone();
    assert!(lines.len() >= times, "{lines:?}");
    let pairs = lines.windows(2);
    Received {
        pauses: pairs.map(|pair| pair[1].0 - pair[0].0).collect(),
        lines: lines.into_iter().map(|(_, line)| line).collect(),
        failures: store.read().failures,
    }
}

#[test]
fn watch_without_bookmarks_reconnects_without_failure() {
    let received = requests(3, |line| {
        let is_list = line.contains("sendInitialEvents");
        (if is_list { LISTED } else { "" }, true)
    });
    let lines = received.lines;
    assert!(lines[0].contains("sendInitialEvents"), "{lines:?}");
    for again in &lines[1..3] {
        assert!(again.contains("resourceVersion=7 "), "{lines:?}");
    }
    assert_eq!(received.failures, 0);
}

#[test]
fn streaming_list_after_an_expired_version_asks_for_the_latest_at_once() {
    let received = requests(4, |line| match line {
        list if list.contains("sendInitialEvents") => (LISTED, false),
        _ => (EXPIRED, false),
    });
    let versions: Vec<_> = received
        .lines
        .iter()
        .filter_map(|line| line.rsplit("resourceVersion=").next())
        .filter_map(|rest| rest.split_once(' '))
        .map(|(version, _)| version)
        .collect();
    assert_eq!(versions[..4], ["0", "7", "", "7"], "{:?}", received.lines);
    assert_eq!(received.failures, 0);
    // The first and the last pause are those between two sessions.
    let [first, list, last] = received.pauses[..3] else {
        panic!("{:?}", received.pauses);
    };
    assert!(list < first / 4 && list < last / 4, "{:?}", received.pauses);
}

#[test]
fn server_that_expires_each_list_is_asked_twice_between_two_pauses() {
    const LISTED_AND_EXPIRED: &str = concat!(
        r#"{"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": "#,
        r#"{"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}}"#,
        "\n",
        r#"{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "#,
        r#""status": "Failure", "message": "too old", "reason": "Expired", "code": 410}}"#,
        "\n",
    );
    let received = requests(4, |_| (LISTED_AND_EXPIRED, false));
    let [at_once, pause, again] = received.pauses[..3] else {
        panic!("{:?}", received.pauses);
    };
    assert!(
        at_once < pause / 4 && again < pause / 4,
        "{:?}",
        received.pauses
    );
}

#[test]
fn list_that_does_not_end_in_time_is_a_failure() {
    let received = requests(2, |_| ("", true));
    assert!(received.failures > 0);
}
