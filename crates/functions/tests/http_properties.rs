//! `http` tells the same however its streams are cut, batched, reordered or moved.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod http_support;

use chain::streams::{Reassembler, StreamOptions, Streams};
use nf::record::{Header, Layout, Records};
use nf::stage::{Env, Group, Load, Stage};
use nf::{Effects, EndReason, Verdict};
use packet::memory::Part;
use packet::{Direction, FlowHasher, Parser, Pool, Side};
use proptest::prelude::*;
use serde_json::{Value, json};

use http_support::*;

/// A turn of a conversation: who says what.
type Turn = (Who, Vec<u8>);

/// Messages good and bad, tunnels, garbage; requests and responses need not fit each other.
fn turn() -> impl Strategy<Value = Turn> {
    let requests: &[&str] = &[
        "GET /a HTTP/1.1\r\nHost: x:8080\r\nUser-Agent: u\r\n\r\n",
        "GET http://y/b HTTP/1.1\r\nHost: x\r\nHost: z\r\nReferer:\r\n r\r\n\r\nHEAD / HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "CONNECT y:1 HTTP/1.1\r\nHost: y:1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: w\r\n\r\n",
        "GET /old\r\n",
        "\r\nfoo bar\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}\u{3}\u{1}",
    ];
    let responses: &[&str] = &[
        "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
        "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n4;x\r\nwxyz\r\n0\r\nT: t\r\n\r\n",
        "HTTP/1.1 101 Up\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        "220 mail\r\n",
        "HT",
    ];
    let pick = |texts: &'static [&'static str]| {
        prop::sample::select(texts).prop_map(|text| text.as_bytes().to_vec())
    };
    // The arrays are constants of the program.
    let (requests, responses) = (leak(requests), leak(responses));
    prop_oneof![
        6 => pick(requests).prop_map(|text| (Client, text)),
        6 => pick(responses).prop_map(|text| (Server, text)),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| (Client, bytes)),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| (Server, bytes)),
    ]
}

fn leak(texts: &[&'static str]) -> &'static [&'static str] {
    Vec::leak(texts.to_vec())
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    prop::collection::vec(turn(), 1..10)
}

fn config() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => Just(json!({ "anomalies": "alert" })),
        1 => Just(json!({ "smuggling": "off", "methods": ["GET"] })),
    ]
}

/// The turns in segments of these lengths.
fn in_segments(turns: &[Turn], lens: &[usize]) -> Talk {
    let mut talk = Talk::open(80);
    let mut lens = lens.iter().copied().cycle();
    for (who, bytes) in turns {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(lens.next().unwrap()));
            talk.piece(*who, now);
            rest = later;
        }
    }
    talk.closes(Client).closes(Server);
    talk
}

/// A unit with one flow, as the chain has it.
struct Unit {
    stage: Box<dyn Stage>,
    records: Records,
    record: u32,
}

/// Where the first function's state stands in a record, behind the header.
fn state() -> Part<functions::http::State> {
    Part::at(size_of::<Header>()).unwrap()
}

impl Unit {
    fn new(config: &Value) -> Unit {
        let (mut stage, mut layout) = (stage("http", config), Layout::default());
        stage.place(0, &mut layout, 0).unwrap();
        let mut records = Records::new(4, layout).unwrap();
        let record = records.allocate().unwrap();
        Unit { stage, records, record }
    }

    /// Takes over the flow of another unit: the bytes of its record and those of its buffers.
    fn take_over(&mut self, from: &mut Unit) {
        let mut saved = vec![];
        from.stage.save_buffers(from.record, &mut from.records, &mut saved);
        *self.records.header_mut(self.record) = from.records.header(from.record).clone();
        let bytes = *from.records.state(from.record, state()).unwrap();
        *self.records.state_mut(self.record, state()).unwrap() = bytes;
        let rest = self.stage.restore_buffers(self.record, &mut self.records, &saved);
        assert_eq!(rest, Some(&[][..]));
    }
}

