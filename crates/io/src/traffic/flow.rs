//! One flow: what it sends next.

use super::contents::{Contents, Slice};
use super::endpoints::Ends;
use super::frame::{
    ETHERNET_BYTES, ICMP_BYTES, IPV4_BYTES, IPV6_BYTES, TCP_BYTES, UDP_BYTES, flags, fragment_payload_bytes,
};
use super::profile::Answer;
use super::random::mix;

/// How many packets with data mean that a flow never ends.
pub(super) const ENDLESS: u32 = u32::MAX;

/// The kind of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowKind {
    Tcp { resets: bool },
    Udp,
    Icmp,
    Fragments,
}

/// A flow, from its first packet to its last.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub ends: Ends,
    kind: FlowKind,
    stage: Stage,
    /// Packets with data that the client has yet to send; [`ENDLESS`] stays as it is.
    left: u32,
    /// The client's next sequence number: of TCP's bytes, or of echo requests.
    sent: u32,
    /// The server's next sequence number.
    answered: u32,
    /// The data on their way: of the last packet, or of the datagram that is being sent in
    /// fragments.
    payload: Slice,
    /// Where the datagram's next fragment begins.
    fragment_offset: u16,
    ident: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Syn,
    SynAck,
    HandshakeAck,
    Data,
    Answer,
    Fin,
    FinAck,
    LastAck,
    Reset,
    Over,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub from_client: bool,
    pub segment: Segment,
    pub payload: Slice,
    pub ident: u16,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Segment {
    Tcp {
        sequence: u32,
        acknowledgement: u32,
        flags: u8,
    },
    Udp,
    /// A part of a datagram whose payload the step has as a whole.
    UdpFragment {
        offset: usize,
    },
    Echo {
        sequence: u16,
    },
}

impl Flow {
    /// A flow of `length` packets with data; `draw` is its randomness.
    pub fn new(ends: Ends, kind: FlowKind, length: u32, draw: u64) -> Flow {
        let sent = draw as u32;
        let stage = if matches!(kind, FlowKind::Tcp { .. }) { Stage::Syn } else { Stage::Data };
        Flow {
            ends,
            kind,
            stage,
            left: length,
            sent,
            answered: server_sequence(sent),
            payload: Slice::default(),
            fragment_offset: 0,
            ident: (draw >> 32) as u16,
        }
    }

    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Whether the next packet is the server's.
    pub fn awaits_server(&self) -> bool {
        matches!(self.stage, Stage::SynAck | Stage::Answer | Stage::FinAck)
    }

    /// The next packet; the flow must not be over.
    pub fn take(&mut self, contents: &mut Contents, answer: Answer) -> Step {
        debug_assert!(!self.is_over());
        let from_client = !self.awaits_server();
        let ident = self.ident;
        let (segment, payload) = match self.kind {
            FlowKind::Tcp { resets } => self.take_tcp(contents, answer, resets),
            FlowKind::Udp => (Segment::Udp, self.take_exchange(contents, UDP_BYTES)),
            FlowKind::Icmp => {
                let sequence = self.sent as u16;
                let payload = self.take_exchange(contents, ICMP_BYTES);
                if !from_client {
                    self.sent = self.sent.wrapping_add(1);
                }
                (Segment::Echo { sequence }, payload)
            }
            FlowKind::Fragments => return self.take_fragment(contents),
        };
        self.ident = ident.wrapping_add(1);
        Step { from_client, segment, payload, ident }
    }

    fn take_tcp(&mut self, contents: &mut Contents, answer: Answer, resets: bool) -> (Segment, Slice) {
        use flags::{ACK, FIN, PSH, RST, SYN};
        let close = if resets { Stage::Reset } else { Stage::Fin };
        let none = Slice::default();
        let (flags, payload, next) = match self.stage {
            Stage::Syn => (SYN, none, Stage::SynAck),
            Stage::SynAck => (SYN | ACK, none, Stage::HandshakeAck),
            Stage::HandshakeAck => (ACK, none, Stage::Data),
            Stage::Data => {
                self.payload = contents.payload(self.header_bytes(TCP_BYTES), 1);
                (PSH | ACK, self.payload, Stage::Answer)
            }
            Stage::Answer => {
                let next = self.after_answer(close);
                match answer {
                    Answer::Echo => (PSH | ACK, self.payload, next),
                    Answer::Acknowledge => (ACK, none, next),
                }
            }
            Stage::Fin => (FIN | ACK, none, Stage::FinAck),
            Stage::FinAck => (FIN | ACK, none, Stage::LastAck),
            Stage::LastAck => (ACK, none, Stage::Over),
            Stage::Reset | Stage::Over => (RST | ACK, none, Stage::Over),
        };
        let advance = u32::from(payload.len()) + u32::from(flags & (SYN | FIN) != 0);
        let from_server = self.awaits_server();
        let (own, other) = match from_server {
            true => (&mut self.answered, self.sent),
            false => (&mut self.sent, self.answered),
        };
        let acknowledgement = if flags & ACK == 0 { 0 } else { other };
        let segment = Segment::Tcp { sequence: *own, acknowledgement, flags };
        *own = own.wrapping_add(advance);
        self.stage = next;
        (segment, payload)
    }

    /// A packet of a protocol whose server sends back what it gets.
    fn take_exchange(&mut self, contents: &mut Contents, header_bytes: usize) -> Slice {
        if self.stage == Stage::Data {
            self.payload = contents.payload(self.header_bytes(header_bytes), 0);
            self.stage = Stage::Answer;
        } else {
            self.stage = self.after_answer(Stage::Over);
        }
        self.payload
    }

    fn take_fragment(&mut self, contents: &mut Contents) -> Step {
        let offset = usize::from(self.fragment_offset);
        if offset == 0 {
            self.payload = contents.datagram();
        }
        let (payload, ident) = (self.payload, self.ident);
        let next = offset + fragment_payload_bytes(self.ends.is_v6);
        if next < UDP_BYTES + usize::from(payload.len()) {
            // Within the datagram, so within 16 bits.
            self.fragment_offset = next as u16;
        } else {
            self.fragment_offset = 0;
            self.ident = ident.wrapping_add(1);
            self.stage = self.after_answer(Stage::Over);
        }
        Step { from_client: true, segment: Segment::UdpFragment { offset }, payload, ident }
    }

    /// Counts a packet with data as done; what comes then.
    fn after_answer(&mut self, close: Stage) -> Stage {
        if self.left == ENDLESS {
            return Stage::Data;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { close } else { Stage::Data }
    }

    fn header_bytes(&self, transport: usize) -> usize {
        ETHERNET_BYTES + if self.ends.is_v6 { IPV6_BYTES } else { IPV4_BYTES } + transport
    }
}

/// The sequence number with which a server answers a client's first: known to both sides, so that
/// what a [`super::Responder`] sends fits what the flow expects.
pub(super) fn server_sequence(client_sequence: u32) -> u32 {
    mix(u64::from(client_sequence)) as u32
}
