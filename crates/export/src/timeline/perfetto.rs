//! The subset of Perfetto's protocol buffers that is used here. Field numbers are those
//! of `protos/perfetto/trace/` in the Perfetto repository.

use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};
use virtlens_model::timeline::{Actor, Counter, Doing, Peer, Piece, Slice, Track};

use super::title::Title;

/// One packet of a trace.
#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(message, optional, tag = "6")]
    clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
    #[prost(bool, optional, tag = "87")]
    first_packet_on_sequence: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
}

#[derive(Clone, PartialEq, Message)]
struct Clock {
    #[prost(uint32, tag = "1")]
    clock_id: u32,
    #[prost(uint64, tag = "2")]
    timestamp: u64,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
}

/// `TrackEvent.Type`.
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, tag = "10")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<EventName>,
}

#[derive(Clone, PartialEq, Message)]
struct EventName {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "6")]
    process_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int32, tag = "2")]
    tid: i32,
    #[prost(string, tag = "5")]
    thread_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    #[prost(string, tag = "6")]
    unit_name: String,
}

/// `BuiltinClock`: `REALTIME`, `MONOTONIC`, `BOOTTIME` (the clock of the file).
const CLOCKS: [u32; 3] = [1, 3, 6];
/// `TracePacket.SequenceFlags`.
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;

/// A track of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Line {
    Process(u32),
    Of(Track),
    Pcpus,
    Vm,
    Counter(Counter),
    Notes,
}

/// Writes a timeline as Perfetto's packets, piece by piece.
pub struct Writer {
    title: Title,
    names: FxHashMap<Doing, u64>,
    tracks: FxHashMap<Line, u64>,
    processes: FxHashSet<u32>,
    threads: FxHashMap<u32, String>,
    is_first: bool,
}

impl Writer {
    /// Begins a file.
    pub fn new(title: Title, out: &mut Vec<u8>) -> Self {
        let began = title.began;
        let times = [began.realtime_ns, began.monotonic_ns, began.boottime_ns];
        let clocks = CLOCKS.into_iter().zip(times);
        let clocks = clocks.map(|(clock_id, timestamp)| Clock {
            clock_id,
            timestamp,
        });
        let mut this = Self {
            title,
            names: FxHashMap::default(),
            tracks: FxHashMap::default(),
            processes: FxHashSet::default(),
            threads: FxHashMap::default(),
            is_first: true,
        };
        let clock_snapshot = Some(ClockSnapshot {
            clocks: clocks.collect(),
        });
        this.put(
            Packet {
                clock_snapshot,
                timestamp: Some(began.boottime_ns),
                ..Packet::default()
            },
            out,
        );
        this
    }

