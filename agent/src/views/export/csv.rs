//! A reading as rows of comma-separated values, one for each VM.

use std::borrow::Cow;
use std::fmt::Write as _;

use virtlens_model::judge::interval::{Interval, LimitUse};
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::vocab::{KvmCounters, Role};

/// The source of one row.
struct Row<'a> {
    snapshot: &'a Snapshot,
    vm: &'a Vm,
    /// The limit that throttled the VM most since it began, else the lowest.
    limit: Option<LimitUse<'a>>,
    /// Sums over the vCPUs.
    kvm: KvmCounters,
}

enum Cell<'a> {
    Unknown,
    Text(Cow<'a, str>),
    Count(u64),
    /// A time, ns.
    Seconds(u64),
    Real(f64),
}

type Value = for<'a> fn(&Row<'a>) -> Cell<'a>;

/// The columns. Values ending with `_seconds`, and counts, rise from the start of the VM.
const COLUMNS: [(&str, Value); 38] = [
    ("time", |row| text(&row.snapshot.time)),
    ("node", |row| text(&row.snapshot.node.name)),
    ("namespace", |row| text_if_any(row.vm.namespace.as_deref())),
    ("pod", |row| text_if_any(row.vm.pod.as_deref())),
    ("uid", |row| text_if_any(row.vm.uid.as_deref())),
    ("vm", |row| text(&row.vm.vm)),
    ("vmm", |row| text(row.vm.vmm)),
    ("pid", |row| Cell::Count(row.vm.pid.into())),
    ("running", |row| Cell::Count(row.vm.running.into())),
    ("vcpus", |row| {
        Cell::Count(row.vm.vcpu_count.usable().into())
    }),
    ("vcpu_cpu_seconds", |row| row.cpu(Role::Vcpu)),
    ("vhost_cpu_seconds", |row| row.cpu(Role::Vhost)),
    ("virtiofsd_cpu_seconds", |row| row.cpu(Role::Virtiofsd)),
    ("iothread_cpu_seconds", |row| row.cpu(Role::Iothread)),
    ("emulator_cpu_seconds", |row| row.cpu(Role::Emulator)),
    ("helper_cpu_seconds", |row| row.cpu(Role::Helper)),
    ("unattributed_cpu_seconds", |row| {
        Cell::Seconds(row.vm.unattributed_cpu_ns)
    }),
    ("guest_seconds", |row| seconds(row.vm.guest_ns)),
    ("vcpu_run_delay_seconds", |row| {
        let vcpus = row.vm.roles.iter().find(|one| one.role == Role::Vcpu);
        seconds(vcpus.and_then(|vcpus| vcpus.wait_ns))
    }),
    ("halt_poll_seconds", |row| {
        let poll = row.kvm.halt_poll_ns();
        seconds(poll.map(|poll| poll.success.saturating_add(poll.fail)))
    }),
    ("exits", |row| {
        let exits = row.kvm.exits();
        count(exits.map(|exits| exits.0.into_iter().fold(0, u64::saturating_add)))
    }),
    ("limit_scope", |row| {
        text_if_any(row.limit.map(|limit| limit.now.scope.name()))
    }),
    ("limit_cgroup", |row| {
        text_if_any(row.limit.map(|limit| &*limit.now.cgroup))
    }),
    ("limit_cores", |row| {
        real(row.limit.map(|limit| limit.cores))
    }),
    ("quota_used_seconds", |row| {
        seconds(row.limit.map(|limit| limit.total_ns()))
    }),
    ("periods", |row| count(row.limit.map(|limit| limit.periods))),
    ("throttled_periods", |row| {
        count(row.limit.map(|limit| limit.throttled_periods))
    }),
    ("throttled_seconds", |row| {
        seconds(row.limit.map(|limit| limit.throttled_ns))
    }),
    ("throttled_wall_seconds", |row| {
        seconds(row.limit.and_then(|limit| limit.wall_ns))
    }),
    ("guest_memory_bytes", |row| count(row.vm.memory.guest_bytes)),
    ("memory_resident_bytes", |row| {
        count(row.vm.memory.resident_bytes)
    }),
    ("memory_swap_bytes", |row| count(row.vm.memory.swap_bytes)),
    ("memory_cgroup_bytes", |row| {
        count(row.vm.memory.cgroup_bytes)
    }),
    ("memory_cgroup_limit_bytes", |row| {
        count(row.vm.memory.cgroup_limit_bytes)
    }),
    ("memory_faults", |row| count(row.vm.memory.faults)),
    ("cpu_pressure_some_seconds", |row| {
        seconds(row.vm.pressure.and_then(|pressure| pressure.cpu.some_ns))
    }),
    ("memory_pressure_some_seconds", |row| {
        seconds(row.vm.pressure.and_then(|pressure| pressure.memory.some_ns))
    }),
    ("findings", |row| {
        let found = row.vm.findings.iter().flat_map(|found| found.iter());
        let names: Vec<_> = found.map(|finding| finding.check.name()).collect();
        match row.vm.findings {
            Some(_) => Cell::Text(names.join(" ").into()),
            None => Cell::Unknown,
        }
    }),
];

