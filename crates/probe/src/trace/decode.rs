//! Converts events of the programs to the model.

use virtlens_abi::trace::{self as abi, TraceEvent};
use virtlens_model::timeline::{Event, ExitReason, Lost, Off, Peer, What};
use virtlens_model::vocab::{CgroupId, Comm};

/// Converts an event of the programs; `None` if its kind is unknown.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the low halves are what is meant"
)]
pub fn event(raw: TraceEvent) -> Option<Event> {
    let has = |flag: u32| raw.flags & flag != 0;
    let stands = has(abi::TRACE_SHOWS_THROTTLED).then(|| has(abi::TRACE_IS_THROTTLED));
    let peer = Peer {
        tid: raw.peer_tid,
        name: Comm(raw.peer_comm),
    };
    let what = match raw.kind {
        abi::TRACE_ON => What::On { after: peer },
        abi::TRACE_OFF => What::Off {
            into: if has(abi::TRACE_RUNNABLE) {
                Off::Runnable
            } else if has(abi::TRACE_ENDED) {
                Off::Ended
            } else if has(abi::TRACE_UNINTERRUPTIBLE) {
                Off::Uninterruptible
            } else {
                Off::Sleeping
            },
            stands,
            before: peer,
        },
        abi::TRACE_WOKEN => What::Woken { stands },
        abi::TRACE_MOVED => What::Moved,
        abi::TRACE_BORN => What::Born {
            process: raw.value as u32,
            name: peer.name,
        },
        abi::TRACE_EXIT => What::Exit {
            reason: (!has(abi::TRACE_NO_REASON)).then_some(ExitReason {
                is_svm: has(abi::TRACE_SVM),
                code: raw.value as u32,
            }),
            counted: (raw.value >> 32) as u32,
            poll_ns: raw.extra,
        },
        abi::TRACE_ENTRY => What::Entry,
        abi::TRACE_TO_VMM => What::ToVmm,
        abi::TRACE_HALT_END => What::HaltEnd {
            took_ns: raw.value,
            slept: has(abi::TRACE_SLEPT),
        },
        abi::TRACE_THROTTLED => What::Throttled(CgroupId(raw.value)),
        abi::TRACE_UNTHROTTLED => What::Unthrottled(CgroupId(raw.value)),
        _ => return None,
    };
    Some(Event {
        time_ns: raw.time_ns,
        tid: raw.tid,
        pcpu: raw.cpu,
        lost: Lost {
            states: raw.lost_states,
            exits: raw.lost_exits,
        },
        what,
    })
}

#[cfg(test)]
mod tests {
    use virtlens_abi::trace::{self as abi, TraceEvent};
    use virtlens_model::timeline::{ExitReason, Off, What};
    use zerocopy::FromZeros;

    fn what(change: impl FnOnce(&mut TraceEvent)) -> Option<What> {
        let mut raw = TraceEvent::new_zeroed();
        change(&mut raw);
        super::event(raw).map(|event| event.what)
    }

    #[test]
    fn exit_has_reason_in_low_half_and_kvm_count_above() {
        let exit = what(|raw| {
            raw.kind = abi::TRACE_EXIT;
            raw.value = 77 << 32 | 0x400;
            raw.flags = abi::TRACE_SVM;
            raw.extra = 9;
        });
        let reason = Some(ExitReason {
            is_svm: true,
            code: 0x400,
        });
        let expected = What::Exit {
            reason,
            counted: 77,
            poll_ns: 9,
        };
        assert_eq!(exit, Some(expected));
    }

    #[test]
    fn descheduling_event_has_its_reason() {
        let into = |flags| match what(|raw| {
            raw.kind = abi::TRACE_OFF;
            raw.flags = flags;
        }) {
            Some(What::Off { into, stands, .. }) => (into, stands),
            other => panic!("{other:?}"),
        };
        assert_eq!(into(0), (Off::Sleeping, None));
        assert_eq!(into(abi::TRACE_RUNNABLE), (Off::Runnable, None));
        assert_eq!(into(abi::TRACE_ENDED), (Off::Ended, None));
        let shows = abi::TRACE_SHOWS_THROTTLED;
        assert_eq!(into(shows).1, Some(false));
        assert_eq!(into(shows | abi::TRACE_IS_THROTTLED).1, Some(true));
        assert_eq!(into(abi::TRACE_UNINTERRUPTIBLE).0, Off::Uninterruptible);
    }

    #[test]
    fn unknown_event_kind_is_left_out() {
        assert_eq!(what(|raw| raw.kind = 99), None);
    }
}
