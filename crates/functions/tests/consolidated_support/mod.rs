//! Functions as users may write them, with behaviour that no built-in function has.

pub mod tunnels;
pub mod variations;

use nf::answer::{self, IcmpError};
use nf::{
    Access, Affinity, Attribute, Context, Descriptor, EventValue, Field, FlowReport, MapSpec, Maturity,
    NetworkFunction, PacketView, Plan, Registry, Scaling, Setup, Shared, StateFunction, Verdict,
};
use packet::parse::protocol;
use packet::{Addr, DropReason, OuterHeaders, Packet, Tag, TagKind, split_mix};
use serde::Deserialize;
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Returns the registry of all built-in functions and those of this file.
pub fn registry() -> Registry<serde_json::Value> {
    let mut registry = functions::registry();
    registry.add(nf::loader!(Remark), "");
    registry.add(nf::loader!(Stamp), "");
    registry.add(nf::loader!(Hop), "");
    registry.add(nf::loader!(Enter), "");
    registry.add(nf::loader!(Leave), "");
    registry.add(nf::loader!(TagPusher), "");
    registry.add(nf::loader!(TagPopper), "");
    registry.add(nf::loader!(Probe<false>), "");
    registry.add(nf::loader!(Probe<true>), "");
    registry
}

const fn descriptor(name: &'static str) -> Descriptor {
    Descriptor {
        name,
        summary: "",
        maturity: Maturity::Experimental,
        state_version: 1,
        writes: &[Field::Dscp],
        payload: Access::Ignore,
        affinity: Affinity::Flow,
        scaling: Scaling::Servers,
        consolidates: true,
        cycles_per_packet: 20,
        ..Descriptor::DEFAULT
    }
}

#[derive(Clone, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Packets(u64);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// Sets one DSCP per flow and direction.
pub struct Remark;

static REMARK: Descriptor = descriptor("remark");

impl NetworkFunction for Remark {
    const DESCRIPTOR: &'static Descriptor = &REMARK;
    type Config = NoConfig;
    type State = Packets;

    fn new(_: NoConfig, _: &mut Setup) -> Result<Remark, ConfigError> {
        Ok(Remark)
    }

    fn process(&self, packet: &mut PacketView<'_>, _: &mut Packets, context: &mut Context<'_>) -> Verdict {
        let of_flow = context.flow().key.words().iter().fold(0, |all, word| all ^ (word % 61)) as u8;
        packet.set_dscp(of_flow ^ context.direction().index() as u8);
        Verdict::Forward
    }
}

/// Sets a DSCP by the packet's length and number in its flow, and drops some packets.
pub struct Stamp;

static STAMP: Descriptor = Descriptor { keeps_flows: true, ..descriptor("stamp") };

impl NetworkFunction for Stamp {
    const DESCRIPTOR: &'static Descriptor = &STAMP;
    type Config = NoConfig;
    type State = Packets;

    fn new(_: NoConfig, _: &mut Setup) -> Result<Stamp, ConfigError> {
        Ok(Stamp)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut Packets,
        context: &mut Context<'_>,
    ) -> Verdict {
        packet.mark_per_packet();
        state.0 += 1;
        // Not the number of earlier packets: when an answer comes depends on batches.
        let number = packet.meta().transit.seq;
        context.keep_flow_ms(20 + (number % 7) as u32 * 10);
        packet.set_dscp(((packet.ip_len() as u64 + number) % 64) as u8);
        if number.is_multiple_of(19) { Verdict::Drop(packet::DropReason::Function) } else { Verdict::Forward }
    }
}

/// A router hop.
pub struct Hop;

static HOP: Descriptor = Descriptor { writes: &[Field::TimeToLive], ..descriptor("hop") };

impl NetworkFunction for Hop {
    const DESCRIPTOR: &'static Descriptor = &HOP;

    fn answers(&self) -> nf::AnswerScope {
        nf::AnswerScope::ALL
    }

