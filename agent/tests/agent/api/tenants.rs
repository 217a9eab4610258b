//! Clients with tokens: readers of the whole node, and tenants.

use std::path::Path;

use serde_json::Value;
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_tests::fixture;

use super::incidents::keep;
use super::reviews::Reviews;
use super::{Server, error, record, vms};
use crate::program::Answer;

const SHOP: &str = "Authorization: Bearer shop-token";
const BANK: &str = "Authorization: Bearer bank-token";

const HISTORY: &str = "/api/v1/history?since=1970-01-01T00:00:00Z&until=1970-01-01T01:00:00Z";
const ENDPOINTS: [&str; 3] = ["/api/v1/snapshot", "/api/v1/stream?interval=1s", HISTORY];

/// The only incident, of a VM of `shop`.
const INCIDENT: &str = "/api/v1/incidents/19700101T001645Z-000000";
const TRACE: &str = "/api/v1/incidents/19700101T001645Z-000000/trace";

/// A VM of the namespaces `shop` and `bank` each, and two without a known pod.
fn node() -> Snapshot {
    let mut node = fixture::snapshot();
    let bank = Vm {
        namespace: Some("bank".into()),
        pod: Some("ledger-0".into()),
        vm: "bank-vm".into(),
        pid: 77,
        running: true,
        ..Vm::default()
    };
    node.vms.push(bank);
    node
}

fn reviews() -> Reviews {
    Reviews::start(&[
        ("prometheus", &["/metrics"]),
        // As every authenticated user of a cluster.
        (
            "user",
            &["/api/v1/snapshot", "/api/v1/stream", "/api/v1/history"],
        ),
        ("shop-token", &["shop", "other"]),
        ("bank-token", &["bank"]),
        ("elsewhere-token", &["elsewhere"]),
    ])
}

fn start(reviews: &Reviews, folder: &Path) -> Server {
    record(folder, &node(), 1000..1003);
    keep(folder, &node().vms[0], None);
    Server::with(node(), Some(reviews.reviewer()), Some(folder))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// The first readings of an endpoint.
fn readings(server: &Server, endpoint: &str, authorization: &str) -> Vec<Value> {
    if endpoint.contains("snapshot") {
        let answer = server.ask("GET", endpoint, &[authorization]);
        assert_eq!(answer.status, 200, "{}", answer.text());
        return vec![serde_json::from_slice(&answer.body).expect("JSON")];
    }
    server.lines(endpoint, &[authorization]).take(2).collect()
}

#[test]
fn tenants_see_only_their_own_vms_on_every_endpoint() {
    let dir = tempfile::tempdir().expect("a directory");
    let (reviews, whole) = (reviews(), node().vms.len());
    let server = start(&reviews, dir.path());
    for endpoint in ENDPOINTS {
        for (authorization, own, others) in [
            (SHOP, "sandbox-7c41e0", ["bank", "ledger", "vms_database"]),
            (BANK, "bank-vm", ["shop", "sandbox", "vms_database"]),
        ] {
            let seen = readings(&server, endpoint, authorization);
            assert!(!seen.is_empty());
            for one in seen {
                assert_eq!(vms(&one), [own], "{endpoint}");
                let text = one.to_string();
                for other in others {
                    assert!(!text.contains(other), "{endpoint}: {text}");
                }
                for counts in ["dropped", "maps", "programs"] {
                    assert_eq!(one[counts], Value::Array(Vec::new()));
                }
            }
        }
        for one in readings(&server, endpoint, &bearer("prometheus")) {
            assert_eq!(vms(&one).len(), whole, "{endpoint}");
        }
    }
}

#[test]
fn tenant_selects_among_own_vms() {
    let dir = tempfile::tempdir().expect("a directory");
    let reviews = reviews();
    let server = start(&reviews, dir.path());
    let ask = |vm: &str| server.ask("GET", &format!("/api/v1/snapshot?vm={vm}"), &[SHOP]);
    assert_eq!(ask("shop/web-0").status, 200);
    for other in [
        "bank/ledger-0",
        "bank-vm",
        "77",
        "vms_database",
        "shop/web-1",
    ] {
        let answer = ask(other);
        assert_eq!(answer.status, 404, "{other}");
        // The nearest names would be those of others.
        assert_eq!(error(answer.text()), format!("VM {other} not found"));
    }
    let path = "/api/v1/stream?vm=bank-vm";
    assert_eq!(server.ask("GET", path, &[SHOP]).status, 404);
    let path = format!("{HISTORY}&vm=bank-vm");
    assert_eq!(server.lines(&path, &[SHOP]).count(), 0);
}

#[test]
fn requests_without_a_valid_token_are_refused_on_every_endpoint() {
    let dir = tempfile::tempdir().expect("a directory");
    let reviews = reviews();
    let server = start(&reviews, dir.path());
    let endpoints = ENDPOINTS.iter().chain(&[
        "/api/v1/incidents",
        INCIDENT,
        TRACE,
        "/api/v1/openapi.json",
        "/api/v1/x",
    ]);
    for endpoint in endpoints {
        for headers in [
            &[][..],
            &["Authorization: Bearer stale"],
            &["Authorization: Basic YTpi"],
        ] {
            let answer = server.ask("GET", endpoint, headers);
            assert_eq!(answer.status, 401, "{endpoint} {headers:?}");
            let wanted = answer.header("www-authenticate");
            assert_eq!(wanted, Some("Bearer realm=\"virtlens\""));
            assert_eq!(
                error(answer.text()),
                "authentication required: bearer token"
            );
        }
    }
    let answer: Answer = server.get("/healthz");
    assert_eq!(answer.status, 200);
}

/// A valid token whose user has rights in other namespaces only.
#[test]
fn elsewhere_sees_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let reviews = reviews();
    let server = start(&reviews, dir.path());
    let elsewhere = bearer("elsewhere-token");
    for endpoint in ["/api/v1/snapshot", "/api/v1/stream"] {
        let answer = server.ask("GET", endpoint, &[&elsewhere]);
        assert_eq!(answer.status, 403, "{endpoint}");
        assert!(error(answer.text()).starts_with("forbidden: "));
    }
    assert_eq!(server.lines(HISTORY, &[&elsewhere]).count(), 0);
    // The other paths stay all or nothing.
    for tenant in [SHOP, &elsewhere] {
        for path in ["/metrics", "/sources"] {
            assert_eq!(server.ask("GET", path, &[tenant]).status, 403, "{path}");
        }
    }
    let user = bearer("user");
    for path in ["/metrics", "/api/v1/snapshot"] {
        assert_eq!(server.ask("GET", path, &[&user]).status, 403, "{path}");
    }
    let description = server.ask("GET", "/api/v1/openapi.json", &[&elsewhere]);
    assert_eq!(description.status, 200, "it shows nothing of the node");
}

