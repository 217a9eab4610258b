//! The agent's own work on a full node, without a kernel: from the bytes of a task pass
//! to the body of a scrape. `cargo bench -p virtlens-benches --bench pure`; the bench
//! `agent` measures the whole agent.

// Criterion's macros generate undocumented functions.
#![allow(missing_docs, reason = "criterion's macros write no documentation")]

mod moving;
mod stream;

use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use flate2::Compression;
use flate2::write::GzEncoder;
use virtlens_export::{Format, Scrape, Selection, encode};
use virtlens_model::facts::{Facts, ProcessFact};
use virtlens_model::fleet::Fleet;
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::vocab::{Comm, VmKey};
use virtlens_probe::decode::Decoder;
use virtlens_record::{Limits, Recorder};
use virtlens_tests::blank;

use moving::{Load, Node};

/// The node of the design's budget.
const VMS: u32 = 200;

fn decode(criterion: &mut Criterion) {
    let mut decoder = Decoder::default();
    facts(&mut decoder, true);
    let later = stream::pass(VMS, false);
    criterion.bench_function("decode", |bencher| {
        bencher.iter(|| decoder.pass(black_box(&later), stream::MASK_WORDS));
    });
}

fn ledger(criterion: &mut Criterion) {
    let facts = facts(&mut Decoder::default(), true);
    criterion.bench_function("ledger/admit", |bencher| {
        bencher.iter(|| fleet(black_box(&facts)));
    });
    let mut fleet = fleet(&facts);
    criterion.bench_function("ledger/account", |bencher| {
        bencher.iter(|| account(&mut fleet, black_box(&facts)));
    });
}

fn encoding(criterion: &mut Criterion) {
    let facts = facts(&mut Decoder::default(), true);
    let reading = reading(account(&mut fleet(&facts), &facts));
    let mut text = String::new();
    let selection = Selection::default();
    for (name, format) in [
        ("encode/openmetrics", Format::OpenMetrics),
        ("encode/text", Format::Text),
    ] {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                text.clear();
                encode(black_box(&reading), &selection, format, &mut text);
            });
        });
    }
    criterion.bench_function("gzip", |bencher| {
        bencher.iter(|| {
            let mut gzip = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
            gzip.write_all(black_box(text.as_bytes()))
                .expect("writing to a Vec cannot fail");
            gzip.finish().expect("writing to a Vec cannot fail")
        });
    });
}

/// Readings of a segment, after which the length of a frame is printed.
const SEGMENT: usize = 128;

/// Time between two readings of a recorder, s.
const RECORD_EVERY_S: u64 = 10;

/// Recording of one reading, to a file in memory. The time includes that of the next
/// reading's values, which is also measured alone.
fn recording(criterion: &mut Criterion) {
    let facts = facts(&mut Decoder::default(), true);
    let reading = reading(account(&mut fleet(&facts), &facts));
    let loads = [
        ("at rest", Load::None),
        ("idle", Load::Idle),
        ("a tenth busy", Load::Busy(10)),
        ("all busy", Load::Busy(1)),
    ];
    for (name, load) in loads {
        let mut node = Node::new(Snapshot::clone(&reading.snapshot), load);
        criterion.bench_function(&format!("record/{name}, values alone"), |bencher| {
            bencher.iter(|| {
                black_box(node.next(RECORD_EVERY_S));
            });
        });
        let folder = tempfile::tempdir_in("/dev/shm").expect("there is room");
        let limits = Limits {
            max_bytes: 64 << 20,
            max_age: Duration::from_hours(1),
        };
        let recorder = Recorder::open(folder.path(), limits, "node", "0.1.0", None);
        let mut recorder = recorder.expect("the folder is ours");
        let mut at_ns = 0;
        let mut record = || {
            at_ns += 10_000_000_000;
            let recorded = recorder.record(node.next(RECORD_EVERY_S), at_ns);
            recorded.expect("there is room")
        };
        let first = record();
        let all: u64 = first + (1..SEGMENT).map(|_| record()).sum::<u64>();
        let mean = all / SEGMENT as u64;
        let other = (all - first) / (SEGMENT as u64 - 1);
        println!("record/{name}: {mean} bytes a reading; complete {first}, others {other}");
        criterion.bench_function(&format!("record/{name}"), |bencher| {
            bencher.iter(&mut record);
        });
        let [before, now] = [(); 2].map(|()| {
            let snapshot = node.next(RECORD_EVERY_S);
            serde_json::to_vec(snapshot).expect("it can be printed")
        });
        let packed = zstd::bulk::Compressor::with_dictionary(1, &before);
        let packed = packed
            .expect("a dictionary")
            .compress(&now)
            .expect("there is memory");
        let (all, packed) = (now.len(), packed.len());
        println!("record/{name}: JSON {all} bytes, {packed} with zstd and the reading before");
    }
}

fn facts(decoder: &mut Decoder, is_first: bool) -> Facts {
    let stream = stream::pass(VMS, is_first);
    let (facts, nameless) = decoder
        .pass(&stream, stream::MASK_WORDS)
        .expect("the stream is what the kernel writes");
    assert_eq!(nameless, 0, "every cgroup has its name");
    facts
}

fn fleet(facts: &Facts) -> Fleet {
    let mut fleet = Fleet::new(60_000_000_000);
    for vm in fleet.unknown_vms(facts) {
        fleet.admit(vm, &process(vm), facts);
    }
    let watched = fleet.watched();
    assert_eq!(watched.len(), VMS as usize, "each pod is watched");
    fleet
}

fn account(fleet: &mut Fleet, facts: &Facts) -> Vec<Vm> {
    fleet.follow(facts, |_| None);
    fleet.account(facts, 1).0
}

/// QEMU as libvirt starts it.
fn process(vm: VmKey) -> ProcessFact {
    let name = format!("guest=instance-{},debug-threads=on", vm.tgid);
    ProcessFact {
        exe: Some("/usr/bin/qemu-system-x86_64".to_owned()),
        args: vec!["qemu-system-x86_64".to_owned(), "-name".to_owned(), name],
        comm: Comm::new("qemu-system-x86"),
    }
}

/// A reading as the scraper gets it, with the pods' names.
fn reading(mut vms: Vec<Vm>) -> Arc<Scrape> {
    for vm in &mut vms {
        vm.namespace = Some("team-a".into());
        vm.pod = Some(format!("virt-launcher-{}-x7k2p", vm.vm).into());
    }
    Arc::new(Scrape {
        snapshot: Arc::new(blank::snapshot(vms)),
        agent: Some(virtlens::process::agent(0, None)),
    })
}

criterion_group! {
    name = pure;
    config = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = decode, ledger, encoding, recording
}
criterion_main!(pure);