    type Config = NoConfig;
    type State = Packets;

    fn new(_: NoConfig, _: &mut Setup) -> Result<Hop, ConfigError> {
        Ok(Hop)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut Packets,
        context: &mut Context<'_>,
    ) -> Verdict {
        if packet.decrement_ttl() {
            return Verdict::Forward;
        }
        state.0 += 1;
        let from = packet.ends().1.addr;
        let mut buffer = answer::buffer();
        if let Ok(network) = answer::icmp_error(packet, IcmpError::TimeExceeded, from, &mut buffer) {
            let _ = context.answer(packet, network);
        }
        Verdict::Drop(packet::DropReason::TtlExpired)
    }
}

/// Length of the longest IP packet that [`Enter`] passes, in bytes.
pub const ENTER_LEN_MAX: u16 = 300;

/// Start of a tunnel: each flow has its own kind of tunnel.
pub struct Enter;

static ENTER: Descriptor = Descriptor { writes: &[Field::Encapsulation], ..descriptor("enter") };

impl NetworkFunction for Enter {
    const DESCRIPTOR: &'static Descriptor = &ENTER;
    type Config = NoConfig;
    type State = Packets;

    fn new(_: NoConfig, _: &mut Setup) -> Result<Enter, ConfigError> {
        Ok(Enter)
    }

    fn process(&self, packet: &mut PacketView<'_>, _: &mut Packets, context: &mut Context<'_>) -> Verdict {
        if packet.ip_len() > usize::from(ENTER_LEN_MAX) {
            packet.mark_one_off();
            return Verdict::Drop(DropReason::TooBig);
        }
        let of_flow = context.flow().key.words().iter().fold(0, |all, word| all ^ word) as u32;
        match packet.encap(&outer(of_flow, packet.meta().version), ENTER_LEN_MAX) {
            Ok(()) => Verdict::Forward,
            Err(_) => Verdict::Drop(DropReason::Function),
        }
    }
}

