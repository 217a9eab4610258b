//! A control run: the guests have the same load as under the suites, without an agent.
//!
//! If the machine breaks in it, the agent is not the cause.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread::{available_parallelism, scope, sleep};
use std::time::{Duration, Instant};

use anyhow::Context;
use virtlens_vmtest::plan::{Guest, Plan, Pods};
use virtlens_vmtest::report::{CONTROL, Line, Outcome};

use crate::loads::{Loads, lock};

/// Duration of one load, as under a suite.
const TURN: Duration = Duration::from_secs(5);

/// Puts load on the pods, or on guests of its own if there are no pods, and reports it.
pub(crate) fn run(plan: &Plan, loads: Option<&std::sync::Arc<Mutex<Loads>>>, length: Duration) {
    let until = Instant::now() + length;
    let ran = match (loads, &plan.topology_guest) {
        (Some(loads), _) => load_pods(loads, until),
        (None, Some(guest)) => boot_guests(&program(plan), guest, until),
        (None, None) => Err(anyhow::anyhow!("no guest to put load on")),
    };
    let outcome = ran.map_or_else(|why| Outcome::Fail(format!("{why:#}")), |()| Outcome::Ok);
    let name = format!("{CONTROL}::load");
    println!("{}", Line::Test { name, outcome });
    println!("{}", Line::Done(CONTROL.to_owned()));
}

/// Runs the loads one after another, as the suites do.
fn load_pods(loads: &Mutex<Loads>, until: Instant) -> anyhow::Result<()> {
    for load in Loads::names().iter().cycle() {
        if Instant::now() >= until {
            break;
        }
        lock(loads).order(&format!("start {load}"))?;
        sleep(TURN.min(until.saturating_duration_since(Instant::now())));
        lock(loads).order(&format!("stop {load}"))?;
    }
    Ok(())
}

/// Boots Linux guests repeatedly, one for every two CPUs.
fn boot_guests(program: &Path, guest: &Guest, until: Instant) -> anyhow::Result<()> {
    let cpus = available_parallelism().context("no CPUs")?.get();
    scope(|scope| {
        let lane = || {
            while Instant::now() < until {
                boot_guest(program, guest)?;
            }
            Ok(())
        };
        let lanes: Vec<_> = (0..cpus.div_ceil(2)).map(|_| scope.spawn(lane)).collect();
        let mut ends = lanes.into_iter().map(|lane| lane.join().expect("no panic"));
        ends.try_for_each(|end| end)
    })
}

/// Boots a guest until its last line.
fn boot_guest(program: &Path, guest: &Guest) -> anyhow::Result<()> {
    let mut child = Command::new(program)
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-accel", "kvm", "-cpu", "max", "-m", "96"])
        .arg("-kernel")
        .arg(&guest.kernel)
        .arg("-initrd")
        .arg(&guest.initrd)
        .args([
            "-append",
            "console=ttyS0 quiet panic=-1",
            "-serial",
            "stdio",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    // A guest that hangs keeps this from ending: the runner then treats the machine as
    // broken.
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let is_up = lines.any(|line| line.trim() == "END");
    child.kill()?;
    child.wait()?;
    anyhow::ensure!(is_up, "a guest ended before it was up");
    Ok(())
}

fn program(plan: &Plan) -> PathBuf {
    match &plan.pods {
        Pods::Start(stage) | Pods::Files(stage) => stage.qemu.clone(),
        Pods::Impossible | Pods::Unwanted => {
            let mut dirs = std::env::split_paths(&plan.path);
            let found = dirs.find_map(|dir| {
                let file = dir.join("qemu-system-x86_64");
                file.exists().then_some(file)
            });
            found.unwrap_or_else(|| "qemu-system-x86_64".into())
        }
    }
}
