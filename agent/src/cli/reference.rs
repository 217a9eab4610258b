//! The command line and the settings as pages of the documentation, made of the texts that
//! `--help` prints.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _, Parser as _};
use virtlens_model::judge::findings::Bounds;

use super::Cli;

/// The help of the program and of every command, as `docs/cli.md`.
pub fn commands() -> String {
    let mut out = String::from(
        "# Command line\n\n\
         `make generate` writes this page from the texts of `--help`. [Commands](commands.md)\n\
         shows the output of each command. Every command also accepts the common options.\n",
    );
    let program = Cli::command();
    help(&mut out, &program, "virtlens");
    subcommands(&mut out, &program, "virtlens");
    let plugin = super::kubectl::command();
    help(&mut out, &plugin, "kubectl virtlens");
    subcommands(&mut out, &plugin, "kubectl virtlens");
    out
}

fn subcommands(out: &mut String, program: &Command, name: &str) {
    for command in program.get_subcommands() {
        let name = format!("{name} {}", command.get_name());
        help(out, command, &name);
        subcommands(out, command, &name);
    }
}

/// The options of a command that is not built yet do not include the common options of its
/// parent.
fn help(out: &mut String, command: &Command, name: &str) {
    let mut command = command.clone().term_width(80).bin_name(name);
    let text = command.render_long_help().to_string();
    let lines: Vec<_> = text.trim_end().lines().map(str::trim_end).collect();
    let text = lines.join("\n");
    write!(out, "\n## {name}\n\n```text\n{text}\n```\n").expect("a String takes everything");
}

/// A key of the configuration file, which has an option of the same name.
struct Setting {
    key: String,
    kind: &'static str,
    /// A value, or a description of one that depends on the host.
    default: Option<String>,
    meaning: String,
}

impl Setting {
    /// `None` for options that are not settings: their help names no variable, or that of
    /// the configuration file.
    fn of(option: &Arg) -> Option<Self> {
        let key = option.get_id().to_string();
        let text = option.get_help()?.to_string();
        let (text, variables) = text.split_once(" [env: ")?;
        if key == "config" {
            return None;
        }
        let (meaning, default) = match text.split_once(" [default: ") {
            Some((meaning, default)) => (meaning, Some(default.trim_end_matches(']'))),
            None => (text, (kind(option) == SWITCH).then_some("false")),
        };
        let mut meaning = meaning.trim_end_matches('.').to_owned();
        if let Some((_, also)) = variables.trim_end_matches(']').split_once(", ") {
            write!(meaning, "; the variable {also} is also read").expect("a String takes it");
        }
        Some(Self {
            key,
            kind: kind(option),
            default: default.map(str::to_owned),
            meaning,
        })
    }
}

/// Type of an option without a value.
const SWITCH: &str = "true or false";

/// Type of a setting, from the name of the option's value.
fn kind(option: &Arg) -> &'static str {
    if !option.get_action().takes_values() {
        return SWITCH;
    }
    let names = option.get_value_names().unwrap_or_default();
    match names.first().map_or("", |name| name.as_str()) {
        "ADDRESS:PORT" => "address",
        "DIR" | "FILE" => "path",
        "TIME" => "duration",
        "URL" => "URL",
        "NAME" | "NAMES" => "text",
        _ => "word",
    }
}

fn all_settings() -> Vec<Setting> {
    let program = Cli::command();
    let run = program.find_subcommand("run").expect("there is an agent");
    let options = run.get_arguments().chain(program.get_arguments());
    options.filter_map(Setting::of).collect()
}

