//! Telling neighbours of addresses that are here, without being asked (RFC 5227 3, RFC 4861 7.2.6):
//! in turn, so that a large pool is no flood.

use std::net::IpAddr;

use packet::Addr;
use packet::wire::MacAddress;

use crate::{arp, solicit};

/// Addresses of functions that a port announces at most. Of a range that is beyond it, such as a
/// routed IPv6 prefix, none is.
pub const ANNOUNCED_MAX: u64 = 4_096;

/// Addresses of functions that are announced in a millisecond at most.
pub const ANNOUNCEMENTS_PER_MS: u64 = 1;

/// Of these, at once at most.
const AT_ONCE: u64 = 32;

/// How often each is announced, and how long after the first time it is again.
const ROUNDS: u8 = 2;
const ROUND_NS: u64 = 2_000_000_000;

const MS_NS: u64 = 1_000_000;

/// The addresses of functions, and how far their announcement has come.
pub(crate) struct Announcements {
    ranges: Vec<(u128, u128)>,
    /// Addresses that are in no range that is announced.
    left_out: u128,
    /// Rounds that are still to be made.
    rounds: u8,
    /// Where the round stands: in which range, at which address of it.
    at: (usize, u128),
    /// When the round began; none: it has not.
    began_ns: Option<u64>,
    /// How many this round may have announced up to now, at most.
    allowed: u64,
    done: u64,
}

impl Announcements {
    /// Of these addresses.
    pub fn new(owned: &[(Addr, Addr)]) -> Announcements {
        let (mut ranges, mut left_out, mut count) = (Vec::new(), 0_u128, 0_u128);
        for (first, last) in owned.iter().map(|(first, last)| (first.to_u128(), last.to_u128())) {
            let len = last.saturating_sub(first).saturating_add(1);
            if count + len.min(1 << 64) > u128::from(ANNOUNCED_MAX) {
                left_out = left_out.saturating_add(len);
            } else {
                count += len;
                ranges.push((first, last));
            }
        }
        Announcements { ranges, left_out, rounds: ROUNDS, at: (0, 0), began_ns: None, allowed: 0, done: 0 }
    }

    /// Begins again.
    pub fn restart(&mut self) {
        (self.rounds, self.at, self.began_ns, self.done) = (ROUNDS, (0, 0), None, 0);
    }

    /// Addresses that are not announced: they are too many.
    pub fn left_out(&self) -> u64 {
        u64::try_from(self.left_out).unwrap_or(u64::MAX)
    }

    /// The addresses to announce now; and whether a later round begins, in which the port's own are
    /// announced again, too.
    pub fn due(&mut self, now_ns: u64) -> (Vec<Addr>, bool) {
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

/// A frame that tells all that the address is at this card.
pub(crate) fn announcement(mac: MacAddress, address: Addr) -> Vec<u8> {
    match address.ip() {
        IpAddr::V4(own) => arp::request((mac, own), own),
        IpAddr::V6(own) => solicit::advertisement((mac, own), None),
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
    fn a_pool_is_announced_twice_and_not_at_once() {
        let mut announcements = Announcements::new(&[(v4(0), v4(255)), (v4(1_000), v4(1_000))]);
        let mut all = Vec::new();
        let (mut most, mut agains) = (0, 0);
        for ms in 0..5_000 {
            let (due, again) = announcements.due(SECOND_NS + ms * MS_NS);
            most = most.max(due.len());
            agains += usize::from(again);
            all.extend(due);
        }
        assert_eq!((all.len(), most, agains), (2 * 257, 32, 1));
        assert!(all[..257] == all[257..] && all[256] == v4(1_000));
        announcements.restart();
        assert_eq!(announcements.due(9 * SECOND_NS).0.len(), 32);
    }

    #[test]
    fn ranges_that_are_too_long_are_left_out_and_counted() {
        let prefix = |last: u16| -> Addr {
            IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 7, last, last, last, last, last)).into()
        };
        let announcements = Announcements::new(&[(prefix(0), prefix(u16::MAX)), (v4(1), v4(2))]);
        assert_eq!((announcements.left_out(), announcements.ranges.len()), (u64::MAX, 1));
        let announcements = Announcements::new(&[(v4(0), v4(ANNOUNCED_MAX as u32))]);
        assert_eq!(announcements.left_out(), ANNOUNCED_MAX + 1);
    }
}
