//! Property test of the counters in Prometheus over random histories of a host: no
//! counter falls, and the roles and the unattributed time add up to the CPU time of the
//! pods.
//!
//! `VIRTLENS_HISTORIES` sets the number of histories. A failing history is saved in
//! `proptest-regressions` and is tried first from then on.

mod agent;
mod host;
mod scrape;

use agent::Agents;
use host::Host;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};
use proptest::test_runner::TestCaseError;

/// Takes a few seconds without optimisation.
const HISTORIES: u32 = 1000;

/// An event on the host. Numbers select among the existing objects.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A thread uses CPU time.
    Run(usize, u64),
    /// A VMM starts a thread.
    Born(usize),
    /// A pod starts a process.
    Helper(usize),
    /// A thread ends. With `true`, one reading sees it neither alive nor ended.
    Ends(usize, bool),
    Renamed(usize, usize),
    /// A thread of a VMM that was not a vCPU becomes one.
    BecomesVcpu(usize),
    /// A thread moves to another cgroup.
    Moves(usize, usize),
    /// A whole process moves.
    ProcessMoves(usize, usize),
    /// A VM ends, and its process with it.
    VmEnds(usize),
    /// A VM starts, unless it already runs.
    VmStarts(usize),
    /// A VM's process starts, but its first vCPU has not entered the guest: it does not
    /// count as a VM yet.
    ProcessStarts(usize),
    /// An empty cgroup is removed and created again.
    Replaced(usize),
    /// The limit of a cgroup is changed or removed.
    Limited(usize, Option<u64>),
    /// Periods of a limit pass.
    Periods(usize, u64),
    Reading,
    /// A reading is taken, but fails before anything is exported.
    FailedReading,
    AnotherAgent,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let many = 0usize..64;
    let step = prop_oneof![
        12 => (many.clone(), 1u64..1_000_000).prop_map(|(who, ns)| Step::Run(who, ns)),
        3 => many.clone().prop_map(Step::Born),
        2 => many.clone().prop_map(Step::Helper),
        3 => (many.clone(), proptest::bool::ANY).prop_map(|(who, late)| Step::Ends(who, late)),
        3 => (many.clone(), many.clone()).prop_map(|(who, name)| Step::Renamed(who, name)),
        2 => many.clone().prop_map(Step::BecomesVcpu),
        2 => (many.clone(), many.clone()).prop_map(|(who, to)| Step::Moves(who, to)),
        2 => (many.clone(), many.clone()).prop_map(|(who, to)| Step::ProcessMoves(who, to)),
        1 => many.clone().prop_map(Step::VmEnds),
        3 => many.clone().prop_map(Step::VmStarts),
        1 => many.clone().prop_map(Step::ProcessStarts),
        1 => many.clone().prop_map(Step::Replaced),
        1 => (many.clone(), proptest::option::of(1u64..500_000_000))
            .prop_map(|(what, quota)| Step::Limited(what, quota)),
        2 => (many.clone(), 1u64..50).prop_map(|(what, count)| Step::Periods(what, count)),
        8 => Just(Step::Reading),
        1 => Just(Step::FailedReading),
        2 => Just(Step::AnotherAgent),
    ];
    proptest::collection::vec(step, 1..120)
}

fn live(steps: Vec<Step>, linger_ns: u64) -> Result<(), TestCaseError> {
    let (mut host, mut agents) = (Host::new(), Agents::new(linger_ns));
    for step in steps {
        match step {
            Step::Reading => agents.read(&mut host)?,
            Step::FailedReading => drop(host.facts()),
            Step::AnotherAgent => agents.replace(),
            step => host.obey(&step),
        }
    }
    agents.read(&mut host)
}

fn histories() -> ProptestConfig {
    let cases = std::env::var("VIRTLENS_HISTORIES");
    let cases = cases.map_or(HISTORIES, |cases| cases.parse().expect("a number"));
    ProptestConfig::with_cases(cases)
}

proptest! {
    #![proptest_config(histories())]

    /// VMs that ended keep their last values, so the export covers all CPU time ever
    /// used.
    #[test]
    fn counters_of_lingering_vms_never_fall_and_roles_equal_pod_usage(steps in steps()) {
        live(steps, u64::MAX)?;
    }

    #[test]
    fn counters_of_dropped_vms_never_fall(steps in steps()) {
        live(steps, 2)?;
    }
}
