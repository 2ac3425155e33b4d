//! The Wireshark dissector of links, `contrib/wireshark`: tshark shows every kind of frame as it
//! was written. `RIVULET_BLESS=1` rewrites `dissector.txt`.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../protocol/tests/messages/samples.rs"]
mod samples;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::policies::{AppliedPolicy, NumberedDigest, PolicyTexts};
use cluster::wire::{
    Assignment, FigureChanges, ForwardCounts, FrameError, Hello, PolicyFrame, Reader, ReportContext, Role,
    TimelineQuestion, UnitAddress, UnitFigures, begin_output, begin_relay, write_assignment,
    write_figure_changes, write_figures, write_gone, write_hello, write_input, write_leave, write_mail,
    write_output, write_part, write_policy, write_policy_frame, write_policy_read, write_relayed,
    write_renew, write_report_frame, write_stopped, write_taken, write_timeline, write_timeline_asked,
    write_units,
};
use graph::{Datagram, Graph, Options};
use link::{Config, LinkKeys, PeerLink, connection_id};
use packet::{DropReason, FlowKey, LinkType, Packet, PacketClass, Side};
use protocol::message::{
    FlowId, FromDispatcher, FromPeer, FromUnit, Handover, MessageInfo, ReplicaTargets, Stamp, UnitId,
};
use protocol::trace::{FlowPlace, FlowTimeline, Machine, TimelineRow};
use protocol::unit::FlowAlias;
use runtime::transport::{Mail, Return, ToUnit};
use tempfile::TempDir;

use samples::sample;

const KEYS: LinkKeys = LinkKeys { send: [1; 32], receive: [2; 32] };
const PROBED: LinkKeys = LinkKeys { send: [3; 32], receive: [4; 32] };
const PORT: u16 = 7400;
const FLOW: FlowId = FlowId { index: 7, generation: 1 };

fn texts() -> PolicyTexts {
    PolicyTexts {
        name: "site.rvl".to_owned(),
        text: "Port<0> inside;".to_owned(),
        files: vec![("site.rules".to_owned(), "allow out".to_owned())],
    }
}

fn of_policies(policy_frame: PolicyFrame) -> Vec<u8> {
    frame(|out| write_policy_frame(out, &policy_frame))
}

/// A UDP packet from 10.0.0.1:1000 to 10.0.0.2:4000.
fn udp(payload_len: usize) -> Packet {
    let frame = ethernet(&datagram((Ipv4Addr::new(10, 0, 0, 1), 1000), 4000, &vec![0x61; payload_len]));
    let mut packet = Packet::from_bytes(&frame);
    let transit = &mut packet.meta_mut().transit;
    (transit.timestamp_ns, transit.ingress, transit.side) = (5_000_000_042, 3, Side::Outside);
    let options = Options { flows_max: 16, verify_ipv4_checksum: false, ..Options::default() };
    Graph::new(Vec::new(), options).unwrap().parse_dispatched(&mut packet, None).unwrap();
    packet
}

fn key() -> FlowKey {
    udp(10).meta().key
}

fn stamp(seq: u64) -> Stamp {
    Stamp { flow: FLOW, seq, epoch: 2, handover: Handover::None, targets: None }
}

/// Two messages of each kind; flags are set in one of them.
fn samples<M>(
    messages: &'static [MessageInfo],
    read: fn(&mut Reader<'_>) -> Result<M, FrameError>,
) -> impl Iterator<Item = M> {
    const NUMBERS: [[u64; 7]; 2] = [[7, 1, 2, 5, 42, 1, 3], [7, 1, 3, 4, 60, 0, 2]];
    messages.iter().flat_map(move |message| NUMBERS.map(|numbers| sample(message, &numbers, read).unwrap()))
}

fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Vec::new();
    write(&mut frame);
    frame
}

fn input(input: ToUnit) -> Vec<u8> {
    frame(|out| write_input(out, &input))
}

/// A packet that one unit forwards to another.
fn late_packet(out: &mut Vec<u8>) {
    write_mail(out, &Mail::Packet(stamp(50), udp(20)), 9, 1_000);
}

