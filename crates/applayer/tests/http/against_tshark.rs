//! The messages of each HTTP capture of the collection equal those of tshark.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "../protocols/support/all_cores.rs"]
mod all_cores;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use all_cores::on_all_cores;
use applayer::http::{Exchange, ExchangeSide, FieldName, FixedLineBuffer, HeaderLine, HttpEvent, MessageEnd};

/// Connections that tshark parses differently, with the reason.
const EXCEPTIONS: [(&str, u32, &str); 15] = [
    (MIX, 2344, OUT_OF_ORDER),
    (MIX, 2345, OUT_OF_ORDER),
    (MIX, 2539, NO_TARGET),
    (MIX, 2543, NO_TARGET),
    (MIX, 2560, SOCKS),
    (MIX, 2655, BLANKS),
    (MIX, 2839, BLANKS),
    (MIX, 2975, SOCKS),
    (MIX, 2996, SOCKS),
    (MIX, 3033, SOCKS),
    (MIX, 3148, SOCKS),
    ("small/erspan.pcap", 0, CUT_BY_NTLM),
    ("small/http_chunk.pcap", 0, KEEP_ALIVE),
    ("small/http_methods.pcap", 1, NO_TARGET),
    ("small/http_methods.pcap", 3, NO_TARGET),
];

const MIX: &str = "workload/merged_mix.pcap";
/// Out-of-order segments keep tshark from reporting whole messages after them; its option for such
/// segments loses messages at gaps.
const OUT_OF_ORDER: &str = "tshark leaves out messages behind segments out of order";
/// `OPTIONS HTTP/1.1` has no target but a version here, a target but no version in tshark;
/// `OPTIONS` alone is not a request here.
const NO_TARGET: &str = "tshark takes the second word as the target";
/// The bytes of SOCKS before the first request and response are not HTTP here; tshark strips SOCKS.
const SOCKS: &str = "begins with SOCKS";
/// Several blanks between words, and a target of two words: here the target is the text between
/// method and version.
const BLANKS: &str = "tshark takes the next single blank as the target's end";
/// tshark stops reporting headers after WWW-Authenticate with NTLM.
const CUT_BY_NTLM: &str = "tshark lacks the headers behind WWW-Authenticate";
/// tshark puts the byte of a TCP keep-alive before the request when it follows the stream.
const KEEP_ALIVE: &str = "tshark takes a keep-alive's byte as sent";

/// With fewer messages compared, the test is void.
const MESSAGES_AT_LEAST: usize = 800;

/// The compared fields of a message, by tshark's names; missing fields are absent.
type Message = BTreeMap<&'static str, String>;

/// The messages of a capture by connection and direction, in order.
type Messages = BTreeMap<(u32, bool), Vec<Message>>;

/// Marks of our messages: a complete one, and one with a gap in or after it. tshark does not report
/// every incomplete message.
const WHOLE: &str = "whole";
const GAP: &str = "gap";

#[test]
fn messages_are_those_of_tshark() {
    let Some(traces) = traces() else { return };
    let (mut compared, mut connections, mut failures) = (0, 0, Vec::new());
    let mut excepted = Vec::new();
    let files = captures(&traces);
    let read = on_all_cores(&files, |file| messages_of(&traces.join(file)));
    for (file, (streams, theirs, ours)) in files.iter().zip(&read) {
        connections += streams;
        for (key, theirs) in theirs {
            let ours = ours.get(key).map_or(&[][..], Vec::as_slice);
            compared += theirs.len();
            if agree(ours, theirs) {
                continue;
            }
            match EXCEPTIONS.iter().find(|(f, stream, _)| (*f, *stream) == (file.as_str(), key.0)) {
                Some(exception) => excepted.push(*exception),
                None => failures.push(difference(file, *key, ours, theirs)),
            }
        }
    }
    println!("compared {compared} messages of {connections} connections with tshark's");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert!(compared >= MESSAGES_AT_LEAST);
    let needless: Vec<_> = EXCEPTIONS.iter().filter(|exception| !excepted.contains(exception)).collect();
    assert!(needless.is_empty(), "no exceptions any more: {needless:?}");
}

