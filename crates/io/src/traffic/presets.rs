//! Named profiles.

use super::profile::{
    Attacks, FlowLength, FrameBytes, FrameRate, Pacing, Payload, Popularity, Protocols, TrafficAddresses,
    TrafficProfile,
};

impl TrafficProfile {
    /// The names of presets.
    pub const PRESETS: [&str; 6] = ["mix", "smallest", "web", "churn", "elephants", "attack"];

    /// Returns a profile by name: `mix` (the default), `smallest` (60-byte UDP over IPv4, endless
    /// flows, one direction), `web` (HTTP over TCP, Zipf, in bursts), `churn` (short flows),
    /// `elephants` (few long flows of long packets among many short ones), `attack` (a mix with two
    /// fifths of attacks).
    pub fn preset(name: &str) -> Option<TrafficProfile> {
        let mix = TrafficProfile::default();
        let only = |tcp, udp| Protocols { tcp, udp, icmp: 0.0, fragments: 0.0 };
        Some(match name {
            "mix" => mix,
            "smallest" => TrafficProfile {
                flow_length: FlowLength::Endless,
                frame_bytes: FrameBytes::Fixed(60),
                rate: FrameRate::PacketsPerSecond(1_000_000.0),
                pacing: Pacing::Constant,
                protocols: only(0.0, 1.0),
                ipv6_share: 0.0,
                replies: false,
                ..mix
            },
            "web" => TrafficProfile {
                popularity: Popularity::Zipf(1.1),
                frame_bytes: FrameBytes::Bimodal { small: 200, large: 1_514, small_share: 0.4 },
                pacing: Pacing::OnOff { burst_packets: 20.0, gap_median_ns: 600_000.0, gap_sigma: 1.0 },
                protocols: only(1.0, 0.0),
                addresses: TrafficAddresses { server_ports: vec![80], ..TrafficAddresses::default() },
                payload: Payload::Http,
                ..mix
            },
            "churn" => TrafficProfile {
                flows: 50_000,
                arrivals_per_second: Some(10_000.0),
                flow_length: FlowLength::Geometric(3.0),
                protocols: only(0.5, 0.5),
                ..mix
            },
            "elephants" => TrafficProfile {
                flows: 10_000,
                flow_length: FlowLength::Pareto { least: 3.0, alpha: 1.05 },
                popularity: Popularity::Zipf(1.3),
                frame_bytes: FrameBytes::Bimodal { small: 60, large: 1_514, small_share: 0.2 },
                ..mix
            },
            "attack" => TrafficProfile {
                attacks: Attacks {
                    port_scan: 0.05,
                    syn_flood: 0.15,
                    udp_flood: 0.1,
                    land: 0.02,
                    malformed: 0.08,
                },
                ..mix
            },
            _ => return None,
        })
    }
}