/// Builds headers of IP in IP, GRE, GUE, VXLAN or Geneve, over both versions of IP.
fn outer(of_flow: u32, inner: u8) -> OuterHeaders {
    let [low, high] = [4, 5].map(|last| match of_flow >> 8 & 1 {
        0 => Addr::from_v4_bytes([192, 0, 2, last]),
        _ => Addr::from_bytes([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
    });
    let ether_type = if inner == 4 { [8, 0] } else { [0x86, 0xdd] };
    let frame = [&[2; 12][..], &ether_type].concat();
    let ip = OuterHeaders::new(low, high, 9, of_flow);
    let with = match of_flow % 5 {
        0 => Ok(ip),
        1 => ip.with_shim(protocol::GRE, &[&[0, 0], &ether_type[..]].concat()),
        2 => ip.over_udp(6080, true).with_shim(0, &[0, if inner == 4 { 4 } else { 41 }, 0, 0]),
        3 => ip.over_udp(4789, false).with_shim(0, &[&[8, 0, 0, 0, 0, 0, 7, 0], &frame[..]].concat()),
        _ => ip.over_udp(6081, true).with_shim(0, &[&[0, 0, 0x65, 0x58, 0, 0, 7, 0], &frame[..]].concat()),
    };
    with.unwrap()
}

/// End of a tunnel.
pub struct Leave;

static LEAVE: Descriptor = Descriptor { writes: &[Field::Encapsulation], ..descriptor("leave") };

impl NetworkFunction for Leave {
    const DESCRIPTOR: &'static Descriptor = &LEAVE;
    type Config = NoConfig;
    type State = Packets;

    fn new(_: NoConfig, _: &mut Setup) -> Result<Leave, ConfigError> {
        Ok(Leave)
    }

    fn process(&self, packet: &mut PacketView<'_>, _: &mut Packets, _: &mut Context<'_>) -> Verdict {
        let len = packet.meta().l3 - packet.meta().outer_l3;
        if len == 0 {
            packet.mark_per_packet(); // Other packets of the flow may be in a tunnel.
            return Verdict::Forward;
        }
        match packet.decap(usize::from(len)) {
            Ok(()) => Verdict::Forward,
            Err(error) => Verdict::Drop(error.reason_or(DropReason::Function)),
        }
    }
}

/// Tags of each flow's own, possibly planned.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TagPusherConfig {
    predicts: bool,
}

/// Puts a tag, a label, or both before packets: each flow's own, of a small set.
pub struct TagPusher(TagPusherConfig);

static TAG_PUSHER: Descriptor =
    Descriptor { writes: &[Field::Vlan, Field::Encapsulation], ..descriptor("tag") };

/// Returns the tags of a flow, innermost first.
fn tags(of_flow: u32) -> Vec<Tag> {
    let vlan = Tag::vlan(of_flow as u16 % 3, 5, of_flow & 8 != 0);
    let service = Tag::service_vlan(100, of_flow as u8 % 2, false);
    let label = Tag::label(16 + of_flow % 2, 3, 64);
    let tags = match of_flow % 5 {
        0 => [vlan, None],
        1 => [vlan, service],
        2 => [label, None],
        3 => [label, label],
        _ => [label, vlan],
    };
    tags.into_iter().flatten().collect()
}

impl NetworkFunction for TagPusher {
    const DESCRIPTOR: &'static Descriptor = &TAG_PUSHER;
    type Config = TagPusherConfig;
    /// Flow-specific value, once it is known.
    type State = Packets;

    fn new(config: TagPusherConfig, _: &mut Setup) -> Result<TagPusher, ConfigError> {
        Ok(TagPusher(config))
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut Packets,
        context: &mut Context<'_>,
    ) -> Verdict {
        let of_flow = context.flow().key.words().iter().fold(0, |all, word| all ^ (word % 61));
        if state.0 == 0 {
            packet.mark_one_off(); // The flow's first packet.
            state.0 = of_flow + 1;
        }
        for tag in tags(of_flow as u32) {
            if let Err(error) = packet.push_tag(tag) {
                return Verdict::Drop(error.reason_or(DropReason::Function));
            }
        }
        Verdict::Forward
    }

    fn predict(&self, state: &Packets, plan: &mut Plan<'_>) -> bool {
        if !self.0.predicts || state.0 == 0 {
            return false;
        }
        tags(state.0 as u32 - 1).into_iter().for_each(|tag| plan.push_tag(tag));
        true
    }
}

/// Tags to remove.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TagPopperConfig {
    labels: bool,
    even: bool,
}

/// Removes a packet's outermost tag or label: any, or only those of an even class.
pub struct TagPopper(TagKind, bool);

static TAG_POPPER: Descriptor =
    Descriptor { writes: &[Field::Vlan, Field::Encapsulation], ..descriptor("untag") };

impl NetworkFunction for TagPopper {
    const DESCRIPTOR: &'static Descriptor = &TAG_POPPER;
    type Config = TagPopperConfig;
    type State = Packets;

    fn new(config: TagPopperConfig, _: &mut Setup) -> Result<TagPopper, ConfigError> {
        Ok(TagPopper(if config.labels { TagKind::Label } else { TagKind::Vlan }, config.even))
    }

    fn process(&self, packet: &mut PacketView<'_>, _: &mut Packets, _: &mut Context<'_>) -> Verdict {
        let &TagPopper(kind, even) = self;
        match packet.tag(kind) {
            Some(tag) if even && tag.class() % 2 == 1 => Verdict::Forward,
            Some(_) if packet.pop_tag(kind).is_err() => Verdict::Drop(DropReason::Internal),
            _ => Verdict::Forward,
        }
    }
}

