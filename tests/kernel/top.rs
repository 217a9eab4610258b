//! `virtlens top` in a real terminal: keys in, screen out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use virtlens_record::Recording;
use virtlens_tests::perfetto::{self, Trace};
use virtlens_tests::reader;
use virtlens_tests::{
    Minivm, TestCgroup, binary, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

use crate::api::Site;
use crate::recording::{first_capped, readings, recording_agent};

/// A private terminal, which is closed on drop.
struct Screen {
    socket: String,
}

impl Screen {
    fn start(directory: &Path, command: &str) -> Self {
        let screen = Self {
            socket: format!(
                "virtlens-test-{}-{}",
                std::process::id(),
                directory.display()
            )
            .replace('/', "-"),
        };
        let directory = directory.to_str().expect("a path of text");
        let size = ["-x", "80", "-y", "24"];
        let mut args = vec!["-f", "/dev/null", "new-session", "-d", "-c", directory];
        args.extend(size);
        args.push(command);
        screen.tmux(&args);
        screen
    }

    fn try_tmux(&self, args: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.args(["-u", "-L", &self.socket]).args(args);
        tmux.output().expect("tmux starts")
    }

    #[track_caller]
    fn tmux(&self, args: &[&str]) -> String {
        let output = self.try_tmux(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn press(&self, keys: &[&str]) {
        let mut args = vec!["send-keys"];
        args.extend(keys);
        self.tmux(&args);
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until `is` accepts the screen and returns it.
    fn wait(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        eventually(&format!("the screen to show {what}"), || {
            let text = self.text();
            is(&text).then_some(text)
        })
    }

    fn is_over(&self) -> bool {
        !self.try_tmux(&["has-session"]).status.success()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.try_tmux(&["kill-server"]));
    }
}

fn tmux() -> Result<(), need::Missing> {
    let found = Command::new("tmux").arg("-V").output().is_ok();
    need::that("tmux", found, "there is no program tmux")
}

/// The window is closed: the terminal is gone, and the program gets a signal.
#[test]
fn closed_terminal_ends_top() {
    let test = "closed_terminal_ends_top";
    if !reader::ready(test) || !need::all(test, [tmux()]) {
        return;
    }
    let directory = tempfile::tempdir().expect("there is room for a folder");
    let program = binary("virtlens");
    let program = program.to_str().expect("a path of text");
    for ignored in ["", "trap '' HUP; "] {
        let command = format!("{ignored}exec {program} top --interval 200ms");
        let screen = Screen::start(directory.path(), &command);
        screen.wait("its keys", |text| text.contains("q quit"));
        let pid = screen.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let process = Path::new("/proc").join(pid.trim());
        let name = std::fs::read_to_string(process.join("comm")).expect("it runs");
        assert_eq!(name.trim(), "virtlens");
        drop(screen);
        eventually("its end", || (!process.exists()).then_some(()));
    }
}

#[test]
fn session_shows_vms_and_handles_keys() {
    let test = "session_shows_vms_and_handles_keys";
    if !reader::ready(test) || !need::all(test, [tmux()]) {
        return;
    }
    let directory = tempfile::tempdir().expect("there is room for a folder");
    let busy = Minivm::start(["--vcpus", "1", "--start", "spin", "--name", "busy"]);
    let _calm = Minivm::start(["--vcpus", "2", "--name", "calm"]);
    let program = binary("virtlens");
    let program = program.to_str().expect("a path of text");
    let screen = Screen::start(directory.path(), &format!("{program} top --interval 200ms"));

    let list = screen.wait("a vCPU at work", |text| {
        text.contains("busy") && text.contains("1.0")
    });
    let line = |name: &str| list.lines().position(|line| line.contains(name));
    assert!(line("busy") < line("calm"), "the busiest first: {list}");
    assert_eq!(
        list.lines().next_back().map(|line| line.contains("q quit")),
        Some(true)
    );

    screen.press(&["Enter"]);
    screen.wait("the VM", |text| {
        text.contains("vCPU GUEST") && text.contains("FINDINGS")
    });
    screen.wait("its finding", |text| text.contains("! vcpus_saturated"));
    screen.press(&["Space"]);
    screen.wait("a pause", |text| text.contains("  paused"));
    screen.press(&["Left", "Left"]);
    let still = screen.wait("the past", |text| text.contains("paused, "));
    assert!(still.contains("vCPU GUEST"), "{still}");
    screen.press(&["Space"]);
    screen.wait("the present", |text| text.contains("  live"));

    screen.tmux(&["resize-window", "-x", "60", "-y", "12"]);
    screen.wait("a small screen", |text| {
        text.contains("busy") && text.lines().count() <= 12
    });
    screen.tmux(&["resize-window", "-x", "110", "-y", "30"]);
    screen.wait("a large one", |text| text.contains("FINDINGS"));
    drop(busy);
    screen.wait("its end", |text| text.contains("  ended"));

    screen.press(&["Escape"]);
    screen.press(&["/", "CALM", "Enter"]);
    let one = screen.wait("the list", |text| text.contains("filter: CALM"));
    assert!(one.contains("calm") && !one.contains("busy"), "{one}");
    screen.press(&["o"]);
    let saved = screen.wait("a file", |text| text.contains("saved "));
    let name = saved
        .split("saved ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let file = directory.path().join(name.expect("its name"));
    let json = std::fs::read(&file).expect("it is there");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["kind"], "Snapshot");

    // A trace runs alongside and is complete even if the view ends first.
    screen.press(&["t"]);
    screen.wait("a trace", |text| {
        text.contains("tracing calm for 10s into ")
    });
    let file = eventually("its file", || {
        trace_in(directory.path()).filter(|path| path.metadata().is_ok_and(|file| file.len() > 0))
    });
    screen.press(&["q"]);
    eventually("the end", || screen.is_over().then_some(()));
    if need::all("session_shows_vms_and_handles_keys", [perfetto::there()]) {
        assert!(!Trace::decode(&file).slices.is_empty());
    }
}

/// A key takes a trace on the node of the agent, which permits it to the user.
#[test]
fn agent_of_another_node_takes_a_trace() {
    let test = "agent_of_another_node_takes_a_trace";
    if !reader::ready(test) || !need::all(test, [tmux()]) {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let _vm = Minivm::start(["--vcpus", "1", "--start", "spin", "--name", "there"]);
    let site = Site::start();
    let password = folder.path().join("password");
    std::fs::write(&password, "secret").expect("there is room");
    let (program, address) = (binary("virtlens"), &site.agent.address);
    let (program, password) = (program.display(), password.display());
    let command = format!(
        "{program} top --interval 500ms --from http://{address} --user admin --password-file \
         {password}"
    );
    let screen = Screen::start(folder.path(), &command);
    screen.wait("the VM", |text| text.contains("there"));
    screen.press(&["t"]);
    screen.wait("a trace", |text| {
        text.contains("tracing there for 10s into ./there-")
    });
    // The view stays live.
    screen.press(&["Enter"]);
    screen.wait("the VM's screen", |text| text.contains("vCPU GUEST"));
    screen.wait("the end of the trace", |text| {
        text.contains("traced there: ./there-")
    });
    screen.press(&["q"]);
    eventually("the end", || screen.is_over().then_some(()));
    let file = trace_in(folder.path()).expect("the file");
    if need::all(test, [perfetto::there()]) {
        assert!(!Trace::decode(&file).slices.is_empty());
    }
}

/// The trace in a directory.
fn trace_in(directory: &Path) -> Option<PathBuf> {
    let names = std::fs::read_dir(directory).expect("the folder");
    let mut paths = names.flatten().map(|entry| entry.path());
    paths.find(|path| path.extension().is_some_and(|one| one == "pftrace"))
}

/// The onset of a limit in a recording: its time, and steps around it.
#[test]
fn recording_is_stepped_and_played_with_keys() {
    let test = "recording_is_stepped_and_played_with_keys";
    if !reader::ready(test) || !need::all(test, [tmux(), need::cpu_cgroup()]) {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let container = pod.child("vm");
    let launch = Minivm::launch().args(["--vcpus", "1", "--start", "spin", "--name", "web"]);
    let guest = Minivm::start_launch(launch.cgroup(&container));
    let agent = recording_agent(folder.path());
    eventually("a reading of the VM", || {
        (readings(folder.path(), guest.pid()).len() >= 2).then_some(())
    });
    pod.set_quota(Some(50_000), 100_000);
    let onset = eventually("the finding in the recording", || {
        let onset = first_capped(folder.path(), guest.pid())?;
        // At least one reading follows it.
        (times(folder.path()).pop()? > onset).then_some(onset)
    });
    drop(agent);
    let times = times(folder.path());
    let [first, last] = [times.first(), times.last()].map(|time| time.expect("it is there"));

    let program = binary("virtlens");
    let program = program.to_str().expect("a path of text");
    let command = format!("{program} top web --from {}", folder.path().display());
    let screen = Screen::start(folder.path(), &command);
    let end = screen.wait("the last reading", |text| {
        text.contains(&format!("{last}  paused")) && text.contains("! quota_capped")
    });
    println!("{end}");
    assert!(end.contains("█") && end.contains("▲"), "{end}");
    screen.press(&["{"]);
    screen.wait("the onset", |text| {
        text.contains(&format!("{onset}  paused")) && text.contains("! quota_capped")
    });
    screen.press(&["["]);
    let before = screen.wait("the reading before", |text| !text.contains(&onset));
    assert!(!before.contains("quota_capped"), "{before}");
    assert!(before.contains("vCPU GUEST"), "{before}");
    screen.press(&["]"]);
    screen.wait("the onset again", |text| {
        text.contains(&onset) && text.contains("! quota_capped")
    });
    screen.press(&["t"]);
    screen.wait("no trace", |text| text.contains("cannot trace"));

    screen.press(&["Home", "Space"]);
    screen.wait("it playing", |text| text.contains("  playing"));
    screen.wait("the onset while playing", |text| {
        text.contains(&format!("{onset}  playing"))
    });
    screen.press(&["Home", "Escape"]);
    let list = screen.wait("the start", |text| {
        text.contains(&format!("{first}  paused")) && text.contains("WORKER")
    });
    assert!(list.contains("web"), "{list}");
    screen.press(&["q"]);
    eventually("the end", || screen.is_over().then_some(()));

    // Without a terminal: the table of a reading.
    let mut table = Command::new(program);
    table.args(["top", "--from"]).arg(folder.path());
    let output = table.args(["--at", last]).output().expect("it starts");
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(table.contains("reading of 20"), "{table}");
    assert!(table.contains("cores used in the last "), "{table}");
    assert!(table.contains("web"), "{table}");

    let mut topology = Command::new(program);
    topology
        .args(["topology", "web", "--from"])
        .arg(folder.path());
    let output = topology.args(["--at", &onset]).output().expect("it starts");
    let tree = String::from_utf8(output.stdout).expect("text");
    assert!(tree.contains("reading of 20"), "{tree}");
    assert!(tree.contains("A0") && tree.contains("A  web:"), "{tree}");
}

/// The times of the readings of a recording, to the second.
fn times(folder: &Path) -> Vec<String> {
    let (recording, _) = Recording::open(folder).expect("it is there");
    let readings = recording.between(0..u64::MAX).filter_map(Result::ok);
    let times = readings.map(|one| one.snapshot.time);
    times.map(|time| format!("{}Z", &time[..19])).collect()
}

#[test]
fn signal_restores_terminal() {
    let test = "signal_restores_terminal";
    if !reader::ready(test) || !need::all(test, [tmux()]) {
        return;
    }
    let directory = tempfile::tempdir().expect("there is room for a folder");
    let program = binary("virtlens");
    let program = program.to_str().expect("a path of text");
    let script = directory.path().join("run");
    let commands = format!("{program} top --interval 10s\necho code $?\nstty -a\nsleep 60\n");
    std::fs::write(&script, commands).expect("there is room for it");
    let screen = Screen::start(directory.path(), "sh run");
    screen.wait("the list", |text| text.contains("q quit"));
    let pane = screen.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let shell = pane.trim();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
    let child = children.expect("it lives").trim().to_owned();
    let kill = Command::new("kill").args(["-TERM", &child]).status();
    assert!(kill.expect("it can be sent").success());
    let after = screen.wait("its end", |text| text.contains("code 0"));
    assert!(!after.contains("q quit"), "{after}");
    let after = screen.wait("the terminal", |text| text.contains("echo "));
    assert!(
        after.contains(" icanon") && !after.contains("-icanon"),
        "{after}"
    );
}

#[test]
fn top_without_terminal_prints_one_table() {
    if !reader::ready("top_without_terminal_prints_one_table") {
        return;
    }
    let _guest = Minivm::start(["--vcpus", "1", "--start", "spin", "--name", "piped"]);
    let run = |args: &[&str]| {
        let mut command = Command::new(binary("virtlens"));
        command.arg("top").args(args).output().expect("it starts")
    };
    let output = run(&["piped", "--interval", "500ms"]);
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(table.contains("cores used in the last 0.5 s"), "{table}");
    assert!(
        table.contains("piped") && !table.contains('\x1b'),
        "{table}"
    );
    let output = run(&["pipes"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(
        error.contains("VM pipes not found; the nearest name is piped"),
        "{error}"
    );
    assert_eq!(run(&["--interval", "1ms"]).status.code(), Some(2));
}