/// All keys of the configuration file and all thresholds, as `docs/settings.md`.
pub fn settings() -> String {
    let mut out = String::from(
        "# Settings\n\n\
         `make generate` writes this page from the options and thresholds of the program.\n\
         [Configuration](configuration.md) explains where settings are made.\n\n\
         The setting `min_age` is the key `min_age` of the configuration file, the variable\n\
         `VIRTLENS_MIN_AGE` and the option `--min-age`, and so on.\n\n\
         | Key | Type | Default | Meaning |\n|---|---|---|---|\n",
    );
    for setting in all_settings() {
        let Setting {
            key,
            kind,
            default,
            meaning,
        } = setting;
        let default = match default {
            Some(value) if value.contains(' ') => value,
            Some(value) => format!("`{value}`"),
            None => "unset".to_owned(),
        };
        writeln!(out, "| `{key}` | {kind} | {default} | {meaning}. |")
            .expect("a String takes everything");
    }
    out.push_str(
        "| `thresholds` | mapping | see below | Thresholds of the checks; only in the file. |\n\n\
         | Type | Values |\n|---|---|\n\
         | address | `:PORT`, or an IP address and a port: `127.0.0.1:9877`, `[::1]:9877` |\n\
         | duration | a whole number with a unit: `500ms`, `1s`, `2m`, `1h` |\n\
         | path | path of a file or a directory |\n\
         | word | one of the words in the meaning |\n\
         | true or false | in the file and the variable; the option has no value and means true |\n\n\
         ## Thresholds\n\n\
         Each is a number above 0. [Commands](commands.md#doctor) explains the checks.\n\n\
         | Threshold | Default | As printed | Meaning |\n|---|---|---|---|\n",
    );
    for bound in Bounds::TABLE {
        let (name, value, meaning) = (bound.name, bound.default, bound.meaning);
        writeln!(
            out,
            "| `{name}` | `{value}` | {} | {meaning}. |",
            bound.show(value)
        )
        .expect("a String takes everything");
    }
    out
}

/// Checks arguments of the program, its name first, without running anything.
///
/// # Errors
///
/// If the program refuses them, with the first line of clap's message.
pub fn check<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    match Cli::try_parse_from(arguments) {
        Err(error) if error.use_stderr() => {
            let message = error.to_string();
            Err(message.lines().next().unwrap_or_default().to_owned())
        }
        // Help and version are errors to clap.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{all_settings, check};
    use crate::config::{Config, Settings};

    /// All keys but `thresholds`, as the error for an unknown key lists them.
    #[test]
    fn every_key_of_the_file_is_listed_once() {
        let error = Settings::from_yaml("0: 1\n").expect_err("an unknown key");
        let (_, keys) = error.split_once("keys: ").expect("the known keys");
        let keys = keys.split(" at line").next().unwrap_or_default();
        let mut keys: BTreeSet<_> = keys.split(", ").map(str::to_owned).collect();
        assert!(keys.remove("thresholds"), "{keys:?}");
        let listed: Vec<_> = all_settings().into_iter().map(|one| one.key).collect();
        assert_eq!(listed.len(), keys.len(), "{listed:?}");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), keys);
    }

    /// Defaults of more than one word describe a value that depends on the host.
    #[test]
    fn listed_default_is_the_default() {
        let default = Config::from(Settings::default());
        let mut compared = BTreeSet::new();
        for setting in all_settings() {
            let Some(value) = setting.default.filter(|value| !value.contains(' ')) else {
                continue;
            };
            let name = format!("VIRTLENS_{}", setting.key.to_uppercase());
            let settings = Settings::from_env(|one| (one == name).then(|| value.clone()));
            let settings = settings.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_ne!(settings, Settings::default(), "{name}={value}");
            assert_eq!(Config::from(settings), default, "{name}={value}");
            compared.insert(setting.key);
        }
        let least = ["linger", "listen", "log_format", "min_age", "web_auth"];
        assert!(
            least.iter().all(|key| compared.contains(*key)),
            "{compared:?}"
        );
    }

    #[test]
    fn unknown_flag_and_command_are_refused() {
        assert_eq!(
            check(["virtlens", "top", "web", "--interval", "1s"]),
            Ok(())
        );
        assert_eq!(check(["virtlens", "--help"]), Ok(()));
        for wrong in [
            &["virtlens", "top", "--intervall", "1s"][..],
            &["virtlens", "toop"],
            &["virtlens", "trace"],
            &["virtlens", "top", "--interval", "soon"],
        ] {
            assert!(check(wrong.iter().copied()).is_err(), "{wrong:?}");
        }
    }
}
