//! Makes the threads of a VM flat.

use virtlens_model::snapshot::Thread;
use virtlens_model::vocab::{Role, SchedClass, VhostDevice};

use super::sparse::{Last, Sparse};
use super::{row_token, vcpus};
use crate::dictionary::Row;
use crate::flat::{BYTES, END, REPEATED, SEQ, TEXT, Token, UNSIGNED};
use crate::flatten::{Done, Flatten, Unsupported};

/// Adds the threads of a VM, behind its vCPUs: the times of a vCPU are mostly those of its
/// thread. Mostly the same values of threads are known, so the tokens of one are those of the
/// one before.
pub(super) fn put_threads(to: &mut Flatten<'_>, threads: &[Thread]) -> Done {
    to.put_bare(SEQ);
    let (mut roles, mut devices, mut classes) = (Last::new(), Last::new(), Last::new());
    let mut sets = Last::new();
    let mut before: Option<(_, [Token; _])> = None;
    let mut expected = 0;
    for thread in threads {
        to.ahead.thread();
        bind_struct!(
            names,
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
        let mut times = [Some(*cpu_ns), *wait_ns, pcpu.map(u64::from)];
        let mut repeated = [false; 3];
        if *role == Some(Role::Vcpu)
            && let Some(vcpu) = to.to.vcpu_of(*tid, &mut expected)
        {
            let earlier = vcpus::TIMES.map(|place| vcpu.first + place);
            repeated = repeat(&mut times, earlier, &to.to.cells, first + CPU_NS);
        }
        let [cpu_ns, wait_ns, pcpu] = times;
        let role = roles.constant(to, *role, Role::name, first + ROLE);
        let name = to.names.comm(*name, to.probably(first + NAME));
        let device = devices.constant(to, *device, VhostDevice::name, first + DEVICE);
        let affinity = sets.cpu_set(to, affinity.as_ref(), first + AFFINITY);
        let class = classes.constant(to, *sched_class, SchedClass::name, first + CLASS);
        let tid = Some(u64::from(*tid));
        let row = Sparse::of([
            tid,
            role,
            Some(name),
            device,
            cpu_ns,
            wait_ns,
            pcpu,
            affinity,
            class,
        ]);
        let presence = (row.known, repeated);
        match &before {
            Some((before, tokens)) if *before == presence => {
                to.to.tokens.extend_from_slice(tokens);
            }
            _ => {
                let tokens = tokens_of(to, names, &row, repeated)?;
                to.to.tokens.extend_from_slice(&tokens);
                before = Some((presence, tokens));
            }
        }
        to.to.cells.extend_from_slice(&row.cells);
    }
    to.put_bare(END);
    Ok(())
}

/// Places of values among the cells of a thread.
const ROLE: usize = 1;
const NAME: usize = 2;
const DEVICE: usize = 3;
const CPU_NS: usize = 4;
const AFFINITY: usize = 7;
const CLASS: usize = 8;

const KINDS: [Token; 9] = [
    UNSIGNED, TEXT, BYTES, TEXT, UNSIGNED, UNSIGNED, UNSIGNED, TEXT, TEXT,
];

/// Replaces each time that an earlier cell has by the distance to it. The times are for the place
/// `at`. Returns which ones were replaced.
#[inline]
fn repeat<const LEN: usize>(
    times: &mut [Option<u64>; LEN],
    earlier: [usize; LEN],
    cells: &[u64],
    at: usize,
) -> [bool; LEN] {
    let mut repeated = [false; LEN];
    for (((time, repeated), earlier), at) in
        times.iter_mut().zip(&mut repeated).zip(earlier).zip(at..)
    {
        *repeated = time.is_some() && cells.get(earlier).copied() == *time;
        if *repeated {
            *time = Some((at - earlier) as u64);
        }
    }
    repeated
}

/// The tokens of a thread.
fn tokens_of(
    to: &mut Flatten<'_>,
    names: &[&'static str],
    row: &Sparse<{ KINDS.len() }>,
    repeated: [bool; 3],
) -> Result<[Token; KINDS.len() + 1], Unsupported> {
    let mut kinds = KINDS;
    for (kind, is_repeated) in kinds.iter_mut().skip(CPU_NS).zip(repeated) {
        if is_repeated {
            *kind = REPEATED;
        }
    }
    let mut tokens = [row_token(to, Row::Thread, names)?; KINDS.len() + 1];
    for (token, kind) in tokens.iter_mut().skip(1).zip(row.tokens(kinds)) {
        *token = kind;
    }
    Ok(tokens)
}
