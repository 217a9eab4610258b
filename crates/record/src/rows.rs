//! Makes a VM flat.
//!
//! A reading has thousands of vCPUs and threads. Their values are written as rows here: one by
//! one through serde they take most of the time of a recording. Serde reads them.

use std::sync::Arc;

use serde::Serialize as _;
use virtlens_model::snapshot::{
    Interrupts, Memory, Quota, RoleUse, Topology, VcpuCount, VcpuInterrupts, Vm,
};
use virtlens_model::vocab::{DirtyLogging, Feature, Features, MismatchKind};

use self::threads::put_threads;
use self::vcpus::put_vcpus;
use crate::dictionary::Row;
use crate::flat::{BOOL, END, NULL, SEQ, THOUSANDTHS, Token, UNSIGNED, thousandths};
use crate::flatten::{Done, Flatten, Unsupported, float};

/// A token and its cell.
type Value = (Token, u64);

/// Binds all fields of a struct, and their names, in the order in which they are written. Without
/// one of them it does not compile.
macro_rules! bind_struct {
    ($names:ident, $type:ident { $($field:ident),+ $(,)? } = $value:expr) => {
        // A constant: a local array would be filled for each row.
        let $names: &'static [&'static str] = &[$(stringify!($field)),+];
        let $type { $($field),+ } = $value;
    };
}

/// Begins a struct and binds all its fields, which have to follow in this order.
macro_rules! begin_struct {
    ($to:ident, $type:ident { $($field:ident),+ $(,)? } = $value:expr) => {
        bind_struct!(names, $type { $($field),+ } = $value);
        begin($to, Row::$type, names)?;
    };
}

/// The same, and adds each field with serde or with the function behind it.
macro_rules! put_struct {
    ($to:ident, $type:ident { $($field:ident $(: $put:expr)?),+ $(,)? } = $value:expr) => {{
        begin_struct!($to, $type { $($field),+ } = $value);
        $(put_struct!(@field $to, $field $(, $put)?)?;)+
        Ok(())
    }};
    (@field $to:ident, $field:ident) => { $field.serialize(&mut *$to) };
    (@field $to:ident, $field:ident, $put:expr) => { $put($to, $field) };
}

mod sparse;
mod threads;
mod vcpus;

/// Adds a VM.
pub(crate) fn put_vm(to: &mut Flatten<'_>, vm: &Vm) -> Done {
    put_struct!(
        to,
        Vm {
            namespace: put_name,
            pod: put_name,
            uid: put_name,
            pod_spec,
            vm: Flatten::put_shared_text,
            vmm,
            runtime,
            cgroup_layout,
            pid,
            cgroup: put_name,
            running,
            roles: put_roles,
            unattributed_cpu_ns,
            guest_ns,
            vcpus: put_vcpus,
            threads: put_threads,
            vcpu_count: put_vcpu_count,
            workers,
            quota: put_quotas,
            limits: put_quotas,
            limit_cores,
            vcpu_limit_cores,
            throttle_durations,
            unapplied_limit,
            guest_nodes,
            moves,
            mmu,
            halts,
            topology: put_topology,
            memory: put_memory,
            pressure,
            ready,
            findings,
        } = vm
    )
}

#[expect(clippy::ref_option, reason = "a field, as the macro binds it")]
fn put_name(to: &mut Flatten<'_>, name: &Option<Arc<str>>) -> Done {
    match name {
        Some(name) => to.put_shared_text(name),
        None => to.put(NULL, 0),
    }
}

fn put_roles(to: &mut Flatten<'_>, roles: &[RoleUse]) -> Done {
    to.put_bare(SEQ);
    for one in roles {
        begin_struct!(
            to,
            RoleUse {
                role,
                threads,
                cpu_ns,
                wait_ns,
                outside_pod,
                throttle_hits,
            } = one
        );
        role.serialize(&mut *to)?;
        let row = [
            number(*threads),
            number(*cpu_ns),
            optional(*wait_ns),
            optional(*outside_pod),
            optional(*throttle_hits),
        ];
        put_row(to, row);
    }
    to.put_bare(END);
    Ok(())
}

fn put_quotas(to: &mut Flatten<'_>, quotas: &[Quota]) -> Done {
    to.put_bare(SEQ);
    for one in quotas {
        begin_struct!(
            to,
            Quota {
                scope,
                cgroup,
                cores,
                period_ns,
                periods,
                throttled_periods,
                throttled_ns,
                used_ns,
                throttle,
            } = one
        );
        scope.serialize(&mut *to)?;
        to.put_shared_text(cgroup)?;
        cores.serialize(&mut *to)?;
        let row = [*period_ns, *periods, *throttled_periods, *throttled_ns];
        put_row(to, row.map(number));
        used_ns.serialize(&mut *to)?;
        throttle.serialize(&mut *to)?;
    }
    to.put_bare(END);
    Ok(())
}

fn put_memory(to: &mut Flatten<'_>, memory: &Memory) -> Done {
    begin_struct!(
        to,
        Memory {
            guest_bytes,
            resident_bytes,
            resident_huge_bytes,
            guest_memfd_bytes,
            swap_bytes,
            resident_peak_bytes,
            cgroup_bytes,
            cgroup_limit_bytes,
            cgroup_events,
            faults,
            discards,
            refault_bytes,
            dirty_logging,
            features,
        } = memory
    );
    let row = [
        *guest_bytes,
        *resident_bytes,
        *resident_huge_bytes,
        *guest_memfd_bytes,
        *swap_bytes,
        *resident_peak_bytes,
        *cgroup_bytes,
        *cgroup_limit_bytes,
    ];
    put_row(to, row.map(optional));
    cgroup_events.serialize(&mut *to)?;
    put_row(to, [optional(*faults)]);
    discards.serialize(&mut *to)?;
    put_row(to, [optional(*refault_bytes)]);
    put_dirty_logging(to, dirty_logging.as_ref())?;
    put_features(to, features)
}

