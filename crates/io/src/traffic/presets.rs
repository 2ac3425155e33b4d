//! Profiles that have a name.

use super::profile::{
    Addresses, Attacks, FlowLength, FrameBytes, Pacing, Payload, Popularity, Profile, Protocols, Rate,
};

impl Profile {
    /// The names that [`Profile::preset`] knows.
    pub const PRESETS: [&str; 6] = ["mix", "smallest", "web", "churn", "elephants", "attack"];

    /// A profile by name: `mix` (the default), `smallest` (60-byte UDP over IPv4, endless flows,
    /// one direction), `web` (HTTP over TCP, Zipf, in bursts), `churn` (short flows that come and
    /// go), `elephants` (few long flows of long packets among many short ones), `attack` (a mix of
    /// which two fifths are attacks).
    pub fn preset(name: &str) -> Option<Profile> {
        let mix = Profile::default();
        let only = |tcp, udp| Protocols { tcp, udp, icmp: 0.0, fragments: 0.0 };
        Some(match name {
            "mix" => mix,
            "smallest" => Profile {
                flow_length: FlowLength::Endless,
                frame_bytes: FrameBytes::Fixed(60),
                rate: Rate::PacketsPerSecond(1_000_000.0),
                pacing: Pacing::Constant,
                protocols: only(0.0, 1.0),
                ipv6_share: 0.0,
                replies: false,
                ..mix
            },
            "web" => Profile {
                popularity: Popularity::Zipf(1.1),
                frame_bytes: FrameBytes::Bimodal { small: 200, large: 1_514, small_share: 0.4 },
                pacing: Pacing::OnOff { burst_packets: 20.0, gap_median_ns: 600_000.0, gap_sigma: 1.0 },
                protocols: only(1.0, 0.0),
                addresses: Addresses { server_ports: vec![80], ..Addresses::default() },
                payload: Payload::Http,
                ..mix
            },
            "churn" => Profile {
                flows: 50_000,
                arrivals_per_second: Some(10_000.0),
                flow_length: FlowLength::Geometric(3.0),
                protocols: only(0.5, 0.5),
                ..mix
            },
            "elephants" => Profile {
                flows: 10_000,
                flow_length: FlowLength::Pareto { least: 3.0, alpha: 1.05 },
                popularity: Popularity::Zipf(1.3),
                frame_bytes: FrameBytes::Bimodal { small: 60, large: 1_514, small_share: 0.2 },
                ..mix
            },
            "attack" => Profile {
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