/// Takes the packets through one by one, with two units in turn that move the flow to each other, or with one; what is told.
fn moved(config: &Value, talk: &Talk, moves: bool) -> Vec<String> {
    let mut units = [Unit::new(config), Unit::new(config)];
    let (mut reassembler, mut streams) =
        (Reassembler::new(StreamOptions::default()).unwrap(), Streams::default());
    let (mut effects, mut pool, parser) = (Effects::default(), Pool::new(8), Parser::new(FlowHasher::new(1)));
    let mut told = vec![];
    let mut at = 0;
    for (number, segment) in talk.segments.iter().enumerate() {
        let mut packet = packet(segment.at_ns, segment.side, &segment.network);
        parser.parse(&mut packet).unwrap();
        let reversed = talk.is_reversed();
        let meta = packet.meta_mut();
        (meta.flow, meta.sequence) = (units[at].record, number as u64);
        meta.direction = if segment.side == Side::Inside { Direction::Original } else { Direction::Reply };
        let key = meta.key;
        units.iter_mut().for_each(|unit| unit.records.header_mut(unit.record).set_key(key, reversed));
        reassembler.begin_group();
        reassembler.take(&packet, &mut streams);
        let unit = &mut units[at];
        let mut group = Group {
            packets: std::slice::from_mut(&mut packet),
            verdicts: &mut [Verdict::Forward],
            side: segment.side,
            load: Load::default(),
            parted: false,
            env: Env { records: &mut unit.records, effects: &mut effects, buffers: &mut pool },
            deliveries: reassembler.deliveries(),
            recording: None,
        };
        unit.stage.process(&mut group);
        told.push(format!("{:?}", group.verdicts));
        if moves {
            let [one, other] = &mut units;
            let (from, to) = if at == 0 { (one, other) } else { (other, one) };
            to.take_over(from);
            at = 1 - at;
        }
    }
    let unit = &mut units[at];
    let mut env = Env { records: &mut unit.records, effects: &mut effects, buffers: &mut pool };
    unit.stage.flow_end(unit.record, EndReason::Shutdown, SECOND_NS, &mut env);
    told.extend(effects.alerts.iter().map(|alert| format!("{alert:?}")));
    told.extend(
        effects.events.iter().map(|event| format!("{event:?} {:?}", event.fields().collect::<Vec<_>>())),
    );
    told.push(format!("{:?}", unit.records.header(unit.record).tags));
    told
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cutting_changes_nothing(
        turns in turns(), config in config(), lens in prop::collection::vec(1usize..40, 1..8),
    ) {
        let whole = run(config.clone(), &in_segments(&turns, &[10_000]).segments);
        let cut = run(config, &in_segments(&turns, &lens).segments);
        // One packet tells its alerts before its events, several packets each their own.
        let by_kind = |told: &[String]| told.iter().cloned().partition::<Vec<_>, _>(|line| line.starts_with("! "));
        prop_assert_eq!(by_kind(&cut.told), by_kind(&whole.told));
        prop_assert_eq!(cut.counters(), whole.counters());
    }

    #[test]
    fn batching_changes_nothing(turns in turns(), config in config(), lens in prop::collection::vec(1usize..40, 1..8)) {
        let segments = in_segments(&turns, &lens).segments;
        let alone = run(config.clone(), &segments);
        for batch in [2, 7, 64] {
            let mut bench = bench("http", &config);
            segments.chunks(batch).for_each(|segments| bench.batch(segments));
            let together = end(bench);
            prop_assert_eq!(&together.bench.told, &alone.bench.told);
            prop_assert_eq!(together.counters(), alone.counters());
        }
    }

    /// Whatever a flow keeps, it keeps in its record and its buffers.
    #[test]
    fn moving_changes_nothing(turns in turns(), config in config(), lens in prop::collection::vec(1usize..40, 1..8)) {
        let talk = in_segments(&turns, &lens);
        prop_assert_eq!(moved(&config, &talk, true), moved(&config, &talk, false));
    }
}
