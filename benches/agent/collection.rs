//! CPU time of one collection, by the clock of its thread.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use libbpf_rs::{Iter, MapCore as _, MapFlags};
use virtlens::collect::{Collector, Options};
use virtlens_export::{Format, Scrape, Selection, encode};
use virtlens_model::snapshot::Snapshot;
use virtlens_probe::loader::Loader;

use crate::bpf;
use crate::clock::thread_ns;
use crate::idle::{Idle, Kind};
use crate::stats::{Spread, real};

/// Collections per measurement.
const ROUNDS: usize = 60;

/// Pause between two collections: when a scraper comes back, the caches hold other data.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Pause in which each vCPU of [`Vms::ticking`](crate::load::Vms::ticking) runs.
const TICK: Duration = Duration::from_millis(300);

/// Number of loads per measurement.
const LOADS: usize = 7;

/// Threads of a process without a VM.
const IDLE_THREADS: u32 = 2000;

/// CPU time of one collection, and the size of its result.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Read and account, ms.
    pub(crate) collect_ms: Spread,
    /// The same without pauses, with all data still in the caches, ms.
    pub(crate) warm_ms: Spread,
    /// Read, account and judge, which at most scrapes do: one every 10 s, ms.
    pub(crate) judged_ms: Spread,
    /// Encode, ms.
    pub(crate) encode_ms: Spread,
    /// Compress the encoded text, ms.
    pub(crate) gzip_ms: Spread,
    /// Sum of `collect_ms` and `encode_ms`.
    pub(crate) sum_ms: Spread,
    /// Number of VMs.
    pub(crate) vms: u64,
    /// Number of series of VMs.
    pub(crate) series: u64,
    /// Encoded bytes, with names as long as those of pods.
    pub(crate) bytes: u64,
    /// Compressed bytes.
    pub(crate) gzip_bytes: u64,
}

/// A collector with the agent's options.
pub(crate) fn collector() -> Collector {
    with(Loader::default())
}

/// A collector with another loader.
pub(crate) fn with(loader: Loader) -> Collector {
    let options = Options {
        linger: Duration::from_secs(1),
        loader,
        ..Options::default()
    };
    Collector::open(&options).expect("the host can be read")
}

/// Cost per loader: one load, and one collection, ms CPU. Collections alternate between
/// the loaders.
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
    let spread = |(loader, load, _, collect_ms)| (loader, load, Spread::of(collect_ms));
    loaded.into_iter().map(spread).collect()
}

/// CPU time of a collection on the present host, ms.
pub(crate) fn collect_ms(collector: &mut Collector) -> Spread {
    behind_ms(PAUSE, ROUNDS, collector)
}

/// The same between which all vCPUs of guests that tick have run.
pub(crate) fn ticked_ms(collector: &mut Collector) -> Spread {
    behind_ms(TICK, ROUNDS / 2, collector)
}

fn behind_ms(pause: Duration, rounds: usize, collector: &mut Collector) -> Spread {
    collector.collect();
    Spread::of((0..rounds).map(|_| {
        sleep(pause);
        real(thread_ns(|| collector.collect()).1) / 1e6
    }))
}

/// Measures collections on the present host.
pub(crate) fn cost(collector: &mut Collector) -> Cost {
    collector.collect();
    let (mut collect, mut encoding, mut gzip) = (Vec::new(), Vec::new(), Vec::new());
    let selection = Selection::default();
    let (mut text, mut packed, mut vms) = (String::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        sleep(PAUSE);
        let (snapshot, collect_ns) = thread_ns(|| collector.collect());
        vms = snapshot.vms.len();
        let reading = named(&snapshot);
        text.clear();
        let ((), encode_ns) =
            thread_ns(|| encode(&reading, &selection, Format::OpenMetrics, &mut text));
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

/// CPU time of a collection in its two parts, ms: the program that walks over the tasks, and
/// the agent. `None` if the kernel has no such program, or does not count its time.
pub(crate) fn parts_ms(collector: &mut Collector) -> Option<[Spread; 2]> {
    let walk_ns = |collector: &mut Collector| {
        sleep(PAUSE);
        let (snapshot, ns) = thread_ns(|| collector.collect());
        let mut programs = snapshot.programs.iter();
        let walk = programs.find(|one| one.program == "walk_tasks");
        walk.map(|walk| (walk.run_ns, ns))
    };
    let runs: Option<Vec<(u64, u64)>> =
        bpf::with_run_times(|| (0..=ROUNDS).map(|_| walk_ns(collector)).collect())?;
    let runs = runs?;
    let parts = runs.windows(2).map(|two| {
        let program_ns = two[1].0 - two[0].0;
        (
            real(program_ns) / 1e6,
            real(two[1].1.saturating_sub(program_ns)) / 1e6,
        )
    });
    let parts: Vec<(f64, f64)> = parts.collect();
    Some([
        Spread::of(parts.iter().map(|(program, _)| *program)),
        Spread::of(parts.iter().map(|(_, agent)| *agent)),
    ])
}

/// CPU time of an iterator that only counts the tasks or files of the host, ms: the lower
/// bound of a pass by iterator. `program` is its name in `iterator.bpf.c`; each of `rounds`
/// counts at least `fewest`.
pub(crate) fn iterator_ms(program: &str, rounds: u32, fewest: u32) -> Spread {
    let object = bpf::load("iterator.bpf.c");
    let mut programs = object.progs_mut();
    let program = programs.find(|one| one.name() == program);
    let program = program.expect("the source has it");
    let link = program.attach().expect("an iterator can be attached");
    let pass = |_| {
        sleep(PAUSE);
        let all = || Iter::new(&link).and_then(|mut pass| Ok(pass.read_to_end(&mut Vec::new())?));
        let (read, ns) = thread_ns(all);
        assert_eq!(read.expect("it goes over all"), 0, "it emits nothing");
        real(ns) / 1e6
    };
    let spread = Spread::of((0..rounds).map(pass));
    let seen = object.maps().find(|map| map.name() == "seen");
    let seen = seen.and_then(|map| map.lookup(&[0; 4], MapFlags::ANY).ok().flatten());
    let seen = u64::from_ne_bytes(seen.and_then(|b| b.try_into().ok()).expect("it counts"));
    let least = u64::from(rounds) * u64::from(fewest);
    assert!(seen >= least, "it goes over all of them");
    spread
}

/// CPU time that one thread of a process without a VM adds to a collection, µs.
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
        let _others = Idle::start(Kind::Threads, IDLE_THREADS);
        (median_us() - without_us) / f64::from(IDLE_THREADS)
    }))
}

/// Adds names like those of pods, which are in every line.
fn named(snapshot: &Snapshot) -> Arc<Scrape> {
    let mut snapshot = snapshot.clone();
    for vm in &mut snapshot.vms {
        vm.namespace = Some("team-a".into());
        vm.pod = Some(format!("virt-launcher-{}-x7k2p", vm.vm).into());
    }
    Arc::new(Scrape {
        snapshot: Arc::new(snapshot),
        agent: Some(virtlens::process::agent(0, None)),
    })
}

fn compress(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes())
        .expect("writing to a Vec cannot fail");
    gzip.finish().expect("writing to a Vec cannot fail")
}
