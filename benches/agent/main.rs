//! Cost of the whole agent on a node of 200 VMs, compared with the design's budgets.
//! `cargo bench -p virtlens-benches --bench agent [-- --save]` needs root and /dev/kvm.
//! Without them it prints a message and measures the remaining values. It never fails CI.
//! With `--only NAME` it measures one of [`PARTS`].

#![expect(
    unsafe_code,
    reason = "sched_setscheduler(2), fork(2) and clone(2), and a closure between fork and exec"
)]

mod before;
mod bpf;
mod clock;
mod collection;
mod idle;
mod load;
mod nodes;
mod others;
mod program;
mod recording;
mod scheduling;
mod stats;
mod sweep;
mod table;

use std::env;
use std::fs;
use std::path::Path;

use collection::Cost;
use load::Vms;
use program::Program;
use stats::real;
use sweep::Sweeper;
use table::Table;
use virtlens_benches::machine;
use virtlens_probe::loader::Loader;
use virtlens_tests::{binary, need};

/// The node sizes whose growth is measured; the budgets apply to the last.
const VMS: [usize; 3] = [50, 100, 200];

/// Scrapes before memory is measured.
const SCRAPES: u32 = 20;

/// The command that produces the table.
const COMMAND: &str = "cargo bench -p virtlens-benches --bench agent -- --save";

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

fn main() {
    let args: Vec<String> = env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == idle::FLAG) {
        idle::keep(&args[at + 1..]);
        return;
    }
    if let Some(at) = args.iter().position(|arg| arg == sweep::FLAG) {
        sweep::sweep(&args[at + 1]);
        return;
    }
    let only = args.iter().position(|arg| arg == "--only");
    let only = only.map(|at| args.get(at + 1).map_or("", String::as_str));
    let names = PARTS.map(|(name, _)| name);
    if only.is_some_and(|only| !names.contains(&only)) {
        eprintln!("--only: expected one of {}", names.join(", "));
        return;
    }
    let machine = machine::describe();
    let mut table = Table::default();
    let _sweeper = Sweeper::start();
    for (name, part) in PARTS {
        if only.is_none_or(|only| only == name) {
            part(&mut table);
        }
    }
    let text = table.render(&format!("{machine} `{COMMAND}`"));
    println!("{text}");
    if args.iter().any(|arg| arg == "--save") {
        assert!(only.is_none(), "only a whole table is saved");
        virtlens_benches::save(README.as_ref(), &text);
    }
}

