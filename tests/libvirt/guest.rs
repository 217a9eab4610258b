//! The Linux guest in `db-01`, which executes commands from its second serial port.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use virtlens_tests::eventually;
use virtlens_vmtest::flood::Flood;
use virtlens_vmtest::scenario::SILENT_GUEST;

use crate::manager::DIR;

/// Longer than a guest takes to boot under two layers of emulation.
const PATIENCE: Duration = Duration::from_mins(3);

/// The addresses of the host's end of the network, and of the guest's.
const ENDS: (&str, &str) = ("10.77.0.1", "10.77.0.2");

/// A booted guest.
pub(crate) struct Guest {
    orders: BufReader<UnixStream>,
}

impl Guest {
    /// Waits until the guest of a domain that was just started has booted.
    pub(crate) fn wait() -> Self {
        let port = format!("{DIR}/db-01.ctl");
        let stream = eventually("the guest's port", || UnixStream::connect(&port).ok());
        let patience = stream.set_read_timeout(Some(PATIENCE));
        patience.expect("it is no zero");
        let mut orders = BufReader::new(stream);
        let up = Command::new("/run/busybox")
            .args(["ifconfig", "vmtap0", ENDS.0, "up"])
            .status();
        assert!(up.expect("busybox starts").success(), "no vmtap0");
        let mut line = String::new();
        let read = orders.read_line(&mut line);
        let log = || std::fs::read_to_string(format!("{DIR}/db-01.guest.log"));
        assert!(read.is_ok(), "{SILENT_GUEST}: {:?}", log());
        assert!(line.starts_with("ready"), "{line:?}");
        Self { orders }
    }

    /// Sends a command to the guest and waits until it is done.
    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.orders.get_mut(), "{order}").expect("it lives");
        let mut answer = String::new();
        let read = self.orders.read_line(&mut answer);
        assert!(read.is_ok(), "{order}: {SILENT_GUEST}");
        assert_eq!(answer.trim(), "ok", "{order}");
    }

    /// Sends UDP packets from the host until the value is dropped.
    pub(crate) fn flood() -> Flood {
        Flood::start(ENDS.0, ENDS.1).expect("the tap is up")
    }
}
