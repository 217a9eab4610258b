//! `/api/v1/stream`.

use std::io::{BufRead as _, BufReader};

use flate2::read::GzDecoder;
use serde_json::Value;
use virtlens_tests::fixture;

use super::{Lines, Server, error, vms};

const FAST: &str = "/api/v1/stream?interval=1s";

#[test]
fn stream_has_a_new_reading_in_each_line() {
    let server = Server::start(fixture::snapshot());
    let lines: Vec<Value> = server.lines(FAST, &[]).take(3).collect();
    let clocks: Vec<_> = lines.iter().map(|line| line["clock_ns"].as_u64()).collect();
    assert_eq!(clocks, [Some(0), Some(1), Some(2)]);
    assert!(lines.iter().all(|line| vms(line).len() == 3));
}

#[test]
fn stream_is_compressed_line_by_line_if_client_accepts_gzip() {
    let mut server = Server::start(fixture::snapshot());
    let Lines(packed) = server.lines(FAST, &["Accept-Encoding: gzip"]);
    let mut lines = BufReader::new(GzDecoder::new(packed)).lines();
    // Each line arrives before the next is made.
    for clock in 0..2 {
        let line = lines.next().expect("a line").expect("it is packed");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(line["clock_ns"], clock);
    }
    server.stop();
    // The end of the packed data is complete.
    assert!(lines.all(|line| line.is_ok()));
}

#[test]
fn stream_shows_selected_vm() {
    let server = Server::start(fixture::snapshot());
    let path = format!("{FAST}&vm=shop/web-0");
    for line in server.lines(&path, &[]).take(2) {
        assert_eq!(vms(&line), ["sandbox-7c41e0"]);
    }
}

#[test]
fn streams_above_the_limit_are_refused() {
    let server = Server::start(fixture::snapshot());
    let open = || -> Lines {
        let mut lines = server.lines("/api/v1/stream?interval=1m", &[]);
        lines.next().expect("a line");
        lines
    };
    let mut streams: Vec<Lines> = (0..4).map(|_| open()).collect();
    let refused = server.get("/api/v1/stream");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("10"));
    assert!(error(refused.text()).contains("4 streams"));
    // Other requests are not affected, and a stream that ends frees its place.
    assert_eq!(server.get("/api/v1/snapshot").status, 200);
    assert_eq!(server.ask("HEAD", "/api/v1/stream", &[]).status, 200);
    drop(streams.pop());
    // The server sees the end when it reads the connection.
    let again = (0..1000).find(|_| {
        std::thread::yield_now();
        server.ask("GET", "/api/v1/stream?vm=none", &[]).status == 404
    });
    assert!(again.is_some(), "the place stays taken");
}

#[test]
fn streams_end_when_the_agent_stops() {
    let mut server = Server::start(fixture::snapshot());
    let mut lines = server.lines("/api/v1/stream?interval=1m", &[]);
    assert!(lines.next().is_some());
    server.stop();
    assert_eq!(lines.next(), None);
}

/// The lines are longer than the buffers of a connection.
#[test]
fn clients_that_read_no_stream_do_not_block_others() {
    let mut large = fixture::snapshot();
    large.vms = vec![large.vms[0].clone(); 2000];
    let server = Server::start(large);
    let silent: Vec<_> = (0..4).map(|_| server.open("GET", FAST, &[], "")).collect();
    // Each has made its first line, and waits until it is taken.
    while server.readings() == 0 {
        std::thread::yield_now();
    }
    for _ in 0..3 {
        assert_eq!(server.get("/metrics").status, 200);
        assert_eq!(server.get("/api/v1/snapshot?vm=4300").status, 404);
    }
    drop(silent);
}
