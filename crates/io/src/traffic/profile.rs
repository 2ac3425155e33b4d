//! What traffic is to be like.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::check::ProfileError;

/// The most flows that may be open at a time.
pub const FLOWS_MAX: u32 = 1 << 24;

/// The longest frame that may be asked for, in bytes without VLAN tag and frame check sequence (a
/// jumbo frame).
pub const FRAME_BYTES_MAX: u16 = 9_014;

/// A description of traffic. Take a preset or the default and change what matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Everything random follows from it.
    pub seed: u64,
    /// The first packet's time, in nanoseconds.
    pub start_ns: u64,
    /// Ends after so many packets; endless without it and [`Profile::duration_ns`].
    pub packets: Option<u64>,
    /// Ends before the first packet that is so much later than [`Profile::start_ns`], in
    /// nanoseconds.
    pub duration_ns: Option<u64>,
    /// Flows open at a time, at most [`FLOWS_MAX`].
    pub flows: u32,
    /// New flows a second, as a Poisson process: there are then up to [`Profile::flows`], and what
    /// would be more is counted and left out. Without it each flow that ends is replaced at once,
    /// and there are always that many.
    pub arrivals_per_second: Option<f64>,
    /// How long flows are.
    pub flow_length: FlowLength,
    /// Which flows send how much.
    pub popularity: Popularity,
    /// The length of packets that carry data.
    pub frame_bytes: FrameBytes,
    /// How much is sent, both sides together.
    pub rate: Rate,
    /// How it is spread in time.
    pub pacing: Pacing,
    /// The mix of protocols.
    pub protocols: Protocols,
    /// The share of flows that are IPv6, 0 to 1.
    pub ipv6_share: f64,
    /// The share of TCP flows that the client resets rather than closes, 0 to 1.
    pub reset_share: f64,
    /// A VLAN tag for all frames: 4 bytes on top of their length.
    pub vlan: Option<u16>,
    /// The payload of a UDP datagram that is sent in fragments of at most 1,500 bytes.
    pub datagram_bytes: u16,
    /// Who talks to whom.
    pub addresses: Addresses,
    /// What is in the packets.
    pub payload: Payload,
    /// Whether the servers' packets are sent too, on port 1, as if no NF had rewritten anything.
    pub replies: bool,
    /// How servers answer data, here and in a [`super::Responder`].
    pub answer: Answer,
    /// Attacks between the flows' packets.
    pub attacks: Attacks,
}

/// How many packets with data a client sends in a flow, besides those that open and close it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowLength {
    /// Flows do not end.
    Endless,
    /// Always as many.
    Fixed(u32),
    /// Geometric: a mean, at least 1.
    Geometric(f64),
    /// Pareto: a least number and the tail's exponent (below 2 the variance is infinite, below 1
    /// the mean).
    Pareto {
        /// The least number.
        least: f64,
        /// The tail's exponent.
        alpha: f64,
    },
}

/// Which flow the next packet is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Any, with the same probability.
    Uniform,
    /// By rank, with a probability proportional to `rank^-s`; a flow that ends leaves its rank to
    /// another.
    Zipf(f64),
}

/// The length of packets that carry data, in bytes without VLAN tag and frame check sequence. A
/// packet whose headers need more is longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FrameBytes {
    /// Always the same.
    Fixed(u16),
    /// The simple Internet mix: 7 of 60, 4 of 590 and 1 of 1,514 bytes.
    Imix,
    /// Any length between these two, inclusive.
    Range(u16, u16),
    /// Two lengths.
    Bimodal {
        /// The first.
        small: u16,
        /// The second.
        large: u16,
        /// The share of the first, 0 to 1.
        small_share: f64,
    },
}

/// The rate of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Packets a second.
    PacketsPerSecond(f64),
    /// Bits a second, of frames without frame check sequence, preamble and gap.
    BitsPerSecond(f64),
}

/// How packets are spread in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// At even distances.
    Constant,
    /// At exponential distances.
    Poisson,
    /// In bursts at the profile's rate, with silence between: the mean rate is lower.
    OnOff {
        /// The mean number of packets in a burst (geometric), at least 1.
        burst_packets: f64,
        /// The median of the silence between bursts (log-normal), in nanoseconds.
        gap_median_ns: f64,
        /// The deviation of the silence's logarithm.
        gap_sigma: f64,
    },
}

/// Weights of the kinds of flows; they need not add up to anything.
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

