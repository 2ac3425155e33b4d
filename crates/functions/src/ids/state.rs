//! The state of a flow.

use applayer::detect::{AppProtocol, Detection, Detector};
use applayer::http::Exchange;
use applayer::{smtp, ssh, tls};
use mpm::Cursor;
use nf::stream::{StreamEvent, StreamEventKind};
use nf::{AlertFlow, FlowFindings};
use packet::Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::connection_status::ConnectionStatus;
use super::flowbits::Flowbits;

/// The state of a flow, besides its buffers.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// The flowbits.
    pub flowbits: Flowbits,
    /// Sizes for alerts.
    pub size: FlowSize,
    /// Stream offset at which each window begins.
    pub window_start: [u64; 2],
    /// The HTTP parser.
    pub exchange: Exchange,
    /// The pattern searches by direction, 32 bytes each.
    pub cursors: [Cursor; 2],
    /// The TLS parsers.
    pub tls: [tls::TlsStream; 2],
    /// The SSH parsers.
    pub ssh: [ssh::GreetingReader; 2],
    /// The detector of the application protocol.
    pub detector: Detector,
    /// Other facts.
    pub flags: FlowFlags,
    /// The previous protocol, if the detection was restarted.
    pub protocol_change: ProtocolChange,
    /// True if the connection is established.
    pub connection: ConnectionStatus,
    /// Steps that rules took beyond one pass over the input: see
    /// [`signatures::inspect::FLOW_STEPS_MAX`].
    pub spent: u32,
    /// Bytes of each stream so far, and its end.
    pub sent: [u32; 2],
    /// DNS messages so far, modulo 2^32.
    pub dns_messages: u32,
    /// The mails of SMTP.
    pub mail: smtp::MailReader,
}

/// Packets and bytes of a flow, by direction.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FlowSize {
    /// Time of the first packet.
    start_ns: u64,
    bytes: [u64; 2],
    packets: [u32; 2],
}

impl FlowSize {
    /// Counts a packet.
    pub fn packet(&mut self, direction: Direction, now_ns: u64, bytes: usize) {
        let at = direction.index();
        if self.packets == [0; 2] {
            self.start_ns = now_ns;
        }
        self.packets[at] = self.packets[at].saturating_add(1);
        self.bytes[at] = self.bytes[at].saturating_add(bytes as u64);
    }

    /// Returns the form used in alerts.
    pub fn reported(self) -> AlertFlow {
        AlertFlow { start_ns: self.start_ns, packets: self.packets.map(u64::from), bytes: self.bytes }
    }
}

/// A connection's change from one protocol to the next.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ProtocolChange {
    /// 0 for none, or the index in [`AppProtocol::ALL`] of the connection's previous protocol, plus
    /// 1.
    before: u8,
    /// 1 if the detection began in the middle of the streams.
    is_again: u8,
    /// Progress of STARTTLS: [`TLS_ASKED`], [`TLS_AGREED`].
    pub tls: u8,
}

/// The client requested TLS.
pub const TLS_ASKED: u8 = 1;
/// The server accepted.
pub const TLS_AGREED: u8 = 2;

impl ProtocolChange {
    /// Returns whether the detection began in the middle of the streams.
    pub fn is_again(self) -> bool {
        self.is_again != 0
    }
}

/// Facts of a flow, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct FlowFlags(u16);

impl FlowFlags {
    /// A rule dropped the flow.
    pub const DROPPED: u16 = 1;
    /// A rule passed the flow.
    pub const PASSED: u16 = 2;
    /// The first packet was the server's.
    pub const TURNED: u16 = 4;
    /// The beginning was not seen: the server is a guess until the protocol is detected.
    pub const PICKED_UP: u16 = 8;
    /// The server is known by a SYN.
    pub const BY_SYN: u16 = 16;
    /// The connection was counted as one-sided.
    pub const ONE_SIDED: u16 = 32;
    /// By direction: a packet was seen.
    const SEEN: [u16; 2] = [64, 128];
    /// By direction: a packet was seen since the protocol is known.
    const KNOWN: [u16; 2] = [256, 512];
    /// By direction: the last SYN without ACK went this way.
    const ASKED: [u16; 2] = [1024, 2048];
    /// A rule has raised an alert.
    pub const ALERTED: u16 = 4096;
    /// The mail that is being sent was counted as not inspected whole.
    pub const MAIL_CUT: u16 = 8192;
    /// Bytes of the client before the answer to its CONNECT or upgrade were not kept whole.
    pub const BEGINNING_CUT: u16 = 16384;
    /// The facts of a connection, not of the flow.
    const OF_CONNECTION: u16 = 4 | 8 | 16 | 32 | 64 | 128 | 256 | 512;

    /// Returns whether any of these is set.
    pub fn has(self, flags: u16) -> bool {
        self.0 & flags != 0
    }

    /// Sets these flags.
    pub fn set(&mut self, flags: u16) {
        self.0 |= flags;
    }

    /// Clears these flags.
    pub fn unset(&mut self, flags: u16) {
        self.0 &= !flags;
    }

    /// Returns whether a packet of this direction was seen.
    pub fn has_seen(self, direction: Direction) -> bool {
        self.has(FlowFlags::SEEN[direction.index()])
    }

    /// Records a SYN without ACK in this direction.
    pub fn ask(&mut self, direction: Direction) {
        self.set(FlowFlags::ASKED[direction.index()]);
        self.unset(FlowFlags::ASKED[direction.other().index()]);
    }

    /// Returns whether the last SYN without ACK went this way.
    pub fn has_asked(self, direction: Direction) -> bool {
        self.has(FlowFlags::ASKED[direction.index()])
    }

