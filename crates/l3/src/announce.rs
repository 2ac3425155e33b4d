//! Unsolicited announcements of addresses (RFC 5227 3, RFC 4861 7.2.6), paced so that a large pool
//! does not flood the link.

use std::net::IpAddr;

use packet::Addr;
use packet::wire::MacAddress;

use crate::{arp, nd};

/// Limit on the NFs' addresses that a port announces. A range beyond it, such as a routed IPv6
/// prefix, is not announced at all.
pub const ANNOUNCED_MAX: u64 = 4_096;

/// Limit on the announcements of NFs' addresses per millisecond.
pub const ANNOUNCEMENTS_PER_MS: u64 = 1;

/// Limit on the announcements at once.
const AT_ONCE: u64 = 32;

/// Rounds of announcements, and the time between two rounds.
const ROUNDS: u8 = 2;
const ROUND_NS: u64 = 2_000_000_000;

const MS_NS: u64 = 1_000_000;

/// The addresses of NFs, and the progress of their announcement.
pub(crate) struct Announcements {
    ranges: Vec<(u128, u128)>,
    /// Number of those ranges, from the first, that are configured. Further ones were in use when
    /// the link came up.
    configured: usize,
    /// Number of addresses in ranges that are not announced.
    omitted: u128,
    /// Rounds left.
    rounds: u8,
    /// Position in the round: range, and address within it.
    at: (usize, u128),
    /// Start of the round; `None` before the first.
    began_ns: Option<u64>,
    /// Limit on the announcements of this round so far.
    allowed: u64,
    done: u64,
}

impl Announcements {
    /// Returns the announcements of these ranges.
    pub fn new(owned: &[(Addr, Addr)]) -> Announcements {
        let (mut ranges, mut omitted, mut count) = (Vec::new(), 0_u128, 0_u128);
        for (first, last) in owned.iter().map(|(first, last)| (first.to_u128(), last.to_u128())) {
            let len = last.saturating_sub(first).saturating_add(1);
            if count + len.min(1 << 64) > u128::from(ANNOUNCED_MAX) {
                omitted = omitted.saturating_add(len);
            } else {
                count += len;
                ranges.push((first, last));
            }
        }
        let configured = ranges.len();
        Announcements {
            ranges,
            configured,
            omitted,
            rounds: ROUNDS,
            at: (0, 0),
            began_ns: None,
            allowed: 0,
            done: 0,
        }
    }

    /// Starts over, also with these addresses in use, up to the limit.
    pub fn restart(&mut self, in_use: impl Iterator<Item = Addr>) {
        (self.rounds, self.at, self.began_ns, self.done) = (ROUNDS, (0, 0), None, 0);
        self.ranges.truncate(self.configured);
        let count: u128 = self.ranges.iter().map(|(first, last)| last - first + 1).sum();
        let room = u128::from(ANNOUNCED_MAX).saturating_sub(count) as usize;
        let in_use = in_use.map(|address| (address.to_u128(), address.to_u128()));
        self.ranges.extend(in_use.take(room));
    }

    /// Returns the number of addresses not announced because there are too many.
    pub fn omitted(&self) -> u64 {
        u64::try_from(self.omitted).unwrap_or(u64::MAX)
    }

    /// Returns the addresses to announce now, and true at the start of a later round, when the
    /// port's own are announced again.
    pub fn take_due(&mut self, now_ns: u64) -> (Vec<Addr>, bool) {
        let (mut due, mut again) = (Vec::new(), false);
        if self.rounds == 0 {
            return (due, again);
        }
        let began_ns = match self.began_ns {
            Some(began_ns) if began_ns > now_ns => return (due, again),
            Some(began_ns) => {
                again = self.rounds < ROUNDS && self.done == 0 && self.at == (0, 0);
                began_ns
            }
            None => *self.began_ns.insert(now_ns),
        };
        self.allowed = AT_ONCE + (now_ns - began_ns) / MS_NS * ANNOUNCEMENTS_PER_MS;
        while self.done < self.allowed && (due.len() as u64) < AT_ONCE {
            let Some(&(first, last)) = self.ranges.get(self.at.0) else {
                self.rounds -= 1;
                (self.at, self.began_ns, self.done) = ((0, 0), Some(began_ns + ROUND_NS), 0);
                break;
            };
            due.push(Addr::from_u128(first + self.at.1));
            self.done += 1;
            self.at = if first + self.at.1 == last { (self.at.0 + 1, 0) } else { (self.at.0, self.at.1 + 1) };
        }
        (due, again)
    }
}

/// Builds a frame that announces the address to all.
pub(crate) fn announcement(mac: MacAddress, address: Addr) -> Vec<u8> {
    match address.ip() {
        IpAddr::V4(own) => arp::request((mac, own), own),
        IpAddr::V6(own) => nd::advertisement((mac, own), None, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn v4(last: u32) -> Addr {
        Addr::from_v4_bytes((0x0a00_0000 + last).to_be_bytes())
    }

    #[test]
    fn pool_is_announced_twice_and_paced() {
        let mut announcements = Announcements::new(&[(v4(0), v4(255)), (v4(1_000), v4(1_000))]);
        let mut all = Vec::new();
        let (mut most, mut agains) = (0, 0);
        for ms in 0..5_000 {
            let (due, again) = announcements.take_due(SECOND_NS + ms * MS_NS);
            most = most.max(due.len());
            agains += usize::from(again);
            all.extend(due);
        }
        assert_eq!((all.len(), most, agains), (2 * 257, 32, 1));
        assert!(all[..257] == all[257..] && all[256] == v4(1_000));
        announcements.restart([v4(2_000)].into_iter());
        let all: Vec<_> =
            (0..1_000).flat_map(|ms| announcements.take_due(9 * SECOND_NS + ms * MS_NS).0).collect();
        assert_eq!((all.len(), all.last()), (258, Some(&v4(2_000))), "with an address in use");
        announcements.restart(std::iter::empty());
        assert_eq!(announcements.take_due(19 * SECOND_NS).0.len(), 32);
    }

    #[test]
    fn ranges_over_the_limit_are_omitted_and_counted() {
        let prefix = |last: u16| -> Addr {
            IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 7, last, last, last, last, last)).into()
        };
        let announcements = Announcements::new(&[(prefix(0), prefix(u16::MAX)), (v4(1), v4(2))]);
        assert_eq!((announcements.omitted(), announcements.ranges.len()), (u64::MAX, 1));
        let announcements = Announcements::new(&[(v4(0), v4(ANNOUNCED_MAX as u32))]);
        assert_eq!(announcements.omitted(), ANNOUNCED_MAX + 1);
    }
}
