//! Captures with missing or jumping timestamps, and with frames that hosts left to their cards.

use io::capture::{CaptureFormat, CaptureReader, CaptureRecord, CaptureWriter, FormatKind};

use super::*;

/// Start of the captures, in seconds since 1970.
const T: u64 = 1_700_000_000;

/// A policy that admits only replies, with flows that expire.
const POLICY: &str = "
Port<0> inside { prefixes: [10.0.0.0/8] };
Port<1> outside;
Firewall guard { rules: \"allow out any to any\", default: deny };
pipelet { inside <-> guard <-> outside; }
settings { timeouts: { udp: 30s, udp_unreplied: 30s } };
";

/// Builds an Ethernet frame with a datagram to or from the server.
fn datagram(to_server: bool) -> Vec<u8> {
    let (client, server) = ([10, 0, 0, 5], [198, 51, 100, 9]);
    let (source, destination) = if to_server { (client, server) } else { (server, client) };
    let (from, to) = if to_server { (5_000_u16, 53_u16) } else { (53, 5_000) };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend([source, destination].concat());
    frame.extend([from.to_be_bytes(), to.to_be_bytes(), [0, 12], [0, 0]].concat());
    frame.extend(b"word");
    frame
}

/// Blocks of a pcapng file.
struct Blocks(Vec<u8>);

impl Blocks {
    fn new() -> Blocks {
        let mut blocks = Blocks(Vec::new());
        let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        blocks.block(0x0a0d_0d0a, &section);
        blocks.block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
        blocks
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let len = (12 + body.len().next_multiple_of(4)) as u32;
        self.0.extend(kind.to_le_bytes());
        self.0.extend(len.to_le_bytes());
        self.0.extend(body);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend(len.to_le_bytes());
    }

    fn packet(mut self, seconds: Option<u64>, frame: &[u8]) -> Blocks {
        let len = (frame.len() as u32).to_le_bytes();
        match seconds.map(|seconds| seconds * 1_000_000) {
            Some(us) => {
                let (high, low) = (((us >> 32) as u32).to_le_bytes(), (us as u32).to_le_bytes());
                self.block(6, &[&[0; 4][..], &high, &low, &len, &len, frame].concat());
            }
            None => self.block(3, &[&len[..], frame].concat()),
        }
        self
    }
}

/// Runs the policy over packets to or from the server. Returns the report and the departure times
/// in seconds.
fn run(packets: &[(Option<u64>, bool)]) -> (serde_json::Value, Vec<u64>) {
    let place = Place::new();
    place.write("p.rvl", POLICY);
    let blocks =
        packets.iter().fold(Blocks::new(), |blocks, &(at, forth)| blocks.packet(at, &datagram(forth)));
    place.write("in.pcapng", blocks.0);
    let report = place.json("run p.rvl --read in.pcapng --write out.pcapng --seed 1 -o json");
    let mut reader = CaptureReader::open(place.path("out.pcapng")).unwrap();
    let mut times = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        times.push(record.timestamp_ns / 1_000_000_000);
    }
    (report, times)
}

#[test]
fn packets_without_a_timestamp_get_their_neighbours() {
    let (report, times) = run(&[(None, true), (Some(T), false), (None, true), (Some(T + 2), false)]);
    assert_eq!((&report["packets_out"], times), (&4.into(), vec![T, T, T, T + 2]));
    assert_eq!(report["first_packet_ns"], T * 1_000_000_000);
    assert_eq!(report["time_jumps"]["without_time"], 2);
}

#[test]
fn a_broken_timestamp_neither_ends_flows_nor_stops_their_timeouts() {
    for broken in [T + 80_000_000, 1, T - 4_000] {
        let stamps = [(T, true), (T + 1, false), (broken, true), (T + 2, false)];
        let later = [(T + 60, true), (T + 61, false), (T + 121, false), (T + 122, false)];
        let packets: Vec<_> = stamps.iter().chain(&later).map(|&(at, forth)| (Some(at), forth)).collect();
        let (report, times) = run(&packets);
        // The flow ends twice, after a gap of more than 30 seconds: the server's next packets are
        // unsolicited.
        assert_eq!(times, [T, T + 1, T + 1, T + 2, T + 60, T + 61], "{broken}");
        assert_eq!(
            (&report["drops"]["firewall-default"], &report["flows"]["ended"]["idle"]),
            (&2.into(), &2.into())
        );
        assert_eq!(report["time_jumps"]["broken"], 1);
    }
}

