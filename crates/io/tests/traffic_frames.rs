//! Generated frames are correct, according to a slow parser and tshark, and follow their profile.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "support/slow.rs"]
mod slow;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use io::capture::{CaptureFormat, CaptureRecord, CaptureWriter};
use io::traffic::{
    AddressPrefix, Attacks, Counters, FRAME_BYTES_MIN, FlowLength, FrameBytes, FrameKind, FrameRate,
    Generator, Pacing, Payload, Popularity, ProfileError, Protocols, ServerAnswer, TrafficAddresses,
    TrafficProfile,
};
use packet::LinkType;
use proptest::prelude::*;
use slow::{Parsed, check_transport, parse};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    timestamp_ns: u64,
    port: u16,
    kind: FrameKind,
    data: Vec<u8>,
}

fn frames_of(profile: &TrafficProfile) -> (Vec<Owned>, Counters) {
    let mut generator = Generator::new(profile).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = generator.next() {
        let data = frame.data.to_vec();
        frames.push(Owned { timestamp_ns: frame.timestamp_ns, port: frame.port, kind: frame.kind, data });
    }
    (frames, generator.counters())
}

fn short(packets: u64) -> TrafficProfile {
    TrafficProfile { packets: Some(packets), flows: 100, ..TrafficProfile::default() }
}

fn share(frames: &[Owned], is_counted: impl Fn(&Owned) -> bool) -> f64 {
    frames.iter().filter(|frame| is_counted(frame)).count() as f64 / frames.len() as f64
}

