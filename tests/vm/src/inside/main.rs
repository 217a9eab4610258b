//! `vmtest-inside`: starts the pods in the VM under test, checks them, runs the suites
//! and reports.
//!
//! With `--order "start LOAD"` it is the control socket's client, for a shell in the VM.

#![forbid(unsafe_code)]

mod cgroup;
mod checks;
mod control;
mod heartbeat;
mod kmsg;
mod loads;
mod pod;
mod procfs;
mod suites;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use virtlens_vmtest::plan::{PLAN_PATH, Plan, Pods, Stage};
use virtlens_vmtest::report::{CONTROL, Line, Outcome};
use virtlens_vmtest::scenario::{DEAD_POD, SCENARIO_PATH, Scenario};

use crate::checks::{Checks, check};
use crate::kmsg::KernelLog;
use crate::loads::Loads;
use crate::pod::{Running, TAP};

/// The pod's quota per 100 ms, below the use of its vCPUs and helpers.
pub(crate) const QUOTA_US: u32 = 150_000;

/// Patience for the boot of a guest kernel, which takes about 15 s under two layers of
/// emulation.
const GUEST_PATIENCE: Duration = Duration::from_secs(75);

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(&Plan::read(Path::new(PLAN_PATH))?),
        ["--order", order] => Scenario::read()?.order(order),
        _ => bail!("usage: vmtest-inside [--order \"start|stop LOAD\"]"),
    }
}

fn run(plan: &Plan) -> anyhow::Result<()> {
    // Programs in the VM use the hostname as the name of the node.
    Command::new("/run/busybox")
        .args(["hostname", &plan.kernel])
        .status()?;
    if !plan.shell {
        heartbeat::start()?;
    }
    let mut log = KernelLog::open()?;
    checks::features();
    let mut staged = stage(plan);
    log.report("rig");
    println!("{}", Line::Done("rig".to_owned()));
    if plan.shell {
        shell()?;
    } else {
        for suite in &plan.suites {
            suites::run(suite, plan, &mut log);
            if let Some(staged) = &mut staged {
                staged.report_dead(&suite.name);
            }
        }
        if let Some(seconds) = plan.control_s {
            let length = Duration::from_secs(seconds);
            control::run(plan, staged.as_ref().map(|staged| &staged.loads), length);
            if let Some(staged) = &mut staged {
                staged.report_dead(CONTROL);
            }
        }
    }
    println!("{}", Line::End);
    if let Some(staged) = staged {
        staged.pods.into_iter().for_each(|(_, pod)| pod.stop());
    }
    Ok(())
}

/// Starts the planned pods, and reports the result.
fn stage(plan: &Plan) -> Option<Staged> {
    let stage = match &plan.pods {
        Pods::Start(stage) => stage,
        Pods::Impossible => {
            report_no_pods();
            return None;
        }
        Pods::Files(_) | Pods::Unwanted => return None,
    };
    match Staged::start(plan, stage) {
        Ok(staged) => {
            if !plan.shell {
                staged.check();
            }
            Some(staged)
        }
        Err(error) => {
            check("pods_start", || bail!("{error:#}"));
            dump_logs();
            None
        }
    }
}

/// The running pods and the control of their loads.
struct Staged {
    pods: Vec<(&'static str, Running)>,
    loads: Arc<Mutex<Loads>>,
}

impl Staged {
    fn start(plan: &Plan, stage: &Stage) -> anyhow::Result<Self> {
        let began = Instant::now();
        fs::create_dir_all("/run/scenario")?;
        let mut pods = Vec::new();
        for shape in pod::shapes() {
            let running = Running::start(&shape, stage)
                .with_context(|| format!("the pod {} does not start", shape.name))?;
            pods.push((shape.name, running));
        }
        let named = &mut pods[0].1;
        // QEMU has created the interface; the guest answers from the other end.
        let up = Command::new("/run/busybox")
            .args(["ifconfig", TAP.0, TAP.1, "up"])
            .status()?;
        ensure!(up.success(), "cannot bring up {}", TAP.0);
        let loads = Loads::connect(&named.dir.join("ctl.sock"), GUEST_PATIENCE)?;
        named.pod.loads = Loads::names();
        cgroup::set_quota(&named.pod.pod_cgroup, Some(QUOTA_US))?;

        let control = Path::new("/run/scenario/control.sock");
        let loads = Arc::new(Mutex::new(loads));
        loads::serve(&loads, control)?;
        let scenario = Scenario {
            kernel: plan.kernel.clone(),
            cgroup_root: cgroup::ROOT.into(),
            control: control.into(),
            pods: pods
                .iter()
                .map(|(name, run)| ((*name).to_owned(), run.pod.clone()))
                .collect(),
        };
        fs::write(SCENARIO_PATH, serde_json::to_vec_pretty(&scenario)?)?;
        println!(
            "the pods are up after {:.1} s",
            began.elapsed().as_secs_f64()
        );
        Ok(Self { pods, loads })
    }

    /// Reports a pod that ended during a suite, with its last output.
    fn report_dead(&mut self, suite: &str) {
        let dead: Vec<String> = self
            .pods
            .iter_mut()
            .flat_map(|(name, pod)| pod.dead().map(move |who| format!("{name}: {who}")))
            .collect();
        if dead.is_empty() {
            return;
        }
        dump_logs();
        let outcome = Outcome::Fail(format!("{DEAD_POD}: {}", dead.join(", ")));
        let name = format!("{suite}::pods_live");
        println!("{}", Line::Test { name, outcome });
    }

    fn check(&self) {
        let (named, plain) = (&self.pods[0].1.pod, &self.pods[1].1.pod);
        Checks {
            named,
            plain,
            loads: &self.loads,
        }
        .run();
    }
}

fn report_no_pods() {
    let outcome = Outcome::Skip("no KVM, as kernels.toml lists for this kernel".to_owned());
    println!(
        "{}",
        Line::Test {
            name: "rig::pods_start".to_owned(),
            outcome
        }
    );
}

/// Copies the output of the pods' processes to the console log.
fn dump_logs() {
    for shape in pod::shapes() {
        for log in ["virtiofsd.log", "qemu.log", "guest.log"] {
            let path = Path::new("/run/scenario").join(shape.name).join(log);
            for line in fs::read_to_string(path).unwrap_or_default().lines() {
                println!("{}/{log}| {line}", shape.name);
            }
        }
    }
}

fn shell() -> anyhow::Result<()> {
    println!("{SCENARIO_PATH} describes this machine; leave with exit or ctrl-a x");
    // A shell has job control only as a session leader.
    Command::new("/run/busybox")
        .args(["setsid", "-c", "/bin/bash", "-i"])
        .status()?;
    Ok(())
}
