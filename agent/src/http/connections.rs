//! Tracks open connections, and evicts some if there are too many.
//!
//! Half-open connections cost a client nothing. If new connections waited for a free
//! slot, one client could lock all others out. Instead a new connection replaces one
//! whose request is not admitted yet: the oldest of the address that has the most.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

/// Limit on connections. Each costs a few file descriptors and some 20 KB; the usual
/// limit of a process is 1024 descriptors.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// Limit on answers in progress: enough for a pair of Prometheus servers and some users.
/// Each may hold a separate answer of some 2 MB.
pub(super) const MAX_ANSWERS: usize = 64;

/// All connections, oldest first.
#[derive(Default)]
pub(super) struct Connections(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    open: Vec<Connection>,
}

struct Connection {
    number: u64,
    origin: IpAddr,
    admitted: bool,
    /// Dropping it closes the connection.
    _keep: oneshot::Sender<Infallible>,
}

/// The slot of a connection, released when dropped.
pub(super) struct Slot {
    connections: Arc<Connections>,
    number: u64,
}

/// Resolves when the connection is evicted.
pub(super) type Evicted = oneshot::Receiver<Infallible>;

impl Connections {
    /// Adds a connection from `peer`, and evicts another one if the limit is reached.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> (Slot, Evicted) {
        let mut table = self.lock();
        if table.open.len() >= MAX_CONNECTIONS {
            table.drop_one(false);
        }
        let (keep, evicted) = oneshot::channel();
        let number = table.next;
        table.next += 1;
        table.open.push(Connection {
            number,
            origin: origin(peer),
            admitted: false,
            _keep: keep,
        });
        let connections = Arc::clone(self);
        (
            Slot {
                connections,
                number,
            },
            evicted,
        )
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client behind an address. For IPv6 this is its /64 network, since every host can
/// use that many addresses (RFC 4291, 2.5.1).
pub(super) fn origin(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        ipv4 @ IpAddr::V4(_) => ipv4,
    }
}

impl Slot {
    /// Marks the connection's request as admitted: its answer is in progress.
    pub(super) fn admitted(&self) {
        let mut table = self.connections.lock();
        let answers = table
            .open
            .iter()
            .filter(|connection| connection.admitted)
            .count();
        if answers >= MAX_ANSWERS {
            table.drop_one(true);
        }
        let index = table.index(self.number);
        if let Some(connection) = index.and_then(|index| table.open.get_mut(index)) {
            connection.admitted = true;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.connections.lock();
        if let Some(index) = table.index(self.number) {
            table.open.remove(index);
        }
    }
}

impl Table {
    fn index(&self, number: u64) -> Option<usize> {
        self.open
            .binary_search_by_key(&number, |connection| connection.number)
            .ok()
    }

    /// Evicts the oldest connection of the address that has the most, among those that
    /// are admitted or not.
    fn drop_one(&mut self, admitted: bool) {
        let mut counts = FxHashMap::<IpAddr, usize>::default();
        let among = |connection: &&Connection| connection.admitted == admitted;
        for connection in self.open.iter().filter(among) {
            *counts.entry(connection.origin).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let victim = self.open.iter().position(|connection| {
            among(&connection) && counts.get(&connection.origin).copied() == most
        });
        if let Some(victim) = victim {
            self.open.remove(victim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Connections, Evicted, IpAddr, MAX_ANSWERS, MAX_CONNECTIONS, Slot};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn enter(connections: &Arc<Connections>, peer: IpAddr, many: usize) -> Vec<(Slot, Evicted)> {
        (0..many).map(|_| connections.enter(peer)).collect()
    }

    const NONE: [usize; 0] = [];

    /// Indices of the evicted connections.
    fn gone(all: &mut [(Slot, Evicted)]) -> Vec<usize> {
        let closed = |evicted: &mut Evicted| {
            evicted.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Closed)
        };
        let gone = all.iter_mut().enumerate();
        gone.filter_map(|(index, (_, evicted))| closed(evicted).then_some(index))
            .collect()
    }

    #[test]
    fn oldest_connection_without_request_is_evicted_at_limit() {
        let connections = Arc::<Connections>::default();
        let mut all = enter(&connections, HERE, MAX_CONNECTIONS);
        all[0].0.admitted();
        assert_eq!(gone(&mut all), NONE);
        let mut more = enter(&connections, HERE, 2);
        assert_eq!(gone(&mut all), [1, 2]);
        assert_eq!(gone(&mut more), NONE);
        // Connections that close normally free their places.
        all.truncate(MAX_CONNECTIONS - 1);
        let mut last = enter(&connections, HERE, 1);
        assert_eq!(gone(&mut all), [1, 2]);
        assert_eq!(gone(&mut last), NONE);
    }

    #[test]
    fn client_with_most_connections_is_evicted_first() {
        let connections = Arc::<Connections>::default();
        let mut scraper = enter(&connections, THERE, 2);
        let mut flood = enter(&connections, HERE, 5 * MAX_CONNECTIONS);
        assert_eq!(gone(&mut scraper), NONE);
        assert_eq!(gone(&mut flood).len(), 4 * MAX_CONNECTIONS + 2);
    }

    #[test]
    fn flood_from_many_addresses_of_one_ipv6_network_evicts_itself() {
        let connections = Arc::<Connections>::default();
        let mut scraper = enter(&connections, HERE, 2);
        let flood = (0..2 * MAX_CONNECTIONS).map(|number| {
            let address = format!("2001:db8::{number:x}").parse().expect("an address");
            connections.enter(address)
        });
        let mut flood: Vec<_> = flood.collect();
        assert_eq!(gone(&mut scraper), NONE);
        assert_eq!(gone(&mut flood).len(), MAX_CONNECTIONS + 2);
    }

    #[test]
    fn mapped_ipv4_address_is_the_ipv4_client() {
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("an address");
        assert_eq!(super::origin(mapped), HERE);
        let [one, other]: [IpAddr; 2] =
            ["2001:db8::1:0:0:1", "2001:db8:0:1::1"].map(|text| text.parse().expect("an address"));
        assert_ne!(super::origin(one), super::origin(other));
    }

    #[test]
    fn oldest_pending_answer_is_evicted_at_limit() {
        let connections = Arc::<Connections>::default();
        let mut all = enter(&connections, HERE, MAX_ANSWERS + 1);
        all[..MAX_ANSWERS]
            .iter()
            .for_each(|(slot, _)| slot.admitted());
        assert_eq!(gone(&mut all), NONE);
        all[MAX_ANSWERS].0.admitted();
        assert_eq!(gone(&mut all), [0]);
    }
}
