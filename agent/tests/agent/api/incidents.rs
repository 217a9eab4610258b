//! `/api/v1/incidents`.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use virtlens_model::snapshot::{Check, Finding, Vm};
use virtlens_model::vocab::MismatchKind;
use virtlens_record::{Incident, Incidents};
use virtlens_tests::fixture;

use super::reviews::Reviews;
use super::{Server, error, record};
use crate::program::output;

const SHOP: &str = "Authorization: Bearer shop-token";
const BANK: &str = "Authorization: Bearer bank-token";
const ELSEWHERE: &str = "Authorization: Bearer elsewhere-token";
const READER: &str = "Authorization: Bearer prometheus";

/// Keeps an incident of a VM at second 1005 of the recording in a directory, with this trace.
pub(crate) fn keep(folder: &Path, vm: &Vm, trace: Option<&[u8]>) -> Incident {
    let overlap = Check::Place(MismatchKind::VcpuOverlap);
    let evidence = "vCPU 0 is pinned to pCPU 1, as one of secret-vm".to_owned();
    let findings = vec![Finding::new(overlap, evidence, 2.0)];
    let (mut store, _) = Incidents::open(folder, 1 << 30).expect("the folder is ours");
    let time = "1970-01-01T00:16:45Z";
    let mut incident = Incident::new(vm, findings, "node-a", time, 1_005_000_000_000);
    let files = fs::read_dir(folder).expect("a folder");
    let segments = files.map(|file| file.expect("a file").path());
    let segments = segments.filter(|path| path.extension().is_some_and(|end| end == "vlrec"));
    let segments: Vec<_> = segments.collect();
    assert!(!segments.is_empty());
    store
        .begin(&mut incident, &segments)
        .expect("there is room");
    if let Some(trace) = trace {
        let file = store.begin_trace(&incident.id).expect("there is room");
        fs::write(file, trace).expect("there is room");
        store.keep_trace(&mut incident).expect("there is room");
    }
    incident
}

fn shop() -> Vm {
    fixture::snapshot().vms.swap_remove(0)
}

fn bank() -> Vm {
    Vm {
        namespace: Some("bank".into()),
        pod: Some("ledger-0".into()),
        vm: "bank-vm".into(),
        pid: 77,
        ..Vm::default()
    }
}

fn reviews() -> Reviews {
    Reviews::start(&[
        ("prometheus", &["/metrics"]),
        ("shop-token", &["shop"]),
        ("bank-token", &["bank"]),
        ("elsewhere-token", &["elsewhere"]),
    ])
}

