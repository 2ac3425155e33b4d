//! Descriptions of traffic.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::error::ProfileError;

/// Flows open at a time.
pub const FLOWS_MAX: u32 = 1 << 24;

/// A description of traffic. Take a preset or the default and change what matters.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficProfile {
    /// Seed of all randomness.
    pub seed: u64,
    /// Time of the first packet, in nanoseconds.
    pub start_ns: u64,
    /// Number of packets; unlimited without it and [`TrafficProfile::duration_ns`].
    pub packets: Option<u64>,
    /// Duration after [`TrafficProfile::start_ns`], in nanoseconds: no packet is that late.
    pub duration_ns: Option<u64>,
    /// Flows open at a time, at most [`FLOWS_MAX`].
    pub flows: u32,
    /// New flows per second, as a Poisson process, with up to [`TrafficProfile::flows`] open;
    /// further arrivals are counted and refused. Without it, each flow that ends is replaced at
    /// once, so the number of open flows is constant.
    pub arrivals_per_second: Option<f64>,
    /// Lengths of flows.
    pub flow_length: FlowLength,
    /// Distribution of packets over flows.
    pub popularity: Popularity,
    /// Lengths of data packets.
    pub frame_bytes: FrameBytes,
    /// Rate of both directions together.
    pub rate: FrameRate,
    /// Distribution over time.
    pub pacing: Pacing,
    /// The mix of protocols.
    pub protocols: Protocols,
    /// Share of IPv6 flows, 0 to 1.
    pub ipv6_share: f64,
    /// Share of TCP flows that the client resets instead of closing, 0 to 1.
    pub reset_share: f64,
    /// VLAN tag of all frames: 4 bytes on top of their length.
    pub vlan: Option<u16>,
    /// Payload of a UDP datagram that is sent in fragments of at most 1,500 bytes.
    pub datagram_bytes: u16,
    /// Clients and servers.
    pub addresses: TrafficAddresses,
    /// Contents of packets.
    pub payload: Payload,
    /// Send the servers' packets too, on port 1, as if no NF had rewritten anything.
    pub replies: bool,
    /// Servers' answer to data, here and in a [`super::Responder`].
    pub answer: ServerAnswer,
    /// Attacks between the flows' packets.
    pub attacks: Attacks,
}

/// Data packets that a client sends in a flow, without the packets that open and close it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowLength {
    /// Flows do not end.
    Endless,
    /// A constant number.
    Fixed(u32),
    /// Geometric, with this mean of at least 1.
    Geometric(f64),
    /// Pareto, with a minimum and an exponent (below 2 the variance is infinite, below 1 the mean).
    Pareto {
        /// The minimum.
        least: f64,
        /// The exponent of the tail.
        alpha: f64,
    },
}

/// Choice of the flow of the next packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// All flows are equally likely.
    Uniform,
    /// By rank, with a probability proportional to `rank^-s`; a new flow takes the rank of the
    /// ended one.
    Zipf(f64),
}

/// Length of data packets, in bytes without VLAN tag and frame check sequence. A packet is longer
/// if its headers need more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FrameBytes {
    /// A constant length.
    Fixed(u16),
    /// The simple Internet mix: 7 of 60, 4 of 590 and 1 of 1,514 bytes.
    Imix,
    /// Uniform between these two, inclusive.
    Range(u16, u16),
    /// Two lengths.
    Bimodal {
        /// The first.
        small: u16,
        /// The second.
        large: u16,
        /// Share of the first, 0 to 1.
        small_share: f64,
    },
}

/// Rate of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FrameRate {
    /// Packets per second.
    PacketsPerSecond(f64),
    /// Bits per second, of frames without frame check sequence, preamble and gap.
    BitsPerSecond(f64),
}

/// Distribution of packets over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// At constant intervals.
    Constant,
    /// At exponential intervals.
    Poisson,
    /// In bursts at the profile's rate, with gaps between them: the mean rate is lower.
    OnOff {
        /// Mean number of packets in a burst (geometric), at least 1.
        burst_packets: f64,
        /// Median of the gap between bursts (log-normal), in nanoseconds.
        gap_median_ns: f64,
        /// Standard deviation of the gap's logarithm.
        gap_sigma: f64,
    },
}

/// Weights of the kinds of flows, with any sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Protocols {
    /// TCP connections with handshake, data both ways, and close.
    pub tcp: f64,
    /// UDP exchanges.
    pub udp: f64,
    /// ICMP echo.
    pub icmp: f64,
    /// UDP datagrams in fragments; servers do not answer them.
    pub fragments: f64,
}

/// A network prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefix<A> {
    /// The address; bits after the prefix are ignored.
    pub address: A,
    /// The number of leading bits.
    pub length: u8,
}

