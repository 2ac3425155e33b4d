//! What is kept of a flow.

use applayer::detect::{Application, Detector, Verdict};
use applayer::http::Exchange;
use applayer::{ssh, tls};
use mpm::Cursor;
use nf::AlertFlow;
use packet::Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::marks::Marks;
use super::standing::Standing;

/// What is kept of a flow, beside its growing buffers.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Its marks.
    pub marks: Marks,
    /// What alerts tell of its size.
    pub size: Size,
    /// Where in each stream the window begins.
    pub window_start: [u64; 2],
    /// HTTP's parser.
    pub exchange: Exchange,
    /// The search for patterns, by direction: 32 bytes each.
    pub cursors: [Cursor; 2],
    /// The readers of other protocols.
    pub tls: [tls::Stream; 2],
    /// See there.
    pub ssh: [ssh::Reader; 2],
    /// What the flow speaks.
    pub detector: Detector,
    /// What is known of it beside.
    pub flags: Flags,
    /// The protocol that the connection began with, if its detection began again.
    pub handover: Handover,
    /// Whether its connection is established.
    pub standing: Standing,
    /// Steps that its rules took beyond reading it once: see
    /// [`signatures::inspect::FLOW_STEPS_MAX`].
    pub spent: u32,
}

/// Packets and bytes of a flow so far, by direction.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Size {
    /// When the first packet came.
    start_ns: u64,
    bytes: [u64; 2],
    packets: [u32; 2],
}

impl Size {
    /// A packet comes.
    pub fn packet(&mut self, direction: Direction, now_ns: u64, bytes: usize) {
        let at = direction.index();
        if self.packets == [0; 2] {
            self.start_ns = now_ns;
        }
        self.packets[at] = self.packets[at].saturating_add(1);
        self.bytes[at] = self.bytes[at].saturating_add(bytes as u64);
    }

    /// As alerts tell it.
    pub fn told(self) -> AlertFlow {
        AlertFlow { start_ns: self.start_ns, packets: self.packets.map(u64::from), bytes: self.bytes }
    }
}

/// How a connection goes from one protocol to the next.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Handover {
    /// 0 for none, or the number of the protocol in [`Application::ALL`] that the connection spoke
    /// before this one, plus 1.
    before: u8,
    /// Whether the detection began in the midst of the streams.
    is_again: u8,
    /// How far the protocol's own agreement upon TLS has come: [`TLS_ASKED`], [`TLS_AGREED`].
    pub tls: u8,
}

/// The client asked for TLS.
pub const TLS_ASKED: u8 = 1;
/// The server agreed.
pub const TLS_AGREED: u8 = 2;

impl Handover {
    /// Whether the detection began in the midst of the streams.
    pub fn is_again(self) -> bool {
        self.is_again != 0
    }
}

/// Facts of a flow, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Flags(u16);

impl Flags {
    /// A rule dropped the flow.
    pub const DROPPED: u16 = 1;
    /// A rule lets the flow pass.
    pub const PASSED: u16 = 2;
    /// Its first packet was the server's.
    pub const TURNED: u16 = 4;
    /// Its beginning was not seen: who is the server is a guess, until the protocol's words tell.
    pub const PICKED_UP: u16 = 8;
    /// Who is the server is known by a SYN.
    pub const BY_SYN: u16 = 16;
    /// Counted as a connection of which one direction alone is seen.
    pub const ONE_SIDED: u16 = 32;
    /// By direction: a packet came; ...
    const SEEN: [u16; 2] = [64, 128];
    /// ... one came since its protocol is known.
    const KNOWN: [u16; 2] = [256, 512];
    /// By direction: it had the last SYN without ACK.
    const ASKED: [u16; 2] = [1024, 2048];
    /// What is said of a connection, and not of the flow.
    const OF_CONNECTION: u16 = 4 | 8 | 16 | 32 | 64 | 128 | 256 | 512;

    /// Whether any of these is set.
    pub fn has(self, flags: u16) -> bool {
        self.0 & flags != 0
    }

    /// Sets these.
    pub fn set(&mut self, flags: u16) {
        self.0 |= flags;
    }

    /// Unsets these.
    pub fn unset(&mut self, flags: u16) {
        self.0 &= !flags;
    }

