//! The description of the API agrees with the answers.

use std::collections::BTreeSet;

use serde_json::Value;
use virtlens::http::Route;
use virtlens_model::snapshot::{Check, Snapshot};
use virtlens_model::vocab::{MismatchKind, Role, Scope};
use virtlens_tests::{fixture, fleet};

use super::alerts::post;
use super::incidents::keep;
use super::reviews::Reviews;
use super::schema::{check, description};
use super::{Server, record};
use crate::program::Answer;

/// The described path of a requested one.
fn template(path: &str) -> String {
    let parts = path.strip_prefix("/api/v1/incidents/");
    match parts.map(|rest| rest.split_once('/')) {
        None => path.to_owned(),
        Some(None) => "/api/v1/incidents/{id}".to_owned(),
        Some(Some((_, rest))) => format!("/api/v1/incidents/{{id}}/{rest}"),
    }
}

/// Compares an answer with the response of this status that is described for its path.
fn assert_described(all: &Value, path: &str, answer: &Answer) {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let path = &template(path);
    let status = answer.status.to_string();
    let operations = &all["paths"][path];
    let operation = operations.get("post").unwrap_or(&operations["get"]);
    let responses = &operation["responses"];
    let content = &responses[&status]["content"];
    let (media_type, content) = content
        .as_object()
        .and_then(|content| content.iter().next())
        .unwrap_or_else(|| panic!("{path}: {status} is not described"));
    assert_eq!(answer.header("content-type"), Some(&**media_type), "{path}");
    if media_type == "application/octet-stream" {
        return;
    }
    let is_lines = media_type == "application/x-ndjson";
    let whole = [answer.text()];
    let texts = if is_lines {
        answer.text().lines().collect()
    } else {
        whole.to_vec()
    };
    for text in texts {
        let value = serde_json::from_str(text).expect("JSON");
        check(all, &content["schema"], &value, path).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn every_route_is_described() {
    let description = description();
    let paths = description["paths"].as_object().expect("paths").keys();
    let described: BTreeSet<&str> = paths.map(String::as_str).collect();
    let routes: BTreeSet<&str> = Route::ALL.into_iter().map(Route::path).collect();
    assert_eq!(described, routes);
}

#[test]
fn answers_of_every_route_are_as_described() {
    let dir = tempfile::tempdir().expect("a directory");
    record(dir.path(), &fixture::snapshot(), 1000..1010);
    let vm = fixture::snapshot().vms.swap_remove(0);
    let traced = keep(dir.path(), &vm, Some(b"a trace"));
    let incident = format!("/api/v1/incidents/{}", traced.id);
    let trace = incident.clone() + "/trace";
    let untraced = format!("/api/v1/incidents/{}", keep(dir.path(), &vm, None).id);
    let missing = untraced.clone() + "/trace";
    let server = Server::with(fixture::snapshot(), None, Some(dir.path()));
    let silent = Server::start(fixture::snapshot());
    let all = description();
    let time = "since=1970-01-01T00:00:00Z&until=1970-01-02T00:00:00Z";
    let history = format!("/api/v1/history?{time}&limit=3");
    for (server, path, status) in [
        (&server, "/api/v1/snapshot", 200),
        (&server, "/api/v1/snapshot?vm=shop/web-0", 200),
        (&server, "/api/v1/snapshot?vm=web-1", 404),
        (&server, "/api/v1/snapshot?pod=web-0", 400),
        (&server, "/api/v1/stream?vm=web-1", 404),
        (&server, "/api/v1/stream?interval=1", 400),
        (&server, &history, 200),
        (&server, "/api/v1/history?limit=0", 400),
        (&silent, "/api/v1/history", 404),
        (&server, "/api/v1/incidents", 200),
        (&server, "/api/v1/incidents?vm=x", 200),
        (&server, "/api/v1/incidents?pod=x", 400),
        (&silent, "/api/v1/incidents", 404),
        (&server, &incident, 200),
        (&server, &untraced, 200),
        (&server, "/api/v1/incidents/1", 404),
        (&server, &trace, 200),
        (&server, &missing, 404),
        (&server, "/api/v1/openapi.json", 200),
        (&server, "/api/v1/openapi.json?x", 400),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_described(&all, path, &answer);
    }
    let reviews = Reviews::start(&[("tracer", &["/metrics", "post /api/v1/trace"])]);
    let asked = Server::with(fixture::snapshot(), Some(reviews.reviewer()), None);
    for (server, path, token, status) in [
        (&silent, "/api/v1/trace?vm=web-0", "", 403),
        (&asked, "/api/v1/trace?vm=web-0", "stale", 401),
        (&asked, "/api/v1/trace", "tracer", 400),
        (&asked, "/api/v1/trace?vm=web-1", "tracer", 404),
        (&asked, "/api/v1/trace?vm=web-0", "tracer", 503),
    ] {
        let header = format!("Authorization: Bearer {token}");
        let answer = server.ask("POST", path, &[&header]);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_described(&all, path, &answer);
    }
    let reviews = Reviews::start(&[("alertmanager", &["/metrics", "post /api/v1/alerts"])]);
    let keeping = Server::keeping(fixture::snapshot(), reviews.reviewer(), dir.path());
    let message = r#"{"version": "4", "alerts": []}"#;
    for (token, body, status) in [
        ("alertmanager", message, 200),
        ("alertmanager", "{}", 400),
        ("stale", message, 401),
    ] {
        let answer = post(&keeping, token, body);
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_described(&all, "/api/v1/alerts", &answer);
    }
    let stream = &all["paths"]["/api/v1/stream"]["get"]["responses"]["200"]["content"];
    let schema = &stream["application/x-ndjson"]["schema"];
    let line = server.lines("/api/v1/stream", &[]).next().expect("a line");
    check(&all, schema, &line, "/api/v1/stream").unwrap_or_else(|error| panic!("{error}"));
}

fn described(snapshot: &Snapshot) -> Result<(), String> {
    let all = description();
    let value = serde_json::to_value(snapshot).expect("JSON");
    let schema = &all["components"]["schemas"]["Snapshot"];
    check(&all, schema, &value, "snapshot")
}

#[test]
fn every_field_of_a_snapshot_is_described() {
    assert_eq!(described(&fixture::snapshot()), Ok(()));
    assert_eq!(described(&fleet::reading(3, 4).snapshot), Ok(()));
}

/// Properties of a schema that no value at this place has.
fn unused(all: &Value, schema: &Value, values: &[&Value], place: &str, found: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = all.pointer(reference.trim_start_matches('#'));
        return unused(all, target.expect(reference), values, place, found);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        return unused(all, &choices[0], values, place, found);
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let of_name = values.iter().filter_map(|value| value.get(name));
        let of_name: Vec<&Value> = of_name.collect();
        let known = of_name.iter().copied().filter(|value| !value.is_null());
        let known: Vec<&Value> = known.collect();
        let place = format!("{place}.{name}");
        if of_name.is_empty() {
            found.push(place);
        } else if !known.is_empty() {
            unused(all, schema, &known, &place, found);
        }
    }
    let items = values.iter().filter_map(|value| value.as_array()).flatten();
    let items: Vec<&Value> = items.collect();
    if !items.is_empty() {
        unused(all, &schema["items"], &items, place, found);
    }
}

/// A field that was removed or renamed is not described any more. Of values that the fixture
/// lacks only the name is compared.
#[test]
fn every_described_field_occurs() {
    let all = description();
    let value = serde_json::to_value(fixture::snapshot()).expect("JSON");
    let schema = &all["components"]["schemas"]["Snapshot"];
    let mut found = Vec::new();
    unused(&all, schema, &[&value], "snapshot", &mut found);
    assert_eq!(found, ["?"; 0]);
}

#[test]
fn closed_sets_are_described_completely() {
    let all = description();
    for (name, expected) in [
        ("Check", Check::ALL.map(Check::name).to_vec()),
        (
            "MismatchKind",
            MismatchKind::ALL.map(MismatchKind::name).to_vec(),
        ),
        ("Role", Role::ALL.map(Role::name).to_vec()),
        ("Scope", Scope::ALL.map(Scope::name).to_vec()),
    ] {
        let known = all["components"]["schemas"][name]["enum"].as_array();
        let known = known.expect("a set").iter().filter_map(Value::as_str);
        let known: BTreeSet<&str> = known.collect();
        assert_eq!(known, expected.into_iter().collect(), "{name}");
    }
}

#[test]
fn undescribed_and_missing_fields_are_found() {
    let all = description();
    let schema = &all["components"]["schemas"]["Snapshot"];
    let whole = serde_json::to_value(fixture::snapshot()).expect("JSON");
    let compare = |change: fn(&mut Value)| {
        let mut value = whole.clone();
        change(&mut value);
        check(&all, schema, &value, "snapshot")
    };
    assert_eq!(compare(|_| {}), Ok(()));
    for (change, words) in [
        (
            (|value| value["vms"][0]["new"] = 1.into()) as fn(&mut Value),
            "snapshot.vms[0].new is not described",
        ),
        (
            |value| {
                let node = value["node"].as_object_mut().expect("a node");
                node.remove("cpus").expect("a number");
            },
            "snapshot.node: cpus is missing",
        ),
        (
            |value| value["clock_ns"] = (-1).into(),
            "snapshot.clock_ns: -1 is not of",
        ),
        (
            |value| value["vms"][0]["roles"][0]["role"] = "cpu".into(),
            "\"cpu\" is not in",
        ),
    ] {
        let error = compare(change).expect_err(words);
        assert!(error.contains(words), "{error}");
    }
}
