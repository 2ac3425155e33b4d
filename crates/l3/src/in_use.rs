//! Addresses of a prefix that hosts at the port use; neighbours may have others of it.
//!
//! A host uses an address once a packet with it as its source leaves by the port. The port then
//! probes the link, and answers for the address unless a neighbour has it (RFC 4862 5.4). It
//! answers at once, since the first packet's answers arrive before the probe has ended, but does
//! not override a neighbour (RFC 4429 3.3).

use std::collections::BTreeMap;

use std::net::IpAddr;

use packet::Addr;
use packet::wire::MacAddress;

use crate::announce::announcement;
use crate::nd;

/// Limit on the addresses in use at a port. When full, a quarter of them are forgotten: those
/// unused for longest.
pub const IN_USE_MAX: usize = 4_096;

const SECOND_NS: u64 = 1_000_000_000;

/// Time that an address is in use after its last packet.
const IN_USE_NS: u64 = 24 * 3_600 * SECOND_NS;
/// Time for a neighbour to answer the probe (RFC 4861's RETRANS_TIMER).
const PROBE_NS: u64 = SECOND_NS;
/// Time that an address stays a neighbour's, until it is probed again.
const TAKEN_NS: u64 = 60 * SECOND_NS;
/// Interval of reports to the port's other shards.
const SHARE_NS: u64 = 3_600 * SECOND_NS;

/// The addresses in use at a port.
#[derive(Debug, Default)]
pub(crate) struct InUse {
    /// The first and the last address of each range.
    ranges: Vec<(u128, u128)>,
    hosts: BTreeMap<u128, Use>,
    displaced: u64,
}

/// The use of an address.
#[derive(Clone, Copy, Debug)]
struct Use {
    used_ns: u64,
    shared_ns: u64,
    /// Start of the probe.
    probed_ns: u64,
    /// A neighbour has it, since this time.
    taken_ns: Option<u64>,
}

/// The consequence of a packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// None.
    Known,
    /// The address is new here: probe it, and report it to other shards.
    Probe,
    /// Report the address to other shards.
    Share,
    /// The packet must not leave: a neighbour has the address.
    Taken,
}

impl InUse {
    /// Returns a table for these ranges, with nothing in use.
    pub fn new(ranges: &[(Addr, Addr)]) -> InUse {
        let ranges = ranges.iter().map(|(first, last)| (first.to_u128(), last.to_u128())).collect();
        InUse { ranges, ..InUse::default() }
    }

    /// Checks if the address is in a range.
    #[inline]
    pub fn covers(&self, address: Addr) -> bool {
        let number = address.to_u128();
        self.ranges.iter().any(|&(first, last)| (first..=last).contains(&number))
    }

    /// Notes that a packet from this address leaves.
    pub fn note(&mut self, address: Addr, now_ns: u64) -> Leaving {
        let new = Use { used_ns: now_ns, shared_ns: now_ns, probed_ns: now_ns, taken_ns: None };
        let Some(host) = self.hosts.get_mut(&address.to_u128()) else {
            self.insert(address, new);
            return Leaving::Probe;
        };
        match host.taken_ns {
            Some(taken_ns) if now_ns < taken_ns.saturating_add(TAKEN_NS) => return Leaving::Taken,
            Some(_) => {
                *host = new;
                return Leaving::Probe;
            }
            None => {}
        }
        host.used_ns = host.used_ns.max(now_ns);
        if now_ns < host.shared_ns.saturating_add(SHARE_NS) {
            return Leaving::Known;
        }
        host.shared_ns = now_ns;
        Leaving::Share
    }

    /// Takes over an address that another shard of the port has reported. The probe is that
    /// shard's.
    pub fn adopt(&mut self, address: Addr, now_ns: u64) {
        match self.hosts.get_mut(&address.to_u128()) {
            Some(host) => host.used_ns = host.used_ns.max(now_ns),
            None => {
                let host = Use { used_ns: now_ns, shared_ns: now_ns, probed_ns: now_ns, taken_ns: None };
                self.insert(address, host);
            }
        }
    }

    /// Returns whether the port answers for the address, and if so, whether it overrides what
    /// neighbours know.
    pub fn answer(&self, address: Addr, now_ns: u64) -> Option<bool> {
        let host = self.hosts.get(&address.to_u128())?;
        let is_used = host.taken_ns.is_none() && now_ns < host.used_ns.saturating_add(IN_USE_NS);
        is_used.then_some(now_ns >= host.probed_ns.saturating_add(PROBE_NS))
    }

    /// Gives an address up to a neighbour that claims it, if the claim arrives during the probe, or
    /// a neighbour has it already.
    pub fn yield_to_neighbour(&mut self, address: Addr, now_ns: u64) {
        if let Some(host) = self.hosts.get_mut(&address.to_u128())
            && (host.taken_ns.is_some() || now_ns < host.probed_ns.saturating_add(PROBE_NS))
        {
            host.taken_ns = Some(now_ns);
        }
    }

