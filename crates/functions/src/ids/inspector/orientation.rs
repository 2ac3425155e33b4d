//! Orientation of a flow: which side is the server. A SYN decides; otherwise ports do, until the
//! protocol is detected. The protocol is determined before the current packet is inspected, so that
//! rules about it match on the first packet that shows it.

use applayer::detect::{AppProtocol, Detection, Detector};
use applayer::dns;
use nf::PacketView;
use nf::stream::StreamEventKind;
use packet::parse::protocol;
use packet::{Direction, PacketClass};

use super::{Inspector, ports, side, swapped};
use crate::ids::COUNTERS;
use crate::ids::facts::{InspectionFacts, PacketFacts};
use crate::ids::state::{FlowFlags, State};

/// Ports below are servers' (RFC 6335 6).
const SERVERS_BELOW: u16 = 1024;

/// TCP flags (RFC 9293 3.1).
const SYN: u8 = 2;
const ACK: u8 = 16;

impl Inspector<'_, '_> {
    /// Determines the server if the packet shows it, and whether the packet is the first of its
    /// direction. `restarts`: a new connection begins with it.
    pub(super) fn orient(
        &mut self,
        packet: &PacketView<'_>,
        own: &PacketFacts<'_>,
        direction: Direction,
        restarts: bool,
        state: &mut State,
    ) -> bool {
        if own.class == PacketClass::IcmpError {
            return true;
        }
        let flags = packet.meta().tcp_flags;
        let is_tcp = own.protocol == protocol::TCP && own.class == PacketClass::Whole;
        let is_syn = is_tcp && flags & SYN != 0;
        if is_syn && flags & ACK == 0 {
            state.flags.ask(direction);
        }
        if restarts {
            let client = match flags & ACK {
                0 => direction,
                // The client may send one too, to appear as the server.
                _ if state.flags.has_asked(direction.other()) => direction.other(),
                _ if state.is_to_server(Direction::Original) => Direction::Original,
                _ => Direction::Reply,
            };
            state.forget_connection();
            state.begin(client);
        }
        let is_first = state.flags.see(direction);
        if !is_tcp || !is_first && !is_syn {
            return is_first;
        }
        if is_syn {
            // Hosts ignore one within a connection.
            if !state.flags.has(FlowFlags::BY_SYN) && state.detector.is_fresh() {
                let is_answer = flags & ACK != 0;
                state.begin(if is_answer { direction.other() } else { direction });
                // A forged reply must not hide the initiator.
                if is_answer {
                    state.flags.unset(FlowFlags::BY_SYN);
                }
            }
        } else if !state.flags.has_seen(direction.other()) {
            state.flags.set(FlowFlags::PICKED_UP);
            state.detector.pick_up();
            let (from, to) = own.ports().unwrap_or_default();
            if from < SERVERS_BELOW && to >= SERVERS_BELOW {
                state.turn();
            }
        }
        is_first
    }

    /// Determines the protocol and its client from the packet's bytes, without changing the state,
    /// which follows when the streams are inspected.
    pub(super) fn preview_protocol<'a>(
        &mut self,
        packet: &PacketView<'_>,
        facts: InspectionFacts<'a>,
        direction: Direction,
        state: &mut State,
    ) -> InspectionFacts<'a> {
        let (mut detector, mut application) = (state.detector, facts.application);
        for event in packet.stream() {
            let to_server = state.is_to_server(event.direction);
            let same = event.direction == direction;
            let ours = InspectionFacts { to_server, ..if same { facts } else { swapped(facts) } };
            match event.kind {
                StreamEventKind::Restart => detector = Detector::default(),
                StreamEventKind::Data(piece) => {
                    application = detector.stream(side(to_server), event.offset, piece, ports(&ours));
                    let may_turn =
                        state.flags.has(FlowFlags::PICKED_UP) && !matches!(application, Detection::Known(_));
                    let words = || {
                        detector.swapped_by_content(ports(&InspectionFacts { to_server: !to_server, ..ours }))
                    };
                    if may_turn && let Some(swapped) = words() {
                        state.turn();
                        (detector, application) = (swapped, swapped.verdict());
                    }
                }
                _ => {}
            }
        }
        InspectionFacts { application, to_server: state.is_to_server(direction), ..facts }
    }

    /// Does the same for a datagram.
    pub(super) fn preview_datagram<'a>(
        &mut self,
        own: &PacketFacts<'_>,
        facts: InspectionFacts<'a>,
        direction: Direction,
        state: &mut State,
    ) -> InspectionFacts<'a> {
        let was_known = state.detector.verdict();
        let application = state.detector.datagram(side(facts.to_server), own.payload, ports(&facts));
        let mut facts = InspectionFacts { application, ..facts };
        if was_known == Detection::Unknown && application != Detection::Unknown {
            facts.is_first_known = state.flags.see_known(direction);
            // A response without a query before it.
            let is_answer = || dns::DnsMessage::read(own.payload).is_ok_and(|message| message.is_response);
            let is_dns = application == Detection::Known(AppProtocol::Dns);
            if is_dns && facts.to_server && !state.flags.has_seen(direction.other()) && is_answer() {
                state.turn();
                facts.to_server = false;
            }
        }
        facts
    }

    /// Counts a connection with bytes in one direction only.
    pub(super) fn note_one_sided(&mut self, direction: Direction, offset: u64, state: &mut State) {
        if offset > 0 && !state.flags.has_seen(direction.other()) && !state.flags.has(FlowFlags::ONE_SIDED) {
            state.flags.set(FlowFlags::ONE_SIDED);
            self.context.count(COUNTERS.one_sided_connections, 1);
        }
    }
}