/// All kinds of frames of a dispatcher.
fn of_dispatcher() -> Vec<Vec<u8>> {
    let from = Handover::From { previous: UnitId(1), last: 40 };
    let all = Stamp { handover: from, targets: Some(ReplicaTargets::ALL), ..stamp(41) };
    let two = ReplicaTargets::of_distinct([4, 5].map(UnitId).into_iter()).at_once();
    let mut cut = udp(60);
    cut.meta_mut().wire_len = 1500;
    let mut fragment = udp(10);
    fragment.meta_mut().class = PacketClass::FirstFragment;
    let mut raw = Packet::from_bytes(&udp(10).data()[14..]);
    raw.meta_mut().link = LinkType::RawIp;
    let id = NumberedDigest { number: 4, digest: [9; 32] };
    let hello = Hello {
        versions: (1, 1),
        name: "dispatcher".to_owned(),
        incarnation: 3,
        policy: [9; 32],
        role: Role::Dispatcher,
        port: PORT,
        scope: "dispatcher/0/1".to_owned(),
        runs: Some(id),
    };
    let assignment = Assignment {
        unit: UnitId(5),
        seed: 0x5eed,
        gap_ns: 500_000,
        copies: 1,
        deltas: true,
        keeps_timeline: true,
    };
    let address = |unit: u16| UnitAddress {
        unit: UnitId(unit),
        name: format!("unit-{unit}"),
        address: format!("10.0.0.{unit}:7400"),
    };
    let question = TimelineQuestion { number: 6, flow: FLOW, lines_max: 1_000 };
    let policy = texts();
    let applied = AppliedPolicy { id, texts: texts() };
    let mut frames = vec![
        frame(|out| write_hello(out, &hello)),
        frame(|out| write_assignment(out, &assignment)),
        frame(|out| write_units(out, &[address(4), address(5)])),
        input(ToUnit::Time(1_000)),
        input(ToUnit::Step(2_000)),
        input(ToUnit::Answer),
        input(ToUnit::Packet(0, stamp(40), udp(20))),
        input(ToUnit::Packet(0, all, cut)),
        input(ToUnit::Packet(0, Stamp { targets: Some(two), ..stamp(42) }, fragment)),
        input(ToUnit::Packet(0, stamp(43), raw)),
        input(ToUnit::Packet(0, stamp(44), udp(3_000))), // Longer than a datagram.
        input(ToUnit::Control(2, "reset".into())),
        input(ToUnit::Figures),
        input(ToUnit::Reset),
        input(ToUnit::Resume),
        input(ToUnit::Finish),
        frame(write_stopped),
        frame(write_part),
        frame(|out| write_policy(out, &policy, &id.digest)),
        frame(|out| write_renew(out, &id)),
        frame(|out| write_relayed(out, UnitId(4), &frame(late_packet))),
        of_policies(PolicyFrame::Propose(applied.clone())),
        of_policies(PolicyFrame::Commit(id)),
        of_policies(PolicyFrame::Abort(id)),
        of_policies(PolicyFrame::Wanted),
        of_policies(PolicyFrame::Runs(id)),
        frame(|out| write_taken(out, 64, true)),
        frame(|out| write_timeline_asked(out, &question)),
        vec![0x7f, 1, 2],                               // A kind of a later version.
        vec![0x10, 0, 0],                               // Truncated.
        [input(ToUnit::Time(3_000)), vec![7]].concat(), // A field of a later version.
    ];
    let messages = samples(FromDispatcher::MESSAGES, FromDispatcher::read);
    frames.extend(messages.map(|message| input(ToUnit::Message(1_000, message))));
    frames
}

/// A line of a flow, and one of its unit.
fn rows() -> Vec<TimelineRow> {
    let row = TimelineRow {
        at_ns: 1_000,
        host: String::new(),
        role: Machine::Unit(UnitId(5)),
        place: FlowPlace::new(FLOW, 2, 40),
        pending: Some(3),
        event: "received".to_owned(),
        details: "Pull, owner unit 4, from unit 4".to_owned(),
    };
    let reset = ("reset".to_owned(), String::new());
    let of_unit = TimelineRow {
        place: FlowPlace::NONE,
        pending: None,
        event: reset.0,
        details: reset.1,
        ..row.clone()
    };
    vec![row, of_unit]
}

