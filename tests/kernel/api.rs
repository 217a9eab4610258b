//! Traces over HTTP, of VMs with a known load, on this host's kernel.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use virtlens_tests::perfetto::{self, Trace, assert_seamless};
use virtlens_tests::{Agent, Minivm, binary, eventually, need, reader};

use crate::trace::programs;

/// The password is `secret`, and `Basic` has both.
pub(crate) const USERS: &str = "basic_auth_users: {admin: \
                     $2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW}\n";
const ADMIN: &str = "Basic YWRtaW46c2VjcmV0";

/// An agent whose user may trace, and its directories.
pub(crate) struct Site {
    folder: TempDir,
    pub(crate) agent: Agent,
}

impl Site {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let web = folder.path().join("web.yaml");
        fs::write(&web, USERS).expect("there is room");
        let mut command = Command::new(binary("virtlens"));
        command.args(["run", "--listen", "127.0.0.1:0", "--no-pin"]);
        command.args(["--web-trace-users", "admin", "--web-config"]);
        command.arg(web).arg("--record");
        command.arg(folder.path().join("records"));
        Self {
            agent: Agent::start(command),
            folder,
        }
    }

    /// A request for a trace.
    fn post(&self, query: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.agent.address).expect("it listens");
        let head = format!("POST /api/v1/trace?{query} HTTP/1.0");
        write!(stream, "{head}\r\nAuthorization: {ADMIN}\r\n\r\n").expect("it reads");
        stream
    }

    /// A client whose trace of a guest for 30 s has begun.
    fn trace(&self, guest: &Minivm) -> TcpStream {
        let client = self.post(&format!("vm={}&for=30s", guest.pid()));
        client.set_nonblocking(true).expect("it is open");
        eventually("the trace to begin", || {
            // An answer has the reason that it does not begin.
            let mut answer = [0; 1024];
            if let Ok(bytes) = client.peek(&mut answer) {
                let answer = answer.get(..bytes).unwrap_or_default();
                panic!("no trace began: {}", String::from_utf8_lossy(answer));
            }
            (programs() > 0).then_some(())
        });
        client.set_nonblocking(false).expect("it is open");
        client
    }

    /// Names in the directory of the recording that do not belong to the recording.
    fn names(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("records")).expect("a folder");
        let mut names: Vec<_> = entries.map(|one| one.expect("a name").path()).collect();
        let known = |path: &PathBuf| {
            let is_segment = path.extension().is_some_and(|end| end == "vlrec");
            is_segment || path.ends_with("lock") || path.ends_with("incidents")
        };
        names.retain(|path| !known(path));
        names
    }
}

/// The status and the body of an answer.
fn answer(mut stream: TcpStream) -> (u16, Vec<u8>) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it answers");
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let body = bytes.split_off(head.expect("a head") + 4);
    let head = String::from_utf8(bytes).expect("text");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let length = format!("content-length: {}\r\n", body.len());
    assert!(head.contains(&length), "{head}");
    (status.expect("a status"), body)
}

fn decode(folder: &Path, body: &[u8]) -> Trace {
    let file = folder.join("t.pftrace");
    fs::write(&file, body).expect("there is room");
    Trace::decode(&file)
}

fn ready(test: &str) -> bool {
    reader::ready(test) && need::all(test, [perfetto::there()])
}

#[test]
fn trace_over_http_is_valid_and_leaves_nothing() {
    if !ready("trace_over_http_is_valid_and_leaves_nothing") {
        return;
    }
    let guest = Minivm::start(["--vcpus", "1", "--start", "duty:50"]);
    let site = Site::start();
    let query = format!("vm={}&for=1s", guest.pid());
    let (status, body) = answer(site.post(&query));
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    let decoded = decode(site.folder.path(), &body);
    let slices = decoded.of_thread(guest.ready.vcpus[0].tid.cast_unsigned());
    assert!(slices.len() > 20, "{} slices", slices.len());
    assert_seamless(&slices);
    assert_eq!(site.names(), Vec::<PathBuf>::new());
    eventually("the programs to go", || (programs() == 0).then_some(()));
}

#[test]
fn disconnected_client_ends_its_trace_and_second_one_is_refused() {
    if !ready("disconnected_client_ends_its_trace_and_second_one_is_refused") {
        return;
    }
    let guest = Minivm::start(["--vcpus", "1", "--start", "duty:50"]);
    let site = Site::start();
    eventually("no other trace", || (programs() == 0).then_some(()));
    let client = site.trace(&guest);
    let (status, body) = answer(site.post(&format!("vm={}&for=1s", guest.pid())));
    let text = String::from_utf8(body).expect("text");
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("another trace is being taken"), "{text}");
    drop(client);
    eventually("the programs to go", || (programs() == 0).then_some(()));
    assert_eq!(site.names(), Vec::<PathBuf>::new());
    let again = eventually("the next trace", || {
        let (status, body) = answer(site.post(&format!("vm={}&for=100ms", guest.pid())));
        (status == 200).then_some(body)
    });
    assert!(!again.is_empty());
}

#[test]
fn stopped_agent_ends_the_trace_of_a_client() {
    if !ready("stopped_agent_ends_the_trace_of_a_client") {
        return;
    }
    let guest = Minivm::start(["--vcpus", "1", "--start", "duty:50"]);
    let mut site = Site::start();
    eventually("no other trace", || (programs() == 0).then_some(()));
    let client = site.trace(&guest);
    let (code, log) = site.agent.stop();
    assert_eq!(code, Some(0), "{log:#?}");
    let (status, _) = answer(client);
    assert_eq!(status, 503);
    eventually("the programs to go", || (programs() == 0).then_some(()));
}
