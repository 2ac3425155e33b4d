//! Fragments: later ones follow the flow of their first one, whichever comes first (DESIGN 3.8).
//!
//! A later fragment has no ports, so its flow is known only from the first fragment of its datagram. Until that comes,
//! later ones wait here; the number of datagrams, the fragments waiting in each, and the time are bounded.

use std::collections::{HashMap, VecDeque};

use packet::{FlowHasher, FlowKey, Packet, parse, split_mix};

/// Fragments that wait for the first one of their datagram at most: a 64 KiB datagram in fragments of 1,500 bytes.
pub const WAITING_MAX: usize = 64;

/// Which datagram a fragment is of: addresses and protocol in one direction, and the identification field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    key: FlowKey,
    reversed: bool,
    id: u32,
}

/// What is known of a datagram's first fragment.
pub(crate) enum First {
    /// It has not come; these wait for it.
    Missing(Vec<Packet>),
    /// It was of this flow, and went this way.
    Passed {
        /// The flow's key.
        key: FlowKey,
        /// Whether the key is reversed.
        reversed: bool,
    },
    /// It was dropped.
    Dropped,
}

/// Why a fragment cannot wait.
pub(crate) enum Refused {
    TableFull,
    TooMany,
}

/// The datagrams that fragments were seen of.
pub(crate) struct Fragments {
    datagrams: HashMap<Datagram, First>,
    /// In the order in which they were first seen, with the time when they are forgotten.
    ages: VecDeque<(u64, Datagram)>,
    max: usize,
    timeout_ns: u64,
}

impl Datagram {
    /// The datagram that this fragment is of.
    pub(crate) fn of(packet: &Packet) -> Datagram {
        let (mut key, reversed) = parse::portless_key(packet);
        if key.version == 6 {
            key.protocol = 0; // The first fragment may have extension headers that the others have not.
        }
        Datagram { key, reversed, id: parse::fragment_id(packet) }
    }

    /// Well mixed bits, the same for all fragments.
    pub(crate) fn mixed(&self, hasher: &FlowHasher) -> u64 {
        split_mix(&mut (hasher.hash(&self.key) ^ u64::from(self.id)))
    }
}

impl Fragments {
    pub fn new(max: usize, timeout_ns: u64) -> Fragments {
        Fragments { datagrams: HashMap::new(), ages: VecDeque::new(), max, timeout_ns }
    }

    /// What is known of the datagram's first fragment, if anything.
    pub fn get(&self, datagram: &Datagram) -> Option<&First> {
        self.datagrams.get(datagram)
    }

    /// Lets a fragment wait for its first one.
    pub fn wait(&mut self, datagram: Datagram, packet: Packet, now_ns: u64) -> Result<(), (Packet, Refused)> {
        let full = self.datagrams.len() >= self.max;
        match self.datagrams.get_mut(&datagram) {
            Some(First::Missing(waiting)) if waiting.len() < WAITING_MAX => {
                waiting.push(packet);
                Ok(())
            }
            Some(_) => Err((packet, Refused::TooMany)),
            None if full => Err((packet, Refused::TableFull)),
            None => {
                self.datagrams.insert(datagram, First::Missing(vec![packet]));
                self.ages.push_back((now_ns.saturating_add(self.timeout_ns), datagram));
                Ok(())
            }
        }
    }

    /// Notes what became of the first fragment; the fragments that waited for it are added to `waited`. False if the
    /// table is full, so that later fragments will not find it.
    pub fn first(&mut self, datagram: Datagram, first: First, now_ns: u64, waited: &mut Vec<Packet>) -> bool {
        let full = self.datagrams.len() >= self.max;
        match self.datagrams.get_mut(&datagram) {
            Some(known) => {
                if let First::Missing(waiting) = std::mem::replace(known, first) {
                    waited.extend(waiting);
                }
                true
            }
            None if full => false,
            None => {
                self.datagrams.insert(datagram, first);
                self.ages.push_back((now_ns.saturating_add(self.timeout_ns), datagram));
                true
            }
        }
    }

    /// Forgets datagrams whose time is over; fragments that waited in vain are added to `late`.
    pub fn expire(&mut self, now_ns: u64, late: &mut Vec<Packet>) {
        while let Some(&(until, datagram)) = self.ages.front() {
            if until > now_ns {
                return;
            }
            self.ages.pop_front();
            if let Some(First::Missing(waiting)) = self.datagrams.remove(&datagram) {
                late.extend(waiting);
            }
        }
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.ages.is_empty()
    }
}
