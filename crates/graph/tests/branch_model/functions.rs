//! Functions that leave an alert wherever a packet visits them.

use nf::stage::{Stage, load};
use nf::{
    Access, Affinity, Attribute, Context, Descriptor, Maturity, NetworkFunction, PacketView, Plan, Scaling,
    Setup, StateFunction, Verdict,
};
use packet::{Direction, DropReason, Endpoint, Packet};
use values::ConfigError;

use super::SHIFT;

const BASE: Descriptor = Descriptor {
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

/// Says that it was here, by an alert with its place. A state function of it does the same.
struct Footprint;

const HERE: StateFunction = StateFunction { id: 1, access: Access::Ignore, reads: &[] };

impl NetworkFunction for Footprint {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "footprint", consolidates: true, ..BASE };
    type State = [u8; 8];
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Footprint)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut [u8; 8],
        context: &mut Context<'_>,
    ) -> Verdict {
        packet.record_state_function(HERE);
        self.state_function(1, packet, state, context);
        Verdict::Forward
    }

    fn state_function(&self, _: u16, _: &Packet, state: &mut [u8; 8], context: &mut Context<'_>) {
        // Only this function writes here.
        assert!(state[0] == 0 || state[0] == 1);
        state[0] = 1;
        context.alert(0, "here", "test", 3);
    }

    fn predict(&self, _: &[u8; 8], plan: &mut Plan<'_>) -> bool {
        plan.record_state_function(HERE);
        true
    }
}

/// The same, and gives packets of the original direction a port that is higher by 1,000.
struct Shifter;

impl NetworkFunction for Shifter {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "shifter",
        consolidates: true,
        writes: &[nf::Field::DestinationPort, nf::Field::SourcePort],
        ..BASE
    };
    type State = [u8; 40];
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Shifter)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut [u8; 40],
        context: &mut Context<'_>,
    ) -> Verdict {
        packet.record_state_function(HERE);
        self.state_function(1, packet, state, context);
        let (source, destination) = packet.ends();
        let done = match context.direction() {
            Direction::Original => {
                packet.set_destination(Endpoint::new(destination.addr, destination.port + SHIFT))
            }
            Direction::Reply => packet.set_source(Endpoint::new(source.addr, source.port - SHIFT)),
        };
        if done.is_ok() { Verdict::Forward } else { Verdict::Drop(DropReason::Function) }
    }

    fn state_function(&self, _: u16, _: &Packet, state: &mut [u8; 40], context: &mut Context<'_>) {
        assert!(state[39] == 0 || state[39] == 2);
        state[39] = 2;
        context.alert(0, "here", "test", 3);
    }
}

/// The same, and marks flows as the first byte of the payload says.
struct Tagger;

impl NetworkFunction for Tagger {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "tagger",
        attributes: &[Attribute {
            name: "mark",
            bits: 2,
            values: &["", "low", "high"],
            meaning: "the payload",
        }],
        ..BASE
    };
    type State = [u8; 3];
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Tagger)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut [u8; 3],
        context: &mut Context<'_>,
    ) -> Verdict {
        assert!(state[2] == 0 || state[2] == 3);
        state[2] = 3;
        context.alert(0, "here", "test", 3);
        if let [mark @ 0..4, ..] = packet.payload() {
            context.tag_flow(0, u16::from(*mark));
        }
        Verdict::Forward
    }
}

/// A function of this type.
pub fn stage(type_name: &str) -> Box<dyn Stage> {
    let setup = Setup::new(7, 256);
    match type_name {
        "Footprint" => load::<Footprint>((), setup),
        "Shifter" => load::<Shifter>((), setup),
        _ => load::<Tagger>((), setup),
    }
    .unwrap()
}
