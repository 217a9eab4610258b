//! Hands the state of each VM over to the next agent, as JSON, so that either agent may
//! be the newer version.

use std::path::Path;

use virtlens_model::facts::Facts;
use virtlens_model::fleet::{Fleet, Kept};
use virtlens_probe::Error;
use virtlens_probe::source::TaskPass;

/// Takes over the state of the previous agent.
pub(crate) fn take(
    pass: &mut TaskPass,
    fleet: &mut Fleet,
    facts: &Facts,
    now_ns: u64,
) -> Result<(), Error> {
    if !pass.is_pinned() {
        return Ok(());
    }
    let kept = pass.kept()?.into_iter();
    let kept = kept.filter_map(|(vm, bytes)| match serde_json::from_slice::<Kept>(&bytes) {
        Ok(kept) => Some((vm, kept)),
        Err(error) => {
            tracing::warn!(
                pid = vm.tgid,
                %error,
                "cannot parse the handover record of a VM from another version; counters of an \
                 earlier process of this VM restart"
            );
            None
        }
    });
    fleet.recall(kept.collect(), facts, now_ns);
    Ok(())
}

/// Saves changed state for the next agent; a failed save is repeated the next time.
pub(crate) fn keep(pass: &mut TaskPass, fleet: &mut Fleet) -> Result<(), Error> {
    if !pass.is_pinned() {
        return Ok(());
    }
    let mut kept_all = Ok(());
    for (vm, kept) in fleet.unsaved() {
        let bytes = serde_json::to_vec(&kept).expect("plain data is serializable");
        match pass.keep(vm, &bytes) {
            Ok(()) => fleet.saved(vm, &kept),
            // Continue with the other VMs.
            failed => kept_all = failed,
        }
    }
    kept_all
}

/// The BPF file system of the host below `root`.
pub(crate) fn pinned_under(root: &Path) -> std::path::PathBuf {
    root.join("sys/fs/bpf")
}
