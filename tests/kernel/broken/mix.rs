//! Random mixes of file faults.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use virtlens_tests::dice::Dice;
use virtlens_tests::exposed::Counters;
use virtlens_tests::{Agent, Fault, FaultyHost, Minivm, binary};

use super::{hide_btf, ready, vcpus_ns};

/// Any file fails in any way at any time; the sequence is fixed, so only the time of a read
/// decides which fault hits it. Faults by which the kernel would deny that a
/// living process exists are left out, because an agent must believe them.
fn any_fault(mut dice: Dice) -> impl FnMut(&Path) -> Option<Fault> + Send + 'static {
    let faults = [
        Fault::Denied,
        Fault::Unreadable,
        Fault::Cut,
        Fault::Garbage,
        Fault::Endless,
        Fault::Slow,
    ];
    move |_| {
        let fault = (dice.below(10) == 0).then(|| dice.below(faults.len() as u64))?;
        Some(faults[usize::try_from(fault).expect("a small number")])
    }
}

/// Runs the whole program: it answers every scrape, no counter falls, and its numbers are
/// correct again once the faults are over.
#[test]
fn every_scrape_is_answered_under_mixed_faults() {
    if !ready("every_scrape_is_answered_under_mixed_faults") {
        return;
    }
    for (with_bpf, seed) in [
        (true, 7),
        (false, 11),
        (false, 204),
        (false, 205),
        (false, 209),
    ] {
        println!("BPF: {with_bpf}, seed {seed}");
        let mut guest = Minivm::start(["--vcpus", "2", "--name", "mixed"]);
        let host = FaultyHost::mount();
        if !with_bpf {
            host.set(hide_btf);
        }
        let mut command = Command::new(binary("virtlens"));
        command.env_clear().args([
            "run",
            "--listen",
            "127.0.0.1:0",
            "--no-pin",
            // No answer is that of a reading with faults.
            "--min-age",
            "0s",
        ]);
        command.arg("--root").arg(host.path());
        let mut agent = Agent::start(command);
        let mut counters = Counters::default();
        counters.follow_text(&agent.get("/metrics"));
        host.set(any_fault(Dice::with_seed(seed)));
        for round in 0..20 {
            guest.burn_vcpus("all", 1);
            // A new process, which the agent has to identify.
            let name = format!("brief-{round}");
            let _brief = Minivm::start(["--vcpus", "1", "--name", &name]);
            let answer = agent.get("/metrics");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            counters.follow_text(&answer);
        }
        let hits = host.heal();
        println!("{hits} faults");
        assert!(hits > 5, "{hits} faults are no mix");
        // The first reading without faults is correct.
        let low_ns = vcpus_ns(&guest);
        let answer = agent.get("/metrics");
        let reported_ns = Duration::from_secs_f64(vcpu_seconds(&answer, "mixed")).as_nanos();
        let truth_ns = u128::from(low_ns)..=u128::from(vcpus_ns(&guest));
        assert!(
            truth_ns.contains(&reported_ns),
            "{reported_ns} is not in {truth_ns:?}"
        );
        counters.follow_text(&answer);
        let (code, log) = agent.stop();
        assert_eq!(code, Some(0), "{log:#?}");
        assert!(!log.iter().any(|line| line.contains("panic")), "{log:#?}");
    }
}

/// CPU seconds of a VM's vCPUs in a scrape.
fn vcpu_seconds(answer: &str, name: &str) -> f64 {
    let name = format!("vm=\"{name}\"");
    let is_own = |line: &&str| {
        line.starts_with("virtlens_cpu_seconds_total{")
            && line.contains(&name)
            && line.contains("role=\"vcpu\"")
    };
    let line = answer
        .lines()
        .find(is_own)
        .unwrap_or_else(|| panic!("{answer}"));
    let (_, value) = line.rsplit_once(' ').expect("a sample has a value");
    value.parse().expect("a sample's value is a number")
}
