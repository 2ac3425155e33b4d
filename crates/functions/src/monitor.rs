//! The flow monitor (B24, A29): counts every packet, rewrites none, and reports flows to IPFIX
//! collectors.
//!
//! The README describes it for operators.

use nf::{
    Access, Affinity, Context, Counter, Descriptor, EndReason, Field, Maturity, NetworkFunction, PacketView,
    Plan, Scaling, Setup, StateFunction, Verdict,
};
use packet::parse::protocol;
use packet::{Direction, FlowHasher, FlowKey, Meta, Packet, PacketClass};
use serde::Deserialize;
use values::{ConfigError, Nanos};

mod state;
#[cfg(test)]
mod tests;

pub use state::State;

/// The configuration; the README documents the keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// A flow is reported at its first packet after this time since the first packet not yet
    /// reported (RFC 5470 5.1.1). Must be above zero.
    pub active_timeout: Nanos,
    /// One of this many flows is reported, chosen by a hash of its key; at least 1. Counters cover
    /// all flows.
    pub sample: u32,
    /// The triggers of flow reports; without any, the monitor only counts.
    pub report: Vec<ReportTrigger>,
}

/// A trigger of flow reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportTrigger {
    /// The end of a flow, for any reason.
    End,
    /// The active timeout.
    Active,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            active_timeout: Nanos(30 * 60 * 1_000_000_000),
            sample: 1,
            report: vec![ReportTrigger::End, ReportTrigger::Active],
        }
    }
}

/// The flow monitor.
pub struct Monitor {
    /// [`u64::MAX`]: never.
    active_timeout_ns: u64,
    reports_end: bool,
    sample: u64,
    sampler: FlowHasher,
}

/// Separates the sampling of flows from other uses of the run's seed.
const SAMPLER_SALT: u64 = 0x6d6f_6e69_746f_7221;

nf::counters! {
    /// Flows, those left out by sampling included.
    flows: flows,
    /// Flows left out by sampling.
    flows_unsampled: flows,
    /// Flow reports.
    reports: reports,
    /// ICMP errors about known flows.
    icmp_errors: packets,
    /// TCP packets.
    packets_tcp: packets,
    /// UDP packets.
    packets_udp: packets,
    /// ICMP packets, of both versions.
    packets_icmp: packets,
    /// Packets of other protocols.
    packets_other: packets,
    /// IP bytes of TCP packets.
    bytes_tcp: bytes,
    /// IP bytes of UDP packets.
    bytes_udp: bytes,
    /// IP bytes of ICMP packets, of both versions.
    bytes_icmp: bytes,
    /// IP bytes of packets of other protocols.
    bytes_other: bytes,
}

/// Counters of packets by [`traffic`] class.
const PACKETS: [Counter; 4] =
    [COUNTERS.packets_tcp, COUNTERS.packets_udp, COUNTERS.packets_icmp, COUNTERS.packets_other];
/// Counters of bytes by [`traffic`] class.
const BYTES: [Counter; 4] =
    [COUNTERS.bytes_tcp, COUNTERS.bytes_udp, COUNTERS.bytes_icmp, COUNTERS.bytes_other];

/// IPFIX flowEndReason (IANA, RFC 5102 5.11.3).
mod end_reason {
    pub const IDLE_TIMEOUT: u8 = 1;
    pub const ACTIVE_TIMEOUT: u8 = 2;
    pub const END_OF_FLOW: u8 = 3;
    pub const FORCED_END: u8 = 4;
    pub const LACK_OF_RESOURCES: u8 = 5;
}

/// State function: counts a packet, which is all that the monitor does.
const SEE: StateFunction =
    StateFunction { id: 1, access: Access::Ignore, reads: &[Field::TcpFlags, Field::Dscp] };

