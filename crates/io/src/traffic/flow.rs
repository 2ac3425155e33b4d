//! One flow: its next packet.

use super::contents::{Contents, PayloadSlice};
use super::endpoints::EndpointPair;
use super::frame::{
    ETHERNET_BYTES, ICMP_BYTES, IPV4_BYTES, IPV6_BYTES, TCP_BYTES, UDP_BYTES, flags, fragment_payload_bytes,
};
use super::profile::ServerAnswer;
use super::random::mix;

/// The number of data packets of a flow that never ends.
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
    pub ends: EndpointPair,
    kind: FlowKind,
    stage: FlowStage,
    /// Data packets that the client will still send; [`ENDLESS`] stays as it is.
    left: u32,
    /// The client's next sequence number: of TCP bytes, or of echo requests.
    sent: u32,
    /// The server's next sequence number.
    answered: u32,
    /// The data in transit: of the last packet, or of the datagram that is being sent in fragments.
    payload: PayloadSlice,
    /// Offset of the datagram's next fragment.
    fragment_offset: u16,
    ident: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowStage {
    Syn,
    SynAck,
    HandshakeAck,
    Data,
    ServerAnswer,
    Fin,
    FinAck,
    LastAck,
    Reset,
    Over,
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub from_client: bool,
    pub segment: Segment,
    pub payload: PayloadSlice,
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
    /// A fragment of a datagram; the step has the whole payload.
    UdpFragment {
        offset: usize,
    },
    Echo {
        sequence: u16,
    },
}

impl Flow {
    /// Returns a flow of `length` data packets; `draw` is its randomness.
    pub fn new(ends: EndpointPair, kind: FlowKind, length: u32, draw: u64) -> Flow {
        let sent = draw as u32;
        let stage = if matches!(kind, FlowKind::Tcp { .. }) { FlowStage::Syn } else { FlowStage::Data };
        Flow {
            ends,
            kind,
            stage,
            left: length,
            sent,
            answered: server_sequence(sent),
            payload: PayloadSlice::default(),
            fragment_offset: 0,
            ident: (draw >> 32) as u16,
        }
    }

    pub fn is_over(&self) -> bool {
        self.stage == FlowStage::Over
    }

    /// Returns whether the next packet is the server's.
    pub fn awaits_server(&self) -> bool {
        matches!(self.stage, FlowStage::SynAck | FlowStage::ServerAnswer | FlowStage::FinAck)
    }

    /// Returns the next packet; the flow must not have ended.
    pub fn take(&mut self, contents: &mut Contents, answer: ServerAnswer) -> Step {
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

    fn take_tcp(
        &mut self,
        contents: &mut Contents,
        answer: ServerAnswer,
        resets: bool,
    ) -> (Segment, PayloadSlice) {
        use flags::{ACK, FIN, PSH, RST, SYN};
        let close = if resets { FlowStage::Reset } else { FlowStage::Fin };
        let none = PayloadSlice::default();
        let (flags, payload, next) = match self.stage {
            FlowStage::Syn => (SYN, none, FlowStage::SynAck),
            FlowStage::SynAck => (SYN | ACK, none, FlowStage::HandshakeAck),
            FlowStage::HandshakeAck => (ACK, none, FlowStage::Data),
            FlowStage::Data => {
                self.payload = contents.payload(self.header_bytes(TCP_BYTES), 1);
                (PSH | ACK, self.payload, FlowStage::ServerAnswer)
            }
            FlowStage::ServerAnswer => {
                let next = self.after_answer(close);
                match answer {
                    ServerAnswer::Echo => (PSH | ACK, self.payload, next),
                    ServerAnswer::Acknowledge => (ACK, none, next),
                }
            }
            FlowStage::Fin => (FIN | ACK, none, FlowStage::FinAck),
            FlowStage::FinAck => (FIN | ACK, none, FlowStage::LastAck),
            FlowStage::LastAck => (ACK, none, FlowStage::Over),
            FlowStage::Reset | FlowStage::Over => (RST | ACK, none, FlowStage::Over),
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

    /// Returns a packet of a protocol with an echoing server.
    fn take_exchange(&mut self, contents: &mut Contents, header_bytes: usize) -> PayloadSlice {
        if self.stage == FlowStage::Data {
            self.payload = contents.payload(self.header_bytes(header_bytes), 0);
            self.stage = FlowStage::ServerAnswer;
        } else {
            self.stage = self.after_answer(FlowStage::Over);
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
            self.stage = self.after_answer(FlowStage::Over);
        }
        Step { from_client: true, segment: Segment::UdpFragment { offset }, payload, ident }
    }

    /// Counts a data packet as done; returns the next stage.
    fn after_answer(&mut self, close: FlowStage) -> FlowStage {
        if self.left == ENDLESS {
            return FlowStage::Data;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { close } else { FlowStage::Data }
    }

    fn header_bytes(&self, transport: usize) -> usize {
        ETHERNET_BYTES + if self.ends.is_v6 { IPV6_BYTES } else { IPV4_BYTES } + transport
    }
}

/// Returns the sequence number of a server's answer to a client's first packet. Both sides know it,
/// so that a [`super::Responder`]'s packets fit the flow.
pub(super) fn server_sequence(client_sequence: u32) -> u32 {
    mix(u64::from(client_sequence)) as u32
}
