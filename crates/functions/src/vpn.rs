//! A site-to-site VPN gateway: tunnels of AH (RFC 4302) or ESP (RFC 4303), with keys from the
//! policy. See the README.
//!
//! `tunnels` has the tables built from the configuration, `frame` the packet formats, `suite` the
//! algorithms, and `numbers` the state shared by an association's packets.

mod config;
mod frame;
mod inwards;
mod numbers;
mod outwards;
mod quoted;
mod suite;
mod tunnels;

use std::collections::BTreeSet;

use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, NodeSharing, PacketView,
    Scaling, Setup, Shared, Verdict,
};
use packet::{Addr, Side};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use config::{
    Config, DontFragment, InboundConfig, IpsecProtocol, OutboundConfig, Spi, UnprotectedAction,
    VpnTunnelConfig,
};
pub use numbers::REPLAY_WINDOW;
pub use outwards::NOTIFY_INTERVAL_NS;
pub use tunnels::{INBOUND_MAX, MTU_MIN, NETWORKS_MAX, TUNNELS_MAX};

use numbers::{INBOUND_METERS, OUTBOUND_METERS};
use tunnels::TunnelTable;

/// A VPN gateway.
pub struct Vpn {
    tunnels: TunnelTable,
    others: UnprotectedAction,
    /// The gateway's own addresses inside.
    gateway4: Option<Addr>,
    gateway6: Option<Addr>,
}

/// Per-flow state of the gateway. State of a tunnel belongs to its security associations, and must
/// survive flows (decision 21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Time of the last notification of the sender, in nanoseconds; 0: never.
    notified_ns: u64,
}

nf::counters! {
    /// Packets that went through no tunnel.
    packets_others: packets,
    /// ICMP errors sent to senders inside.
    errors_sent: packets,
    by tunnel {
        /// Packets encapsulated.
        packets_out: packets,
        /// Inner IP bytes encapsulated.
        bytes_out: bytes,
        /// Packets decapsulated.
        packets_in: packets,
        /// Inner IP bytes decapsulated.
        bytes_in: bytes,
        /// Packets with a wrong check value.
        forged: packets,
        /// Packets with a repeated or too old sequence number.
        replayed: packets,
        /// Dummy packets.
        dummies: packets,
    }
}

/// Index of the meter table in the descriptor.
const METERS: usize = 0;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "vpn",
    aliases: &["ipsec", "IPsec"],
    summary: "A site-to-site gateway: tunnels of AH, ESP without encryption or ESP with AES-GCM, with keys from the policy",
    maturity: Maturity::Preview,
    state_version: 1,
    reads: &[
        Field::SourceAddress,
        Field::DestinationAddress,
        Field::Protocol,
        Field::TimeToLive,
        Field::Dscp,
    ],
    writes: &[Field::Encapsulation, Field::TimeToLive],
    payload: Access::Write,
    affinity: Affinity::Flow,
    // A security association has one sender: see decision 21.
    scaling: Scaling::Cores,
    counters: Counters::DECLARED,
    shared: &[Shared::Meters("associations")],
    across_nodes: NodeSharing::OneMachine("a security association numbers its packets in one sequence"),
    changes_flows: true,
    cycles_per_packet: 2_500,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Vpn {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    /// Only few packets read it.
    const HOT_BYTES: usize = 0;

    fn new(config: Config, setup: &mut Setup) -> Result<Vpn, ConfigError> {
        let tunnels = TunnelTable::new(&config)?;
        let (outbound, inbound) = tunnels.associations();
        // At most 1,024 and 4,096: no overflow.
        setup.meters(outbound as u32 * OUTBOUND_METERS + inbound as u32 * INBOUND_METERS);
        setup.label_counters(COUNTERS.tunnel, config.tunnels.iter().map(|tunnel| tunnel.name.to_string()));
        let locals: BTreeSet<Addr> = config.tunnels.iter().map(|tunnel| tunnel.local.into()).collect();
        for local in locals {
            setup.owns(Some(Side::Outside), local, local);
        }
        Ok(Vpn {
            tunnels,
            others: config.others,
            gateway4: config.gateway4.map(|addr| Addr::from_v4_bytes(addr.octets())),
            gateway6: config.gateway6.map(|addr| Addr::from_bytes(addr.octets())),
        })
    }

    /// Returns whether packets outside tunnels pass. If not, frames that cannot be recognised as IP
    /// are dropped too.
    fn forwards_unclassified(&self) -> bool {
        self.others == UnprotectedAction::Pass
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        match context.side() {
            Side::Inside => self.send(packet, state, context),
            Side::Outside => self.receive(packet, context),
        }
    }
}
