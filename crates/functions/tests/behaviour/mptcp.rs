//! Sub-flows of Multipath TCP connections, and data that several of them carry (A38).

use std::collections::BTreeSet;

use crate::meter_support::*;
use crate::tshark_support;
use graph::Options;
use nf::record::RecordHeader;
use nf::{AffinityGroups, Registry, Setup};
use packet::mptcp::MptcpVersion;
use packet::wire::mptcp::{DataMapping, DataNumber};
use packet::{Endpoint, Side};
use proptest::prelude::*;
use serde_json::{Value, json};

const VERSIONS: [MptcpVersion; 2] = [MptcpVersion::V0, MptcpVersion::V1];

/// Returns an address of the client, which has several.
fn client(address: u8) -> Endpoint {
    v4(10, 0, address, 1, 40_000 + u16::from(address))
}

fn server() -> Endpoint {
    v4(192, 0, 2, 1, 443)
}

fn mptcp(duplicates: &str) -> Bench {
    bench("mptcp", &json!({ "duplicates": duplicates }))
}

/// Sends packets of a sub-flow that a host at a side begins, alternating sides. All must pass.
fn shake_hands(bench: &mut Bench, side: Side, packets: &[Vec<u8>; 3]) {
    for (packet, side) in packets.iter().zip([side, side.other(), side]) {
        assert_eq!(bench.through(SECOND_NS, side, packet), *packet);
    }
}

/// Returns a bench through which a connection of a client inside has begun, with one more sub-flow.
fn two_subflows(duplicates: &str, version: MptcpVersion) -> (Bench, MultipathConnection, [Subflow; 2]) {
    let mut bench = mptcp(duplicates);
    let connection = MultipathConnection::new(version, 7);
    let subflows = [1, 2].map(|number| Subflow::new(client(number), server(), number.into()));
    shake_hands(&mut bench, Side::Inside, &connection.begin(&subflows[0]));
    shake_hands(&mut bench, Side::Inside, &connection.join(&subflows[1], 0));
    (bench, connection, subflows)
}

fn counters<const N: usize>(bench: &Bench, names: [&str; N]) -> [u64; N] {
    names.map(|name| counter(bench, name))
}

#[test]
fn second_copy_is_dropped_and_comes_through_when_it_is_repeated() {
    for version in VERSIONS {
        let (mut bench, connection, mut subflows) = two_subflows("drop", version);
        assert_eq!(counters(&bench, ["connections", "subflows_joined"]), [1, 1]);
        let there = (0, 0);
        let first = connection.data(&mut subflows[0], there, 0, &[1; 1000]);
        let second = connection.data(&mut subflows[1], there, 0, &[1; 1000]);
        assert_eq!(bench.one(SECOND_NS, Side::Inside, &first).len(), 1);
        assert_eq!(bench.one(SECOND_NS, Side::Inside, &second).len(), 0);
        // Its sub-flow needs it: the sender repeats it until it is acknowledged.
        assert_eq!(bench.one(SECOND_NS, Side::Inside, &second).len(), 1);
        // The same bytes of the other direction are others.
        let answer = connection.data(&mut subflows[1], (1, 1), 0, &[2; 500]);
        assert_eq!(bench.one(SECOND_NS, Side::Outside, &answer).len(), 1);
        assert_eq!(bench.drops(), [("mptcp-duplicate", 1)]);
        let names =
            ["bytes", "bytes_duplicate", "bytes_retransmitted", "bytes_unmapped", "packets_duplicate"];
        assert_eq!(counters(&bench, names), [3500, 1000, 1000, 0, 1]);
    }
}

#[test]
fn duplicates_pass_counted_or_marked() {
    for duplicates in ["pass", "mark"] {
        let (mut bench, connection, mut subflows) = two_subflows(duplicates, MptcpVersion::V1);
        for subflow in &mut subflows {
            let data = connection.data(subflow, (0, 0), 0, &[1; 100]);
            assert_eq!(bench.through(SECOND_NS, Side::Inside, &data), data);
        }
        assert_eq!(counters(&bench, ["bytes_duplicate", "packets_duplicate"]), [100, 1]);
    }
}

