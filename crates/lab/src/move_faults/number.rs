//! A function that marks packets with the state that processed them.

use nf::{Context, Descriptor, Maturity, NetworkFunction, NodeSharing, PacketView, Setup, Verdict};
use packet::{Addr, DropReason, Endpoint, FlowKey, Packet, Side};
use policy::{Colour, Policy};
use runtime::Assembly;
use serde::Deserialize;
use values::ConfigError;

use crate::hosts::MARK;

/// The state that processed a packet, as the packet shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMark {
    /// The packet's number in its flow, from 1.
    pub seq: u32,
    /// Packets that the state has counted, this one included.
    pub count: u32,
    /// The process.
    pub process: u8,
}

/// Numbers a flow's packets: a packet's destination becomes the number, as its port, and the
/// process, as the last byte of its address.
struct Number {
    process: u8,
}

/// Its configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NumberConfig {
    process: u8,
}

/// First bytes of the addresses of processes.
const PROCESSES: [u8; 3] = [198, 51, 100];

impl NetworkFunction for Number {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "number",
        summary: "Numbers the packets of a flow.",
        maturity: Maturity::Experimental,
        state_version: 1,
        writes: &[nf::Field::DestinationAddress, nf::Field::DestinationPort],
        across_nodes: NodeSharing::PerNode,
        cycles_per_packet: 10,
        ..Descriptor::DEFAULT
    };
    type Config = NumberConfig;
    type State = u32;

    fn new(config: NumberConfig, _: &mut Setup) -> Result<Number, ConfigError> {
        Ok(Number { process: config.process })
    }

    fn process(&self, packet: &mut PacketView<'_>, count: &mut u32, context: &mut Context<'_>) -> Verdict {
        if context.side() != Side::Inside {
            return Verdict::Drop(DropReason::Internal);
        }
        *count += 1;
        let [a, b, c] = PROCESSES;
        let to = Endpoint::new(Addr::from_v4_bytes([a, b, c, self.process]), *count as u16);
        match packet.set_destination(to) {
            Ok(()) => Verdict::Forward,
            Err(_) => Verdict::Drop(DropReason::Internal),
        }
    }
}

/// Returns the policy of a process: nothing but this function.
///
/// # Errors
///
/// If the policy is wrong.
pub fn chain(process: u8) -> Result<Assembly, String> {
    let text = format!(
        "settings {{ flows: 2k }}
         Port<0> inside; Port<1> outside;
         Number n {{ process: {process} }};
         pipelet main {{ inside <-> n <-> outside; }}"
    );
    let policy = Policy::read("number", &text, &mut |_| Err(String::new()));
    let policy = policy.map_err(|report| report.render(Colour::Off))?;
    let mut registry = functions::registry();
    registry.add(nf::loader!(Number), "");
    runtime::assemble(&policy, &registry, 1, None).map_err(|wrong| format!("{wrong:?}"))
}

/// Returns the flow and the mark of a packet that has left.
pub fn mark_of(packet: &Packet) -> Option<(u32, PacketMark)> {
    let data = packet.data();
    let number = |at: usize| Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?));
    let (flow, seq) = (number(MARK)?, number(MARK + 4)?);
    let process = *data.get(33)?;
    let count = u16::from_be_bytes(*data.get(36..)?.first_chunk()?);
    Some((flow, PacketMark { seq, count: count.into(), process }))
}

/// Returns the flow of a key: the last bytes of its client's address.
pub fn flow_of(key: &FlowKey) -> Option<u32> {
    let (one, other) = key.ends(false);
    let addresses = [one, other].map(|end| end.addr.v4_bytes());
    let [_, rest @ ..] = addresses.into_iter().find(|[first, ..]| *first == 10)?;
    Some(rest.into_iter().fold(0, |flow, byte| flow << 8 | u32::from(byte)))
}
