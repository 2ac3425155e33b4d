//! Places of clients over TCP: clients without credentials never exclude clients with credentials.
//!
//! | limit, per socket | when it is reached |
//! |---|---|
//! | [`REMOTE_CLIENTS_MAX`] clients with a certificate or the token | one more is closed, and counted |
//! | [`STRANGERS_MAX`] others | the oldest gives its place to the next, and is counted |
//! | [`STRANGERS_PER_SOURCE_MAX`] others of a source: an IPv4 address, or the /64 of an IPv6 address | the same |

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

/// Limit on the clients over TCP that have shown a certificate or the token, per socket.
pub const REMOTE_CLIENTS_MAX: usize = 32;
/// Limit on the other connections over TCP, per socket.
pub const STRANGERS_MAX: usize = 256;
/// Limit on these of one source.
pub const STRANGERS_PER_SOURCE_MAX: usize = 16;

/// The places of a socket.
#[derive(Clone, Default)]
pub(crate) struct Door(Arc<Mutex<Places>>);

#[derive(Default)]
struct Places {
    /// Connections by their number, in the order of arrival.
    taken: BTreeMap<u64, Taken>,
    count: u64,
}

struct Taken {
    source: Source,
    /// Set once the client has shown a certificate or the token.
    is_known: bool,
    task: Option<AbortHandle>,
}

/// A source of connections: its address, without the part that a host chooses.
type Source = [u8; 8];

/// The place of a connection; it is free once this is dropped.
pub(crate) struct Place {
    door: Door,
    number: u64,
}

fn source_of(address: IpAddr) -> Source {
    let mut source = [0; 8];
    match address.to_canonical() {
        IpAddr::V4(address) => source[4..].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => source.copy_from_slice(&address.octets()[..8]),
    }
    source
}

impl Door {
    fn with<T>(&self, change: impl FnOnce(&mut Places) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a connection. Returns its place, and the connection that must end for it.
    pub fn enter(&self, from: IpAddr) -> (Place, Option<AbortHandle>) {
        let source = source_of(from);
        let (number, displaced) = self.with(|places| {
            let displaced = places.make_room(source);
            places.count += 1;
            places.taken.insert(places.count, Taken { source, is_known: false, task: None });
            (places.count, displaced)
        });
        (Place { door: self.clone(), number }, displaced)
    }

    /// Notes the task of a connection, unless it has ended.
    pub fn note_task(&self, number: u64, task: AbortHandle) {
        self.with(|places| {
            if let Some(taken) = places.taken.get_mut(&number) {
                taken.task = Some(task);
            }
        });
    }
}

impl Places {
    /// Removes the oldest stranger of the source, or of all, if there is no room for one more.
    fn make_room(&mut self, source: Source) -> Option<AbortHandle> {
        let strangers = || self.taken.iter().filter(|(_, taken)| !taken.is_known);
        let of_source = || strangers().filter(|(_, taken)| taken.source == source);
        let oldest = if of_source().count() >= STRANGERS_PER_SOURCE_MAX {
            of_source().next()
        } else if strangers().count() >= STRANGERS_MAX {
            strangers().next()
        } else {
            None
        };
        let number = *oldest?.0;
        self.taken.remove(&number)?.task
    }
}

impl Place {
    /// Returns the number of the connection.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Notes that the client has shown a certificate or the token. Returns false if there are as
    /// many such clients as there may be.
    pub fn know(&self) -> bool {
        self.door.with(|places| {
            let known = places.taken.values().filter(|taken| taken.is_known).count();
            let Some(taken) = places.taken.get_mut(&self.number) else { return false };
            taken.is_known |= known < REMOTE_CLIENTS_MAX;
            taken.is_known
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.door.with(|places| places.taken.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn numbers(door: &Door) -> Vec<u64> {
        door.with(|places| places.taken.keys().copied().collect())
    }

    #[test]
    fn the_oldest_stranger_of_a_full_source_goes() {
        let door = Door::default();
        let (other, _) = door.enter(OTHER);
        let mut held: Vec<Place> = (0..=STRANGERS_PER_SOURCE_MAX).map(|_| door.enter(ONE).0).collect();
        // The first of that source is gone, not the one before.
        let last = STRANGERS_PER_SOURCE_MAX as u64 + 2;
        assert_eq!(numbers(&door), (1..=last).filter(|&number| number != 2).collect::<Vec<_>>());
        // A client that shows something makes room for a stranger.
        assert!(held[1].know() && held[1].know(), "it may say so twice");
        held.push(door.enter(ONE).0);
        assert!(numbers(&door).contains(&3) && numbers(&door).contains(&4));
        drop(other);
        held.clear();
        assert!(numbers(&door).is_empty());
    }

    #[test]
    fn the_oldest_stranger_of_all_goes_and_known_ones_stay() {
        let door = Door::default();
        let from = |at: usize| IpAddr::from([10, 1, (at / 200) as u8, (at % 200) as u8]);
        let mut held: Vec<Place> = (0..STRANGERS_MAX).map(|at| door.enter(from(at)).0).collect();
        assert!(held[1].know());
        // One place is free now, and then two give way.
        held.extend((0..3).map(|at| door.enter(from(1_000 + at)).0));
        assert_eq!(numbers(&door)[..3], [2, 4, 5]);
        assert!(!held[0].know(), "it was displaced");
        let known = held.iter().skip(10).filter(|place| place.know()).count();
        assert_eq!(known, REMOTE_CLIENTS_MAX - 1);
    }

    #[test]
    fn sources_of_ipv6_are_networks() {
        let source = |text: &str| text.parse().map(source_of).ok();
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
    }
}
