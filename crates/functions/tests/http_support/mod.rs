//! HTTP over TCP through a graph: connections built segment by segment.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

pub mod conversations;
pub mod moving;

use nf::CounterValues;
use packet::{Endpoint, Side};
use serde_json::Value;

pub use crate::meter_support::*;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// Initial sequence numbers of client and server, near the wrap-around.
const FIRST: [u32; 2] = [u32::MAX - 30, 900];

/// The sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Client,
    Server,
}

pub use Who::{Client, Server};

/// A connection that is built segment by segment.
#[derive(Clone)]
pub struct Talk {
    pub client: Endpoint,
    pub server: Endpoint,
    next: [u32; 2],
    at_ns: u64,
    /// True if its SYNs offer windows for everything; otherwise 8 KiB may be in flight.
    is_scaled: bool,
    pub segments: Vec<Arrival>,
}

impl Talk {
    /// Opens a connection to this port.
    pub fn open(port: u16) -> Talk {
        let mut talk = Talk::midstream(port);
        talk.handshake();
        talk
    }

    /// Opens a connection by TCP Fast Open (RFC 7413): bytes come with the client's SYN, and the
    /// server takes them, or leaves them to be sent again.
    pub fn open_fast(port: u16, bytes: &[u8], is_taken: bool) -> Talk {
        let mut talk = Talk::midstream(port);
        talk.segment(Client, SYN, bytes);
        talk.pass(Client, if is_taken { 1 + bytes.len() } else { 1 });
        talk.segment(Server, SYN | ACK, b"");
        talk.pass(Server, 1);
        talk.segment(Client, ACK, b"");
        talk
    }

    /// Creates a connection without a visible handshake.
    pub fn midstream(port: u16) -> Talk {
        Talk::between(v4(10, 0, 0, 1, 40_000), v4(192, 0, 2, 1, port))
    }

    /// Creates a connection between these endpoints.
    pub fn between(client: Endpoint, server: Endpoint) -> Talk {
        Talk { client, server, next: FIRST, at_ns: SECOND_NS, is_scaled: false, segments: vec![] }
    }

    /// Gives both ends windows for everything.
    pub fn scaled(self) -> Talk {
        Talk { is_scaled: true, ..self }
    }

    pub fn handshake(&mut self) {
        self.segment(Client, SYN, b"");
        self.next[0] = self.next[0].wrapping_add(1);
        self.segment(Server, SYN | ACK, b"");
        self.next[1] = self.next[1].wrapping_add(1);
        self.segment(Client, ACK, b"");
    }

    /// Opens a new connection on the same ports.
    pub fn reopen(&mut self) {
        self.next = self.next.map(|next| next.wrapping_add(1_000_000));
        self.handshake();
    }

    pub fn says(&mut self, who: Who, bytes: impl AsRef<[u8]>) -> &mut Talk {
        let bytes = bytes.as_ref();
        self.segment(who, ACK, bytes);
        self.pass(who, bytes.len())
    }

    pub fn piece(&mut self, who: Who, bytes: &[u8]) {
        self.says(who, bytes);
    }

    /// Retransmits the last bytes.
    pub fn again(&mut self, who: Who, bytes: impl AsRef<[u8]>) -> &mut Talk {
        let next = &mut self.next[who as usize];
        *next = next.wrapping_sub(bytes.as_ref().len() as u32);
        self.says(who, bytes)
    }

    /// Skips bytes, which are never seen.
    pub fn loses(&mut self, who: Who, len: usize) -> &mut Talk {
        self.pass(who, len)
    }

    pub fn closes(&mut self, who: Who) -> &mut Talk {
        self.segment(who, FIN | ACK, b"");
        self.pass(who, 1)
    }

    pub fn resets(&mut self, who: Who) -> &mut Talk {
        self.segment(who, RST | ACK, b"");
        self
    }

    /// Sends decoy bytes at the current position of the stream, in a segment with these flags and
    /// an acknowledgement number that is off by this much. The stream does not advance.
    pub fn decoys(&mut self, who: Who, flags: u8, away: u32, bytes: impl AsRef<[u8]>) -> &mut Talk {
        let next = self.next;
        self.next[1 - who as usize] = next[1 - who as usize].wrapping_add(away);
        self.segment(who, flags, bytes.as_ref());
        self.next = next;
        self
    }

    /// Corrupts a byte of the last segment, counted from the TCP header, without adjusting the
    /// checksum.
    pub fn damages(&mut self, at: usize) -> &mut Talk {
        let network = &mut self.segments.last_mut().unwrap().network;
        let l4 = if network[0] >> 4 == 4 { 20 } else { 40 };
        network[l4 + at] ^= 0xff;
        self
    }

