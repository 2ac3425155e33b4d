//! HTTP messages in the reassembled streams, against tshark's for every capture: start lines,
//! header lines and bodies, byte for byte and in order. Both undo the chunked coding and keep
//! content codings.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

use applayer::http::{Exchange, ExchangeSide, FixedLineBuffer, HttpEvent, MessageEnd};
use packet::Direction;

use crate::all_cores::on_all_cores;
use crate::recorder::{self, Connection, Ends, Heard};
use crate::traces;

/// A message.
#[derive(Clone, Default, PartialEq, Eq)]
struct Message {
    /// Start line and header lines.
    lines: Vec<Vec<u8>>,
    /// Body without the chunked coding.
    body: Vec<u8>,
    /// Lines of the trailers.
    trailers: Vec<Vec<u8>>,
}

/// A message that we read, whether bytes are missing, and whether it is complete without a gap.
#[derive(Default)]
struct Read {
    message: Message,
    gap: bool,
    whole: bool,
}

/// Messages by sender and receiver.
type Messages<M> = BTreeMap<Ends, Vec<M>>;

/// Captures that tshark reads differently, with the reason.
const EXCEPTIONS: [(&str, &str); 24] = [
    ("AH-IPcomp-IPv4.pcap", "it unpacks IPComp"),
    ("erspan.pcap", "here the directions of a connection, which come by two sessions, are two flows"),
    ("gtp1_gn_normal_incl_fragmentation.pcap: 10.131.47.185:1923", FRAGMENTS),
    ("http_261_variant-04-te_cl_desync.pcap", BOTH),
    ("http_chunk.pcap: 192.168.62.91:53226", "the capture begins with the byte of a keep-alive"),
    ("http_methods.pcap: 128.2.6.136:46565", "a method alone is no request here"),
    ("sll.pcap", "it reports the captured part of a line"),
    ("vlan-collisions.pcap", "it takes one connection in several VLANs for one"),
    ("vxlan-overlapping-http-get.pcap", "it takes one connection in several VXLANs for one"),
    ("merged_mix.pcap: 10.0.0.55:53994", SOCKS),
    ("merged_mix.pcap: 10.102.0.2:80 -> 10.101.0.2:28501", BOTH),
    ("merged_mix.pcap: 10.180.156.", SOCKS),
    ("merged_mix.pcap: 54.175.219.8:80", "segments that hardware put together are not acknowledged in it"),
    ("merged_mix.pcap: 60.190.189.214:8124", SOCKS),
    ("merged_mix.pcap: 79.26.245.236:3378", "it stops at a header without a colon"),
    ("merged_mix.pcap: 93.188.134.246:80", "it leaves out messages behind segments out of order"),
    ("merged_mix.pcap: 125.190.109.199:80", TWICE),
    ("merged_mix.pcap: 127.0.0.1:", SOCKS),
    ("merged_mix.pcap: 128.2.6.136:46565", "a method alone is no request here"),
    ("merged_mix.pcap: 141.42.64.125:56730", TWICE),
    ("merged_mix.pcap: 173.199.115.168:80", FRAGMENTS),
    ("merged_mix.pcap: 141.142.228.5:59856", "it takes one connection in several networks for one"),
    ("merged_mix.pcap: 192.150.187.43:80", "it takes one connection in several networks for one"),
    ("merged_mix.pcap: [2001:4", "it unpacks 6in4 within PPP"),
];

const BOTH: &str = "it shows neither Content-Length nor body beside a Transfer-Encoding";
const FRAGMENTS: &str = "it reassembles a tunnel's packets from fragments";
const TWICE: &str = "the same connection occurs twice, which it takes for retransmissions";
const SOCKS: &str = "it begins with SOCKS";

