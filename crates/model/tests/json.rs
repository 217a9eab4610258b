//! A snapshot can be read from the JSON that it is printed as.

use std::sync::Arc;

use virtlens_model::snapshot::Snapshot;
use virtlens_tests::{fixture, fleet};

fn printed_and_read(snapshot: &Snapshot) -> Snapshot {
    let json = serde_json::to_string(snapshot).expect("it can be printed");
    serde_json::from_str(&json).expect("it can be read")
}

#[test]
fn snapshot_round_trips_through_json() {
    let snapshot = fixture::snapshot();
    assert_eq!(printed_and_read(&snapshot), snapshot);
    let scrape = fleet::reading(3, 4);
    assert_eq!(printed_and_read(&scrape.snapshot), *scrape.snapshot);
}

#[test]
fn snapshot_with_fewer_and_unknown_fields_is_read() {
    let mut json = serde_json::to_value(fixture::snapshot()).expect("it can be printed");
    let node = json.as_object_mut().expect("a snapshot is an object");
    node.remove("host").expect("it has this field");
    let vm = &mut json["vms"][0];
    vm["a_field_of_a_later_version"] = serde_json::json!({"with": ["data"]});
    let fields = vm.as_object_mut().expect("a VM is an object");
    fields.remove("pressure").expect("it has this field");
    fields.remove("workers").expect("it has this field");
    let read: Snapshot = serde_json::from_value(json).expect("it can be read");
    let mut expected = fixture::snapshot();
    expected.host = Arc::default();
    expected.vms[0].pressure = None;
    expected.vms[0].workers.clear();
    assert_eq!(read, expected);
}
