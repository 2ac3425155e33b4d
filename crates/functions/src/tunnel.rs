//! A tunnel to another site: encapsulates IP packets in GRE, IP in IP, VXLAN or Geneve. See the
//! README.
//!
//! `ends` builds a flow's outer headers as a [`packet::OuterHeaders`] and recognises those of
//! received packets, so packets in both directions can follow cached rules (B14). Packets that
//! arrive outside the tunnel are examined one by one.

mod config;
mod ends;

use std::ops::Range;

use nf::answer::{self, IcmpError};
use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, PacketView, Plan, Scaling,
    Setup, StateFunction, Verdict,
};
use packet::parse::protocol;
use packet::{Addr, DropReason, OUTER_MATCH_LEN_MAX, OuterMatch, Packet, Side, split_mix};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use config::{Config, EncapProtocol, OuterDscp, StationMac, UdpChecksum, UntunneledAction};
pub use ends::{GENEVE_PORT, MTU_MIN, VXLAN_PORT};

use crate::headers::InnerHeader;
use ends::{TunnelEnds, TunnelMatch};

/// Minimum interval, in nanoseconds, between two notifications of a flow's sender that its packets
/// are too big.
pub const NOTIFY_INTERVAL_NS: u64 = 100_000_000;

/// A tunnel.
pub struct Tunnel {
    ends: TunnelEnds,
    others: UntunneledAction,
    /// The tunnel's own addresses inside.
    gateway4: Option<Addr>,
    gateway6: Option<Addr>,
    seed: u64,
}

/// Per-flow state of the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Time of the last notification that a packet is too big, in nanoseconds; 0: never.
    notified_ns: u64,
    /// Varies outer headers among flows; 0: not computed yet.
    entropy: u32,
    reserved: u32,
}

nf::counters! {
    /// Packets encapsulated.
    packets_out: packets,
    /// IP bytes encapsulated, without outer headers.
    bytes_out: bytes,
    /// Packets decapsulated.
    packets_in: packets,
    /// IP bytes decapsulated, without outer headers.
    bytes_in: bytes,
    /// Packets encapsulated although longer than `mtu`.
    packets_oversize: packets,
    /// Packets from outside, through no tunnel.
    packets_others: packets,
    /// ICMP errors sent to senders inside.
    errors_sent: packets,
    /// GRE keepalives of the other end that were answered.
    keepalives_answered: packets,
}

/// State functions that count an outgoing packet and a packet received through the tunnel.
const COUNT_OUT: StateFunction = StateFunction { id: 1, access: Access::Ignore, reads: &[] };
const COUNT_IN: StateFunction = StateFunction { id: 2, access: Access::Ignore, reads: &[] };

static DESCRIPTOR: Descriptor = Descriptor {
    name: "tunnel",
    summary: "A tunnel to another site: GRE, IP in IP, VXLAN or Geneve, over IPv4 and IPv6",
    maturity: Maturity::Preview,
    state_version: 1,
    reads: &[Field::SourceAddress, Field::DestinationAddress, Field::Protocol, Field::Dscp],
    writes: &[Field::Encapsulation],
    payload: Access::Ignore,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    consolidates: true,
    cycles_per_packet: 150,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Tunnel {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Tunnel, ConfigError> {
        if !setup.inner {
            return Err(ConfigError::new(
                "a tunnel needs flows of the inner packets; set `settings { key: inner }`",
            ));
        }
        let ends = TunnelEnds::new(&config)?;
        setup.owns(Some(Side::Outside), ends.local(), ends.local());
        Ok(Tunnel {
            ends,
            others: config.others,
            gateway4: config.gateway4.map(|addr| Addr::from_v4_bytes(addr.octets())),
            gateway6: config.gateway6.map(|addr| Addr::from_bytes(addr.octets())),
            seed: setup.seed,
        })
    }

    fn answers(&self) -> nf::AnswerScope {
        nf::AnswerScope { longer_than: self.ends.inner_mtu().into(), ..nf::AnswerScope::NONE }
    }

    #[inline]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let done = match context.side() {
            Side::Inside => self.send(packet, state, context),
            Side::Outside => self.receive(packet, context),
        };
        match done {
            Ok(()) => Verdict::Forward,
            Err(reason) => Verdict::Drop(reason),
        }
    }

    fn state_function(&self, id: u16, packet: &Packet, _: &mut State, context: &mut Context<'_>) {
        match id {
            _ if id == COUNT_OUT.id => count_out(context, packet.ip_len()),
            _ if id == COUNT_IN.id => count_in(context, packet.flow_len()),
            _ => {}
        }
    }

    fn predict(&self, state: &State, plan: &mut Plan<'_>) -> bool {
        if plan.side == Side::Outside {
            if plan.source().addr == self.ends.local() {
                return false; // There may be keepalives among them.
            }
            plan.record_state_function(COUNT_IN);
            return plan.outer.is_some_and(|cover| self.matches(cover)) && plan.decap();
        }
        if state.entropy == 0 {
            return false;
        }
        let version = plan.destination().addr.version();
        plan.encap(self.ends.outer(version, state.entropy), self.ends.inner_mtu());
        plan.record_state_function(COUNT_OUT);
        true
    }
}

impl Tunnel {
    /// Encapsulates the packet.
    fn send(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if state.entropy == 0 {
            packet.mark_one_off(); // This is the flow's first packet.
            state.entropy = self.entropy(context);
        }
        let (meta, len) = (packet.meta(), packet.ip_len());
        let (version, is_nested) = (meta.version, meta.l3 != meta.outer_l3);
        if is_nested {
            packet.mark_one_off();
            return Err(DropReason::TunnelNested);
        }
        let is_oversize = len > usize::from(self.ends.inner_mtu());
        if is_oversize {
            packet.mark_one_off();
            self.check_oversize(len, packet, state, context)?;
        }
        let outer = self.ends.outer(version, state.entropy);
        packet
            .encap(&outer, self.ends.inner_mtu())
            .map_err(|error| error.reason_or(DropReason::TunnelMalformed))?;
        packet.record_state_function(COUNT_OUT);
        count_out(context, len);
        context.count(COUNTERS.packets_oversize, u64::from(is_oversize));
        Ok(())
    }

