//! Packets of known flows that need more than one header write: hairpins, ICMP errors, and flows
//! from outside that the inside host has not answered.

use nf::{Context, PacketView, Verdict};
use packet::parse::protocol;
use packet::{Direction, DropReason, PacketClass, Side};

use super::events::NatEvent;
use super::mapping::ItemUse;
use super::open::{asks, turn_back};
use super::space::PortClass;
use super::state::{PoolItem, State};
use super::{COUNTERS, Nat, forward, is_for, matches_direction};

impl Nat {
    #[inline(never)]
    pub(super) fn process_special(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        let opens = state.flags == 0;
        let verdict = self.process_any(packet, state, context);
        // A packet from outside refreshes only a flow that it opens (RFC 4787 REQ-6).
        let settled = state.has(State::PLAIN | State::PASS) && !(opens && context.side() == Side::Outside);
        if !settled {
            packet.mark_one_off();
        }
        verdict
    }

    fn process_any(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        if state.flags == 0 {
            return self.open(packet, state, context);
        }
        if packet.meta().class == PacketClass::IcmpError {
            // An error neither ends nor refreshes a flow (RFC 4787 REQ-12, RFC 5382 REQ-10, RFC
            // 5508 REQ-6, RFC 7857 7.1).
            return self.icmp_error(packet, state, context);
        }
        let keep_ms = self.keep.ms(context.side(), state.class, context.connection());
        if state.has(State::PASS) {
            context.keep_flow_ms(keep_ms);
            return Verdict::Forward;
        }
        if !matches_side(state, context) {
            return self.spoofed(packet, context);
        }
        if state.has(State::HAIRPIN) {
            return self.process_hairpin(keep_ms, packet, state, context);
        }
        match context.side() {
            Side::Outside => self.process_unanswered(packet, state, context),
            Side::Inside => self.process_answer(keep_ms, packet, state, context),
        }
    }

    /// Handles a later packet of a flow that an outside host opened, without refreshing anything.
    fn process_unanswered(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        if !is_for(packet, state.external.addr) {
            return self.spoofed(packet, context);
        }
        if !self.still_owns(state.internal, state.item, context) {
            return self.reopen(packet, state, context);
        }
        forward(packet.set_destination(state.internal))
    }

    /// Handles the inside host's first answer to a flow that an outside host opened. From now on
    /// the flow keeps its mapping alive.
    fn process_answer(
        &self,
        keep_ms: u32,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        if !self.still_owns(state.internal, state.item, context) {
            // The remote host does not know it by any other endpoint. The flow expires soon, and
            // the next one gets a new mapping.
            context.count(COUNTERS.stale, 1);
            return Verdict::Drop(DropReason::NatNoMapping);
        }
        if !is_reset(packet) {
            let Ok(session) = self.enter_session(state.internal.addr, false, context) else {
                return Verdict::Drop(DropReason::NatSubscriberLimit);
            };
            state.session = session;
            self.join(state.item, context);
            state.permission = self.permit(state.external, remote(packet), context);
            state.flags = State::PLAIN | State::HELD;
            context.keep_flow_ms(keep_ms);
        }
        forward(packet.set_source(state.external))
    }

    /// Handles a hairpin: both hosts are inside, and each knows the other's external endpoint (RFC
    /// 4787 REQ-9).
    fn process_hairpin(
        &self,
        keep_ms: u32,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        let unanswered = state.peer_item != PoolItem::NONE && !state.has(State::PEER_HELD);
        let stale = unanswered && !self.still_owns(state.peer_internal, state.peer_item, context);
        match context.direction() {
            Direction::Original => {
                if stale && !self.find_peer(packet, state, context) {
                    return Verdict::Drop(DropReason::NatNoMapping);
                }
                context.keep_flow_ms(keep_ms);
                let written = packet.set_source(state.external);
                turn_back(written.and(packet.set_destination(state.peer_internal)))
            }
            Direction::Reply if stale => {
                context.count(COUNTERS.stale, 1);
                Verdict::Drop(DropReason::NatNoMapping)
            }
            // A request, not an answer. Both hosts use one identifier, so the flow key is this
            // flow's. The destination is the mapping of that identifier, which need not belong to
            // the first host.
            Direction::Reply if packet.meta().protocol == protocol::ICMP && asks(packet) => {
                Verdict::Drop(DropReason::NatNotOpening)
            }
            Direction::Reply => {
                if unanswered && !is_reset(packet) {
                    self.join(state.peer_item, context);
                    state.peer_permission = self.permit(state.peer_external, state.external.addr, context);
                    state.flags |= State::PEER_HELD;
                }
                context.keep_flow_ms(keep_ms);
                let written = packet.set_source(state.peer_external);
                turn_back(written.and(packet.set_destination(state.internal)))
            }
        }
    }

    /// Finds the new owner of the peer's external endpoint, after the peer's mapping was released.
    /// Returns whether a new owner exists and admits the first host. The first host's own mapping
    /// stays.
    fn find_peer(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> bool {
        context.count(COUNTERS.stale, 1);
        let class = PortClass::of(packet.meta().protocol);
        match self.owner_of(class, state.peer_external, context) {
            Some((internal, item)) if self.admits(state.peer_external, state.external, context) => {
                (state.peer_internal, state.peer_item) = (internal, item);
                context.relearn_alias();
                true
            }
            _ => false,
        }
    }

    /// Treats the packet as the first of its flow, because the mapping was released and may belong
    /// to another host.
    fn reopen(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        context.count(COUNTERS.stale, 1);
        if self.wanted.sessions {
            self.session_event(NatEvent::SessionDelete, state, context);
        }
        self.release(state, ItemUse::Ends, context);
        *state = State::default();
        context.relearn_alias();
        self.open(packet, state, context)
    }
}

/// Returns whether the packet entered by a side that its direction allows; both hosts of a hairpin
/// are inside.
pub(super) fn matches_side(state: &State, context: &Context<'_>) -> bool {
    if state.has(State::HAIRPIN) { context.side() == Side::Inside } else { matches_direction(context) }
}

/// Returns whether the packet is a reset: it answers unwanted packets and refreshes nothing (RFC
/// 7857 7.1).
fn is_reset(packet: &PacketView<'_>) -> bool {
    const RST: u8 = 4;
    packet.meta().protocol == packet::parse::protocol::TCP && packet.meta().tcp_flags & RST != 0
}

fn remote(packet: &PacketView<'_>) -> packet::Addr {
    packet.ends().1.addr
}
