//! Endless answers of an API server that exceed the agent's limits. The server is
//! synthetic, since a real one does not send them.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use virtlens_kube::{Cluster, Names, Source};

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";

const ALL_TOLD: &str = concat!(
    r#"{"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": "#,
    r#"{"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}}"#,
);

/// The answer to a request line such as `GET /api/v1/pods?… HTTP/1.1`.
type Answer = fn(&str, &mut TcpStream) -> io::Result<()>;

struct Server {
    asked: Arc<AtomicUsize>,
    names: Names,
    _dir: TempDir,
}

impl Server {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // It ends with the test process.
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                thread::spawn(move || {
                    let head = BufReader::new(client.try_clone()?).lines();
                    let head: Vec<String> = head
                        .map_while(Result::ok)
                        .take_while(|line| !line.is_empty())
                        .collect();
                    count.fetch_add(1, Ordering::Relaxed);
                    // The client disconnects at its limit.
                    answer(head.first().map_or("", String::as_str), &mut client)
                });
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
        let cluster = Cluster::Kubeconfig(path);
        let node = "a".to_owned();
        let names = Names::start(Source::ApiServer { cluster, node }).expect("a thread");
        Self {
            asked,
            names,
            _dir: dir,
        }
    }

    fn failure(&self) -> String {
        self.names.wait(Duration::from_mins(1));
        self.names.read().failure
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

#[test]
fn endless_event_is_refused() {
    let server = Server::start(|_, client| {
        client.write_all(STREAM.as_bytes())?;
        loop {
            client.write_all(&[b' '; 1 << 12])?;
        }
    });
    let failure = server.failure();
    assert!(failure.contains("exceeds 64 MiB"), "{failure}");
}

#[test]
fn endless_list_is_abandoned() {
    let server = Server::start(|request, client| {
        if request.contains("sendInitialEvents") {
            return client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
        let page = r#"{"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}"#;
        write!(
            client,
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{page}",
            page.len()
        )
    });
    let failure = server.failure();
    assert!(failure.contains("16 pages"), "{failure}");
    assert!(server.asked() >= 17, "{}", server.asked());
}

#[test]
fn long_stream_of_changes_is_not_a_failure() {
    let server = Server::start(|request, client| {
        client.write_all(STREAM.as_bytes())?;
        if request.contains("sendInitialEvents") {
            writeln!(client, "{ALL_TOLD}")?;
        }
        let blanks = " ".repeat(1 << 20);
        loop {
            writeln!(
                client,
                r#"{{"type": "ADDED", {blanks} "object": {{"metadata": {{"uid": "1"}}}}}}"#
            )?;
        }
    });
    let end = Instant::now() + Duration::from_mins(1);
    while server.asked() < 3 && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(server.asked() >= 3, "it goes on in another stream");
    let reported = server.names.read();
    assert_eq!((reported.failure.as_str(), reported.failures), ("", 0));
    assert!(reported.pods.contains_key("1"));
}
