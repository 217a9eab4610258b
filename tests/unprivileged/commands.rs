//! Commands in the pages for users: each names a program, flags and files that exist.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use virtlens::cli::reference;
use virtlens_tests::page_commands::{Words, all_commands, commands, commands_of};
use virtlens_tests::pages::{Block, root};
use virtlens_tests::{binary, need};

use crate::chart::KUBERNETES;
use crate::packages::packages;

/// Other programs, with the reason why no test here runs them. Paths in their arguments are
/// checked.
const OTHERS: [(&str, &str); 8] = [
    ("ctr", "the suite `cluster` imports the image with it"),
    ("curl", "the agent's tests of the API send these requests"),
    ("docker", "needs its daemon"),
    ("echo", "sets a parameter of the kernel"),
    (
        "install",
        "installs the systemd unit, which another test checks",
    ),
    ("journalctl", "needs systemd as the host's init"),
    ("skopeo", "needs a registry"),
    ("systemctl", "needs systemd as the host's init"),
];

/// Commands of kubectl. The suite `cluster` runs them; this suite has no kubectl.
const KUBECTL: [&str; 10] = [
    "apply", "auth", "create", "delete", "describe", "exec", "get", "label", "logs", "set",
];

/// Flags of kubectl that have a value.
const KUBECTL_VALUES: [&str; 5] = [
    "--as",
    "--field-selector",
    "--filename",
    "--namespace",
    "-o",
];

/// Flags of kubectl that have none.
const KUBECTL_SWITCHES: [&str; 5] = [
    "--all-namespaces",
    "--previous",
    "--server-side",
    "--show-labels",
    "-A",
];

/// Checks a command; `Err` with the reason against it.
fn check(words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (&program, arguments) = words.split_first().expect("a command has words");
    arguments.iter().try_for_each(|word| check_names(word))?;
    match program {
        "cargo" => cargo(arguments),
        // Another test runs these.
        "helm" => Ok(()),
        "kubectl" => kubectl(arguments),
        "make" => arguments.iter().try_for_each(|word| make(word)),
        "virtlens" => reference::check(words),
        _ if program.starts_with("scripts/") => script(program, arguments),
        _ if OTHERS.iter().any(|(name, _)| *name == program) => Ok(()),
        _ => Err("unknown program; its class or its reason is missing here".to_owned()),
    }
}

/// Paths of the repository exist, and versions are current.
fn check_names(word: &str) -> Result<(), String> {
    let path = word.rsplit('=').next().unwrap_or(word);
    let folders = ["benches/", "deploy/", "docs/", "tests/"];
    if folders.iter().any(|folder| path.starts_with(folder)) && !root().join(path).exists() {
        return Err(format!("there is no {path}"));
    }
    let version = ["virtlens-", "virtlens:"].iter().find_map(|name| {
        let (_, version) = word.split_once(name)?;
        version
            .starts_with(|char: char| char.is_ascii_digit())
            .then_some(version)
    });
    match version {
        Some(other) if !other.starts_with(env!("CARGO_PKG_VERSION")) => Err(format!(
            "{word} is not of version {}",
            env!("CARGO_PKG_VERSION")
        )),
        _ => Ok(()),
    }
}

/// A target of the Makefile, or a variable that it mentions.
fn make(word: &str) -> Result<(), String> {
    let text = fs::read_to_string(root().join("Makefile")).expect("it is there");
    let is_known = match word.split_once('=') {
        Some((variable, _)) => {
            text.contains(&format!("{variable}=")) || text.contains(&format!("({variable})"))
        }
        None => text
            .lines()
            .any(|line| line.starts_with(&format!("{word}: "))),
    };
    is_known
        .then_some(())
        .ok_or_else(|| format!("the Makefile has no {word}"))
}

/// A program in scripts/, whose text contains its flags.
fn script(program: &str, arguments: &[&str]) -> Result<(), String> {
    let file = root().join(program);
    let mode = fs::metadata(&file).map(|file| file.permissions().mode());
    if !mode.is_ok_and(|mode| mode & 0o111 != 0) {
        return Err("there is no such program".to_owned());
    }
    let text = fs::read_to_string(file).expect("it is a text");
    let unknown = arguments
        .iter()
        .find(|word| word.starts_with('-') && !text.contains(**word));
    unknown.map_or(Ok(()), |flag| Err(format!("it has no {flag}")))
}

/// Packages and their targets exist. Flags after `--` are for the program that cargo runs.
fn cargo(arguments: &[&str]) -> Result<(), String> {
    let end = arguments.iter().position(|word| *word == "--");
    let (own, of_program) = arguments.split_at(end.unwrap_or(arguments.len()));
    let value = |names: &[&str]| {
        let at = own.iter().position(|word| names.contains(word))?;
        own.get(at + 1).copied()
    };
    let Some(name) = value(&["-p", "--package"]) else {
        return Ok(());
    };
    let packages = packages();
    let package = packages.iter().find(|package| package["name"] == name);
    let package = package.ok_or_else(|| format!("there is no package {name}"))?;
    if let Some(target) = value(&["--test", "--bench", "--example"]) {
        let mut targets = package["targets"].as_array().into_iter().flatten();
        if !targets.any(|one| one["name"] == target) {
            return Err(format!("{name} has no {target}"));
        }
    }
    if name == "virtlens-vmtest" {
        return vmtest(of_program);
    }
    Ok(())
}

