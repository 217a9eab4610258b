//! A snapshot as bytes: its difference to the snapshot before it.
//!
//! ```text
//! head, compressed:         new texts, new structs │ layout: the node, each VM │ runs │ columns
//! codes of each long column, compressed
//! bits
//! ```

use std::mem;

use rustc_hash::FxHashMap;
use serde::Serialize as _;
use virtlens_model::snapshot::Snapshot;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, ParamSwitch};

use crate::ahead::{NextFlat, NextVm};
use crate::columns::Expected;
use crate::delta::Reading;
use crate::dictionary::{Dictionary, Numbered};
use crate::flat::Flat;
use crate::flatten::{Flatten, Unsupported};
use crate::flattened::Flattened;
use crate::rebuild::{Unknown, rebuild};
use crate::rows::put_vm;
use crate::shape::Shapes;
use crate::update::{Broken, Streams};
use crate::varint::{Bytes, put, put_len};

/// Level of compression of the head.
const LEVEL: i32 = -5;

/// Level of compression of codes: the lowest one, which finds no repetitions. Codes have few, and
/// the Huffman coding, which [`compressor`] keeps, shortens them.
const CODES_LEVEL: i32 = -131_072;

/// Most tokens and cells of all values of a snapshot: several times those of 2000 large VMs.
/// A damaged frame must not take all memory.
const MAX_VALUES: usize = 1 << 24;

/// Most bytes of a frame before compression: more than those of the complete frame of 2000
/// large VMs.
const MAX_UNPACKED: usize = 64 << 20;

/// A snapshot without its VMs, and its VMs.
#[derive(Debug, Default)]
struct Parts {
    node: Flat,
    vms: Vec<Flat>,
}

/// Makes frames of snapshots. The first one is complete, each other one a difference.
pub(crate) struct Encoder {
    names: Numbered,
    before: Parts,
    /// The processes of the VMs before, in their order. A VM that has the pid of a former one
    /// costs bytes, not correctness.
    pids: Vec<u32>,
    streams: Streams,
    flattened: Flattened,
    head: Vec<u8>,
    packed: Vec<u8>,
    compressor: Compressor<'static>,
    known: (usize, usize),
}