fn assert_near(found: f64, wanted: f64, tolerance: f64) {
    assert!((found - wanted).abs() <= tolerance, "found {found}, wanted {wanted} within {tolerance}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
    for name in TrafficProfile::PRESETS {
        let profile = TrafficProfile { packets: Some(3_000), ..TrafficProfile::preset(name).unwrap() };
        let (first, counters) = frames_of(&profile);
        assert_eq!(frames_of(&profile), (first.clone(), counters));
        assert_eq!(counters.frames, 3_000);
        assert_eq!(counters.bytes, first.iter().map(|frame| frame.data.len() as u64).sum::<u64>());
        let (other, _) = frames_of(&TrafficProfile { seed: 2, ..profile });
        assert_ne!(first, other, "{name}");
    }
}

#[test]
fn every_frame_is_whole_and_has_correct_checksums() {
    let variants = [
        TrafficProfile::default(),
        TrafficProfile {
            vlan: Some(7),
            ipv6_share: 0.5,
            payload: Payload::Http,
            ..TrafficProfile::default()
        },
        TrafficProfile {
            frame_bytes: FrameBytes::Range(60, 9_014),
            payload: Payload::Zero,
            ..TrafficProfile::default()
        },
        TrafficProfile { answer: ServerAnswer::Acknowledge, replies: false, ..TrafficProfile::default() },
        TrafficProfile {
            attacks: Attacks { port_scan: 0.3, syn_flood: 0.2, udp_flood: 0.2, land: 0.2, malformed: 0.0 },
            ..TrafficProfile::default()
        },
    ];
    for variant in variants {
        let (frames, _) = frames_of(&TrafficProfile { packets: Some(5_000), flows: 100, ..variant });
        let mut last_ns = 0;
        for frame in &frames {
            let parsed = parse(&frame.data).unwrap_or_else(|wrong| panic!("{wrong}: {frame:?}"));
            assert_eq!(parsed.vlan.is_some(), frame.data[12..14] == [0x81, 0]);
            assert!(frame.timestamp_ns >= last_ns);
            last_ns = frame.timestamp_ns;
            let from_client = parsed.macs[6..] == [2, 0, 0, 0, 0, 1];
            assert_eq!(from_client, frame.port == 0);
        }
    }
}

#[test]
fn malformed_frames_are_malformed_and_nothing_else_is() {
    let attacks = Attacks { malformed: 0.5, ..Attacks::default() };
    let (frames, _) = frames_of(&TrafficProfile { attacks, ..short(10_000) });
    let mut wrong = BTreeSet::new();
    for frame in &frames {
        assert!(frame.data.len() >= FRAME_BYTES_MIN);
        match (frame.kind, parse(&frame.data)) {
            (FrameKind::Malformed, Err(what)) => _ = wrong.insert(what),
            // The slow parser does not detect impossible flags and offsets within the header.
            (FrameKind::Malformed, Ok(parsed)) => {
                let known = [7, 0].contains(&parsed.flags()) || parsed.fragment.is_some();
                assert!(known, "{parsed:?}");
            }
            (_, result) => assert!(result.is_ok(), "{result:?}"),
        }
    }
    assert!(wrong.len() >= 6, "{wrong:?}");
    assert_near(share(&frames, |frame| frame.kind == FrameKind::Malformed), 0.5, 0.02);
}

/// Returns a key for both directions of a connection: the client's endpoint first.
fn connection(frame: &Owned, parsed: &Parsed) -> (Vec<u8>, u16, Vec<u8>, u16) {
    let (source, destination) = parsed.ports();
    match frame.port {
        0 => (parsed.source.clone(), source, parsed.destination.clone(), destination),
        _ => (parsed.destination.clone(), destination, parsed.source.clone(), source),
    }
}

#[test]
fn tcp_connections_open_count_and_close_correctly() {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    for (answer, frame_bytes) in
        [(ServerAnswer::Echo, FrameBytes::Imix), (ServerAnswer::Acknowledge, FrameBytes::Fixed(60))]
    {
        let profile = TrafficProfile {
            protocols: Protocols { tcp: 1.0, udp: 0.0, icmp: 0.0, fragments: 0.0 },
            reset_share: 0.5,
            answer,
            frame_bytes,
            ..short(20_000)
        };
        let (frames, counters) = frames_of(&profile);
        // For each connection, the next sequence numbers of client and server, and the number of
        // packets.
        let mut open: BTreeMap<_, ([Option<u32>; 2], u32)> = BTreeMap::new();
        let (mut closed, mut reset) = (0, 0);
        for frame in &frames {
            let parsed = parse(&frame.data).unwrap();
            let key = connection(frame, &parsed);
            let (side, flags) = (usize::from(frame.port), parsed.flags());
            let (next, count) = open.entry(key.clone()).or_default();
            assert_eq!(flags & SYN != 0, next[side].is_none(), "a SYN comes first and once");
            assert_eq!(flags & ACK != 0, *count > 0, "all but the first acknowledge");
            assert_eq!(next[side].unwrap_or(parsed.sequence()), parsed.sequence());
            if flags & ACK != 0 {
                assert_eq!(
                    Some(parsed.acknowledgement()),
                    next[1 - side],
                    "all that was sent is acknowledged"
                );
            }
            let advance = parsed.payload().len() as u32 + u32::from(flags & (SYN | FIN) != 0);
            next[side] = Some(parsed.sequence().wrapping_add(advance));
            *count += 1;
            let last_ack = flags == ACK && *count > 3 && side == 0;
            if flags & RST != 0 {
                reset += 1;
                open.remove(&key);
            } else if last_ack {
                closed += 1;
                open.remove(&key);
            }
        }
        assert_eq!(closed + reset, counters.flows_ended);
        assert_near(reset as f64 / counters.flows_ended as f64, 0.5, 0.06);
        assert_eq!(counters.flows_begun - counters.flows_ended, 100);
        assert!(open.len() <= 100 && !open.is_empty());
    }
}

#[test]
fn fragments_make_whole_datagrams_in_order() {
    let profile = TrafficProfile {
        protocols: Protocols { tcp: 0.0, udp: 0.0, icmp: 0.0, fragments: 1.0 },
        ipv6_share: 0.5,
        ..short(3_000)
    };
    let (frames, _) = frames_of(&profile);
    let mut parts: BTreeMap<_, Parsed> = BTreeMap::new();
    let mut whole = 0;
    for frame in &frames {
        let parsed = parse(&frame.data).unwrap();
        let (offset, more) = parsed.fragment.unwrap();
        let key = (parsed.source.clone(), parsed.destination.clone(), parsed.ident);
        if offset == 0 {
            assert!(parts.insert(key, parsed).is_none());
            continue;
        }
        let datagram = parts.get_mut(&key).unwrap();
        assert_eq!(datagram.transport.len(), offset);
        datagram.transport.extend(&parsed.transport);
        if !more {
            let datagram = parts.remove(&key).unwrap();
            assert_eq!(datagram.payload().len(), 4_000);
            check_transport(&datagram).unwrap();
            whole += 1;
        }
    }
    assert!(whole > 900, "{whole}");
}

#[test]
fn the_mix_is_the_profiles() {
    let protocols = Protocols { tcp: 4.0, udp: 3.0, icmp: 2.0, fragments: 1.0 };
    let attacks = Attacks { port_scan: 0.02, syn_flood: 0.04, udp_flood: 0.06, land: 0.08, malformed: 0.1 };
    let profile = TrafficProfile {
        protocols,
        attacks,
        ipv6_share: 0.3,
        // One step of each flow: shares of frames are then shares of flows.
        flow_length: FlowLength::Endless,
        flows: 20_000,
        ..short(100_000)
    };
    let (frames, _) = frames_of(&profile);
    let of = |kind| share(&frames, |frame| frame.kind == kind);
    for (kind, wanted) in [
        (FrameKind::PortScan, 0.02),
        (FrameKind::SynFlood, 0.04),
        (FrameKind::UdpFlood, 0.06),
        (FrameKind::Land, 0.08),
        (FrameKind::Malformed, 0.1),
        (FrameKind::Tcp, 0.7 * 0.4),
        (FrameKind::Udp, 0.7 * 0.3),
        (FrameKind::Icmp, 0.7 * 0.2),
        (FrameKind::Fragment, 0.7 * 0.1),
    ] {
        assert_near(of(kind), wanted, 0.01);
    }
    let is_v6 = |frame: &Owned| frame.data[12..14] == [0x86, 0xdd];
    assert_near(share(&frames, is_v6), 0.7 * 0.3, 0.01);
}

#[test]
fn lengths_rates_and_times_are_the_profiles() {
    let udp = Protocols { tcp: 0.0, udp: 1.0, icmp: 0.0, fragments: 0.0 };
    let base = TrafficProfile { protocols: udp, ipv6_share: 0.0, ..short(50_000) };
    let seconds = |frames: &[Owned]| frames.last().unwrap().timestamp_ns as f64 / 1e9;

    let (frames, _) = frames_of(&TrafficProfile { pacing: Pacing::Constant, ..base.clone() });
    assert!(frames.windows(2).all(|pair| pair[1].timestamp_ns - pair[0].timestamp_ns == 10_000));
    for (length, wanted) in [(60, 7.0 / 12.0), (590, 4.0 / 12.0), (1_514, 1.0 / 12.0)] {
        assert_near(share(&frames, |frame| frame.data.len() == length), wanted, 0.01);
    }

    let (frames, _) = frames_of(&base);
    assert_near(seconds(&frames), 0.5, 0.01);

    let bits = TrafficProfile {
        rate: FrameRate::BitsPerSecond(1e9),
        frame_bytes: FrameBytes::Range(100, 1_000),
        replies: false,
        ..base.clone()
    };
    let (frames, counters) = frames_of(&bits);
    assert_near(counters.bytes as f64 * 8.0 / seconds(&frames), 1e9, 1e7);
    assert!(frames.iter().all(|frame| (100..=1_000).contains(&frame.data.len()) && frame.port == 0));

    let bursts = Pacing::OnOff { burst_packets: 10.0, gap_median_ns: 1e6, gap_sigma: 0.5 };
    let (frames, _) = frames_of(&TrafficProfile { pacing: bursts, ..base.clone() });
    let gaps = frames.windows(2).filter(|pair| pair[1].timestamp_ns - pair[0].timestamp_ns > 10_001).count();
    assert_near(gaps as f64, 5_000.0, 300.0);

    let (frames, _) =
        frames_of(&TrafficProfile { packets: None, duration_ns: Some(100_000_000), start_ns: 5, ..base });
    assert_near(frames.len() as f64, 10_000.0, 400.0);
    assert!(frames.last().unwrap().timestamp_ns < 100_000_005 && frames[0].timestamp_ns == 5);
}

#[test]
fn flows_arrive_at_their_rate_and_have_their_lengths() {
    let profile = TrafficProfile {
        flows: 10_000,
        arrivals_per_second: Some(20_000.0),
        flow_length: FlowLength::Geometric(3.0),
        protocols: Protocols { tcp: 0.0, udp: 1.0, icmp: 0.0, fragments: 0.0 },
        replies: false,
        packets: None,
        duration_ns: Some(1_000_000_000),
        ..TrafficProfile::default()
    };
    let (_, counters) = frames_of(&profile);
    assert_near(counters.flows_begun as f64, 20_000.0, 600.0);
    assert_near(counters.frames as f64 / counters.flows_ended as f64, 3.0, 0.3);
    assert_eq!(counters.flows_refused, 0);
    let (_, crowded) =
        frames_of(&TrafficProfile { flows: 10, flow_length: FlowLength::Fixed(50), ..profile });
    assert!(crowded.flows_refused > 10_000, "{crowded:?}");
}

#[test]
fn zipf_flows_are_unequal_and_open_flows_have_distinct_tuples() {
    let profile = TrafficProfile {
        flow_length: FlowLength::Endless,
        protocols: Protocols { tcp: 0.0, udp: 1.0, icmp: 0.0, fragments: 0.0 },
        popularity: Popularity::Zipf(1.0),
        replies: false,
        ..short(20_000)
    };
    let count = |profile: &TrafficProfile| {
        let mut counts: BTreeMap<_, u32> = BTreeMap::new();
        for frame in frames_of(profile).0 {
            let parsed = parse(&frame.data).unwrap();
            *counts.entry(connection(&frame, &parsed)).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    };
    let harmonic: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
    let zipf = count(&profile);
    assert_near(f64::from(zipf[0]), 20_000.0 / harmonic, 300.0);
    let uniform = count(&TrafficProfile { popularity: Popularity::Uniform, ..profile });
    assert_eq!(uniform.len(), 100);
    assert!(uniform[0] < 300 && uniform[99] > 100);
}

#[test]
fn http_payloads_begin_with_a_request_line() {
    let profile = TrafficProfile { packets: Some(2_000), ..TrafficProfile::preset("web").unwrap() };
    let mut requests = 0;
    for frame in frames_of(&profile).0 {
        let parsed = parse(&frame.data).unwrap();
        if !parsed.payload().is_empty() {
            let text = std::str::from_utf8(parsed.payload()).unwrap();
            assert!(["GET /", "HEAD /", "POST /"].iter().any(|method| text.starts_with(method)), "{text}");
            requests += 1;
        }
    }
    assert!(requests > 500);
}

#[test]
fn impossible_profiles_are_refused_by_field() {
    let refused = |profile: TrafficProfile, words: &str| {
        let error = Generator::new(&profile).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(TrafficProfile { flows: 0, ..TrafficProfile::default() }, "`flows`");
    refused(
        TrafficProfile { frame_bytes: FrameBytes::Fixed(59), ..TrafficProfile::default() },
        "`frame_bytes` must be at least 60",
    );
    refused(
        TrafficProfile { rate: FrameRate::PacketsPerSecond(f64::NAN), ..TrafficProfile::default() },
        "`rate`",
    );
    refused(TrafficProfile { vlan: Some(4_095), ..TrafficProfile::default() }, "`vlan`");
    refused(
        TrafficProfile {
            attacks: Attacks { land: 0.6, malformed: 0.6, ..Attacks::default() },
            ..TrafficProfile::default()
        },
        "add up",
    );
    let few = TrafficAddresses { clients_v4: "10.0.0.1/32".parse().unwrap(), ..TrafficAddresses::default() };
    let error =
        Generator::new(&TrafficProfile { flows: 64_513, addresses: few, ..TrafficProfile::default() })
            .unwrap_err();
    assert_eq!(error, ProfileError::TooFewClients { flows: 64_513, prefix: "clients_v4", room: 64_512 });
    assert!("10.0.0.0".parse::<io::traffic::AddressPrefix<std::net::Ipv4Addr>>().is_err());
    assert!(TrafficProfile::preset("nothing").is_none());
}

#[test]
fn tshark_finds_no_fault() {
    if Command::new("tshark").arg("-v").output().is_err() {
        println!("SKIPPED: tshark is not installed");
        return;
    }
    let file = tempfile::NamedTempFile::with_suffix(".pcap").unwrap();
    let mut writer = CaptureWriter::create(file.path(), CaptureFormat::of_path(file.path())).unwrap();
    let mut generator =
        Generator::new(&TrafficProfile { reset_share: 0.2, vlan: Some(9), ..short(5_000) }).unwrap();
    while let Some(frame) = generator.next() {
        let wire_len = frame.data.len() as u32;
        let record = CaptureRecord {
            timestamp_ns: frame.timestamp_ns,
            interface: 0,
            link_type: LinkType::Ethernet,
            wire_len,
            data: frame.data,
        };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
    // Random payloads sometimes look like a malformed protocol, which is ignored.
    let wrong = "(_ws.malformed && !tcp.payload && !udp.payload) || tcp.analysis.flags || icmp.resp_not_found \
                 || ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0 \
                 || icmp.checksum.status == 0 || icmpv6.checksum.status == 0";
    let mut command = Command::new("tshark");
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let output = command.args(["-n", "-Y", wrong, "-r"]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = found.lines().take(5).collect();
    assert!(lines.is_empty(), "{lines:#?}");
}

fn any_profile() -> impl Strategy<Value = TrafficProfile> {
    let flows = (
        1..300_u32,
        prop_oneof![Just(None), Just(Some(1e-300)), (1.0..1e6).prop_map(Some)],
        prop_oneof![
            Just(FlowLength::Endless),
            (1..9_u32).prop_map(FlowLength::Fixed),
            (1.0..9.0).prop_map(FlowLength::Geometric),
            (1.0..9.0, 0.01..3.0).prop_map(|(least, alpha)| FlowLength::Pareto { least, alpha }),
        ],
        prop_oneof![Just(Popularity::Uniform), (0.01..10.0).prop_map(Popularity::Zipf)],
    );
    let packets = (
        prop_oneof![
            (60..9_015_u16).prop_map(FrameBytes::Fixed),
            (60..100_u16, 100..9_015_u16).prop_map(|(least, most)| FrameBytes::Range(least, most)),
        ],
        prop_oneof![
            (1e-300..1e9).prop_map(FrameRate::PacketsPerSecond),
            (1.0..1e12).prop_map(FrameRate::BitsPerSecond),
        ],
        prop_oneof![
            Just(Pacing::Poisson),
            (1.0..99.0, 0.0..1e9, 0.0..1e3).prop_map(|(burst_packets, gap_median_ns, gap_sigma)| {
                Pacing::OnOff { burst_packets, gap_median_ns, gap_sigma }
            }),
        ],
        1_500..60_001_u16,
        prop_oneof![Just(Payload::Random), Just(Payload::Http), Just(Payload::Zero)],
        proptest::option::of(0..4_095_u16),
    );
    let mix = (
        any::<u64>(),
        0.0..1.0,
        any::<bool>(),
        any::<bool>(),
        0.0..0.2,
        (0.1..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0),
    );
    let prefixes = (any::<u32>(), any::<u128>(), 0..33_u8, 0..33_u8, 0..129_u8, 0..129_u8);
    (flows, packets, mix, prefixes).prop_map(|(flows, packets, mix, (v4, v6, c4, s4, c6, s6))| {
        let (frame_bytes, rate, pacing, datagram_bytes, payload, vlan) = packets;
        let (seed, ipv6_share, replies, echo, attack, (tcp, udp, icmp, fragments)) = mix;
        TrafficProfile {
            seed,
            packets: Some(200),
            flows: flows.0,
            arrivals_per_second: flows.1,
            flow_length: flows.2,
            popularity: flows.3,
            frame_bytes,
            rate,
            pacing,
            protocols: Protocols { tcp, udp, icmp, fragments },
            ipv6_share,
            vlan,
            datagram_bytes,
            addresses: TrafficAddresses {
                clients_v4: AddressPrefix { address: v4.into(), length: c4 },
                servers_v4: AddressPrefix { address: v4.reverse_bits().into(), length: s4 },
                clients_v6: AddressPrefix { address: v6.into(), length: c6 },
                servers_v6: AddressPrefix { address: v6.reverse_bits().into(), length: s6 },
                ..TrafficAddresses::default()
            },
            payload,
            replies,
            answer: if echo { ServerAnswer::Echo } else { ServerAnswer::Acknowledge },
            attacks: Attacks {
                port_scan: attack,
                syn_flood: attack,
                udp_flood: attack,
                land: attack,
                malformed: 0.0,
            },
            ..TrafficProfile::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_possible_profile_makes_right_frames(profile in any_profile()) {
        let mut generator = Generator::new(&profile).unwrap();
        let mut last_ns = 0;
        while let Some(frame) = generator.next() {
            prop_assert!(frame.timestamp_ns >= last_ns);
            last_ns = frame.timestamp_ns;
            let parsed = parse(frame.data);
            prop_assert!(parsed.is_ok(), "{:?}", parsed);
        }
    }
}
