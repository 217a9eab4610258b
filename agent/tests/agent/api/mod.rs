//! The API, with readings and recordings of the tests.

mod alerts;
mod described;
mod history;
pub(crate) mod incidents;
pub(crate) mod remote;
pub(crate) mod reviews;
mod schema;
mod snapshot;
mod stream;
mod tenants;
mod trace;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use virtlens::collect::alerts::Alerts;
use virtlens::collect::incidents::Order as Keep;
use virtlens::collect::readings::Readings;
use virtlens::collect::recorder::Order;
use virtlens::collect::traces::{TraceLock, Traces};
use virtlens::http::{Authorizers, Web, serve};
use virtlens_export::Selection;
use virtlens_host::HostRoot;
use virtlens_kube::Reviewer;
use virtlens_model::snapshot::Snapshot;
use virtlens_probe::loader::Loader;
use virtlens_record::{Limits, Recorder};

use crate::program::{Answer, listening};

/// Longer than any line takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The agent's server in this process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    readings: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server whose readings are `snapshot`, numbered by their clock.
    pub(crate) fn start(snapshot: Snapshot) -> Self {
        Self::with(snapshot, None, None)
    }

    /// Starts a server with a reviewer of tokens and a directory for a recording without
    /// incidents.
    pub(crate) fn with(
        snapshot: Snapshot,
        reviewer: Option<Reviewer>,
        folder: Option<&Path>,
    ) -> Self {
        let record = folder.map(|folder| order(folder, None));
        Self::recording(snapshot, reviewer, record)
    }

    /// Starts a server that keeps incidents.
    fn keeping(snapshot: Snapshot, reviewer: Reviewer, folder: &Path) -> Self {
        let incidents = Keep {
            max_mib: 64,
            root: HostRoot::new("/nowhere"),
            loader: Loader::default(),
            lock: TraceLock::default(),
            alerts: Alerts::default(),
        };
        let record = order(folder, Some(incidents));
        Self::recording(snapshot, Some(reviewer), Some(record))
    }

    fn recording(snapshot: Snapshot, reviewer: Option<Reviewer>, record: Option<Order>) -> Self {
        let taken = Arc::<AtomicU64>::default();
        let count = Arc::clone(&taken);
        let collect = move || {
            let clock_ns = count.fetch_add(1, Ordering::SeqCst);
            Arc::new(Snapshot {
                clock_ns,
                ..snapshot.clone()
            })
        };
        let min_age = Duration::from_millis(1);
        let readings = Readings::start(collect, min_age, Selection::default(), record);
        let readings = readings.expect("a thread");
        let (stop, stopped) = oneshot::channel::<()>();
        let (address, thread) = listening(async move |listener| {
            let stop = async move { drop(stopped.await) };
            let clients = Authorizers {
                reviewer,
                ..Authorizers::default()
            };
            let traces = no_traces();
            serve(listener, Web::default(), clients, readings, traces, stop).await;
        });
        Self {
            address,
            readings: taken,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Number of readings so far.
    pub(crate) fn readings(&self) -> u64 {
        self.readings.load(Ordering::SeqCst)
    }

    /// Sends a request. With HTTP/1.0 the answer is not in chunks.
    fn open(&self, method: &str, path: &str, headers: &[&str], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let first = format!("{method} {path} HTTP/1.0");
        let head = [&[first.as_str(), "Host: test"], headers].concat();
        let whole = head.join("\r\n") + "\r\n\r\n" + body;
        stream.write_all(whole.as_bytes()).expect("it reads");
        stream
    }

    /// The whole answer.
    fn ask(&self, method: &str, path: &str, headers: &[&str]) -> Answer {
        Self::answer(self.open(method, path, headers, ""))
    }

    /// The whole answer to a request with a body.
    fn send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        let length = format!("Content-Length: {}", body.len());
        let headers = [headers, &[&length]].concat();
        Self::answer(self.open(method, path, &headers, body))
    }

    fn answer(mut stream: TcpStream) -> Answer {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("it answers");
        Answer::new(&bytes)
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    /// A successful answer, as lines.
    fn lines(&self, path: &str, headers: &[&str]) -> Lines {
        let mut reader = BufReader::new(self.open("GET", path, headers, ""));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a head") > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.0 200 "), "{path}: {head}");
        let is_lines = head.contains("\r\ncontent-type: application/x-ndjson\r\n");
        assert!(is_lines, "{head}");
        Lines(reader)
    }

    /// Stops the server, and waits until it has ended.
    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// The lines of an answer until the agent closes the connection.
struct Lines(BufReader<TcpStream>);

impl Iterator for Lines {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).expect("a line in time");
        (read > 0).then(|| serde_json::from_str(&line).expect("JSON"))
    }
}

/// Traces on a host whose memory is unknown, so that none is taken.
pub(crate) fn no_traces() -> Traces {
    Traces {
        root: HostRoot::new("/nowhere"),
        loader: Loader::default(),
        folder: "/nowhere".into(),
        lock: TraceLock::default(),
    }
}

/// The names of the VMs of a snapshot.
pub(crate) fn vms(snapshot: &Value) -> Vec<&str> {
    let vms = snapshot["vms"].as_array().expect("a snapshot");
    vms.iter()
        .map(|vm| vm["vm"].as_str().expect("a name"))
        .collect()
}

/// The error in an answer or a line.
fn error(text: &str) -> String {
    let value: Value = serde_json::from_str(text).expect("JSON");
    value["error"].as_str().expect("an error").to_owned()
}

fn order(folder: &Path, incidents: Option<Keep>) -> Order {
    Order {
        folder: folder.to_owned(),
        // A recording of the test is not continued by the agent.
        interval: Duration::from_hours(1),
        limits: limits(),
        node: "node-a".to_owned(),
        boot_id: None,
        incidents,
    }
}

fn limits() -> Limits {
    Limits {
        max_bytes: 64 << 20,
        max_age: Duration::from_hours(1_000_000),
    }
}

/// Records a snapshot at each of these times, s since 1970, with the time as its clock.
pub(crate) fn record(folder: &Path, snapshot: &Snapshot, times: impl IntoIterator<Item = u64>) {
    let mut recorder = Recorder::open(folder, limits(), "node-a", "0.1.0", None).expect("a folder");
    for time in times {
        let one = Snapshot {
            clock_ns: time,
            ..snapshot.clone()
        };
        recorder
            .record(&one, time * 1_000_000_000)
            .expect("there is room");
    }
}