/// All kinds of frames of a unit.
fn of_unit() -> Vec<Vec<u8>> {
    let mut leaving = udp(20);
    leaving.meta_mut().transit.egress = 1;
    let report = Return {
        unit: UnitId(5),
        is_ready: true,
        has_answered: true,
        through: 9,
        due_ns: 77,
        aliases: vec![(FLOW, FlowAlias { key: key(), hash: 0, is_turned: Some(true) })],
        fragments: vec![(Datagram::from_parts(key(), true, 1234), Some((key(), false)), 5_000)],
        messages: samples(FromUnit::MESSAGES, FromUnit::read).collect(),
        out: vec![udp(20)],
        ..Return::default()
    };
    let figures = UnitFigures {
        packets: [1, 2, 3],
        bytes_out: 4,
        flows: [5, 6],
        drops: vec![(DropReason::ALL[0], 7)],
        ..UnitFigures::default()
    };
    let id = NumberedDigest { number: 4, digest: [9; 32] };
    let counts = ForwardCounts { sent: 3, received: 2, is_cut: true };
    let context = ReportContext {
        priors: vec![(UnitId(4), 8)],
        forwards: vec![(UnitId(5), counts)],
        is_complete: true,
    };
    let mut frames = vec![
        frame(|out| write_report_frame(out, &report, &context)),
        frame(|out| {
            begin_output(out);
            write_output(out, &leaving);
        }),
        frame(|out| write_figures(out, &figures)),
        frame(|out| write_figure_changes(out, &FigureChanges { form: 1, changes: vec![(3, 300)] })),
        frame(write_leave),
        frame(|out| write_policy_read(out, &Ok([9; 32]), &[9; 32])),
        of_policies(PolicyFrame::Present(AppliedPolicy { id, texts: texts() })),
        of_policies(PolicyFrame::Proposed(id, "dispatcher-1 applies next.rvl".to_owned())),
        frame(|out| write_policy_read(out, &Err("site.rvl:1:1: error: no port".to_owned()), &[9; 32])),
        frame(write_gone),
        frame(|out| write_timeline(out, 6, &FlowTimeline { rows: rows(), overwritten: 3 })),
        frame(late_packet),
    ];
    let ack = Mail::Message(UnitId(3), FromPeer::StateAck { flow: FLOW, epoch: 2 });
    frames.push(frame(|out| {
        begin_relay(out, UnitId(4));
        write_mail(out, &ack, 9, 1_000);
    }));
    let messages = samples(FromPeer::MESSAGES, FromPeer::read);
    let mails = messages.map(|message| Mail::Message(UnitId(3), message));
    frames.extend(mails.map(|mail| frame(|out| write_mail(out, &mail, 9, 1_000))));
    frames
}

/// A datagram from 10.0.0.1 to 10.0.0.2, with IPv4 and UDP headers.
fn datagram((from, from_port): (Ipv4Addr, u16), port: u16, payload: &[u8]) -> Vec<u8> {
    let len = (28 + payload.len()) as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend_from_slice(&from.octets());
    bytes.extend_from_slice(&[10, 0, 0, 2]);
    bytes.extend_from_slice(&from_port.to_be_bytes());
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&(len - 20).to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

fn ethernet(ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend_from_slice(ip);
    frame
}

/// A capture file of datagrams.
#[derive(Default)]
struct Capture {
    file: Vec<u8>,
    count: u32,
}

impl Capture {
    fn add(&mut self, payload: &[u8]) {
        if self.file.is_empty() {
            let head = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 1];
            head.iter().for_each(|word| self.file.extend_from_slice(&word.to_be_bytes()));
        }
        let frame = ethernet(&datagram((Ipv4Addr::new(10, 0, 0, 1), PORT), PORT, payload));
        for word in [1_000, self.count, frame.len() as u32, frame.len() as u32] {
            self.file.extend_from_slice(&word.to_be_bytes());
        }
        self.file.extend_from_slice(&frame);
        self.count += 1;
    }
}

/// Captures and delivers all datagrams of the first end.
fn transmit(from: &mut PeerLink, to: &mut PeerLink, capture: &mut Capture) {
    let mut sent = Vec::new();
    while let Some(transmit) = from.poll_transmit(0, &mut sent) {
        capture.add(&sent); // Several datagrams in one frame, as before GSO.
        sent.chunks_mut(transmit.segment).for_each(|datagram| to.handle_datagram(1_000, datagram).unwrap());
        while to.poll_message().is_some() {}
        sent.clear();
    }
}

