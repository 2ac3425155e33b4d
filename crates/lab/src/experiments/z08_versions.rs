//! Z8's functions in two versions: other rules of a firewall, and a count with another state.

use nf::{
    Context, Descriptor, Maturity, NetworkFunction, NodeSharing, PacketView, Registry, Setup, UpgradeError,
    Verdict,
};
use packet::{DropReason, Side};
use policy::Value;
use policy::{Colour, Policy};
use runtime::Assembly;
use serde::Deserialize;
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::hosts::MARK;

/// Flows that the next version refuses: those of clients in 10.0.1.0/24.
pub const REFUSED: std::ops::Range<u32> = 256..512;

/// The common part of both descriptors.
const COUNT: Descriptor = Descriptor {
    name: "count",
    summary: "Counts the packets of a flow.",
    maturity: Maturity::Experimental,
    across_nodes: NodeSharing::PerNode,
    cycles_per_packet: 10,
    ..Descriptor::DEFAULT
};

/// A configuration without keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoConfig {}

/// Version 1: counts packets in 16 bits.
struct Count;

/// Version 2: counts packets in 32 bits, and bytes.
struct CountBytes;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Packets {
    packets: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct PacketsAndBytes {
    bytes: u64,
    packets: u32,
    reserved: u32,
}

/// Drops packets from inside that do not have their number in the flow, as counted: the state is
/// not that of all earlier packets.
fn check(packet: &PacketView<'_>, side: Side, count: u32) -> Verdict {
    let seq = packet.data().get(MARK + 4..).and_then(|rest| rest.first_chunk());
    let is_right = side != Side::Inside || seq.is_some_and(|seq| u32::from_be_bytes(*seq) == count);
    if is_right { Verdict::Forward } else { Verdict::Drop(DropReason::Internal) }
}

impl NetworkFunction for Count {
    const DESCRIPTOR: &'static Descriptor = &COUNT;
    type Config = NoConfig;
    type State = Packets;

    fn new(_: NoConfig, _: &mut Setup) -> Result<Count, ConfigError> {
        Ok(Count)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut Packets,
        context: &mut Context<'_>,
    ) -> Verdict {
        state.packets += u16::from(context.side() == Side::Inside);
        check(packet, context.side(), state.packets.into())
    }
}

impl NetworkFunction for CountBytes {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { state_version: 2, ..COUNT };
    type Config = NoConfig;
    type State = PacketsAndBytes;

    fn new(_: NoConfig, _: &mut Setup) -> Result<CountBytes, ConfigError> {
        Ok(CountBytes)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut PacketsAndBytes,
        context: &mut Context<'_>,
    ) -> Verdict {
        if context.side() == Side::Inside {
            state.packets += 1;
            state.bytes += packet.data().len() as u64;
        }
        check(packet, context.side(), state.packets)
    }

    fn upgrade(from_version: u16, old: &[u8]) -> Result<PacketsAndBytes, UpgradeError> {
        match (from_version, Packets::read_from_bytes(old)) {
            (1, Ok(Packets { packets })) => {
                Ok(PacketsAndBytes { bytes: 0, packets: packets.into(), reserved: 0 })
            }
            _ => Err(UpgradeError { from_version, to_version: 2 }),
        }
    }
}

/// Compiles the chain of NFActor's experiments and a count, with these rules.
fn chain(rules: &str, add: fn(&mut Registry<Value>)) -> Result<Assembly, String> {
    let text = format!(
        "settings {{ flows: 300k }}
         Port<0> inside; Port<1> outside;
         Monitor m {{ report: [] }};
         Firewall f {{ rules: \"{rules}\", default: deny }};
         HTTP h;
         Count c;
         pipelet main {{ inside <-> m <-> f <-> h <-> c <-> outside; }}"
    );
    let policy = Policy::read("chain", &text, &mut |_| Err(String::new()));
    let policy = policy.map_err(|report| report.render(Colour::Off))?;
    let mut registry = functions::registry();
    add(&mut registry);
    runtime::assemble(&policy, &registry, 1, None).map_err(|wrong| format!("{wrong:?}"))
}

/// Compiles the first version.
///
/// # Errors
/// If the policy is wrong.
pub fn first() -> Result<Assembly, String> {
    chain("allow out from any", |registry| registry.add(nf::loader!(Count), ""))
}

/// Compiles the next version, which takes over the states of the first.
///
/// # Errors
/// If the policy is wrong, or the functions are others.
pub fn next() -> Result<Assembly, String> {
    let rules = "deny out from 10.0.1.0/24\\nallow out from any";
    let mut next = chain(rules, |registry| registry.add(nf::loader!(CountBytes), ""))?;
    let layout = first()?.graph.flows().saved_layout();
    next.graph.flows_mut().accept_states_of(layout).map_err(|error| error.to_string())?;
    Ok(next)
}
