//! Streams to the program of a native node: its frames have each byte once and in order, however
//! segments arrive, and its answers take effect on later packets (E23).
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod support;

use std::collections::BTreeMap;
use std::convert::Infallible;

use nf::{Alert, Event, FlowReport};
use packet::{Endpoint, LinkType, Packet};
use proptest::prelude::*;
use runtime::{Frame, Ingress, Output, Runner};

use support::assembly_of;
use support::packets::{frame, tcp_segment, udp, v4};

const POLICY: &str = "
    Port<0> a; Port<1> b; Port<2> c;
    Native dpi { port: \"memif:/run/x.sock\", delivers: streams, sets: { class: 3, hot: 1 } };
    pipelet { a <-> dpi; dpi [dpi.class == 5 && dpi.hot] <-> c; dpi <-> b; }";

const CLIENT: Endpoint = Endpoint::new(packet::Addr::from_v4_bytes([10, 0, 0, 1]), 1000);
const SERVER: Endpoint = Endpoint::new(packet::Addr::from_v4_bytes([192, 0, 2, 1]), 80);

/// Ports that packets left by, and frames for the program.
#[derive(Default)]
struct Sent {
    ports: Vec<u16>,
    frames: Vec<Vec<u8>>,
}

impl Output for Sent {
    type Error = Infallible;

    fn packet(&mut self, port: u16, _: &Packet) -> Result<(), Infallible> {
        self.ports.push(port);
        Ok(())
    }

    fn alert(&mut self, _: &str, _: &Alert) -> Result<(), Infallible> {
        Ok(())
    }

    fn event(&mut self, _: &str, event: Event<'_>) -> Result<(), Infallible> {
        panic!("{event:?}")
    }

    fn stream_frame(&mut self, node: &str, frame: &[u8]) {
        assert_eq!(node, "dpi");
        self.frames.push(frame.to_vec());
    }

    fn flow(&mut self, _: &FlowReport, _: u64) -> Result<(), Infallible> {
        Ok(())
    }
}

struct Trial {
    runner: Runner,
    sent: Sent,
    now_ns: u64,
}

impl Trial {
    fn new() -> Trial {
        let runner = Runner::new(assembly_of("streams.rvl", POLICY), "streams");
        Trial { runner, sent: Sent::default(), now_ns: 1_700_000_000_000_000_000 }
    }

    fn send(&mut self, port: u16, network: &[u8]) {
        self.now_ns += 1_000;
        let data = frame(network);
        let (timestamp_ns, wire_len) = (self.now_ns, data.len() as u32);
        let frame = Frame { timestamp_ns, link: LinkType::Ethernet, wire_len, data: &data };
        self.runner.receive(frame, Ingress::Port(port), &mut self.sent).unwrap();
        self.runner.flush(&mut self.sent).unwrap();
    }

    /// Opens the connection of this client. Its next bytes are 101, and those of the server 501.
    fn open(&mut self, client: Endpoint) {
        self.send(0, &tcp_segment(client, SERVER, 0x02, [100, 0], b""));
        self.send(1, &tcp_segment(SERVER, client, 0x12, [500, 101], b""));
        self.send(0, &tcp_segment(client, SERVER, 0x10, [101, 501], b""));
    }
}

/// The streams of flows, as a program makes them out of frames: by flow and direction.
#[derive(Debug, Default)]
struct Program {
    bytes: BTreeMap<(u64, bool), Vec<u8>>,
    /// Contents of the first frames.
    ends: BTreeMap<u64, Vec<u8>>,
    closed: Vec<(u64, bool)>,
    gaps: Vec<(u64, u64)>,
    gone: Vec<u64>,
    counts: BTreeMap<u64, u32>,
}

impl Program {
    fn of(frames: &[Vec<u8>]) -> Program {
        let mut program = Program::default();
        frames.iter().for_each(|frame| program.take(frame));
        program
    }

    fn take(&mut self, frame: &[u8]) {
        assert_eq!(frame[12..15], [0x88, 0xb5, 1]);
        let number = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap());
        let (flags, flow, offset) = (frame[15], number(22), number(30));
        let count = u32::from_be_bytes(frame[18..22].try_into().unwrap());
        let expected = self.counts.entry(flow).or_default();
        *expected += 1;
        assert_eq!(count, *expected, "none is lost");
        let data = &frame[38..];
        assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), data.len());
        let key = (flow, flags & 0x80 != 0);
        match flags & 0x7f {
            0 => {
                let bytes = self.bytes.entry(key).or_default();
                assert_eq!(bytes.len() as u64, offset, "in order");
                bytes.extend_from_slice(data);
            }
            1 => drop(self.ends.insert(flow, data.to_vec())),
            2 => self.closed.push(key),
            4 => {
                self.gaps.push((offset, number(38)));
                let bytes = self.bytes.entry(key).or_default();
                bytes.resize(bytes.len() + number(38) as usize, 0);
            }
            16 => self.gone.push(flow),
            other => panic!("{other}"),
        }
    }
}