static DESCRIPTOR: Descriptor = Descriptor {
    name: "monitor",
    aliases: &["flow-monitor"],
    summary: "Counts packets and bytes, and reports flows to IPFIX collectors.",
    maturity: Maturity::Production,
    state_version: 1,
    reads: &[
        Field::SourceAddress,
        Field::DestinationAddress,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Protocol,
        Field::TcpFlags,
        Field::Dscp,
        Field::Vlan,
    ],
    payload: Access::Ignore,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    consolidates: true,
    cycles_per_packet: 25,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Monitor {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;
    const HOT_BYTES: usize = State::HOT_BYTES;

    fn new(config: Config, setup: &mut Setup) -> Result<Monitor, ConfigError> {
        if config.active_timeout.0 == 0 {
            return Err(ConfigError::new(
                "`active_timeout` must be above zero; to report flows only at their end, write `report: [end]`",
            ));
        }
        if config.sample == 0 {
            return Err(ConfigError::new(
                "`sample` must be at least 1; to report no flows, write `report: []`",
            ));
        }
        let reports_active = config.report.contains(&ReportTrigger::Active);
        Ok(Monitor {
            active_timeout_ns: if reports_active { config.active_timeout.0 } else { u64::MAX },
            reports_end: config.report.contains(&ReportTrigger::End),
            sample: u64::from(config.sample),
            sampler: FlowHasher::new(setup.seed ^ SAMPLER_SALT),
        })
    }

    // B24, A29
    #[inline(always)]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if packet.is_recording() {
            packet.record_state_function(SEE);
        }
        self.see(packet, state, context);
        Verdict::Forward
    }

    #[inline(always)]
    fn state_function(&self, id: u16, packet: &Packet, state: &mut State, context: &mut Context<'_>) {
        if id == SEE.id {
            self.see(packet, state, context);
        }
    }

    fn predict(&self, _state: &State, plan: &mut Plan<'_>) -> bool {
        plan.record_state_function(SEE);
        true
    }

    fn predicts_uniformly(&self) -> bool {
        true
    }

    fn flow_end(&self, state: &mut State, reason: EndReason, context: &mut Context<'_>) {
        if self.reports_end && state.is_watched() && state.has_counted() {
            let reason = match reason {
                // Whatever removes the flow now, its connection was complete.
                _ if context.connection().is_over() => end_reason::END_OF_FLOW,
                EndReason::Idle => end_reason::IDLE_TIMEOUT,
                EndReason::Closed => end_reason::END_OF_FLOW,
                EndReason::Rejected | EndReason::Shutdown => end_reason::FORCED_END,
                EndReason::Evicted => end_reason::LACK_OF_RESOURCES,
            };
            self.report(state, reason, context);
        }
    }
}

impl Monitor {
    /// Counts a packet.
    #[inline(always)]
    fn see(&self, packet: &Packet, state: &mut State, context: &mut Context<'_>) {
        let meta = packet.meta();
        let bytes = packet.ip_len() as u64;
        let traffic = traffic(meta.protocol);
        context.count(PACKETS[traffic], 1);
        context.count(BYTES[traffic], bytes);
        if meta.class == PacketClass::IcmpError && is_related(meta, &context.flow().key) {
            // An ICMP error about the flow has a protocol and endpoints of its own: it is not a
            // packet of the flow (RFC 7011 2).
            context.count(COUNTERS.icmp_errors, 1);
            return;
        }
        if state.is_new() {
            self.begin(packet, state, context);
        }
        if !state.is_watched() {
            return;
        }
        let (direction, now_ns) = (context.direction(), context.now_ns());
        if state.is_due(direction, now_ns, self.active_timeout_ns) {
            self.report_active(state, context);
        }
        state.count(packet, direction, now_ns, bytes);
    }

    /// Handles the first packet of a flow: decides whether it is sampled, and records its
    /// endpoints.
    #[inline(never)]
    fn begin(&self, packet: &Packet, state: &mut State, context: &mut Context<'_>) {
        context.count(COUNTERS.flows, 1);
        let flow = context.flow();
        if !self.sampler.hash(&flow.key).is_multiple_of(self.sample) {
            context.count(COUNTERS.flows_unsampled, 1);
            state.ignore();
            return;
        }
        let (source, destination) = match flow.direction {
            // A later fragment has no ports; the flow's key is the best source.
            _ if !packet.meta().has_transport() => flow.key.ends(flow.reversed),
            Direction::Original => packet.ends(),
            Direction::Reply => {
                let (source, destination) = packet.ends();
                (destination, source)
            }
        };
        state.watch(source, destination);
    }

    /// Reports the counts so far and resets them.
    #[cold]
    fn report_active(&self, state: &mut State, context: &mut Context<'_>) {
        self.report(state, end_reason::ACTIVE_TIMEOUT, context);
        state.restart();
    }

    fn report(&self, state: &State, reason: u8, context: &mut Context<'_>) {
        // At most the configured value, which has 32 bits.
        let sampling = self.sample as u32;
        let report = state.report(&context.flow(), context.ends_at_exit(), reason, sampling);
        context.count(COUNTERS.reports, 1);
        context.report_flow(report);
    }
}

/// Returns whether the packet is an ICMP error about the flow with this key. An error that quotes
/// an unknown flow has a portless flow of its own.
#[cold]
fn is_related(error: &Meta, flow: &FlowKey) -> bool {
    let (low, high) = flow.ends(false);
    flow.protocol != error.protocol || low.port != 0 || high.port != 0
}

/// Returns the class under which packets of a protocol are counted.
#[inline]
fn traffic(protocol: u8) -> usize {
    match protocol {
        protocol::TCP => 0,
        protocol::UDP => 1,
        protocol::ICMP | protocol::ICMPV6 => 2,
        _ => 3,
    }
}
