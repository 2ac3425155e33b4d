//! Who is the server: by a SYN; where none was seen, by ports, until the protocol's words tell. And
//! what is spoken, before the packet at hand is looked at, so that rules about a protocol hold on
//! the first packet that shows it.

use applayer::detect::{Application, Detector, Verdict as Found};
use applayer::dns;
use nf::PacketView;
use nf::stream::StreamEventKind;
use packet::parse::protocol;
use packet::{Direction, PacketClass};

use super::{Watch, ports, side, turned};
use crate::ids::counter;
use crate::ids::facts::{Facts, PacketFacts};
use crate::ids::state::{Flags, State};

/// Ports below are those of servers (RFC 6335 6).
const SERVERS_BELOW: u16 = 1024;

/// TCP flags (RFC 9293 3.1).
const SYN: u8 = 2;
const ACK: u8 = 16;

impl Watch<'_, '_> {
    /// Says who is the server, as far as the packet tells, and whether it is the first one of its
    /// direction. `restarts`: a new connection begins with it.
    pub(super) fn face(
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
                // The client may send one, too, to be taken for the server.
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
            // Of a connection under way, hosts heed none.
            if !state.flags.has(Flags::BY_SYN) && state.detector.is_fresh() {
                let is_answer = flags & ACK != 0;
                state.begin(if is_answer { direction.other() } else { direction });
                // An answer that is forged must not hide who asks.
                if is_answer {
                    state.flags.unset(Flags::BY_SYN);
                }
            }
        } else if !state.flags.has_seen(direction.other()) {
            state.flags.set(Flags::PICKED_UP);
            state.detector.pick_up();
            let (from, to) = own.ports().unwrap_or_default();
            if from < SERVERS_BELOW && to >= SERVERS_BELOW {
                state.turn();
            }
        }
        is_first
    }

    /// What a packet's bytes tell of what is spoken, and by whom. They are taken for good when the
    /// streams are looked at.
    pub(super) fn listen<'a>(
        &mut self,
        packet: &PacketView<'_>,
        facts: Facts<'a>,
        direction: Direction,
        state: &mut State,
    ) -> Facts<'a> {
        let (mut detector, mut application) = (state.detector, facts.application);
        for event in packet.stream() {
            let to_server = state.is_to_server(event.direction);
            let same = event.direction == direction;
            let ours = Facts { to_server, ..if same { facts } else { turned(facts) } };
            match event.kind {
                StreamEventKind::Restart => detector = Detector::default(),
                StreamEventKind::Data(piece) => {
                    application = detector.stream(side(to_server), event.offset, piece, ports(&ours));
                    let may_turn =
                        state.flags.has(Flags::PICKED_UP) && !matches!(application, Found::Known(_));
                    let words = || detector.turned_by_words(ports(&Facts { to_server: !to_server, ..ours }));
                    if may_turn && let Some(turned) = words() {
                        state.turn();
                        (detector, application) = (turned, turned.verdict());
                    }
                }
                _ => {}
            }
        }
        Facts { application, to_server: state.is_to_server(direction), ..facts }
    }

    /// The same of a datagram.
    pub(super) fn listen_to_datagram<'a>(
        &mut self,
        own: &PacketFacts<'_>,
        facts: Facts<'a>,
        direction: Direction,
        state: &mut State,
    ) -> Facts<'a> {
        let was_known = state.detector.verdict();
        let application = state.detector.datagram(side(facts.to_server), own.payload, ports(&facts));
        let mut facts = Facts { application, ..facts };
        if was_known == Found::Unknown && application != Found::Unknown {
            facts.is_first_known = state.flags.see_known(direction);
            // An answer whose question was not seen.
            let is_answer = || dns::Message::read(own.payload).is_ok_and(|message| message.is_response);
            let is_dns = application == Found::Known(Application::Dns);
            if is_dns && facts.to_server && !state.flags.has_seen(direction.other()) && is_answer() {
                state.turn();
                facts.to_server = false;
            }
        }
        facts
    }

    /// Counts a connection in which bytes go on one way, and nothing comes the other way.
    pub(super) fn note_one_sided(&mut self, direction: Direction, offset: u64, state: &mut State) {
        if offset > 0 && !state.flags.has_seen(direction.other()) && !state.flags.has(Flags::ONE_SIDED) {
            state.flags.set(Flags::ONE_SIDED);
            self.context.count(counter::ONE_SIDED, 1);
        }
    }
}
