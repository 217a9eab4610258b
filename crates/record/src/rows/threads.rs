//! Makes the threads and vCPUs of a VM flat.

use std::ops::Range;
use std::sync::Arc;

use serde::Serialize as _;
use virtlens_model::snapshot::{Thread, Vcpu};
use virtlens_model::vocab::topology::guest::GuestPlace;
use virtlens_model::vocab::topology::host::HostPlace;
use virtlens_model::vocab::{CpuSet, KvmCounters, Role, SchedClass, VhostDevice};

use super::{NONE, Value, begin, number, optional, put_name, put_numbers, put_row, truth};
use crate::dictionary::Row;
use crate::flat::{BYTES, END, REPEATED, SEQ, TEXT, Token};
use crate::flatten::{Done, Flatten};
use crate::flattened::VcpuCells;

/// Adds the threads of a VM, behind its vCPUs: the times of a vCPU are mostly those of its
/// thread.
pub(super) fn put_threads(to: &mut Flatten<'_>, threads: &[Thread]) -> Done {
    to.put_bare(SEQ);
    let (mut last_role, mut last_device, mut last_class) = (None, None, None);
    let mut last_set = None;
    let mut expected = 0;
    for thread in threads {
        to.ahead.thread();
        begin_struct!(
            to,
            Thread {
                tid,
                role,
                name,
                device,
                cpu_ns,
                wait_ns,
                pcpu,
                affinity,
                sched_class,
            } = thread
        );
        let first = to.to.cells.len();
        let role = one_of(to, *role, &mut last_role, Role::name, first + 1);
        let device = one_of(to, *device, &mut last_device, VhostDevice::name, first + 3);
        let class = one_of(
            to,
            *sched_class,
            &mut last_class,
            SchedClass::name,
            first + 8,
        );
        let name = (BYTES, to.names.comm(*name, to.probably(first + 2)));
        let affinity = cpu_set_of(to, affinity.as_ref(), &mut last_set, first + 7);
        let times = [number(*cpu_ns), optional(*wait_ns), optional(*pcpu)];
        let [cpu_ns, wait_ns, pcpu] = match to.to.vcpu_of(*tid, &mut expected) {
            None => times,
            Some(vcpu) => {
                let earlier = [vcpu.cpu_ns, vcpu.wait_ns, vcpu.pcpu];
                repeated(times, earlier, &to.to.cells, first + 4)
            }
        };
        let row = [
            number(*tid),
            role,
            name,
            device,
            cpu_ns,
            wait_ns,
            pcpu,
            affinity,
            class,
        ];
        put_row(to, row);
    }
    to.put_bare(END);
    Ok(())
}

/// Values for the place `at`, with a reference for each number that an earlier cell has.
#[inline]
fn repeated<const LEN: usize>(
    mut values: [Value; LEN],
    earlier: [usize; LEN],
    cells: &[u64],
    at: usize,
) -> [Value; LEN] {
    for ((value, earlier), at) in values.iter_mut().zip(earlier).zip(at..) {
        if *value != NONE && cells.get(earlier) == Some(&value.1) {
            *value = (REPEATED, (at - earlier) as u64);
        }
    }
    values
}

/// Adds the vCPUs of a VM. Mostly the same of their values are known, so their tokens are those of
/// the vCPU before.
pub(super) fn put_vcpus(to: &mut Flatten<'_>, vcpus: &[Vcpu]) -> Done {
    to.put_bare(SEQ);
    let mut last: Option<(Presence, Range<usize>)> = None;
    let mut last_set = None;
    for vcpu in vcpus {
        to.ahead.vcpu();
        bind_struct!(
            names,
            Vcpu {
                id,
                index,
                tid,
                cpu_ns,
                wait_ns,
                guest_ns,
                timeslices,
                involuntary_switches,
                preempted,
                pcpu,
                kvm,
                cgroup,
                affinity,
                guest,
                host,
                residency_ns,
            } = vcpu
        );
        let first = to.to.cells.len();
        if let Some(tid) = tid {
            to.to.vcpus.push(VcpuCells {
                tid: *tid,
                cpu_ns: first + CPU_NS,
                wait_ns: first + WAIT_NS,
                pcpu: first + PCPU,
            });
        }
        let row = [
            number(*id),
            optional(*index),
            optional(*tid),
            number(*cpu_ns),
            optional(*wait_ns),
            optional(*guest_ns),
            optional(*timeslices),
            optional(*involuntary_switches),
            preempted.map_or(NONE, truth),
            optional(*pcpu),
        ];
        let guest = guest.as_ref().map(guest_row);
        let host = host.as_ref().map(host_row);
        let presence = Presence {
            row: row.map(token_of),
            has_cgroup: cgroup.is_some(),
            has_affinity: affinity.is_some(),
            has_guest: guest.is_some(),
            host: host.map(|host| host.map(token_of)),
        };
        if let Some((last, tokens)) = &last
            && *last == presence
            && residency_ns.is_empty()
        {
            to.to.tokens.extend_from_within(tokens.clone());
            let cgroup = cgroup.as_ref().map_or(0, |cgroup| {
                let probably = to.probably(first + CGROUP);
                to.names.shared(cgroup, probably)
            });
            let (_, affinity) = cpu_set_of(to, affinity.as_ref(), &mut last_set, first + AFFINITY);
            let cells = &mut to.to.cells;
            cells.extend_from_slice(&row.map(cell_of));
            cells.extend_from_slice(kvm.row());
            cells.extend_from_slice(&[cgroup, affinity]);
            put_cells(cells, guest);
            put_cells(cells, host);
            continue;
        }
        let start = to.to.tokens.len();
        begin(to, Row::Vcpu, names)?;
        put_row(to, row);
        begin(to, Row::Kvm, &KvmCounters::NAMES)?;
        put_numbers(to, kvm.row());
        put_name(to, cgroup)?;
        let affinity = cpu_set_of(to, affinity.as_ref(), &mut last_set, first + AFFINITY);
        put_row(to, [affinity]);
        put_place(to, Row::GuestPlace, &GUEST, guest)?;
        put_place(to, Row::HostPlace, &HOST, host)?;
        residency_ns.serialize(&mut *to)?;
        let is_short = residency_ns.is_empty();
        last = is_short.then_some((presence, start..to.to.tokens.len()));
    }
    to.to.sort_vcpus();
    to.put_bare(END);
    Ok(())
}

