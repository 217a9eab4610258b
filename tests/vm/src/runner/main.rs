//! `vmtest`: boots Debian kernels in QEMU under software emulation, one after another,
//! and runs the project's suites in them with real VMs.
//!
//! The expectations for each kernel are data (`kernels.toml`). The output is a table, a
//! console log per kernel and an exit status. Downloads are in a cache outside the
//! checkout, by version.

#![forbid(unsafe_code)]

mod apt;
mod boot;
mod boots;
mod hardware;
mod initramfs;
mod kernel;
mod monitor;
mod oops;
mod provision;
mod record;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use virtlens_vmtest::plan::Suite;

use crate::boot::Machine;
use crate::boots::{Booted, Boots};
use crate::kernel::{Catalogue, Entry, RIG, SuiteEntry};
use crate::provision::{Guests, Wants, Work, Workshop};
use crate::record::Record;

/// Boots Debian kernels in QEMU and runs the suites in them.
#[derive(Debug, Parser)]
#[command(name = "vmtest")]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
struct Cli {
    /// Boot only this kernel; repeatable. By default all kernels of kernels.toml that
    /// do not have to be named.
    #[arg(long = "kernel", value_name = "NAME")]
    kernels: Vec<String>,
    /// Boot all kernels of kernels.toml.
    #[arg(long, conflicts_with = "kernels")]
    all: bool,
    /// Run only this suite of kernels.toml, on the kernels that list it; repeatable.
    /// `rig` always runs where it is listed.
    #[arg(long = "suite", value_name = "NAME")]
    suites: Vec<String>,
    /// Run this program as an additional suite: NAME=PATH, then its arguments.
    #[arg(long, num_args = 1.., value_name = "NAME=PATH", allow_hyphen_values = true)]
    exec: Vec<String>,
    /// Run only the suite of --exec, without pods and self-tests.
    #[arg(long, requires = "exec", conflicts_with_all = ["suites", "shell"])]
    bare: bool,
    /// List the kernels and whether they are in the cache.
    #[arg(long)]
    list: bool,
    /// Fill the cache and exit.
    #[arg(long)]
    fetch_only: bool,
    /// Check for newer kernels than those in the cache.
    #[arg(long)]
    newest: bool,
    /// Boot one kernel with its pods and open a shell.
    #[arg(long)]
    shell: bool,
    /// Only for `cargo run -- run`, which reads better in scripts.
    #[arg(value_parser = ["run"], hide = true)]
    verb: Option<String>,
}

/// After this time a machine that breaks is not booted again, because the whole run has
/// to end within the time of a CI run.
const PATIENCE: Duration = Duration::from_mins(13);

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vmtest: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<bool> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let catalogue = Catalogue::read(&home.join("kernels.toml"))?;
    let workshop = Workshop::new(cache_dir()?)?;
    if cli.list {
        list(&catalogue, &workshop);
        return Ok(true);
    }
    let entries = chosen(&catalogue, cli)?;
    let built = if cli.fetch_only {
        Vec::new()
    } else {
        suites(&catalogue, cli, &entries)?
    };
    let exec = exec(cli)?;
    let patience = Instant::now() + PATIENCE;
    let mut rows = Vec::new();
    for entry in entries {
        let wants = wants(cli, &catalogue, entry);
        let provision = workshop.provide(&catalogue, entry, wants)?;
        if cli.fetch_only {
            continue;
        }
        let listed = built
            .iter()
            .filter(|suite| entry.suites.contains(&suite.name));
        let suites: Vec<Suite> = listed.chain(&exec).cloned().collect();
        let work = if cli.shell {
            Work::Shell
        } else {
            Work::Suites(&suites)
        };
        let job = workshop.assemble(entry, &provision, &work)?;
        let suites_s: u64 = suites.iter().map(|suite| suite.deadline_s).sum();
        let hardware = catalogue.hardware(entry)?;
        let machine = Machine {
            name: &entry.name,
            emulator: &provision.emulator,
            hardware,
            kernel: &provision.kernel.image,
            initrd: &job.initrd,
            log: &job.log,
            rig_deadline: hardware.rig_deadline(),
            suites_deadline: Duration::from_secs(suites_s),
        };
        if cli.shell {
            machine.shell()?;
            continue;
        }
        let rig = (wants.guests == Guests::Pods).then_some(RIG);
        let names: Vec<_> = rig
            .into_iter()
            .chain(suites.iter().map(|suite| suite.name.as_str()))
            .collect();
        let boots = Boots {
            machine,
            entry,
            suites: &names,
            patience,
        };
        let booted = boots.run(|length| {
            let job = workshop.assemble(entry, &provision, &Work::Control(length))?;
            Ok((job.initrd, job.log))
        })?;
        rows.push(Row {
            entry,
            release: provision.kernel.release,
            booted,
            log: job.log,
        });
    }
    print_table(&rows);
    Ok(rows.is_empty() || all_sound(&rows))
}

fn wants(cli: &Cli, catalogue: &Catalogue, entry: &Entry) -> Wants {
    let mut suites = catalogue.suites.iter();
    let has_guests = |suite: &SuiteEntry| suite.own_guests && entry.suites.contains(&suite.name);
    let guests = if cli.bare {
        Guests::None
    } else if entry.suites.contains(RIG) {
        Guests::Pods
    } else if suites.any(has_guests) {
        Guests::Files
    } else {
        Guests::Kernel
    };
    Wants {
        newest: cli.newest,
        guests,
    }
}