/// The attributes steer packets. Both directions may arrive from one side, as from a tap.
#[test]
fn attributes_steer_packets() {
    const POLICY: &str = "
        Port<0> inside; Port<1> outside; Mptcp m;
        pipelet {
            inside <-> m;
            m [m.subflow && m.duplicate] -> Drop;
            m [!m.subflow || !m.duplicate] <-> outside;
        }";
    let registry: Registry<Value> = functions::registry();
    let stage = registry.find("mptcp").unwrap().make(&json!({}), Setup::new(7, 64)).unwrap();
    let mut bench = Bench::branching(vec![stage], POLICY, options());
    let connection = MultipathConnection::new(MptcpVersion::V1, 7);
    let mut subflows = [1, 2].map(|number| Subflow::new(client(number), server(), number.into()));
    for (number, handshake) in
        [connection.begin(&subflows[0]), connection.join(&subflows[1], 0)].into_iter().enumerate()
    {
        let sent = handshake.map(|packet| bench.one(SECOND_NS, Side::Inside, &packet).len());
        assert_eq!(sent, [1, 1, 1]);
        let data = connection.data(&mut subflows[number], (0, 0), 0, &[1; 100]);
        assert_eq!(bench.one(SECOND_NS, Side::Inside, &data).len(), 1 - number);
    }
}

#[test]
fn strangers_are_ordinary_flows() {
    let (mut bench, connection, mut subflows) = two_subflows("drop", MptcpVersion::V1);
    let data = connection.data(&mut subflows[0], (0, 0), 0, &[1; 100]);
    bench.through(SECOND_NS, Side::Inside, &data);
    let other = MultipathConnection::new(MptcpVersion::V1, 8);
    let mut third = Subflow::new(client(3), server(), 3);
    // An unknown token.
    shake_hands(&mut bench, Side::Inside, &other.join(&third, 0));
    let copy = connection.data(&mut third, (0, 0), 0, &[1; 100]);
    bench.through(SECOND_NS, Side::Inside, &copy);
    assert_eq!(counters(&bench, ["subflows_unknown", "subflows_invalid"]), [1, 0]);
    // A guessed token: neither host can prove that it has the keys.
    for (number, valid_until) in [(4, 1), (5, 2)] {
        let mut guesses = Subflow::new(client(number), server(), number.into());
        let valid = connection.join(&guesses, 0);
        let impostor =
            MultipathConnection { keys: [connection.keys[0] ^ 1, connection.keys[1]], ..connection };
        let mut packets = impostor.join(&guesses, 0);
        packets[..valid_until].clone_from_slice(&valid[..valid_until]);
        shake_hands(&mut bench, Side::Inside, &packets);
        let copy = connection.data(&mut guesses, (0, 0), 0, &[1; 100]);
        bench.through(SECOND_NS, Side::Inside, &copy);
    }
    assert_eq!(counters(&bench, ["subflows_joined", "subflows_invalid", "bytes_duplicate"]), [1, 2, 0]);
}

/// A server may have sub-flows join, too, to addresses that the client has announced. Their
/// directions are those of the connection anyway.
#[test]
fn either_host_may_have_subflows_join() {
    for version in VERSIONS {
        let (mut bench, connection, mut subflows) = two_subflows("drop", version);
        let mut back = Subflow::new(v4(192, 0, 2, 2, 50_000), client(3), 3);
        shake_hands(&mut bench, Side::Outside, &connection.join(&back, 1));
        assert_eq!(counter(&bench, "subflows_joined"), 2);
        let of_client = connection.data(&mut subflows[0], (0, 0), 0, &[1; 100]);
        bench.through(SECOND_NS, Side::Inside, &of_client);
        let of_server = connection.data(&mut back, (0, 1), 0, &[1; 100]);
        bench.through(SECOND_NS, Side::Outside, &of_server);
        let copy = connection.data(&mut back, (1, 0), 0, &[1; 100]);
        assert_eq!(bench.one(SECOND_NS, Side::Inside, &copy).len(), 0);
        let copy = connection.data(&mut subflows[1], (1, 1), 0, &[1; 100]);
        assert_eq!(bench.one(SECOND_NS, Side::Outside, &copy).len(), 0);
    }
}

