//! State of the collector: its sources and losses.

use virtlens_model::snapshot::{Dropped, ProgramCost, Source};
use virtlens_probe::plan::Feature;
use virtlens_probe::source::TaskPass;

use super::collector::Collector;
use crate::collect::backend::Backend;
use crate::collect::offers::IDLE;
use crate::kube::PodNames;

impl Collector {
    pub(super) fn dropped(&mut self, programs: &[ProgramCost]) -> Vec<Dropped> {
        let mut dropped = match &mut self.backend {
            Backend::Bpf(pass, _) => pass.drops(programs),
            Backend::Proc(proc, _) => {
                let losses = proc.losses();
                vec![
                    Dropped {
                        reason: "proc_races",
                        count: losses.races,
                    },
                    Dropped {
                        reason: "proc_denied",
                        count: losses.denied,
                    },
                    Dropped {
                        reason: "proc_unparsed",
                        count: losses.unparsed,
                    },
                    Dropped {
                        reason: "proc_limit",
                        count: losses.over_limit,
                    },
                ]
            }
            Backend::Nothing(_) => Vec::new(),
        };
        dropped.extend([
            Dropped {
                reason: "ram_unread",
                count: self.ram_unread,
            },
            Dropped {
                reason: "process_unread",
                count: self.process_unread,
            },
            Dropped {
                reason: "topology_unread",
                count: self.placement.lost(),
            },
            Dropped {
                reason: "failed_readings",
                count: self.failing.total(),
            },
            Dropped {
                reason: "failed_upkeep",
                count: self.upkeep.total(),
            },
        ]);
        dropped.extend(self.names.as_ref().map(|names| Dropped {
            reason: "pods_unread",
            count: names.failures(),
        }));
        dropped
    }

    pub(super) fn sources(&self) -> Vec<Source> {
        let mut sources = match &self.backend {
            Backend::Bpf(pass, pinned) => {
                let mut rows = self.bpf_sources(pass);
                rows.extend(pinned.as_ref().map(|pinned| match pinned {
                    Ok(()) => source("pins", true, "bpffs", ""),
                    Err(why) => {
                        let reason = format!("{why}; counters restart with each agent");
                        source("pins", false, "off", &reason)
                    }
                }));
                rows
            }
            Backend::Proc(_, why) => {
                let reason = if self.failing.is_failing() {
                    self.failing.reason()
                } else {
                    "BPF not available: vCPUs are recognized by thread name; no exits, no halt \
                     polling"
                };
                let mut rows = self.off(why);
                rows.push(source("proc", !self.failing.is_failing(), "files", reason));
                rows
            }
            Backend::Nothing(why) => self.off(why),
        };
        if let Some(first) = sources.first_mut() {
            first.duration_ns = self.read_ns;
        }
        sources.push(match &self.cgroups {
            Ok(_) => source("cgroups", true, self.node.cgroup, ""),
            Err(error) if self.bpf().is_some() => {
                let reason = format!("{error}; Kata's overhead cgroup is not read");
                source("cgroups", false, "off", &reason)
            }
            Err(error) => source("cgroups", false, "off", error),
        });
        let failure = self.placement.failure();
        sources.push(source("topology", failure.is_empty(), "sysfs", failure));
        sources.extend(self.names.as_ref().map(PodNames::row));
        sources
    }

    fn bpf_sources(&self, pass: &TaskPass) -> Vec<Source> {
        self.features()
            .map(|feature| {
                let left_out = pass.plan().left_out.iter().find(|(one, _)| *one == feature);
                match left_out {
                    Some((_, why)) => {
                        let reason = format!("{why}; {}", feature.without());
                        source(feature.name(), false, "off", &reason)
                    }
                    None if feature == Feature::TaskPass => source(
                        feature.name(),
                        !self.failing.is_failing(),
                        "bpf",
                        self.failing.reason(),
                    ),
                    None if feature.has_hooks() && pass.waits_for_vm() => {
                        source(feature.name(), true, IDLE, "")
                    }
                    None => source(feature.name(), true, "bpf", ""),
                }
            })
            .collect()
    }

    /// The rows of the features on a host without BPF.
    fn off(&self, why: &str) -> Vec<Source> {
        self.features()
            .map(|feature| source(feature.name(), false, "off", why))
            .collect()
    }
}

fn source(name: &'static str, up: bool, mode: &'static str, reason: &str) -> Source {
    Source {
        name,
        up,
        mode,
        reason: reason.to_owned(),
        duration_ns: None,
        age_ns: None,
    }
}