    /// Forges a segment, with a sequence number that is off by this much.
    pub fn forges(&mut self, who: Who, flags: u8, away: u32) -> &mut Talk {
        let next = self.next;
        self.next[who as usize] = next[who as usize].wrapping_add(away);
        self.segment(who, flags, b"");
        self.next = next;
        self
    }

    fn pass(&mut self, who: Who, len: usize) -> &mut Talk {
        let next = &mut self.next[who as usize];
        *next = next.wrapping_add(len as u32);
        self
    }

    fn segment(&mut self, who: Who, flags: u8, bytes: &[u8]) {
        self.at_ns += MS_NS;
        let (from, to, mine, side) = match who {
            Client => (self.client, self.server, 0, Side::Inside),
            Server => (self.server, self.client, 1, Side::Outside),
        };
        let numbers = [self.next[mine], self.next[1 - mine]];
        let network = match self.is_scaled && flags & SYN != 0 {
            false => tcp_segment(from, to, flags, numbers, bytes),
            true => tcp_syn_scaled(from, to, flags, numbers),
        };
        self.segments.push(Arrival { at_ns: self.at_ns, side, network });
    }
}

/// Builds a connection with these turns.
pub fn talk(said: &[(Who, &str)]) -> Talk {
    let mut talk = Talk::open(80);
    for (who, text) in said {
        talk.says(*who, text);
    }
    talk
}

/// The result of a run.
pub struct Run {
    /// Events and alerts, one per line: `GET example.org/a HTTP/1.1 -> 200 text/html 5`, or an
    /// alert's signature.
    pub reported: Vec<String>,
    /// Packets that left.
    pub sent: usize,
    pub drops: Vec<(&'static str, u64)>,
    pub bench: Bench,
}

/// Sends segments through `http` one by one, and ends all flows.
pub fn run(config: Value, segments: &[Arrival]) -> Run {
    let mut bench = bench("http", &config);
    segments.iter().for_each(|segment| bench.batch(std::slice::from_ref(segment)));
    end(bench)
}

/// Ends all flows.
pub fn end(mut bench: Bench) -> Run {
    let sent = bench.sent.len();
    assert!(bench.graph.finish(&mut bench.pool));
    bench.batch(&[]);
    let buffers = bench.graph.stages()[0].shared().buffers.as_ref().unwrap();
    assert_eq!((buffers.used_bytes(), buffers.refused_bytes()), (0, 0));
    let reported = bench.told.iter().map(|line| brief(line)).collect();
    Run { reported, sent, drops: bench.drops(), bench }
}

impl Run {
    pub fn counter(&self, name: &str) -> u64 {
        counter(&self.bench, name)
    }

    /// Returns all counters. None of them depends on the number of packets.
    pub fn counters(&self) -> &CounterValues {
        &self.bench.graph.stages()[0].shared().counters
    }

    /// Returns the nonzero counters of anomalies.
    pub fn anomalies(&self) -> Vec<String> {
        let counted = self.counters().iter().filter(|counter| counter.count > 0);
        let labels = counted.filter_map(|counter| counter.label);
        labels.filter(|(declared, _)| declared.label == "anomaly").map(|(_, name)| name.to_owned()).collect()
    }
}

/// Abbreviates a line.
pub fn brief(line: &str) -> String {
    if let Some(alert) = line.split("signature: \"").nth(1) {
        return format!("! {}", alert.split('"').next().unwrap());
    }
    let field = |name: &str| {
        let value = line.split(&format!(" {name}=")).nth(1)?;
        // A text extends to the next field.
        let end = value.match_indices(' ').map(|(at, _)| at).find(|&at| {
            value[at + 1..]
                .split_once('=')
                .is_some_and(|(name, _)| !name.contains(' ') && NAMES.contains(&name))
        });
        Some(value[..end.unwrap_or(value.len())].to_owned())
    };
    let words = ["http_method", "hostname", "http_port", "url", "protocol", "http_user_agent", "http_refer"];
    let request: Vec<_> = words.iter().filter_map(|name| field(name)).collect();
    let answer: Vec<_> =
        ["status", "http_content_type", "length"].iter().filter_map(|name| field(name)).collect();
    if answer.is_empty() {
        request.join(" ")
    } else {
        format!("{} -> {}", request.join(" "), answer.join(" "))
    }
}

const NAMES: [&str; 10] = [
    "hostname",
    "http_port",
    "url",
    "http_user_agent",
    "http_content_type",
    "http_refer",
    "http_method",
    "protocol",
    "status",
    "length",
];
