//! Linux guests in QEMU that fill and free memory on command, and migrate.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;
use virtlens_tests::{Launch, Qemu, eventually};
use virtlens_vmtest::plan::{PLAN_PATH, Plan, Pods};
use virtlens_vmtest::scenario::SILENT_GUEST;

/// Longer than a guest takes to boot under two layers of emulation.
const PATIENCE: Duration = Duration::from_secs(75);

/// Backing of a guest's RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ram {
    Anonymous,
    Memfd,
    HugePages,
}

/// A booted guest.
pub(crate) struct Guest {
    qemu: Qemu,
    orders: BufReader<UnixStream>,
    monitor: BufReader<UnixStream>,
    _dir: TempDir,
}

/// A QEMU that waits for a guest.
pub(crate) struct Receiver {
    qemu: Qemu,
    /// Where it listens.
    pub(crate) uri: String,
    _dir: TempDir,
}

impl Receiver {
    /// Starts a QEMU that waits for a guest with `mib` MiB of anonymous RAM to migrate to it.
    pub(crate) fn start(mib: u64) -> Self {
        let dir = tempfile::tempdir().expect("there is room for a folder");
        let socket = dir.path().join("migration");
        let uri = format!("unix:{}", socket.display());
        let launch = launch(Ram::Anonymous, mib, true, dir.path());
        let qemu = Qemu::start_launch(1, launch.args(["-incoming", &uri]));
        // It exists once QEMU has bound it, just before QEMU listens.
        eventually("the socket of the migration", || {
            socket.exists().then_some(())
        });
        Self {
            qemu,
            uri,
            _dir: dir,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.qemu.pid()
    }
}

impl Guest {
    /// Starts a guest with `mib` MiB and a balloon, and waits until it has booted. All of
    /// its RAM is touched at the start, so later growth is memory that is taken again.
    /// `found` gets its pid before it boots and reports.
    pub(crate) fn start(ram: Ram, mib: u64, reporting: bool, found: impl FnOnce(u32)) -> Self {
        let dir = tempfile::tempdir().expect("there is room for a folder");
        let path = |file: &str| dir.path().join(file).display().to_string();
        let qemu = Qemu::start_launch(1, launch(ram, mib, reporting, dir.path()));
        found(qemu.pid());
        let connect = |file: &str| {
            let stream = eventually("QEMU's socket", || UnixStream::connect(path(file)).ok());
            stream
                .set_read_timeout(Some(PATIENCE))
                .expect("it is no zero");
            BufReader::new(stream)
        };
        let mut guest = Self {
            orders: connect("ctl"),
            monitor: connect("qmp"),
            qemu,
            _dir: dir,
        };
        let mut line = String::new();
        let read = guest.orders.read_line(&mut line);
        assert!(read.is_ok(), "{SILENT_GUEST}");
        assert!(line.starts_with("ready"), "{line:?}");
        guest.execute(r#"{"execute":"qmp_capabilities"}"#);
        guest
    }

    pub(crate) fn pid(&self) -> u32 {
        self.qemu.pid()
    }

    /// Sends a command to the guest and waits until it is done.
    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.orders.get_mut(), "{order}").expect("it lives");
        let mut answer = String::new();
        let read = self.orders.read_line(&mut answer);
        assert!(read.is_ok(), "{order}: {SILENT_GUEST}");
        assert_eq!(answer.trim(), "ok", "{order}");
    }

    /// Sets the memory that the balloon leaves to the guest.
    pub(crate) fn balloon(&mut self, mib: u64) {
        let bytes = mib << 20;
        self.execute(&format!(
            r#"{{"execute":"balloon","arguments":{{"value":{bytes}}}}}"#
        ));
    }