    /// Whether a packet of this direction came.
    pub fn has_seen(self, direction: Direction) -> bool {
        self.has(Flags::SEEN[direction.index()])
    }

    /// A SYN without ACK comes this way.
    pub fn ask(&mut self, direction: Direction) {
        self.set(Flags::ASKED[direction.index()]);
        self.unset(Flags::ASKED[direction.other().index()]);
    }

    /// Whether the last SYN without ACK came this way.
    pub fn has_asked(self, direction: Direction) -> bool {
        self.has(Flags::ASKED[direction.index()])
    }

    /// A packet of this direction comes; whether it is the first.
    pub fn see(&mut self, direction: Direction) -> bool {
        !self.replace(Flags::SEEN[direction.index()])
    }

    /// A packet of this direction comes, and the protocol is known; whether it is the first such
    /// one.
    pub fn see_known(&mut self, direction: Direction) -> bool {
        !self.replace(Flags::KNOWN[direction.index()])
    }

    fn replace(&mut self, flag: u16) -> bool {
        let was = self.has(flag);
        self.set(flag);
        was
    }
}

// S25: what the search for patterns keeps of a direction.
const _: () = assert!(size_of::<Cursor>() <= 64);

impl State {
    /// The protocol that rules go by: until a next one is known, the one before.
    pub fn application(&self) -> Verdict {
        let before = self.handover.before.checked_sub(1);
        let before = before.and_then(|at| Application::ALL.get(usize::from(at)));
        match (self.detector.verdict(), before) {
            (Verdict::Unknown | Verdict::Failed, Some(before)) => Verdict::Known(*before),
            (verdict, _) => verdict,
        }
    }

    /// Another protocol follows: its detection begins here.
    pub fn detect_again(&mut self) {
        let before = match self.application() {
            Verdict::Known(known) => {
                Application::ALL.iter().position(|one| *one == known).map_or(0, |at| at as u8 + 1)
            }
            _ => 0,
        };
        self.handover = Handover { before, is_again: 1, tls: 0 };
        self.detector = Detector::default();
        self.exchange = Exchange::default();
        (self.tls, self.ssh) = Default::default();
    }

    /// A new connection begins on the same ports.
    pub fn restart(&mut self) {
        let State { marks, size, flags, standing, spent, .. } = *self;
        *self = State { marks, size, flags, standing, spent, ..State::default() };
    }

    /// Whether what goes this way goes to the server.
    pub fn is_to_server(&self, direction: Direction) -> bool {
        (direction == Direction::Original) != self.flags.has(Flags::TURNED)
    }

    /// The way to the server (original) or from it (reply) that this direction of the flow is.
    pub fn way(&self, direction: Direction) -> Direction {
        if self.is_to_server(direction) { Direction::Original } else { Direction::Reply }
    }

    /// Client and server change places, as do their first words.
    pub fn turn(&mut self) {
        self.flags = Flags(self.flags.0 ^ Flags::TURNED);
        self.detector = self.detector.turned();
    }

    /// The client is who sends in this direction, as a SYN says.
    pub fn begin(&mut self, client: Direction) {
        if !self.is_to_server(client) {
            self.turn();
        }
        if self.detector.is_fresh() {
            self.detector = Detector::default();
        }
        self.flags.unset(Flags::PICKED_UP);
        self.flags.set(Flags::BY_SYN);
    }

    /// A new connection begins, of which nothing is known.
    pub fn forget_connection(&mut self) {
        self.flags.unset(Flags::OF_CONNECTION);
    }
}

/// The growing buffers of a flow: for each direction, these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The last bytes of the stream.
    Window,
    /// Rules that may still hold: see [`super::candidates`].
    Candidates,
    /// A line or message of the application protocol that is not complete yet.
    Line,
    /// What is known of an HTTP message that is not complete yet.
    Progress,
    /// Its text, as far as it has come.
    Text,
    /// Rules whose literal was found since it began, and that look for it in the body: four bytes
    /// each.
    InBody,
}

/// Growing buffers of a flow.
pub const KEPT: usize = 12;

impl Kept {
    /// The buffer's number in the descriptor.
    pub fn of(self, direction: Direction) -> usize {
        self as usize * 2 + direction.index()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_size_is_what_the_manual_says() {
        assert_eq!(size_of::<State>(), 424);
    }
}
