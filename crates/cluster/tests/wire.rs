//! The wire format: frames are read as written, later versions may add fields, and any bytes are
//! handled.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../protocol/tests/messages/samples.rs"]
mod samples;

use std::fmt::Debug;

use cluster::policies::{AppliedPolicy, NumberedDigest, PolicyTexts};
use cluster::wire::{
    ArrivedFrame, Assignment, ForwardCounts, FrameError, Hello, KeyClaim, PolicyFrame, Reader, ReportContext,
    Role, TimelineQuestion, VERSION, read_frame, write_assignment, write_claim, write_granted, write_hello,
    write_input, write_mail, write_passed, write_policy_frame, write_released, write_report_frame,
    write_taken, write_timeline, write_timeline_asked,
};
use graph::{Graph, Options};
use packet::wire::geneve;
use packet::{Addr, Endpoint, FlowKey, Packet, PacketPool, Scope, Side};
use proptest::prelude::*;
use protocol::message::{
    FlowId, FromDispatcher, FromPeer, FromUnit, Handover, MessageInfo, ReplicaTargets, Stamp, UnitId,
};
use protocol::trace::{FlowPlace, FlowTimeline, Machine, TimelineRow};
use runtime::transport::{Mail, Return, RouteStage, ToUnit};

use samples::sample;

fn no_hash(_: &FlowKey) -> u64 {
    7
}

fn flows() -> impl Strategy<Value = FlowId> {
    (any::<u32>(), prop_oneof![0u32..70_000, any::<u32>()])
        .prop_map(|(index, generation)| FlowId { index, generation })
}

fn units() -> impl Strategy<Value = UnitId> {
    any::<u16>().prop_map(UnitId)
}

fn handovers() -> impl Strategy<Value = Handover> {
    prop_oneof![
        Just(Handover::None),
        (units(), any::<u64>()).prop_map(|(previous, last)| Handover::From { previous, last }),
    ]
}