/// Reads and effects of a probe.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProbeConfig {
    /// Reads payloads, and declares that it writes them.
    reads_payload: bool,
    writes_payload: bool,
    /// Reads DSCPs.
    reads_dscp: bool,
    /// Raises alerts now and then.
    alerts: bool,
    predicts: bool,
}

/// A state function that hashes everything it sees, in order, in each place of state that a
/// function has: reordered execution changes the hash, and so do reads of values not written yet or
/// overwritten. `SHARES`: also in a set that flows share.
pub struct Probe<const SHARES: bool>(ProbeConfig);

nf::counters! {
    /// Sum of the hashes.
    hashes: hashes,
}

const PROBE: Descriptor = Descriptor {
    attributes: &[Attribute { name: "seen", bits: 3, values: &[], meaning: "how much was seen, coarsely" }],
    payload: Access::Read,
    counters: Counters::DECLARED,
    map: Some(MapSpec { entries: 2, value_len: 8 }),
    writes: &[],
    ..descriptor("probe")
};

const SHARING_PROBE: Descriptor =
    Descriptor { name: "sharing-probe", shared: &[Shared::Set { name: "hashes", capacity: 16 }], ..PROBE };

impl<const SHARES: bool> Probe<SHARES> {
    fn function(&self) -> StateFunction {
        let access = match self.0 {
            ProbeConfig { writes_payload: true, .. } => Access::Write,
            ProbeConfig { reads_payload: true, .. } => Access::Read,
            _ => Access::Ignore,
        };
        StateFunction { id: 9, access, reads: if self.0.reads_dscp { &[Field::Dscp] } else { &[] } }
    }

    fn see(&self, packet: &Packet, state: &mut Packets, context: &mut Context<'_>) {
        let mut hash = state.0 ^ context.flow().seq ^ context.random();
        if self.0.reads_payload {
            packet.payload().iter().for_each(|&byte| hash = split_mix(&mut (hash ^ u64::from(byte))));
        }
        if let (true, [first, second, ..]) = (self.0.reads_dscp, packet.network()) {
            hash ^= u64::from(first & 0xf) << 8 | u64::from(second & 0xfc);
        }
        let direction = context.direction() as u64;
        hash =
            context.get(direction).unwrap_or_default().iter().fold(hash, |hash, &b| hash << 1 ^ u64::from(b));
        state.0 = split_mix(&mut hash);
        let _ = context.put(direction, &state.0.to_le_bytes()); // There is room for both directions.
        context.count(COUNTERS.hashes, state.0);
        if self.0.alerts && state.0.is_multiple_of(5) {
            let mut known = false;
            if SHARES {
                let now_ns = context.now_ns();
                known = context.set(0).added_ns(state.0 % 32).is_some();
                context.set(0).add(state.0 % 32, now_ns);
            }
            context.alert(u32::from(known), "seen", "test", 3);
            context.event("seen", context.direction(), &[("hash", EventValue::Text(&state.0.to_le_bytes()))]);
            context.report_flow(FlowReport { packets: [state.0, 0], ..FlowReport::default() });
            context.tag_flow(0, 5);
        }
    }
}

impl<const SHARES: bool> NetworkFunction for Probe<SHARES> {
    const DESCRIPTOR: &'static Descriptor = if SHARES { &SHARING_PROBE } else { &PROBE };
    type Config = ProbeConfig;
    type State = Packets;

    fn new(config: ProbeConfig, _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Probe(config))
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut Packets,
        context: &mut Context<'_>,
    ) -> Verdict {
        packet.record_state_function(self.function());
        self.see(packet, state, context);
        Verdict::Forward
    }

    fn state_function(&self, _: u16, packet: &Packet, state: &mut Packets, context: &mut Context<'_>) {
        self.see(packet, state, context);
    }

    fn predict(&self, _: &Packets, plan: &mut Plan<'_>) -> bool {
        if self.0.predicts {
            plan.record_state_function(self.function());
        }
        self.0.predicts
    }
}
