//! Denial-of-service prevention (E31): no flow, and no source of flows, from the other side exceeds
//! its share of the protected side.
//!
//! A flow that exceeds a limit is blocked until it ends. Whether it has exceeded one follows from
//! its state alone, not from the time. A consolidated path therefore counts its packets with a
//! state function and drops them once an event condition holds (B7). See the README.

mod alerts;
mod config;
mod sources;
#[cfg(test)]
mod tests;

use nf::{
    Access, Affinity, Cause, Context, Descriptor, EventCondition, Field, Maturity, NetworkFunction,
    NodeSharing, PacketView, Plan, Scaling, Setup, Shared, StateFunction, Verdict,
};
use packet::parse::protocol;
use packet::{DropReason, Packet, PacketClass, Side};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use config::{BURST_MAX, Config, SOURCES_MAX};

use alerts::{DosAlerts, DosLimit};
use sources::SourceLimiter;

use crate::masks::AddressMasks;
use crate::policer::marker::{BucketLevels, Marker, PACKET, PacketColour};

/// The function `dos`.
pub struct Dos {
    protected: Side,
    /// Maximum SYNs of a flow before its connection is established; 0: unlimited.
    syns: u32,
    /// Maximum packets of a flow; 0: unlimited.
    packets: u64,
    flow_rate: Option<Marker>,
    sources: Option<SourceLimiter>,
    alerts: DosAlerts,
}

/// The state of a flow: counts of packets from the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// The bucket of the flow's rate, if limited.
    levels: BucketLevels,
    /// Packets passed, if limited.
    packets: u64,
    /// SYNs passed since the connection was last established.
    syns: u32,
    /// 1 once a packet exceeded the flow's rate.
    too_fast: u8,
    /// 1 once the flow is blocked.
    blocked: u8,
    /// 1 once its source was allowed to begin it.
    admitted: u8,
    /// 1 from a SYN that opens a connection until that is established: a SYN on an established
    /// connection does not restart the count.
    opening: u8,
}

nf::counters! {
    /// Flows blocked for their packet rate.
    blocked_by_rate: flows,
    /// Flows blocked for their number of packets.
    blocked_by_packets: flows,
    /// Flows blocked for their number of SYNs.
    blocked_by_syns: flows,
    /// Packets of blocked flows, dropped.
    dropped: packets,
    /// Packets that would have begun a flow, dropped.
    refused: packets,
    /// Packets without a free meter for their source; they pass or are dropped.
    unmetered: packets,
}

/// The meter table of the sources.
const SOURCES: usize = 0;
/// The meter table of the last alerts, one per limit.
const ALERTS: usize = 1;

/// State function: counts a packet that passes.
const COUNT: StateFunction = StateFunction { id: 1, access: Access::Ignore, reads: &[] };
/// State function: counts a packet of a blocked flow.
const REFUSE: StateFunction = StateFunction { id: 2, access: Access::Ignore, reads: &[] };
/// Event condition: the flow has reached a limit.
const USED_UP: EventCondition = EventCondition { id: 1, argument: 0, cause: Cause::Packet };

