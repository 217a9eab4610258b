//! An alert of a real Alertmanager begins an incident of a real VM.

use std::fs;

use serde_json::json;
use virtlens_record::incidents;
use virtlens_tests::alertmanager::Alertmanager;
use virtlens_tests::{eventually, need, perfetto, reader};

use crate::api::USERS;
use crate::recording::{Busy, readings, recording_agent_with};

#[test]
fn alert_begins_incident_with_trace() {
    let test = "alert_begins_incident_with_trace";
    let needs = [
        need::cpu_cgroup(),
        need::alertmanager(),
        need::mount_namespace(),
        perfetto::there(),
    ];
    if !reader::ready(test) || !need::all(test, needs) {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let path = |name: &str| folder.path().join(name);
    let records = path("records");
    fs::write(path("web.yaml"), USERS).expect("there is room");
    // The busy vCPU and a busy host raise none of these.
    let config = "thresholds: {vcpus_busy: 100, vcpu_wait: 100}\nweb_trace_users: admin\n";
    fs::write(path("config.yaml"), config).expect("there is room");
    let guest = Busy::start();
    let [web, config] = ["web.yaml", "config.yaml"].map(|name| path(name).display().to_string());
    let args = ["--web-config", &web, "--config", &config];
    let agent = recording_agent_with(&records, &args);
    let vm = eventually("a reading of the VM", || {
        readings(&records, guest.pid()).pop().map(|(_, vm)| vm)
    });

    let receiver = format!(
        "route: {{receiver: node, group_wait: 0s}}\n\
         receivers:\n\
         - name: node\n  \
           webhook_configs:\n  \
           - url: http://{}/api/v1/alerts\n    \
             http_config: {{basic_auth: {{username: admin, password: secret}}}}\n",
        agent.address
    );
    fs::write(path("alertmanager.yaml"), receiver).expect("there is room");
    let alertmanager = Alertmanager::start(&path("alertmanager.yaml"));
    alertmanager.fire(&[
        json!({"labels": {"alertname": "ShopSlow", "vm": &*vm.vm}}),
        json!({"labels": {"alertname": "ShopSlow", "vm": "of-another-node"}}),
    ]);
    let incident = eventually("the incident with its trace", || {
        let (all, _) = incidents(&records).ok()?;
        all.into_iter().find(|one| one.trace.is_some())
    });
    println!("{incident:#?}");
    assert!(incident.vm.is(&vm));
    assert_eq!(incident.alerts, ["ShopSlow"]);
    let (all, _) = incidents(&records).expect("it is there");
    assert_eq!(all.len(), 1, "{all:#?}");
}