/// Linux repeats a mapping in each segment of what it maps, and sends the first data with the keys.
#[test]
fn segments_are_found_within_their_mapping() {
    let (mut bench, connection, mut subflows) = two_subflows("drop", MptcpVersion::V1);
    let first = connection.first_data(&mut subflows[0], &[1; 300]);
    bench.through(SECOND_NS, Side::Inside, &first);
    let copy = connection.data(&mut subflows[1], (0, 0), 0, &[1; 300]);
    assert_eq!(bench.one(SECOND_NS, Side::Inside, &copy).len(), 0);
    let data = connection.version.initial_data_number(connection.keys[0]) + 1 + 300;
    let mapping = DataMapping { data: DataNumber::Long(data), subflow: 301, len: 900, checksum: None };
    for (part, repeats) in [(0, true), (1, true), (2, false)] {
        let segment = connection.segment(&subflows[0], repeats.then_some(mapping), &[part; 300]);
        bench.through(SECOND_NS, Side::Inside, &segment);
        subflows[0].sent[0] += 300;
    }
    // Parts of three segments; then some that is new.
    for (offset, len, passes) in
        [(350, 800, false), (1_150, 50, false), (1_190, 20, true), (1_200, 10, false)]
    {
        let copy = connection.data(&mut subflows[1], (0, 0), offset, &vec![0; len]);
        assert_eq!(bench.one(SECOND_NS, Side::Inside, &copy).len(), usize::from(passes), "{offset}");
    }
    assert_eq!(counters(&bench, ["bytes_duplicate", "bytes_unmapped"]), [300 + 800 + 50 + 10 + 10, 0]);
    // The rest of a sub-flow has no mappings.
    let rest = DataMapping { len: 0, subflow: subflows[1].sent[0] + 1, ..mapping };
    let segment = connection.segment(&subflows[1], Some(rest), &[9; 10]);
    bench.through(SECOND_NS, Side::Inside, &segment);
    assert_eq!(counter(&bench, "subflows_fallen_back"), 1);
}

#[test]
fn connections_beyond_the_limit_are_refused_until_others_are_idle() {
    let mut bench = bench("mptcp", &json!({ "connections": 2 }));
    let begin = |bench: &mut Bench, number: u8, now_ns: u64| {
        let connection = MultipathConnection::new(MptcpVersion::V1, number.into());
        let subflow = Subflow::new(client(number), server(), number.into());
        let packets = connection.begin(&subflow);
        for (packet, side) in packets.iter().zip([Side::Inside, Side::Outside, Side::Inside]) {
            bench.through(now_ns, side, packet);
        }
    };
    (1..=3).for_each(|number| begin(&mut bench, number, SECOND_NS));
    assert_eq!(counters(&bench, ["connections", "connections_refused"]), [2, 1]);
    begin(&mut bench, 4, SECOND_NS + functions::mptcp::CONNECTION_IDLE_NS);
    assert_eq!(counters(&bench, ["connections", "connections_refused"]), [3, 1]);
}

/// A connection that moves sub-flow by sub-flow behaves as if it had stayed.
#[test]
fn connection_that_moves_is_one_that_stays() {
    let unit = || {
        let groups = AffinityGroups::new(16, 7);
        let registry: Registry<Value> = functions::registry();
        let mut setup = Setup::new(7, 64);
        setup.affinity_groups = groups;
        let stage = registry.find("mptcp").unwrap().make(&json!({ "duplicates": "drop" }), setup).unwrap();
        Bench::new(vec![stage], Options { affinity_groups: groups, ..options() })
    };
    let mut units = [unit(), unit()];
    let connection = MultipathConnection::new(MptcpVersion::V1, 7);
    let mut subflows = [1, 2, 3].map(|number| Subflow::new(client(number), server(), number.into()));
    shake_hands(&mut units[0], Side::Inside, &connection.begin(&subflows[0]));
    shake_hands(&mut units[0], Side::Inside, &connection.join(&subflows[1], 0));
    for step in 0..6u32 {
        // Each sub-flow carries something of its own, and then what others have carried.
        for (number, offset) in [(0, 0), (1, 100), (0, 100), (1, 0)] {
            let data = connection.data(&mut subflows[number], (0, 0), step * 200 + offset, &[1; 100]);
            let is_first = (number == 0) == (offset == 0);
            assert_eq!(units[0].one(SECOND_NS, Side::Inside, &data).len(), usize::from(is_first), "{step}");
        }
        let [from, to] = &mut units;
        move_all(from, to);
        units.swap(0, 1);
        // What was seen at the other unit.
        let copy = connection.data(&mut subflows[1], (0, 0), step * 200, &[1; 200]);
        assert_eq!(units[0].one(SECOND_NS, Side::Inside, &copy).len(), 0, "{step}");
    }
    // The tokens have moved as well.
    shake_hands(&mut units[0], Side::Inside, &connection.join(&subflows[2], 0));
    let copy = connection.data(&mut subflows[2], (0, 0), 0, &[1; 1_200]);
    assert_eq!(units[0].one(SECOND_NS, Side::Inside, &copy).len(), 0);
}

fn move_all(from: &mut Bench, to: &mut Bench) {
    let records = from.graph.flows().records();
    let is_live = |&record: &u32| records.header(record).has(RecordHeader::FLAG_LIVE);
    let live: Vec<u32> = records.used().filter(is_live).collect();
    assert!(live.len() >= 2);
    for record in live {
        let mut saved = vec![];
        from.graph.flows_mut().save(record, &mut saved);
        to.graph.flows_mut().restore(&saved, &mut to.pool).unwrap();
        from.graph.flows_mut().release(record);
    }
}

