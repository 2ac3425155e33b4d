//! TCP streams as the chain puts them together, against tshark's `follow`, on every capture.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use chain::{Chain, Options};
use nf::config::ConfigError;
use nf::stage::load;
use nf::stream::StreamEventKind;
use nf::{
    Access, Affinity, Context, Descriptor, Maturity, NetworkFunction, PacketView, Scaling, Setup, Verdict,
};
use packet::{Direction, Endpoint, Pool};

use crate::traces::{self, Capture};

/// The two ends of a connection, the one that sends in the stream at hand first.
type Ends = (SocketAddr, SocketAddr);

/// One direction of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sent {
    bytes: Vec<u8>,
    /// Whether some are missing.
    gap: bool,
    /// Whether some are missing behind the last one so far.
    gap_behind: bool,
}

thread_local! {
    /// What the function below heard: of each pair of ends, connection by connection.
    static HEARD: RefCell<BTreeMap<Ends, Vec<Sent>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Keeps all streams of its flows.
struct Recorder;

impl NetworkFunction for Recorder {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "recorder",
        aliases: &[],
        summary: "A function of a test.",
        maturity: Maturity::Experimental,
        state_version: 1,
        attributes: &[],
        reads: &[],
        writes: &[],
        payload: Access::Read,
        affinity: Affinity::Flow,
        scaling: Scaling::Single,
        shared: &[],
        map: None,
        buffers: None,
        stream: true,
        keeps_flows: false,
        recomputes: false,
        changes_flows: false,
        consolidates: false,
        cycles_per_packet: 10,
    };
    type Config = ();
    type State = [u8; 8];

    fn new(_: (), _: &mut Setup) -> Result<Recorder, ConfigError> {
        Ok(Recorder)
    }

    fn process(&self, packet: &mut PacketView<'_>, _: &mut [u8; 8], context: &mut Context<'_>) -> Verdict {
        let flow = context.flow();
        if flow.key.protocol != packet::parse::protocol::TCP {
            return Verdict::Forward;
        }
        let (first, second) = flow.key.ends(flow.reversed);
        let ends = (address(first), address(second));
        HEARD.with_borrow_mut(|heard| {
            if flow.clock == 1 {
                heard.entry(ends).or_default().push(Sent::default());
                heard.entry((ends.1, ends.0)).or_default().push(Sent::default());
            }
            for event in packet.stream() {
                let ends = if event.direction == Direction::Original { ends } else { (ends.1, ends.0) };
                if event.kind == StreamEventKind::Restart {
                    heard.entry(ends).or_default().push(Sent::default());
                    heard.entry((ends.1, ends.0)).or_default().push(Sent::default());
                }
                let Some(sent) = heard.get_mut(&ends).and_then(|sent| sent.last_mut()) else { continue };
                match event.kind {
                    StreamEventKind::Data(bytes) => {
                        sent.bytes.extend_from_slice(bytes);
                        sent.gap |= std::mem::take(&mut sent.gap_behind);
                    }
                    StreamEventKind::Gap(_) => sent.gap_behind = true,
                    _ => {}
                }
            }
        });
        Verdict::Forward
    }
}

fn address(end: Endpoint) -> SocketAddr {
    SocketAddr::new(end.addr.ip(), end.port)
}

/// All streams of a capture, as the chain has them.
fn ours(capture: &Capture) -> BTreeMap<Ends, Vec<Sent>> {
    let options = Options { flows_max: 1 << 17, inner: true, ..Options::default() };
    let mut chain = Chain::new(vec![load::<Recorder>((), Setup::new(1, 1 << 17)).unwrap()], options).unwrap();
    let mut pool = Pool::new(8192); // Fragments wait in them, too.
    let (mut batch, mut out) = (Vec::new(), Vec::new());
    for record in &capture.records {
        let Some(mut packet) = pool.take(&record.data) else { continue };
        let meta = packet.meta_mut();
        (meta.transit.timestamp_ns, meta.wire_len, meta.link) =
            (record.timestamp_ns, record.wire_len, record.link);
        batch.push(packet);
        if batch.len() == 16 {
            chain.process(&mut batch, &mut out, &mut pool);
            pool.give_all(&mut out);
        }
    }
    chain.process(&mut batch, &mut out, &mut pool);
    HEARD.take()
}

/// Connections of a capture that tshark is to follow: each looks at every packet.
const FOLLOWED_MAX: usize = 400;