impl Row<'_> {
    /// CPU time of a role; unknown if it never had threads.
    fn cpu(&self, role: Role) -> Cell<'static> {
        let found = self.vm.roles.iter().find(|one| one.role == role);
        seconds(found.map(|found| found.cpu_ns))
    }
}

fn text(text: &str) -> Cell<'_> {
    Cell::Text(text.into())
}

fn text_if_any(value: Option<&str>) -> Cell<'_> {
    value.map_or(Cell::Unknown, text)
}

fn count(count: Option<u64>) -> Cell<'static> {
    count.map_or(Cell::Unknown, Cell::Count)
}

fn seconds(ns: Option<u64>) -> Cell<'static> {
    ns.map_or(Cell::Unknown, Cell::Seconds)
}

fn real(value: Option<f64>) -> Cell<'static> {
    value.map_or(Cell::Unknown, Cell::Real)
}

/// The names of the columns.
pub(super) fn header() -> String {
    COLUMNS.map(|(name, _)| name).join(",") + "\n"
}

/// Appends the row of each VM.
pub(super) fn rows(snapshot: &Snapshot, out: &mut String) {
    for vm in &snapshot.vms {
        let of_vcpus = vm.vcpus.iter().map(|vcpu| vcpu.kvm);
        let row = Row {
            snapshot,
            vm,
            limit: most_throttling(vm),
            kvm: of_vcpus
                .reduce(|sum, more| sum.with(&more, u64::saturating_add))
                .unwrap_or_default(),
        };
        for (index, (_, value)) in COLUMNS.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            put(value(&row), out);
        }
        out.push('\n');
    }
}

fn most_throttling(vm: &Vm) -> Option<LimitUse<'_>> {
    Interval::since_began(vm).limits().min_by(|a, b| {
        let throttled = b.throttled_ns.cmp(&a.throttled_ns);
        throttled.then(a.cores.total_cmp(&b.cores))
    })
}

fn put(cell: Cell, out: &mut String) {
    let written = match cell {
        Cell::Unknown => Ok(()),
        Cell::Text(text) => {
            out.push('"');
            // Spreadsheets run a text that begins like a formula, also a quoted one, and
            // tenants choose names.
            if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
                out.push('\'');
            }
            out.push_str(&text.replace('"', "\"\""));
            out.push('"');
            Ok(())
        }
        Cell::Count(count) => write!(out, "{count}"),
        Cell::Seconds(ns) => write!(out, "{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
        Cell::Real(value) => write!(out, "{value}"),
    };
    written.expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::{Cell, put};

    fn written(cell: Cell) -> String {
        let mut out = String::new();
        put(cell, &mut out);
        out
    }

    #[test]
    fn text_that_begins_like_a_formula_is_neutralized() {
        for (name, cell) in [
            ("web-0", r#""web-0""#),
            ("=cmd|'/c calc'!A1", r#""'=cmd|'/c calc'!A1""#),
            ("+1", r#""'+1""#),
            ("-1", r#""'-1""#),
            ("@sum(a)", r#""'@sum(a)""#),
            ("\t=1", "\"'\t=1\""),
            ("a=1", r#""a=1""#),
            ("", r#""""#),
        ] {
            assert_eq!(written(Cell::Text(name.into())), cell, "{name}");
        }
    }

    #[test]
    fn text_is_quoted_and_unknown_value_is_empty() {
        let name = "a \"b\", c\nd";
        assert_eq!(written(Cell::Text(name.into())), "\"a \"\"b\"\", c\nd\"");
        assert_eq!(written(Cell::Unknown), "");
        assert_eq!(written(Cell::Seconds(1_000_000_001)), "1.000000001");
        assert_eq!(written(Cell::Seconds(u64::MAX)), "18446744073.709551615");
        assert_eq!(written(Cell::Real(0.5)), "0.5");
    }
}
