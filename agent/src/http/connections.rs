//! Tracks open connections, and evicts some if there are too many.
//!
//! Half-open connections cost a client nothing. If new connections waited for a free
//! place, one client could lock all others out. Instead a new connection replaces one
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
pub(super) struct Connections(Mutex<Seats>);

#[derive(Default)]
struct Seats {
    next: u64,
    taken: Vec<Seat>,
}

struct Seat {
    number: u64,
    origin: IpAddr,
    admitted: bool,
    /// Dropped with the seat, which closes the connection.
    _stay: oneshot::Sender<Infallible>,
}

/// The place of a connection, released when dropped.
pub(super) struct Place {
    connections: Arc<Connections>,
    number: u64,
}

/// Resolves when the connection is evicted.
pub(super) type Leave = oneshot::Receiver<Infallible>;

impl Connections {
    /// Adds a connection from `peer`, and evicts another one if the limit is reached.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> (Place, Leave) {
        let mut seats = self.lock();
        if seats.taken.len() >= MAX_CONNECTIONS {
            seats.drop_one(false);
        }
        let (stay, leave) = oneshot::channel();
        let number = seats.next;
        seats.next += 1;
        seats.taken.push(Seat {
            number,
            origin: origin(peer),
            admitted: false,
            _stay: stay,
        });
        let connections = Arc::clone(self);
        (
            Place {
                connections,
                number,
            },
            leave,
        )
    }

    fn lock(&self) -> MutexGuard<'_, Seats> {
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

impl Place {
    /// Marks the connection's request as admitted: its answer is in progress.
    pub(super) fn admitted(&self) {
        let mut seats = self.connections.lock();
        let answers = seats.taken.iter().filter(|seat| seat.admitted).count();
        if answers >= MAX_ANSWERS {
            seats.drop_one(true);
        }
        let index = seats.index(self.number);
        if let Some(seat) = index.and_then(|index| seats.taken.get_mut(index)) {
            seat.admitted = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut seats = self.connections.lock();
        if let Some(index) = seats.index(self.number) {
            seats.taken.remove(index);
        }
    }
}

impl Seats {
    fn index(&self, number: u64) -> Option<usize> {
        self.taken
            .binary_search_by_key(&number, |seat| seat.number)
            .ok()
    }

    /// Evicts the oldest connection of the address that has the most, among those that
    /// are admitted or not.
    fn drop_one(&mut self, admitted: bool) {
        let mut counts = FxHashMap::<IpAddr, usize>::default();
        let among = |seat: &&Seat| seat.admitted == admitted;
        for seat in self.taken.iter().filter(among) {
            *counts.entry(seat.origin).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let victim = self
            .taken
            .iter()
            .position(|seat| among(&seat) && counts.get(&seat.origin).copied() == most);
        if let Some(victim) = victim {
            self.taken.remove(victim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Connections, IpAddr, Leave, MAX_ANSWERS, MAX_CONNECTIONS, Place};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn enter(connections: &Arc<Connections>, peer: IpAddr, many: usize) -> Vec<(Place, Leave)> {
        (0..many).map(|_| connections.enter(peer)).collect()
    }

    const NOBODY: [usize; 0] = [];

    /// Indices of the evicted connections.
    fn gone(all: &mut [(Place, Leave)]) -> Vec<usize> {
        let closed = |leave: &mut Leave| {
            leave.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Closed)
        };
        let gone = all.iter_mut().enumerate();
        gone.filter_map(|(index, (_, leave))| closed(leave).then_some(index))
            .collect()
    }

    #[test]
    fn the_oldest_that_asked_nothing_makes_room() {
        let connections = Arc::<Connections>::default();
        let mut all = enter(&connections, HERE, MAX_CONNECTIONS);
        all[0].0.admitted();
        assert_eq!(gone(&mut all), NOBODY);
        let mut more = enter(&connections, HERE, 2);
        assert_eq!(gone(&mut all), [1, 2]);
        assert_eq!(gone(&mut more), NOBODY);
        // Connections that close normally free their places.
        all.truncate(MAX_CONNECTIONS - 1);
        let mut last = enter(&connections, HERE, 1);
        assert_eq!(gone(&mut all), [1, 2]);
        assert_eq!(gone(&mut last), NOBODY);
    }

    #[test]
    fn who_has_the_most_gives_way_first() {
        let connections = Arc::<Connections>::default();
        let mut scraper = enter(&connections, THERE, 2);
        let mut flood = enter(&connections, HERE, 5 * MAX_CONNECTIONS);
        assert_eq!(gone(&mut scraper), NOBODY);
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
        assert_eq!(gone(&mut scraper), NOBODY);
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
    fn answers_that_nobody_takes_give_way_to_new_ones() {
        let connections = Arc::<Connections>::default();
        let mut all = enter(&connections, HERE, MAX_ANSWERS + 1);
        all[..MAX_ANSWERS]
            .iter()
            .for_each(|(place, _)| place.admitted());
        assert_eq!(gone(&mut all), NOBODY);
        all[MAX_ANSWERS].0.admitted();
        assert_eq!(gone(&mut all), [0]);
    }
}
