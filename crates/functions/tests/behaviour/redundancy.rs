//! Redundant bytes are those seen before: however streams are segmented, repeated, reordered and
//! moved, the counters equal those of an oracle that has whole streams.

use std::collections::{HashSet, VecDeque};

use nf::record::RecordHeader;
use packet::split_mix;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::http_support::*;

/// The counters in the oracle's order.
const COUNTERS: [&str; 8] = [
    "bytes_outbound",
    "redundant_outbound",
    "unique_outbound",
    "bytes_inbound",
    "redundant_inbound",
    "unique_inbound",
    "chunks",
    "chunks_evicted",
];

fn counters(benches: &[Bench]) -> Vec<u64> {
    COUNTERS.iter().map(|name| benches.iter().map(|bench| counter(bench, name)).sum()).collect()
}

/// Returns the fields of the flows' events, sorted by content.
fn reported(benches: &[Bench]) -> Vec<String> {
    let lines = benches.iter().flat_map(|bench| &bench.told);
    let fields = lines.map(|line| {
        assert!(line.starts_with("redundancy "), "{line}");
        line.split_once("]: ").map_or(line.rsplit_once(": ").unwrap().1, |(_, fields)| fields).to_owned()
    });
    let mut reported: Vec<String> = fields.collect();
    reported.sort();
    reported
}

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = seed;
    (0..len).map(|_| split_mix(&mut random) as u8).collect()
}

/// Bytes sent on a connection.
#[derive(Clone, Debug)]
struct Turn {
    flow: usize,
    who: Who,
    bytes: Vec<u8>,
}

/// A segmentation.
#[derive(Clone, Debug)]
struct Way {
    /// Lengths of segments, repeated.
    lens: Vec<usize>,
    /// Seed of everything random.
    seed: u64,
    reorders: bool,
    repeats: bool,
}

const FLOWS: usize = 3;

/// Returns the packets of all flows. The second flow is opened from outside.
fn arrivals(turns: &[Turn], way: &Way) -> Vec<Arrival> {
    let mut talks: Vec<Talk> = (0..FLOWS as u16)
        .map(|flow| Talk::between(v4(10, 0, 0, 1, 40_000 + flow), v4(192, 0, 2, 1, 80)).scaled())
        .collect();
    let (mut all, mut lens, mut random) = (vec![], way.lens.iter().cycle(), way.seed);
    let mut take = |flow: usize, talk: &mut Talk, reorders: bool| {
        let mut segments = std::mem::take(&mut talk.segments);
        for last in (1..segments.len()).rev().filter(|_| reorders) {
            segments.swap(last, split_mix(&mut random) as usize % (last + 1));
        }
        for mut segment in segments {
            segment.at_ns = SECOND_NS + all.len() as u64 * MS_NS;
            segment.side = if flow == 1 { segment.side.other() } else { segment.side };
            all.push(segment);
        }
    };
    for (flow, talk) in talks.iter_mut().enumerate() {
        talk.handshake();
        take(flow, talk, false);
    }
    for turn in turns {
        let talk = &mut talks[turn.flow];
        let mut rest = &turn.bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(*lens.next().unwrap()));
            talk.piece(turn.who, now);
            rest = later;
            if way.repeats && !later.is_empty() {
                // The end of the bytes so far, and a part of it.
                let said = &turn.bytes[..turn.bytes.len() - later.len()];
                talk.again(turn.who, &said[said.len() - said.len().min(300)..]);
            }
        }
        take(turn.flow, talk, way.reorders);
    }
    for (flow, talk) in talks.iter_mut().enumerate() {
        talk.closes(Client).closes(Server);
        take(flow, talk, false);
    }
    all
}

/// An independent count: whole streams, fingerprints as sums per byte, and chunks compared byte by
/// byte.
struct Oracle {
    window: usize,
    sample: u64,
    chunks_max: usize,
    /// The contribution of each byte value at each position of a window.
    parts: Vec<[u64; 256]>,
    /// The chunks of each direction, in order of arrival.
    known: [Known; 2],
    counters: Vec<u64>,
}

