//! `/api/v1/alerts`: the webhook of Alertmanager. An alert that fires for a VM of this node
//! begins an incident.

use std::sync::Arc;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use virtlens_model::snapshot::{API_VERSION, Snapshot, Vm};

use crate::collect::alerts::Alerted;
use crate::http::answer::{Answer, JSON, Problem, data};
use crate::http::query;
use crate::http::state::Caller;

/// Longest message, bytes: Alertmanager sends 1 to 2 KB for an alert, and all of a group unless
/// `max_alerts` is set.
const MAX_BODY: usize = 256 << 10;

/// Longest name of an alert, bytes.
const MAX_NAME: usize = 256;

/// Version of the message (`template/template.go` and `notify/webhook/webhook.go` of
/// Alertmanager; 4 since 0.5).
const VERSION: &str = "4";

/// A message, as far as it is used.
#[derive(Deserialize)]
struct Message {
    version: String,
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    status: String,
    labels: Labels,
}

#[derive(Deserialize)]
struct Labels {
    alertname: String,
    namespace: Option<String>,
    pod: Option<String>,
    vm: Option<String>,
}

impl Labels {
    /// Whether the alert is about this VM. One about a container or a node names neither a pod
    /// nor a VM.
    fn name(&self, vm: &Vm) -> bool {
        let agrees = |label: &Option<String>, value: Option<&str>| {
            label.as_deref().is_none_or(|label| Some(label) == value)
        };
        (self.vm.is_some() || self.pod.is_some())
            && agrees(&self.vm, Some(&vm.vm))
            && agrees(&self.pod, vm.pod.as_deref())
            && agrees(&self.namespace, vm.namespace.as_deref())
    }
}

/// Takes the alerts of a message.
pub(super) async fn take(caller: Caller, body: Incoming) -> Result<Answer, Problem> {
    caller.admit_trace().await?;
    query::none(caller.query()).map_err(Problem::bad_request)?;
    let Some(alerts) = caller.state.readings.alerts() else {
        let text = "the agent keeps no incidents; start it with --record DIR, and \
                    --incidents-max-mib above 0";
        return Err(Problem::new(StatusCode::NOT_FOUND, text));
    };
    let _place = caller.state.message()?;
    let firing = firing(&read(body).await?).map_err(Problem::bad_request)?;
    let snapshot = caller.state.readings.snapshot().await?;
    let found = about(&snapshot, firing);
    let count = found.len();
    for alerted in found {
        let Alerted { vm, alert, .. } = alerted.clone();
        if alerts.add(alerted) {
            tracing::info!(vm = &*vm, alert, "an alert fires");
        }
    }
    let answer = json!({"apiVersion": API_VERSION, "kind": "AlertsTaken", "vms": count});
    Ok(data(JSON, answer.to_string() + "\n"))
}

async fn read(body: Incoming) -> Result<Vec<u8>, Problem> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => {
            let text = format!(
                "the message is longer than {MAX_BODY} bytes; set max_alerts in the receiver's \
                 webhook_configs"
            );
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Err(error) => Err(Problem::bad_request(format!("incomplete message: {error}"))),
    }
}

/// The labels of the firing alerts of a message.
fn firing(message: &[u8]) -> Result<Vec<Labels>, String> {
    let message: Message =
        serde_json::from_slice(message).map_err(|error| format!("invalid message: {error}"))?;
    if message.version != VERSION {
        let version = message.version;
        return Err(format!(
            "version {version:?} of the message is unknown; expected {VERSION:?}, which \
             Alertmanager sends since 0.5"
        ));
    }
    let alerts = message.alerts.into_iter();
    let firing = alerts.filter(|alert| alert.status == "firing");
    let labels = firing.map(|alert| alert.labels);
    labels
        .map(|labels| match labels.alertname.len() {
            0..=MAX_NAME => Ok(labels),
            length => Err(format!(
                "the name of an alert has {length} bytes; at most {MAX_NAME} are accepted"
            )),
        })
        .collect()
}

/// The running VMs that firing alerts are about.
fn about(snapshot: &Snapshot, firing: Vec<Labels>) -> Vec<Alerted> {
    let running: Vec<&Vm> = snapshot.vms.iter().filter(|vm| vm.running).collect();
    let about = |labels: Labels| {
        let vms = running.iter().filter(|vm| labels.name(vm));
        let alerted = vms.map(|vm| Alerted {
            pid: vm.pid,
            vm: Arc::clone(&vm.vm),
            alert: labels.alertname.clone(),
        });
        alerted.collect::<Vec<_>>()
    };
    firing.into_iter().flat_map(about).collect()
}

/// Checks a message of Alertmanager.
///
/// # Errors
///
/// If it is not one, with the reason.
pub fn check_alerts(message: &[u8]) -> Result<(), String> {
    firing(message).map(|_| ())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use virtlens_tests::fixture;

    use super::{MAX_NAME, about, firing};

    /// Names of the VMs that a message is about.
    fn vms(alerts: &serde_json::Value) -> Result<Vec<String>, String> {
        let message = json!({"version": "4", "alerts": alerts}).to_string();
        let about = about(&fixture::snapshot(), firing(message.as_bytes())?);
        let names = about.into_iter();
        Ok(names
            .map(|one| format!("{}: {}", one.alert, one.vm))
            .collect())
    }

    #[test]
    fn firing_alert_names_vms_by_all_its_labels() {
        let vm = fixture::snapshot().vms.swap_remove(0);
        let (namespace, pod) = (vm.namespace.as_deref(), vm.pod.as_deref());
        let found = vec![format!("Slow: {}", vm.vm)];
        for (labels, expected) in [
            (json!({"vm": &*vm.vm}), &found),
            (json!({"pod": pod, "namespace": namespace}), &found),
            (json!({"pod": pod, "vm": &*vm.vm, "container": "x"}), &found),
            (json!({"pod": pod, "namespace": "other"}), &vec![]),
            (json!({"pod": pod, "vm": "other"}), &vec![]),
            (json!({"namespace": namespace}), &vec![]),
            (json!({}), &vec![]),
        ] {
            let mut labels = labels;
            labels["alertname"] = json!("Slow");
            let firing = json!([{"status": "firing", "labels": labels}]);
            assert_eq!(vms(&firing).as_ref(), Ok(expected), "{labels}");
            let resolved = json!([{"status": "resolved", "labels": labels}]);
            assert_eq!(vms(&resolved), Ok(vec![]), "{labels}");
        }
    }

    #[test]
    fn other_messages_are_errors() {
        let name = "n".repeat(MAX_NAME + 1);
        let long = json!({"version": "4", "alerts": [
            {"status": "firing", "labels": {"alertname": name}},
        ]});
        for (message, expected) in [
            ("", "invalid message: EOF"),
            ("{}", "missing field `version`"),
            (r#"{"version": "3", "alerts": []}"#, "version \"3\""),
            (&long.to_string(), "the name of an alert has 257 bytes"),
        ] {
            let error = firing(message.as_bytes()).map(|_| ()).expect_err(message);
            assert!(error.contains(expected), "{message}: {error}");
        }
    }
}
