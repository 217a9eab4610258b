//! The agent is killed repeatedly at random moments, or is absent for long, while VMs
//! work, start and end.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use virtlens_tests::Agent;
use virtlens_tests::dice::Dice;
use virtlens_tests::scraped::{Counters, counters, not_fallen};

use crate::run;
use crate::scene::Scene;

/// Number of kills. Starting the agent takes seconds in an emulated machine; `make
/// test-pins` sets it to a hundred.
fn kills() -> u32 {
    if is_slow() {
        return 10;
    }
    set("VIRTLENS_KILLS").unwrap_or(25)
}

/// Length of the agent's absence, s; `make test-pins` sets it to a minute.
fn away_s() -> u32 {
    let otherwise = if is_slow() { 60 } else { 5 };
    set("VIRTLENS_AWAY_SECONDS").unwrap_or(otherwise)
}

fn set(variable: &str) -> Option<u32> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("it is set to a number"))
}

fn is_slow() -> bool {
    std::env::var_os("VIRTLENS_VM").is_some()
}

/// Upper bound of the agent's start time, ms.
fn start_ms() -> u64 {
    if is_slow() { 5000 } else { 400 }
}

/// Kills an agent at a random moment of its life, half of them during start.
fn live_and_die(command: Command, dice: &mut Dice, seen: &mut Counters) {
    let mut command = command;
    if dice.below(2) == 0 {
        let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
        sleep(Duration::from_millis(dice.below(start_ms())));
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
        return;
    }
    let agent = Agent::start(command);
    for _ in 0..dice.below(3) {
        not_fallen(seen, counters(&agent));
        sleep(Duration::from_millis(dice.below(100)));
    }
    // The agent is killed on drop.
}

#[test]
fn repeatedly_killed_agent_loses_nothing() {
    let Some(scene) = Scene::new("killed_again_and_again") else {
        return;
    };
    let mut dice = Dice::new();
    scene.under_load(|root, seen| {
        for _ in 0..kills() {
            live_and_die(run(root), &mut dice, seen);
        }
    });
}

#[test]
fn time_without_agent_loses_nothing() {
    let Some(scene) = Scene::new("was_away") else {
        return;
    };
    scene.under_load(|_, _| sleep(Duration::from_secs(away_s().into())));
}