/// A step of a connection: a sub-flow carries data from an offset on, or repeats a segment.
#[derive(Clone, Debug)]
enum Step {
    Carry { subflow: usize, offset: u32, len: usize },
    Repeat { number: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..3, 0u32..4_000, 1usize..600)
            .prop_map(|(subflow, offset, len)| Step::Carry { subflow, offset, len }),
        1 => any::<prop::sample::Index>().prop_map(|number| Step::Repeat { number: number.index(1_000) }),
    ]
}

proptest! {
    /// Compared with sets of bytes. A byte of the connection is never withheld before it has passed
    /// once, and repeated segments always pass.
    #[test]
    fn only_what_has_passed_is_dropped(steps in prop::collection::vec(step(), 1..60), is_v0: bool) {
        let (mut bench, connection, subflows) = two_subflows("drop", VERSIONS[usize::from(!is_v0)]);
        let third = Subflow::new(client(3), server(), 3);
        shake_hands(&mut bench, Side::Inside, &connection.join(&third, 0));
        let mut subflows = [subflows[0], subflows[1], third];
        let (mut seen, mut passed, mut segments) = (BTreeSet::new(), BTreeSet::new(), vec![]);
        let (mut duplicate, mut repeated) = (0, 0);
        for step in steps {
            match step {
                Step::Carry { subflow, offset, len } => {
                    let payload = vec![0; len];
                    let packet = connection.data(&mut subflows[subflow], (0, 0), offset, &payload);
                    let bytes = offset..offset + len as u32;
                    let known = seen.range(bytes.clone()).count();
                    let is_whole = known == len;
                    let has_passed = !bench.one(SECOND_NS, Side::Inside, &packet).is_empty();
                    if has_passed {
                        passed.extend(bytes.clone());
                    }
                    if counter(&bench, "ranges_forgotten") == 0 {
                        duplicate += known as u64;
                        prop_assert_eq!(has_passed, !is_whole);
                        prop_assert_eq!(counter(&bench, "bytes_duplicate"), duplicate);
                    }
                    prop_assert!(has_passed || is_whole);
                    prop_assert!(bytes.clone().all(|byte| passed.contains(&byte)));
                    seen.extend(bytes);
                    segments.push((packet, len));
                }
                Step::Repeat { number } if !segments.is_empty() => {
                    let (packet, len) = &segments[number % segments.len()];
                    prop_assert_eq!(bench.one(SECOND_NS, Side::Inside, packet).len(), 1);
                    repeated += *len as u64;
                }
                Step::Repeat { .. } => {}
            }
        }
        prop_assert_eq!(counter(&bench, "bytes_retransmitted"), repeated);
    }
}

/// tshark takes the packets of these tests for one connection: it computes the same tokens from
/// keys, and the same data sequence numbers.
#[test]
fn tshark_sees_one_connection() {
    if !tshark_support::is_there() {
        return;
    }
    for version in VERSIONS {
        let connection = MultipathConnection::new(version, 7);
        let mut subflows = [1, 2].map(|number| Subflow::new(client(number), server(), number.into()));
        let mut packets = connection.begin(&subflows[0]).to_vec();
        packets.extend(connection.join(&subflows[1], 0));
        packets.push(connection.data(&mut subflows[0], (0, 0), 0, &[1; 100]));
        packets.push(connection.data(&mut subflows[1], (0, 0), 0, &[1; 100]));
        packets.push(connection.data(&mut subflows[1], (0, 0), 100, &[1; 50]));
        let frames: Vec<Vec<u8>> = packets.iter().map(|packet| frame(packet)).collect();
        let fields = [
            "mptcp.stream",
            "mptcp.expected_token",
            "tcp.options.mptcp.recvtok",
            "mptcp.dss.dsn",
            "tcp.options.mptcp.version",
        ];
        let preferences = [
            "tcp.check_checksum:TRUE",
            "mptcp.analyze_mappings:TRUE",
            "mptcp.relative_sequence_numbers:TRUE",
        ];
        let rows = tshark_support::fields_of(&frames, &preferences, &fields);
        let column = |column: usize| rows.iter().map(move |row| row[column].as_str());
        assert!(column(0).skip(3).all(|stream| stream == "0"), "{version:?}: {rows:?}");
        let token = version.token(connection.keys[1]).to_string();
        assert_eq!(rows[1][1], token, "{version:?}: of the key in the SYN-ACK");
        assert_eq!(rows[3][2], token, "{version:?}: of the joining SYN");
        assert_eq!(column(3).skip(6).collect::<Vec<_>>(), ["1", "1", "101"], "{version:?}");
        assert_eq!(rows[0][4], (version as u8).to_string());
    }
}
