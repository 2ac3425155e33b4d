//! Functions that only experiments have, and hand-written equivalents of chains of them.

use std::hint::black_box;

use nf::{
    Access, Affinity, Cause, Context, ControlError, Descriptor, EventCondition, Maturity, NetworkFunction,
    PacketView, Plan, Registry, Scaling, Setup, StateFunction, Verdict,
};
use packet::{Addr, DropReason, End, Endpoint, FlowHasher, Packet, PacketPool, Parser, Side};
use policy::Value;
use serde::Deserialize;
use values::ConfigError;

use super::Path;

/// Returns all functions, including the experiments' own.
pub fn registry() -> Registry<Value> {
    let mut registry = ::functions::registry();
    registry.add(nf::loader!(Rewrite), "");
    registry.add(nf::loader!(Work), "");
    registry.add(nf::loader!(Flush), "");
    registry.add(nf::loader!(Listen), "");
    registry
}

/// The common part of the descriptors.
const DESCRIPTOR: Descriptor = Descriptor {
    name: "",
    summary: "",
    maturity: Maturity::Experimental,
    state_version: 1,
    payload: Access::Ignore,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    consolidates: true,
    cycles_per_packet: 10,
    ..Descriptor::DEFAULT
};

/// A header action and nothing else: packets from the inside get a new destination, by the
/// function's number (B11).
struct Rewrite {
    to: Endpoint,
}

/// Configuration of a rewriter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RewriteConfig {
    number: u8,
}

/// Returns the destination set by the rewriter with this number.
fn rewritten(number: u8) -> Endpoint {
    Endpoint::new(Addr::from_v4_bytes([198, 51, 100, number]), 8000 + u16::from(number))
}

impl NetworkFunction for Rewrite {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "rewrite",
        summary: "Gives packets a new destination.",
        writes: &[nf::Field::DestinationAddress, nf::Field::DestinationPort],
        ..DESCRIPTOR
    };
    type Config = RewriteConfig;
    type State = ();

    fn new(config: RewriteConfig, _: &mut Setup) -> Result<Rewrite, ConfigError> {
        Ok(Rewrite { to: rewritten(config.number) })
    }

    #[inline(always)]
    fn process(&self, packet: &mut PacketView<'_>, (): &mut (), context: &mut Context<'_>) -> Verdict {
        if context.side() == Side::Inside && packet.set_destination(self.to).is_err() {
            return Verdict::Drop(DropReason::Internal);
        }
        Verdict::Forward
    }

    fn predict(&self, (): &(), plan: &mut Plan<'_>) -> bool {
        if plan.side == Side::Inside {
            plan.set_end(End::Destination, self.to);
        }
        true
    }
}

/// A chain of rewriters as one would write it by hand: packets from the inside get the last one's
/// destination. It knows no flows.
pub struct Fused {
    parser: Parser,
    to: Endpoint,
}

impl Fused {
    /// Of rewriters up to this number.
    pub fn new(number: u8) -> Fused {
        Fused { parser: Parser::new(FlowHasher::new(1)), to: rewritten(number) }
    }
}

impl Path for Fused {
    fn process(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        for mut packet in batch.drain(..) {
            let parsed = self.parser.parse(&mut packet);
            let side = packet.meta().transit.side;
            if parsed.is_err() || side == Side::Inside && packet.set_end(End::Destination, self.to).is_err() {
                pool.give(packet);
                continue;
            }
            packet.meta_mut().transit.side = side.other();
            out.push(packet);
        }
    }
}

/// A state function and nothing else, which reads its flow's state and takes some time (B17).
struct Work {
    rounds: u32,
}

/// Its configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkConfig {
    /// Multiplications, one after the other.
    rounds: u32,
}

const WORK: StateFunction = StateFunction { id: 1, access: Access::Ignore, reads: &[] };

impl Work {
    #[inline(always)]
    fn work(&self, state: &mut u64) {
        let mut value = *state | 1;
        for _ in 0..self.rounds {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value >> 29);
        }
        *state = value;
    }
}

impl NetworkFunction for Work {
    const DESCRIPTOR: &'static Descriptor =
        &Descriptor { name: "work", summary: "Takes some time for each packet.", ..DESCRIPTOR };
    type Config = WorkConfig;
    type State = u64;

    fn new(config: WorkConfig, _: &mut Setup) -> Result<Work, ConfigError> {
        Ok(Work { rounds: config.rounds })
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut u64, _: &mut Context<'_>) -> Verdict {
        packet.record_state_function(WORK);
        self.work(state);
        Verdict::Forward
    }

    fn state_function(&self, _: u16, _: &Packet, state: &mut u64, _: &mut Context<'_>) {
        self.work(state);
    }

    fn predict(&self, _: &u64, plan: &mut Plan<'_>) -> bool {
        plan.record_state_function(WORK);
        true
    }
}

/// Does nothing to packets, but its command `flush` makes an event hold in every rule there is:
/// what a change costs if all rules go with it. From then on flows are recorded.
struct Flush {
    generation: u64,
}

/// Its configuration, which is empty.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlushConfig {}

impl Flush {
    /// The event that the command was given once more.
    fn flushed(&self) -> EventCondition {
        EventCondition { id: 1, argument: self.generation, cause: Cause::Command }
    }
}

impl NetworkFunction for Flush {
    const DESCRIPTOR: &'static Descriptor =
        &Descriptor { name: "flush", summary: "Ends all rules on command.", ..DESCRIPTOR };
    type Config = FlushConfig;
    type State = ();

    fn new(_: FlushConfig, _: &mut Setup) -> Result<Flush, ConfigError> {
        Ok(Flush { generation: 0 })
    }

    #[inline(always)]
    fn process(&self, packet: &mut PacketView<'_>, (): &mut (), _: &mut Context<'_>) -> Verdict {
        packet.record_event(self.flushed());
        Verdict::Forward
    }

    fn predict(&self, (): &(), _: &mut Plan<'_>) -> bool {
        self.generation == 0
    }

    fn event_holds(&self, event: EventCondition, (): &()) -> bool {
        event.argument != self.generation
    }

    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        match command {
            "flush" => self.generation += 1,
            _ => self.check_command(command)?,
        }
        Ok(())
    }

    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        match command {
            "flush" => Ok(()),
            _ => Err(ControlError(format!("expected `flush`, got `{command}`"))),
        }
    }
}

/// Takes TCP streams, and does nothing with them: what reassembly costs by itself (E23).
struct Listen;

/// Its configuration, which is empty.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListenConfig {}

impl NetworkFunction for Listen {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "listen",
        summary: "Takes TCP streams.",
        payload: Access::Read,
        stream: true,
        consolidates: false,
        ..DESCRIPTOR
    };
    type Config = ListenConfig;
    type State = ();

    fn new(_: ListenConfig, _: &mut Setup) -> Result<Listen, ConfigError> {
        Ok(Listen)
    }

    fn process(&self, packet: &mut PacketView<'_>, (): &mut (), _: &mut Context<'_>) -> Verdict {
        packet.stream().for_each(|event| {
            black_box(event.kind);
        });
        Verdict::Forward
    }
}