/// Chunks by age, and by content.
type Known = (VecDeque<Vec<u8>>, HashSet<Vec<u8>>);

impl Oracle {
    fn new(window: usize, sample: u64, cache: usize) -> Oracle {
        const POLYNOMIAL: u128 = 0xbfe6_b8a5_bf37_8d83;
        let times_256 = |value: u64| {
            let shifted = u128::from(value) << 8;
            (63..72).rev().fold(shifted, |value, bit| {
                if value >> bit & 1 == 1 { value ^ POLYNOMIAL << (bit - 63) } else { value }
            }) as u64
        };
        let part =
            |place: usize, byte: usize| (place + 1..window).fold(byte as u64, |value, _| times_256(value));
        Oracle {
            window,
            sample,
            chunks_max: cache / (window + sample as usize),
            parts: (0..window).map(|place| std::array::from_fn(|byte| part(place, byte))).collect(),
            known: Default::default(),
            counters: vec![0; COUNTERS.len()],
        }
    }

    /// Returns the cuts of a stream.
    fn cuts(&self, stream: &[u8]) -> VecDeque<usize> {
        let longest = (8 * self.sample as usize).next_multiple_of(self.window);
        let mut begin = 0;
        let mut is_cut = |end: usize| {
            let is_chosen = || {
                let window = stream[end - self.window..end].iter().zip(&self.parts);
                window.fold(0, |sum, (&byte, parts)| sum ^ parts[usize::from(byte)]) % self.sample == 0
            };
            let is_cut = end - begin == longest || end - begin > self.window && is_chosen();
            begin = if is_cut { end } else { begin };
            is_cut
        };
        (1..=stream.len()).filter(|&end| is_cut(end)).collect()
    }

    /// Returns the redundant bytes of a chunk, and remembers it.
    fn judge(&mut self, way: usize, chunk: &[u8]) -> u64 {
        let (in_order, known) = &mut self.known[way];
        self.counters[6] += 1;
        self.counters[3 * way] += chunk.len() as u64;
        if known.contains(chunk) {
            self.counters[3 * way + 1] += chunk.len() as u64;
            return chunk.len() as u64;
        }
        self.counters[3 * way + 2] += chunk.len() as u64;
        if in_order.len() == self.chunks_max {
            known.remove(&in_order.pop_front().unwrap());
            self.counters[7] += 1;
        }
        in_order.push_back(chunk.to_vec());
        known.insert(chunk.to_vec());
        0
    }

    /// Processes everything; returns counters and events.
    fn take(mut self, turns: &[Turn]) -> (Vec<u64>, Vec<String>) {
        let ends = (0..FLOWS).flat_map(|flow| [(flow, Client), (flow, Server)]);
        let mut streams: Vec<Stream> = ends.map(|(flow, who)| Stream::new(&self, turns, flow, who)).collect();
        for turn in turns {
            let stream = streams.iter_mut().find(|stream| stream.says(turn)).unwrap();
            stream.said += turn.bytes.len();
            while stream.cuts.front().is_some_and(|cut| *cut <= stream.said) {
                let end = stream.cuts.pop_front().unwrap();
                stream.chunk(end, &mut self);
            }
        }
        // All connections are closed.
        for stream in streams.iter_mut().filter(|stream| stream.begin < stream.whole.len()) {
            stream.chunk(stream.whole.len(), &mut self);
        }
        let reported = streams.chunks(2).filter_map(|both| {
            let [out, back] = [0, 1].map(|way| both.iter().find(|stream| stream.way == way).unwrap());
            let (bytes, redundant) = (out.whole.len() + back.whole.len(), out.redundant + back.redundant);
            (redundant > 0).then(|| {
                format!(
                    "bytes_outbound={} redundant_outbound={} bytes_inbound={} redundant_inbound={} redundant_percent={}",
                    out.whole.len(),
                    out.redundant,
                    back.whole.len(),
                    back.redundant,
                    redundant * 100 / bytes
                )
            })
        });
        let mut reported: Vec<String> = reported.collect();
        reported.sort();
        (self.counters, reported)
    }
}

