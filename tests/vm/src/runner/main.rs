//! `vmtest`: boots Debian kernels in QEMU under software emulation, one after
//! the other, and runs the project's suites in them beside real VMs.
//!
//! What is expected of each kernel is data (`kernels.toml`); what comes out is
//! a table, a console log per kernel and an exit status. Downloads live in a
//! cache outside the checkout, by version.

mod apt;
mod boot;
mod initramfs;
mod kernel;
mod provision;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;

use virtlens_vmtest::plan::Suite;

use crate::boot::Machine;
use crate::kernel::{Catalogue, Entry};
use crate::provision::Workshop;
use crate::verdict::{Break, Verdict};

/// Boots Debian kernels in QEMU and runs the suites in them.
#[derive(Debug, Parser)]
#[command(name = "vmtest")]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
struct Cli {
    /// Boot only this kernel; may be repeated. Without it all of kernels.toml.
    #[arg(long = "kernel", value_name = "NAME")]
    kernels: Vec<String>,
    /// Run only this suite of kernels.toml; may be repeated. `rig` always runs.
    #[arg(long = "suite", value_name = "NAME")]
    suites: Vec<String>,
    /// Run this program as one more suite: NAME=PATH, then its arguments.
    #[arg(long, num_args = 1.., value_name = "NAME=PATH", allow_hyphen_values = true)]
    exec: Vec<String>,
    /// Start no pods, run no self-tests and no suite but that of --exec.
    #[arg(long, requires = "exec", conflicts_with_all = ["suites", "shell"])]
    bare: bool,
    /// List the kernels and whether they are in the cache.
    #[arg(long)]
    list: bool,
    /// Fill the cache and stop.
    #[arg(long)]
    fetch_only: bool,
    /// Look whether the suites have newer kernels than the cache.
    #[arg(long)]
    newest: bool,
    /// Start the pods of one kernel and give a shell beside them.
    #[arg(long)]
    shell: bool,
    /// Only for `cargo run -- run`, which reads better in scripts.
    #[arg(value_parser = ["run"], hide = true)]
    verb: Option<String>,
}

/// Boot, pods and self-tests of the rig; suites bring their own deadlines.
const RIG_DEADLINE: Duration = Duration::from_secs(150);

/// How often a machine that breaks is booted.
const BOOTS: usize = 3;

/// Once the kernels have taken so long, a machine that breaks is not booted
/// again: the whole must end within what a CI run may take.
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
    let entries = chosen(&catalogue, &cli.kernels)?;
    let suites = if cli.fetch_only {
        Vec::new()
    } else {
        suites(&catalogue, cli)?
    };
    let patience = Instant::now() + PATIENCE;
    let mut rows = Vec::new();
    for entry in entries {
        let provision = workshop.provide(&catalogue, entry, cli.newest, !cli.bare)?;
        if cli.fetch_only {
            continue;
        }
        let job = workshop.assemble(entry, &provision, &suites, cli.shell)?;
        let deadline: u64 = suites.iter().map(|suite| suite.deadline_s).sum();
        let machine = Machine {
            name: &entry.name,
            emulator: &provision.emulator,
            kernel: &provision.kernel.image,
            initrd: &job.initrd,
            log: &job.log,
            deadline: RIG_DEADLINE + Duration::from_secs(deadline),
        };
        if cli.shell {
            machine.shell()?;
            continue;
        }
        let rig = (!cli.bare).then_some("rig");
        let names: Vec<_> = rig
            .into_iter()
            .chain(suites.iter().map(|suite| suite.name.as_str()))
            .collect();
        let booted = boot(&machine, entry, &names, patience)?;
        rows.push(Row {
            entry,
            release: provision.kernel.release,
            booted,
            log: job.log,
        });
    }
    print_table(&rows);
    let held = rows.iter().any(|row| row.booted.verdict.passed > 0);
    if !held && !rows.is_empty() {
        println!("\nno machine held long enough to judge anything");
    }
    let sound = |row: &Row<'_>| row.booted.verdict.failures.is_empty();
    Ok(rows.is_empty() || (held && rows.iter().all(sound)))
}

