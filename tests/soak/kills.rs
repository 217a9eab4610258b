//! A thousand kills of an agent that records.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use virtlens_model::snapshot::Vm;
use virtlens_record::{Lost, Recorded, Recording, incidents};
use virtlens_tests::dice::Dice;
use virtlens_tests::http::ask;
use virtlens_tests::{
    Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, eventually, need, reader, unique_pod_uid,
};

/// Kills, unless `SOAK_KILLS` sets another number.
const KILLS: u64 = 1000;

/// Of this many kills one meets an agent that may not listen yet.
const EARLY_EVERY: u64 = 4;

/// An agent that is killed early is so within this time: with few VMs it loads, and begins to
/// record, in less.
const LOAD_MS: u64 = 1000;

/// Of this many kills one meets an agent that lives for [`INCIDENT_MS`].
const INCIDENT_EVERY: u64 = 200;

/// The agent judges after 10 s and then traces the VM for 5 s: about half of these kills meet a
/// trace.
const INCIDENT_MS: std::ops::Range<u64> = 10_000..20_000;

/// Longest time between the moment at which an agent listens and its end. Each of its
/// readings is recorded in less than a millisecond, so many kills meet one that is written.
const SCRAPED_MS: u64 = 200;

const PERIOD_US: u64 = 100_000;

#[test]
fn kills_of_a_recording_agent_lose_no_complete_reading() {
    let test = "kills_of_a_recording_agent_lose_no_complete_reading";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let kills = std::env::var("SOAK_KILLS");
    let kills = kills.map_or(KILLS, |text| text.parse().expect("SOAK_KILLS is a number"));
    let others = processes();
    let folder = tempfile::tempdir().expect("there is room");
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(PERIOD_US / 2), PERIOD_US);
    let launch = Minivm::launch().args(["--vcpus", "1", "--start", "spin"]);
    let guest = Minivm::start_launch(launch.cgroup(&pod));

    let mut dice = Dice::new();
    let mut kept = 0;
    for kill in 0..kills {
        let before = readings(folder.path());
        let sure = if kill % INCIDENT_EVERY == 0 {
            let length = INCIDENT_MS.end - INCIDENT_MS.start;
            die_scraped(folder.path(), INCIDENT_MS.start + dice.below(length))
        } else if kill % EARLY_EVERY == 0 {
            die_early(folder.path(), dice.below(LOAD_MS));
            0
        } else {
            die_scraped(folder.path(), dice.below(SCRAPED_MS))
        };
        let after = readings(folder.path());
        assert!(
            after >= before + sure,
            "kill {kill}: {after} readings, before {before}; the agent had recorded {sure}"
        );
        kept += sure;
        if kill % 100 == 99 {
            println!("after {} kills: {after} readings", kill + 1);
        }
    }
    println!("{kept} readings were known to be complete");
    assert!(kept > kills, "most agents record several readings");

    let agent = start(folder.path());
    let began = readings(folder.path());
    eventually("a reading behind all kills", || {
        (readings(folder.path()) > began).then_some(())
    });
    drop(agent);
    nothing_wrong(folder.path(), guest.pid(), kills);
    assert_eq!(processes(), others, "processes of agents that were killed");
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(binary("virtlens"));
    command.args(["run", "--listen", "127.0.0.1:0", "--no-pin"]);
    // Each scrape is a reading, and each reading is recorded.
    command.args(["--min-age", "0s", "--record-interval", "1s", "--record"]);
    command.arg(folder);
    command
}

fn start(folder: &Path) -> Agent {
    Agent::start(command(folder))
}

/// Starts an agent and kills it after this time.
fn die_early(folder: &Path, after_ms: u64) {
    let mut command = command(folder);
    let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
    sleep(Duration::from_millis(after_ms));
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
}

/// Starts an agent, scrapes it as fast as it answers, and kills it this long after it
/// listens; returns the number of readings that it had recorded by its last answer.
fn die_scraped(folder: &Path, after_ms: u64) -> u64 {
    let agent = start(folder);
    let address = agent.address.parse().expect("an address");
    let pid = Pid::from_raw(agent.pid().cast_signed()).expect("a pid");
    thread::scope(|scope| {
        scope.spawn(move || {
            sleep(Duration::from_millis(after_ms));
            // The agent is reaped later, so its pid is not reused.
            kill_process(pid, Signal::KILL).expect("it is our child");
        });
        let mut sure = 0;
        // The last answer fails, or is cut off.
        while let Ok(answer) = ask(address, "GET", "/metrics", "") {
            sure = kept(&answer).unwrap_or(sure);
        }
        sure
    })
}

/// Number of readings that the agent has recorded, according to a scrape.
fn kept(scrape: &str) -> Option<u64> {
    let name = "virtlens_recorded_readings_total{result=\"kept\"} ";
    let (value, _) = scrape.split_once(name)?.1.split_once('\n')?;
    value.parse().ok()
}

/// Number of complete readings.
fn readings(folder: &Path) -> u64 {
    let Ok((recording, refused)) = Recording::open(folder) else {
        // Killed before it made the directory.
        return 0;
    };
    assert!(refused.is_empty(), "{refused:?}");
    recording.marks().0.len() as u64
}

/// Reads all that was recorded, as a later version or another machine would.
fn nothing_wrong(folder: &Path, pid: u32, kills: u64) {
    let (recording, refused) = Recording::open(folder).expect("it is there");
    assert!(refused.is_empty(), "{refused:?}");
    let (mut count, mut cut_off, mut last) = (0, 0, (0, 0, 0));
    for reading in recording.between(0..u64::MAX) {
        let Recorded { unix_ns, snapshot } = match reading {
            Ok(reading) => reading,
            // The end of a segment that was being written.
            Err(Lost::Rest { .. }) => {
                cut_off += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        count += 1;
        let vm = snapshot.vms.iter().find(|vm| vm.pid == pid);
        let now = vm.map_or((unix_ns, last.1, last.2), |vm| of(vm, unix_ns));
        assert!(
            now.0 >= last.0 && now.1 >= last.1 && now.2 >= last.2,
            "time, CPU time, throttled periods: {now:?} after {last:?}"
        );
        assert!(vm.is_some(), "the VM at {}", snapshot.time);
        last = now;
    }
    println!("{count} readings, {cut_off} were being written");
    assert!(cut_off <= kills, "at most one for each kill");
    let (found, unreadable) = incidents(folder).expect("it is there");
    println!("{} incidents", found.len());
    assert!(!found.is_empty(), "the VM is at its limit");
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let ids: BTreeSet<&str> = found.iter().map(|one| &*one.id).collect();
    assert_eq!(ids.len(), found.len(), "{ids:?}");
}

/// Time, CPU time of its vCPU, and throttled periods.
fn of(vm: &Vm, unix_ns: u64) -> (u64, u64, u64) {
    let throttled = vm.quota.iter().map(|level| level.throttled_periods).sum();
    let vcpus_ns = vm.vcpus.iter().map(|vcpu| vcpu.cpu_ns).sum();
    (unix_ns, vcpus_ns, throttled)
}

/// Number of running processes of the agent.
fn processes() -> usize {
    let agent = binary("virtlens");
    let processes = fs::read_dir("/proc").expect("it is mounted").flatten();
    let is_agent = |process: &fs::DirEntry| {
        let program = fs::read_link(process.path().join("exe"));
        program.is_ok_and(|program| program == agent)
    };
    processes.filter(is_agent).count()
}
