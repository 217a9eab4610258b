//! `/api/v1/alerts`, with messages of Alertmanager.

use serde_json::{Value, json};
use virtlens_record::incidents;
use virtlens_tests::{eventually, fixture};

use super::reviews::Reviews;
use super::{Server, error};
use crate::program::Answer;

const ALERTS: &str = "/api/v1/alerts";

/// A message of Alertmanager 0.25 with alerts of this status and these labels.
fn message(alerts: &[(&str, Value)]) -> String {
    let alert = |(status, labels): &(&str, Value)| {
        json!({
            "status": status,
            "labels": labels,
            "annotations": {"summary": "the shop is slow"},
            "startsAt": "2026-11-27T03:10:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus/graph",
            "fingerprint": "0f1e2d3c4b5a6978",
        })
    };
    json!({
        "receiver": "node-a",
        "status": "firing",
        "alerts": alerts.iter().map(alert).collect::<Vec<_>>(),
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager",
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
    })
    .to_string()
}

fn firing(alert: &str, vm: &str) -> (&'static str, Value) {
    ("firing", json!({"alertname": alert, "vm": vm}))
}

/// Posts a message with this token.
pub(super) fn post(server: &Server, token: &str, body: &str) -> Answer {
    let header = format!("Authorization: Bearer {token}");
    server.send("POST", ALERTS, &[&header], body)
}

#[test]
fn firing_alert_begins_one_incident_with_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let reviews = Reviews::start(&[("alertmanager", &["/metrics", "post /api/v1/alerts"])]);
    let vm = fixture::snapshot().vms.swap_remove(0);
    let server = Server::keeping(fixture::snapshot(), reviews.reviewer(), dir.path());
    let body = message(&[
        firing("ShopSlow", &vm.vm),
        firing("Other", "a VM of another node"),
        ("resolved", json!({"alertname": "Ended", "vm": &*vm.vm})),
    ]);
    for _ in 0..2 {
        let answer = post(&server, "alertmanager", &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let taken: Value = serde_json::from_str(answer.text()).expect("JSON");
        assert_eq!(taken["vms"], 1);
    }
    let more = message(&[firing("ShopDown", &vm.vm)]);
    assert_eq!(post(&server, "alertmanager", &more).status, 200);
    let kept = eventually("the incident with both alerts", || {
        // A reading, which handles the alerts.
        let header = "Authorization: Bearer alertmanager";
        server.ask("GET", "/api/v1/snapshot", &[header]);
        let (mut kept, _) = incidents(dir.path()).ok()?;
        kept.retain(|one| one.vm.is(&vm));
        (kept.first()?.alerts.len() == 2).then_some(kept)
    });
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(kept[0].alerts, ["ShopSlow", "ShopDown"]);
}

#[test]
fn alerts_need_a_right_and_a_valid_message() {
    let dir = tempfile::tempdir().expect("a directory");
    let reviews = Reviews::start(&[
        ("alertmanager", &["/metrics", "post /api/v1/alerts"]),
        ("prometheus", &["/metrics"]),
        ("tracer", &["/metrics", "post /api/v1/trace"]),
        ("tenant", &["shop", "post /api/v1/alerts"]),
    ]);
    let server = Server::keeping(fixture::snapshot(), reviews.reviewer(), dir.path());
    let body = message(&[]);
    for (token, status, words) in [
        ("prometheus", 403, "lacks the verb post"),
        ("tracer", 403, "lacks the verb post"),
        ("tenant", 403, "only for readers of the whole node"),
        ("stale", 401, "authentication required"),
    ] {
        let answer = post(&server, token, &body);
        assert_eq!(answer.status, status, "{token}");
        let error = error(answer.text());
        assert!(error.contains(words), "{token}: {error}");
    }
    let long = " ".repeat(300 << 10);
    for (body, status, words) in [
        ("", 400, "invalid message"),
        ("[]", 400, "invalid message"),
        (&long, 413, "max_alerts"),
    ] {
        let answer = post(&server, "alertmanager", body);
        assert_eq!(answer.status, status, "{words}");
        let error = error(answer.text());
        assert!(error.contains(words), "{error}");
    }
    let answer = server.ask("GET", ALERTS, &["Authorization: Bearer alertmanager"]);
    assert_eq!(answer.status, 405);
    assert_eq!(answer.header("allow"), Some("POST"));
}

#[test]
fn agent_without_incidents_or_authentication_names_the_remedy() {
    let reviews = Reviews::start(&[("alertmanager", &["/metrics", "post /api/v1/alerts"])]);
    let silent = Server::with(fixture::snapshot(), Some(reviews.reviewer()), None);
    let answer = post(&silent, "alertmanager", &message(&[]));
    assert_eq!(answer.status, 404);
    assert!(error(answer.text()).contains("--record DIR"));
    let open = Server::start(fixture::snapshot());
    let answer = open.send("POST", ALERTS, &[], &message(&[]));
    assert_eq!(answer.status, 403);
    assert!(error(answer.text()).contains("--web-auth kubernetes"));
}