#[test]
fn time_that_jumps_back_continues_from_the_latest() {
    let later = |seconds| Some(T - 10_000_000 + seconds);
    let packets =
        [(Some(T), true), (Some(T + 1), false), (later(0), false), (later(5), true), (later(50), false)];
    let (report, times) = run(&packets);
    assert_eq!(times, [T, T + 1, T + 1, T + 6], "the flow continues, and expires in its time");
    assert_eq!((&report["drops"]["firewall-default"], &report["time_jumps"]["back"]), (&1.into(), &1.into()));
}

#[test]
fn time_that_jumps_ahead_and_stays_has_passed() {
    let packets = [(T, true), (T + 1_000, false), (T + 1_001, false)];
    let (report, times) = run(&packets.map(|(at, forth)| (Some(at), forth)));
    assert_eq!((times, &report["time_jumps"]["ahead"]), (vec![T], &1.into()));
    assert_eq!(report["drops"]["firewall-default"], 2);
}

#[test]
fn segments_left_to_a_card_are_as_long_as_their_frames() {
    let place = Place::new();
    place.write("p.rvl", "Port<0> a;\nPort<1> b;\nMonitor m;\npipelet { a <-> m <-> b; }\n");
    let mut frame = datagram(true);
    frame[16..18].fill(0);
    let format = CaptureFormat { kind: FormatKind::Pcap, gzip: false };
    let mut writer = CaptureWriter::create(place.path("in.pcap"), format).unwrap();
    let record = CaptureRecord {
        timestamp_ns: T * 1_000_000_000,
        interface: 0,
        link_type: packet::LinkType::Ethernet,
        wire_len: frame.len() as u32,
        data: &frame,
    };
    writer.write(&record).unwrap();
    writer.finish().unwrap();
    for options in ["", "--units-max 3"] {
        let report = place.json(&format!("run p.rvl --read in.pcap --seed 1 -o json {options}"));
        assert_eq!(
            (&report["packets_out"], &report["drops"]),
            (&1.into(), &serde_json::json!({})),
            "{options}"
        );
        assert_eq!(report["flows"]["started"], 1);
    }
}

/// Two internal networks on separate ports: replies find their way, on one thread and on units.
#[test]
fn replies_leave_by_the_port_on_which_their_flow_arrived() {
    let place = Place::new();
    place.write(
        "p.rvl",
        "Port<0-1> inside;\nPort<2> outside;\nNAT n { external: [203.0.113.1] };\npipelet { inside <-> n <-> outside; }\n",
    );
    let client = |host: u8, frame: &mut [u8]| frame[29] = host;
    for (number, host) in [(0, 5), (1, 6)] {
        let mut frame = datagram(true);
        client(host, &mut frame);
        frame[35] = frame[35].wrapping_add(host);
        place.write(&format!("{number}.pcapng"), Blocks::new().packet(Some(T), &frame).0);
    }
    let translated = |host: u8| {
        let mut frame = datagram(false);
        frame[30..34].copy_from_slice(&[203, 0, 113, 1]);
        frame[37] = frame[37].wrapping_add(host);
        frame
    };
    let answers = Blocks::new().packet(Some(T + 1), &translated(5)).packet(Some(T + 2), &translated(6));
    place.write("2.pcapng", answers.0);
    for units in ["", "--units-max 2"] {
        let line = "run p.rvl --read 0=0.pcapng --read 1=1.pcapng --read 2=2.pcapng --write 0=w0.pcap --write 1=w1.pcap \
                    --seed 1 -o json";
        let output = place.run(&format!("{line} {units}"));
        assert!(
            stderr(&output).contains("inside#0, inside#1"),
            "a warning names the ports: {}",
            stderr(&output)
        );
        for (number, host) in [(0, 5), (1, 6)] {
            let mut reader = CaptureReader::open(place.path(&format!("w{number}.pcap"))).unwrap();
            let record = reader.next().unwrap().unwrap();
            assert_eq!(record.data[33], host, "port {number} {units}");
            assert!(reader.next().unwrap().is_none());
        }
    }
}