/// Captures datagrams of both ends.
fn capture() -> Capture {
    let mut capture = Capture::default();
    // A key lasts for two datagrams, so that there are several phases.
    let config = Config { key_datagrams: 2, ..Config::default() }.with_fixed_mtu(1_452);
    let mut dispatcher = PeerLink::new(config.clone(), &KEYS, 0).unwrap();
    let mut unit = PeerLink::new(config, &KEYS.reversed(), 0).unwrap();
    for frame in of_dispatcher() {
        dispatcher.send_message(7, &frame).unwrap();
    }
    transmit(&mut dispatcher, &mut unit, &mut capture);
    for frame in of_unit() {
        unit.send_message(0, &frame).unwrap();
    }
    unit.send_packet(&input(ToUnit::Answer)).unwrap();
    transmit(&mut unit, &mut dispatcher, &mut capture);
    for step in 1..=4 {
        dispatcher.send_message(7, &input(ToUnit::Time(step))).unwrap();
        transmit(&mut dispatcher, &mut unit, &mut capture);
        transmit(&mut unit, &mut dispatcher, &mut capture);
    }
    capture_probes(&mut capture);
    // A forged datagram, and one of a link without secrets in the file.
    dispatcher.send_message(7, &input(ToUnit::Answer)).unwrap();
    let mut sent = Vec::new();
    dispatcher.poll_transmit(0, &mut sent).unwrap();
    *sent.last_mut().unwrap() ^= 1;
    capture.add(&sent);
    sent[2] ^= 1;
    capture.add(&sent);
    capture
}

/// Captures a separate link that probes the path, which then becomes narrower.
fn capture_probes(capture: &mut Capture) {
    let config = Config { mtu: 2_000, ..Config::default() };
    let mut dispatcher = PeerLink::new(config.clone(), &PROBED, 0).unwrap();
    let mut unit = PeerLink::new(config, &PROBED.reversed(), 0).unwrap();
    for _ in 0..2 {
        transmit(&mut unit, &mut dispatcher, capture);
        transmit(&mut dispatcher, &mut unit, capture);
    }
    (0..12).for_each(|_| dispatcher.send_message(7, &frame(late_packet)).unwrap());
    let mut sent = Vec::new();
    let refused = dispatcher.poll_transmit(0, &mut sent).unwrap();
    assert!(dispatcher.handle_too_large(&refused, 0));
    transmit(&mut dispatcher, &mut unit, capture);
    transmit(&mut unit, &mut dispatcher, capture);
}

fn key_log() -> String {
    let line = |secret: &[u8; 32], names: &str| {
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("RIVULET_LINK_SECRET {:016x} {digits} {names}\n", connection_id(secret))
    };
    let lines = [KEYS, PROBED]
        .map(|keys| line(&keys.send, "dispatcher unit-5") + &line(&keys.receive, "unit-5 dispatcher"));
    lines.concat()
}

/// Runs tshark with the dissector; `None` if it is not installed, which CI forbids.
fn tshark(folder: &TempDir, options: &[&str]) -> Option<String> {
    let file = |name: &str| folder.path().join(name).display().to_string();
    let script = root().join("contrib/wireshark/rivulet.lua");
    let output = Command::new("tshark")
        .env("HOME", folder.path())
        .args(["-n", "-r", &file("links.pcap"), "-X", &format!("lua_script:{}", script.display())])
        .args(["-o", &format!("rivulet.keylog:{}", file("keys.log"))])
        .args(["-d", &format!("udp.port=={PORT},rivulet")])
        .args(options)
        .output();
    let Ok(output) = output else {
        assert!(std::env::var_os("CI").is_none(), "tshark is not installed");
        println!("SKIPPED: tshark is not installed");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn tshark_shows_every_kind_of_frame() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("links.pcap"), capture().file).unwrap();
    std::fs::write(folder.path().join("keys.log"), key_log()).unwrap();
    let Some(summary) = tshark(&folder, &[]) else { return };
    let details = tshark(&folder, &["-O", "rivulet"]).unwrap();
    // The only difference of a second pass is the end of the message at each part.
    let second = tshark(&folder, &["-2", "-O", "rivulet"]).unwrap();
    let without_ends = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("Message complete in"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(without_ends(&details), without_ends(&second));
    assert_eq!(second.matches("Message complete in").count(), 3);
    let text = format!("{summary}\n{details}");
    let golden = root().join("crates/cluster/tests/dissector.txt");
    if std::env::var_os("RIVULET_BLESS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    let differing = text.lines().zip(expected.lines()).find(|(text, expected)| text != expected);
    assert!(text == expected, "other than dissector.txt: {differing:?}");
    for kind in (0x10..=0x1c).chain(0x20..=0x23).chain(0x30..=0x31).chain(0x60..=0x66).chain(0x6c..=0x6d) {
        assert!(text.contains(&format!("(0x{kind:02x})")), "kind {kind:#04x} is missing");
    }
}