#[test]
fn messages_equal_those_of_tshark_byte_for_byte() {
    let captures = traces::all();
    if captures.is_empty() || !traces::has_tool("tshark", "-v") {
        return;
    }
    let captures: Vec<_> = captures.iter().filter(|capture| capture.broken.is_none()).collect();
    let theirs = on_all_cores(&captures, |capture| theirs(&capture.path));
    let (mut messages, mut bytes, mut differing) = (0, 0, Vec::new());
    let mut needless: BTreeSet<_> = EXCEPTIONS.iter().map(|(which, _)| *which).collect();
    for (capture, theirs) in captures.iter().zip(theirs).filter(|(_, theirs)| !theirs.is_empty()) {
        let ours = ours(&recorder::connections(capture));
        for (ends, theirs) in theirs {
            messages += theirs.len();
            bytes += theirs.iter().map(|message| message.body.len()).sum::<usize>();
            let ours = ours.get(&ends).map_or(&[][..], Vec::as_slice);
            if agree(ours, &theirs) {
                continue;
            }
            let text = difference(&capture.name, ends, ours, &theirs);
            match EXCEPTIONS.iter().find(|(which, _)| text.starts_with(which)) {
                Some((which, _)) => drop(needless.remove(which)),
                None => differing.push(text),
            }
        }
    }
    println!("{messages} messages with {bytes} bytes of bodies compared");
    println!("{}", differing.join("\n"));
    assert!(messages > 800 && differing.is_empty(), "{} directions differ", differing.len());
    assert!(needless.is_empty(), "exceptions that are not needed: {needless:?}");
}

/// Returns whether we read all of tshark's messages in order, and it reads all complete ones of
/// ours.
fn agree(ours: &[Read], theirs: &[Message]) -> bool {
    let mut theirs = theirs.iter().peekable();
    let surplus = |read: &Read| theirs.next_if_eq(&&read.message).is_none() && read.whole;
    !ours.iter().any(surplus) && theirs.next().is_none()
}

/// Describes the first differing message.
fn difference(capture: &str, ends: Ends, ours: &[Read], theirs: &[Message]) -> String {
    let place = ours.iter().zip(theirs).take_while(|(ours, theirs)| ours.message == **theirs).count();
    let show = |message: Option<&Message>| match message {
        None => "none".to_owned(),
        Some(message) => {
            let lines: Vec<_> = message.lines.iter().map(|line| line.escape_ascii().to_string()).collect();
            let begins = message.body[..message.body.len().min(40)].escape_ascii();
            format!("{lines:?}, {} bytes: {begins}, {} trailers", message.body.len(), message.trailers.len())
        }
    };
    let (ours, theirs) = (ours.get(place).map(|read| &read.message), theirs.get(place));
    format!(
        "{capture}: {} -> {}: message {place}\n  ours   {}\n  theirs {}",
        ends.0,
        ends.1,
        show(ours),
        show(theirs)
    )
}

/// Reads connections: the first sender of `HTTP/` is the server, otherwise the responder.
fn ours(connections: &[Connection]) -> Messages<Read> {
    let mut all = Messages::new();
    for connection in connections {
        let first = |direction| {
            let of = connection.heard.iter().find_map(|(from, heard)| match heard {
                Heard::Bytes(bytes) if *from == direction => Some(&bytes[..]),
                _ => None,
            });
            of.unwrap_or_default()
        };
        let turned = first(Direction::Original).starts_with(b"HTTP/");
        let client = if turned { Direction::Reply } else { Direction::Original };
        let mut exchange = Exchange::default();
        let mut lines = [(); 2].map(|()| FixedLineBuffer::<16384>::default());
        let mut read = [Vec::new(), Vec::new()];
        for (direction, heard) in &connection.heard {
            let side = if *direction == client { ExchangeSide::Request } else { ExchangeSide::Response };
            let (line, read) = (&mut lines[direction.index()], &mut read[direction.index()]);
            let mut sink = |event: HttpEvent<'_>| note(read, event);
            match (heard, side) {
                (Heard::Bytes(bytes), ExchangeSide::Request) => exchange.request(bytes, line, &mut sink),
                (Heard::Bytes(bytes), ExchangeSide::Response) => exchange.response(bytes, line, &mut sink),
                (Heard::Gap(len), _) => exchange.gap(side, *len, line, &mut sink),
                (Heard::End, _) => exchange.end(side, line, &mut sink),
            }
        }
        let (first, second) = connection.ends;
        for (ends, read) in [(first, second), (second, first)].into_iter().zip(read) {
            all.entry(ends).or_insert_with(Vec::new).extend(read);
        }
    }
    all
}

