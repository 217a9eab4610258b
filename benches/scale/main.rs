//! Cost of a fleet for Prometheus, by profile of metrics: simulated agents return readings of
//! many VMs, made from one recorded reading, to a real Prometheus with the rules of `deploy/`.
//! `cargo test -p virtlens-benches --bench scale -- --save` writes docs/scale.md's table.

mod fleet;
mod measure;
mod recorded;

use std::fmt::Write as _;

use measure::{Measured, Size, measure};
use virtlens_benches::machine;
use virtlens_export::Profile;
use virtlens_tests::need;

/// The command that produces the table.
const COMMAND: &str = "cargo test -p virtlens-benches --bench scale -- --save";

/// Longest time of a query of a dashboard.
const QUERY_S: f64 = 1.0;

/// Largest share of its interval that a rule group may take.
const GROUP_SHARE: f64 = 0.20;

/// The third fleet has about half the agents of the second: does the cost grow linearly?
const SIZES: [Size; 4] = [
    size(Profile::Minimal, 25),
    size(Profile::Default, 25),
    size(Profile::Default, 13),
    size(Profile::Full, 25),
];

const fn size(profile: Profile, agents: u32) -> Size {
    Size {
        profile,
        agents,
        vms: 200,
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Err(missing) = need::prometheus() {
        panic!("not measured: {}", missing.cause);
    }
    let only = args.iter().position(|arg| arg == "--only");
    let only = only.and_then(|at| args.get(at + 1));
    let machine = machine::describe();
    let mut all = Vec::new();
    for size in SIZES {
        if only.is_some_and(|only| only != size.profile.name()) {
            continue;
        }
        let measured = measure(size);
        eprintln!("{measured:#?}");
        all.push(measured);
    }
    assert!(!all.is_empty(), "--only: expected the name of a profile");
    let text = format!("{machine} `{COMMAND}`\n\n{}", table(&all));
    println!("{text}");
    if args.iter().any(|arg| arg == "--save") {
        assert!(only.is_none(), "only a whole table is saved");
        virtlens_benches::save(&virtlens_deploy::root().join("docs/scale.md"), &text);
    }
    assert_bounds(&all);
}

/// Fails if a query or a rule group takes too long at one of the sizes.
fn assert_bounds(all: &[Measured]) {
    let mut over = Vec::new();
    for one in all {
        for (_, query, seconds) in &one.slowest_queries {
            if *seconds > QUERY_S {
                over.push(format!("{query}: {seconds:.2} s"));
            }
        }
        let (group, _, share) = &one.slowest_group;
        if *share > GROUP_SHARE {
            over.push(format!("rule group {group}: {:.0} %", share * 100.0));
        }
    }
    assert!(over.is_empty(), "over the bounds: {over:#?}");
}

fn table(all: &[Measured]) -> String {
    let mut text = String::new();
    let mut row = |head: &str, cell: &dyn Fn(&Measured) -> String| {
        let cells: Vec<String> = all.iter().map(cell).collect();
        writeln!(text, "| {head} | {} |", cells.join(" | ")).expect("writing to a String");
    };
    row("profile", &|one| one.size.profile.name().to_owned());
    row("---", &|_| "---:".to_owned());
    row("agents × VMs", &|one| {
        format!("{} × {}", one.size.agents, one.size.vms)
    });
    row("series of the agents", &|one| {
        thousands(&one.series.to_string())
    });
    row("series in the head block", &|one| {
        thousands(&format!("{:.0}", one.head_series))
    });
    row("samples per second", &|one| {
        thousands(&format!("{:.0}", one.samples_per_s))
    });
    row("CPU cores of Prometheus", &|one| {
        format!("{:.2}", one.cpu_cores)
    });
    row("resident memory, GiB", &|one| {
        format!("{:.2}", one.rss_bytes / f64::from(1 << 30))
    });
    row("resident bytes per series", &|one| {
        thousands(&format!("{:.0}", one.rss_bytes / one.head_series))
    });
    row("bytes per sample in a block", &|one| {
        format!("{:.2}", one.disk_bytes_per_sample)
    });
    row("slowest rule group", &|one| {
        let (group, seconds, share) = &one.slowest_group;
        format!("{group}: {seconds:.2} s, {:.1} %", share * 100.0)
    });
    let dashboards = all.first().map_or(0, |one| one.slowest_queries.len());
    for index in 0..dashboards {
        let title = &all[0].slowest_queries[index].0;
        row(&format!("slowest query of {title}, s"), &|one| {
            format!("{:.2}", one.slowest_queries[index].2)
        });
    }
    text
}

/// Separates groups of three digits.
fn thousands(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