    /// Records a packet of this direction; returns whether it is the first.
    pub fn see(&mut self, direction: Direction) -> bool {
        !self.replace(FlowFlags::SEEN[direction.index()])
    }

    /// Records a packet of this direction while the protocol is known; returns whether it is the
    /// first.
    pub fn see_known(&mut self, direction: Direction) -> bool {
        !self.replace(FlowFlags::KNOWN[direction.index()])
    }

    fn replace(&mut self, flag: u16) -> bool {
        let was = self.has(flag);
        self.set(flag);
        was
    }
}

// S25: the search state of a direction.
const _: () = assert!(size_of::<Cursor>() <= 64);

impl State {
    /// Returns the protocol that rules see: the previous one until the next is known.
    pub fn application(&self) -> Detection {
        let before = self.protocol_change.before.checked_sub(1);
        let before = before.and_then(|at| AppProtocol::ALL.get(usize::from(at)));
        match (self.detector.verdict(), before) {
            (Detection::Unknown | Detection::Failed, Some(before)) => Detection::Known(*before),
            (verdict, _) => verdict,
        }
    }

    /// Returns the findings for the flow's reports.
    pub fn findings(&self) -> FlowFindings {
        FlowFindings {
            application: reported_name(self.application()),
            alerted: self.flags.has(FlowFlags::ALERTED),
        }
    }

    /// Restarts the detection, because another protocol follows.
    pub fn detect_again(&mut self) {
        let before = match self.application() {
            Detection::Known(known) => {
                AppProtocol::ALL.iter().position(|one| *one == known).map_or(0, |at| at as u8 + 1)
            }
            _ => 0,
        };
        self.protocol_change = ProtocolChange { before, is_again: 1, tls: 0 };
        self.flags.unset(FlowFlags::MAIL_CUT | FlowFlags::BEGINNING_CUT);
        self.detector = Detector::default();
        self.exchange = Exchange::default();
        (self.tls, self.ssh, self.mail) = Default::default();
    }

    /// Handles a new connection on the same ports.
    pub fn restart(&mut self) {
        let State { flowbits, size, mut flags, connection, spent, sent, .. } = *self;
        flags.unset(FlowFlags::MAIL_CUT | FlowFlags::BEGINNING_CUT);
        *self = State { flowbits, size, flags, connection, spent, sent, ..State::default() };
    }

    /// Returns whether the direction goes to the server.
    pub fn is_to_server(&self, direction: Direction) -> bool {
        (direction == Direction::Original) != self.flags.has(FlowFlags::TURNED)
    }

    /// Returns the direction relative to the server: original is to it, reply is from it.
    pub fn way(&self, direction: Direction) -> Direction {
        if self.is_to_server(direction) { Direction::Original } else { Direction::Reply }
    }

    /// Records what a packet adds to its streams.
    pub fn add_sent<'a>(&mut self, events: impl Iterator<Item = StreamEvent<'a>>) {
        for StreamEvent { direction, offset, kind } in events {
            let len = match kind {
                StreamEventKind::Restart => {
                    self.sent = [0; 2];
                    continue;
                }
                StreamEventKind::Data(bytes) => bytes.len() as u64,
                StreamEventKind::Gap(bytes) => bytes,
                StreamEventKind::Finished => 1,
                StreamEventKind::Reset => continue,
            };
            self.sent[direction.index()] = u32::try_from(offset + len).unwrap_or(u32::MAX);
        }
    }

    /// Returns the sizes of the client's and the server's stream in sequence numbers, with one for
    /// the SYN.
    pub fn stream_sizes(&self) -> [u32; 2] {
        let [original, reply] = [Direction::Original, Direction::Reply].map(|direction| {
            let opened = u32::from(self.flags.has_seen(direction));
            self.sent[direction.index()].saturating_add(opened)
        });
        if self.is_to_server(Direction::Original) { [original, reply] } else { [reply, original] }
    }

    /// Swaps client and server, and the beginnings of their streams.
    pub fn turn(&mut self) {
        self.flags = FlowFlags(self.flags.0 ^ FlowFlags::TURNED);
        self.detector = self.detector.swapped();
    }

    /// Sets the client to the sender of this direction, as a SYN says.
    pub fn begin(&mut self, client: Direction) {
        if !self.is_to_server(client) {
            self.turn();
        }
        if self.detector.is_fresh() {
            self.detector = Detector::default();
        }
        self.flags.unset(FlowFlags::PICKED_UP);
        self.flags.set(FlowFlags::BY_SYN);
    }

    /// Forgets the connection, because a new one begins.
    pub fn forget_connection(&mut self) {
        self.flags.unset(FlowFlags::OF_CONNECTION);
    }
}

/// Returns a protocol's name in alerts and flow events, as Suricata has it.
pub fn reported_name(application: Detection) -> Option<&'static str> {
    match application {
        Detection::Unknown => None,
        Detection::Failed => Some("failed"),
        Detection::Known(AppProtocol::Http1) => Some("http"),
        Detection::Known(application) => Some(application.name()),
    }
}

/// The buffers of a flow, per direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptBuffer {
    /// The last bytes of the stream.
    Window,
    /// Rules that may still match: see [`super::candidates`].
    Candidates,
    /// An incomplete line or message of the application protocol.
    Line,
    /// The state of an incomplete HTTP message.
    Progress,
    /// The text of an incomplete HTTP message, or mail.
    Text,
    /// Rules for the body with a pattern found since the message began: four bytes each.
    InBody,
}

/// Number of buffers of a flow.
pub const KEPT: usize = 12;

impl KeptBuffer {
    /// Returns the buffer's index in the descriptor.
    pub fn of(self, direction: Direction) -> usize {
        self as usize * 2 + direction.index()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_has_the_documented_size() {
        assert_eq!(size_of::<State>(), 440);
    }
}
