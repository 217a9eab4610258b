//! `/api/v1/snapshot`.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::Value;
use virtlens::term::Style;
use virtlens::views::snapshot::{Output, of};
use virtlens_tests::fixture;

use super::{Server, error, vms};
use crate::program::Answer;

fn value(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).expect("JSON")
}

#[test]
fn snapshot_is_what_the_command_prints() {
    let server = Server::start(fixture::snapshot());
    let answer = server.get("/api/v1/snapshot");
    let style = Style {
        width: None,
        color: false,
    };
    let printed = of(&fixture::snapshot(), None, Output::Json, style).expect("JSON");
    assert_eq!((answer.status, answer.text()), (200, &*printed));
    for (header, value) in [
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
        ("vary", "Accept-Encoding"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(answer.header(header), Some(value), "{header}");
    }
}

#[test]
fn snapshot_is_compressed_if_accepted() {
    let server = Server::start(fixture::snapshot());
    for path in ["/api/v1/snapshot", "/api/v1/snapshot?vm=web-0"] {
        let packed = server.ask("GET", path, &["Accept-Encoding: gzip"]);
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
        let mut text = String::new();
        let mut decoder = GzDecoder::new(&*packed.body);
        decoder.read_to_string(&mut text).expect("gzip");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["kind"], "Snapshot");
    }
}

#[test]
fn vms_are_selected_as_by_the_commands() {
    let server = Server::start(fixture::snapshot());
    let all = value(&server.get("/api/v1/snapshot"));
    assert_eq!(vms(&all).len(), 3);
    for name in [
        "shop/web-0",
        "shop%2Fweb-0",
        "web-0",
        "sandbox-7c41e0",
        "4242",
    ] {
        let one = value(&server.get(&format!("/api/v1/snapshot?vm={name}")));
        assert_eq!(vms(&one), ["sandbox-7c41e0"], "{name}");
        assert_eq!(one["node"], all["node"]);
        assert_eq!(one["dropped"], all["dropped"]);
    }
    let answer = server.get("/api/v1/snapshot?vm=shop/web-1");
    assert_eq!(answer.status, 404);
    let expected = "VM shop/web-1 not found; the nearest name is shop/web-0";
    assert_eq!(error(answer.text()), expected);
}

#[test]
fn errors_of_the_api_are_json() {
    let server = Server::start(fixture::snapshot());
    for (method, path, status, words) in [
        (
            "GET",
            "/api/v1/snapshot?pod=a",
            400,
            "unknown parameter \"pod\"",
        ),
        (
            "GET",
            "/api/v1/stream?interval=0s",
            400,
            "interval: expected 1s to 60s",
        ),
        ("GET", "/api/v1/history?since=x", 400, "since: invalid time"),
        ("GET", "/api/v1/history", 404, "--record"),
        ("GET", "/api/v1/nothing", 404, "openapi.json"),
        ("GET", "/api/", 404, "openapi.json"),
        ("POST", "/api/v1/snapshot", 405, "GET or HEAD"),
        ("DELETE", "/api/v2/x", 405, "GET or HEAD"),
    ] {
        let answer = server.ask(method, path, &[]);
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let error = error(answer.text());
        assert!(error.contains(words), "{method} {path}: {error}");
    }
    let answer = server.ask("GET", "/api/v1/snapshot", &["Content-Length: 1"]);
    assert_eq!(answer.status, 413);
    assert_eq!(error(answer.text()), "request bodies are not accepted");
}

#[test]
fn head_has_the_headers_of_get_and_no_content() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::with(fixture::snapshot(), None, Some(dir.path()));
    for (path, content_type) in [
        ("/api/v1/snapshot", "application/json"),
        ("/api/v1/stream", "application/x-ndjson"),
        ("/api/v1/history", "application/x-ndjson"),
        ("/api/v1/openapi.json", "application/json"),
    ] {
        let answer = server.ask("HEAD", path, &[]);
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{path}");
        assert_eq!(answer.header("content-type"), Some(content_type), "{path}");
    }
}
