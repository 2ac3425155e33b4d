//! Small functions, one for each thing that a function can do to a graph. What they do to a packet,
//! its first payload byte says, so that random payloads are random behaviour.

use nf::stage::{Stage, load};
use nf::stream::StreamEventKind;
use nf::{
    Access, Affinity, Context, Descriptor, EndReason, EventValue, FlowReport, MapSpec, Maturity,
    NetworkFunction, PacketView, Scaling, Setup, Shared, Verdict,
};
use packet::{Addr, Direction, DropReason, End, Endpoint, PacketClass, Side};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bits of the first payload byte, and who heeds them.
pub mod command {
    /// [`super::Gate`] drops the packet.
    pub const DROP: u8 = 1;
    /// [`super::Rejecter`] drops it and answers, if it begins a flow.
    pub const REJECT: u8 = 2;
    /// [`super::Balancer`] exchanges the flow's server.
    pub const MOVE: u8 = 4;
    /// [`super::Keeper`] keeps the flow for one of [`super::KEEPS_MS`].
    pub const KEEP: u8 = 0x30;
}

/// The timeouts of [`Keeper`], by the command's two bits.
pub const KEEPS_MS: [u64; 4] = [1_000, 0, 5, 100_000];

/// The common part of test functions' descriptors.
pub const BASE: Descriptor = Descriptor {
    name: "base",
    summary: "A function of a test.",
    maturity: Maturity::Experimental,
    state_version: 1,
    payload: Access::Read,
    affinity: Affinity::Flow,
    scaling: Scaling::Single,
    cycles_per_packet: 10,
    ..Descriptor::DEFAULT
};

/// A stage of this function, with room for `flows_max` flows in its shared state.
pub fn stage<N: NetworkFunction<Config = ()>>(flows_max: u32) -> Box<dyn Stage> {
    load::<N>((), Setup::new(7, flows_max)).unwrap()
}

fn commanded(packet: &PacketView<'_>, bit: u8) -> bool {
    packet.payload().first().is_some_and(|byte| byte & bit != 0)
}

/// Returns true if the packet is an ICMP error about a packet of its flow.
fn is_related(packet: &PacketView<'_>, context: &Context<'_>) -> bool {
    packet.meta().class == PacketClass::IcmpError && !matches!(context.flow().key.protocol, 1 | 58)
}

macro_rules! plain_new {
    () => {
        type Config = ();
        fn new(_: (), _: &mut Setup) -> Result<Self, ConfigError> {
            Ok(Self)
        }
    };
}

/// Rewrites sources of flows from inside to one address, with ports from a pool: a small NAT.
pub struct Masquerade;

/// Number of flows that [`Masquerade`] has ports for.
pub const MASQUERADE_PORTS: u32 = 8;

