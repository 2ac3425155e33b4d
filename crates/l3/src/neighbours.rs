//! The neighbour table: link-layer addresses, learned by solicitation while packets wait (RFC 1122
//! 2.3.2, RFC 4861 7).

use std::collections::{BTreeMap, VecDeque};

use packet::Addr;
use packet::wire::MacAddress;

/// Limit on the neighbours of a port, known or solicited. When full, the one confirmed longest ago
/// is evicted. Those with pending packets are not: if all have some, packets to others are lost.
pub const NEIGHBOURS_MAX: usize = 4_096;

/// Limit on the packets pending for a neighbour. When full, the oldest is dropped.
pub const PENDING_PER_NEIGHBOUR_MAX: usize = 64;

const SECOND_NS: u64 = 1_000_000_000;

/// Time that an address is used without a new solicitation (RFC 4861's REACHABLE_TIME).
const REACHABLE_NS: u64 = 30 * SECOND_NS;

/// Time that it is still used without an answer to that solicitation.
const STALE_NS: u64 = REACHABLE_NS + 5 * SECOND_NS;

/// Interval between solicitations (RFC 4861's RETRANS_TIMER).
const RETRANSMIT_NS: u64 = SECOND_NS;

/// Limit on the solicitations of an unknown neighbour (RFC 4861's MAX_MULTICAST_SOLICIT).
const SOLICITS_MAX: u8 = 3;

/// The neighbours of a port.
#[derive(Default)]
pub(crate) struct Neighbours {
    known: BTreeMap<u128, Neighbour>,
    /// No answer is overdue before this time.
    deadline_ns: u64,
}

#[derive(Default)]
struct Neighbour {
    mac: Option<MacAddress>,
    confirmed_ns: u64,
    solicited_ns: u64,
    solicits: u8,
    pending: VecDeque<Vec<u8>>,
}

/// The state of a neighbour.
pub(crate) enum LookupResult {
    /// Its address is known; `solicit` if it must be confirmed.
    Resolved { mac: MacAddress, solicit: bool },
    /// Its address is unknown and the packet is pending; `solicit` if it must be solicited; `lost`
    /// if a packet was dropped, this one or another.
    Pending { solicit: bool, lost: bool },
}

impl Neighbours {
    /// Looks up the neighbour for a packet, which becomes pending if it is unknown.
    pub fn find(&mut self, address: Addr, frame: &[u8], now_ns: u64) -> LookupResult {
        let Some(neighbour) = self.entry(address) else {
            return LookupResult::Pending { solicit: false, lost: true };
        };
        match neighbour.mac {
            Some(mac) if now_ns < neighbour.confirmed_ns + STALE_NS => {
                let is_old = now_ns >= neighbour.confirmed_ns + REACHABLE_NS;
                let solicit = is_old && now_ns >= neighbour.solicited_ns + RETRANSMIT_NS;
                if solicit {
                    neighbour.solicited_ns = now_ns;
                }
                LookupResult::Resolved { mac, solicit }
            }
            _ => {
                neighbour.mac = None;
                let lost = neighbour.pending.len() == PENDING_PER_NEIGHBOUR_MAX
                    && neighbour.pending.pop_front().is_some();
                neighbour.pending.push_back(frame.to_vec());
                let solicit = neighbour.solicits == 0;
                if solicit {
                    (neighbour.solicits, neighbour.solicited_ns) = (1, now_ns);
                    self.deadline_ns = self.deadline_ns.min(now_ns + RETRANSMIT_NS);
                }
                LookupResult::Pending { solicit, lost }
            }
        }
    }

    /// Learns a neighbour's address and returns its pending packets. Unsolicited ones are learned
    /// only if they spoke to this port (`spoke`).
    pub fn learn(&mut self, address: Addr, mac: MacAddress, spoke: bool, now_ns: u64) -> VecDeque<Vec<u8>> {
        let number = address.to_u128();
        if mac.is_multicast() || !(spoke || self.known.contains_key(&number)) {
            return VecDeque::new();
        }
        let Some(neighbour) = self.entry(address) else { return VecDeque::new() };
        (neighbour.mac, neighbour.confirmed_ns, neighbour.solicits) = (Some(mac), now_ns, 0);
        std::mem::take(&mut neighbour.pending)
    }

    /// Collects the neighbours to solicit again, and the packets of those given up.
    pub fn expire(&mut self, now_ns: u64, solicit: &mut Vec<Addr>, lost: &mut Vec<Vec<u8>>) {
        if now_ns < self.deadline_ns {
            return;
        }
        self.deadline_ns = u64::MAX;
        self.known.retain(|&number, neighbour| {
            if neighbour.mac.is_some() {
                return true;
            }
            if now_ns >= neighbour.solicited_ns + RETRANSMIT_NS {
                if neighbour.solicits >= SOLICITS_MAX {
                    lost.extend(neighbour.pending.drain(..));
                    return false;
                }
                neighbour.solicits += 1;
                neighbour.solicited_ns = now_ns;
                solicit.push(Addr::from_u128(number));
            }
            self.deadline_ns = self.deadline_ns.min(neighbour.solicited_ns + RETRANSMIT_NS);
            true
        });
    }

    /// Marks all neighbours as stale after the link was down. They are solicited with the next
    /// packet and used in the meantime. Outstanding solicitations are repeated, as they were lost.
    pub fn mark_stale(&mut self, now_ns: u64) {
        for neighbour in self.known.values_mut() {
            neighbour.confirmed_ns = neighbour.confirmed_ns.min(now_ns.saturating_sub(REACHABLE_NS));
            neighbour.solicited_ns = neighbour.solicited_ns.min(now_ns.saturating_sub(RETRANSMIT_NS));
            neighbour.solicits = 0;
        }
        self.deadline_ns = 0;
    }

    /// Returns the number of pending packets.
    pub fn pending(&self) -> u64 {
        self.known.values().map(|neighbour| neighbour.pending.len() as u64).sum()
    }

    /// Returns the entry of an address. Neighbours with pending packets are not evicted, as these
    /// would be lost silently.
    fn entry(&mut self, address: Addr) -> Option<&mut Neighbour> {
        let number = address.to_u128();
        if !self.known.contains_key(&number) && self.known.len() >= NEIGHBOURS_MAX {
            let settled = self.known.iter().filter(|(_, neighbour)| neighbour.pending.is_empty());
            let oldest = settled.min_by_key(|(_, neighbour)| neighbour.confirmed_ns);
            let oldest = oldest.map(|(&number, _)| number)?;
            self.known.remove(&oldest);
        }
        Some(self.known.entry(number).or_default())
    }
}
