//! Checks of profiles.

use super::error::ProfileError;
use super::frame::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use super::profile::{FLOWS_MAX, FlowLength, FrameBytes, FrameRate, Pacing, Popularity, TrafficProfile};

impl TrafficProfile {
    /// Checks every field against its limits.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), ProfileError> {
        let lengths = match self.frame_bytes {
            FrameBytes::Fixed(length) => (length, length),
            FrameBytes::Imix => (60, 1_514),
            FrameBytes::Range(least, most) => (least, most),
            FrameBytes::Bimodal { small, large, .. } => (small.min(large), small.max(large)),
        };
        let rate = match self.rate {
            FrameRate::PacketsPerSecond(rate) | FrameRate::BitsPerSecond(rate) => rate,
        };
        let weights = [self.protocols.tcp, self.protocols.udp, self.protocols.icmp, self.protocols.fragments];
        let attacks = self.attacks;
        let attack_shares =
            [attacks.port_scan, attacks.syn_flood, attacks.udp_flood, attacks.land, attacks.malformed];
        let addresses = &self.addresses;
        let rules = [
            ("flows", (1..=FLOWS_MAX).contains(&self.flows), "1 to 16,777,216"),
            ("arrivals_per_second", self.arrivals_per_second.is_none_or(is_rate), "above 0 and at most 1e9"),
            ("flow_length", self.flow_length.is_sound(), "at least 1 packet, and a Pareto alpha above 0"),
            ("popularity", self.popularity.is_sound(), "a Zipf exponent above 0 and at most 10"),
            ("frame_bytes", lengths.0 >= FRAME_BYTES_MIN as u16, "at least 60"),
            ("frame_bytes", lengths.1 <= FRAME_BYTES_MAX, "at most 9,014"),
            ("frame_bytes", lengths.0 <= lengths.1, "a range from the smaller to the larger"),
            ("frame_bytes", self.frame_bytes.is_share_sound(), "a share of 0 to 1"),
            ("rate", rate.is_finite() && rate > 0.0, "above 0"),
            ("pacing", self.pacing.is_sound(), "a burst of 1 packet or more, a gap of 0 or more"),
            (
                "protocols",
                weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0),
                "weights of 0 or more",
            ),
            ("protocols", weights.iter().sum::<f64>() > 0.0, "at least one weight above 0"),
            ("ipv6_share", is_share(self.ipv6_share), "0 to 1"),
            ("reset_share", is_share(self.reset_share), "0 to 1"),
            ("vlan", self.vlan.is_none_or(|vlan| vlan < 4_095), "0 to 4,094"),
            ("datagram_bytes", (1_500..=60_000).contains(&self.datagram_bytes), "1,500 to 60,000"),
            ("clients_v4", addresses.clients_v4.length <= 32, "a prefix of 0 to 32 bits"),
            ("servers_v4", addresses.servers_v4.length <= 32, "a prefix of 0 to 32 bits"),
            ("clients_v6", addresses.clients_v6.length <= 128, "a prefix of 0 to 128 bits"),
            ("servers_v6", addresses.servers_v6.length <= 128, "a prefix of 0 to 128 bits"),
            ("server_ports", !addresses.server_ports.is_empty(), "at least one port"),
            ("attacks", attack_shares.into_iter().all(is_share), "shares of 0 to 1"),
            ("attacks", attacks.total() <= 1.0, "shares that add up to at most 1"),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            Some((field, _, expected)) => Err(ProfileError::OutOfRange { field, expected }),
            None => Ok(()),
        }
    }
}

impl FlowLength {
    fn is_sound(self) -> bool {
        match self {
            FlowLength::Endless => true,
            FlowLength::Fixed(packets) => packets >= 1,
            FlowLength::Geometric(mean) => mean.is_finite() && mean >= 1.0,
            FlowLength::Pareto { least, alpha } => {
                least.is_finite() && least >= 1.0 && alpha.is_finite() && alpha > 0.0
            }
        }
    }
}

impl Popularity {
    fn is_sound(self) -> bool {
        match self {
            Popularity::Uniform => true,
            Popularity::Zipf(exponent) => exponent > 0.0 && exponent <= 10.0,
        }
    }
}

impl FrameBytes {
    fn is_share_sound(self) -> bool {
        match self {
            FrameBytes::Bimodal { small_share, .. } => is_share(small_share),
            _ => true,
        }
    }
}

impl Pacing {
    fn is_sound(self) -> bool {
        match self {
            Pacing::Constant | Pacing::Poisson => true,
            Pacing::OnOff { burst_packets, gap_median_ns, gap_sigma } => {
                burst_packets.is_finite()
                    && burst_packets >= 1.0
                    && [gap_median_ns, gap_sigma].into_iter().all(|value| value.is_finite() && value >= 0.0)
            }
        }
    }
}

fn is_share(value: f64) -> bool {
    (0.0..=1.0).contains(&value)
}

fn is_rate(value: f64) -> bool {
    value > 0.0 && value <= 1e9
}
