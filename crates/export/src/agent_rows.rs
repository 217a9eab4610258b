//! The agent-wide metric families: the agent itself and its data sources.

use virtlens_model::snapshot::{Check, Severity};

use crate::family::{Family, Rows};
use crate::kind::Kind;
use crate::profile::Profile;
use crate::samples::known;
use crate::scrape::{Process, Recording, Scrape};

fn recording(reading: &Scrape) -> Option<Recording> {
    reading.agent.as_ref()?.recording
}

/// Usage of the agent's process; nothing is known of it in a reading of a recording.
fn process(reading: &Scrape) -> Process {
    let agent = reading.agent.as_ref();
    agent.map(|agent| agent.process).unwrap_or_default()
}

pub(crate) const AGENT_FAMILIES: &[Family] = &[
    Family {
        name: "virtlens_vms",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "VMs that run on the node; absent if that cannot be read.",
        own_labels: &[],
        rows: Rows::Agent(|reading, rows| {
            let running = reading.snapshot.vms.iter().filter(|vm| vm.running).count();
            let is_known = reading.snapshot.knows_vms();
            known(is_known.then_some(running), |vms| {
                rows.count(&[], vms as u64)
            })
        }),
    },
    Family {
        name: "virtlens_reading_age_seconds",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("seconds"),
        help: "Age of the exported values of VMs: 0 while readings succeed. After a failed \
               reading the last values are exported; from the third failure in a row on VMs \
               are absent until a reading succeeds.",
        own_labels: &[],
        rows: Rows::Agent(|reading, rows| {
            known(reading.snapshot.reading_age_ns, |ns| rows.seconds(&[], ns))
        }),
    },
    Family {
        name: "virtlens_build_info",
        kind: Kind::Info,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "The agent's version, the commit and the compiler it was built from.",
        own_labels: &["version", "revision", "rustversion"],
        rows: Rows::Agent(|reading, rows| {
            known(reading.agent.as_ref(), |agent| {
                rows.info(&[
                    agent.version.into(),
                    agent.revision.into(),
                    agent.rustversion.into(),
                ])
            })
        }),
    },
    Family {
        name: "virtlens_source_up",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Whether the source works (1) or not (0); virtlens check shows the reason.",
        own_labels: &["source"],
        rows: Rows::Agent(|reading, rows| {
            let mut sources = reading.snapshot.sources.iter();
            sources.try_for_each(|source| rows.count(&[source.name.into()], source.up.into()))
        }),
    },
    Family {
        name: "virtlens_source_duration_seconds",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("seconds"),
        help: "Duration of the last reading of the source.",
        own_labels: &["source"],
        rows: Rows::Agent(|reading, rows| {
            let mut sources = reading.snapshot.sources.iter();
            sources.try_for_each(|source| {
                known(source.duration_ns, |ns| {
                    rows.seconds(&[source.name.into()], ns)
                })
            })
        }),
    },
    Family {
        name: "virtlens_metadata_age_seconds",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("seconds"),
        help: "Time since the last successful answer of the source of pod names, or since the \
               first failed request; with a reachable API server at most a minute.",
        own_labels: &["source"],
        rows: Rows::Agent(|reading, rows| {
            let mut sources = reading.snapshot.sources.iter();
            sources.try_for_each(|source| {
                known(source.age_ns, |ns| rows.seconds(&[source.mode.into()], ns))
            })
        }),
    },
    Family {
        name: "virtlens_collection_seconds",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("seconds"),
        help: "Duration of the collection that produced these values.",
        own_labels: &[],
        rows: Rows::Agent(|reading, rows| {
            known(reading.agent.as_ref(), |agent| {
                rows.seconds(&[], agent.collection_ns)
            })
        }),
    },
    Family {
        name: "virtlens_dropped_total",
        kind: Kind::Counter,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Losses by reason: values that the agent or a BPF program could not keep or read.",
        own_labels: &["reason"],
        rows: Rows::Agent(|reading, rows| {
            let mut dropped = reading.snapshot.dropped.iter();
            dropped.try_for_each(|dropped| rows.count(&[dropped.reason.into()], dropped.count))
        }),
    },
    Family {
        name: "virtlens_bpf_program_runs_total",
        kind: Kind::Counter,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Runs of the BPF program; counted only while kernel.bpf_stats_enabled is 1.",
        own_labels: &["program"],
        rows: Rows::Agent(|reading, rows| {
            let mut programs = reading.snapshot.programs.iter();
            programs.try_for_each(|program| rows.count(&[program.program.into()], program.runs))
        }),
    },
    Family {
        name: "virtlens_bpf_program_run_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Minimal),
        unit: Some("seconds"),
        help: "Time in the BPF program; counted only while kernel.bpf_stats_enabled is 1.",
        own_labels: &["program"],
        rows: Rows::Agent(|reading, rows| {
            let mut programs = reading.snapshot.programs.iter();
            programs.try_for_each(|program| rows.seconds(&[program.program.into()], program.run_ns))
        }),
    },
    Family {
        name: "virtlens_bpf_map_entries",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Entries in the BPF map.",
        own_labels: &["map"],
        rows: Rows::Agent(|reading, rows| {
            let mut maps = reading.snapshot.maps.iter();
            maps.try_for_each(|map| {
                known(map.entries, |count| rows.count(&[map.map.into()], count))
            })
        }),
    },
    Family {
        name: "virtlens_bpf_map_max_entries",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Maximum number of entries in the BPF map.",
        own_labels: &["map"],
        rows: Rows::Agent(|reading, rows| {
            let mut maps = reading.snapshot.maps.iter();
            maps.try_for_each(|map| rows.count(&[map.map.into()], map.max_entries))
        }),
    },
    Family {
        name: "virtlens_recorded_readings_total",
        kind: Kind::Counter,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Readings by result: kept in the recording, or lost because the disk was behind \
               (late) or refused them (failed); absent without --record.",
        own_labels: &["result"],
        rows: Rows::Agent(|reading, rows| {
            let Some(recording) = recording(reading) else {
                return Ok(());
            };
            let results = [
                ("kept", recording.kept),
                ("late", recording.late),
                ("failed", recording.failed),
            ];
            let mut results = results.into_iter();
            results.try_for_each(|(result, count)| rows.count(&[result.into()], count))
        }),
    },
    Family {
        name: "virtlens_recording_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("bytes"),
        help: "Size of the recording; absent without --record.",
        own_labels: &[],
        rows: Rows::Agent(|reading, rows| {
            known(recording(reading), |recording| {
                rows.count(&[], recording.bytes)
            })
        }),
    },
    Family {
        name: "virtlens_incidents_total",
        kind: Kind::Counter,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Onsets of warnings of which the agent kept the recording and a trace, by check; \
               those that began together on a VM are one incident, which counts for each of \
               them. The check alert counts those that began with an alert of Alertmanager. Absent without --record and with --incidents-max-mib 0.",
        own_labels: &["check"],
        rows: Rows::Agent(|reading, rows| {
            let recorded = recording(reading);
            let Some(incidents) = recorded.and_then(|recorded| recorded.incidents) else {
                return Ok(());
            };
            let is_warning = |check: Check| check.about().severity == Severity::Warning;
            let mut counts = incidents.by_check().filter(|(check, _)| is_warning(*check));
            counts.try_for_each(|(check, count)| rows.count(&[check.name().into()], count))?;
            rows.count(&["alert".into()], incidents.by_alert())
        }),
    },
    Family {
        name: "virtlens_incidents_skipped_total",
        kind: Kind::Counter,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Onsets of warnings of which nothing was kept: the VM had an incident in the last \
               10 min (vm_rate), the node 6 in the last hour (node_rate), or the disk refused it \
               (failed). Absent without --record and with --incidents-max-mib 0.",
        own_labels: &["reason"],
        rows: Rows::Agent(|reading, rows| {
            let recorded = recording(reading);
            let Some(incidents) = recorded.and_then(|recorded| recorded.incidents) else {
                return Ok(());
            };
            let mut counts = incidents.by_skip();
            counts.try_for_each(|(skip, count)| rows.count(&[skip.name().into()], count))
        }),
    },
    Family {
        name: "process_cpu_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Minimal),
        unit: Some("seconds"),
        help: "CPU time of the agent, user and system.",
        own_labels: &[],
        rows: Rows::Agent(|reading, rows| {
            known(process(reading).cpu_ns, |ns| rows.seconds(&[], ns))
        }),
    },
    Family {
        name: "process_resident_memory_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("bytes"),
        help: "Resident memory of the agent.",
        own_labels: &[],
        rows: Rows::Agent(|reading, rows| {
            known(process(reading).resident_bytes, |bytes| {
                rows.count(&[], bytes)
            })
        }),
    },
    Family {
        name: "process_open_fds",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Open file descriptors of the agent.",
        own_labels: &[],
        rows: Rows::Agent(|reading, rows| {
            known(process(reading).open_fds, |count| rows.count(&[], count))
        }),
    },
    Family {
        name: "process_start_time_seconds",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("seconds"),
        help: "When the agent started, since the Unix epoch.",
        own_labels: &[],
        rows: Rows::Agent(|reading, rows| {
            known(process(reading).start_unix_ns, |ns| rows.seconds(&[], ns))
        }),
    },
];