/// Returns the endpoint that [`Masquerade`] rewrites to, for an item of its pool.
pub fn masquerade_end(item: u32) -> Endpoint {
    Endpoint::new(Addr::from_v4_bytes([203, 0, 113, 1]), 40_000 + item as u16)
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Port {
    /// One more than the item, so that zero is none.
    item: u32,
}

impl NetworkFunction for Masquerade {
    const DESCRIPTOR: &'static Descriptor =
        &Descriptor { name: "masquerade", shared: &[Shared::Pool("ports")], ..BASE };
    type State = Port;
    type Config = ();

    fn new(_: (), setup: &mut Setup) -> Result<Self, ConfigError> {
        setup.pool_size(MASQUERADE_PORTS);
        Ok(Masquerade)
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut Port, context: &mut Context<'_>) -> Verdict {
        let flow = context.flow();
        if flow.origin == Side::Outside || packet.meta().version == 6 {
            return Verdict::Forward;
        }
        if state.item == 0 {
            let choice = nf::pool::PoolRange { first: 0, count: MASQUERADE_PORTS, from: 0, step: 1 };
            let (key, ports) = (flow.key.words(), context.pool(0));
            let Some(item) = ports.take(ports.look_up(&key), choice) else {
                return Verdict::Drop(DropReason::NatPortsExhausted);
            };
            state.item = item + 1;
        }
        let (inside, outside) = (flow.key.ends(flow.reversed).0, masquerade_end(state.item - 1));
        let done = match (context.direction(), is_related(packet, context)) {
            (Direction::Original, false) => packet.set_source(outside),
            (Direction::Reply, false) => packet.set_destination(inside),
            (Direction::Original, true) => {
                packet.set_source(outside).and_then(|()| packet.set_embedded_end(End::Destination, outside))
            }
            (Direction::Reply, true) => {
                packet.set_destination(inside).and_then(|()| packet.set_embedded_end(End::Source, inside))
            }
        };
        match done {
            Ok(()) => Verdict::Forward,
            Err(_) => Verdict::Drop(DropReason::Function),
        }
    }

    fn flow_end(&self, state: &mut Port, _: EndReason, context: &mut Context<'_>) {
        if let Some(item) = state.item.checked_sub(1) {
            context.pool(0).leave(item);
        }
    }
}

/// Rewrites destinations of flows to [`VIRTUAL`] to one of four servers, and on command to the next
/// one.
pub struct Balancer;

/// The address that [`Balancer`] serves.
pub const VIRTUAL: [u8; 4] = [198, 51, 100, 1];

/// The address of a server of [`Balancer`].
pub fn server(number: u32) -> Addr {
    Addr::from_v4_bytes([192, 0, 2, 10 + (number % 4) as u8])
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Count {
    count: u32,
}

impl NetworkFunction for Balancer {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "balancer", ..BASE };
    type State = Count;
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, state: &mut Count, context: &mut Context<'_>) -> Verdict {
        let flow = context.flow();
        let served = flow.key.ends(flow.reversed).1;
        if served.addr != Addr::from_v4_bytes(VIRTUAL) || packet.meta().class == PacketClass::IcmpError {
            return Verdict::Forward;
        }
        if commanded(packet, command::MOVE) && context.direction() == Direction::Original {
            state.count += 1;
            context.relearn_alias();
        }
        let done = match context.direction() {
            Direction::Original => packet.set_destination(Endpoint::new(server(state.count), served.port)),
            Direction::Reply => packet.set_source(served),
        };
        match done {
            Ok(()) => Verdict::Forward,
            Err(_) => Verdict::Drop(DropReason::Function),
        }
    }
}

/// Rewrites `10.0.0.x` to `203.0.113.x` and back, whatever the state: one address for one.
pub struct OneToOne;

/// The address that [`OneToOne`] gives to an inside one.
pub fn one_to_one(inside: Addr) -> Addr {
    let [_, _, _, host] = inside.v4_bytes();
    Addr::from_v4_bytes([203, 0, 113, host])
}

impl NetworkFunction for OneToOne {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "one-to-one", ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        let flow = context.flow();
        if flow.origin == Side::Outside || packet.meta().version == 6 {
            return Verdict::Forward;
        }
        let (source, destination) = packet.ends();
        let inside = flow.key.ends(flow.reversed).0;
        let done = match context.direction() {
            Direction::Original => packet.set_source(Endpoint::new(one_to_one(inside.addr), source.port)),
            Direction::Reply => packet.set_destination(Endpoint::new(inside.addr, destination.port)),
        };
        match done {
            Ok(()) => Verdict::Forward,
            Err(_) => Verdict::Drop(DropReason::Function),
        }
    }
}

/// Drops on command.
pub struct Gate;

impl NetworkFunction for Gate {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "gate", ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, _: &mut (), _: &mut Context<'_>) -> Verdict {
        if commanded(packet, command::DROP) { Verdict::Drop(DropReason::Policy) } else { Verdict::Forward }
    }
}

/// Counts a flow's packets in its state and its map, writes the count into each packet, and alerts
/// now and then: whatever is processed out of order, shows.
pub struct Tally;

