//! The VPN gateway: IP packets between two sites go through a tunnel of AH (RFC 4302) or ESP (RFC
//! 4303), with keys that the policy has. See the README.
//!
//! `tunnels` has what the configuration comes to, `frame` what stands around a packet in a tunnel,
//! `suite` the algorithms, and `numbers` what an association's packets share.

mod config;
mod frame;
mod inwards;
mod numbers;
mod outwards;
mod quoted;
mod suite;
mod tunnels;

use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, PacketView, Scaling, Setup,
    Shared, Verdict,
};
use packet::{Addr, Side};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use config::{
    Config, DontFragment, InboundConfig, IpsecProtocol, OutboundConfig, Spi, UnprotectedAction,
    VpnTunnelConfig,
};
pub use numbers::REPLAY_WINDOW;
pub use outwards::TELL_INTERVAL_NS;
pub use tunnels::{INBOUND_MAX, MTU_MIN, NETWORKS_MAX, TUNNELS_MAX};

use numbers::{INBOUND_METERS, OUTBOUND_METERS};
use tunnels::TunnelTable;

/// The gateway.
pub struct Vpn {
    tunnels: TunnelTable,
    others: UnprotectedAction,
    /// Its own addresses inside.
    gateway4: Option<Addr>,
    gateway6: Option<Addr>,
}

/// What the gateway keeps of each flow. What matters of a tunnel is not here: it belongs to
/// security associations, and must not go when a flow does (decision 21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// When the sender was last told what is wrong with its packets, in nanoseconds; 0: never.
    told_ns: u64,
}

/// Numbers of the counters in the descriptor.
mod counter {
    pub const OTHERS: usize = 0;
    pub const ERRORS_SENT: usize = 1;
}

/// A tunnel's counters. Bytes stand behind packets.
mod of_tunnel {
    pub const PACKETS_OUT: usize = 0;
    pub const PACKETS_IN: usize = 2;
    pub const FORGED: usize = 4;
    pub const REPLAYED: usize = 5;
    pub const DUMMIES: usize = 6;
}

const OF_TUNNEL: [&str; 7] =
    ["packets_out", "bytes_out", "packets_in", "bytes_in", "forged", "replayed", "dummies"];

/// The group of counters.
const TUNNELS: usize = 0;

/// The table of meters.
const METERS: usize = 0;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "vpn",
    aliases: &["ipsec", "IPsec"],
    summary: "A site-to-site gateway: tunnels of AH, ESP without encryption or ESP with AES-GCM, keys by the policy",
    maturity: Maturity::Preview,
    state_version: 1,
    attributes: &[],
    reads: &[
        Field::SourceAddress,
        Field::DestinationAddress,
        Field::Protocol,
        Field::TimeToLive,
        Field::Dscp,
    ],
    writes: &[Field::Encapsulation, Field::TimeToLive],
    payload: Access::Write,
    stream: false,
    affinity: Affinity::Flow,
    // A security association has one sender: see decision 21.
    scaling: Scaling::Cores,
    shared: &[
        Shared::Counter("packets_others"),
        Shared::Counter("errors_sent"),
        Shared::Counters("tunnels"),
        Shared::Meters("associations"),
    ],
    map: None,
    buffers: None,
    keeps_flows: false,
    recomputes: false,
    changes_flows: true,
    consolidates: false,
    cycles_per_packet: 2_500,
};

impl NetworkFunction for Vpn {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    /// Few packets need it.
    const HOT_BYTES: usize = 0;

    fn new(config: Config, setup: &mut Setup) -> Result<Vpn, ConfigError> {
        let tunnels = TunnelTable::new(&config)?;
        let (outbound, inbound) = tunnels.associations();
        // At most 1,024 and 4,096: no overflow.
        setup.meters(outbound as u32 * OUTBOUND_METERS + inbound as u32 * INBOUND_METERS);
        setup.counters(
            config.tunnels.iter().flat_map(|t| OF_TUNNEL.map(|what| format!("{}.{what}", &*t.name))),
        );
        Ok(Vpn {
            tunnels,
            others: config.others,
            gateway4: config.gateway4.map(|addr| Addr::from_v4_bytes(addr.octets())),
            gateway6: config.gateway6.map(|addr| Addr::from_bytes(addr.octets())),
        })
    }

    /// Where only tunnels are to pass, so are frames of which it cannot see that they are not IP.
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

#[inline]
fn count(context: &mut Context<'_>, tunnel: u16, what: usize, by: u64) {
    context.count_in(TUNNELS, usize::from(tunnel) * OF_TUNNEL.len() + what, by);
}

/// Counts a packet at `what` and its bytes behind.
#[inline]
fn count_packet(context: &mut Context<'_>, tunnel: u16, what: usize, bytes: usize) {
    count(context, tunnel, what, 1);
    count(context, tunnel, what + 1, bytes as u64);
}