/// The stream of one end of a flow.
struct Stream {
    flow: usize,
    who: Who,
    /// 0: outbound.
    way: usize,
    whole: Vec<u8>,
    cuts: VecDeque<usize>,
    /// Bytes sent so far, and the start of the next chunk.
    said: usize,
    begin: usize,
    redundant: usize,
}

impl Stream {
    fn new(oracle: &Oracle, turns: &[Turn], flow: usize, who: Who) -> Stream {
        let way = usize::from((who == Client) == (flow == 1));
        let (whole, cuts) = (vec![], VecDeque::new());
        let mut stream = Stream { flow, who, way, whole, cuts, said: 0, begin: 0, redundant: 0 };
        let said = turns.iter().filter(|turn| stream.says(turn)).flat_map(|turn| turn.bytes.clone());
        stream.whole = said.collect();
        stream.cuts = oracle.cuts(&stream.whole);
        stream
    }

    fn says(&self, turn: &Turn) -> bool {
        (turn.flow, turn.who) == (self.flow, self.who)
    }

    fn chunk(&mut self, end: usize, oracle: &mut Oracle) {
        self.redundant += oracle.judge(self.way, &self.whole[self.begin..end]) as usize;
        self.begin = end;
    }
}

/// Generates bytes from few pages, so that many are repeated.
fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let page = (0u64..4, 0usize..3_000).prop_map(|(seed, from)| random_bytes(seed, 6_000)[from..].to_vec());
    let bytes = prop_oneof![
        6 => page,
        1 => (any::<u8>(), 1usize..3_000).prop_map(|(byte, len)| vec![byte; len]),
        1 => prop::collection::vec(any::<u8>(), 1..80),
        // Sometimes more than is remembered.
        1 => any::<u64>().prop_map(|seed| random_bytes(seed, 30_000)),
    ];
    let turn = (0..FLOWS, prop_oneof![Just(Client), Just(Server)], bytes);
    prop::collection::vec(turn.prop_map(|(flow, who, bytes)| Turn { flow, who, bytes }), 1..14)
}

fn ways() -> impl Strategy<Value = Way> {
    // One is long, so that there are not too many.
    let lens = (prop::collection::vec(1usize..100, 0..6), 400usize..1_461).prop_map(|(mut lens, long)| {
        lens.push(long);
        lens
    });
    (lens, any::<u64>(), any::<bool>(), any::<bool>()).prop_map(|(lens, seed, reorders, repeats)| Way {
        lens,
        seed,
        reorders,
        repeats,
    })
}

/// Generates window, sample and cache.
fn sizes() -> impl Strategy<Value = (usize, u64, usize)> {
    (prop_oneof![Just(16), 16usize..=64, Just(64)], 4u32..9)
        .prop_map(|(window, sample)| (window, 1 << sample, 64 << 10))
}

fn config((window, sample, cache): (usize, u64, usize)) -> Value {
    json!({ "window": window, "sample": sample, "cache": cache, "events_from": 1 })
}

/// Ends all flows.
fn over(mut benches: Vec<Bench>) -> (Vec<u64>, Vec<String>) {
    for bench in &mut benches {
        assert!(bench.graph.finish(&mut bench.pool));
        bench.batch(&[]);
        assert_eq!(bench.drops(), []);
    }
    (counters(&benches), reported(&benches))
}

/// Sends the packets through two graphs with a common set of chunks; all flows move to the other
/// one after every n packets.
fn moving(config: &Value, arrivals: &[Arrival], every: usize) -> (Vec<u64>, Vec<String>) {
    let mut benches = [bench("redundancy", config), bench("redundancy", config)];
    let commons = benches[0].graph.sharing().share();
    benches[1].graph.sharing().join(commons);
    for (number, arrivals) in arrivals.chunks(every).enumerate() {
        let here = number % 2;
        benches[here].batch(arrivals);
        let records = benches[here].graph.flows().records();
        let live: Vec<u32> =
            records.used().filter(|&r| records.header(r).has(RecordHeader::FLAG_LIVE)).collect();
        for record in live {
            let (mut saved, [one, other]) = (vec![], &mut benches);
            let (from, to) = if here == 0 { (one, other) } else { (other, one) };
            from.graph.flows_mut().save(record, &mut saved);
            to.graph.flows_mut().restore(&saved, &mut to.pool).unwrap();
            from.graph.flows_mut().release(record);
        }
    }
    over(benches.into())
}