/// Returns whether all of tshark's messages are among ours, in order, and all our complete ones
/// among tshark's.
fn agree(ours: &[Message], theirs: &[Message]) -> bool {
    let mut theirs = theirs.iter().peekable();
    for message in ours {
        let mut fields = message.clone();
        let (ended, gap) = (fields.remove(WHOLE).is_some(), fields.remove(GAP).is_some());
        if theirs.next_if_eq(&&fields).is_none() && ended && !gap {
            return false;
        }
    }
    theirs.next().is_none()
}

fn difference(file: &str, key: (u32, bool), ours: &[Message], theirs: &[Message]) -> String {
    let list = |messages: &[Message]| messages.iter().map(|m| format!("\n    {m:?}")).collect::<String>();
    format!("{file} {key:?}:\n  here{}\n  there{}", list(ours), list(theirs))
}

fn traces() -> Option<PathBuf> {
    let shared = std::env::var_os("RIVULET_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let traces = shared.join("traces");
    if !traces.join("MANIFEST.tsv").is_file() {
        return skip(&format!("no captures at {}", traces.display()));
    }
    if Command::new("tshark").arg("-v").output().is_err() {
        return skip("tshark is not installed");
    }
    Some(traces)
}

fn skip(why: &str) -> Option<PathBuf> {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("SKIPPED: {why}");
    None
}

/// Returns the captures that contain HTTP's name, the largest first.
fn captures(traces: &Path) -> Vec<String> {
    let manifest = std::fs::read_to_string(traces.join("MANIFEST.tsv")).unwrap();
    let files = manifest.lines().skip(1).filter_map(|line| line.split('\t').next());
    let holds_http = |file: &&str| {
        let bytes = std::fs::read(traces.join(file)).unwrap();
        ["HTTP/", "GET "].iter().any(|text| memchr::memmem::find(&bytes, text.as_bytes()).is_some())
    };
    let mut files: Vec<_> = files.filter(holds_http).map(str::to_owned).collect();
    files.sort_by_key(|file| Reverse(std::fs::metadata(traces.join(file)).unwrap().len()));
    files
}

/// Returns the number of connections in tshark's output of a capture, their messages in tshark, and
/// ours.
fn messages_of(path: &Path) -> (usize, Messages, Messages) {
    let theirs = tshark_messages(path);
    let mut streams: Vec<_> = theirs.keys().map(|(stream, _)| *stream).collect();
    streams.dedup();
    let ours = if streams.is_empty() { Messages::new() } else { our_messages(path, &streams) };
    (streams.len(), theirs, ours)
}

/// The compared fields of tshark.
const FIELDS: [&str; 10] = [
    "http.request.method",
    "http.request.uri",
    "http.request.version",
    "http.response.version",
    "http.response.code",
    "http.response.phrase",
    "http.host",
    "http.user_agent",
    "http.content_type",
    "http.content_length_header",
];

fn tshark(path: &Path, arguments: &[String]) -> String {
    let output = Command::new("tshark").arg("-r").arg(path).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn tshark_messages(path: &Path) -> Messages {
    let arguments = ["-Y", "http && tcp", "-T", "pdml", "-J", "tcp http"].map(str::to_owned);
    let mut messages = Messages::new();
    let (mut stream, mut message) = (0, None::<Message>);
    let mut end = |stream, message: &mut Option<Message>| {
        let Some(message) = message.take() else { return };
        let is_request = message.contains_key("http.request.method");
        if is_request || message.contains_key("http.response.code") {
            messages.entry((stream, is_request)).or_default().push(message);
        }
    };
    for line in tshark(path, &arguments).lines().map(str::trim_start) {
        if line.starts_with("<proto name=") || line.starts_with("</packet>") {
            end(stream, &mut message);
            message = line.starts_with("<proto name=\"http\"").then(Message::new);
            continue;
        }
        let Some(name) = attribute(line, "<field name") else { continue };
        if name == "tcp.stream" {
            stream = attribute(line, "show").unwrap().parse().unwrap();
        }
        if let (Some(field), Some(message)) = (FIELDS.iter().find(|f| **f == name), &mut message) {
            // The parts of a start line also come as bytes; the bytes of a header are its whole
            // line.
            let value = match name.starts_with("http.re") {
                true => attribute(line, "value").map(|hex| text(&unhex(&hex))),
                false => attribute(line, "show"),
            };
            insert(message, field, value.unwrap_or_default());
        }
    }
    messages
}

/// Returns an XML attribute as plain text.
fn attribute(line: &str, name: &str) -> Option<String> {
    let start = line.find(&format!("{name}=\""))? + name.len() + 2;
    let value = line[start..].split('"').next()?;
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&amp;", "&")];
    Some(plain.iter().fold(value.to_owned(), |value, (from, to)| value.replace(from, to)))
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses tshark's bytes of these connections.
fn our_messages(path: &Path, streams: &[u32]) -> Messages {
    let mut arguments = vec!["-q".to_owned()];
    arguments.extend(streams.iter().flat_map(|stream| ["-z".to_owned(), format!("follow,tcp,raw,{stream}")]));
    let followed = tshark(path, &arguments);
    let mut messages = Messages::new();
    for connection in followed.split("Filter: tcp.stream eq ").skip(1) {
        let mut lines = connection.lines();
        let stream = lines.next().unwrap().trim().parse().unwrap();
        let pieces: Vec<_> = lines
            .take_while(|line| !line.starts_with('='))
            .filter(|line| !line.starts_with("Node"))
            .map(|line| (line.starts_with('\t'), unhex(line.trim())))
            .collect();
        for (is_request, reported) in read(&pieces) {
            messages.insert((stream, is_request), reported);
        }
    }
    messages
}

/// Parses the pieces of a connection; the direction that begins like a server is the server's.
fn read(pieces: &[(bool, Vec<u8>)]) -> [(bool, Vec<Message>); 2] {
    let first = |node| pieces.iter().find(|(from, _)| *from == node).map_or(&[][..], |(_, bytes)| bytes);
    let server = !first(false).starts_with(b"HTTP/");
    let mut exchange = Exchange::default();
    let mut lines = [(); 2].map(|()| FixedLineBuffer::<8192>::default());
    let mut reported = [Vec::new(), Vec::new()];
    for (node, bytes) in pieces {
        let side = if *node == server { ExchangeSide::Response } else { ExchangeSide::Request };
        let (line, reported) = (&mut lines[side as usize], &mut reported[side as usize]);
        let mut sink = |event: HttpEvent<'_>| note(reported, event);
        match (missing(bytes), side) {
            (Some(len), _) => exchange.gap(side, len, line, &mut sink),
            (None, ExchangeSide::Request) => exchange.request(bytes, line, &mut sink),
            (None, ExchangeSide::Response) => exchange.response(bytes, line, &mut sink),
        }
    }
    let [requests, responses] = reported;
    [(true, requests), (false, responses)]
}

/// Returns the length of a gap in tshark's notation.
fn missing(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?.strip_prefix('[')?;
    text.strip_suffix(" bytes missing in capture file]\0")?.parse().ok()
}

fn note(reported: &mut Vec<Message>, event: HttpEvent<'_>) {
    match event {
        HttpEvent::Request(r) => reported.push(message([
            ("http.request.method", r.name),
            ("http.request.uri", r.target),
            ("http.request.version", r.protocol),
        ])),
        HttpEvent::Response(r) => reported.push(message([
            ("http.response.version", r.protocol),
            ("http.response.code", r.code),
            ("http.response.phrase", r.reason),
        ])),
        HttpEvent::Header(header) => {
            if let (Some(field), Some(message)) = (tshark_name(&header), reported.last_mut()) {
                insert(message, field, text(header.value));
            }
        }
        HttpEvent::Gap(_) => drop(reported.last_mut().map(|message| message.insert(GAP, String::new()))),
        HttpEvent::End(MessageEnd::Complete) => {
            drop(reported.last_mut().map(|message| message.insert(WHOLE, String::new())))
        }
        _ => {}
    }
}

/// Adds a header. A repeated one counts once, and empty values do not count.
fn insert(message: &mut Message, field: &'static str, value: String) {
    if !value.is_empty() {
        message.entry(field).or_insert(value);
    }
}

fn message(words: [(&'static str, &[u8]); 3]) -> Message {
    let mut message = Message::new();
    words.into_iter().for_each(|(field, word)| insert(&mut message, field, text(word)));
    message
}

fn tshark_name(header: &HeaderLine<'_>) -> Option<&'static str> {
    match header.field {
        FieldName::Host => Some("http.host"),
        FieldName::UserAgent => Some("http.user_agent"),
        FieldName::ContentType => Some("http.content_type"),
        FieldName::ContentLength => Some("http.content_length_header"),
        _ => None,
    }
}
