//! Simulated agents behind one address: `/agents/N/metrics`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::recorded::Recorded;

/// Time between two scrapes of an agent in the simulation.
pub(crate) const INTERVAL_S: u64 = 30;

/// Agents that have recorded history: each scrape returns the next reading, [`INTERVAL_S`]
/// later, until the present is reached.
#[derive(Debug)]
pub(crate) struct Fleet {
    recorded: Recorded,
    /// VMs of an agent.
    pub(crate) vms: u32,
    /// Time of the last reading of each agent.
    last_s: Vec<AtomicU64>,
}

impl Fleet {
    /// Agents with `history_s` of past readings.
    pub(crate) fn new(recorded: Recorded, agents: u32, vms: u32, history_s: u64) -> Self {
        let begin_s = now_s() - history_s;
        Self {
            recorded,
            vms,
            last_s: (0..agents).map(|_| AtomicU64::new(begin_s)).collect(),
        }
    }

    /// Serves the agents from threads that end with the process.
    pub(crate) fn serve(self: &Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let fleet = Arc::clone(self);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let fleet = Arc::clone(&fleet);
                // A client that closes the connection ends the thread.
                thread::spawn(move || drop(fleet.answer(&stream)));
            }
        });
        address
    }

    /// Number of agents.
    pub(crate) fn agents(&self) -> usize {
        self.last_s.len()
    }

    /// Series of all agents.
    pub(crate) fn series(&self) -> usize {
        self.agents() * self.recorded.series(self.vms)
    }

    /// Whether all agents have returned their history.
    pub(crate) fn is_in_the_present(&self) -> bool {
        let oldest = self.last_s.iter().map(|last| last.load(Ordering::Relaxed));
        oldest
            .min()
            .is_some_and(|oldest| oldest + INTERVAL_S > now_s())
    }

    fn answer(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut requests = BufReader::new(stream);
        loop {
            let mut path = String::new();
            if requests.read_line(&mut path)? == 0 {
                return Ok(());
            }
            let mut header = String::new();
            while header != "\r\n" {
                header.clear();
                if requests.read_line(&mut header)? == 0 {
                    return Ok(());
                }
            }
            let agent = path.split('/').nth(2).and_then(|agent| agent.parse().ok());
            let body = self.scrape(agent.expect("a path /agents/N/metrics"));
            write!(
                &mut &*stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
        }
    }

    fn scrape(&self, agent: usize) -> String {
        let node = format!("node-{agent:03}");
        let last = &self.last_s[agent];
        let next_s = last.load(Ordering::Relaxed) + INTERVAL_S;
        let now_s = now_s();
        // A present reading has no timestamp: Prometheus marks series that end only then.
        let (at_s, timestamp_ms) = if next_s + INTERVAL_S < now_s {
            (next_s, Some(next_s * 1000))
        } else {
            (now_s, None)
        };
        last.store(at_s, Ordering::Relaxed);
        self.recorded.text(&node, self.vms, at_s, timestamp_ms)
    }
}

pub(crate) fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("the clock is past 1970").as_secs()
}