/// Which values of a vCPU are known. vCPUs that agree in it have the same tokens.
#[derive(PartialEq)]
struct Presence {
    row: [Token; NUMBERS],
    has_cgroup: bool,
    has_affinity: bool,
    has_guest: bool,
    host: Option<[Token; 6]>,
}

/// Positions among the cells of a vCPU.
const CPU_NS: usize = 3;
const WAIT_NS: usize = 4;
const PCPU: usize = 9;
const CGROUP: usize = NUMBERS + KvmCounters::NAMES.len();
const AFFINITY: usize = CGROUP + 1;

/// Numbers of a vCPU in front of KVM's.
const NUMBERS: usize = 10;

/// Adds a place with these fields.
fn put_place<const LEN: usize>(
    to: &mut Flatten<'_>,
    row: Row,
    fields: &[&'static str; LEN],
    place: Option<[Value; LEN]>,
) -> Done {
    let Some(place) = place else {
        put_row(to, [NONE]);
        return Ok(());
    };
    begin(to, row, fields)?;
    put_row(to, place);
    Ok(())
}

/// The same without its tokens.
#[inline]
fn put_cells<const LEN: usize>(cells: &mut Vec<u64>, place: Option<[Value; LEN]>) {
    match place {
        Some(place) => cells.extend_from_slice(&place.map(cell_of)),
        None => cells.push(0),
    }
}

/// The fields of [`guest_row`].
const GUEST: [&str; 4] = ["package", "die", "core", "thread"];

#[inline]
fn guest_row(place: &GuestPlace) -> [Value; 4] {
    let GuestPlace {
        package,
        die,
        core,
        thread,
    } = place;
    [package, die, core, thread].map(|place| number(*place))
}

/// The fields of [`host_row`].
const HOST: [&str; 6] = ["package", "die", "node", "llc", "core", "thread"];

#[inline]
fn host_row(place: &HostPlace) -> [Value; 6] {
    let HostPlace {
        package,
        die,
        node,
        llc,
        core,
        thread,
    } = place;
    [package, die, node, llc, core, thread].map(|place| optional(*place))
}

fn token_of((token, _): Value) -> Token {
    token
}

fn cell_of((_, cell): Value) -> u64 {
    cell
}

/// A set of CPUs for the place `at`, which the thread before mostly has too.
#[inline]
fn cpu_set_of<'a>(
    to: &mut Flatten<'_>,
    set: Option<&'a Arc<CpuSet>>,
    last: &mut Option<(&'a Arc<CpuSet>, Value)>,
    at: usize,
) -> Value {
    let Some(set) = set else {
        return NONE;
    };
    if let Some((known, written)) = *last
        && Arc::ptr_eq(known, set)
    {
        return written;
    }
    let probably = to.probably(at);
    let written = (TEXT, to.names.cpu_set(set, probably));
    *last = Some((set, written));
    written
}

/// A constant for the place `at`, which the thread before mostly has too.
#[inline]
fn one_of<T: Copy + PartialEq>(
    to: &mut Flatten<'_>,
    value: Option<T>,
    last: &mut Option<(T, Value)>,
    name: impl Fn(T) -> &'static str,
    at: usize,
) -> Value {
    let Some(value) = value else {
        return NONE;
    };
    if let Some((known, written)) = *last
        && known == value
    {
        return written;
    }
    let probably = to.probably(at);
    let written = (TEXT, to.names.constant(name(value), probably));
    *last = Some((value, written));
    written
}