/// A part of the benchmark, with its name for `--only`.
type Part = (&'static str, fn(&mut Table));

/// The parts, in order.
const PARTS: [Part; 7] = [
    ("scheduling", scheduling),
    ("no-vms", nodes::without_vms),
    ("commands", nodes::commands),
    ("others", |table| {
        with_vms(table, others::rows);
    }),
    ("full", |table| {
        if !with_vms(table, full_node) {
            program(table, None);
        }
    }),
    ("record", |table| {
        with_vms(table, recording::rows);
    }),
    ("micro", |table| {
        with_vms(table, nodes::micro_vms);
    }),
];

/// Measures a part that needs VMs; false if there can be none.
fn with_vms(table: &mut Table, part: fn(&mut Table)) -> bool {
    match need::root().and(need::bpf()).and(need::kvm()) {
        Ok(()) => part(table),
        Err(missing) => {
            let cause = format!("needs {}: {}", missing.need, missing.cause);
            table.miss("a part with VMs", &cause);
            return false;
        }
    }
    true
}

/// Cost that a trace of one VM adds while it runs; no program is attached before and
/// after it. Entries and exits of guests are not measured: the host of this suite has no
/// tracepoints for them.
fn tracing(table: &mut Table) {
    let of_others = scheduling::context_switch(|| scheduling::tracer(&[1]));
    let what = "while a VM is traced, added to a context switch of any other task, ns";
    table.row_added(what, &of_others);
    // New threads of a traced process are traced as well, and so are the measured ones.
    let own = scheduling::context_switch(|| scheduling::tracer(&[std::process::id()]));
    table.row_added("… to one between two threads of that VM, ns", &own);
}

fn scheduling(table: &mut Table) {
    if let Err(missing) = need::root().and(need::bpf()) {
        table.miss(
            "added to a context switch and to a migration",
            &missing.cause,
        );
        return;
    }
    let switch = scheduling::context_switch(collection::collector);
    let what = "added to a context switch, any task, ns";
    table.judge_added(what, "0: no program there", &switch, 0.0);
    tracing(table);
    let what = "added to a migration of an untracked task, ns";
    let one_cpu = "this host has one CPU";
    match scheduling::migration(collection::collector) {
        Some(migration) => {
            table.judge_added(what, "≤ 40", &migration.compared, 40.0);
            hook(table, migration.hook_ns);
        }
        None => table.miss(what, one_cpu),
    }
    if let Some(empty) = scheduling::migration_with_an_empty_program() {
        table.row_added("… beside it, by a program there that does nothing", &empty);
    }
    let what = "added to a migration of a vCPU, ns";
    if let Err(missing) = need::kvm() {
        table.miss(what, &missing.cause);
        return;
    }
    // The agent follows the vCPUs that it has seen.
    let following = || {
        let mut collector = collection::collector();
        collector.collect();
        collector
    };
    match scheduling::vcpu_migration(following) {
        Some(migration) => {
            table.row_added(what, &migration.compared);
            hook(table, migration.hook_ns);
        }
        None => table.miss(what, one_cpu),
    }
}

/// The kernel's own statistics of the hook, including the cost of counting.
fn hook(table: &mut Table, hook_ns: Option<f64>) {
    let what = "… the hook alone, as the kernel counts it, ns";
    match hook_ns {
        Some(ns) => table.row(what, format!("{ns:.0}")),
        None => table.miss(what, "the kernel does not count"),
    }
}

fn full_node(table: &mut Table) {
    let mut vms = Vms::full();
    let mut collector = collection::collector();
    let costs = VMS.map(|count| {
        vms.grow_to(count);
        let cost = collection::cost(&mut collector);
        eprintln!("{count} VMs: {cost:?}");
        (count, cost)
    });
    let [(_, small), _, (_, full)] = &costs;
    let threads = vms.threads_each();
    let node = format!(
        "{} VMs × ({} vCPU + {} other threads)",
        full.vms,
        load::VCPUS,
        threads - load::VCPUS
    );
    let budget = |what: &str| format!("one collection, {node}: {what}, ms CPU");
    let within = |spread: &stats::Spread, limit: f64| spread.median <= limit;
    let collect = &full.collect_ms;
    table.judge(
        &budget("read and account"),
        "≤ 2",
        format!("{collect}"),
        within(collect, 2.0),
    );
    if let Some([program, agent]) = collection::parts_ms(&mut collector) {
        let what = "… of these, the program that walks over the tasks";
        table.row(what, format!("{program}"));
        table.row("… of these, the agent", format!("{agent}"));
    }
    table.row("… the same back to back", format!("{}", full.warm_ms));
    let what = "… with placement and findings judged, as once in 10 s";
    table.row(what, format!("{}", full.judged_ms));
    let iterator = collection::iterator_ms("count_tasks", 60, 1000);
    let what = "… beside it, an iterator of the kernel over the same tasks, which only counts them";
    table.row(what, format!("{iterator}"));
    table.judge(
        "… encode",
        "≤ 1.2",
        format!("{}", full.encode_ms),
        within(&full.encode_ms, 1.2),
    );
    table.judge(
        "… both",
        "≤ 3.2",
        format!("{}", full.sum_ms),
        within(&full.sum_ms, 3.2),
    );
    table.row("… gzip, apart", format!("{}", full.gzip_ms));
    growth(table, &costs, per_vm_us(full) <= 1.25 * per_vm_us(small));
    let other = collection::other_thread_us(&mut collector);
    let what = "one other thread of the host in a collection, µs CPU";
    table.judge(what, "≤ 0.5", format!("{other}"), other.median <= 0.5);
    answer(table, full);
    drop(collector);
    for (loader, load, collect) in collection::of_loaders() {
        table.row(
            &format!("{loader}: to load the programs, ms CPU"),
            format!("{load}"),
        );
        let what =
            format!("{loader}: one collection in turn with the other, read and account, ms CPU");
        table.row(&what, format!("{collect}"));
    }
    program(table, Some(&node));
    drop(vms);
    ticking_node(table);
}

/// The full node with guests that run. Those of the other rows halt.
fn ticking_node(table: &mut Table) {
    let mut vms = Vms::ticking();
    vms.grow_to(VMS[VMS.len() - 1]);
    let ticked = collection::ticked_ms(&mut collection::collector());
    table.row(
        "one collection of as many VMs, all of whose vCPUs have run since the one before: read and account, ms CPU",
        format!("{ticked}"),
    );
}

/// A scrape in turn with an earlier build, if one is named.
fn in_turn(table: &mut Table, path: &Path) {
    let Some(before) = before::path() else {
        return;
    };
    let before::InTurn {
        before_ms,
        now_ms,
        ratio,
    } = before::scrapes(&before, path);
    let what = format!(
        "… a whole scrape in turn with the build in {}, ms CPU",
        before::VARIABLE
    );
    let measured = format!("{now_ms}; then {before_ms}, ratio {ratio:.3}");
    table.row(&what, measured);
}

/// CPU time per VM to read, account and encode, µs.
fn per_vm_us(cost: &Cost) -> f64 {
    cost.sum_ms.median * 1e3 / real(cost.vms)
}

fn growth(table: &mut Table, costs: &[(usize, Cost)], is_linear: bool) {
    let each: Vec<String> = costs
        .iter()
        .map(|(_, cost)| format!("{} VMs: {:.1}", cost.vms, per_vm_us(cost)))
        .collect();
    table.judge(
        "growth: both for each VM, µs CPU",
        "linear",
        each.join(", "),
        is_linear,
    );
}

fn answer(table: &mut Table, cost: &Cost) {
    let each = |number: u64| real(number) / real(cost.vms);
    let limit = real(56 + 4 * load::VCPUS as u64);
    let (series, gzipped) = (each(cost.series), each(cost.gzip_bytes) / 1e3);
    table.judge(
        "series of a VM",
        &format!("≤ {limit:.0}"),
        format!("{series:.1}"),
        series <= limit,
    );
    table.judge(
        "gzipped a VM, KB",
        "≤ 5",
        format!("{gzipped:.2}"),
        gzipped <= 5.0,
    );
    table.row("plain a VM, KB", format!("{:.1}", each(cost.bytes) / 1e3));
}

/// Measures the release program, under the node's load if there is one.
fn program(table: &mut Table, node: Option<&str>) {
    let path = binary("virtlens");
    for loader in Loader::ALL {
        let program = Program::start(&path, *loader);
        let what =
            format!("virtlens run --loader {loader}: from its start to the first reading, ms");
        let times = format!("{:.0} ({:.0} CPU)", program.start_ms, program.start_cpu_ms);
        table.row(&what, times);
        for _ in 0..SCRAPES {
            program.scrape();
        }
        let what = format!("… resident memory after {SCRAPES} scrapes, MiB");
        table.row(&what, format!("{:.1}", program.resident_mib()));
    }
    let program = Program::start(&path, Loader::default());
    let scrape_ms = program.scrape_ms(SCRAPES);
    let bytes = program.scrape();
    table.row(
        "virtlens run: a whole scrape with HTTP and gzip, ms CPU",
        format!("{scrape_ms:.2} for {bytes} bytes"),
    );
    let mib = program.resident_mib();
    let what = format!("resident memory after {SCRAPES} scrapes, MiB");
    match node {
        Some(_) => table.judge(&what, "≤ 20", format!("{mib:.1}"), mib <= 20.0),
        None => table.row(&what, format!("{mib:.1} without VMs")),
    }
    in_turn(table, &path);
    let wake_ups = program.wake_ups();
    let what = "wake-ups in 10 s unscraped";
    table.judge(what, "0", wake_ups.to_string(), wake_ups == 0);
    binary_size(table, &path);
}

fn binary_size(table: &mut Table, path: &Path) {
    let bytes = fs::metadata(path).expect("it was started").len();
    let (megabytes, is_static) = (real(bytes) / 1e6, program::is_static(path));
    let linked = if is_static { "static" } else { "dynamic" };
    let is_kept = is_static && megabytes <= 14.0;
    table.judge(
        "the binary, MB",
        "static, ≤ 14",
        format!("{linked}, {megabytes:.1}"),
        is_kept,
    );
}
