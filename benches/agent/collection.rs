//! What one collection costs, by the clock of the thread that does it.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use libbpf_rs::{Iter, MapCore as _, MapFlags};
use virtlens::collect::{Collector, Options};
use virtlens_export::{Format, Reading, encode};
use virtlens_model::snapshot::Snapshot;
use virtlens_probe::loader::Loader;

use crate::bpf;
use crate::clock::thread_ns;
use crate::load::IdleThreads;
use crate::stats::{Spread, real};

/// Collections of a measurement.
const ROUNDS: usize = 60;

/// Between two: a scraper comes back when the caches hold other things.
const PAUSE: Duration = Duration::from_millis(20);

/// How often programs are loaded for a measurement.
const LOADS: usize = 7;

/// Threads of a process that has nothing to do with any VM.
const IDLE_THREADS: u32 = 2000;

/// CPU time of one collection, and what it makes.
#[derive(Debug)]
pub(crate) struct Cost {
    /// To read and account, ms.
    pub(crate) collect_ms: Spread,
    /// The same back to back, with all of it still in the caches, ms.
    pub(crate) warm_ms: Spread,
    /// To read, account and judge, which is done every 10 s: at most scrapes, ms.
    pub(crate) judged_ms: Spread,
    /// To encode, ms.
    pub(crate) encode_ms: Spread,
    /// To compress what was encoded, ms.
    pub(crate) gzip_ms: Spread,
    /// Both of the first two, ms.
    pub(crate) sum_ms: Spread,
    /// VMs in it.
    pub(crate) vms: u64,
    /// Series of VMs.
    pub(crate) series: u64,
    /// Bytes encoded, with the names that pods would have.
    pub(crate) bytes: u64,
    /// The same compressed.
    pub(crate) gzip_bytes: u64,
}

/// A collector as the agent has it.
pub(crate) fn collector() -> Collector {
    with(Loader::default())
}

fn with(loader: Loader) -> Collector {
    let options = Options {
        linger: Duration::from_secs(1),
        loader,
        ..Options::default()
    };
    Collector::open(&options).expect("the host can be read")
}

/// What each loader costs: to load, and in each collection, ms CPU. Collections are
/// taken in turn.
pub(crate) fn of_loaders() -> Vec<(Loader, Spread, Spread)> {
    let mut loaded: Vec<_> = Loader::ALL
        .iter()
        .map(|loader| {
            let load = |_| real(thread_ns(|| with(*loader)).1) / 1e6;
            (
                *loader,
                Spread::of((0..LOADS).map(load)),
                with(*loader),
                Vec::new(),
            )
        })
        .collect();
    for _ in 0..ROUNDS {
        for (_, _, collector, collect_ms) in &mut loaded {
            sleep(PAUSE);
            collect_ms.push(real(thread_ns(|| collector.collect()).1) / 1e6);
        }
    }
    let told = |(loader, load, _, collect_ms)| (loader, load, Spread::of(collect_ms));
    loaded.into_iter().map(told).collect()
}

/// Measures collections of what runs now.
pub(crate) fn cost(collector: &mut Collector) -> Cost {
    collector.collect();
    let (mut collect, mut encoding, mut gzip) = (Vec::new(), Vec::new(), Vec::new());
    let (mut text, mut packed, mut vms) = (String::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        sleep(PAUSE);
        let (snapshot, collect_ns) = thread_ns(|| collector.collect());
        vms = snapshot.vms.len();
        let reading = named(&snapshot);
        text.clear();
        let ((), encode_ns) = thread_ns(|| encode(&reading, Format::OpenMetrics, &mut text));
        let gzip_ns;
        (packed, gzip_ns) = thread_ns(|| compress(&text));
        collect.push(real(collect_ns) / 1e6);
        encoding.push(real(encode_ns) / 1e6);
        gzip.push(real(gzip_ns) / 1e6);
    }
    let sums: Vec<f64> = collect.iter().zip(&encoding).map(|(a, b)| a + b).collect();
    let series = text.lines().filter(|line| line.contains("vm=\"")).count();
    let warm = (0..ROUNDS).map(|_| real(thread_ns(|| collector.collect()).1) / 1e6);
    let warm_ms = Spread::of(warm);
    let judged = (0..ROUNDS / 2).map(|_| {
        sleep(PAUSE);
        real(thread_ns(|| collector.collect_judged()).1) / 1e6
    });
    let judged_ms = Spread::of(judged);
    Cost {
        warm_ms,
        judged_ms,
        collect_ms: Spread::of(collect),
        encode_ms: Spread::of(encoding),
        gzip_ms: Spread::of(gzip),
        sum_ms: Spread::of(sums),
        vms: vms as u64,
        series: series as u64,
        bytes: text.len() as u64,
        gzip_bytes: packed.len() as u64,
    }
}

/// An iterator over the same tasks that only counts them: below this no pass goes that
/// does not walk by itself, ms CPU.
pub(crate) fn iterator_ms() -> Spread {
    let object = bpf::load("iterator.bpf.c");
    let mut programs = object.progs_mut();
    let program = programs.next().expect("it has one");
    let link = program.attach().expect("an iterator can be attached");
    let pass = |_| {
        sleep(PAUSE);
        let all = || Iter::new(&link).and_then(|mut pass| Ok(pass.read_to_end(&mut Vec::new())?));
        let (read, ns) = thread_ns(all);
        assert_eq!(read.expect("it goes over all"), 0, "it tells nothing");
        real(ns) / 1e6
    };
    let spread = Spread::of((0..ROUNDS).map(pass));
    let seen = object.maps().find(|map| map.name() == "seen");
    let seen = seen.and_then(|map| map.lookup(&[0; 4], MapFlags::ANY).ok().flatten());
    let seen = u64::from_ne_bytes(seen.and_then(|b| b.try_into().ok()).expect("it counts"));
    assert!(seen > ROUNDS as u64 * 1000, "a full node has more tasks");
    spread
}

/// CPU time that one thread of another process adds to a collection, µs.
pub(crate) fn other_thread_us(collector: &mut Collector) -> Spread {
    let mut median_us = || {
        let one = |_| {
            sleep(PAUSE);
            real(thread_ns(|| collector.collect()).1) / 1e3
        };
        Spread::of((0..ROUNDS / 6).map(one)).median
    };
    Spread::of((0..6).map(|_| {
        let without_us = median_us();
        let _others = IdleThreads::start(IDLE_THREADS);
        (median_us() - without_us) / f64::from(IDLE_THREADS)
    }))
}

/// With names as pods have them: they stand in every line.
fn named(snapshot: &Snapshot) -> Arc<Reading> {
    let mut snapshot = snapshot.clone();
    for vm in &mut snapshot.vms {
        vm.namespace = Some("team-a".into());
        vm.pod = Some(format!("virt-launcher-{}-x7k2p", vm.vm).into());
    }
    Arc::new(Reading {
        snapshot: Arc::new(snapshot),
        agent: virtlens::process::agent(0),
    })
}

fn compress(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes())
        .expect("a Vec takes everything");
    gzip.finish().expect("a Vec takes everything")
}
