//! {{Type}}: passes the first packets of each flow, optionally marked, and drops the rest.
//!
//! `README.md` is the operator's manual.

use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, PacketView, Scaling, Setup,
    Verdict,
};
use packet::DropReason;
use serde::Deserialize;
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[cfg(test)]
mod tests;

/// The configuration, as policies write it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Maximum number of packets of a flow, both directions together; at least 1.
    pub packets_max: u64,
    /// DSCP of passing packets, 0 to 63; `None` leaves it unchanged.
    pub dscp: Option<u8>,
}

impl Default for Config {
    fn default() -> Config {
        Config { packets_max: 1_000_000, dscp: None }
    }
}

/// An instance with a validated configuration, which never changes.
pub struct {{Type}} {
    packets_max: u64,
    dscp: Option<u8>,
}

/// State of a flow, all zeros at its start. The platform moves and copies it as bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Packets so far, both directions together.
    packets: u64,
}

nf::counters! {
    /// Packets that passed.
    passed: packets,
    /// Packets dropped.
    over_limit: packets,
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "{{name}}",
    summary: "Passes a limited number of packets of each flow, and may mark them.",
    maturity: Maturity::Experimental,
    state_version: 1,
    writes: &[Field::Dscp],
    payload: Access::Ignore,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    cycles_per_packet: 20,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for {{Type}} {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, _setup: &mut Setup) -> Result<{{Type}}, ConfigError> {
        if config.packets_max == 0 {
            return Err(ConfigError::new("`packets_max` must be at least 1, or nothing passes"));
        }
        if config.dscp.is_some_and(|dscp| dscp > 63) {
            return Err(ConfigError::new("`dscp` must be 0 to 63"));
        }
        Ok({{Type}} { packets_max: config.packets_max, dscp: config.dscp })
    }

    #[inline]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if state.packets == self.packets_max {
            context.count(COUNTERS.over_limit, 1);
            return Verdict::Drop(DropReason::Function);
        }
        state.packets += 1;
        context.count(COUNTERS.passed, 1);
        if let Some(dscp) = self.dscp {
            packet.set_dscp(dscp);
        }
        Verdict::Forward
    }
}