nf::counters! {
    /// Packets.
    packets: packets,
}

impl NetworkFunction for Tally {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "tally",
        counters: Counters::DECLARED,
        map: Some(MapSpec { entries: 2, value_len: 8 }),
        buffers: None,
        ..BASE
    };
    type State = Count;
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, state: &mut Count, context: &mut Context<'_>) -> Verdict {
        state.count += 1;
        context.count(COUNTERS.packets, 1);
        let direction = context.direction() as u64;
        let seen = context.get(direction).map_or(0, |value| value[0]);
        if context.put(direction, &[seen.wrapping_add(1), state.count as u8]).is_err() {
            return Verdict::Drop(DropReason::Internal);
        }
        packet.set_dscp(((state.count << 2) as u8 | seen & 3) & 63);
        if state.count.is_multiple_of(3) {
            context.alert(state.count, "a third packet", "test", 3);
        }
        Verdict::Forward
    }
}

/// Lets packets from outside in only from the two addresses that somebody inside spoke to last: a
/// set that flows share.
pub struct Knock;

impl NetworkFunction for Knock {
    const DESCRIPTOR: &'static Descriptor =
        &Descriptor { name: "knock", shared: &[Shared::Set { name: "known", capacity: 2 }], ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        let (source, destination) = packet.ends();
        let now_ns = context.now_ns();
        if context.side() == Side::Inside {
            context.set(0).add(destination.addr.to_u128() as u64, now_ns);
            return Verdict::Forward;
        }
        match context.set(0).added_ns(source.addr.to_u128() as u64) {
            Some(_) => Verdict::Forward,
            None => Verdict::Drop(DropReason::FirewallDenied),
        }
    }
}

/// Turns flows back that return to their own side: inside, `10.0.0.0/24`; outside, `192.0.2.0/24`.
pub struct Hairpin;

impl NetworkFunction for Hairpin {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "hairpin", ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, _: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        let flow = context.flow();
        let destination = flow.key.ends(flow.reversed).1.addr.v4_bytes();
        let home: &[u8] = if flow.origin == Side::Inside { &[10, 0, 0] } else { &[192, 0, 2] };
        if destination.starts_with(home) { Verdict::TurnBack } else { Verdict::Forward }
    }
}

/// Drops and answers packets that begin a flow, on command.
pub struct Rejecter;

impl NetworkFunction for Rejecter {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "rejecter", ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        if context.flow().seq != 1 || !commanded(packet, command::REJECT) {
            return Verdict::Forward;
        }
        answer(packet, context)
    }
}

/// Drops and answers packets on command, within flows too.
pub struct Interrupter;

impl NetworkFunction for Interrupter {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "interrupter", ..BASE };
    type State = ();
    plain_new!();

    fn answers(&self) -> nf::AnswerScope {
        nf::AnswerScope::ALL
    }

    fn process(&self, packet: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        if commanded(packet, command::REJECT) { answer(packet, context) } else { Verdict::Forward }
    }
}

/// Answers with a UDP packet that says "no", and drops.
fn answer(packet: &PacketView<'_>, context: &mut Context<'_>) -> Verdict {
    let (source, destination) = packet.ends();
    let network = super::packets::udp(destination, source, b"\0no");
    match context.answer(packet, &network) {
        Ok(()) => Verdict::Drop(DropReason::FirewallRejected),
        Err(reason) => Verdict::Drop(reason),
    }
}

/// Says how long flows are kept.
pub struct Keeper;

impl NetworkFunction for Keeper {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "keeper", keeps_flows: true, ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        let byte = packet.payload().first().copied().unwrap_or(0);
        context.keep_flow_ns(keep_ms(byte) * 1_000_000);
        Verdict::Forward
    }
}

/// Returns the timeout that [`Keeper`] sets for a packet with this first byte of payload.
pub fn keep_ms(byte: u8) -> u64 {
    KEEPS_MS[usize::from((byte & command::KEEP) >> 4)]
}

