//! `virtlens check`: what this kernel offers, and what its lacks cost.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use virtlens_model::snapshot::Node;
use virtlens_model::vocab::CpuSet;
use virtlens_probe::loader::Loader;
use virtlens_probe::pins::Pins;

use crate::collect::{CheckRow, pinned_under};

/// The report, a line for each feature.
pub fn report(node: &Node, loader: Loader, features: &[CheckRow]) -> String {
    let mut out = format!(
        "{}: Linux {}, {} CPUs, cgroup {}, loader {loader}\n\n",
        node.name, node.kernel, node.cpus, node.cgroup
    );
    let names = features.iter().map(|row| row.feature.len());
    let width = names.max().unwrap_or(0).max("FEATURE".len());
    let mut line = |name: &str, state: &str, detail: &str| {
        let line = format!("{name:width$}  {state:8}  {detail}");
        writeln!(out, "{}", line.trim_end()).expect("a String takes everything");
    };
    line("FEATURE", "STATE", "DETAIL");
    for row in features {
        line(row.feature, row.state, &row.detail);
    }
    out
}

/// What the report adds where CPUs run without a tick (`sched_tick_remote`,
/// `kernel/sched/core.c`, since v4.17).
pub fn note_of_ticks(nohz_full: &CpuSet) -> String {
    if nohz_full.is_empty() {
        return String::new();
    }
    format!(
        "\nnohz_full CPUs {nohz_full}: the CPU time of a thread that runs there lags by up to 1 s; \
         read rates over 30 s or more\n"
    )
}

/// Whether nothing is off and nothing degraded.
pub fn all_on(features: &[CheckRow]) -> bool {
    features.iter().all(|row| row.state == "on")
}

/// Removes what agents left in the kernel of the host below `root`, and tells of it.
///
/// # Errors
/// When an agent runs, or the kernel refuses.
pub fn clean(root: &Path) -> anyhow::Result<String> {
    let bpffs = pinned_under(root);
    if !Pins::exist(&bpffs) {
        return Ok(format!("nothing was left under {}\n", bpffs.display()));
    }
    let pins = Pins::take(&bpffs).context("cannot clean up")?;
    let dir = pins.dir().display().to_string();
    let removed = pins
        .clean()
        .with_context(|| format!("cannot remove {dir}"))?;
    Ok(format!(
        "removed {dir}: {} attached programs and {} maps\n",
        removed.links, removed.maps
    ))
}
