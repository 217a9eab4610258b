//! A snapshot and a reading of a node on which nothing runs, for tests and benchmarks to
//! fill.

use std::sync::Arc;

use virtlens_export::{Agent, Process, Scrape};
use virtlens_model::snapshot::{API_VERSION, Node, Snapshot, Vm};

/// A snapshot of a node with these VMs and without sources, losses, maps and programs.
pub fn snapshot(vms: Vec<Vm>) -> Snapshot {
    Snapshot {
        api_version: API_VERSION,
        kind: "Snapshot",
        time: "2026-01-01T00:00:00Z".to_owned(),
        clock_ns: 0,
        reading_age_ns: Some(0),
        node: Node {
            name: "node-a".to_owned(),
            kernel: "6.12.48".to_owned(),
            cpus: 64,
            cgroup: "v2",
        },
        host: Arc::default(),
        sources: Vec::new(),
        dropped: Vec::new(),
        maps: Vec::new(),
        programs: Vec::new(),
        vms,
    }
}

/// A reading with this snapshot, by an agent of unknown version and usage.
pub fn reading(snapshot: Arc<Snapshot>) -> Arc<Scrape> {
    Arc::new(Scrape {
        snapshot,
        agent: Some(Agent {
            version: "",
            revision: "",
            rustversion: "",
            collection_ns: 0,
            recording: None,
            process: Process::default(),
        }),
    })
}
