//! The commands of the documentation, run as a reader would run them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use virtlens_model::snapshot::Snapshot;
use virtlens_record::{Incident, Incidents, Limits, Recorder};
use virtlens_tests::page_commands::{Words, all_commands};
use virtlens_tests::root::Root;
use virtlens_tests::{Minivm, binary, eventually, reader};

/// Time after which the agent and the page, which run until they are interrupted, are so.
const SHOWN: Duration = Duration::from_secs(1);

/// Commands at the same time, besides an agent. Most of them wait for a window of 10 s.
const AT_ONCE: usize = 4;

/// Exit codes of a command that did its work (docs/commands.md).
fn expected_codes(command: &str) -> &'static [i32] {
    match command {
        "check" => &[0, 1],
        "doctor" => &[0, 2],
        _ => &[0],
    }
}

/// The command of a page as a reader would type it: placeholders replaced, and the arguments
/// that a sentence leaves out added.
fn typed(mut words: Words, web_config: &str, records: &str, incident: &str) -> Words {
    // The list adds it to commands in sentences.
    words.retain(|word| word != "--help");
    for word in &mut words {
        match word.as_str() {
            "NAME" => "web".clone_into(word),
            "FILE" => web_config.clone_into(word),
            "DIR" => records.clone_into(word),
            "ID" => incident.clone_into(word),
            _ => {}
        }
    }
    let added: &[&str] = match words[1..].iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["completion"] => &["bash"],
        ["doctor"] | ["doctor", "-o", "json"] | ["trace", "web"] => &["--for", "1s"],
        ["trace"] => &["web", "--for", "1s"],
        ["run", ..] => &["--listen", "127.0.0.1:0"],
        ["record", "export"] | ["incidents"] | ["incidents", "show", _] => &["--from", records],
        _ => &[],
    };
    words.extend(added.iter().map(|word| (*word).to_owned()));
    words
}

/// Runs a command; `Err` with its output if it fails.
fn run(words: &Words, root: &Root) -> Result<(), String> {
    let mut command = Command::new(binary("virtlens"));
    command.args(&words[1..]);
    if words[1] != "completion" && words[1] != "metrics" {
        command.arg("--root").arg(root.path());
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let errors = folder.path().join("stderr");
    command.current_dir(folder.path()).stdin(Stdio::null());
    command.stdout(Stdio::null());
    command.stderr(File::create(&errors).expect("it can be made"));
    let mut child = command.spawn().expect("virtlens starts");
    let began = Instant::now();
    let mut is_interrupted = !["run", "ui"].contains(&&*words[1]);
    let status = eventually(&format!("the end of {words:?}"), || {
        if !is_interrupted && began.elapsed() > SHOWN {
            is_interrupted = kill_process(Pid::from_child(&child), Signal::INT).is_ok();
        }
        child.try_wait().expect("it is our child")
    });
    println!(
        "{words:?}: {status}, {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let is_expected = |code| expected_codes(&words[1]).contains(&code);
    if status.code().is_some_and(is_expected) {
        return Ok(());
    }
    let errors = fs::read_to_string(errors).expect("it writes UTF-8");
    Err(format!("{words:?}: {status}: {errors}"))
}

/// Records the present reading as one of each minute of the last half hour; returns the id of an
/// incident.
fn record_past(folder: &Path) -> String {
    let limits = Limits {
        max_bytes: 1 << 30,
        max_age: Duration::from_hours(1),
    };
    let mut recorder =
        Recorder::open(folder, limits, "node", "0.1.0", None).expect("the folder is new");
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let half_an_hour = Duration::from_mins(30);
    let start = since_1970
        .ok()
        .and_then(|time| time.checked_sub(half_an_hour));
    let start = start.expect("after 1970");
    let mut snapshot = Snapshot::clone(&reader::collector().collect());
    for minutes in 0..30 {
        let time = start + Duration::from_mins(minutes);
        snapshot.clock_ns += 60_000_000_000;
        let unix_ns = u64::try_from(time.as_nanos()).expect("before 2554");
        recorder.record(&snapshot, unix_ns).expect("there is room");
    }
    let vm = snapshot.vms.first().expect("the VM runs");
    let mut incident = Incident::new(vm, Vec::new(), "node", &snapshot.time, 0);
    let (mut incidents, _) = Incidents::open(folder, 1 << 30).expect("the folder is new");
    let segments = recorder.segments_since(0);
    let begun = incidents.begin(&mut incident, &segments);
    begun.expect("there is room");
    incident.id
}

#[test]
fn every_virtlens_command_of_the_docs_runs() {
    if !reader::ready("every_virtlens_command_of_the_docs_runs") {
        return;
    }
    let root = Root::with_bpffs();
    let _guest = Minivm::start(["--vcpus", "2", "--name", "web"]);
    let config = root.path().join("web.yaml");
    fs::write(&config, "http_server_config: {http2: true}\n").expect("it can be written");
    let config = config.display().to_string();
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let incident = record_past(folder.path());
    let records = folder.path().display().to_string();
    let (commands, _) = all_commands();
    let commands = commands.into_iter().map(|(_, words)| words);
    let commands = commands.filter(|words| words[0] == "virtlens");
    let commands: BTreeSet<Words> = commands
        .map(|words| typed(words, &config, &records, &incident))
        .collect();
    assert!(commands.len() > 20, "{commands:?}");
    // Only one agent at a time can use the pins of a host.
    let (agents, others): (Vec<_>, Vec<_>) = commands.iter().partition(|words| words[1] == "run");
    let next = Mutex::new(others.into_iter());
    let run_rest = || -> Vec<String> {
        let next = || next.lock().expect("no thread panicked").next();
        let failed = std::iter::from_fn(next).filter_map(|words| run(words, &root).err());
        failed.collect()
    };
    let failed: Vec<String> = thread::scope(|scope| {
        let others: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(run_rest)).collect();
        let agents = agents.iter().filter_map(|words| run(words, &root).err());
        let agents: Vec<String> = agents.collect();
        let others = others
            .into_iter()
            .flat_map(|one| one.join().expect("it ends"));
        agents.into_iter().chain(others).collect()
    });
    assert!(failed.is_empty(), "{failed:#?}");
}
