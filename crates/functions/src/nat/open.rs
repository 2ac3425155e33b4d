//! Opening of flows: from inside, from outside, and from inside to inside (hairpins).

use nf::answer;
use nf::{Context, PacketView, Verdict};
use packet::parse::{self, protocol};
use packet::{DropReason, Endpoint, Meta, PacketClass, Side};

use super::config::{NotOpeningAction, TcpOpening, UnmatchedAction};
use super::events::NatEvent;
use super::mapping::ItemUse;
use super::net::v4;
use super::nptv6::{Nptv6Rule, Translated};
use super::space::{ExternalPort, PortClass};
use super::state::{PoolItem, State};
use super::timeouts::UNANSWERED_MS;
use super::{ANSWERS, COUNTERS, Nat, forward};

/// The inside endpoint of an external one, and its mapping; none for a static rule.
struct Target {
    internal: Endpoint,
    item: PoolItem,
}

impl Nat {
    /// Decides how to translate a flow by its first packet. A refused flow holds nothing
    /// afterwards.
    #[inline(never)]
    pub(super) fn open(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        match self.try_open(packet, state, context) {
            Ok(verdict) => {
                if self.wanted.sessions {
                    self.session_event(NatEvent::SessionCreate, state, context);
                }
                verdict
            }
            Err(reason) => {
                match reason {
                    DropReason::NatPortsExhausted => self.exhausted_event(packet.ends().0.addr, context),
                    DropReason::NatNotOpening => self.reset(packet, context),
                    _ => {}
                }
                self.release(state, ItemUse::Refused, context);
                Verdict::Drop(reason)
            }
        }
    }

    /// Ends the connection of a TCP segment that belongs to no flow, if the policy says so.
    #[cold]
    fn reset(&self, packet: &PacketView<'_>, context: &mut Context<'_>) {
        let is_first = context.flow().seq == 1; // Later ones have their place in a group.
        if self.config.not_opening == NotOpeningAction::Drop || !is_first {
            return;
        }
        let mut buffer = answer::buffer();
        if let Ok(network) = answer::tcp_reset(packet, &mut buffer)
            && ANSWERS.permit(packet.ends().0.addr, context)
            && context.answer(packet, network).is_ok()
        {
            context.count(COUNTERS.resets_sent, 1);
        }
    }

    fn try_open(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let meta = packet.meta();
        let (version, number) = (meta.version, meta.protocol);
        if meta.class == PacketClass::LaterFragment {
            return Err(DropReason::FragmentOfDropped);
        }
        state.class = PortClass::of(number) as u8;
        if version == 6 {
            return self.open_v6(packet, state, context);
        }
        if meta.class == PacketClass::IcmpError {
            return Err(DropReason::IcmpErrorUnrelated); // RFC 5508 REQ-4, REQ-5
        }
        match context.side() {
            Side::Inside => self.open_from_inside(packet, state, context),
            Side::Outside => self.open_from_outside(packet, state, context),
        }
    }

    fn open_from_inside(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let (source, destination) = packet.ends();
        if !self.is_inside(source.addr) || is_local(source, destination) {
            return self.leave_alone(self.config.untranslated, state, context);
        }
        let class = self.opens(packet)?;
        let target = match self.is_external(destination.addr) {
            true => Some(self.hairpin_target(class, destination, context)?),
            false => None,
        };
        if self.space.addresses().is_empty() && self.forwards.outwards(class, source).is_none() {
            // There are only static rules, and none for this host. A hairpin would reach its peer
            // untranslated.
            let otherwise = if target.is_some() { UnmatchedAction::Drop } else { self.config.untranslated };
            return self.leave_alone(otherwise, state, context);
        }
        state.session = self.enter_session(source.addr, true, context)?;
        let mapped = self.map(class, source, destination, context)?;
        state.internal = source;
        state.external = mapped.external;
        state.item = mapped.item;
        state.flags = State::HELD;
        state.permission = self.permit(mapped.external, destination.addr, context);
        context.keep_flow_ms(self.keep.ms(Side::Inside, state.class, context.connection()));
        let Some(target) = target else {
            state.flags |= State::PLAIN;
            context.count(COUNTERS.flows_out, 1);
            return Ok(forward(packet.set_source(state.external)));
        };
        // RFC 4787 REQ-9a, RFC 5382 REQ-8: the peer sees the first host's external endpoint, and
        // the peer's own filter applies.
        if target.item != PoolItem::NONE && !self.admits(destination, mapped.external, context) {
            return Err(DropReason::NatFiltered);
        }
        state.peer_internal = target.internal;
        state.peer_external = destination;
        state.peer_item = target.item;
        state.flags |= State::HAIRPIN;
        context.count(COUNTERS.flows_hairpin, 1);
        let written = packet.set_source(mapped.external).and(packet.set_destination(target.internal));
        Ok(turn_back(written))
    }