/// A refused path is reviewed again after ten seconds, for which the stream waits.
#[test]
fn revoked_token_loses_access_to_every_endpoint() {
    let dir = tempfile::tempdir().expect("a directory");
    let reviews = reviews();
    let server = start(&reviews, dir.path());
    let mut lines = server.lines("/api/v1/stream?interval=1s", &[SHOP]);
    let first = lines.next().expect("a line");
    assert_eq!(vms(&first), ["sandbox-7c41e0"]);
    for endpoint in ["/api/v1/snapshot", HISTORY] {
        assert!(!readings(&server, endpoint, SHOP).is_empty());
    }
    for endpoint in ["/api/v1/incidents", INCIDENT] {
        let answer = server.ask("GET", endpoint, &[SHOP]);
        assert_eq!(answer.status, 200, "{endpoint}: {}", answer.text());
    }
    assert_eq!(server.ask("GET", TRACE, &[SHOP]).status, 403);
    reviews.revoke("shop-token");
    let mut last = first;
    for line in lines.by_ref().take(60) {
        last = line;
    }
    assert_eq!(last["error"], "authentication required", "the stream ends");
    assert_eq!(lines.next(), None);
    // Each path has its own review, which expires in its turn.
    let is_refused = |path: &&str| server.ask("HEAD", path, &[SHOP]).status == 401;
    let paths = [
        "/api/v1/stream",
        "/api/v1/snapshot",
        HISTORY,
        "/api/v1/incidents",
        INCIDENT,
        TRACE,
        // Another method is refused, too, but later.
        "/api/v1/trace",
    ];
    let mut seconds = server.lines("/api/v1/stream?interval=1s", &[BANK]).take(30);
    assert!(seconds.any(|_| paths.iter().all(is_refused)));
}

#[test]
fn reviews_are_cached_and_limited_to_what_a_request_needs() {
    let dir = tempfile::tempdir().expect("a directory");
    let reviews = reviews();
    let server = start(&reviews, dir.path());
    let snapshot = |query: &str| {
        let path = format!("/api/v1/snapshot{query}");
        let answer = server.ask("GET", &path, &[SHOP]);
        (answer.status, reviews.asked())
    };
    let (status, asked) = snapshot("?vm=shop/web-0");
    assert_eq!(
        (status, asked),
        (200, ["/metrics", "shop"].map(str::to_owned).into())
    );
    // Only what is not known yet.
    assert_eq!(snapshot(""), (200, vec!["bank".to_owned()]));
    assert_eq!(snapshot(""), (200, Vec::new()));
}

/// A node with VMs of many namespaces: each request reviews some, and is answered when all
/// are known.
#[test]
fn many_namespaces_are_reviewed_in_several_requests() {
    let mut node = node();
    let many = (0..100).map(|number| Vm {
        namespace: Some(format!("n{number}").into()),
        vm: format!("vm-{number}").into(),
        ..Vm::default()
    });
    node.vms.extend(many);
    let reviews = reviews();
    let server = Server::with(node, Some(reviews.reviewer()), None);
    let first = server.ask("GET", "/api/v1/snapshot", &[SHOP]);
    assert_eq!(first.status, 503, "{}", first.text());
    assert_eq!(first.header("retry-after"), Some("1"));
    assert_eq!(reviews.asked().len(), 1 + 64);
    let second = readings(&server, "/api/v1/snapshot", SHOP);
    assert_eq!(vms(&second[0]), ["sandbox-7c41e0"]);
    assert_eq!(reviews.asked().len(), 102 - 64);
}
