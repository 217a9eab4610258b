//! Commands in the pages for users.

use std::path::Path;

use crate::pages::{Block, pages};

/// Languages of code blocks. `sh` contains commands, `console` also their output.
const LANGUAGES: [&str; 7] = ["console", "json", "promql", "sh", "text", "xml", "yaml"];

/// Programs whose commands in sentences are checked, too, if they have arguments.
const PROGRAMS: [&str; 5] = ["cargo", "helm", "kubectl", "make", "virtlens"];

/// A command as words.
pub type Words = Vec<String>;

/// Commands of a shell script, without assignments to variables before them.
///
/// # Errors
/// Quotes are unbalanced.
pub fn commands(script: &str) -> Result<Vec<Words>, String> {
    let mut commands = Vec::new();
    for line in script.replace("\\\n", " ").lines() {
        let words = shlex::split(line).ok_or_else(|| format!("unbalanced quotes: {line}"))?;
        let parts = words.split(|word| ["&&", "|", ";"].contains(&word.as_str()));
        let is_assignment = |word: &&String| {
            let name = word.split_once('=').map_or("", |(name, _)| name);
            !name.is_empty() && name.chars().all(|char| char.is_uppercase() || char == '_')
        };
        let commands_of_line = parts.map(|part| part.iter().skip_while(is_assignment).cloned());
        commands.extend(commands_of_line.map(Iterator::collect::<Words>));
    }
    commands.retain(|words| !words.is_empty());
    Ok(commands)
}

/// Commands in a code block.
///
/// # Errors
/// Its language is unknown, or quotes are unbalanced.
pub fn commands_of(block: &Block) -> Result<Vec<Words>, String> {
    match block.language.as_str() {
        "sh" => commands(&block.text),
        "console" => {
            let lines = block.text.lines();
            let typed: Vec<_> = lines.filter_map(|line| line.strip_prefix("$ ")).collect();
            if typed.is_empty() {
                return Err(format!("no `$ COMMAND` in {}", block.text));
            }
            commands(&typed.join("\n"))
        }
        language if LANGUAGES.contains(&language) => Ok(Vec::new()),
        language => Err(format!(
            "language {language:?} of a code block; known: {LANGUAGES:?}: {}",
            block.text
        )),
    }
}

/// All commands in code blocks, and in sentences those of this project, which may lack
/// arguments there.
pub fn all_commands() -> (Vec<(String, Words)>, Vec<String>) {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for page in pages() {
        for block in page.blocks() {
            match commands_of(&block) {
                Ok(commands) => {
                    found.extend(commands.into_iter().map(|words| (page.name(), words)));
                }
                Err(reason) => wrong.push(format!("{}: {reason}", page.name())),
            }
        }
        // The changelog also describes options that were removed.
        let is_of_today = page.path != Path::new("CHANGELOG.md");
        for span in page.spans().into_iter().filter(|_| is_of_today) {
            let program = span.split(' ').next().unwrap_or_default();
            let is_of_project = PROGRAMS.contains(&program) && program != span;
            if !is_of_project && !program.starts_with("scripts/") {
                continue;
            }
            let Some(mut words) = shlex::split(&span) else {
                wrong.push(format!("{}: unbalanced quotes: {span}", page.name()));
                continue;
            };
            if words[0] == "virtlens" {
                // A placeholder for any of them.
                words
                    .iter_mut()
                    .filter(|word| *word == "COMMAND")
                    .for_each(|word| "run".clone_into(word));
                words.push("--help".to_owned());
            }
            found.push((page.name(), words));
        }
    }
    (found, wrong)
}
