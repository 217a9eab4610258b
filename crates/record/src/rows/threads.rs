//! Makes the threads and vCPUs of a VM flat.

use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;
use virtlens_model::snapshot::{Thread, Vcpu};
use virtlens_model::vocab::KvmCounters;
use virtlens_model::vocab::topology::guest::GuestPlace;
use virtlens_model::vocab::topology::host::HostPlace;

use super::{NONE, begin, number, optional, put_row};
use crate::flat::{BOOL, BYTES, END, SEQ};
use crate::flatten::{Done, Flatten};

pub(super) fn put_threads(to: &mut Flatten<'_>, threads: &[Thread]) -> Done {
    to.put_bare(SEQ);
    let mut last_affinity = None;
    for thread in threads {
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
        put_row(to, [number(*tid)]);
        role.serialize(&mut *to)?;
        to.put_text(BYTES, name.as_bytes())?;
        device.serialize(&mut *to)?;
        put_row(to, [number(*cpu_ns), optional(*wait_ns), optional(*pcpu)]);
        put_shared(to, affinity.as_ref(), &mut last_affinity)?;
        sched_class.serialize(&mut *to)?;
    }
    to.put_bare(END);
    Ok(())
}

pub(super) fn put_vcpus(to: &mut Flatten<'_>, vcpus: &[Vcpu]) -> Done {
    to.put_bare(SEQ);
    let (mut last_cgroup, mut last_affinity) = (None, None);
    for vcpu in vcpus {
        begin_struct!(
            to,
            Vcpu {
                id,
                index,
                tid,
                cpu_ns,
                wait_ns,
                guest_ns,
                timeslices,
                involuntary_switches,
                kvm,
                preempted,
                cgroup,
                pcpu,
                affinity,
                guest,
                host,
                residency_ns,
            } = vcpu
        );
        let row = [
            number(*id),
            optional(*index),
            optional(*tid),
            number(*cpu_ns),
            optional(*wait_ns),
            optional(*guest_ns),
            optional(*timeslices),
            optional(*involuntary_switches),
        ];
        put_row(to, row);
        begin(to, &KvmCounters::NAMES)?;
        put_row(to, kvm.row().map(number));
        put_row(to, [preempted.map_or(NONE, |is| (BOOL, is.into()))]);
        put_shared(to, cgroup.as_ref(), &mut last_cgroup)?;
        put_row(to, [optional(*pcpu)]);
        put_shared(to, affinity.as_ref(), &mut last_affinity)?;
        put_guest_place(to, guest.as_ref())?;
        put_host_place(to, host.as_ref())?;
        residency_ns.serialize(&mut *to)?;
    }
    to.put_bare(END);
    Ok(())
}

fn put_guest_place(to: &mut Flatten<'_>, place: Option<&GuestPlace>) -> Done {
    let Some(place) = place else {
        put_row(to, [NONE]);
        return Ok(());
    };
    begin_struct!(
        to,
        GuestPlace {
            package,
            die,
            core,
            thread
        } = place
    );
    put_row(to, [package, die, core, thread].map(|place| number(*place)));
    Ok(())
}

fn put_host_place(to: &mut Flatten<'_>, place: Option<&HostPlace>) -> Done {
    let Some(place) = place else {
        put_row(to, [NONE]);
        return Ok(());
    };
    begin_struct!(
        to,
        HostPlace {
            package,
            die,
            node,
            llc,
            core,
            thread
        } = place
    );
    let row = [package, die, node, llc, core, thread];
    put_row(to, row.map(|place| optional(*place)));
    Ok(())
}

/// A value that threads of a VM mostly share, and its tokens and cells.
type Shared<'v, T> = Option<(&'v Arc<T>, Range<usize>, Range<usize>)>;

/// Adds a value that threads of a VM mostly share.
#[inline]
fn put_shared<'v, T: Serialize + ?Sized>(
    to: &mut Flatten<'_>,
    value: Option<&'v Arc<T>>,
    last: &mut Shared<'v, T>,
) -> Done {
    let Some(value) = value else {
        put_row(to, [NONE]);
        return Ok(());
    };
    if let Some((known, tokens, cells)) = last
        && Arc::ptr_eq(known, value)
    {
        to.to.tokens.extend_from_within(tokens.clone());
        to.to.cells.extend_from_within(cells.clone());
        return Ok(());
    }
    let (token, cell) = (to.to.tokens.len(), to.to.cells.len());
    value.serialize(&mut *to)?;
    *last = Some((value, token..to.to.tokens.len(), cell..to.to.cells.len()));
    Ok(())
}
