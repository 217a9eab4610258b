//! A live migration between two QEMUs, with a Linux guest that runs.

use virtlens_tests::eventually;

use crate::bench;
use crate::guest::{Guest, Ram, Receiver};

const GUEST_MIB: u64 = 128;

#[test]
fn dirty_logging_lasts_as_long_as_migration() {
    let mut bench = bench();
    let agent = &mut bench.agent;
    let mut guest = Guest::start(Ram::Anonymous, GUEST_MIB, true, |pid| agent.find(pid));
    let pid = guest.pid();
    agent.find(pid);
    let mut is_logged = |pid: u32| {
        let logging = agent.memory_of(pid).dirty_logging;
        let logging = logging.expect("its memslots are known");
        assert_eq!(logging.enabled, logging.seen_ns.is_some());
        logging.enabled
    };
    assert!(!is_logged(pid));

    guest.migrate("exec:cat > /dev/null");
    eventually("the log", || is_logged(pid).then_some(()));
    guest.cancel_migration();
    eventually("the end of the log", || (!is_logged(pid)).then_some(()));
    guest.wait_for_migration("cancelled");

    let receiver = Receiver::start(GUEST_MIB);
    guest.migrate(&receiver.uri);
    eventually("the log", || is_logged(pid).then_some(()));
    guest.limit_migration(1024);
    guest.wait_for_migration("completed");
    agent.find(receiver.pid());
    let there = agent.memory_of(receiver.pid()).dirty_logging;
    assert_eq!(there.map(|logging| logging.enabled), Some(false));
}