fn put_dirty_logging(to: &mut Flatten<'_>, logging: Option<&DirtyLogging>) -> Done {
    let Some(logging) = logging else {
        put_row(to, [NONE]);
        return Ok(());
    };
    begin_struct!(to, DirtyLogging { enabled, seen_ns } = logging);
    put_row(to, [truth(*enabled), optional(*seen_ns)]);
    Ok(())
}

fn put_features(to: &mut Flatten<'_>, features: &Features) -> Done {
    begin_struct!(
        to,
        Features {
            balloon,
            free_page_reporting,
        } = features
    );
    for feature in [balloon, free_page_reporting] {
        begin_struct!(to, Feature { enabled, reason } = feature);
        put_row(to, [enabled.map_or(NONE, truth)]);
        to.put_constant(reason)?;
    }
    Ok(())
}

fn put_vcpu_count(to: &mut Flatten<'_>, count: &VcpuCount) -> Done {
    begin_struct!(
        to,
        VcpuCount {
            boot,
            online,
            parked,
            seen,
        } = count
    );
    let known = [*boot, *online, *parked].map(optional);
    put_row(to, known);
    put_row(to, [number(*seen)]);
    Ok(())
}

#[expect(clippy::ref_option, reason = "a field, as the macro binds it")]
fn put_topology(to: &mut Flatten<'_>, topology: &Option<Arc<Topology>>) -> Done {
    let Some(topology) = topology.as_deref() else {
        put_row(to, [NONE]);
        return Ok(());
    };
    let Topology {
        guest,
        cpuset,
        pinned_vcpus,
        pairs,
        unknown,
        mismatches,
        misplaced_ns,
        interrupts,
    } = topology;
    begin(
        to,
        Row::Topology,
        &[
            "guest",
            "cpuset",
            "pinnedVcpus",
            "pairs",
            "unknown",
            "mismatches",
            "misplacedNs",
            "interrupts",
        ],
    )?;
    guest.serialize(&mut *to)?;
    cpuset.serialize(&mut *to)?;
    put_row(to, [number(*pinned_vcpus)]);
    pairs.serialize(&mut *to)?;
    unknown.serialize(&mut *to)?;
    mismatches.serialize(&mut *to)?;
    begin(
        to,
        Row::MismatchTimes,
        &MismatchKind::ALL.map(MismatchKind::name),
    )?;
    put_row(to, misplaced_ns.all().map(optional));
    to.put_bare(SEQ);
    for VcpuInterrupts { vcpu, interrupts } in interrupts {
        // Serde puts the shares beside the vCPU.
        let Interrupts { hard, soft, steal } = interrupts;
        let fields = ["vcpu", "hard", "soft", "steal"];
        begin(to, Row::VcpuInterrupts, &fields)?;
        let [hard, soft, steal] = [hard, soft, steal].map(|share| share_of(*share));
        put_row(to, [number(*vcpu), hard, soft, steal]);
    }
    to.put_bare(END);
    Ok(())
}

/// An absent value.
const NONE: Value = (NULL, 0);

#[inline]
fn number(number: impl Into<u64>) -> Value {
    (UNSIGNED, number.into())
}

#[inline]
fn truth(is: bool) -> Value {
    (BOOL, is.into())
}

#[inline]
fn optional(value: Option<impl Into<u64>>) -> Value {
    value.map_or(NONE, number)
}

/// A share, which the judgement rounds.
#[inline]
fn share_of(share: f64) -> Value {
    match thousandths(share) {
        Some(share) => (THOUSANDTHS, share.cast_unsigned()),
        None => float(share),
    }
}

/// Begins a row with these fields.
#[inline]
fn begin(to: &mut Flatten<'_>, row: Row, fields: &[&'static str]) -> Done {
    let token = row_token(to, row, fields)?;
    to.put_bare(token);
    Ok(())
}

/// The token of a row with these fields.
#[inline]
fn row_token(
    to: &mut Flatten<'_>,
    row: Row,
    fields: &[&'static str],
) -> Result<Token, Unsupported> {
    let token = to.names.row(row, fields);
    token.ok_or_else(|| Unsupported("too many structs".into()))
}

#[inline]
fn put_row<const LEN: usize>(to: &mut Flatten<'_>, row: [Value; LEN]) {
    // Filled apart, and copied at once: values are added to vectors one by one.
    let (mut tokens, mut cells) = ([NULL; LEN], [0; LEN]);
    for ((token, cell), value) in tokens.iter_mut().zip(&mut cells).zip(row) {
        (*token, *cell) = value;
    }
    to.to.tokens.extend_from_slice(&tokens);
    to.to.cells.extend_from_slice(&cells);
}

/// Adds numbers.
#[inline]
fn put_numbers<const LEN: usize>(to: &mut Flatten<'_>, numbers: &[u64; LEN]) {
    to.to.tokens.extend_from_slice(&[UNSIGNED; LEN]);
    to.to.cells.extend_from_slice(numbers);
}