impl Encoder {
    /// An encoder without a snapshot.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            names: Numbered::default(),
            before: Parts::default(),
            pids: Vec::new(),
            streams: Streams::default(),
            flattened: Flattened::default(),
            head: Vec::new(),
            packed: Vec::new(),
            compressor: compressor()?,
            known: (0, 0),
        })
    }

    /// Forgets all snapshots and texts: the next frame is complete.
    pub(crate) fn restart(&mut self) {
        self.names = Numbered::default();
        self.known = (0, 0);
        self.pids.clear();
        self.before = Parts::default();
        self.streams.restart();
    }

    /// Length of all texts so far, bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.names.bytes
    }

    /// The frame of the next snapshot, appended to `out`. After an error the encoder has to
    /// restart.
    pub(crate) fn encode(&mut self, snapshot: &Snapshot, out: &mut Vec<u8>) -> Result<(), Error> {
        self.streams.clear();
        let Parts {
            mut node,
            vms: mut before,
        } = mem::take(&mut self.before);
        let without_vms = snapshot.without_vms();
        let count = snapshot.vms.len();
        let none = (NextVm::default(), NextFlat::default());
        self.update(&mut node, none, |to| without_vms.serialize(to))?;
        put_len(&mut self.streams.layout, count);
        let pids: Vec<u32> = snapshot.vms.iter().map(|vm| vm.pid).collect();
        let mut places = Places::of(&self.pids, &pids);
        let mut vms = Vec::with_capacity(count);
        for vm in &snapshot.vms {
            let (reference, place) = places.find(vm.pid);
            put(&mut self.streams.layout, reference);
            let flat = place.and_then(|place| before.get_mut(place));
            let mut flat = flat.map(mem::take).unwrap_or_default();
            // The order of VMs rarely changes, so the value before has the same place.
            let next = vms.len() + 1;
            let ahead = (
                NextVm::of(&snapshot.vms, next),
                NextFlat::of(before.get(next)),
            );
            self.update(&mut flat, ahead, |to| put_vm(to, vm))?;
            vms.push(flat);
        }
        self.pids = pids;
        self.before = Parts { node, vms };
        self.streams.finish();
        self.write_head();
        put_len(out, self.head.len());
        let (compressor, packed) = (&mut self.compressor, &mut self.packed);
        compressor.set_parameter(CParameter::CompressionLevel(LEVEL))?;
        put_packed(&self.head, compressor, packed, out)?;
        compressor.set_parameter(CParameter::CompressionLevel(CODES_LEVEL))?;
        put_len(out, self.streams.columns.long().count());
        for codes in self.streams.columns.long() {
            put_len(out, codes.len());
            put_packed(codes, compressor, packed, out)?;
        }
        out.extend_from_slice(self.streams.columns.bits.bytes());
        Ok(())
    }

    fn update(
        &mut self,
        flat: &mut Flat,
        (next_vm, next_flat): (NextVm<'_>, NextFlat<'_>),
        put: impl FnOnce(&mut Flatten<'_>) -> Result<(), Unsupported>,
    ) -> Result<(), Error> {
        let next = &mut self.flattened;
        put(&mut Flatten::of(next, flat, &mut self.names, next_vm))?;
        let names = &self.names.dictionary;
        Ok(self.streams.update(flat, next, names, next_flat)?)
    }

    /// Writes new names and the streams that compress.
    fn write_head(&mut self) {
        let head = &mut self.head;
        head.clear();
        let dictionary = &self.names.dictionary;
        let (texts, structs) = self.known;
        let texts = dictionary.texts().get(texts..).unwrap_or_default();
        put_len(head, texts.len());
        for text in texts {
            put_len(head, text.len());
            head.extend_from_slice(text);
        }
        let structs = dictionary.structs_from(structs);
        put_len(head, structs.len());
        for fields in structs {
            put_len(head, fields.len());
            for field in fields {
                put(head, (*field).into());
            }
        }
        for stream in [&self.streams.layout, &self.streams.runs] {
            put_len(head, stream.len());
            head.extend_from_slice(stream);
        }
        self.streams.columns.write_head(head);
        self.known = (dictionary.texts().len(), dictionary.struct_count());
    }
}

fn compressor() -> std::io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(LEVEL)?;
    let mode = CParameter::LiteralCompressionMode(ParamSwitch::Enable);
    compressor.set_parameter(mode)?;
    Ok(compressor)
}

/// Appends bytes, compressed, behind their length.
fn put_packed(
    bytes: &[u8],
    compressor: &mut Compressor<'static>,
    packed: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    packed.resize(zstd::zstd_safe::compress_bound(bytes.len()), 0);
    let len = compressor.compress_to_buffer(bytes, &mut packed[..])?;
    put_len(out, len);
    out.extend(packed.iter().take(len));
    Ok(())
}

/// The places of VMs in the snapshot before. Mostly, both have the same VMs in the same order.
struct Places {
    expected: usize,
    /// `None` if all VMs are where they were.
    index: Option<FxHashMap<u32, usize>>,
}

impl Places {
    fn of(before: &[u32], now: &[u32]) -> Self {
        let index = (before != now).then(|| before.iter().copied().zip(0..).collect());
        Self { expected: 0, index }
    }

    /// The place of the next VM as it is written, and its place. 0: new; 1: the one behind the
    /// last one; otherwise two more than its number.
    fn find(&mut self, pid: u32) -> (u64, Option<usize>) {
        let place = match &mut self.index {
            None => self.expected,
            // Of two VMs of a process only one has a place.
            Some(index) => match index.remove(&pid) {
                Some(place) => place,
                None => return (0, None),
            },
        };
        let reference = if place == self.expected {
            1
        } else {
            place as u64 + 2
        };
        self.expected = place + 1;
        (reference, Some(place))
    }
}

/// A frame cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value has a type that recordings do not have.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Its structure is not one of a value, which would be a bug.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The compressor failed.
    #[error("cannot compress: {0}")]
    Compress(#[from] std::io::Error),
}

/// A frame cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It is damaged.
    #[error("the frame is damaged")]
    Damaged,
    /// Another version wrote it.
    #[error(transparent)]
    Unknown(#[from] Unknown),
}