/// Flags of the program that boots machines; those after `--exec` are for another program.
fn vmtest(arguments: &[&str]) -> Result<(), String> {
    let help = Command::new(binary("vmtest")).arg("--help").output();
    let help = String::from_utf8(help.expect("it starts").stdout).expect("text");
    let own = arguments
        .iter()
        .skip(1)
        .take_while(|word| **word != "--exec");
    let mut flags = own.filter(|word| word.starts_with('-'));
    let unknown = flags
        .find(|flag| !help.contains(&format!("{flag} ")) && !help.contains(&format!("{flag}\n")));
    unknown.map_or(Ok(()), |flag| Err(format!("it has no {flag}")))
}

/// A known command with known flags, and the command that it runs in a container.
fn kubectl(arguments: &[&str]) -> Result<(), String> {
    let end = arguments.iter().position(|word| *word == "--");
    let (own, inner) = arguments.split_at(end.unwrap_or(arguments.len()));
    let mut own = own.iter();
    let mut commands = Vec::new();
    while let Some(&word) = own.next() {
        if KUBECTL_VALUES.contains(&word) {
            own.next().ok_or_else(|| format!("{word} has no value"))?;
        } else if !word.starts_with('-') {
            commands.push(word);
        } else if !KUBECTL_SWITCHES.contains(&word) {
            return Err(format!("unknown flag {word}"));
        }
    }
    match commands.first() {
        Some(command) if KUBECTL.contains(command) => {}
        other => return Err(format!("unknown command {other:?}")),
    }
    match inner {
        [_, command @ ..] => check(&command.iter().map(ToString::to_string).collect::<Words>()),
        [] => Ok(()),
    }
}

#[test]
fn every_command_in_the_docs_exists() {
    let (commands, mut wrong) = all_commands();
    for (page, words) in &commands {
        if let Err(reason) = check(words) {
            wrong.push(format!("{page}: {}: {reason}", words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let programs: BTreeSet<&str> = commands
        .iter()
        .map(|(_, words)| words[0].as_str())
        .collect();
    for expected in OTHERS
        .map(|(name, _)| name)
        .iter()
        .chain(&["helm", "kubectl", "virtlens"])
    {
        assert!(programs.contains(expected), "no page uses {expected}");
    }
}

/// An installation is rendered; of all other commands helm parses the flags.
#[test]
fn every_helm_command_in_the_docs_is_accepted_by_helm() {
    if !need::all("every_helm_command", [need::helm()]) {
        return;
    }
    let (commands, _) = all_commands();
    let mut rendered = 0;
    for (page, words) in commands.iter().filter(|(_, words)| words[0] == "helm") {
        let mut words = words.clone();
        if words[1] == "install" {
            "template".clone_into(&mut words[1]);
            words.extend(["--kube-version", KUBERNETES].map(str::to_owned));
            rendered += 1;
        } else {
            words.push("--help".to_owned());
        }
        let helm = Command::new("helm")
            .args(&words[1..])
            .current_dir(root())
            .output();
        let output = helm.expect("it starts");
        assert!(output.status.success(), "{page}: {words:?}: {output:?}");
    }
    assert!(rendered > 0, "no page installs the chart");
}

#[test]
fn unknown_flag_target_file_and_program_are_refused() {
    let verdict = |line: &str| {
        let commands = commands(line).expect("quotes are balanced");
        commands.iter().try_for_each(|words| check(words))
    };
    for right in [
        "virtlens snapshot --interval 5s -o json    # rates",
        "VIRTLENS_LISTEN=:1 virtlens run",
        "make release && make fuzz TARGET=stat",
        "scripts/deny --fetch",
        "kubectl exec daemonset/virtlens -- virtlens check",
        "cargo bench -p virtlens-benches --bench agent",
        "install -m 644 deploy/systemd/virtlens.service /etc/systemd/system/",
    ] {
        assert_eq!(verdict(right), Ok(()), "{right}");
    }
    for wrong in [
        "virtlens snapshot --every 5s",
        "virtlens run && virtlens trace",
        "make relase",
        "make fuzz GOAL=stat",
        "scripts/denied",
        "scripts/deny --download",
        "kubectl exec daemonset/virtlens -- virtlens chek",
        "kubectl apply --force --filename deploy/manifests/virtlens.yaml",
        "kubectl apply --filename deploy/manifests/agent.yaml",
        "cargo bench -p virtlens-bench",
        "cargo bench -p virtlens-benches --bench agents",
        "docker load --input target/virtlens-0.0.9-image.tar",
        "podman load",
    ] {
        assert!(verdict(wrong).is_err(), "{wrong}");
    }
    for language in ["", "bash"] {
        let (language, text) = (language.to_owned(), "make run\n".to_owned());
        assert!(commands_of(&Block { language, text }).is_err());
    }
}
