//! Commands that show another agent.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Output;
use std::thread;

use serde_json::Value;
use virtlens_model::snapshot::Snapshot;
use virtlens_tests::fixture;

use super::incidents::keep;
use super::reviews::Reviews;
use super::{Server, record, vms};
use crate::program::{Agent, output};
use crate::web::write_host;

fn node() -> Snapshot {
    Snapshot {
        time: "2026-01-31T03:10:00Z".to_owned(),
        ..fixture::snapshot()
    }
}

/// Runs a command with `--from` and the URL of an address.
fn from(address: SocketAddr, args: &[&str]) -> Output {
    let url = format!("http://{address}");
    output(&[args, &["--from", &url]].concat())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// The last line of the errors of a command that failed.
fn failure(output: &Output) -> String {
    let errors = text(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{errors}");
    errors.lines().last().expect("an error").to_owned()
}

#[test]
fn snapshot_is_that_of_the_agent() {
    let server = Server::start(node());
    let output = from(server.address, &["snapshot", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut expected = serde_json::to_value(node()).expect("JSON");
    for one in [&mut shown, &mut expected] {
        one.as_object_mut().expect("an object").remove("clock_ns");
    }
    assert_eq!(shown, expected);
}

#[test]
fn password_of_a_user_is_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    write_host(dir.path());
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::write(
        path("web"),
        format!("basic_auth_users: {{admin: {hash}}}\n"),
    )
    .expect("written");
    fs::write(path("right"), "secret\n").expect("written");
    fs::write(path("wrong"), "other\n").expect("written");
    let agent = Agent::start(&["--web-config", &path("web"), "--root", &path("host")]);
    for (password, expected) in [("right", Some(0)), ("wrong", Some(1))] {
        let user = ["snapshot", "--user", "admin", "--password-file"];
        let output = from(agent.address, &[&user[..], &[&path(password)]].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), expected, "{password}: {errors}");
    }
    let refused = failure(&from(agent.address, &["snapshot"]));
    assert!(refused.contains("--user and --password-file"), "{refused}");
}

#[test]
fn topology_and_table_of_top_are_those_of_the_agent() {
    let server = Server::start(node());
    let output = from(server.address, &["topology"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let tree = text(&output.stdout);
    assert!(tree.contains("shop/web-0"), "{tree}");
    let output = from(server.address, &["top", "--interval", "100ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("shop/web-0"));
}

#[test]
fn doctor_shows_the_findings_of_the_agent() {
    let server = Server::start(node());
    let output = from(server.address, &["doctor", "shop/web-0", "--for", "1s"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("vhost_saturated"));
}

#[test]
fn doctor_judges_the_recording_of_the_agent() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut reading = node();
    reading.time = "1970-01-01T00:20:00Z".to_owned();
    record(folder.path(), &reading, 1000..1400);
    let server = Server::with(node(), None, Some(folder.path()));
    let since = |seconds: u64| {
        let time = format!("1970-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60);
        from(
            server.address,
            &[
                "doctor",
                "-o",
                "json",
                "--since",
                &time,
                "--until",
                "1970-01-01T01:00:00Z",
            ],
        )
    };
    // More than an answer has by default.
    let output = since(1000);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let diagnosis: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(diagnosis["kind"], "Diagnosis");
    // By default the 15 min before its end.
    let until = ["doctor", "--until", "1970-01-01T00:20:00Z"];
    let output = from(server.address, &until);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let failed = failure(&since(1500));
    assert!(
        failed.contains("no reading between 1970-01-01T00:25:00Z and"),
        "{failed}"
    );
}

#[test]
fn past_reading_is_that_of_the_recording() {
    let folder = tempfile::tempdir().expect("a directory");
    record(folder.path(), &node(), 1000..1100);
    let server = Server::with(node(), None, Some(folder.path()));
    let clock = |at: &str| {
        let output = from(server.address, &["snapshot", "-o", "json", "--at", at]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        shown["clock_ns"].as_u64().expect("a clock")
    };
    assert_eq!(clock("1970-01-01T00:17:00.5Z"), 1020);
    // Ten minutes after the last one.
    assert_eq!(clock("1970-01-01T00:28:20Z"), 1099);
    let at = "1970-01-01T00:17:00Z";
    let args = ["snapshot", "--at", at, "--interval", "10s"];
    let output = from(server.address, &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("reading of "));
    let output = from(server.address, &["topology", "--at", at]);
    assert!(text(&output.stdout).contains("shop/web-0"));
    let early = ["snapshot", "--at", "1970-01-01T00:10:00Z"];
    let failed = failure(&from(server.address, &early));
    assert!(
        failed.contains("no reading at 1970-01-01T00:10:00Z"),
        "{failed}"
    );
}

#[test]
fn incidents_and_their_traces_are_those_of_the_agent() {
    let folder = tempfile::tempdir().expect("a directory");
    record(folder.path(), &node(), 1000..1010);
    let vm = node().vms.swap_remove(0);
    let id = keep(folder.path(), &vm, Some(b"a trace")).id;
    let server = Server::with(node(), None, Some(folder.path()));
    let output = from(server.address, &["incidents"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(&id));
    let file = folder.path().join("saved").display().to_string();
    let show = ["incidents", "show", &id];
    let output = from(
        server.address,
        &[&show[..], &["--save-trace", &file]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in ["warning: vcpu_overlap", "before", "--save-trace FILE"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert_eq!(fs::read(&file).expect("saved"), b"a trace");
    let output = from(server.address, &[&show[..], &["-o", "json"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["incident"]["id"], *id);
    for id in ["1-1", "../x"] {
        let failed = failure(&from(server.address, &["incidents", "show", id]));
        assert!(failed.contains("incident"), "{failed}");
    }
}

#[test]
fn refused_trace_names_the_reason_and_writes_no_file() {
    let folder = tempfile::tempdir().expect("a directory");
    let server = Server::start(node());
    let file = folder.path().join("t.pftrace");
    let output_file = file.display().to_string();
    let args = ["trace", "shop/web-0", "--for", "100ms", "-o", &output_file];
    let failed = failure(&from(server.address, &args));
    assert!(
        failed.contains("(403)") && failed.contains("--web-trace-users"),
        "{failed}"
    );
    assert!(!file.exists());
    let failed = failure(&output(&["trace", "x", "--from", "/no/recording"]));
    assert!(failed.contains("expected the URL of an agent"), "{failed}");
}

#[test]
fn token_decides_which_vms_are_shown() {
    let folder = tempfile::tempdir().expect("a directory");
    let reviews = Reviews::start(&[
        ("shop-token", &["shop"]),
        ("elsewhere-token", &["elsewhere"]),
    ]);
    let server = Server::with(node(), Some(reviews.reviewer()), None);
    let with = |token: &str| {
        let file = folder.path().join("token");
        fs::write(&file, token).expect("written");
        let file = file.display().to_string();
        from(
            server.address,
            &["snapshot", "-o", "json", "--token-file", &file],
        )
    };
    let output = with("shop-token");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(vms(&shown), ["sandbox-7c41e0"]);
    for (token, expected) in [("elsewhere-token", "(403)"), ("stale", "(401)")] {
        let failed = failure(&with(token));
        assert!(failed.contains(expected), "{token}: {failed}");
    }
    let failed = failure(&from(server.address, &["snapshot"]));
    assert!(
        failed.contains("(401)") && failed.contains("--token-file"),
        "{failed}"
    );
}

/// A server that reads a request of each client, and then does this.
pub(crate) fn agent_that(answers: Option<&'static str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let mut silent = Vec::new();
        for mut client in listener.incoming().flatten() {
            // The test ends with its client.
            drop(client.read(&mut [0; 4096]));
            match answers {
                Some(answer) => drop(client.write_all(answer.as_bytes())),
                None => silent.push(client),
            }
        }
    });
    address
}

#[test]
fn agent_that_does_not_answer_well_is_named_with_the_cause() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone = closed.local_addr().expect("an address");
    drop(closed);
    let old =
        "HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\nConnection: close\r\n\r\nnot found\n";
    let other = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]";
    for (address, expected) in [
        (gone, "refused"),
        (
            agent_that(Some(old)),
            "(404): not found; the agent may be older than its API",
        ),
        (agent_that(Some(other)), "sent an unknown reading"),
        (agent_that(Some("")), "cannot query the agent"),
        (agent_that(None), "has not answered in 10 s"),
    ] {
        let failed = failure(&from(address, &["snapshot"]));
        let is_named = failed.contains(&address.to_string());
        assert!(
            is_named && failed.contains(expected),
            "{expected}: {failed}"
        );
    }
}

#[test]
fn options_that_do_not_fit_another_agent_are_usage_errors() {
    let server = Server::start(node());
    for (args, expected) in [
        (&["top", "--at", "-5m"][..], "--at needs a recording"),
        (&["trace", "x", "--for", "1m"], "expected 100ms to 30s"),
        (&["trace", "x", "--max-size", "61"], "expected 1 to 60"),
        (
            &["snapshot", "--token-file", "/no/token"],
            "/no/token: No such file",
        ),
        (&["doctor", "--for", "10ms"], "--for: expected 1s or more"),
    ] {
        let output = from(server.address, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let failed = failure(&output);
        assert!(failed.contains(expected), "{args:?}: {failed}");
    }
    let here = output(&["snapshot", "--token-file", "/no/token"]);
    assert!(failure(&here).contains("--from URL"));
    let folder = Path::new("/no/recording").display().to_string();
    let past = output(&["doctor", "--from", &folder, "--for", "5s"]);
    assert!(failure(&past).contains("--for is for a live VM"));
}
