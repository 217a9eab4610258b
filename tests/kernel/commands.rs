//! The programs that each command loads.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_probe::plan::{Feature, Plan, plan};
use virtlens_tests::{Minivm, binary, reader};

/// The programs that a command has loaded, according to its log.
fn loaded(loader: Loader, args: &[&str]) -> BTreeSet<String> {
    let mut command = Command::new(binary("virtlens"));
    command.args(args).args(["--loader", loader.name()]);
    command.args(["--log-level", "debug", "--log-format", "logfmt"]);
    // Without a terminal.
    command.stdin(Stdio::null());
    let done = command.output().expect("virtlens can be started");
    let log = String::from_utf8_lossy(&done.stderr);
    let mut lines = log
        .lines()
        .filter(|line| line.contains("loaded BPF programs"));
    let line = lines.next().unwrap_or_else(|| panic!("{args:?}: {log}"));
    assert_eq!(lines.next(), None, "{args:?}: loaded once");
    let mut words = line.split_ascii_whitespace();
    let names = words.find_map(|word| word.strip_prefix("programs="));
    let names = names.unwrap_or_else(|| panic!("{line}")).trim_matches('"');
    names.split(',').map(str::to_owned).collect()
}

fn programs(plan: &Plan, features: &[Feature]) -> BTreeSet<String> {
    let plan = plan.clone().limited_to(features);
    plan.programs().map(str::to_owned).collect()
}

#[test]
fn command_loads_only_programs_that_it_shows() {
    let test = "command_loads_only_programs_that_it_shows";
    if !reader::ready(test) {
        return;
    }
    let guest = Minivm::start(["--vcpus", "1"]);
    let pid = guest.pid().to_string();
    let of_table = [Feature::TaskPass, Feature::FilePass];
    let of_ended = [Feature::Lifetime, Feature::Rename];
    let of_rates = [&of_table[..], &of_ended, &[Feature::Throttle]].concat();
    let of_topology = [&of_table[..], &[Feature::Placement]].concat();
    let of_trace = [&of_table[..], &of_ended, &[Feature::Memory]].concat();
    let commands: [(&[&str], &[Feature]); 8] = [
        (&["check"], &Feature::ALL),
        (&["snapshot"], &of_table),
        (&["snapshot", "--interval", "10ms"], &of_rates),
        (&["snapshot", "--output", "json"], &Feature::ALL),
        (&["top", "--interval", "100ms"], &of_rates),
        (&["topology", "--window", "10ms"], &of_topology),
        (&["doctor", "--for", "1s"], &Feature::ALL),
        (
            &["trace", &pid, "--for", "100ms", "--output", "-"],
            &of_trace,
        ),
    ];
    for loader in Loader::ALL {
        let mut plan = plan(&KernelFacts::probe(Path::new("/")).seen_by(*loader));
        plan.walks &= loader.lacks().is_none();
        for (args, features) in commands {
            let found = loaded(*loader, args);
            println!("{loader}: {args:?}: {found:?}");
            assert_eq!(found, programs(&plan, features), "{loader}: {args:?}");
        }
    }
}
