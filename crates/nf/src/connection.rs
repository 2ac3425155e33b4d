//! Connection state, tracked once by the graph for all NFs (B2).
//!
//! The tracker is coarse: it uses TCP flags and directions only. NFs that need sequence numbers
//! keep them in their own state.

use packet::parse::protocol;
use packet::{Direction, Meta, PacketClass};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The phase of a connection, for any protocol. Stored as a byte in the flow's record; zero is
/// [`Connection::NEW`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Connection(u8);

/// TCP flags (RFC 9293 3.1).
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

impl Connection {
    /// No packet yet.
    pub const NEW: Connection = Connection(0);
    /// Not TCP: packets of the original direction only.
    pub const UNREPLIED: Connection = Connection(1);
    /// Not TCP: packets of both directions.
    pub const REPLIED: Connection = Connection(2);
    /// TCP: SYN in the original direction.
    pub const SYN_SENT: Connection = Connection(3);
    /// TCP: SYN-ACK, or the SYN of a simultaneous open (RFC 5382 REQ-2), in the reply direction.
    pub const SYN_RECEIVED: Connection = Connection(4);
    /// TCP: data may flow both ways.
    pub const ESTABLISHED: Connection = Connection(5);
    /// TCP: FIN in the original direction.
    pub const FIN_ORIGINAL: Connection = Connection(6);
    /// TCP: FIN in the reply direction.
    pub const FIN_REPLY: Connection = Connection(7);
    /// TCP: FINs in both directions.
    pub const CLOSED: Connection = Connection(8);
    /// TCP: RST.
    pub const RESET: Connection = Connection(9);
    /// TCP: picked up without a SYN.
    pub const PICKED_UP: Connection = Connection(10);

    const NAMES: [&str; 11] = [
        "new",
        "unreplied",
        "replied",
        "syn-sent",
        "syn-received",
        "established",
        "fin-original",
        "fin-reply",
        "closed",
        "reset",
        "picked-up",
    ];

    /// Converts from [`packet::Transit::phase`].
    #[inline]
    pub const fn from_phase(phase: u8) -> Connection {
        Connection(phase)
    }