fn note(read: &mut Vec<Read>, event: HttpEvent<'_>) {
    match event {
        HttpEvent::Request(line) => read.push(begun(line.raw)),
        HttpEvent::Response(line) => read.push(begun(line.raw)),
        _ => {}
    }
    let Some(Read { message, gap, whole }) = read.last_mut() else { return };
    match event {
        HttpEvent::Header(header) => message.lines.extend(lines(header.raw)),
        HttpEvent::Trailer(trailer) => message.trailers.extend(lines(trailer.raw)),
        HttpEvent::Body(bytes) => message.body.extend_from_slice(bytes),
        HttpEvent::Gap(_) => *gap = true,
        HttpEvent::End(end) => *whole = end == MessageEnd::Complete && !*gap,
        _ => {}
    }
}

fn begun(line: &[u8]) -> Read {
    Read { message: Message { lines: lines(line).collect(), ..Message::default() }, ..Read::default() }
}

/// Splits lines and trims them; a folded header has several.
fn lines(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    bytes.trim_ascii_end().split(|&byte| byte == b'\n').map(|line| line.trim_ascii_end().to_vec())
}

/// Reads tshark's messages from its XML, where each field has its bytes.
fn theirs(path: &Path) -> Messages<Message> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-o", "http.decompress_body:FALSE", "-Y", "http && tcp"]);
    command.args(["-T", "pdml", "-J", "ip ipv6 tcp http", "-r"]).arg(path);
    let text = command.output().unwrap().stdout;
    let text = String::from_utf8_lossy(&text);
    let mut all = Messages::new();
    let mut addresses: [Option<IpAddr>; 2] = [None; 2];
    let mut ports = [0; 2];
    let mut message: Option<(Message, bool)> = None;
    for tag in text.split('<') {
        if tag.starts_with("proto ") || tag.starts_with("/packet>") {
            if let (Some((message, true)), [Some(from), Some(to)]) = (message.take(), addresses) {
                let ends = (SocketAddr::new(from, ports[0]), SocketAddr::new(to, ports[1]));
                all.entry(ends).or_insert_with(Vec::new).push(message);
            }
            message = tag.starts_with("proto name=\"http\"").then(Default::default);
            continue;
        }
        let Some(name) = tag.starts_with("field ").then(|| attribute(tag, "name")).flatten() else {
            continue;
        };
        let shown = || attribute(tag, "show").unwrap_or_default();
        let bytes = || unhex(attribute(tag, "value").unwrap_or_default());
        match (name, &mut message) {
            ("ip.src" | "ipv6.src", _) => addresses[0] = shown().parse().ok(),
            ("ip.dst" | "ipv6.dst", _) => addresses[1] = shown().parse().ok(),
            ("tcp.srcport", _) => ports[0] = shown().parse().unwrap(),
            ("tcp.dstport", _) => ports[1] = shown().parse().unwrap(),
            ("", Some((message, _))) if message.lines.is_empty() => message.lines.extend(lines(&bytes())),
            ("", Some((message, _))) if shown().starts_with(ENCODED) => message.body = bytes(),
            ("http.request.method" | "http.response.code", Some((_, begins))) => *begins = true,
            ("http.request.line" | "http.response.line", Some((message, _))) => {
                message.lines.extend(lines(&bytes()))
            }
            ("http.chunked_trailer_part", Some((message, _))) => message.trailers.extend(lines(&bytes())),
            ("http.file_data", Some((message, _))) => message.body = bytes(),
            _ => {}
        }
    }
    all
}

/// tshark's name of a body that it leaves encoded.
const ENCODED: &str = "Content-encoded entity body";

/// Returns an attribute of a tag.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = tag.split_once(&format!(" {name}=\""))?;
    behind.split('"').next()
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