/// An answer of the program.
fn answer(kind: u8, flow: u64, value: u64) -> Vec<u8> {
    let head = [&[0; 12][..], &[0x88, 0xb5, 1, kind], &[0; 6]].concat();
    [&head[..], &flow.to_be_bytes(), &value.to_be_bytes()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Segments that are out of order, repeated, and overlap.
    #[test]
    fn program_gets_each_byte_once_and_in_order(
        data in prop::collection::vec(any::<u8>(), 1..6000),
        pieces in prop::collection::vec((0.0..1.0_f64, 1_usize..1460), 0..40),
        order: u64,
    ) {
        let mut trial = Trial::new();
        trial.open(CLIENT);
        let mut segments: Vec<(usize, usize)> = pieces
            .into_iter()
            .map(|(at, len)| ((at * data.len() as f64) as usize, len))
            .chain((0..data.len()).step_by(700).map(|at| (at, 700)))
            .collect();
        let mut random = order;
        for at in (1..segments.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            segments.swap(at, (random >> 33) as usize % (at + 1));
        }
        for (at, len) in segments {
            let bytes = &data[at..(at + len).min(data.len())];
            trial.send(0, &tcp_segment(CLIENT, SERVER, 0x18, [101 + at as u32, 501], bytes));
        }
        let end = 101 + data.len() as u32;
        trial.send(0, &tcp_segment(CLIENT, SERVER, 0x11, [end, 501], b""));
        trial.send(1, &tcp_segment(SERVER, CLIENT, 0x18, [501, end + 1], b"answer"));
        let program = Program::of(&trial.sent.frames);
        prop_assert_eq!(&program.bytes[&(1, false)], &data);
        prop_assert_eq!(&program.bytes[&(1, true)], b"answer");
        prop_assert_eq!(program.closed, [(1, false)]);
        prop_assert_eq!(program.gaps, []);
    }
}

#[test]
fn flows_are_introduced_and_end() {
    let mut trial = Trial::new();
    trial.open(CLIENT);
    assert_eq!(trial.sent.frames.len(), 0, "there is nothing to say yet");
    trial.send(0, &tcp_segment(CLIENT, SERVER, 0x18, [101, 501], &[7; 3000]));
    trial.send(0, &udp(CLIENT, SERVER, b"no stream"));
    // The server has got bytes that did not pass here.
    trial.send(0, &tcp_segment(CLIENT, SERVER, 0x18, [3151, 501], b"tail"));
    trial.send(1, &tcp_segment(SERVER, CLIENT, 0x10, [501, 3155], b""));
    trial.runner.finish(&mut trial.sent).unwrap();
    let program = Program::of(&trial.sent.frames);
    assert_eq!(program.bytes[&(1, false)], [&[7; 3000][..], &[0; 50], b"tail"].concat());
    assert_eq!((program.gaps, program.gone), (vec![(3000, 50)], vec![1]));
    let ends = &program.ends[&1];
    assert_eq!(ends[..6], [6, 0, 3, 232, 0, 80]);
    assert_eq!(ends[6..22], [&[0; 10][..], &[255, 255, 10, 0, 0, 1]].concat());
    assert_eq!(ends[22..], [&[0; 10][..], &[255, 255, 192, 0, 2, 1]].concat());
    assert!(trial.sent.frames.iter().all(|frame| frame.len() <= 14 + 24 + 1400));
}

#[test]
fn answers_take_effect_on_later_packets() {
    let mut trial = Trial::new();
    let clients = [1000, 1001, 1002].map(|port| v4(10, 0, 0, 1, port));
    let say = |trial: &mut Trial, client, at: u32| {
        trial.sent.ports.clear();
        trial.send(0, &tcp_segment(client, SERVER, 0x18, [101 + at, 501], b"abcd"));
        trial.sent.ports.clone()
    };
    for client in clients {
        trial.open(client);
        assert_eq!(say(&mut trial, client, 0), [1]);
    }
    let node = trial.runner.assembly().stream_nodes[0].clone();
    assert!(node.answer(&answer(1, 1, 5 | 1 << 3)));
    assert!(node.answer(&answer(2, 2, 0)));
    // No answers: another version, unknown kinds, values, and flows.
    for wrong in [answer(3, 3, 0), answer(1, 0, 5), answer(1, 3, 1 << 16), answer(1, 3, 5)[..37].to_vec()] {
        assert!(!node.answer(&wrong));
    }
    assert_eq!(say(&mut trial, clients[0], 4), [2], "as the edge says");
    assert!(say(&mut trial, clients[1], 4).is_empty(), "refused");
    assert_eq!(say(&mut trial, clients[2], 4), [1]);
    assert!(node.answer(&answer(1, 1, 5)));
    assert_eq!(say(&mut trial, clients[0], 8), [1]);
    assert!(say(&mut trial, clients[1], 8).is_empty());
    let report = trial.runner.finish(&mut trial.sent).unwrap();
    assert_eq!(report.drops["function"], 2);
    assert_eq!(report.events, 0, "frames are no events of the report");
    // What is refused was delivered before.
    assert_eq!(Program::of(&trial.sent.frames).bytes[&(2, false)], b"abcdabcdabcd");
}

/// The attributes travel on through other nodes, and each is checked.
#[test]
fn attributes_of_a_program_are_checked() {
    let fault = |sets: &str, filter: &str| {
        let text = format!(
            "Port<0> a; Port<1> b; Native x {{ port: \"memif:/x\", delivers: streams, sets: {{ {sets} }} }};
             pipelet {{ a <-> x; x [{filter}] -> Drop; x <-> b; }}"
        );
        let policy = policy::Policy::read("x.rvl", &text, &mut |_: &str| Err(String::new()));
        let wrong = policy.map_err(|report| report.to_string()).and_then(|policy| {
            runtime::assemble(&policy, &functions::registry(), 1, None)
                .map(drop)
                .map_err(|wrong| wrong.iter().map(|one| one.message.clone()).collect())
        });
        wrong.err()
    };
    assert_eq!(fault("class: 12, hot: 4", "x.class == 4095"), None);
    let many = fault("class: 12, hot: 5", "x.hot").unwrap();
    assert!(
        many.contains("the attributes of `x` take 17 bits; a program that gets streams has 16"),
        "{many}"
    );
    let unknown = fault("class: 3", "x.clas == 1").unwrap();
    assert!(unknown.contains("did you mean `x.class`?"), "{unknown}");
}
