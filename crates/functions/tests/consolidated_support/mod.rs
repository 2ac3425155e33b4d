//! Functions as users make them, which do what none does that comes with the project.

use nf::answer::{self, IcmpError};
use nf::config::ConfigError;
use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, PacketView, Registry, Scaling,
    Setup, Verdict,
};
use serde::Deserialize;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// All functions there are, and those of this file.
pub fn registry() -> Registry<serde_json::Value> {
    let mut registry = functions::registry();
    registry.add::<Remark>("");
    registry.add::<Stamp>("");
    registry.add::<Hop>("");
    registry
}

const fn descriptor(name: &'static str) -> Descriptor {
    Descriptor {
        name,
        aliases: &[],
        summary: "",
        maturity: Maturity::Experimental,
        state_version: 1,
        attributes: &[],
        reads: &[],
        writes: &[Field::Dscp],
        payload: Access::Ignore,
        affinity: Affinity::Flow,
        scaling: Scaling::Servers,
        shared: &[],
        map: None,
        buffers: None,
        stream: false,
        keeps_flows: false,
        recomputes: false,
        changes_flows: false,
        consolidates: true,
        cycles_per_packet: 20,
    }
}

#[derive(Clone, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Packets(u64);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// Gives all packets of a flow one DSCP, another one in each direction.
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

/// Gives each packet a DSCP by its length and number, and drops some.
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
        packet.varies();
        state.0 += 1;
        context.keep_flow_ms(20 + (state.0 % 7) as u32 * 10);
        packet.set_dscp(((packet.ip_len() as u64 + state.0) % 64) as u8);
        if state.0.is_multiple_of(19) {
            Verdict::Drop(packet::DropReason::Function)
        } else {
            Verdict::Forward
        }
    }
}

/// A router's hop.
pub struct Hop;

static HOP: Descriptor = Descriptor { writes: &[Field::TimeToLive], ..descriptor("hop") };

impl NetworkFunction for Hop {
    const DESCRIPTOR: &'static Descriptor = &HOP;
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