fn json(server: &Server, path: &str, headers: &[&str]) -> Value {
    let answer = server.ask("GET", path, headers);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn ids(list: &Value) -> Vec<&str> {
    let all = list["incidents"].as_array().expect("a list").iter();
    all.map(|one| one["id"].as_str().expect("an id")).collect()
}

#[test]
fn incidents_are_those_of_the_command() {
    let dir = tempfile::tempdir().expect("a directory");
    record(dir.path(), &fixture::snapshot(), 1000..1010);
    let trace: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let incident = keep(dir.path(), &shop(), Some(&trace));
    let other = keep(dir.path(), &bank(), None);
    let server = Server::with(fixture::snapshot(), None, Some(dir.path()));
    let printed = |args: &[&str]| -> Value {
        let from = dir.path().to_str().expect("text");
        let output = output(&[args, &["-o", "json", "--from", from]].concat());
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let list = json(&server, "/api/v1/incidents", &[]);
    assert_eq!(list, printed(&["incidents"]));
    assert_eq!(ids(&list), [&*incident.id, &other.id]);
    let of_shop = json(&server, "/api/v1/incidents?vm=shop/web-0", &[]);
    assert_eq!(ids(&of_shop), [&*incident.id]);
    assert!(ids(&json(&server, "/api/v1/incidents?vm=x", &[])).is_empty());

    let path = format!("/api/v1/incidents/{}", incident.id);
    let shown = json(&server, &path, &[]);
    assert_eq!(shown, printed(&["incidents", "show", &incident.id]));
    let file = server.get(&format!("{path}/trace"));
    assert_eq!((file.status, &file.body), (200, &trace));
    assert_eq!(
        file.header("content-type"),
        Some("application/octet-stream")
    );
    let head = server.ask("HEAD", &format!("{path}/trace"), &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some("300000"));
    let missing = server.get(&format!("/api/v1/incidents/{}/trace", other.id));
    assert_eq!(missing.status, 404);
    assert!(error(missing.text()).contains("no trace: not yet"));
}

#[test]
fn tenants_see_only_their_own_incidents_without_traces() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut node = fixture::snapshot();
    node.vms.push(bank());
    record(dir.path(), &node, 1000..1010);
    let of_shop = keep(dir.path(), &shop(), Some(b"a trace"));
    let of_bank = keep(dir.path(), &bank(), Some(b"a trace"));
    let nameless = Vm {
        namespace: None,
        ..bank()
    };
    let nameless = keep(dir.path(), &nameless, None);
    let reviews = reviews();
    let server = Server::with(node, Some(reviews.reviewer()), Some(dir.path()));
    for (token, own, others) in [
        (SHOP, &of_shop, [&of_bank, &nameless]),
        (BANK, &of_bank, [&of_shop, &nameless]),
    ] {
        let list = json(&server, "/api/v1/incidents", &[token]);
        assert_eq!(ids(&list), [&*own.id]);
        let path = format!("/api/v1/incidents/{}", own.id);
        let shown = json(&server, &path, &[token]);
        assert_eq!(shown["incident"], list["incidents"][0]);
        assert_ne!(shown["during"], Value::Null);
        let place = dir.path().to_str().expect("text");
        for text in [list.to_string(), shown.to_string()] {
            for secret in [place, "secret-vm", "trace.pftrace"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
        let trace = server.ask("GET", &format!("{path}/trace"), &[token]);
        assert_eq!(trace.status, 403);
        assert!(error(trace.text()).contains("readers of the whole node"));
        for other in others {
            for part in ["", "/trace"] {
                let path = format!("/api/v1/incidents/{}{part}", other.id);
                let answer = server.ask("GET", &path, &[token]);
                assert_eq!(answer.status, 404, "{path}");
                assert_eq!(error(answer.text()), "incident not found");
            }
        }
    }
    assert!(ids(&json(&server, "/api/v1/incidents", &[ELSEWHERE])).is_empty());
    assert_eq!(ids(&json(&server, "/api/v1/incidents", &[READER])).len(), 3);
    let trace = format!("/api/v1/incidents/{}/trace", of_shop.id);
    assert_eq!(server.ask("GET", &trace, &[ELSEWHERE]).status, 404);
    assert_eq!(server.ask("GET", &trace, &[READER]).body, b"a trace");
}

#[test]
fn hostile_ids_are_not_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let records = dir.path().join("records");
    fs::create_dir(&records).expect("created");
    record(&records, &fixture::snapshot(), 1000..1010);
    let incident = keep(&records, &shop(), None);
    // An incident outside of the directory of the incidents.
    let inside = records.join("incidents").join(&incident.id);
    fs::rename(inside, dir.path().join(&incident.id)).expect("moved");
    let server = Server::with(fixture::snapshot(), None, Some(&records));
    let id = &*incident.id;
    for hostile in [
        id.to_owned(),
        "..".to_owned(),
        format!("../../{id}"),
        format!("..%2f..%2f{id}"),
        format!("%2e%2e/%2e%2e/{id}"),
        format!("/{id}"),
        format!("{id}%00"),
        "1-".repeat(2000),
        String::new(),
    ] {
        for part in ["", "/trace"] {
            let path = format!("/api/v1/incidents/{hostile}{part}");
            let answer = server.get(&path);
            assert_eq!(answer.status, 404, "{path}");
        }
    }
    let silent = Server::start(fixture::snapshot());
    for path in ["", "/1-1", "/1-1/trace"] {
        let answer = silent.get(&format!("/api/v1/incidents{path}"));
        assert_eq!(answer.status, 404);
        assert!(error(answer.text()).contains("--record DIR"), "{path}");
    }
}

#[test]
fn readers_of_traces_above_the_limit_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    record(dir.path(), &fixture::snapshot(), 1000..1010);
    let trace = vec![7; 32 << 20];
    let incident = keep(dir.path(), &shop(), Some(&trace));
    let server = Server::with(fixture::snapshot(), None, Some(dir.path()));
    let path = format!("/api/v1/incidents/{}/trace", incident.id);
    // The file is larger than the buffers of a connection, so the agent waits for the clients.
    let mut open: Vec<_> = (0..2)
        .map(|_| {
            let mut client = server.open("GET", &path, &[], "");
            client.read_exact(&mut [0; 9]).expect("it answers");
            client
        })
        .collect();
    let refused = server.get(&path);
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("10"));
    let mut rest = Vec::new();
    let mut last = open.pop().expect("one");
    last.read_to_end(&mut rest).expect("it is sent");
    assert!(rest.ends_with(&trace));
    assert_eq!(server.get("/api/v1/incidents").status, 200);
}