    /// Returns the flow's entropy for outer headers, not 0.
    fn entropy(&self, context: &Context<'_>) -> u32 {
        let key = context.flow().key;
        let mut mixed = key.words().iter().fold(self.seed, |mut mixed, word| {
            mixed ^= word;
            split_mix(&mut mixed)
        });
        (split_mix(&mut mixed) >> 32) as u32 | 1
    }

    /// Passes a packet that exceeds the inner MTU, if it may be fragmented. Otherwise refuses it,
    /// and notifies its sender if necessary (RFC 1191, RFC 8201).
    #[cold]
    fn check_oversize(
        &self,
        len: usize,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let inner = InnerHeader::of(packet.outermost()).ok_or(DropReason::TunnelMalformed)?;
        let is_sendable = len + self.ends.header_len() <= usize::from(u16::MAX);
        if !inner.dont_fragment && self.ends.version() == 4 && is_sendable {
            return Ok(());
        }
        let may_notify = state.notified_ns == 0
            || context.now_ns().saturating_sub(state.notified_ns) >= NOTIFY_INTERVAL_NS;
        if inner.dont_fragment && may_notify {
            let own = if inner.version == 4 { self.gateway4 } else { self.gateway6 };
            let error = IcmpError::TooBig { mtu: self.ends.inner_mtu().into() };
            let mut buffer = answer::buffer();
            if let Ok(message) =
                answer::icmp_error(packet, error, own.unwrap_or(inner.destination), &mut buffer)
                && context.answer(packet, message).is_ok()
            {
                state.notified_ns = context.now_ns().max(1);
                context.count(COUNTERS.errors_sent, 1);
            }
        }
        Err(DropReason::TooBig)
    }

    /// Decapsulates the packet, if it came through the tunnel.
    fn receive(&self, packet: &mut PacketView<'_>, context: &mut Context<'_>) -> Result<(), DropReason> {
        match self.inner_packet(packet.outermost()) {
            Ok(Some(InnerPacket { header_len, len })) => {
                if packet.meta().protocol == protocol::GRE {
                    self.answer_keepalive(header_len..header_len + len, packet, context)?;
                }
                packet.decap(header_len).map_err(|error| error.reason_or(DropReason::TunnelMalformed))?;
                packet.record_state_function(COUNT_IN);
                count_in(context, len);
                Ok(())
            }
            other => {
                packet.mark_per_packet(); // The decision depends on more than the headers' layout.
                other?;
                context.count(COUNTERS.packets_others, 1);
                match self.others {
                    UntunneledAction::Pass => Ok(()),
                    UntunneledAction::Drop => Err(DropReason::TunnelOther),
                }
            }
        }
    }

    /// Answers the packet if its inner packet, at `inner`, is a keepalive. A keepalive contains the
    /// complete answer.
    #[cold]
    fn answer_keepalive(
        &self,
        inner: Range<usize>,
        packet: &mut PacketView<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if packet.ends().0.addr == self.ends.local() {
            packet.mark_per_packet(); // The flow's other packets may be none.
        }
        let Some(keepalive) = packet.outermost().get(inner).filter(|inner| self.ends.is_keepalive(inner))
        else {
            return Ok(());
        };
        context.answer(packet, keepalive)?;
        context.count(COUNTERS.keepalives_answered, 1);
        Err(DropReason::TunnelAnswered)
    }

    /// Finds the inner packet of a packet that begins with its outermost IP header; none if the
    /// packet did not come through the tunnel.
    fn inner_packet(&self, packet: &[u8]) -> Result<Option<InnerPacket>, DropReason> {
        let outer = InnerHeader::of(packet).ok_or(DropReason::TunnelMalformed)?;
        let TunnelMatch::Headers(header_len) =
            self.ends.match_headers(packet, outer.source, outer.destination)?
        else {
            return Ok(None);
        };
        let found = packet.get(header_len..).and_then(InnerHeader::of).ok_or(DropReason::TunnelMalformed)?;
        if header_len + found.len > outer.len {
            return Err(DropReason::TunnelMalformed);
        }
        Ok(Some(InnerPacket { header_len, len: found.len }))
    }

    /// Returns whether all of these outer headers belong to this tunnel.
    #[cold]
    fn matches(&self, cover: &OuterMatch) -> bool {
        let mut bytes = [0; OUTER_MATCH_LEN_MAX];
        let Some(headers) = bytes.get_mut(..cover.len()) else { return false };
        headers.iter_mut().zip(cover.bytes()).for_each(|(byte, of_cover)| *byte = of_cover);
        let Some(outer) = InnerHeader::of(headers) else { return false };
        self.ends.match_headers(headers, outer.source, outer.destination)
            == Ok(TunnelMatch::Headers(cover.len()))
    }
}

/// A packet in the tunnel.
struct InnerPacket {
    /// Length of the outer headers.
    header_len: usize,
    /// Length of the inner IP packet.
    len: usize,
}

#[inline]
fn count_in(context: &mut Context<'_>, bytes: usize) {
    context.count(COUNTERS.packets_in, 1);
    context.count(COUNTERS.bytes_in, bytes as u64);
}

#[inline]
fn count_out(context: &mut Context<'_>, bytes: usize) {
    context.count(COUNTERS.packets_out, 1);
    context.count(COUNTERS.bytes_out, bytes as u64);
}