/// Makes snapshots of frames, in the order in which they were written.
#[derive(Debug, Default)]
pub struct Decoder {
    names: Dictionary,
    before: Parts,
    columns: Expected,
    shapes: Shapes,
}

impl Decoder {
    /// Applies the next frame. After an error the decoder is of no use.
    pub(crate) fn apply(&mut self, frame: &[u8]) -> Result<(), Unreadable> {
        let (head, codes, bits) = unpacked(frame).ok_or(Unreadable::Damaged)?;
        self.apply_unpacked(&head, &codes, bits)
    }

    /// Applies the next frame: its head and the codes of its long columns, which are not
    /// compressed, and its bits.
    ///
    /// # Errors
    ///
    /// If it is damaged. After an error the decoder is of no use.
    pub fn apply_unpacked(
        &mut self,
        head: &[u8],
        codes: &[u8],
        bits: &[u8],
    ) -> Result<(), Unreadable> {
        self.read(head, codes, bits).ok_or(Unreadable::Damaged)
    }

    /// The snapshot of the frame that was applied last.
    ///
    /// # Errors
    ///
    /// If another version wrote it.
    pub fn snapshot(&self) -> Result<Snapshot, Unreadable> {
        let mut snapshot: Snapshot = rebuild(&self.before.node, &self.names)?;
        for vm in &self.before.vms {
            snapshot.vms.push(rebuild(vm, &self.names)?);
        }
        Ok(snapshot)
    }

    fn read(&mut self, head: &[u8], codes: &[u8], bits: &[u8]) -> Option<()> {
        let mut bytes = Bytes(head);
        for _ in 0..bytes.count()? {
            let len = bytes.count()?;
            self.names.add_text(bytes.take(len)?);
        }
        for _ in 0..bytes.count()? {
            let fields = (0..bytes.count()?).map(|_| u32::try_from(bytes.number()?).ok());
            let fields: Vec<u32> = fields.collect::<Option<_>>()?;
            self.names.add_struct(&fields)?;
        }
        let mut stream = || {
            let len = bytes.count()?;
            bytes.take(len).map(Bytes)
        };
        let (layout, mut runs) = (stream()?, stream()?);
        let count = self.names.column_count();
        let mut streams = Reading {
            layout,
            quiet: runs.number()?,
            runs,
            columns: self.columns.read(&mut bytes, Bytes(codes), bits, count)?,
        };
        let (shapes, names) = (&mut self.shapes, &self.names);
        let node = streams.next(&self.before.node, shapes, names)?;
        let mut values = node.values();
        let count = streams.layout.count()?;
        let (mut vms, mut expected, none) = (Vec::with_capacity(count), 0, Flat::default());
        for _ in 0..count {
            let before = match usize::try_from(streams.layout.number()?).ok()? {
                0 => &none,
                reference => {
                    let at = if reference == 1 {
                        expected
                    } else {
                        reference - 2
                    };
                    expected = at + 1;
                    self.before.vms.get(at)?
                }
            };
            let vm = streams.next(before, shapes, names)?;
            values += vm.values();
            if values > MAX_VALUES {
                return None;
            }
            vms.push(vm);
        }
        let is_read = bytes.0.is_empty() && streams.is_empty();
        self.before = Parts { node, vms };
        is_read.then_some(())
    }
}

/// The head, the codes of the long columns, and the bits.
fn unpacked(frame: &[u8]) -> Option<(Vec<u8>, Vec<u8>, &[u8])> {
    let mut bytes = Bytes(frame);
    let mut left = MAX_UNPACKED;
    let head = unpack(&mut bytes, &mut left)?;
    let mut codes = Vec::new();
    for _ in 0..bytes.count()? {
        codes.extend(unpack(&mut bytes, &mut left)?);
    }
    Some((head, codes, bytes.0))
}

/// The next compressed bytes, of which at most `left` may follow.
fn unpack(bytes: &mut Bytes<'_>, left: &mut usize) -> Option<Vec<u8>> {
    let len = usize::try_from(bytes.number()?).ok()?;
    *left = left.checked_sub(len)?;
    let packed = bytes.count()?;
    let unpacked = zstd::bulk::decompress(bytes.take(packed)?, len).ok()?;
    (unpacked.len() == len).then_some(unpacked)
}
