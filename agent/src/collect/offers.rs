//! The kernel's features and the sources that use them: the rows of `virtlens check`.

use virtlens_model::snapshot::Source;
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_probe::plan::FILTERED;

/// The mode of a source whose programs wait for a VM.
pub(super) const IDLE: &str = "idle";

/// The row of one feature in `virtlens check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRow {
    /// The feature.
    pub feature: &'static str,
    /// "on", "off" or "degraded".
    pub state: &'static str,
    /// Reason and remedy; empty if the feature is fully on.
    pub detail: String,
}

/// The rows of the kernel's features, as far as `loader` can use them, then those of the
/// sources.
pub fn rows(kernel: &KernelFacts, loader: Loader, sources: &[Source]) -> Vec<CheckRow> {
    kernel_rows(kernel, loader)
        .into_iter()
        .chain(sources.iter().map(source_row))
        .collect()
}

fn kernel_rows(kernel: &KernelFacts, loader: Loader) -> [CheckRow; 9] {
    let row = |feature, there: bool, without, detail: &str| CheckRow {
        feature,
        state: if there { "on" } else { without },
        detail: if there {
            String::new()
        } else {
            detail.to_owned()
        },
    };
    let kvm = kernel.kvm_types && kernel.preempt_notifiers;
    // Without BTF it is unknown whether these exist.
    let typed = |detail| {
        if kernel.btf {
            detail
        } else {
            "unknown without btf"
        }
    };
    let readable = kernel.lockdown != "confidentiality";
    [
        row(
            "bpf_allowed",
            kernel.may_load && !kernel.bpf_filtered,
            "off",
            if kernel.bpf_filtered {
                FILTERED
            } else {
                "requires root, or CAP_BPF and CAP_PERFMON"
            },
        ),
        row(
            "btf",
            kernel.btf,
            "off",
            "requires CONFIG_DEBUG_INFO_BTF and a mounted /sys",
        ),
        row(
            "kernel_memory",
            readable,
            "off",
            "lockdown=confidentiality prevents BPF from reading kernel memory",
        ),
        row(
            "host_pids",
            kernel.host_pids,
            "off",
            "requires the host's pid namespace (hostPID: true)",
        ),
        row(
            "task_iterator",
            kernel.task_iter,
            "off",
            typed("requires Linux 5.8"),
        ),
        row(
            "kvm_types",
            kvm,
            "off",
            typed(if kernel.kvm_types_in_module {
                "only the module kvm provides them: requires --loader libbpf and CAP_SYS_ADMIN"
            } else {
                "the kernel is built without KVM, or the module kvm was not loaded when virtlens \
                 started"
            }),
        ),
        row(
            "task_storage",
            kernel.task_storage,
            "degraded",
            typed("requires Linux 5.13; a hash map of 32768 threads is used instead"),
        ),
        row(
            "read_ahead",
            kernel.read_ahead && loader.lacks().is_none(),
            "degraded",
            loader
                .lacks()
                .unwrap_or_else(|| typed("requires Linux 6.2; each pass takes longer")),
        ),
        row(
            "task_walk",
            kernel.task_walk && loader.lacks().is_none(),
            "degraded",
            loader
                .lacks()
                .unwrap_or_else(|| typed("requires Linux 6.9; each pass takes longer")),
        ),
    ]
}

fn source_row(source: &Source) -> CheckRow {
    let fine = source.up && source.reason.is_empty();
    CheckRow {
        feature: source.name,
        state: match (source.up, fine) {
            (true, true) => "on",
            (true, false) => "degraded",
            (false, _) => "off",
        },
        detail: if fine && source.mode == IDLE {
            "not attached: no VM on this node".to_owned()
        } else if fine {
            source.mode.to_owned()
        } else {
            source.reason.clone()
        },
    }
}

#[cfg(test)]
mod tests {
    use virtlens_model::snapshot::Source;

    use super::{IDLE, source_row};

    #[test]
    fn source_that_waits_for_a_vm_is_on() {
        let row = source_row(&Source {
            name: "placement",
            up: true,
            mode: IDLE,
            reason: String::new(),
            duration_ns: None,
            age_ns: None,
        });
        let expected = ("on", "not attached: no VM on this node");
        assert_eq!((row.state, &*row.detail), expected);
    }
}
