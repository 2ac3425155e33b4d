//! Reassembled TCP streams, against tshark's `follow`, for every capture.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::all_cores::on_all_cores;
use crate::recorder::{self, Ends, Heard};
use crate::traces::{self, Capture};

/// One direction of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sent {
    bytes: Vec<u8>,
    /// Bytes are missing.
    gap: bool,
    /// Bytes are missing after the last one so far.
    gap_behind: bool,
}

/// Returns our streams of a capture, by endpoints and connection.
fn ours(capture: &Capture) -> BTreeMap<Ends, Vec<Sent>> {
    let mut all: BTreeMap<Ends, Vec<Sent>> = BTreeMap::new();
    for connection in recorder::connections(capture) {
        let mut sent = [Sent::default(), Sent::default()];
        for (direction, heard) in connection.heard {
            let sent = &mut sent[direction.index()];
            match heard {
                Heard::Bytes(bytes) => {
                    sent.bytes.extend(bytes);
                    sent.gap |= std::mem::take(&mut sent.gap_behind);
                }
                Heard::Gap(_) => sent.gap_behind = true,
                Heard::End => {}
            }
        }
        let (first, second) = connection.ends;
        for (ends, sent) in [(first, second), (second, first)].into_iter().zip(sent) {
            all.entry(ends).or_default().push(sent);
        }
    }
    all
}

/// Connections that one run of tshark follows; it reads every packet for each.
const FOLLOWED_AT_ONCE: usize = 700;

/// Returns tshark's streams of all connections that carry bytes.
fn theirs(path: &Path) -> Vec<(Ends, [Sent; 2])> {
    let listed =
        tshark(path, &["-Y", "tcp.len > 0", "-T", "fields", "-e", "tcp.stream", "-E", "occurrence=a"]);
    let numbers = listed.split(['\n', ',']).filter_map(|number| number.parse().ok());
    let numbers: Vec<u32> = numbers.collect::<BTreeSet<_>>().into_iter().collect();
    let followed = |numbers: &&[u32]| {
        let follow = numbers.iter().map(|number| format!("follow,tcp,raw,{number}"));
        let arguments: Vec<_> = follow.flat_map(|follow| ["-z".to_owned(), follow]).collect();
        let text = tshark(path, &[&["-q".to_owned()][..], &arguments].concat());
        text.split("\nFollow: ").skip(1).filter_map(connection).collect::<Vec<_>>()
    };
    let batches: Vec<_> = numbers.chunks(FOLLOWED_AT_ONCE).collect();
    on_all_cores(&batches, followed).concat()
}

/// Runs tshark on a capture.
fn tshark(path: &Path, arguments: &[impl AsRef<OsStr>]) -> String {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(path);
    String::from_utf8_lossy(&command.args(arguments).output().unwrap().stdout).into_owned()
}

/// Parses tshark's output about one connection.
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

/// tshark's mark of missing bytes, after their number.
const MISSING: &[u8] = b" bytes missing in capture file]";

fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Captures that tshark reads differently, with the reason.
const EXCEPTIONS: [(&str, &str); 16] = [
    ("erspan.pcap", "it puts a tunnel's packets together from fragments"),
    ("fuzz-2006-06-26-2594.pcap", "it puts packets with damaged headers together"),
    ("gtp1_gn_normal_incl_fragmentation.pcap", "it puts a tunnel's packets together from fragments"),
    ("ipv4_fragmented-4.pcap", "it takes bytes that acknowledge nothing"),
    ("pppoe-over-qinq.pcap", PPPOE),
    (
        "ipv6-http-atomic-frag.pcap: [2001:db8:1::1]:80 -> [2001:db8:1::2]:45805",
        "it ends before damaged bytes are acknowledged",
    ),
    (
        "sites.pcapng: [2a04:4e42:c00::347]:443",
        "it ends before bytes are acknowledged that hardware has put together",
    ),
    (
        "sites.pcapng: [2001:67c:4e8:f004::9]:443 -> [2001:b07:a3d:c112:9a00:ba78:86b1:e177]:48594",
        "so it does",
    ),
    ("sites.pcapng: 52.113.194.132:443", "a FIN is missing in it that the last bytes acknowledge"),
    ("merged_mix.pcap: 173.199.115.168:80", "it puts a tunnel's packets together from fragments"),
    ("merged_mix.pcap: 194.226.199.", "it counts a FIN behind two bytes of payload as a byte"),
    ("merged_mix.pcap: [2001:4860:b002::68]:80", "it unpacks 6in4 within PPP"),
    ("merged_mix.pcap: [2001:4978:f:4c::2]:53382", "it unpacks 6in4 within PPP"),
    ("merged_mix.pcap: 172.16.0.211:49811", OFFLOADED),
    ("merged_mix.pcap: 172.16.0.211:49814", OFFLOADED),
    ("merged_mix.pcap: 2.2.2.2:443 -> 1.1.1.1:20394", PPPOE),
];

const PPPOE: &str = "the IP header of a packet is longer than its PPPoE header";
const OFFLOADED: &str = "a packet's IP header has no length, and it uses that of the frame";

/// Maximum number of streams with only the beginning here. Their captures lack the acknowledgments
/// of damaged segments, of segments joined by hardware, or of data after a reset, without which
/// these do not count.
const BEGINNINGS_MAX: usize = 24;

#[test]
fn streams_equal_those_that_tshark_follows() {
    let captures = traces::all();
    if captures.is_empty() || !traces::has_tool("tshark", "-v") {
        return;
    }
    let (mut compared, mut bytes, mut excepted, mut differing) = (0, 0, 0, Vec::new());
    let mut beginnings = 0;
    let mut needless: BTreeSet<_> = EXCEPTIONS.iter().map(|(which, _)| *which).collect();
    for capture in captures.iter().filter(|capture| capture.broken.is_none()) {
        if capture.records.iter().any(|record| record.wire_len as usize > record.data.len()) {
            continue; // Bytes cut off by the capture are a gap that tshark does not report.
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
                    let is_beginning = |heard: &Sent| !heard.gap && sent.bytes.starts_with(&heard.bytes);
                    match EXCEPTIONS.iter().find(|(which, _)| text.starts_with(which)) {
                        Some((which, _)) => {
                            excepted += 1;
                            needless.remove(which);
                        }
                        None if heard.iter().any(is_beginning) => beginnings += 1,
                        None => differing.push(text),
                    }
                }
            }
        }
    }
    println!(
        "{compared} streams, {bytes} bytes compared, {excepted} read otherwise by tshark, {beginnings} in part"
    );
    println!("{}", differing.join("\n"));
    assert!(compared > 4000 && differing.is_empty(), "{} streams differ", differing.len());
    assert!(beginnings <= BEGINNINGS_MAX, "{beginnings} streams in part");
    assert!(needless.is_empty(), "exceptions that are not needed: {needless:?}");
}

/// Describes how a stream of tshark differs from ours between the same endpoints.
fn difference(capture: &str, ends: Ends, heard: &[Sent], sent: &Sent) -> String {
    let mut text = format!("{capture}: {} -> {}: tshark has {} bytes", ends.0, ends.1, sent.bytes.len());
    for heard in heard {
        let same = heard.bytes.iter().zip(&sent.bytes).take_while(|(ours, theirs)| ours == theirs).count();
        let gap = if heard.gap { ", gaps" } else { "" };
        text += &format!("; we {}, {same} of them the same{gap}", heard.bytes.len());
    }
    text
}