    fn open_from_outside(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let (remote, destination) = packet.ends();
        if !self.is_external(destination.addr) {
            // Inside addresses must not be reachable untranslated.
            let otherwise = if self.is_inside(destination.addr) {
                UnmatchedAction::Drop
            } else {
                self.config.untranslated
            };
            return self.leave_alone(otherwise, state, context);
        }
        let class = self.opens(packet)?;
        // RFC 5382 REQ-4: an unexpected SYN gets no answer; a later SYN from inside is not
        // affected.
        let target = self.target(class, destination, context).ok_or(DropReason::NatNoMapping)?;
        state.internal = target.internal;
        state.external = destination;
        let mut keep_ms = self.keep.ms(Side::Inside, state.class, context.connection());
        if target.item == PoolItem::NONE {
            state.flags = State::PLAIN;
        } else {
            if !self.admits(destination, remote, context) {
                return Err(DropReason::NatFiltered);
            }
            state.item = target.item;
            state.flags = State::BORROWED;
            keep_ms = keep_ms.min(UNANSWERED_MS);
        }
        context.keep_flow_ms(keep_ms);
        context.count(COUNTERS.flows_in, 1);
        Ok(forward(packet.set_destination(target.internal)))
    }

    /// Translates by prefix. The translation is stateless; the flow only caches the result.
    fn open_v6(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        if packet.meta().class == PacketClass::IcmpError {
            return self.icmpv6_error(packet, context);
        }
        let (source, destination) = packet.ends();
        let is_neighbour = self.hosts.is_neighbour(destination.addr, context);
        let inwards = if is_neighbour { None } else { self.inwards(destination, context)? };
        let outwards = match context.side() {
            Side::Inside => self.prefixed(source, Nptv6Rule::outwards)?,
            Side::Outside => None,
        };
        if let Some(external) = outwards {
            self.hosts.note(external.addr, context);
        }
        let keep_ms = self.keep.ms(Side::Inside, state.class, context.connection());
        let verdict = match (context.side(), outwards, inwards) {
            (Side::Inside, Some(external), None) => {
                (state.internal, state.external) = (source, external);
                state.flags = State::PLAIN;
                forward(packet.set_source(external))
            }
            // RFC 6296 4.1: hairpinning.
            (Side::Inside, Some(_), Some(_)) if !self.config.hairpin => return Err(DropReason::NatHairpin),
            (Side::Inside, Some(external), Some(peer)) => {
                (state.internal, state.external) = (source, external);
                (state.peer_internal, state.peer_external) = (peer, destination);
                state.flags = State::HAIRPIN;
                turn_back(packet.set_source(external).and(packet.set_destination(peer)))
            }
            (Side::Outside, _, Some(internal)) => {
                (state.internal, state.external) = (internal, destination);
                state.flags = State::PLAIN;
                forward(packet.set_destination(internal))
            }
            _ => return self.leave_alone(self.config.ipv6, state, context),
        };
        context.keep_flow_ms(keep_ms);
        context.count(COUNTERS.flows_nptv6, 1);
        Ok(verdict)
    }

    /// Translates an IPv6 endpoint by the first rule that covers it; the port stays.
    pub(super) fn prefixed(
        &self,
        end: Endpoint,
        translate: impl Fn(&Nptv6Rule, packet::Addr) -> Option<Translated>,
    ) -> Result<Option<Endpoint>, DropReason> {
        match self.prefixes.iter().find_map(|rule| translate(rule, end.addr)) {
            None => Ok(None),
            Some(Translated::To(addr)) => Ok(Some(Endpoint::new(addr, end.port))),
            Some(Translated::Unmappable) => Err(DropReason::NatUntranslated),
        }
    }