/// Needs all 16 bits of an attribute.
pub struct Marker;

impl NetworkFunction for Marker {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "marker",
        attributes: &[nf::Attribute { name: "mark", bits: 16, values: &[], meaning: "the flow's clock" }],
        ..BASE
    };
    type State = ();
    plain_new!();

    fn process(&self, _: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        context.tag_flow(0, context.flow().seq as u16);
        Verdict::Forward
    }
}

/// Allocates once for every packet, as no function should.
pub struct Allocator;

impl NetworkFunction for Allocator {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "allocator", ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, _: &mut (), _: &mut Context<'_>) -> Verdict {
        let copy = std::hint::black_box(packet.data().to_vec());
        if copy.is_empty() { Verdict::Drop(DropReason::Function) } else { Verdict::Forward }
    }
}

/// Listens to its flows' streams: keeps a hash of all that happened to each, and reports it now
/// and then.
pub struct Listener;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Heard {
    hashes: [u64; 2],
}

impl NetworkFunction for Listener {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "listener", stream: true, ..BASE };
    type State = Heard;
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, state: &mut Heard, context: &mut Context<'_>) -> Verdict {
        for event in packet.stream() {
            let hash = &mut state.hashes[event.direction.index()];
            let bytes = match event.kind {
                StreamEventKind::Data(bytes) => bytes,
                StreamEventKind::Gap(_) => b"gap",
                StreamEventKind::Restart => b"restart",
                StreamEventKind::Finished => b"finished",
                StreamEventKind::Reset => b"reset",
            };
            for &byte in bytes.iter().chain(&event.offset.to_le_bytes()) {
                *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            if *hash & 3 == 0 {
                context.alert(*hash as u32, "heard", "test", 3);
            }
        }
        Verdict::Forward
    }
}

/// Reports every packet's direction in its flow.
pub struct Telltale;

impl NetworkFunction for Telltale {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "telltale", ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, _: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        let way = if context.direction() == Direction::Reply { "reply" } else { "original" };
        context.alert(context.flow().seq as u32, "packet", way, 3);
        Verdict::Forward
    }
}

/// Reports events of packets, and of what their streams bring, with texts of different lengths.
pub struct Teller;

impl NetworkFunction for Teller {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "teller", stream: true, ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, packet: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        let clock = context.flow().seq;
        for event in packet.stream() {
            if let StreamEventKind::Data(bytes) = event.kind {
                let fields =
                    [("data", EventValue::Text(bytes)), ("offset", EventValue::Number(event.offset))];
                context.event("stream", event.direction, &fields);
            }
        }
        if clock.is_multiple_of(2) {
            context.event("packet", context.direction(), &[("clock", EventValue::Number(clock))]);
        }
        if clock.is_multiple_of(3) {
            context.alert(clock as u32, "a third packet", "test", 3);
        }
        Verdict::Forward
    }

    fn flow_end(&self, _: &mut (), reason: EndReason, context: &mut Context<'_>) {
        context.event("end", Direction::Original, &[("reason", EventValue::Text(reason.name().as_bytes()))]);
    }
}

/// Reports every packet and every flow's end.
pub struct Witness;

impl NetworkFunction for Witness {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "witness", ..BASE };
    type State = ();
    plain_new!();

    fn process(&self, _: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        context.alert(context.flow().seq as u32, "packet", context.connection().name(), 3);
        Verdict::Forward
    }

    fn flow_end(&self, _: &mut (), reason: EndReason, context: &mut Context<'_>) {
        let flow = context.flow();
        context.alert(flow.seq as u32, "end", reason.name(), 3);
        let (source, destination) = flow.key.ends(flow.reversed);
        context.report_flow(FlowReport {
            source: source.addr,
            destination: destination.addr,
            source_port: source.port,
            destination_port: destination.port,
            protocol: flow.key.protocol,
            packets: [flow.seq, 0],
            end_reason: reason as u8,
            ..FlowReport::default()
        });
    }
}
