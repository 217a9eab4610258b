//! Degraded and unavailable sources: for the log, and for the bottom of outputs.

use virtlens_model::snapshot::{Snapshot, Source};

use crate::term::printable;

/// Sources with the same problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortfall<'a> {
    /// Whether the sources still work partially.
    pub up: bool,
    /// Names of the sources.
    pub sources: Vec<&'a str>,
    /// Reason.
    pub reason: &'a str,
}

impl Shortfall<'_> {
    /// The text for users.
    pub(crate) fn line(&self) -> String {
        let state = if self.up { "limited" } else { "off" };
        let (sources, reason) = (self.sources.join(", "), printable(self.reason));
        format!("{state}: {sources} ({reason})")
    }
}

/// Whether VMs can be read at all.
pub fn is_read(snapshot: &Snapshot) -> bool {
    let reads = |source: &Source| source.up && ["task_pass", "proc"].contains(&source.name);
    snapshot.sources.iter().any(reads)
}

/// Number of running VMs; `None` if unknown.
pub fn running_vms(snapshot: &Snapshot) -> Option<usize> {
    let running = snapshot.vms.iter().filter(|vm| vm.running);
    snapshot.knows_vms().then(|| running.count())
}

/// Returns the sources that are off or limited, grouped by reason, so that each cause is
/// reported once.
pub fn shortfalls(snapshot: &Snapshot) -> Vec<Shortfall<'_>> {
    let mut grouped: Vec<Shortfall> = Vec::new();
    for source in &snapshot.sources {
        let (up, reason) = (source.up, source.reason.as_str());
        let same = |group: &&mut Shortfall| group.up == up && group.reason == reason;
        match grouped.iter_mut().find(same) {
            _ if up && reason.is_empty() => {}
            Some(group) => group.sources.push(source.name),
            None => grouped.push(Shortfall {
                up,
                sources: vec![source.name],
                reason,
            }),
        }
    }
    grouped
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use virtlens_model::snapshot::{API_VERSION, Node, Snapshot, Source};

    use super::shortfalls;

    fn source(name: &'static str, up: bool, reason: &str) -> Source {
        let reason = reason.to_owned();
        Source {
            name,
            up,
            mode: "",
            reason,
            duration_ns: None,
            age_ns: None,
        }
    }

    #[test]
    fn shortfalls_with_same_cause_are_grouped() {
        let snapshot = Snapshot {
            api_version: API_VERSION,
            kind: "Snapshot",
            time: String::new(),
            clock_ns: 0,
            reading_age_ns: Some(0),
            node: Node {
                name: String::new(),
                kernel: String::new(),
                cpus: 0,
                cgroup: "v2",
            },
            host: Arc::default(),
            sources: vec![
                source("a", false, "no BPF"),
                source("b", true, ""),
                source("c", true, "no BPF"),
                source("d", false, "no BPF"),
                source("e", false, ""),
            ],
            dropped: Vec::new(),
            maps: Vec::new(),
            programs: Vec::new(),
            vms: Vec::new(),
        };
        let grouped: Vec<_> = shortfalls(&snapshot)
            .into_iter()
            .map(|group| (group.up, group.sources.join(","), group.reason))
            .collect();
        let expected = [
            (false, "a,d".to_owned(), "no BPF"),
            (true, "c".to_owned(), "no BPF"),
            (false, "e".to_owned(), ""),
        ];
        assert_eq!(grouped, expected);
    }
}
