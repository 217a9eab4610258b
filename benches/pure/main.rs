//! The agent's own work on a full node, without a kernel: from the bytes of a task pass
//! to the body of a scrape. `cargo bench -p virtlens-benches --bench pure`; the bench
//! `agent` measures the whole agent.

// Criterion's macros generate undocumented functions.
#![allow(missing_docs, reason = "criterion's macros write no documentation")]

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
use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::{Comm, VmKey};
use virtlens_probe::decode::Decoder;
use virtlens_tests::blank;

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
        agent: virtlens::process::agent(0),
    })
}

criterion_group! {
    name = pure;
    config = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = decode, ledger, encoding
}
criterion_main!(pure);