    /// Converts to [`packet::Transit::phase`].
    #[inline]
    pub const fn phase(self) -> u8 {
        self.0
    }

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        Connection::NAMES.get(self.0 as usize).copied().unwrap_or("?")
    }

    /// Checks if packets went both ways and the connection is open: "established" in NAT terms.
    #[inline]
    pub fn is_established(self) -> bool {
        matches!(self, Connection::REPLIED | Connection::ESTABLISHED)
    }

    /// Checks if the connection never opened, or has closed. Such flows are evicted first.
    #[inline]
    pub fn gives_way(self) -> bool {
        !matches!(
            self,
            Connection::REPLIED | Connection::ESTABLISHED | Connection::FIN_ORIGINAL | Connection::FIN_REPLY
        )
    }

    /// Checks if the connection has closed, except for late packets.
    #[inline]
    pub fn is_over(self) -> bool {
        matches!(self, Connection::CLOSED | Connection::RESET)
    }

    /// Returns the phase after this packet.
    pub fn after(self, meta: &Meta, direction: Direction) -> Connection {
        match meta.class {
            // These say nothing about the connection itself.
            PacketClass::IcmpError | PacketClass::LaterFragment => self,
            _ => self.after_whole(meta.protocol, meta.tcp_flags, direction),
        }
    }

    /// Returns the phase after a packet with a transport header of the flow's own protocol.
    #[inline(always)]
    pub fn after_whole(self, protocol: u8, tcp_flags: u8, direction: Direction) -> Connection {
        if protocol == protocol::TCP {
            let goes_on = self == Connection::ESTABLISHED && tcp_flags & (FIN | SYN | RST) == 0;
            return if goes_on { self } else { self.after_tcp(tcp_flags, direction) };
        }
        match direction {
            Direction::Reply => Connection::REPLIED,
            Direction::Original if self == Connection::NEW => Connection::UNREPLIED,
            Direction::Original => self,
        }
    }

    #[cold] // Rare: the start and end of connections.
    #[inline(never)]
    fn after_tcp(self, flags: u8, direction: Direction) -> Connection {
        use Connection as C;
        if flags & RST != 0 {
            return C::RESET;
        }
        if flags & SYN != 0 {
            return match (self, direction, flags & ACK != 0) {
                // A new connection may reuse the ports of a closed one (RFC 9293 3.6.1; RFC 6191).
                (C::NEW | C::CLOSED | C::RESET, Direction::Original, false) => C::SYN_SENT,
                (C::SYN_SENT, Direction::Reply, _) => C::SYN_RECEIVED,
                // The peer abandoned its half-open connection and accepts a new one (RFC 9293
                // 3.5.1).
                (C::FIN_ORIGINAL | C::FIN_REPLY, Direction::Reply, true) => C::ESTABLISHED,
                // The other end opened the next connection.
                (C::CLOSED | C::RESET, Direction::Original, true) => C::PICKED_UP,
                (C::NEW, _, _) => C::PICKED_UP,
                _ => self,
            };
        }
        if flags & FIN != 0 {
            return match (self, direction) {
                (C::FIN_ORIGINAL, Direction::Reply) | (C::FIN_REPLY, Direction::Original) => C::CLOSED,
                (C::CLOSED | C::RESET, _) => self,
                (_, Direction::Original) => C::FIN_ORIGINAL,
                (_, Direction::Reply) => C::FIN_REPLY,
            };
        }
        match (self, direction) {
            (C::SYN_RECEIVED, Direction::Original) if flags & ACK != 0 => C::ESTABLISHED,
            (C::PICKED_UP, Direction::Reply) => C::ESTABLISHED,
            (C::NEW, _) => C::PICKED_UP,
            _ => self,
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: &[(Direction, u8)]) -> Connection {
        steps.iter().fold(Connection::NEW, |c, &(d, flags)| {
            c.after(&Meta { protocol: 6, tcp_flags: flags, class: PacketClass::Whole, ..Meta::default() }, d)
        })
    }

    #[test]
    fn connection_is_tracked_from_syn_to_fin() {
        use Direction::{Original as O, Reply as R};
        let mut steps = vec![(O, 0x02)];
        assert_eq!(run(&steps), Connection::SYN_SENT);
        steps.push((R, 0x12));
        assert_eq!(run(&steps), Connection::SYN_RECEIVED);
        steps.push((O, 0x10));
        assert_eq!(run(&steps), Connection::ESTABLISHED);
        steps.push((R, 0x11));
        assert_eq!(run(&steps), Connection::FIN_REPLY);
        steps.extend([(O, 0x10), (O, 0x11)]);
        assert_eq!(run(&steps), Connection::CLOSED);
        steps.push((O, 0x02));
        assert_eq!(run(&steps), Connection::SYN_SENT);
        steps.push((R, 0x14));
        assert_eq!(run(&steps), Connection::RESET);
    }

    #[test]
    fn simultaneous_opens_and_pickups_are_tracked() {
        use Direction::{Original as O, Reply as R};
        assert_eq!(run(&[(O, 0x02), (R, 0x02), (O, 0x12)]), Connection::SYN_RECEIVED);
        assert_eq!(run(&[(O, 0x02), (R, 0x02), (O, 0x12), (O, 0x10)]), Connection::ESTABLISHED);
        assert_eq!(run(&[(O, 0x10)]), Connection::PICKED_UP);
        assert_eq!(run(&[(O, 0x10), (R, 0x10)]), Connection::ESTABLISHED);
    }

    #[test]
    fn ports_may_be_reused_before_both_ends_close() {
        use Direction::{Original as O, Reply as R};
        let open = [(O, 0x02), (R, 0x12), (O, 0x10)];
        // The server closed and forgot, the client crashed: a new connection, not the rest of the
        // old one.
        for fin in [(O, 0x11), (R, 0x11)] {
            let steps = [&open[..], &[fin, (O, 0x02), (R, 0x12), (O, 0x10)]].concat();
            assert_eq!(run(&steps), Connection::ESTABLISHED);
        }
        // The last FIN of the old connection is retransmitted while the new one opens.
        let closed = [&open[..], &[(O, 0x11), (R, 0x11)]].concat();
        let steps = [&closed[..], &[(O, 0x02), (R, 0x11), (R, 0x12), (O, 0x10)]].concat();
        assert_eq!(run(&steps), Connection::ESTABLISHED);
        // The other end opens it.
        let steps = [&closed[..], &[(R, 0x02), (O, 0x12), (R, 0x10)]].concat();
        assert_eq!(run(&steps), Connection::ESTABLISHED);
        // Half-open: a challenge ACK and the reset that answers it (RFC 9293, figure 10; RFC 5961
        // 4).
        let steps = [(O, 0x02), (R, 0x10), (O, 0x04), (O, 0x02), (R, 0x12), (O, 0x10)];
        assert_eq!(run(&steps), Connection::ESTABLISHED);
    }
}