/// Addresses and ports of clients and servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficAddresses {
    /// The clients' IPv4 prefix.
    pub clients_v4: AddressPrefix<Ipv4Addr>,
    /// The servers' IPv4 prefix.
    pub servers_v4: AddressPrefix<Ipv4Addr>,
    /// The clients' IPv6 prefix; at most 2^32 of its addresses are used.
    pub clients_v6: AddressPrefix<Ipv6Addr>,
    /// The servers' IPv6 prefix; at most 2^32 of its addresses are used.
    pub servers_v6: AddressPrefix<Ipv6Addr>,
    /// The ports of servers; at least one.
    pub server_ports: Vec<u16>,
    /// The Ethernet address on the clients' side.
    pub client_mac: [u8; 6],
    /// The Ethernet address on the servers' side.
    pub server_mac: [u8; 6],
}

/// Contents of packets: pieces of a pool of 128 KiB that is generated once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Random bytes.
    Random,
    /// HTTP/1.1 requests: each packet begins with a request line, and is cut to its length.
    Http,
    /// Zeros.
    Zero,
}

/// A server's answer to data over TCP. (UDP data and ICMP echoes are returned unchanged.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAnswer {
    /// The same data.
    Echo,
    /// An acknowledgement only.
    Acknowledge,
}

/// Shares of all packets, 0 to 1, together at most 1. Attackers are on the clients' side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attacks {
    /// SYNs from one client to each server and port in turn.
    pub port_scan: f64,
    /// SYNs to one server's first port from spoofed sources.
    pub syn_flood: f64,
    /// UDP to all ports of one server from spoofed sources.
    pub udp_flood: f64,
    /// SYNs from a server's address and port to the same address and port.
    pub land: f64,
    /// Packets with a wrong field, length or checksum.
    pub malformed: f64,
}

impl Attacks {
    /// Returns the share of all attacks together.
    pub fn total(&self) -> f64 {
        self.port_scan + self.syn_flood + self.udp_flood + self.land + self.malformed
    }
}

impl Default for TrafficAddresses {
    /// Returns private and documentation addresses: 10.0.0.0/12 and 2001:db8:c::/96 to
    /// 198.18.0.0/24 and 2001:db8:5::/112.
    fn default() -> TrafficAddresses {
        TrafficAddresses {
            clients_v4: AddressPrefix { address: Ipv4Addr::new(10, 0, 0, 0), length: 12 },
            servers_v4: AddressPrefix { address: Ipv4Addr::new(198, 18, 0, 0), length: 24 },
            clients_v6: AddressPrefix {
                address: Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 0),
                length: 96,
            },
            servers_v6: AddressPrefix {
                address: Ipv6Addr::new(0x2001, 0xdb8, 0x5, 0, 0, 0, 0, 0),
                length: 112,
            },
            server_ports: vec![80, 443, 53, 8080],
            client_mac: [2, 0, 0, 0, 0, 1],
            server_mac: [2, 0, 0, 0, 0, 2],
        }
    }
}

impl Default for TrafficProfile {
    /// Returns an ordinary mix: 1,000 flows, mostly TCP and IPv4, heavy-tailed, at 100,000 packets
    /// per second, both directions.
    fn default() -> TrafficProfile {
        TrafficProfile {
            seed: 1,
            start_ns: 0,
            packets: None,
            duration_ns: None,
            flows: 1_000,
            arrivals_per_second: None,
            flow_length: FlowLength::Pareto { least: 4.0, alpha: 1.3 },
            popularity: Popularity::Uniform,
            frame_bytes: FrameBytes::Imix,
            rate: FrameRate::PacketsPerSecond(100_000.0),
            pacing: Pacing::Poisson,
            protocols: Protocols { tcp: 0.70, udp: 0.26, icmp: 0.03, fragments: 0.01 },
            ipv6_share: 0.2,
            reset_share: 0.1,
            vlan: None,
            datagram_bytes: 4_000,
            addresses: TrafficAddresses::default(),
            payload: Payload::Random,
            replies: true,
            answer: ServerAnswer::Echo,
            attacks: Attacks::default(),
        }
    }
}

impl<A: FromStr> FromStr for AddressPrefix<A> {
    type Err = ProfileError;

    /// Parses an address, a slash and a number of bits. [`TrafficProfile::check`] checks that the
    /// number fits the address.
    fn from_str(text: &str) -> Result<AddressPrefix<A>, ProfileError> {
        let wrong = || ProfileError::AddressPrefix { text: text.to_owned() };
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        Ok(AddressPrefix {
            address: address.parse().map_err(|_| wrong())?,
            length: length.parse().map_err(|_| wrong())?,
        })
    }
}
