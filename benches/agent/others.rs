//! Hosts on which most tasks or open files belong to others.

use std::path::Path;
use std::thread::sleep;

use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_probe::plan::plan;
use virtlens_probe::source::TaskPass;
use virtlens_tests::binary;

use crate::clock::thread_ns;
use crate::collection::{self, PAUSE};
use crate::idle::{Idle, Kind};
use crate::load::Vms;
use crate::stats::{Compared, Spread, compare_pairs, real};
use crate::table::Table;

/// VMs of such a host.
const VMS: usize = 20;

/// Numbers of tasks of others. The first is also that of a row with a budget.
const FEW: u32 = 20_000;
const MANY: u32 = 200_000;

/// Open files of others.
const FILES: u32 = 300_000;

/// Readings per measurement: those beside many tasks take tens of milliseconds.
const ROUNDS: usize = 20;

/// Passes over all open files.
const PASSES: u32 = 15;

/// Pairs with and without open files.
const PAIRS: usize = 5;

/// A way to read the host beside tasks of others.
struct Way {
    what: &'static str,
    read: Box<dyn FnMut()>,
    /// CPU time without tasks of others, ms.
    alone_ms: f64,
    /// Number of tasks of others, and CPU time for each 1000 of them, µs.
    each_thousand_us: Vec<(u32, f64)>,
}

impl Way {
    fn new(what: &'static str, read: impl FnMut() + 'static) -> Self {
        Self {
            what,
            read: Box::new(read),
            alone_ms: 0.0,
            each_thousand_us: Vec::new(),
        }
    }

    fn median_ms(&mut self) -> f64 {
        (self.read)();
        let one = |_| {
            sleep(PAUSE);
            real(thread_ns(|| (self.read)()).1) / 1e6
        };
        Spread::of((0..ROUNDS).map(one)).median
    }
}

/// Adds all rows for hosts with tasks and open files of others.
pub(crate) fn rows(table: &mut Table) {
    let mut vms = Vms::full();
    vms.grow_to(VMS);
    budget(table);
    let mut ways = ways(&vms);
    for kind in [Kind::Threads, Kind::Processes] {
        tasks(table, &mut ways, kind);
    }
    drop(ways);
    files(table, &vms);
}

/// The row with a budget, and the comparison with an earlier build.
fn budget(table: &mut Table) {
    let mut collector = collection::collector();
    let few = collection::collect_ms(&mut collector);
    let _others = Idle::start(Kind::Threads, FEW);
    let many = collection::collect_ms(&mut collector);
    let added = many.median - few.median;
    table.judge(
        &format!("{FEW} threads of others beside {VMS} VMs: added to a collection, ms CPU"),
        "≤ 1",
        format!("{added:.2}: {many} instead of {few}"),
        added <= 1.0,
    );
    crate::in_turn(table, &binary("virtlens"));
}

fn ways(vms: &Vms) -> Vec<Way> {
    let mut collector = collection::collector();
    let mut ways = vec![Way::new("a collection", move || drop(collector.collect()))];
    let mut pass = pass(vms);
    ways.push(Way::new(
        "a pass that also searches, once a minute",
        move || {
            pass.want_search();
            pass.read().expect("the host can be read");
        },
    ));
    if let Some(loader) = Loader::ALL.iter().find(|loader| loader.lacks().is_some()) {
        let mut collector = collection::with(*loader);
        let what = "a collection by an iterator, as with aya and before Linux 6.9";
        ways.push(Way::new(what, move || drop(collector.collect())));
    }
    ways
}

/// A pass of the default loader that watches the pods, as that of the agent.
fn pass(vms: &Vms) -> TaskPass {
    let (root, loader) = (Path::new("/"), Loader::default());
    let kernel = KernelFacts::probe(root).seen_by(loader);
    let pass = TaskPass::load(root, loader, plan(&kernel), vms.is_v1(), None);
    let mut pass = pass.expect("the kernel takes the programs");
    pass.read().expect("the host can be read");
    pass.watch(&vms.watched()).expect("there is room");
    pass
}

/// Linear: a thousand of many tasks cost at most a quarter more than a thousand of few.
fn tasks(table: &mut Table, ways: &mut [Way], kind: Kind) {
    for way in &mut *ways {
        way.alone_ms = way.median_ms();
        way.each_thousand_us.clear();
    }
    for wanted in [FEW, MANY] {
        let others = Idle::start(kind, wanted);
        for way in &mut *ways {
            let added_us = (way.median_ms() - way.alone_ms) * 1e3;
            let each = added_us / (f64::from(others.count) / 1e3);
            way.each_thousand_us.push((others.count, each));
        }
    }
    for way in ways {
        let what = format!(
            "{} of others beside {VMS} VMs: each 1000 add to {}, µs CPU",
            kind.name(),
            way.what
        );
        let each = way.each_thousand_us.iter();
        let each: Vec<_> = each
            .map(|(count, us)| format!("{count}: {us:.1}"))
            .collect();
        let (few, many) = (way.each_thousand_us[0].1, way.each_thousand_us[1].1);
        // Below 1 µs for each 1000 tasks the difference is noise.
        let is_linear = many <= f64::max(1.25 * few, 1.0);
        table.judge(&what, "linear", each.join(", "), is_linear);
    }
}

/// Open files of others, in pairs with and without. A pass over them would take 0.5 µs each.
fn files(table: &mut Table, vms: &Vms) {
    let mut count = FILES;
    for mut way in ways(vms).into_iter().take(2) {
        let Compared {
            without,
            added,
            ratio,
        } = compare_pairs(PAIRS, |with| {
            let others = with.then(|| Idle::start(Kind::Files, FILES));
            if let Some(others) = &others {
                count = others.count;
            }
            way.median_ms()
        });
        let without = without.median;
        table.judge(
            &format!(
                "{count} open files of others beside {VMS} VMs: added to {}, ms CPU",
                way.what
            ),
            "≤ 1: no pass over them",
            format!("{added:.2}; without them {without:.2}, ratio {ratio:.3}"),
            added.median <= 1.0,
        );
    }
    let _others = Idle::start(Kind::Files, FILES);
    let iterator = collection::iterator_ms("count_files", PASSES, count);
    let what = "… beside it, an iterator of the kernel over all open files, which only counts them";
    table.row(what, format!("{iterator}"));
}
