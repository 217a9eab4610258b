//! The line protocol: commands on stdin, one JSON object per line on stdout.

use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::args::{Args, Mode, parse_bytes, parse_number};
use crate::fork_exec;
use crate::helper::spawn_and_end;
use crate::lifetime;
use crate::machine::{Machine, rename_process};
use crate::memory::{Advice, Mapping};
use crate::vm::Slot;

/// Maximum number of short-lived threads per command: all exist at once, so memory bounds
/// them.
const MAX_SPAWN: u32 = 4096;

/// Reports that the VM is ready, then executes commands until quit or the end of stdin.
pub(crate) fn serve(mut machine: Machine<'_>, args: &Args) -> anyhow::Result<()> {
    let mut ready = serde_json::to_value(machine.status())?;
    ready["ready"] = true.into();
    say(&ready)?;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("cannot read stdin")?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [] => continue,
            ["quit"] => return say(&json!({ "ok": true })),
            _ => {}
        }
        match obey(&mut machine, &words) {
            Ok(mut reply) => {
                reply["ok"] = true.into();
                say(&reply)?;
            }
            Err(error) => say(&json!({ "ok": false, "error": format!("{error:#}") }))?,
        }
    }
    if args.detach_stdin || args.for_seconds.is_some() {
        lifetime::wait_for_end();
    }
    Ok(())
}

fn say(reply: &Value) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{reply}")
        .and_then(|()| stdout.flush())
        .context("cannot write stdout")
}

fn obey(machine: &mut Machine<'_>, words: &[&str]) -> anyhow::Result<Value> {
    match *words {
        [mode @ ("spin" | "exit" | "halt" | "pause"), list] => enter(machine, list, mode.parse()?),
        ["duty", percent, list] => enter(machine, list, Mode::duty(percent)?),
        ["burn", "vcpu", list, ms] => {
            let vcpus = choose(list, &machine.vcpu_indexes())?;
            Ok(json!({ "burned": machine.burn_vcpus(&vcpus, parse_ms(ms)?)? }))
        }
        ["burn", "thread", list, ms] => {
            let threads = choose(list, &machine.helper_indexes())?;
            Ok(json!({ "burned": machine.burn_helpers(&threads, parse_ms(ms)?)? }))
        }
        ["burn", "user", index, ms] => {
            let burned = machine.burn_in_user_space(parse_number(index)?, parse_ms(ms)?)?;
            Ok(json!({ "burned": [burned] }))
        }
        ["rename", "thread", index, ref name @ ..] => {
            machine.rename_helper(parse_number(index)?, &name.join(" "))?;
            Ok(json!({}))
        }
        ["rename", "process", name] => {
            rename_process(name)?;
            Ok(json!({}))
        }
        ["plug"] => Ok(json!({ "vcpu": machine.plug(Mode::Halt)? })),
        ["plug", mode] => Ok(json!({ "vcpu": machine.plug(mode.parse()?)? })),
        ["unplug", index] => Ok(json!({ "cpu_ns": machine.unplug(parse_number(index)?)? })),
        ["release"] => {
            machine.release()?;
            Ok(json!({}))
        }
        ["spawn", count, ms, name] => {
            let count = parse_number(count)?;
            ensure!(
                count <= MAX_SPAWN,
                "{count} threads at once: use up to {MAX_SPAWN}"
            );
            Ok(json!({ "burned_ns": spawn_and_end(count, parse_ms(ms)?, name)? }))
        }
        ["touch", offset, len] => {
            machine
                .ram()
                .touch(parse_bytes(offset)?, parse_bytes(len)?)?;
            Ok(json!({}))
        }
        ["madvise", advice, offset, len, count] => {
            let (advice, count) = (Advice::parse(advice)?, parse_number(count)?);
            machine.ram().advise(
                advice,
                parse_bytes(offset)?,
                parse_bytes(len)?,
                count.into(),
            )?;
            Ok(json!({}))
        }
        ["punch", offset, len, count] => {
            let count = parse_number(count)?;
            machine
                .ram()
                .punch(parse_bytes(offset)?, parse_bytes(len)?, count.into())?;
            Ok(json!({}))
        }
        ["guest-memfd", change @ ("allocate" | "punch"), offset, len] => {
            let memory = machine.vm().guest_memfd()?;
            let (offset, len) = (parse_bytes(offset)?, parse_bytes(len)?);
            memory.change(offset, len, change == "allocate")?;
            Ok(json!({}))
        }
        ["log", slot, state @ ("on" | "off")] => {
            machine.vm().log_writes(Slot::parse(slot)?, state == "on")?;
            Ok(json!({}))
        }
        ["trim", len, count] => {
            let count = parse_number(count)?;
            trim(parse_bytes(len)?, count.into())?;
            Ok(json!({}))
        }
        ["share", ms] => Ok(json!({ "pid": fork_exec::share(parse_ms(ms)?)? })),
        ["fork", ms] => Ok(json!({ "pid": fork_exec::fork(parse_ms(ms)?)? })),
        ["exec"] => fork_exec::exec().map(|()| json!({})),
        ["flood", "on"] => {
            machine.vhost()?.flood()?;
            Ok(json!({}))
        }
        ["flood", "off"] => {
            machine.vhost()?.calm()?;
            Ok(json!({}))
        }
        ["stats"] => Ok(json!({ "vm": machine.vm_stats()?, "vcpus": machine.stats()? })),
        ["status"] => Ok(serde_json::to_value(machine.status())?),
        _ => bail!("unknown command {:?}: see minivm --help", words.join(" ")),
    }
}

/// Advises on free memory of the process itself, as an allocator does.
fn trim(len: u64, count: u64) -> anyhow::Result<()> {
    let heap = Mapping::new(len, false)?;
    (0..count).try_for_each(|_| heap.advise(Advice::parse("dontneed")?, 0, len, 1))
}

fn enter(machine: &mut Machine<'_>, list: &str, mode: Mode) -> anyhow::Result<Value> {
    let vcpus = choose(list, &machine.vcpu_indexes())?;
    machine.enter(&vcpus, mode)?;
    Ok(json!({}))
}

fn parse_ms(text: &str) -> anyhow::Result<Duration> {
    parse_number(text).map(|ms| Duration::from_millis(ms.into()))
}

/// `all`, or indexes such as `0,2-3`; each must exist.
fn choose(list: &str, existing: &[u32]) -> anyhow::Result<Vec<u32>> {
    if list == "all" {
        return Ok(existing.to_vec());
    }
    let mut chosen = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = parse_number(first)?..=parse_number(last)?;
        // Bounded by the existing indexes, whatever the numbers are.
        let found: Vec<u32> = existing
            .iter()
            .copied()
            .filter(|i| range.contains(i))
            .collect();
        let wanted = u64::from(*range.end()).checked_sub(u64::from(*range.start()));
        ensure!(
            wanted.is_some_and(|distance| distance + 1 == found.len() as u64),
            "{part}: unknown index: see status"
        );
        chosen.extend(found);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_selects_existing_indexes() {
        let existing = [0, 1, 2, 4];
        assert_eq!(choose("all", &existing).expect("a list"), existing);
        assert_eq!(choose("4,0-1,1", &existing).expect("a list"), [0, 1, 4]);
        for bad in ["3", "0-3", "2-1", "x", "", "0-4294967295"] {
            assert!(choose(bad, &existing).is_err(), "{bad}");
        }
    }
}