/// Opens a connection with windows for everything.
fn opened() -> Talk {
    let mut talk = Talk::midstream(80).scaled();
    talk.handshake();
    talk
}

/// Downloads a page in segments of this length.
fn download(client: u16, page: &[u8], segment: usize) -> Talk {
    let mut talk = Talk::between(v4(10, 0, 0, 1, client), v4(192, 0, 2, 1, 80)).scaled();
    talk.handshake();
    talk.says(Client, format!("GET /page HTTP/1.1\r\nHost: x\r\nCookie: {client}\r\n\r\n"));
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nAge: {client}\r\n\r\n", page.len());
    [head.as_bytes(), page].concat().chunks(segment).for_each(|part| talk.piece(Server, part));
    talk
}

fn play(config: Value, talks: &[Talk]) -> Bench {
    let mut bench = bench("redundancy", &config);
    for segment in talks.iter().flat_map(|talk| &talk.segments) {
        bench.batch(std::slice::from_ref(segment));
    }
    bench
}

// E23
#[test]
fn a_second_download_is_redundant() {
    let page = random_bytes(7, 200_000);
    let bench = play(json!({}), &[download(1, &page, 1_460), download(22_222, &page, 999)]);
    let [bytes, redundant] = ["bytes_inbound", "redundant_inbound"].map(|name| counter(&bench, name));
    assert!(bytes > 400_000, "{bytes}");
    assert!((199_000..200_000).contains(&redundant), "{redundant}");
    assert!(counter(&bench, "redundant_outbound") == 0, "what is asked is short, and not the same");
}

#[test]
fn each_way_has_a_cache_of_its_own() {
    let page = random_bytes(7, 50_000);
    let mut echo = opened();
    page.chunks(1_000).for_each(|part| echo.piece(Client, part));
    page.chunks(1_000).for_each(|part| echo.piece(Server, part));
    let bench = play(json!({}), &[echo]);
    let names = ["bytes_outbound", "redundant_outbound", "bytes_inbound", "redundant_inbound"];
    assert_eq!(names.map(|name| counter(&bench, name)), [50_000, 0, 50_000, 0]);
}

#[test]
fn a_gap_separates_two_chunks() {
    let page = random_bytes(7, 50_000);
    let mut talk = download(1, &page, 1_000);
    // The next connection has lost some of the same bytes.
    talk.resets(Client).reopen();
    talk.says(Server, &page[..20_000]).loses(Server, 1_000).says(Server, &page[21_000..]);
    talk.says(Client, "acknowledged");
    let mut bench = play(json!({ "window": 16, "sample": 64 }), &[talk]);
    let redundant = counter(&bench, "redundant_inbound");
    assert!((48_000..49_000).contains(&redundant), "{redundant}");
    let pending = |bench: &Bench| {
        let [bytes, redundant, unique] =
            ["bytes_inbound", "redundant_inbound", "unique_inbound"].map(|name| counter(bench, name));
        bytes - redundant - unique
    };
    assert!(pending(&bench) > 0, "what is behind the last cut waits for more");
    assert!(bench.graph.finish(&mut bench.pool));
    assert_eq!(pending(&bench), 0);
    assert_eq!(counter(&bench, "redundant_inbound"), redundant, "nobody knows what it would have been");
}