    /// Returns the addresses that are announced when the link comes up.
    pub fn answered(&self, now_ns: u64) -> impl Iterator<Item = Addr> {
        let numbers = self.hosts.keys().copied().map(Addr::from_u128);
        numbers.filter(move |&address| self.answer(address, now_ns) == Some(true))
    }

    /// Returns the number of addresses, and of those forgotten because the table was full.
    pub fn count(&self) -> (u64, u64) {
        (self.hosts.len() as u64, self.displaced)
    }

    fn insert(&mut self, address: Addr, host: Use) {
        if self.hosts.len() >= IN_USE_MAX {
            let mut times: Vec<u64> = self.hosts.values().map(|host| host.used_ns).collect();
            let (_, &mut oldest_ns, _) = times.select_nth_unstable(IN_USE_MAX / 4);
            let mut left = IN_USE_MAX / 4;
            self.hosts.retain(|_, host| {
                let goes = left > 0 && host.used_ns <= oldest_ns;
                left -= usize::from(goes);
                !goes
            });
            self.displaced += (IN_USE_MAX / 4 - left) as u64;
        }
        self.hosts.insert(address.to_u128(), host);
    }
}

/// Adds the probe of an address that a packet has brought into use to `frames`, and what other
/// shards learn of it to `snooped`.
pub(crate) fn tell(
    leaving: Leaving,
    mac: MacAddress,
    address: Addr,
    frames: &mut Vec<Vec<u8>>,
    snooped: Option<&mut Vec<Vec<u8>>>,
) {
    if let (Leaving::Probe, IpAddr::V6(target)) = (leaving, address.ip()) {
        frames.push(nd::probe(mac, target));
    }
    if let (Leaving::Probe | Leaving::Share, Some(snooped)) = (leaving, snooped) {
        snooped.push(announcement(mac, address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(host: u128) -> Addr {
        Addr::from_u128((0x2001_0db8_u128 << 96) + host)
    }

    fn table() -> InUse {
        InUse::new(&[(addr(0), addr(0xffff))])
    }

    #[test]
    fn address_is_answered_for_once_it_is_used() {
        let mut table = table();
        assert!(table.covers(addr(7)) && !table.covers(addr(0x1_0000)));
        assert_eq!(table.answer(addr(7), 0), None);
        assert_eq!(table.note(addr(7), 0), Leaving::Probe);
        assert_eq!(table.answer(addr(7), 1), Some(false), "while it is probed");
        assert_eq!(table.note(addr(7), PROBE_NS), Leaving::Known);
        assert_eq!(table.answer(addr(7), PROBE_NS), Some(true));
        assert_eq!(table.answer(addr(8), PROBE_NS), None);
        // A later claim is a neighbour's fault.
        table.yield_to_neighbour(addr(7), 2 * PROBE_NS);
        assert_eq!(table.answer(addr(7), 2 * PROBE_NS), Some(true));
        assert_eq!(table.note(addr(7), SHARE_NS), Leaving::Share);
        assert_eq!(table.answer(addr(7), SHARE_NS + IN_USE_NS), None, "unused for long");
    }

    #[test]
    fn neighbours_keep_their_addresses() {
        let mut table = table();
        assert_eq!(table.note(addr(7), 0), Leaving::Probe);
        table.yield_to_neighbour(addr(7), PROBE_NS / 2);
        assert_eq!(table.answer(addr(7), PROBE_NS), None);
        assert_eq!(table.note(addr(7), PROBE_NS), Leaving::Taken);
        assert_eq!(table.answered(PROBE_NS).count(), 0);
        // It is probed again later.
        let later = PROBE_NS / 2 + TAKEN_NS;
        assert_eq!(table.note(addr(7), later), Leaving::Probe);
        table.yield_to_neighbour(addr(7), later + 1);
        assert_eq!(table.note(addr(7), later + 2), Leaving::Taken);
    }

    #[test]
    fn full_table_forgets_those_unused_for_longest() {
        let mut table = table();
        for host in 0..IN_USE_MAX as u64 {
            assert_eq!(table.note(addr(host.into()), host * SECOND_NS), Leaving::Probe);
        }
        let now = IN_USE_MAX as u64 * SECOND_NS;
        assert_eq!(table.note(addr(0), now), Leaving::Share);
        assert_eq!(table.note(addr(0xfff0), now), Leaving::Probe);
        assert_eq!(table.count(), (IN_USE_MAX as u64 * 3 / 4 + 1, IN_USE_MAX as u64 / 4));
        assert_eq!(table.answer(addr(1), now), None);
        assert!(table.answer(addr(0), now).is_some() && table.answer(addr(4_000), now).is_some());
    }

    #[test]
    fn shards_adopt_addresses_of_each_other() {
        let mut table = table();
        table.adopt(addr(9), 5);
        assert_eq!(table.answer(addr(9), 6), Some(false));
        assert_eq!(table.answer(addr(9), 5 + PROBE_NS), Some(true));
        assert_eq!(table.note(addr(9), 7), Leaving::Known);
    }
}