    /// Returns the inside address of an IPv6 destination; none if no rule covers it. Refuses inside
    /// addresses, which must not be reachable untranslated: answers would leave untranslated too.
    pub(super) fn inwards(
        &self,
        destination: Endpoint,
        context: &Context<'_>,
    ) -> Result<Option<Endpoint>, DropReason> {
        let internal = self.prefixed(destination, Nptv6Rule::inwards)?;
        let is_inside = || self.prefixes.iter().any(|rule| rule.outwards(destination.addr).is_some());
        if internal.is_none() && context.side() == Side::Outside && is_inside() {
            return Err(DropReason::NatUntranslated);
        }
        Ok(internal)
    }

    /// Passes or drops a flow that is not translated.
    fn leave_alone(
        &self,
        otherwise: UnmatchedAction,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        if otherwise == UnmatchedAction::Drop {
            return Err(DropReason::NatUntranslated);
        }
        state.flags = State::PASS;
        context.count(COUNTERS.flows_passed, 1);
        context.keep_flow_ms(self.keep.ms(Side::Inside, state.class, context.connection()));
        Ok(Verdict::Forward)
    }

    /// Returns the class of a packet that may open a flow.
    fn opens(&self, packet: &PacketView<'_>) -> Result<PortClass, DropReason> {
        opens_by(packet.meta(), packet.transport().first().copied(), self.config.tcp_opens_with)
    }

    /// Returns the inside endpoint of a hairpin packet's external destination.
    fn hairpin_target(
        &self,
        class: PortClass,
        destination: Endpoint,
        context: &mut Context<'_>,
    ) -> Result<Target, DropReason> {
        if !self.config.hairpin {
            return Err(DropReason::NatHairpin);
        }
        let target = self.target(class, destination, context);
        // The peer's mapping may be at another node.
        let place = self.space.number_of(v4(destination.addr).unwrap_or_default());
        let place = place.map(|address| ExternalPort { class, address, port: destination.port });
        let is_static = target.as_ref().is_some_and(|target| target.item == PoolItem::NONE);
        let is_near = place.is_none_or(|place| self.is_in_reach(place, context.affinity_group()));
        if !is_static && !is_near {
            return Err(DropReason::NatHairpin);
        }
        target.ok_or(DropReason::NatNoMapping)
    }

    fn target(&self, class: PortClass, external: Endpoint, context: &mut Context<'_>) -> Option<Target> {
        if let Some(internal) = self.forwards.inwards(class, external) {
            return Some(Target { internal, item: PoolItem::NONE });
        }
        let (internal, item) = self.owner_of(class, external, context)?;
        Some(Target { internal, item })
    }
}

/// Returns the class of a packet that may open a flow; `first` is the first byte of its transport
/// header.
pub(super) fn opens_by(meta: &Meta, first: Option<u8>, tcp: TcpOpening) -> Result<PortClass, DropReason> {
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    let opening = match (meta.protocol, first) {
        (protocol::TCP, _) => match tcp {
            TcpOpening::Syn => meta.tcp_flags & (SYN | RST | ACK) == SYN,
            TcpOpening::Any => meta.tcp_flags & RST == 0,
        },
        (protocol::ICMP, Some(kind)) if parse::is_query(protocol::ICMP, kind) => is_request(first),
        (protocol::ICMP, _) => return Err(DropReason::NatProtocol), // RFC 5508 REQ-11
        _ => true,
    };
    if opening { Ok(PortClass::of(meta.protocol)) } else { Err(DropReason::NatNotOpening) }
}

/// Returns whether an ICMP query is a request, not an answer: echo, timestamp, information, address
/// mask (RFC 5508 REQ-1).
pub(super) fn asks(packet: &PacketView<'_>) -> bool {
    is_request(packet.transport().first().copied())
}

fn is_request(kind: Option<u8>) -> bool {
    matches!(kind, Some(8 | 13 | 15 | 17))
}

/// Returns a rewritten packet to its side of origin.
pub(super) fn turn_back(written: Result<(), packet::RewriteError>) -> Verdict {
    match forward(written) {
        Verdict::Forward => Verdict::TurnBack,
        dropped => dropped,
    }
}

/// Returns whether the packet stays in its network: unspecified source, multicast, broadcast (RFC
/// 1122 3.2.1.3).
pub(super) fn is_local(source: Endpoint, destination: Endpoint) -> bool {
    let (source, destination) = (v4(source.addr).unwrap_or(0), v4(destination.addr).unwrap_or(0));
    source == 0 || destination >= 0xe000_0000
}