/// The same as tshark has them, of the first connections.
fn theirs(path: &Path) -> Vec<(Ends, [Sent; 2])> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-q", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-r"]).arg(path);
    for number in 0..FOLLOWED_MAX {
        command.args(["-z", &format!("follow,tcp,raw,{number}")]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.split("\nFollow: ").skip(1).filter_map(connection).collect()
}

/// What tshark prints of one connection.
fn connection(text: &str) -> Option<(Ends, [Sent; 2])> {
    let mut lines = text.lines().skip(2);
    let mut node = || -> Option<SocketAddr> {
        let end = lines.next()?.split_once(": ")?.1;
        let (address, port) = end.rsplit_once(':')?;
        Some(SocketAddr::new(address.trim_matches(['[', ']']).parse().ok()?, port.parse().ok()?))
    };
    let ends = (node()?, node()?);
    let mut sent = [Sent::default(), Sent::default()];
    for line in lines.take_while(|line| !line.starts_with('=')) {
        let from = usize::from(line.starts_with('\t'));
        let bytes = hex(line.trim());
        sent[from].gap |= bytes.windows(MISSING.len()).any(|window| window == MISSING);
        sent[from].bytes.extend(bytes);
    }
    Some((ends, sent))
}

/// What tshark puts where bytes are missing, behind their number.
const MISSING: &[u8] = b" bytes missing in capture file]";

fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Where tshark reads a capture otherwise, and why that is no fault of ours.
const EXCEPTIONS: [(&str, &str); 7] = [
    ("AH-IPcomp-IPv4.pcap", "it unpacks IPComp"),
    ("fuzz-2006-06-26-2594.pcap", "it puts packets with damaged headers together"),
    ("pppoe-over-qinq.pcap", "a packet's IP header says more bytes than its PPPoE header"),
    ("vlan-collisions.pcap", "it takes one connection in several VLANs for one"),
    ("vxlan-overlapping-http-get.pcap", "it takes one connection in several VXLANs for one"),
    ("merged_mix.pcap: 194.226.199.", "it counts a FIN behind two bytes of payload as a byte"),
    ("merged_mix.pcap: [2001:4978:f:4c::2]:53382", "it unpacks 6in4 within PPP"),
];

#[test]
fn streams_are_those_that_tshark_follows() {
    let captures = traces::all();
    if captures.is_empty() || !traces::has_tool("tshark", "-v") {
        return;
    }
    let (mut compared, mut bytes, mut excepted_count, mut differing) = (0, 0, 0, Vec::new());
    for capture in captures.iter().filter(|capture| capture.broken.is_none()) {
        if capture.records.iter().any(|record| record.wire_len as usize > record.data.len()) {
            continue; // Bytes that a capture cut away are a gap, of which tshark says nothing.
        }
        let ours = ours(capture);
        if ours.is_empty() {
            continue;
        }
        for (ends, sent) in theirs(&capture.path) {
            for (ends, sent) in [ends, (ends.1, ends.0)].into_iter().zip(sent) {
                if sent.gap || sent.bytes.is_empty() {
                    continue;
                }
                compared += 1;
                bytes += sent.bytes.len();
                let heard = ours.get(&ends).map_or(&[][..], |heard| heard);
                if !heard.iter().any(|heard| !heard.gap && heard.bytes == sent.bytes) {
                    let text = difference(&capture.name, ends, heard, &sent);
                    let excepted = EXCEPTIONS.iter().any(|(which, _)| text.starts_with(which));
                    if excepted { excepted_count += 1 } else { differing.push(text) }
                }
            }
        }
    }
    println!("{compared} streams, {bytes} bytes compared, {excepted_count} read otherwise by tshark");
    println!("{}", differing.join("\n"));
    assert!(compared > 1000 && differing.is_empty(), "{} streams differ", differing.len());
}

/// How a stream that tshark has differs from those that we have between the same ends.
fn difference(capture: &str, ends: Ends, heard: &[Sent], sent: &Sent) -> String {
    let mut text = format!("{capture}: {} -> {}: tshark has {} bytes", ends.0, ends.1, sent.bytes.len());
    for heard in heard {
        let same = heard.bytes.iter().zip(&sent.bytes).take_while(|(ours, theirs)| ours == theirs).count();
        let gap = if heard.gap { ", gaps" } else { "" };
        text += &format!("; we {}, {same} of them the same{gap}", heard.bytes.len());
    }
    text
}
