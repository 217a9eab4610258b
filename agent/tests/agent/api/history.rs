//! `/api/v1/history`.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use virtlens_tests::fixture;

use super::{Server, record, vms};

/// A recording of a reading every second from 1000 to 1199 s after 1970.
fn recorded() -> (TempDir, Server) {
    let dir = tempfile::tempdir().expect("a directory");
    record(dir.path(), &fixture::snapshot(), 1000..1200);
    let server = Server::with(fixture::snapshot(), None, Some(dir.path()));
    (dir, server)
}

fn lines(server: &Server, parameters: &str) -> Vec<Value> {
    let path = format!("/api/v1/history?{parameters}");
    server.lines(&path, &[]).collect()
}

/// The clocks of snapshots, which are the times of their recording.
fn clocks(lines: &[Value]) -> Vec<u64> {
    let clocks = lines.iter().filter_map(|line| line["clock_ns"].as_u64());
    clocks.collect()
}

#[test]
fn history_has_the_readings_of_its_time() {
    let (_dir, server) = recorded();
    let time = "since=1970-01-01T00:16:50Z&until=1970-01-01T00:16:54Z";
    let shown = lines(&server, time);
    assert_eq!(clocks(&shown), [1010, 1011, 1012, 1013, 1014]);
    assert_eq!(shown.len(), 5);
    assert!(shown.iter().all(|line| vms(line).len() == 3));
    let one = lines(&server, &format!("{time}&vm=web-0"));
    assert_eq!(clocks(&one).len(), 5);
    assert!(one.iter().all(|line| vms(line) == ["sandbox-7c41e0"]));
    let none = lines(&server, &format!("{time}&vm=unknown"));
    assert!(none.iter().all(|line| vms(line).is_empty()));
    let before = "since=1970-01-01T00:00:00Z&until=1970-01-01T00:01:00Z";
    assert_eq!(lines(&server, before), [Value::Null; 0]);
}

#[test]
fn limited_history_goes_on_where_it_ended() {
    let (_dir, server) = recorded();
    let until = "until=1970-01-01T00:20:00Z";
    let (mut all, mut since) = (Vec::new(), "1970-01-01T00:00:00Z".to_owned());
    loop {
        let mut page = lines(&server, &format!("since={since}&{until}&limit=90"));
        let last = page.pop().expect("a line");
        all.extend(clocks(&page));
        if last["kind"] != "Continue" {
            all.extend(clocks(&[last]));
            break;
        }
        assert_eq!(page.len(), 90);
        since = last["since"].as_str().expect("a time").to_owned();
    }
    assert_eq!(all, (1000..1200).collect::<Vec<u64>>());
}

/// Readings before the jump that have later times are not repeated.
#[test]
fn limited_history_ends_although_the_clock_was_set_back() {
    let dir = tempfile::tempdir().expect("a directory");
    record(
        dir.path(),
        &fixture::snapshot(),
        (1000..1010).chain(500..510),
    );
    let server = Server::with(fixture::snapshot(), None, Some(dir.path()));
    let until = "until=1970-01-01T00:20:00Z";
    let mut since = "1970-01-01T00:00:00Z".to_owned();
    let mut readings = 0;
    for _ in 0..10 {
        let page = lines(&server, &format!("since={since}&{until}&limit=3"));
        readings += clocks(&page).len();
        match page.last().and_then(|last| last["since"].as_str()) {
            Some(next) => next.clone_into(&mut since),
            None => break,
        }
    }
    assert_eq!(readings, 10);
}

fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(dir).expect("a folder");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.retain(|path| fs::metadata(path).is_ok_and(|file| file.len() > 0));
    paths.sort();
    paths
}

#[test]
fn unreadable_part_is_reported_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    record(dir.path(), &fixture::snapshot(), 1000..1200);
    let first = segments(dir.path()).into_iter().next().expect("a segment");
    let bytes = fs::read(&first).expect("readable");
    fs::write(&first, &bytes[..bytes.len() - 5]).expect("written");
    let server = Server::with(fixture::snapshot(), None, Some(dir.path()));
    let shown = lines(
        &server,
        "since=1970-01-01T00:00:00Z&until=1970-01-01T00:20:00Z",
    );
    let errors: Vec<&str> = shown
        .iter()
        .filter_map(|line| line["error"].as_str())
        .collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("cut off or damaged"), "{errors:?}");
    let clocks = clocks(&shown);
    assert_eq!(clocks.len(), 199, "one is lost: {clocks:?}");
    assert_eq!(clocks.last(), Some(&1199));
}

#[test]
fn histories_above_the_limit_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut large = fixture::snapshot();
    large.vms = vec![large.vms[0].clone(); 500];
    record(dir.path(), &large, 1000..1010);
    let server = Server::with(fixture::snapshot(), None, Some(dir.path()));
    let path = "/api/v1/history?since=1970-01-01T00:00:00Z&until=1970-01-01T00:20:00Z";
    // More than the buffers of a connection hold, so they wait for their clients.
    let mut open: Vec<_> = (0..2).map(|_| server.lines(path, &[])).collect();
    let refused = server.get(path);
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("10"));
    let rest = open.pop().expect("one").count();
    assert_eq!(rest, 10);
    let again = server.lines(path, &[]).count();
    assert_eq!(again, 10);
}