    /// Waits until the balloon leaves exactly `mib`. QEMU's thread that answers also
    /// inflates, so it is queried sparingly.
    pub(crate) fn wait_for_balloon(&mut self, mib: u64) {
        let wanted = format!("\"actual\": {}", mib << 20);
        eventually("the balloon", || {
            sleep(Duration::from_millis(20));
            self.execute(r#"{"execute":"query-balloon"}"#)
                .contains(&wanted)
                .then_some(())
        });
    }

    /// Starts to migrate to `uri`, so slowly that it does not end by itself.
    pub(crate) fn migrate(&mut self, uri: &str) {
        self.limit_migration(1);
        self.execute(&format!(
            r#"{{"execute":"migrate","arguments":{{"uri":"{uri}"}}}}"#
        ));
    }

    pub(crate) fn cancel_migration(&mut self) {
        self.execute(r#"{"execute":"migrate_cancel"}"#);
    }

    /// Sets the bandwidth of the migration, MiB per second.
    pub(crate) fn limit_migration(&mut self, mib: u64) {
        let bytes = mib << 20;
        self.execute(&format!(
            r#"{{"execute":"migrate-set-parameters","arguments":{{"max-bandwidth":{bytes}}}}}"#
        ));
    }

    /// Waits until the migration has reached a status.
    pub(crate) fn wait_for_migration(&mut self, status: &str) {
        let wanted = format!("\"status\": \"{status}\"");
        eventually("the migration", || {
            let now = self.execute(r#"{"execute":"query-migrate"}"#);
            assert!(!now.contains("\"status\": \"failed\""), "{now}");
            now.contains(&wanted).then_some(())
        });
    }

    fn execute(&mut self, command: &str) -> String {
        writeln!(self.monitor.get_mut(), "{command}").expect("it lives");
        loop {
            let mut line = String::new();
            let read = self.monitor.read_line(&mut line).expect("QEMU answers");
            assert!(read > 0, "QEMU closed its monitor");
            assert!(!line.starts_with("{\"error\""), "{command}: {line}");
            // Skips the greeting and events.
            if line.starts_with("{\"return\"") {
                return line;
            }
        }
    }
}

/// A QEMU with a guest, and its sockets and files in `dir`.
fn launch(ram: Ram, mib: u64, reporting: bool, dir: &Path) -> Launch {
    let plan = Plan::read(Path::new(PLAN_PATH)).expect("this suite runs in tests/vm");
    let Pods::Start(stage) = plan.pods else {
        panic!("the rig brings the files of a guest: {:?}", plan.pods)
    };
    let path = |file: &str| dir.join(file).display().to_string();
    let backend = match ram {
        Ram::Anonymous => format!("memory-backend-ram,id=ram,size={mib}M,prealloc=on"),
        Ram::Memfd => format!("memory-backend-memfd,id=ram,size={mib}M,share=on,prealloc=on"),
        Ram::HugePages => format!(
            "memory-backend-memfd,id=ram,size={mib}M,share=on,prealloc=on,hugetlb=on,hugetlbsize=2M"
        ),
    };
    let reporting = if reporting { "on" } else { "off" };
    Qemu::launch()
        .args(["-no-reboot", "-cpu", "max", "-smp", "1"])
        .args(["-m", &format!("{mib}M"), "-object", &backend])
        .args(["-machine", "q35,memory-backend=ram"])
        .args([
            "-device",
            &format!("virtio-balloon-pci,free-page-reporting={reporting}"),
        ])
        .args(["-serial", &format!("file:{}", path("guest.log"))])
        .args([
            "-chardev",
            &format!("socket,id=ctl,path={},server=on,wait=off", path("ctl")),
        ])
        .args(["-serial", "chardev:ctl"])
        .args(["-qmp", &format!("unix:{},server=on,wait=off", path("qmp"))])
        .args([Path::new("-kernel"), &stage.guest_kernel])
        .args([Path::new("-initrd"), &stage.guest_initrd])
        .args([
            "-append",
            "console=ttyS0 quiet panic=-1 page_reporting.page_reporting_order=9",
        ])
}
