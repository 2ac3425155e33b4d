//! The `established` state of a connection, from the packets that its hosts accept. [`Connection`]
//! relies on flags alone, which are easily forged.

use nf::stream::StreamEventKind;
use nf::{Connection, PacketView};
use packet::parse::protocol;
use packet::{Direction, PacketClass};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The phase of the connection up to established ([`Connection::phase`]), and [`RESET`]. Zero is a
/// flow that has not begun.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct ConnectionStatus(u8);

/// The connection was reset, and nothing followed.
const RESET: u8 = 0x80;
/// The first packet was the server's SYN with ACK.
const ANSWER_FIRST: u8 = 0x40;

/// TCP flags (RFC 9293 3.1).
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

impl ConnectionStatus {
    /// Handles a packet to the server (original) or from it (reply). Its stream events count, and
    /// all its flags except FIN and RST. Its reset counts from the next packet on: see
    /// [`ConnectionStatus::reset`]. With `async_oneside`, a sender that continues after its SYN has
    /// an established connection, although the reply was not seen.
    pub fn packet(&mut self, packet: &PacketView<'_>, direction: Direction, async_oneside: bool) {
        let meta = packet.meta();
        if matches!(meta.class, PacketClass::IcmpError | PacketClass::LaterFragment) {
            return;
        }
        let brings = |is: fn(&StreamEventKind<'_>) -> bool| packet.stream().any(|event| is(&event.kind));
        if self.0 & RESET != 0 && brings(|kind| matches!(kind, StreamEventKind::Data(_))) {
            // The hosts did not accept the reset.
            self.0 &= !RESET;
        }
        if meta.protocol == protocol::TCP {
            if meta.tcp_flags & RST != 0 {
                return;
            }
            if meta.tcp_flags & SYN != 0 && brings(|kind| *kind == StreamEventKind::Restart) {
                *self = ConnectionStatus::default();
            }
        }
        let before = self.phase();
        let is_tcp = meta.protocol == protocol::TCP;
        let is_syn = meta.tcp_flags & SYN != 0;
        let phase = match before {
            // The client's SYN was not seen, but this is the reply to it.
            Connection::NEW if is_tcp && is_syn && meta.tcp_flags & ACK != 0 => {
                self.0 |= ANSWER_FIRST;
                Connection::SYN_RECEIVED
            }
            // The server continues, so the client has acknowledged.
            Connection::SYN_RECEIVED if self.0 & ANSWER_FIRST != 0 && !is_syn => Connection::ESTABLISHED,
            Connection::SYN_SENT if async_oneside && !is_syn && direction == Direction::Original => {
                Connection::ESTABLISHED
            }
            before => before.after_whole(meta.protocol, meta.tcp_flags & !FIN, direction),
        };
        self.0 = phase.phase() | self.0 & (RESET | ANSWER_FIRST);
    }

    /// Handles a reset that the hosts accept.
    pub fn reset(&mut self) {
        if self.is_established() {
            self.0 |= RESET;
        }
    }

    /// Returns whether the connection counts as established.
    pub fn is_established(self) -> bool {
        self.0 & RESET == 0 && self.was_established()
    }

    /// Returns whether the connection was ever established, even if it was reset since.
    pub fn was_established(self) -> bool {
        let phase = self.phase();
        phase.is_established() || phase == Connection::PICKED_UP
    }

    fn phase(self) -> Connection {
        Connection::from_phase(self.0 & !(RESET | ANSWER_FIRST))
    }
}
