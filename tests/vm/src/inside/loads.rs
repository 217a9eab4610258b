//! Starts and stops loads on the pod, on command.
//!
//! ```text
//! suite -- control.sock --> Loads -- serial port --> guest: cpu virtiofs disk memory
//!                                 \- UDP to the tap: vhost
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use virtlens_vmtest::flood::Flood;
use virtlens_vmtest::scenario::{MAX_LOAD, SILENT_GUEST};

use crate::pod::TAP;

/// The loads that the guest runs; its init script uses the same names.
const GUEST_LOADS: [&str; 4] = ["cpu", "disk", "memory", "virtiofs"];

/// The load that this process runs.
const FLOOD: &str = "vhost";

/// The guest and its loads.
pub(crate) struct Loads {
    guest: BufReader<UnixStream>,
    running: BTreeMap<String, Instant>,
    flood: Option<Flood>,
    /// Set once the guest left a command unanswered: a later answer could belong to that
    /// command.
    silent: bool,
}

impl Loads {
    /// Connects to the guest's control port and waits until it is up.
    pub(crate) fn connect(port: &Path, patience: Duration) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(port).with_context(|| port.display().to_string())?;
        stream.set_read_timeout(Some(patience))?;
        let mut guest = BufReader::new(stream);
        let mut line = String::new();
        guest
            .read_line(&mut line)
            .context("the guest did not come up")?;
        ensure!(
            line.starts_with("ready"),
            "the guest said {line:?} instead of ready"
        );
        Ok(Self {
            guest,
            running: BTreeMap::new(),
            flood: None,
            silent: false,
        })
    }

    /// All load names.
    pub(crate) fn names() -> Vec<String> {
        GUEST_LOADS
            .iter()
            .chain([&FLOOD])
            .map(|name| (*name).to_owned())
            .collect()
    }

    /// Executes `start LOAD` or `stop LOAD`; repeating either is not an error.
    pub(crate) fn order(&mut self, order: &str) -> anyhow::Result<()> {
        let (verb, load) = order
            .trim()
            .split_once(' ')
            .context("expected an order of two words")?;
        ensure!(
            Self::names().iter().any(|name| name == load),
            "unknown load {load}"
        );
        match (verb, self.running.contains_key(load)) {
            ("start", false) => {
                if load == FLOOD {
                    self.flood = Some(Flood::start(TAP.1, TAP.2)?);
                } else {
                    self.ask_guest(order)?;
                }
                self.running.insert(load.to_owned(), Instant::now());
            }
            ("stop", true) => {
                if load == FLOOD {
                    drop(self.flood.take());
                } else {
                    self.ask_guest(order)?;
                }
                self.running.remove(load);
            }
            ("start" | "stop", _) => {}
            _ => bail!("unknown order {order:?}"),
        }
        Ok(())
    }

    fn ask_guest(&mut self, order: &str) -> anyhow::Result<()> {
        ensure!(!self.silent, "{SILENT_GUEST} any more");
        writeln!(self.guest.get_mut(), "{}", order.trim())?;
        let mut answer = String::new();
        let read = self.guest.read_line(&mut answer);
        self.silent = read.is_err();
        read.context(SILENT_GUEST)?;
        ensure!(answer.trim() == "ok", "{order}: the guest said {answer:?}");
        Ok(())
    }

    fn stop_overdue(&mut self) {
        let overdue = self
            .running
            .iter()
            .filter(|(_, since)| since.elapsed() > MAX_LOAD);
        let names: Vec<_> = overdue.map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Err(error) = self.order(&format!("stop {name}")) {
                println!("cannot stop {name}: {error:#}");
            }
        }
    }
}

/// Serves commands on a socket until this process ends.
pub(crate) fn serve(loads: &Arc<Mutex<Loads>>, control: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(control).with_context(|| control.display().to_string())?;
    let serving = Arc::clone(loads);
    spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Err(error) = answer(&stream, &serving) {
                println!("control: {error:#}");
            }
        }
    });
    let watching = Arc::clone(loads);
    spawn(move || {
        loop {
            sleep(Duration::from_secs(1));
            lock(&watching).stop_overdue();
        }
    });
    Ok(())
}

/// Locks the loads, also after a panic of another thread that held them.
pub(crate) fn lock(loads: &Mutex<Loads>) -> std::sync::MutexGuard<'_, Loads> {
    loads.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(stream: &UnixStream, loads: &Mutex<Loads>) -> anyhow::Result<()> {
    // A client that sends nothing must not block the others.
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut order = String::new();
    BufReader::new(stream).read_line(&mut order)?;
    let mut stream = stream;
    match lock(loads).order(&order) {
        Ok(()) => writeln!(stream, "ok")?,
        Err(error) => writeln!(stream, "error {error:#}")?,
    }
    Ok(())
}
