//! What a flow's connection has come to: tracked once by the chain for all functions (B2).
//!
//! A coarse tracker, from TCP flags and directions alone; whoever needs sequence numbers keeps them
//! in its own state.

use packet::parse::protocol;
use packet::{Direction, Meta, PacketClass};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A connection's phase, for any protocol. As bytes in the flow's record; the zero value is
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
    /// Packets of the original direction only: not TCP.
    pub const UNREPLIED: Connection = Connection(1);
    /// Packets of both directions: not TCP.
    pub const REPLIED: Connection = Connection(2);
    /// TCP: a SYN of the original direction.
    pub const SYN_SENT: Connection = Connection(3);
    /// TCP: a SYN with ACK, or a SYN of a simultaneous open (RFC 5382 REQ-2), of the reply
    /// direction.
    pub const SYN_RECEIVED: Connection = Connection(4);
    /// TCP: data may flow both ways.
    pub const ESTABLISHED: Connection = Connection(5);
    /// TCP: a FIN of the original direction.
    pub const FIN_ORIGINAL: Connection = Connection(6);
    /// TCP: a FIN of the reply direction.
    pub const FIN_REPLY: Connection = Connection(7);
    /// TCP: FINs of both directions.
    pub const CLOSED: Connection = Connection(8);
    /// TCP: a RST.
    pub const RESET: Connection = Connection(9);
    /// TCP: began in the middle, without a SYN that we saw.
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

    /// The phase that [`packet::Transit::phase`] stands for.
    #[inline]
    pub const fn from_phase(phase: u8) -> Connection {
        Connection(phase)
    }

    /// The phase as [`packet::Transit::phase`].
    #[inline]
    pub const fn phase(self) -> u8 {
        self.0
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        Connection::NAMES.get(self.0 as usize).copied().unwrap_or("?")
    }

    /// Whether packets have gone both ways and the connection is not over: what NATs call
    /// established.
    #[inline]
    pub fn is_established(self) -> bool {
        matches!(self, Connection::REPLIED | Connection::ESTABLISHED)
    }

    /// Whether the connection never was open, or is over: then the flow is the first to give way.
    #[inline]
    pub fn gives_way(self) -> bool {
        !matches!(
            self,
            Connection::REPLIED | Connection::ESTABLISHED | Connection::FIN_ORIGINAL | Connection::FIN_REPLY
        )
    }

    /// Whether the connection is over, but for stragglers.
    #[inline]
    pub fn is_over(self) -> bool {
        matches!(self, Connection::CLOSED | Connection::RESET)
    }

    /// The phase after this packet.
    pub fn after(self, meta: &Meta, direction: Direction) -> Connection {
        match meta.class {
            // They say nothing about the connection itself.
            PacketClass::IcmpError | PacketClass::LaterFragment => self,
            _ => self.after_whole(meta.protocol, meta.tcp_flags, direction),
        }
    }

    /// The phase after a packet with a transport header of the flow's own protocol.
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

    #[cold] // Seldom, or at the beginning and the end of a connection.
    #[inline(never)]
    fn after_tcp(self, flags: u8, direction: Direction) -> Connection {
        use Connection as C;
        if flags & RST != 0 {
            return C::RESET;
        }
        if flags & SYN != 0 {
            return match (self, direction, flags & ACK != 0) {
                // A new connection may reuse the ports of one that is over (RFC 9293 3.6.1; RFC
                // 6191).
                (C::NEW | C::CLOSED | C::RESET, Direction::Original, false) => C::SYN_SENT,
                (C::SYN_SENT, Direction::Reply, _) => C::SYN_RECEIVED,
                // The peer gave up its half of the connection, and accepts a new one (RFC 9293
                // 3.5.1).
                (C::FIN_ORIGINAL | C::FIN_REPLY, Direction::Reply, true) => C::ESTABLISHED,
                // The other end opened the next one.
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
    fn follows_a_connection_from_syn_to_fin() {
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
    fn a_simultaneous_open_and_one_in_the_middle_are_understood() {
        use Direction::{Original as O, Reply as R};
        assert_eq!(run(&[(O, 0x02), (R, 0x02), (O, 0x12)]), Connection::SYN_RECEIVED);
        assert_eq!(run(&[(O, 0x02), (R, 0x02), (O, 0x12), (O, 0x10)]), Connection::ESTABLISHED);
        assert_eq!(run(&[(O, 0x10)]), Connection::PICKED_UP);
        assert_eq!(run(&[(O, 0x10), (R, 0x10)]), Connection::ESTABLISHED);
    }

    #[test]
    fn ports_are_used_again_before_both_ends_have_closed() {
        use Direction::{Original as O, Reply as R};
        let open = [(O, 0x02), (R, 0x12), (O, 0x10)];
        // The server closed and forgot, the client crashed: a new connection, not the rest of one.
        for fin in [(O, 0x11), (R, 0x11)] {
            let steps = [&open[..], &[fin, (O, 0x02), (R, 0x12), (O, 0x10)]].concat();
            assert_eq!(run(&steps), Connection::ESTABLISHED);
        }
        // The last FIN of the old connection comes again while the new one is opened.
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
