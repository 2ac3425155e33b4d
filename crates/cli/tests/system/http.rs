//! Transactions reported by `http` after reassembly, against tshark's requests and responses, for
//! every capture.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use packet::Endpoint;

use crate::run::{Told, run};
use crate::traces;

/// A connection: client and server.
type Ends = (SocketAddr, SocketAddr);

/// The compared fields: method, target and host of requests, status of responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Messages {
    requests: Vec<[String; 3]>,
    statuses: Vec<String>,
}

/// Captures that tshark reads differently, with the reason.
const EXCEPTIONS: [(&str, &str); 13] = [
    ("erspan.pcap", "here the directions of a connection, which come by two sessions, are two flows"),
    ("gtp1_gn_normal_incl_fragmentation.pcap: 10.131.47.185:1923", "it puts fragments together"),
    ("http_chunk.pcap: 192.168.62.91:53226", "the capture begins with the byte of a keep-alive"),
    ("http_methods.pcap: 128.2.6.136:46563", "it takes the version for the target that is missing"),
    ("http_methods.pcap: 128.2.6.136:46565", "a method alone is no request here"),
    ("merged_mix.pcap: 10.0.0.55:53994", "it begins with SOCKS"),
    ("merged_mix.pcap: 10.180.156.185:5353", "it begins with SOCKS"),
    ("merged_mix.pcap: 127.0.0.1:37904", "it begins with SOCKS"),
    ("merged_mix.pcap: 79.26.245.236:3378", "it takes the next single blank as the target's end"),
    ("merged_mix.pcap: 128.2.6.136:46563", "it takes the version for the target that is missing"),
    ("merged_mix.pcap: 128.2.6.136:46565", "a method alone is no request here"),
    ("merged_mix.pcap: 192.168.0.20:33684", "it takes the first of several blanks as the target's end"),
    ("merged_mix.pcap: [2001:4978:f:4c::2]:53382", "it unpacks 6in4 within PPP"),
];

/// Maximum number of requests and responses that only we report; tshark skips incomplete messages.
const SURPLUS_MAX: usize = 80;

#[test]
fn transactions_equal_those_of_tshark() {
    let captures = traces::all();
    if captures.is_empty() || !traces::has_tool("tshark", "-v") {
        return;
    }
    let (mut requests, mut connections, mut surplus, mut differing) = (0, 0, 0, Vec::new());
    let mut needless: BTreeSet<_> = EXCEPTIONS.iter().map(|(which, _)| *which).collect();
    for capture in captures.iter().filter(|capture| capture.broken.is_none()) {
        if !capture.records.iter().any(|record| holds_http(&record.data)) {
            continue; // Saves a slow run of tshark.
        }
        let theirs = theirs(&capture.path);
        if theirs.is_empty() {
            continue;
        }
        let policy = "Port<0> a; Port<1> b; settings { flows: 128k, key: inner }; HTTP h {}; pipelet { a <-> h <-> b; }";
        let ours = ours(&run(policy, &capture.records, runtime::BATCH).events);
        for (ends, messages) in theirs {
            connections += 1;
            requests += messages.requests.len();
            let told = ours.get(&ends).cloned().unwrap_or_default();
            if is_within(&messages.requests, &told.requests) && is_within(&messages.statuses, &told.statuses)
            {
                surplus += told.requests.len() + told.statuses.len();
                surplus -= messages.requests.len() + messages.statuses.len();
                continue;
            }
            let text = format!(
                "{}: {} -> {}\n  ours   {told:?}\n  theirs {messages:?}",
                capture.name, ends.0, ends.1
            );
            match EXCEPTIONS.iter().find(|(which, _)| text.starts_with(which)) {
                Some((which, _)) => drop(needless.remove(which)),
                None => differing.push(text),
            }
        }
    }
    println!("{requests} requests of {connections} connections compared, {surplus} more messages here");
    println!("{}", differing.join("\n"));
    assert!(requests > 400 && differing.is_empty(), "{} connections differ", differing.len());
    assert!(surplus <= SURPLUS_MAX);
    assert!(needless.is_empty(), "exceptions that are not needed: {needless:?}");
}

/// Returns whether `theirs` is a subsequence of `ours`.
fn is_within<T: PartialEq>(theirs: &[T], ours: &[T]) -> bool {
    let mut ours = ours.iter();
    theirs.iter().all(|wanted| ours.any(|told| told == wanted))
}

fn holds_http(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|window| window.eq_ignore_ascii_case(b"HTTP/"))
}

fn ours(events: &[Told]) -> BTreeMap<Ends, Messages> {
    let mut all: BTreeMap<Ends, Messages> = BTreeMap::new();
    for event in events {
        let field = |name: &str| {
            event
                .fields
                .get(name)
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                .unwrap_or_default()
        };
        let messages = all.entry((address(event.source), address(event.destination))).or_default();
        if event.fields.contains_key("http_method") {
            let port = field("http_port");
            let host =
                if port.is_empty() { field("hostname") } else { format!("{}:{port}", field("hostname")) };
            messages.requests.push([field("http_method"), field("url"), host]);
        }
        if event.fields.contains_key("status") {
            messages.statuses.push(field("status"));
        }
    }
    all
}

fn address(end: Endpoint) -> SocketAddr {
    SocketAddr::new(end.addr.ip(), end.port)
}

/// tshark's names of the fields, and separators that occur in no field.
const FIELDS: [&str; 11] = [
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "http.request.method",
    "http.request.uri",
    "http.host",
    "http.response.code",
    "tcp.stream",
];
const FIELD: &str = "\u{1e}";
const VALUE: &str = "\u{1f}";

fn theirs(path: &Path) -> BTreeMap<Ends, Messages> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-Y", "http && tcp", "-T", "fields", "-E", "occurrence=a"]);
    command.args(["-E", &format!("separator={FIELD}"), "-E", &format!("aggregator={VALUE}")]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.arg("-r").arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut all: BTreeMap<Ends, Messages> = BTreeMap::new();
    for row in text.lines() {
        let row: Vec<Vec<&str>> =
            row.split(FIELD).map(|field| field.split(VALUE).filter(|v| !v.is_empty()).collect()).collect();
        let innermost = |four: usize, six: usize| -> Option<std::net::IpAddr> {
            row[six].last().or(row[four].last())?.parse().ok()
        };
        let (Some(from), Some(to)) = (innermost(0, 2), innermost(1, 3)) else { continue };
        let (Some(source), Some(destination)) = (row[4].last(), row[5].last()) else { continue };
        let from = SocketAddr::new(from, source.parse().unwrap());
        let to = SocketAddr::new(to, destination.parse().unwrap());
        let (methods, urls, hosts) = (&row[6], &row[7], &row[8]);
        let of = |values: &Vec<&str>, i: usize| {
            values.get(i).map_or_else(String::new, |value| (*value).to_owned())
        };
        if !methods.is_empty() {
            let messages = all.entry((from, to)).or_default();
            messages.requests.extend((0..methods.len()).map(|i| [of(methods, i), of(urls, i), of(hosts, i)]));
        }
        // Interim responses are not transactions.
        let statuses = row[9].iter().filter(|status| !status.starts_with('1') || **status == "101");
        let statuses: Vec<_> = statuses.map(|status| (*status).to_owned()).collect();
        if !statuses.is_empty() {
            all.entry((to, from)).or_default().statuses.extend(statuses);
        }
    }
    all
}
