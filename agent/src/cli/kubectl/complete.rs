//! Completion of `kubectl virtlens`: kubectl runs `kubectl_complete-virtlens` with the
//! arguments, of which the last one is to be completed, and reads one candidate per line, and
//! then a directive (`pluginCompletion`, `pkg/cmd/plugin/plugin_completion.go` of kubectl 0.36).

use std::process::ExitCode;

use clap::CommandFactory as _;
use virtlens_kube::Fleet;

use super::args::{ClusterArgs, Kubectl};
use super::target::access;
use crate::cli::stdout::print;

/// cobra's directive `ShellCompDirectiveNoFileComp`: candidates are not files.
const NO_FILES: &str = ":4\n";

/// Prints the candidates for the last argument of the process.
pub(crate) fn complete() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut text: String = candidates(&args)
        .into_iter()
        .map(|one| one + "\n")
        .collect();
    text.push_str(NO_FILES);
    // A completion that fails shows nothing.
    print(&text).unwrap_or(ExitCode::FAILURE)
}

fn candidates(args: &[String]) -> Vec<String> {
    let Some((word, before)) = args.split_last() else {
        return Vec::new();
    };
    let kubectl = Kubectl::command();
    let command = before.iter().find_map(|arg| kubectl.find_subcommand(arg));
    let starts = |name: &str| name.starts_with(word.as_str());
    let described = |name: &str, help: Option<&clap::builder::StyledStr>| {
        let help = help.map(ToString::to_string).unwrap_or_default();
        format!("{name}\t{help}")
    };
    let from_cluster = |list: &dyn Fn(&Fleet) -> Vec<String>| {
        let names = fleet(before).as_ref().map(list).unwrap_or_default();
        names.into_iter().filter(|name| starts(name)).collect()
    };
    let option = before.last().map(String::as_str);
    if let Some("-n" | "--namespace" | "--agents-namespace") = option {
        return from_cluster(&|fleet| fleet.namespaces().unwrap_or_default());
    }
    if word.starts_with('-') {
        let all = kubectl.get_arguments();
        let all = all.chain(command.into_iter().flat_map(clap::Command::get_arguments));
        let named = all.filter_map(|arg| Some((format!("--{}", arg.get_long()?), arg.get_help())));
        let fitting = named.filter(|(name, _)| starts(name));
        return fitting.map(|(name, help)| described(&name, help)).collect();
    }
    if command.is_none() {
        let commands = kubectl
            .get_subcommands()
            .filter(|one| starts(one.get_name()));
        return commands
            .map(|one| described(one.get_name(), one.get_about()))
            .collect();
    }
    from_cluster(&|fleet| {
        let namespace = value(before, &["-n", "--namespace"]);
        let namespace = namespace.unwrap_or_else(|| fleet.namespace().to_owned());
        fleet.pods(&namespace).unwrap_or_default()
    })
}

/// The cluster of the arguments so far.
fn fleet(before: &[String]) -> Option<Fleet> {
    let args = ClusterArgs {
        kubeconfig: value(before, &["--kubeconfig"]).map(Into::into),
        context: value(before, &["--context"]),
        ..ClusterArgs::default()
    };
    Fleet::open(access(&args).ok()?).ok()
}

/// The value of an option with one of the names.
fn value(args: &[String], names: &[&str]) -> Option<String> {
    let pairs = args.iter().zip(args.iter().skip(1));
    let mut pairs = pairs.filter(|(name, _)| names.contains(&name.as_str()));
    let separate = pairs.next_back().map(|(_, value)| value.clone());
    separate.or_else(|| {
        let mut joined = args.iter().rev().filter_map(|arg| arg.split_once('='));
        let joined = joined.find(|(name, _)| names.contains(name));
        joined.map(|(_, value)| value.to_owned())
    })
}