/// Boots until the machine holds, at most [`BOOTS`] times and not again once
/// `patience` is over: under software emulation a host of nested guests crashes
/// or stops now and then, with and without the suites (a fault on the way out
/// of the guest, a lost interrupt). What a suite found in a machine that held
/// is final.
fn boot(
    machine: &Machine<'_>,
    entry: &Entry,
    suites: &[&str],
    patience: Instant,
) -> anyhow::Result<Booted> {
    let mut breaks = Vec::new();
    loop {
        let ran = machine.run()?;
        let mut verdict = verdict::judge(entry, suites, &ran.lines);
        let broken = Break::of(&ran, &verdict);
        let boots = breaks.len() + 1;
        if let Some(broken) = broken {
            let again = boots < BOOTS && Instant::now() < patience;
            let next = if again { "; it is booted again" } else { "" };
            println!("{}: {broken}{next}", entry.name);
            breaks.push(broken);
            if again {
                continue;
            }
            verdict = verdict::never_held(&breaks);
        }
        return Ok(Booted {
            verdict,
            took: ran.took,
            boots,
        });
    }
}

/// What became of one kernel.
struct Booted {
    verdict: Verdict,
    /// The last boot alone.
    took: Duration,
    boots: usize,
}

/// `VIRTLENS_CACHE`, or the usual place of a user's caches.
fn cache_dir() -> anyhow::Result<PathBuf> {
    let var = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    var("VIRTLENS_CACHE")
        .or_else(|| Some(var("XDG_CACHE_HOME")?.join("virtlens")))
        .or_else(|| Some(var("HOME")?.join(".cache/virtlens")))
        .context("neither VIRTLENS_CACHE nor HOME is set: where shall downloads be kept?")
}

fn chosen<'a>(catalogue: &'a Catalogue, names: &[String]) -> anyhow::Result<Vec<&'a Entry>> {
    if names.is_empty() {
        return Ok(catalogue.kernels.iter().collect());
    }
    names.iter().map(|name| catalogue.entry(name)).collect()
}

fn suites(catalogue: &Catalogue, cli: &Cli) -> anyhow::Result<Vec<Suite>> {
    for name in &cli.suites {
        let known = catalogue.suites.iter().any(|suite| suite.name == *name);
        anyhow::ensure!(known || name == "rig", "kernels.toml has no suite {name}");
    }
    let wanted = |name: &String| !cli.bare && (cli.suites.is_empty() || cli.suites.contains(name));
    let listed = catalogue.suites.iter().filter(|suite| wanted(&suite.name));
    let mut suites = listed
        .map(provision::build_suite)
        .collect::<anyhow::Result<Vec<_>>>()?;
    if let Some((first, args)) = cli.exec.split_first() {
        let (name, program) = first.split_once('=').context("--exec wants NAME=PATH")?;
        let program = std::fs::canonicalize(program).with_context(|| program.to_owned())?;
        let (name, args) = (name.to_owned(), args.to_vec());
        let directory = PathBuf::from("/");
        suites.push(Suite {
            name,
            program,
            directory,
            args,
            deadline_s: 300,
        });
    }
    Ok(suites)
}

fn list(catalogue: &Catalogue, workshop: &Workshop) {
    for entry in &catalogue.kernels {
        let cached = workshop
            .cached(entry)
            .unwrap_or_else(|| "not fetched".to_owned());
        println!("{:<14} {:<20} {cached}", entry.name, entry.suite);
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
        "\n{:<14} {:<24} {:>4} {:>4} {:>6} {:>7} {:>5}",
        "kernel", "release", "ok", "skip", "failed", "seconds", "boots"
    );
    for row in rows {
        println!(
            "{:<14} {:<24} {:>4} {:>4} {:>6} {:>7.1} {:>5}",
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
    }
}
