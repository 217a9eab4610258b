//! `virtlens check`: the kernel's features, and the effects of missing ones.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use virtlens_model::snapshot::Node;
use virtlens_model::vocab::CpuSet;
use virtlens_probe::loader::Loader;
use virtlens_probe::pins::Pins;

use crate::collect::{CheckRow, pinned_under};

/// Returns the report, one line for each feature.
pub fn report(node: &Node, loader: Loader, features: &[CheckRow]) -> String {
    let mut out = format!(
        "{}: Linux {}, {} CPUs, cgroup {}, loader {loader}\n\n",
        node.name, node.kernel, node.cpus, node.cgroup
    );
    let names = features.iter().map(|row| row.feature.len());
    let width = names.max().unwrap_or(0).max("FEATURE".len());
    let mut line = |name: &str, state: &str, detail: &str| {
        let line = format!("{name:width$}  {state:8}  {detail}");
        writeln!(out, "{}", line.trim_end()).expect("writing to a String cannot fail");
    };
    line("FEATURE", "STATE", "DETAIL");
    for row in features {
        line(row.feature, row.state, &row.detail);
    }
    out
}

/// Note for hosts with CPUs that run without a tick (`sched_tick_remote`,
/// `kernel/sched/core.c`, since v4.17).
pub fn note_of_ticks(nohz_full: &CpuSet) -> String {
    if nohz_full.is_empty() {
        return String::new();
    }
    format!(
        "\nnohz_full CPUs {nohz_full}: the CPU time of running threads lags by up to 1 s; compute \
         rates over 30 s or more\n"
    )
}

/// Whether no feature is off or degraded.
pub fn all_on(features: &[CheckRow]) -> bool {
    features.iter().all(|row| row.state == "on")
}

/// Removes the objects that agents left in the kernel of the host below `root`, and
/// reports them.
///
/// # Errors
/// If an agent runs, or the kernel denies it.
pub fn clean(root: &Path) -> anyhow::Result<String> {
    let bpffs = pinned_under(root);
    if !Pins::exist(&bpffs) {
        return Ok(format!("nothing to remove under {}\n", bpffs.display()));
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