    /// Appends what `piece` adds to the file.
    pub fn write(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Actor(actor) => self.actor(actor, out),
            Piece::Slice(slice) => self.slice(slice, out),
            Piece::Count {
                time_ns,
                counter,
                value,
            } => {
                let track_uuid = self.track(Line::Counter(*counter), out);
                let event = TrackEvent {
                    kind: COUNTER,
                    track_uuid,
                    double_counter_value: Some(*value),
                    ..TrackEvent::default()
                };
                self.event(*time_ns, event, None, out);
            }
            Piece::Note { time_ns, text } => {
                let track_uuid = self.track(Line::Notes, out);
                let event = TrackEvent {
                    kind: INSTANT,
                    track_uuid,
                    name: Some(text.clone()),
                    ..TrackEvent::default()
                };
                self.event(*time_ns, event, None, out);
            }
        }
    }

    /// Writes the descriptor of a thread, and of its process on first use.
    fn actor(&mut self, actor: &Actor, out: &mut Vec<u8>) {
        self.threads.insert(actor.tid, actor.title());
        if self.processes.insert(actor.process) {
            let process = ProcessDescriptor {
                pid: actor.process.cast_signed(),
                process_name: self.title.process(actor.process),
            };
            let uuid = self.uuid(Line::Process(actor.process));
            let descriptor = TrackDescriptor {
                uuid,
                process: Some(process),
                ..TrackDescriptor::default()
            };
            self.describe(descriptor, out);
        }
        let thread = ThreadDescriptor {
            pid: actor.process.cast_signed(),
            tid: actor.tid.cast_signed(),
            thread_name: actor.title(),
        };
        let uuid = self.uuid(Line::Of(Track::Thread(actor.tid)));
        let descriptor = TrackDescriptor {
            uuid,
            thread: Some(thread),
            ..TrackDescriptor::default()
        };
        self.describe(descriptor, out);
    }

    fn slice(&mut self, slice: &Slice, out: &mut Vec<u8>) {
        let track_uuid = self.track(Line::Of(slice.track), out);
        let (name_iid, interned) = self.intern(slice.what);
        let begin = TrackEvent {
            kind: SLICE_BEGIN,
            name_iid: Some(name_iid),
            track_uuid,
            debug_annotations: slice.peer.iter().map(annotation).collect(),
            ..TrackEvent::default()
        };
        self.event(slice.from_ns, begin, interned, out);
        let end = TrackEvent {
            kind: SLICE_END,
            track_uuid,
            ..TrackEvent::default()
        };
        self.event(slice.to_ns, end, None, out);
    }

    /// Returns the interned id of a name, with the name itself on first use.
    fn intern(&mut self, what: Doing) -> (u64, Option<InternedData>) {
        if let Some(iid) = self.names.get(&what) {
            return (*iid, None);
        }
        let iid = self.names.len() as u64 + 1;
        self.names.insert(what, iid);
        let name = match what {
            Doing::Thread(tid) => self.threads.get(&tid).cloned(),
            _ => None,
        };
        let name = EventName {
            iid,
            name: name.unwrap_or_else(|| what.name().into_owned()),
        };
        let event_names = vec![name];
        (iid, Some(InternedData { event_names }))
    }

    /// Returns the track's id, and writes the track's descriptor on first use.
    fn track(&mut self, line: Line, out: &mut Vec<u8>) -> u64 {
        if let Some(uuid) = self.tracks.get(&line) {
            return *uuid;
        }
        let (name, parent) = match line {
            Line::Of(Track::Guest(tid)) => {
                let name = self.threads.get(&tid).cloned().unwrap_or_default();
                (format!("{name} guest"), Some(Line::Of(Track::Thread(tid))))
            }
            Line::Of(Track::Pcpu(pcpu)) => (format!("p{pcpu}"), Some(Line::Pcpus)),
            Line::Of(Track::Quota(group)) => (self.title.quota(group), Some(Line::Vm)),
            Line::Counter(counter) => (self.title.counter(counter).0, Some(Line::Vm)),
            Line::Notes => ("memory events".to_owned(), Some(Line::Vm)),
            Line::Pcpus => ("host CPUs".to_owned(), None),
            Line::Vm => (self.title.vm.clone(), None),
            // `actor` has written their descriptors.
            Line::Of(Track::Thread(_)) | Line::Process(_) => return self.uuid(line),
        };
        let parent_uuid = parent.map(|parent| self.track(parent, out));
        let counter = match line {
            Line::Counter(counter) => Some(CounterDescriptor {
                unit_name: self.title.counter(counter).1.to_owned(),
            }),
            _ => None,
        };
        let uuid = self.uuid(line);
        let descriptor = TrackDescriptor {
            uuid,
            name: Some(name),
            parent_uuid,
            counter,
            ..TrackDescriptor::default()
        };
        self.describe(descriptor, out);
        uuid
    }

    /// Returns the track's id. Ids count up from 1: 0 is the file's default track.
    fn uuid(&mut self, line: Line) -> u64 {
        let next = self.tracks.len() as u64 + 1;
        *self.tracks.entry(line).or_insert(next)
    }

    fn describe(&mut self, descriptor: TrackDescriptor, out: &mut Vec<u8>) {
        let packet = Packet {
            track_descriptor: Some(descriptor),
            ..Packet::default()
        };
        self.put(packet, out);
    }

    fn event(
        &mut self,
        monotonic_ns: u64,
        event: TrackEvent,
        interned_data: Option<InternedData>,
        out: &mut Vec<u8>,
    ) {
        let packet = Packet {
            timestamp: Some(self.title.file_ns(monotonic_ns)),
            track_event: Some(event),
            interned_data,
            sequence_flags: Some(NEEDS_STATE),
            ..Packet::default()
        };
        self.put(packet, out);
    }

    fn put(&mut self, mut packet: Packet, out: &mut Vec<u8>) {
        packet.trusted_packet_sequence_id = 1;
        if std::mem::take(&mut self.is_first) {
            packet.first_packet_on_sequence = Some(true);
            packet.sequence_flags = Some(STATE_CLEARED);
        }
        // Key of `Trace.packet`: field 1, length-delimited.
        out.push(0x0a);
        let encoded = packet.encode_length_delimited(out);
        encoded.expect("writing to a Vec cannot fail");
    }
}

fn annotation(peer: &Peer) -> DebugAnnotation {
    let value = if peer.tid == 0 {
        "none: the CPU was idle".to_owned()
    } else {
        format!("{} ({})", peer.name, peer.tid)
    };
    DebugAnnotation {
        name: "ran there last".to_owned(),
        string_value: Some(value),
    }
}