static DESCRIPTOR: Descriptor = Descriptor {
    name: "dos",
    aliases: &["dos-preventer", "DosPreventer", "dos-prevention"],
    summary: "Blocks flows that exceed a rate or a number of packets or SYNs, and limits new flows per source",
    maturity: Maturity::Preview,
    state_version: 1,
    reads: &[Field::SourceAddress, Field::Protocol, Field::TcpFlags, Field::Vlan],
    payload: Access::Ignore,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    shared: &[Shared::Meters("sources"), Shared::Meters("alerts")],
    across_nodes: NodeSharing::OneMachine("the rate of a source is that of all its flows"),
    consolidates: true,
    cycles_per_packet: 20,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Dos {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Dos, ConfigError> {
        config.check()?;
        let flow_rate = config.checked_flow_rate()?;
        let room = config.checked_sources()?;
        let masks = AddressMasks::new(config.prefix4, config.prefix6)?;
        let rate = config.checked_connections()?;
        let sources = rate.map(|rate| SourceLimiter::new(rate, masks, config.when_full));
        let alerts = DosAlerts::new(&config);
        setup.meters(if sources.is_some() { room } else { 0 });
        setup.meters(if alerts.silence_ns > 0 { DosAlerts::KINDS } else { 0 });
        Ok(Dos {
            protected: config.protect.side(),
            syns: config.syns,
            packets: config.packets,
            flow_rate,
            sources,
            alerts,
        })
    }

    // B7, E31
    #[inline(always)]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if context.side() == self.protected {
            return Verdict::Forward;
        }
        let opens = self.syns > 0 && is_syn(packet);
        if state.blocked == 0 {
            if let Some(limit) = self.limit_reached(state, opens) {
                self.block(limit, state, context);
            } else if let Err(reason) = self.admit(packet, state, context) {
                packet.mark_one_off(); // The source's next one may find it free.
                return Verdict::Drop(reason);
            }
        }
        if state.blocked != 0 {
            packet.record_state_function(REFUSE);
            context.count(COUNTERS.dropped, 1);
            return Verdict::Drop(DropReason::DosFlow);
        }
        // A SYN or another phase ends the recording of a flow, so packets on the fast path have
        // nothing to do here.
        let is_established = context.connection().is_established();
        if opens {
            state.syns += 1;
            state.opening |= u8::from(!is_established);
        } else if state.opening != 0 && is_established {
            (state.syns, state.opening) = (0, 0);
        }
        if self.counts() {
            packet.record_state_function(COUNT);
            packet.record_event(USED_UP);
            self.count(state, context.now_ns());
        }
        Verdict::Forward
    }

    #[inline(always)]
    fn state_function(&self, id: u16, _: &Packet, state: &mut State, context: &mut Context<'_>) {
        if id == COUNT.id {
            self.count(state, context.now_ns());
        } else {
            context.count(COUNTERS.dropped, 1);
        }
    }

    fn predict(&self, state: &State, plan: &mut Plan<'_>) -> bool {
        if plan.side == self.protected {
            return true;
        }
        let is_known = self.sources.is_none() || state.admitted != 0;
        let is_opening = state.opening != 0 && plan.connection.is_established();
        if state.blocked != 0 || !is_known || is_opening || self.limit_reached(state, false).is_some() {
            return false;
        }
        if self.counts() {
            plan.record_state_function(COUNT);
            plan.record_event(USED_UP);
        }
        true
    }

    fn event_holds(&self, _: EventCondition, state: &State) -> bool {
        self.limit_reached(state, false).is_some()
    }
}

impl Dos {
    /// Returns the limit that the flow has reached, so that its next packet, a SYN or not, must be
    /// dropped. The time does not matter.
    #[inline(always)]
    fn limit_reached(&self, state: &State, is_syn: bool) -> Option<DosLimit> {
        if state.too_fast != 0 {
            return Some(DosLimit::Rate);
        }
        if self.packets > 0 && state.packets >= self.packets {
            return Some(DosLimit::Packets);
        }
        (is_syn && state.syns >= self.syns).then_some(DosLimit::Syns)
    }

    /// Returns whether packets must be counted individually.
    #[inline(always)]
    fn counts(&self) -> bool {
        self.packets > 0 || self.flow_rate.is_some()
    }

    /// Counts a packet that passes now.
    #[inline(always)]
    fn count(&self, state: &mut State, now_ns: u64) {
        if self.packets > 0 {
            state.packets += 1;
        }
        if let Some(rate) = &self.flow_rate
            && rate.colour(&mut state.levels, PACKET, now_ns, PacketColour::Green) != PacketColour::Green
        {
            state.too_fast = 1;
        }
    }

    #[cold]
    fn block(&self, limit: DosLimit, state: &mut State, context: &mut Context<'_>) {
        state.blocked = 1;
        match limit {
            DosLimit::Rate => context.count(COUNTERS.blocked_by_rate, 1),
            DosLimit::Packets => context.count(COUNTERS.blocked_by_packets, 1),
            DosLimit::Syns => context.count(COUNTERS.blocked_by_syns, 1),
            // It refuses flows, and blocks none.
            DosLimit::Connections => {}
        }
        self.alerts.raise(limit, context);
    }

    /// Returns `Ok` if the flow has begun or its source may begin it.
    #[inline(always)]
    fn admit(
        &self,
        packet: &PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let Some(sources) = &self.sources else { return Ok(()) };
        if state.admitted == 0 && context.flow().origin != self.protected {
            let begun = sources.begin(packet, context);
            if begun == Err(DropReason::DosSource) {
                self.alerts.raise(DosLimit::Connections, context);
            }
            begun?;
            state.admitted = 1;
        }
        Ok(())
    }
}

/// Returns whether the packet is a SYN without ACK (RFC 9293 3.5).
#[inline(always)]
fn is_syn(packet: &PacketView<'_>) -> bool {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let meta = packet.meta();
    meta.protocol == protocol::TCP
        && matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment)
        && meta.tcp_flags & (SYN | ACK) == SYN
}
