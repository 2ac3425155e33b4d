//! Who is behind which address on the link: learned by asking, with frames that wait meanwhile (RFC
//! 1122 2.3.2, RFC 4861 7).

use std::collections::{BTreeMap, VecDeque};

use packet::Addr;
use packet::wire::MacAddress;

/// Neighbours that a port knows, or asks for, at most; beyond them, the one that was confirmed
/// longest ago is forgotten, but none whose frames wait: if there are such alone, frames to others
/// are lost.
pub const NEIGHBOURS_MAX: usize = 4_096;

/// Frames that wait for a neighbour's address at most; beyond them, the oldest is dropped.
pub const QUEUE_MAX: usize = 64;

const SECOND_NS: u64 = 1_000_000_000;

/// How long an address is believed without being asked for again (RFC 4861's REACHABLE_TIME).
const REACHABLE_NS: u64 = 30 * SECOND_NS;

/// How long it is used while answers to being asked again are missing.
const STALE_NS: u64 = REACHABLE_NS + 5 * SECOND_NS;

/// How long an answer is waited for (RFC 4861's RETRANS_TIMER).
const ASK_AGAIN_NS: u64 = SECOND_NS;

/// How often a neighbour is asked for that nobody has told of (RFC 4861's MAX_MULTICAST_SOLICIT).
const ASKS_MAX: u8 = 3;

/// The neighbours of one port.
#[derive(Default)]
pub(crate) struct Neighbours {
    known: BTreeMap<u128, Neighbour>,
    /// Before this time, no answer is overdue.
    due_ns: u64,
}

#[derive(Default)]
struct Neighbour {
    mac: Option<MacAddress>,
    confirmed_ns: u64,
    asked_ns: u64,
    asks: u8,
    waiting: VecDeque<Vec<u8>>,
}

/// What is known of a neighbour.
pub(crate) enum Found {
    /// Its address; `ask`: it is to be asked for again.
    Here { mac: MacAddress, ask: bool },
    /// Nothing yet: the frame waits; `ask`: it is to be asked for; `lost`: a frame had to make way,
    /// this one or another.
    Waits { ask: bool, lost: bool },
}

impl Neighbours {
    /// The neighbour with this address, for a frame that waits if it is not known.
    pub fn find(&mut self, address: Addr, frame: &[u8], now_ns: u64) -> Found {
        let Some(neighbour) = self.entry(address) else { return Found::Waits { ask: false, lost: true } };
        match neighbour.mac {
            Some(mac) if now_ns < neighbour.confirmed_ns + STALE_NS => {
                let is_old = now_ns >= neighbour.confirmed_ns + REACHABLE_NS;
                let ask = is_old && now_ns >= neighbour.asked_ns + ASK_AGAIN_NS;
                if ask {
                    neighbour.asked_ns = now_ns;
                }
                Found::Here { mac, ask }
            }
            _ => {
                neighbour.mac = None;
                let lost = neighbour.waiting.len() == QUEUE_MAX && neighbour.waiting.pop_front().is_some();
                neighbour.waiting.push_back(frame.to_vec());
                let ask = neighbour.asks == 0;
                if ask {
                    (neighbour.asks, neighbour.asked_ns) = (1, now_ns);
                    self.due_ns = self.due_ns.min(now_ns + ASK_AGAIN_NS);
                }
                Found::Waits { ask, lost }
            }
        }
    }

    /// Somebody says who has the address; the frames that waited for it. One that was not asked for
    /// is learned only if it spoke to us, `spoke`.
    pub fn learn(&mut self, address: Addr, mac: MacAddress, spoke: bool, now_ns: u64) -> VecDeque<Vec<u8>> {
        let number = address.to_u128();
        if mac.is_multicast() || !(spoke || self.known.contains_key(&number)) {
            return VecDeque::new();
        }
        let Some(neighbour) = self.entry(address) else { return VecDeque::new() };
        (neighbour.mac, neighbour.confirmed_ns, neighbour.asks) = (Some(mac), now_ns, 0);
        std::mem::take(&mut neighbour.waiting)
    }

    /// Whose answers are overdue: those to ask for again, and the frames of those that are given
    /// up.
    pub fn overdue(&mut self, now_ns: u64, ask: &mut Vec<Addr>, lost: &mut Vec<Vec<u8>>) {
        if now_ns < self.due_ns {
            return;
        }
        self.due_ns = u64::MAX;
        self.known.retain(|&number, neighbour| {
            if neighbour.mac.is_some() {
                return true;
            }
            if now_ns >= neighbour.asked_ns + ASK_AGAIN_NS {
                if neighbour.asks >= ASKS_MAX {
                    lost.extend(neighbour.waiting.drain(..));
                    return false;
                }
                neighbour.asks += 1;
                neighbour.asked_ns = now_ns;
                ask.push(Addr::from_u128(number));
            }
            self.due_ns = self.due_ns.min(neighbour.asked_ns + ASK_AGAIN_NS);
            true
        });
    }

    /// The link was down, and whoever is on it may have another address now: all are asked for
    /// again with the next frame to them, and used as they were known until they answer. Those that
    /// are asked for already are so anew: nobody heard the questions.
    pub fn doubt(&mut self, now_ns: u64) {
        for neighbour in self.known.values_mut() {
            neighbour.confirmed_ns = neighbour.confirmed_ns.min(now_ns.saturating_sub(REACHABLE_NS));
            neighbour.asked_ns = neighbour.asked_ns.min(now_ns.saturating_sub(ASK_AGAIN_NS));
            neighbour.asks = 0;
        }
        self.due_ns = 0;
    }

    /// Frames that wait.
    pub fn waiting(&self) -> u64 {
        self.known.values().map(|neighbour| neighbour.waiting.len() as u64).sum()
    }

    /// The entry of an address, which makes way for none whose frames wait: they would be lost
    /// without a word.
    fn entry(&mut self, address: Addr) -> Option<&mut Neighbour> {
        let number = address.to_u128();
        if !self.known.contains_key(&number) && self.known.len() >= NEIGHBOURS_MAX {
            let settled = self.known.iter().filter(|(_, neighbour)| neighbour.waiting.is_empty());
            let oldest = settled.min_by_key(|(_, neighbour)| neighbour.confirmed_ns);
            let oldest = oldest.map(|(&number, _)| number)?;
            self.known.remove(&oldest);
        }
        Some(self.known.entry(number).or_default())
    }
}
