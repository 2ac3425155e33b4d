//! Whether a flow's connection is established, as rules ask: by what its hosts heed of it.
//! [`Connection`] goes by flags alone, which anybody can forge.

use nf::stream::StreamEventKind;
use nf::{Connection, PacketView};
use packet::parse::protocol;
use packet::{Direction, PacketClass};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What its connection has come to: the phase up to established ([`Connection::phase`]), and
/// [`RESET`]. The zero value is that of a flow that has not begun.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Standing(u8);

/// It was reset, and nothing came since.
const RESET: u8 = 0x80;
/// Its first packet was the server's SYN with ACK.
const ANSWER_FIRST: u8 = 0x40;

/// TCP flags (RFC 9293 3.1).
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

impl Standing {
    /// A packet comes this way, to the server (original) or from it: its flags count but for those
    /// of an end, and what it brings to its streams. A reset that it brings counts from the next
    /// packet on: see [`Standing::reset`]. `async_oneside`: who goes on after its SYN was answered,
    /// though that was not seen.
    pub fn packet(&mut self, packet: &PacketView<'_>, direction: Direction, async_oneside: bool) {
        let meta = packet.meta();
        if matches!(meta.class, PacketClass::IcmpError | PacketClass::LaterFragment) {
            return;
        }
        let brings = |is: fn(&StreamEventKind<'_>) -> bool| packet.stream().any(|event| is(&event.kind));
        if self.0 & RESET != 0 && brings(|kind| matches!(kind, StreamEventKind::Data(_))) {
            // The hosts did not heed it.
            self.0 &= !RESET;
        }
        if meta.protocol == protocol::TCP {
            if meta.tcp_flags & RST != 0 {
                return;
            }
            if meta.tcp_flags & SYN != 0 && brings(|kind| *kind == StreamEventKind::Restart) {
                *self = Standing::default();
            }
        }
        let before = self.phase();
        let is_tcp = meta.protocol == protocol::TCP;
        let is_syn = meta.tcp_flags & SYN != 0;
        let phase = match before {
            // The client's SYN was not seen, but this is what answers it.
            Connection::NEW if is_tcp && is_syn && meta.tcp_flags & ACK != 0 => {
                self.0 |= ANSWER_FIRST;
                Connection::SYN_RECEIVED
            }
            // Its server goes on, so its client has acknowledged that.
            Connection::SYN_RECEIVED if self.0 & ANSWER_FIRST != 0 && !is_syn => Connection::ESTABLISHED,
            Connection::SYN_SENT if async_oneside && !is_syn && direction == Direction::Original => {
                Connection::ESTABLISHED
            }
            before => before.after_whole(meta.protocol, meta.tcp_flags & !FIN, direction),
        };
        self.0 = phase.phase() | self.0 & (RESET | ANSWER_FIRST);
    }

    /// Its hosts heeded a reset.
    pub fn reset(&mut self) {
        if self.is_established() {
            self.0 |= RESET;
        }
    }

    /// Whether it counts as established.
    pub fn is_established(self) -> bool {
        self.0 & RESET == 0 && self.was_established()
    }

    /// Whether it was established once, even if it was reset since.
    pub fn was_established(self) -> bool {
        let phase = self.phase();
        phase.is_established() || phase == Connection::PICKED_UP
    }

    fn phase(self) -> Connection {
        Connection::from_phase(self.0 & !(RESET | ANSWER_FIRST))
    }
}
