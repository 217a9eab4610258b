//! Makes the vCPUs of a VM flat.

use std::ops::Range;

use serde::Serialize as _;
use virtlens_model::snapshot::Vcpu;
use virtlens_model::vocab::KvmCounters;
use virtlens_model::vocab::topology::guest::GuestPlace;
use virtlens_model::vocab::topology::host::HostPlace;

use super::sparse::{Last, Sparse};
use super::{NONE, begin, put_name, put_numbers, put_row};
use crate::dictionary::Row;
use crate::flat::{BOOL, END, SEQ, TEXT, Token, UNSIGNED};
use crate::flatten::{Done, Flatten};
use crate::flattened::VcpuCells;

/// Adds the vCPUs of a VM. Mostly the same of their values are known, so the tokens of one are
/// those of the one before.
pub(super) fn put_vcpus(to: &mut Flatten<'_>, vcpus: &[Vcpu]) -> Done {
    to.put_bare(SEQ);
    let mut before: Option<(Presence, Range<usize>)> = None;
    let (mut cgroups, mut sets) = (Last::new(), Last::new());
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
        if let Some(tid) = *tid {
            to.to.vcpus.push(VcpuCells { tid, first });
        }
        let numbers = Sparse::of([
            Some(u64::from(*id)),
            index.map(u64::from),
            tid.map(u64::from),
            Some(*cpu_ns),
            *wait_ns,
            *guest_ns,
            *timeslices,
            *involuntary_switches,
            preempted.map(u64::from),
            pcpu.map(u64::from),
        ]);
        let guest = guest.as_ref().map(guest_row);
        let host = host.as_ref().map(host_row);
        let presence = Presence {
            numbers: numbers.known,
            has_cgroup: cgroup.is_some(),
            has_affinity: affinity.is_some(),
            has_guest: guest.is_some(),
            host: host.map(|host| host.known),
        };
        if let Some((before, tokens)) = &before
            && *before == presence
            && residency_ns.is_empty()
        {
            to.to.tokens.extend_from_within(tokens.clone());
            let cgroup = cgroups.shared(to, cgroup.as_ref(), first + CGROUP);
            let affinity = sets.cpu_set(to, affinity.as_ref(), first + AFFINITY);
            let cells = &mut to.to.cells;
            cells.extend_from_slice(&numbers.cells);
            cells.extend_from_slice(kvm.row());
            cells.extend_from_slice(&[cgroup.unwrap_or(0), affinity.unwrap_or(0)]);
            put_cells(cells, guest);
            put_cells(cells, host);
            continue;
        }
        let start = to.to.tokens.len();
        begin(to, Row::Vcpu, names)?;
        numbers.put(to, NUMBERS);
        begin(to, Row::Kvm, &KvmCounters::NAMES)?;
        put_numbers(to, kvm.row());
        put_name(to, cgroup)?;
        let affinity = sets.cpu_set(to, affinity.as_ref(), first + AFFINITY);
        Sparse::of([affinity]).put(to, [TEXT]);
        put_place(to, Row::GuestPlace, &GUEST, guest)?;
        put_place(to, Row::HostPlace, &HOST, host)?;
        residency_ns.serialize(&mut *to)?;
        let is_short = residency_ns.is_empty();
        before = is_short.then_some((presence, start..to.to.tokens.len()));
    }
    to.to.sort_vcpus();
    to.put_bare(END);
    Ok(())
}

/// Which values of a vCPU are known. vCPUs that agree in it have the same tokens.
#[derive(PartialEq)]
struct Presence {
    numbers: u32,
    has_cgroup: bool,
    has_affinity: bool,
    has_guest: bool,
    host: Option<u32>,
}

/// Kinds of the numbers in front of KVM's.
const NUMBERS: [Token; 10] = [
    UNSIGNED, UNSIGNED, UNSIGNED, UNSIGNED, UNSIGNED, UNSIGNED, UNSIGNED, UNSIGNED, BOOL, UNSIGNED,
];

/// Places of the CPU time, the run delay and the pCPU among the cells of a vCPU.
pub(super) const TIMES: [usize; 3] = [3, 4, 9];
const CGROUP: usize = NUMBERS.len() + KvmCounters::NAMES.len();
const AFFINITY: usize = CGROUP + 1;

/// Adds a place with these fields.
fn put_place<const LEN: usize>(
    to: &mut Flatten<'_>,
    row: Row,
    fields: &[&'static str; LEN],
    place: Option<Sparse<LEN>>,
) -> Done {
    let Some(place) = place else {
        put_row(to, [NONE]);
        return Ok(());
    };
    begin(to, row, fields)?;
    place.put(to, [UNSIGNED; LEN]);
    Ok(())
}

/// The same without its tokens.
#[inline]
fn put_cells<const LEN: usize>(cells: &mut Vec<u64>, place: Option<Sparse<LEN>>) {
    match place {
        Some(place) => cells.extend_from_slice(&place.cells),
        None => cells.push(0),
    }
}

/// The fields of [`guest_row`].
const GUEST: [&str; 4] = ["package", "die", "core", "thread"];

#[inline]
fn guest_row(place: &GuestPlace) -> Sparse<4> {
    let GuestPlace {
        package,
        die,
        core,
        thread,
    } = place;
    Sparse::of([package, die, core, thread].map(|place| Some(u64::from(*place))))
}

/// The fields of [`host_row`].
const HOST: [&str; 6] = ["package", "die", "node", "llc", "core", "thread"];

#[inline]
fn host_row(place: &HostPlace) -> Sparse<6> {
    let HostPlace {
        package,
        die,
        node,
        llc,
        core,
        thread,
    } = place;
    Sparse::of([package, die, node, llc, core, thread].map(|place| place.map(u64::from)))
}