/// A message of any kind.
fn messages<M: Debug>(
    messages: &'static [MessageInfo],
    read: fn(&mut Reader<'_>) -> Result<M, FrameError>,
) -> impl Strategy<Value = M> {
    let numbers = prop::collection::vec(prop_oneof![0u64..70_000, any::<u64>()], 1..40);
    let kinds = prop::sample::select(messages);
    (kinds, numbers).prop_map(move |(message, numbers)| sample(&message, &numbers, read).unwrap())
}

fn from_dispatchers() -> impl Strategy<Value = FromDispatcher> {
    messages(FromDispatcher::MESSAGES, FromDispatcher::read)
}

fn from_units() -> impl Strategy<Value = FromUnit> {
    messages(FromUnit::MESSAGES, FromUnit::read)
}

fn from_peers() -> impl Strategy<Value = FromPeer> {
    messages(FromPeer::MESSAGES, FromPeer::read)
}

fn targets() -> impl Strategy<Value = Option<ReplicaTargets>> {
    let some =
        (prop::collection::btree_set(any::<u16>(), 0..15), any::<bool>()).prop_map(|(units, at_once)| {
            let targets = ReplicaTargets::of_distinct(units.into_iter().map(UnitId));
            Some(if at_once { targets.at_once() } else { targets })
        });
    prop_oneof![3 => Just(None), 1 => Just(Some(ReplicaTargets::ALL)), 2 => some]
}

fn stamps() -> impl Strategy<Value = Stamp> {
    let epochs = prop_oneof![1u32..70_000, any::<u32>()];
    let seqs = prop_oneof![1u64..6_000_000_000, any::<u64>()];
    (flows(), seqs, epochs, handovers(), targets()).prop_map(|(flow, seq, epoch, handover, targets)| Stamp {
        flow,
        seq,
        epoch,
        handover,
        targets,
    })
}

/// A line of a unit, without its host.
fn timeline_rows() -> impl Strategy<Value = TimelineRow> {
    let places = (prop::option::of(flows()), any::<Option<u32>>(), any::<Option<u64>>())
        .prop_map(|(flow, epoch, seq)| FlowPlace { flow, epoch, seq });
    let row = (any::<u64>(), units(), places, any::<Option<u64>>(), ".{0,20}", ".{0,40}");
    row.prop_map(|(at_ns, unit, place, pending, event, details)| TimelineRow {
        at_ns,
        host: String::new(),
        role: Machine::Unit(unit),
        place,
        pending,
        event,
        details,
    })
}

/// A UDP packet from 10.0.0.1:1000 to 10.0.0.2:53 with this payload.
fn udp(payload: &[u8]) -> Packet {
    let len = (28 + payload.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 0, 53]);
    frame.extend_from_slice(&(len - 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    Packet::from_bytes(&frame)
}

fn graph() -> Graph {
    let options = Options { flows_max: 16, verify_ipv4_checksum: false, ..Options::default() };
    Graph::new(Vec::new(), options).unwrap()
}

/// Writes a packet with its stamp.
fn packet_frame(stamp: Stamp, packet: Packet) -> Vec<u8> {
    let mut frame = Vec::new();
    write_input(&mut frame, &ToUnit::Packet(0, stamp, packet));
    frame
}

proptest! {
    #[test]
    fn messages_of_dispatchers_arrive(
        message in from_dispatchers(),
        now_ns in any::<u64>(),
        more in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut frame = Vec::new();
        write_input(&mut frame, &ToUnit::Message(now_ns, message.clone()));
        frame.extend_from_slice(&more); // Fields of a later version.
        match read_frame(&frame, 0, no_hash) {
            Ok(ArrivedFrame::Input(ToUnit::Message(at_ns, found))) => prop_assert_eq!((at_ns, found), (now_ns, message)),
            _ => prop_assert!(false),
        }
    }

    #[test]
    fn messages_of_units_arrive_with_their_reports(
        messages in prop::collection::vec(from_units(), 0..9),
        priors in prop::collection::vec((units(), any::<u64>()), 0..3),
        forwards in prop::collection::vec((units(), any::<u64>(), any::<u64>(), any::<bool>()), 0..3),
        is_complete: bool,
    ) {
        let forwards = forwards.into_iter().map(|(unit, sent, received, is_cut)| (unit, ForwardCounts { sent, received, is_cut }));
        let context = ReportContext { priors, forwards: forwards.collect(), is_complete };
        let report = Return { unit: UnitId(3), messages, ..Return::default() };
        let mut frame = Vec::new();
        write_report_frame(&mut frame, &report, &context);
        let Ok(ArrivedFrame::Report(arrived, found)) = read_frame(&frame, 5, no_hash) else {
            return Err(TestCaseError::fail("it is a report"));
        };
        prop_assert_eq!(found, context);
        prop_assert_eq!((arrived.unit, arrived.messages), (report.unit, report.messages));
    }

    #[test]
    fn messages_between_units_arrive(
        message in from_peers(),
        from in units(),
        (through, now_ns) in any::<(u64, u64)>(),
        more in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut frame = Vec::new();
        write_mail(&mut frame, &Mail::Message(from, message.clone()), through, now_ns);
        let len = frame.len();
        frame.extend_from_slice(&more);
        match read_frame(&frame, 0, no_hash) {
            Ok(ArrivedFrame::Peer { unit, message: found, through: after, now_ns: at_ns }) => {
                prop_assert_eq!((unit, found, after, at_ns), (from, message.clone(), through, now_ns));
            }
            _ => prop_assert!(false),
        }
        // Earlier versions had no time, and version 1 had still fewer fields.
        let without_time = len - 8;
        let of_version_1 = match message {
            FromPeer::Pull { has, .. } => without_time - if has.is_some() { 13 } else { 1 },
            FromPeer::Replicate { .. } => without_time - 1,
            _ => without_time,
        };
        for cut in (0..len).filter(|&cut| cut != of_version_1 && cut != without_time) {
            prop_assert!(matches!(read_frame(&frame[..cut], 0, no_hash), Err(FrameError::Truncated)));
        }
    }

    #[test]
    fn timelines_arrive(
        (number, lines_max, overwritten) in any::<(u64, u32, u64)>(),
        flow in flows(),
        rows in prop::collection::vec(timeline_rows(), 0..9),
        more in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let question = TimelineQuestion { number, flow, lines_max };
        let mut frame = Vec::new();
        write_timeline_asked(&mut frame, &question);
        frame.extend_from_slice(&more);
        match read_frame(&frame, 0, no_hash) {
            Ok(ArrivedFrame::TimelineAsked(found)) => prop_assert_eq!(found, question),
            _ => prop_assert!(false),
        }
        let timeline = FlowTimeline { rows, overwritten };
        frame.clear();
        write_timeline(&mut frame, number, &timeline);
        let len = frame.len();
        frame.extend_from_slice(&more);
        match read_frame(&frame, 0, no_hash) {
            Ok(ArrivedFrame::Timeline(of, found)) => prop_assert_eq!((of, found), (number, timeline)),
            _ => prop_assert!(false),
        }
        for cut in 0..len {
            prop_assert!(matches!(read_frame(&frame[..cut], 0, no_hash), Err(FrameError::Truncated)));
        }
    }

    #[test]
    fn packets_arrive_with_their_stamps(
        stamp in stamps(),
        arrival_ns in 0u64..u64::MAX / 2,
        ahead_ns in -2_000_000_000i64..2_000_000_000,
        ingress in any::<u16>(),
        outside in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let (graph, side) = (graph(), if outside { Side::Outside } else { Side::Inside });
        let mut packet = udp(&payload);
        let transit = &mut packet.meta_mut().transit;
        (transit.timestamp_ns, transit.ingress, transit.side) = (arrival_ns, ingress, side);
        graph.parse_dispatched(&mut packet, None).unwrap();
        let (key, data) = (packet.meta().key, packet.data().to_vec());
        let frame = packet_frame(stamp, packet);
        let headers = frame.len() - data.len() - 1;
        prop_assert!(headers <= 8 + 4 + 72);
        let has_short = stamp.handover == Handover::None
            && stamp.targets.is_none()
            && stamp.flow.generation <= 0xffff
            && stamp.epoch <= 0xffff
            && stamp.seq <= 0xffff_ffff;
        prop_assert_eq!(headers == 28, has_short);
        // Other programs can parse it as Geneve.
        let geneve = geneve::Packet::new_checked(&frame[1..]).unwrap();
        prop_assert_eq!(geneve.payload(), &data[..]);
        let now_ns = arrival_ns.saturating_add_signed(ahead_ns);
        let Ok(ArrivedFrame::Packet(arrived)) = read_frame(&frame, now_ns, no_hash) else { panic!("no packet") };
        prop_assert_eq!(arrived.stamp, stamp);
        // An unknown option that may be ignored changes nothing.
        let mut more = frame.clone();
        more[1] += 1;
        more.splice(1 + headers..1 + headers, [0x12, 0x34, 1, 0]);
        let Ok(ArrivedFrame::Packet(same)) = read_frame(&more, now_ns, no_hash) else { panic!("no packet") };
        prop_assert_eq!(format!("{same:?}"), format!("{arrived:?}"));
        let packet = arrived.into_packet(9, &graph, &mut PacketPool::new(1)).unwrap();
        let meta = packet.meta();
        prop_assert_eq!((meta.transit.timestamp_ns, meta.transit.sequence), (arrival_ns, 9));
        prop_assert_eq!((meta.transit.ingress, meta.transit.side, meta.key), (ingress, side, key));
        prop_assert_eq!(packet.data(), &data[..]);
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        kind in prop_oneof![0u8..0x40, any::<u8>()],
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let graph = graph();
        match read_frame(&bytes, 0, no_hash) {
            Ok(ArrivedFrame::Packet(packet) | ArrivedFrame::Forwarded(packet)) => {
                let _ = packet.into_packet(0, &graph, &mut PacketPool::new(1));
            }
            Ok(ArrivedFrame::Output(mut rest)) => {
                let _ = cluster::wire::read_output(&mut rest, |frame| Some(Packet::from_bytes(frame)));
            }
            _ => {}
        }
    }
}

#[test]
fn frames_between_dispatchers_are_read_back() {
    let key = FlowKey::new(
        Endpoint::new(Addr::from_v4_bytes([10, 0, 0, 1]), 7),
        Endpoint::new(Addr::from_v4_bytes([10, 0, 0, 2]), 9),
        17,
        4,
        Scope::default(),
        0,
    );
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        write(&mut frame);
        frame
    };
    let given = KeyClaim { number: 5, time: 7, key: key.0 };
    let claim = written(&|out| write_claim(out, &given));
    assert!(matches!(read_frame(&claim, 0, no_hash), Ok(ArrivedFrame::Claim(found)) if found == given));
    let earlier = &claim[..claim.len() - 8];
    let without_time = KeyClaim { time: 5, ..given };
    assert!(
        matches!(read_frame(earlier, 0, no_hash), Ok(ArrivedFrame::Claim(found)) if found == without_time)
    );
    let granted = written(&|out| write_granted(out, 6));
    assert!(matches!(read_frame(&granted, 0, no_hash), Ok(ArrivedFrame::Granted(6))));
    let released = written(&|out| write_released(out, &key.0));
    assert!(matches!(read_frame(&released, 0, no_hash), Ok(ArrivedFrame::Released(found)) if found == key.0));
    let packet = Packet::from_bytes(&[7; 60]);
    let mut passed = written(&|out| write_passed(out, RouteStage::Home, &packet));
    match read_frame(&passed, 0, no_hash) {
        Ok(ArrivedFrame::Passed(RouteStage::Home, arrived)) => assert_eq!(arrived.frame, packet.data()),
        _ => panic!("not a packet that was passed on"),
    }
    passed[1] = 9;
    assert!(matches!(read_frame(&passed, 0, no_hash), Err(FrameError::Invalid("passage"))));
    let taken = written(&|out| write_taken(out, 64, true));
    assert!(matches!(read_frame(&taken, 0, no_hash), Ok(ArrivedFrame::Taken(64, true))));
    for frame in [claim, granted, released, taken] {
        assert!(read_frame(&frame[..frame.len() - 1], 0, no_hash).is_err());
    }
}

#[test]
fn assignments_of_earlier_versions_keep_no_timeline() {
    let given =
        Assignment { unit: UnitId(5), seed: 1, gap_ns: 2, copies: 1, deltas: true, keeps_timeline: true };
    let mut frame = Vec::new();
    write_assignment(&mut frame, &given);
    assert!(matches!(read_frame(&frame, 0, no_hash), Ok(ArrivedFrame::Assign(found)) if found == given));
    let earlier = Assignment { keeps_timeline: false, ..given };
    let cut = &frame[..frame.len() - 1];
    assert!(matches!(read_frame(cut, 0, no_hash), Ok(ArrivedFrame::Assign(found)) if found == earlier));
}

fn hello() -> Hello {
    Hello {
        versions: (VERSION, 1),
        name: "unit-1".to_owned(),
        incarnation: 3,
        policy: [9; 32],
        role: Role::Unit,
        port: 7001,
        scope: String::new(),
        runs: Some(NumberedDigest { number: 4, digest: [9; 32] }),
    }
}

#[test]
fn ends_agree_on_a_version() {
    let mut frame = Vec::new();
    write_hello(&mut frame, &hello());
    frame.extend_from_slice(b"a field of a later version");
    let Ok(ArrivedFrame::Hello(found)) = read_frame(&frame, 0, no_hash) else { panic!("no hello") };
    assert_eq!(found, hello());
    // As written before policies had numbers, and before there was a scope.
    let mut short = Vec::new();
    write_hello(&mut short, &hello());
    for field in [8 + 32, 4] {
        short.truncate(short.len() - field);
        let expected = Hello { runs: None, ..hello() };
        assert!(
            matches!(read_frame(&short, 0, no_hash), Ok(ArrivedFrame::Hello(found)) if found == expected)
        );
    }
    let common = |newest, oldest| Hello { versions: (newest, oldest), ..hello() }.common_version();
    assert_eq!(common(VERSION, VERSION), Some(VERSION));
    assert_eq!(common(VERSION + 5, VERSION), Some(VERSION));
    assert_eq!(common(VERSION + 5, VERSION + 1), None);
    assert_eq!(common(0, 0), None);
}

/// Two nodes fit if they run the same policy, or one of them an older one.
#[test]
fn nodes_with_another_number_fit() {
    let with = |number, digest: u8| Hello {
        policy: [digest; 32],
        runs: Some(NumberedDigest { number, digest: [digest; 32] }),
        ..hello()
    };
    let without = |digest: u8| Hello { policy: [digest; 32], runs: None, ..hello() };
    for (one, other, expected) in [
        (with(0, 1), with(0, 1), true),
        (with(0, 1), with(0, 2), false),
        (with(0, 1), with(3, 2), true),
        (with(3, 1), with(3, 2), false),
        (with(3, 1), with(4, 1), true),
        (without(1), with(3, 1), true),
        (without(1), with(3, 2), false),
    ] {
        assert_eq!((one.fits(&other), other.fits(&one)), (expected, expected), "{one:?} {other:?}");
    }
}

#[test]
fn frames_about_policies_are_what_was_written() {
    let id = NumberedDigest { number: 4, digest: [9; 32] };
    let files = vec![("site.rules".to_owned(), "allow out".to_owned())];
    let texts = PolicyTexts { name: "site.rvl".to_owned(), text: "Port<0> inside;".to_owned(), files };
    let policy = AppliedPolicy { id, texts };
    for expected in [
        PolicyFrame::Propose(policy.clone()),
        PolicyFrame::Proposed(id, String::new()),
        PolicyFrame::Proposed(id, "site.rvl:1:1: error: no port".to_owned()),
        PolicyFrame::Commit(id),
        PolicyFrame::Abort(id),
        PolicyFrame::Wanted,
        PolicyFrame::Present(policy),
        PolicyFrame::Runs(id),
    ] {
        let mut frame = Vec::new();
        write_policy_frame(&mut frame, &expected);
        for later in [&b""[..], b"a field of a later version"] {
            let whole = [&frame, later].concat();
            let Ok(ArrivedFrame::OfPolicies(found)) = read_frame(&whole, 0, no_hash) else { panic!() };
            assert_eq!(found, expected);
        }
        for len in 1..frame.len() {
            assert!(read_frame(&frame[..len], 0, no_hash).is_err(), "{expected:?} of {len} bytes");
        }
    }
}

#[test]
fn frames_of_version_1_stay_readable() {
    // As written by version 1: a release, a pull, and a packet in short form.
    let release = "1400000000000003e8000000000700000001000000020005000000000000002a01000100000000000000 28";
    let pull = "300003 0000000000000009 0000000007000000010000000200030000000000 00002a01";
    let bytes = |text: &str| -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    };
    let flow = FlowId { index: 7, generation: 1 };
    match read_frame(&bytes(release), 0, no_hash) {
        Ok(ArrivedFrame::Input(ToUnit::Message(1000, message))) => {
            let start = Handover::From { previous: UnitId(1), last: 40 };
            let expected = FromDispatcher::Release { flow, epoch: 2, owner: UnitId(5), last: 42, start };
            assert_eq!(message, expected);
        }
        _ => panic!("no release"),
    }
    match read_frame(&bytes(pull), 0, no_hash) {
        Ok(ArrivedFrame::Peer { unit: UnitId(3), message, through: 9, now_ns: 0 }) => {
            assert_eq!(
                message,
                FromPeer::Pull { flow, epoch: 2, owner: UnitId(3), last: 42, again: true, has: None }
            );
        }
        _ => panic!("no pull"),
    }
}

#[test]
fn unknown_kinds_are_told_apart_from_damage() {
    assert!(matches!(read_frame(&[0x7f, 1, 2], 0, no_hash), Err(FrameError::UnknownKind(0x7f))));
    assert!(matches!(read_frame(&[], 0, no_hash), Err(FrameError::Truncated)));
    let mut count = Reader::new(&[0xff; 4]);
    assert_eq!(count.count(1), Err(FrameError::Truncated));
}
