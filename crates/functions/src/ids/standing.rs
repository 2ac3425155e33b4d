//! Whether a flow's connection is established, as rules ask: by what its hosts heed of it. [`Connection`] goes by flags alone,
//! which anybody can forge.

use nf::stream::StreamEventKind;
use nf::{Connection, PacketView};
use packet::parse::protocol;
use packet::{Class, Direction};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What its connection has come to: the phase up to established ([`Connection::phase`]), and [`RESET`]. The zero value is that of a
/// flow that has not begun.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Standing(u8);

/// It was reset, and nothing came since.
const RESET: u8 = 0x80;

/// TCP flags (RFC 9293 3.1).
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

impl Standing {
    /// A packet comes: its flags count but for those of an end, and what it brings to its streams. A reset that it brings counts
    /// from the next packet on: see [`Standing::reset`].
    pub fn packet(&mut self, packet: &PacketView<'_>, direction: Direction) {
        let meta = packet.meta();
        if matches!(meta.class, Class::IcmpError | Class::LaterFragment) {
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
        let phase = self.phase().after_whole(meta.protocol, meta.tcp_flags & !FIN, direction).phase();
        self.0 = phase | self.0 & RESET;
    }

    /// Its hosts heeded a reset.
    pub fn reset(&mut self) {
        if self.is_established() {
            self.0 |= RESET;
        }
    }

    /// Whether it counts as established.
    pub fn is_established(self) -> bool {
        let phase = self.phase();
        self.0 & RESET == 0 && (phase.is_established() || phase == Connection::PICKED_UP)
    }

    fn phase(self) -> Connection {
        Connection::from_phase(self.0 & !RESET)
    }
}
