//! `virtlens ui` on a recording: the code in its address, and the API behind it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::program::{Answer, output, virtlens};
use crate::recorded::{reading, recording};

/// A running `virtlens ui`; killed when dropped.
struct Page {
    child: Child,
    address: String,
    code: String,
}

impl Page {
    fn start(folder: &str) -> Self {
        let mut command = virtlens();
        let command = command.args(["ui", "--no-open", "--from", folder]);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        let rest = line.strip_prefix("http://").expect("an address");
        let (address, way) = rest.split_once("/#/login?code=").expect("a code");
        let (code, mode) = way.trim().split_once('&').expect("a mode");
        assert_eq!(mode, "recording");
        Self {
            child,
            address: address.to_owned(),
            code: code.to_owned(),
        }
    }

    fn ask(&self, method: &str, path: &str, token: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let header = if token.is_empty() {
            String::new()
        } else {
            format!("Authorization: Bearer {token}\r\n")
        };
        write!(stream, "{method} {path} HTTP/1.0\r\n{header}\r\n").expect("it reads");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("it answers");
        Answer::new(&bytes)
    }

    /// Exchanges the code for the token.
    fn token(&self) -> String {
        let answer = self.ask("POST", "/ui/session", &self.code);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let answer: Value = serde_json::from_str(answer.text()).expect("JSON");
        answer["token"].as_str().expect("a token").to_owned()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn code_is_exchanged_once_and_its_token_reads_recording() {
    let folder = recording([0, 10, 20].map(|seconds| (seconds, reading(seconds))));
    let page = Page::start(folder.path().to_str().expect("text"));
    assert!(page.address.starts_with("127.0.0.1:"), "{}", page.address);
    for path in ["/", "/ui/app.js", "/healthz"] {
        assert_eq!(page.ask("GET", path, "").status, 200, "{path}");
    }
    let paths = [
        "/api/v1/snapshot",
        "/api/v1/history",
        "/metrics",
        "/sources",
    ];
    for path in paths {
        for token in ["", "wrong", &page.code] {
            assert_eq!(page.ask("GET", path, token).status, 401, "{path}");
        }
    }
    assert_eq!(page.ask("POST", "/ui/session", "wrong").status, 401);
    assert_eq!(page.ask("GET", "/ui/session", &page.code).status, 405);
    let token = page.token();
    assert_eq!(page.ask("POST", "/ui/session", &page.code).status, 401);
    for path in paths {
        assert_eq!(page.ask("GET", path, &token).status, 200, "{path}");
    }

    let snapshot = page.ask("GET", "/api/v1/snapshot", &token);
    let snapshot: Value = serde_json::from_str(snapshot.text()).expect("JSON");
    assert_eq!(snapshot["time"], "2026-01-01T00:00:20Z");
    let since = "/api/v1/history?since=2026-01-01T00:00:05Z&until=2026-01-01T00:01:00Z";
    let history = page.ask("GET", since, &token);
    assert_eq!(history.text().lines().count(), 2, "{}", history.text());
    let trace = page.ask("POST", "/api/v1/trace?vm=web", &token);
    assert_eq!(trace.status, 403, "{}", trace.text());
    assert!(trace.text().contains("recording"), "{}", trace.text());
}

#[test]
fn agent_of_url_is_opened_itself_and_missing_recording_is_refused() {
    let shown = output(&["ui", "--no-open", "--from", "https://node-a:9877/"]);
    assert!(shown.status.success());
    assert_eq!(shown.stdout, b"https://node-a:9877/\n");
    let refused = output(&["ui", "--no-open", "--from", "/nonexistent"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        error.contains("cannot read the recording /nonexistent"),
        "{error}"
    );
}