/// A network prefix: an address and the number of its leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<A> {
    /// The address; bits behind the prefix are ignored.
    pub address: A,
    /// The number of leading bits.
    pub length: u8,
}

/// Who talks to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The clients' IPv4 prefix.
    pub clients_v4: Prefix<Ipv4Addr>,
    /// The servers' IPv4 prefix.
    pub servers_v4: Prefix<Ipv4Addr>,
    /// The clients' IPv6 prefix, of whose addresses at most 2^32 are used.
    pub clients_v6: Prefix<Ipv6Addr>,
    /// The servers' IPv6 prefix, of whose addresses at most 2^32 are used.
    pub servers_v6: Prefix<Ipv6Addr>,
    /// The ports that servers listen on; at least one.
    pub server_ports: Vec<u16>,
    /// The Ethernet address on the clients' side.
    pub client_mac: [u8; 6],
    /// The Ethernet address on the servers' side.
    pub server_mac: [u8; 6],
}

/// What packets carry: pieces of a pool of 128 KiB that is made up once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Random bytes.
    Random,
    /// Requests in HTTP/1.1: each packet begins with a request line, and is cut to its length.
    Http,
    /// Zeros.
    Zero,
}

/// How a server answers data over TCP. (UDP data and ICMP echoes come back as they are.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With the same data.
    Echo,
    /// With an acknowledgement only.
    Acknowledge,
}

/// Shares of all packets, 0 to 1, together at most 1. Attacks come from the clients' side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attacks {
    /// SYNs from one client to each server and port in turn.
    pub port_scan: f64,
    /// SYNs to one server's first port from made-up sources.
    pub syn_flood: f64,
    /// UDP to one server from made-up sources, to any port.
    pub udp_flood: f64,
    /// SYNs from a server's address and port to the same address and port.
    pub land: f64,
    /// Packets with a field, length or checksum that is wrong.
    pub malformed: f64,
}

impl Attacks {
    /// The share of all attacks together.
    pub fn total(&self) -> f64 {
        self.port_scan + self.syn_flood + self.udp_flood + self.land + self.malformed
    }
}

impl Default for Addresses {
    /// Private and documentation addresses: 10.0.0.0/12 and 2001:db8:c::/96 to 198.18.0.0/24 and
    /// 2001:db8:5::/112.
    fn default() -> Addresses {
        Addresses {
            clients_v4: Prefix { address: Ipv4Addr::new(10, 0, 0, 0), length: 12 },
            servers_v4: Prefix { address: Ipv4Addr::new(198, 18, 0, 0), length: 24 },
            clients_v6: Prefix { address: Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 0), length: 96 },
            servers_v6: Prefix { address: Ipv6Addr::new(0x2001, 0xdb8, 0x5, 0, 0, 0, 0, 0), length: 112 },
            server_ports: vec![80, 443, 53, 8080],
            client_mac: [2, 0, 0, 0, 0, 1],
            server_mac: [2, 0, 0, 0, 0, 2],
        }
    }
}

impl Default for Profile {
    /// An ordinary mix: 1,000 flows, mostly TCP and IPv4, heavy-tailed, at 100,000 packets a
    /// second, both directions.
    fn default() -> Profile {
        Profile {
            seed: 1,
            start_ns: 0,
            packets: None,
            duration_ns: None,
            flows: 1_000,
            arrivals_per_second: None,
            flow_length: FlowLength::Pareto { least: 4.0, alpha: 1.3 },
            popularity: Popularity::Uniform,
            frame_bytes: FrameBytes::Imix,
            rate: Rate::PacketsPerSecond(100_000.0),
            pacing: Pacing::Poisson,
            protocols: Protocols { tcp: 0.70, udp: 0.26, icmp: 0.03, fragments: 0.01 },
            ipv6_share: 0.2,
            reset_share: 0.1,
            vlan: None,
            datagram_bytes: 4_000,
            addresses: Addresses::default(),
            payload: Payload::Random,
            replies: true,
            answer: Answer::Echo,
            attacks: Attacks::default(),
        }
    }
}

impl<A: FromStr> FromStr for Prefix<A> {
    type Err = ProfileError;

    /// An address, a slash and a number of bits. That the number fits the address is
    /// [`Profile::check`]'s.
    fn from_str(text: &str) -> Result<Prefix<A>, ProfileError> {
        let wrong = || ProfileError::Prefix { text: text.to_owned() };
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        Ok(Prefix {
            address: address.parse().map_err(|_| wrong())?,
            length: length.parse().map_err(|_| wrong())?,
        })
    }
}