/// Bytes before and after a gap never form a chunk together.
#[test]
fn buffers_of_different_messages_never_match_together() {
    let (before, behind) = (random_bytes(7, 20), random_bytes(8, 10));
    let mut apart = opened();
    apart.says(Server, &before).loses(Server, 100).says(Server, &behind);
    apart.says(Client, "acknowledged").closes(Server).closes(Client);
    let again = |said: &[u8]| {
        let mut talk = Talk::between(v4(10, 0, 0, 1, 50_000), v4(192, 0, 2, 1, 80)).scaled();
        talk.handshake();
        talk.says(Server, said).closes(Server).closes(Client);
        talk
    };
    for (said, redundant) in [([&before[..], &behind].concat(), 0), (before, 0), (behind, 10)] {
        let bench = play(json!({}), &[apart.clone(), again(&said)]);
        assert_eq!(counter(&bench, "redundant_inbound"), redundant, "{} bytes", said.len());
    }
}

#[test]
fn sufficiently_redundant_flows_are_reported() {
    let page = random_bytes(7, 50_000);
    let mut again = download(2, &page, 1_000);
    again.resets(Client).reopen(); // Which ends the one before.
    for (threshold, count) in [("49KB", 1), ("50KB", 0), ("0B", 0)] {
        let bench = play(json!({ "events_from": threshold }), &[download(1, &page, 1_000), again.clone()]);
        assert_eq!(reported(&[bench]).len(), count, "{threshold}");
    }
}

#[test]
fn only_the_configured_ports_are_inspected() {
    let page = random_bytes(7, 5_000);
    for (ports, bytes) in [(json!([]), 5_000), (json!([8080, 80]), 5_000), (json!([8080]), 0)] {
        let bench = play(json!({ "ports": ports }), &[download(1, &page, 1_000)]);
        assert_eq!(counter(&bench, "bytes_inbound") / 1_000 * 1_000, bytes);
    }
}

#[test]
fn invalid_configurations_are_refused() {
    let registry: nf::Registry<Value> = functions::registry();
    for (config, message) in [
        (json!({ "cache": "1KB" }), "`cache` must be from 65536 to 68719476736, not 1000"),
        (json!({ "cache": "65GiB" }), "`cache` must be from 65536 to 68719476736, not 69793218560"),
        (
            json!({ "cache": "4GiB" }),
            "`cache` allows 44739242 chunks, expected at most 16777216: increase `sample` or `window`",
        ),
        (json!({ "window": 15 }), "`window` must be from 16 to 64, not 15"),
        (json!({ "window": 65 }), "`window` must be from 16 to 64, not 65"),
        (json!({ "sample": 8 }), "`sample` must be from 16 to 4096, not 8"),
        (json!({ "sample": 100 }), "`sample` must be a power of two, not 100"),
        (json!({ "ports": vec![1; 1_025] }), "too many `ports`: the maximum is 1024"),
        (json!({ "protocol": 6 }), "unknown field `protocol`"),
    ] {
        let made = registry.find("RedundancyMeter").unwrap().make(&config, nf::Setup::new(1, 16));
        let Err(error) = made else { panic!("{config} is accepted") };
        assert!(error.to_string().contains(message), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    // E23
    #[test]
    fn counters_equal_those_of_the_oracle(
        turns in turns(), ways in [ways(), ways()], sizes in sizes(), batch in 1usize..40, every in 1usize..40,
    ) {
        let (window, sample, cache) = sizes;
        let expected = Oracle::new(window, sample, cache).take(&turns);
        let config = config(sizes);
        for way in ways {
            let arrivals = arrivals(&turns, &way);
            let mut bench = bench("redundancy", &config);
            arrivals.chunks(batch).for_each(|arrivals| bench.batch(arrivals));
            let sent: Vec<_> = bench.sent.iter().map(|(_, _, frame)| &frame[14..]).collect();
            prop_assert!(sent.iter().zip(&arrivals).all(|(sent, arrival)| **sent == arrival.network[..]));
            prop_assert_eq!(sent.len(), arrivals.len());
            prop_assert_eq!(&over(vec![bench]), &expected);
            prop_assert_eq!(&moving(&config, &arrivals, every), &expected);
        }
    }
}