/// Whether nothing failed and at least one kernel was judged.
fn all_sound(rows: &[Row<'_>]) -> bool {
    let held = rows.iter().any(|row| row.booted.verdict.not_run.is_none());
    if !held {
        println!("\nno result: every machine broke too early");
    }
    let sound = |row: &Row<'_>| row.booted.verdict.failures.is_empty();
    held && rows.iter().all(sound)
}

/// `VIRTLENS_CACHE`, or the user's default cache directory.
fn cache_dir() -> anyhow::Result<PathBuf> {
    let var = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    var("VIRTLENS_CACHE")
        .or_else(|| Some(var("XDG_CACHE_HOME")?.join("virtlens")))
        .or_else(|| Some(var("HOME")?.join(".cache/virtlens")))
        .context("no cache directory: set VIRTLENS_CACHE or HOME")
}

/// The requested kernels, by name or by suite.
fn chosen<'a>(catalogue: &'a Catalogue, cli: &Cli) -> anyhow::Result<Vec<&'a Entry>> {
    let names = cli.suites.iter();
    names
        .clone()
        .try_for_each(|name| catalogue.knows_suite(name))?;
    let runs =
        |entry: &Entry| names.len() == 0 || names.clone().any(|name| entry.suites.contains(name));
    // A kernel whose suites all have to be named has to be named, too.
    let by_itself = |name: &String| {
        let mut suites = catalogue.suites.iter();
        !suites.any(|suite| suite.name == *name && suite.by_name)
    };
    let wanted = |entry: &Entry| {
        let is_due = cli.all || !entry.by_name;
        names.len() > 0 || is_due && entry.suites.iter().any(by_itself)
    };
    if cli.kernels.is_empty() {
        let entries = catalogue.kernels.iter();
        return Ok(entries
            .filter(|entry| runs(entry) && wanted(entry))
            .collect());
    }
    let named = cli.kernels.iter().map(|name| {
        let entry = catalogue.entry(name)?;
        anyhow::ensure!(
            runs(entry),
            "kernels.toml lists none of these suites for {name}"
        );
        Ok(entry)
    });
    named.collect()
}

/// The suites that run on any of these kernels.
fn suites(catalogue: &Catalogue, cli: &Cli, entries: &[&Entry]) -> anyhow::Result<Vec<Suite>> {
    let wanted = |suite: &&SuiteEntry| {
        let name = &suite.name;
        let asked = cli.suites.contains(name) || cli.suites.is_empty() && !suite.by_name;
        !cli.bare && asked && entries.iter().any(|entry| entry.suites.contains(name))
    };
    let listed = catalogue.suites.iter().filter(wanted);
    listed.map(provision::build_suite).collect()
}

/// The program of the command line, as a suite that runs on every kernel.
fn exec(cli: &Cli) -> anyhow::Result<Option<Suite>> {
    let Some((first, args)) = cli.exec.split_first() else {
        return Ok(None);
    };
    let (name, program) = first
        .split_once('=')
        .context("--exec: expected NAME=PATH")?;
    Ok(Some(Suite {
        name: name.to_owned(),
        program: std::fs::canonicalize(program).with_context(|| program.to_owned())?,
        paths: Vec::new(),
        directory: PathBuf::from("/"),
        args: args.to_vec(),
        // It was named explicitly, and may be a long measurement.
        deadline_s: 1200,
    }))
}

fn list(catalogue: &Catalogue, workshop: &Workshop) {
    for entry in &catalogue.kernels {
        let cached = workshop
            .cached(entry)
            .unwrap_or_else(|| "not fetched".to_owned());
        println!("{:<15} {:<20} {cached}", entry.name, entry.suite);
    }
}

struct Row<'a> {
    entry: &'a Entry,
    release: String,
    booted: Booted,
    log: PathBuf,
}

fn print_table(rows: &[Row<'_>]) {
    println!(
        "\n{:<15} {:<24} {:>4} {:>4} {:>6} {:>7} {:>5}",
        "kernel", "release", "ok", "skip", "failed", "seconds", "boots"
    );
    for row in rows {
        println!(
            "{:<15} {:<24} {:>4} {:>4} {:>6} {:>7.1} {:>5}",
            row.entry.name,
            row.release,
            row.booted.verdict.passed,
            row.booted.verdict.skipped,
            row.booted.verdict.failures.len(),
            row.booted.took.as_secs_f64(),
            row.booted.boots,
        );
    }
    println!();
    for row in rows {
        let verdict = &row.booted.verdict;
        if let Some(why) = &verdict.not_run {
            println!("NOT RUN: {}: {why}", row.entry.name);
        }
        if !verdict.failures.is_empty() {
            println!("{} failed, see {}", row.entry.name, row.log.display());
        }
        for failure in &verdict.failures {
            println!("  {failure}");
        }
        if row.booted.record.broke() {
            println!("{} broke: {}", row.entry.name, row.booted.record);
        }
    }
    let records = rows.iter().map(|row| row.booted.record);
    let all = records.fold(Record::default(), Record::plus);
    println!("emulated machines that broke: {all}");
}
