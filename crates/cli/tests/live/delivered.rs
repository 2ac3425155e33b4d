//! Streams to a native program, which is this process: it gets each byte once and in order, and its
//! answers take effect (E23).

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use io::port::{Interface, PortSpec, TransmitBurst};

use crate::net::{Io, Network, wait_until};

/// Speaks TCP by hand to a server that stores what it gets: segments in a wrong order, repeated,
/// and overlapping.
const SPEAK: &str = r"
import random, socket, struct, sys
def total(data):
    data += bytes(len(data) % 2)
    sum_ = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while sum_ >> 16:
        sum_ = (sum_ & 0xffff) + (sum_ >> 16)
    return struct.pack('!H', sum_ ^ 0xffff)
source, target = socket.inet_aton('10.7.0.1'), socket.inet_aton('10.7.0.2')
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
s.settimeout(5)
def send(seq, ack, flags, data=b''):
    tcp = struct.pack('!HHIIBBHHH', 4321, 90, seq & 0xffffffff, ack & 0xffffffff, 0x50, flags, 0xffff, 0, 0) + data
    pseudo = source + target + struct.pack('!BBH', 0, 6, len(tcp))
    s.sendto(tcp[:16] + total(pseudo + tcp) + tcp[18:], ('10.7.0.2', 0))
send(999, 0, 2)
while True:
    answer = s.recv(2000)
    if answer[20:24] == struct.pack('!HH', 90, 4321) and answer[33] & 0x12 == 0x12:
        break
ack = struct.unpack('!I', answer[24:28])[0] + 1
send(1000, ack, 0x10)
data = open(sys.argv[1], 'rb').read()
pieces = [(at, 700) for at in range(0, len(data), 700)]
random.seed(7)
pieces += [(random.randrange(len(data)), random.randrange(1, 1400)) for _ in range(30)]
random.shuffle(pieces)
for at, size in pieces:
    send(1000 + at, ack, 0x18, data[at:at + size])
send(1000 + len(data), ack, 0x11)
";

/// Stores what a connection brings.
const STORE: &str = r"
import socket, sys
s = socket.create_server(('0.0.0.0', 90))
c, _ = s.accept()
data = b''
while True:
    more = c.recv(65536)
    if not more:
        break
    data += more
open(sys.argv[1] + '.new', 'wb').write(data)
import os
os.rename(sys.argv[1] + '.new', sys.argv[1])
";

/// The streams of the program: by flow and direction, with the flow's server port.
#[derive(Debug, Default)]
struct Heard {
    bytes: BTreeMap<(u64, bool), Vec<u8>>,
    servers: BTreeMap<u64, u16>,
    counts: BTreeMap<u64, u32>,
    closed: Vec<(u64, bool)>,
}

impl Heard {
    /// Takes a frame, and returns the flow of new bytes.
    fn take(&mut self, frame: &[u8]) -> Option<u64> {
        assert_eq!(frame[12..15], [0x88, 0xb5, 1]);
        let number = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap());
        let (flags, flow, offset) = (frame[15], number(22), number(30));
        let count = u32::from_be_bytes(frame[18..22].try_into().unwrap());
        let expected = self.counts.entry(flow).or_default();
        *expected += 1;
        assert_eq!(count, *expected, "no frame is lost");
        let len = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let (data, is_reply) = (&frame[38..38 + len], flags & 0x80 != 0);
        match flags & 0x7f {
            0 => {
                let bytes = self.bytes.entry((flow, is_reply)).or_default();
                assert_eq!(bytes.len() as u64, offset, "in order");
                bytes.extend_from_slice(data);
                return Some(flow);
            }
            1 => drop(self.servers.insert(flow, u16::from_be_bytes([data[4], data[5]]))),
            2 => self.closed.push((flow, is_reply)),
            8 | 16 => {}
            other => panic!("{other}"),
        }
        None
    }

    /// Returns the bytes of each flow to this port of servers.
    fn of_server(&self, port: u16, is_reply: bool) -> Vec<&[u8]> {
        let flows = self
            .bytes
            .iter()
            .filter(|((flow, reply), _)| *reply == is_reply && self.servers.get(flow) == Some(&port));
        flows.map(|(_, bytes)| &bytes[..]).collect()
    }
}

/// A program that receives streams, on a thread of this process.
struct Listener {
    heard: Arc<Mutex<Heard>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Returns an answer of the program.
fn answer(kind: u8, flow: u64, value: u64) -> Vec<u8> {
    let head = [&[2, 0x52, 0x56, 1, 0, 1, 2, 0x52, 0x56, 1, 0, 2, 0x88, 0xb5, 1, kind][..], &[0; 6]].concat();
    [&head[..], &flow.to_be_bytes(), &value.to_be_bytes(), &[0; 22]].concat()
}

impl Listener {
    /// Starts a program that refuses flows with the text `forbidden`, and sets attributes of flows
    /// with the text `special`.
    fn start(socket: &str) -> Listener {
        let (heard, stop) = (Arc::new(Mutex::new(Heard::default())), Arc::new(AtomicBool::new(false)));
        let (its, is_over) = (Arc::clone(&heard), Arc::clone(&stop));
        let spec: PortSpec = format!("memif:{socket},role=client").parse().unwrap();
        let thread = std::thread::spawn(move || {
            let mut port = Interface::open(&spec).unwrap();
            let mut burst = TransmitBurst::default();
            while !is_over.load(Ordering::Relaxed) {
                let _ = port.reopen();
                let _ = port.receive(|frame| {
                    let mut heard = its.lock().unwrap();
                    let Some(flow) = heard.take(frame) else { return };
                    let says = |word: &[u8]| {
                        let said = &heard.bytes.get(&(flow, false));
                        said.is_some_and(|said| said.windows(word.len()).any(|at| at == word))
                    };
                    if says(b"forbidden") {
                        burst.push(&answer(2, flow, 0));
                    }
                    if says(b"special") {
                        burst.push(&answer(1, flow, 5));
                    }
                });
                burst.push(&[0; 60]); // No answer.
                port.send(&mut burst);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Listener { heard, stop, thread }
    }

    fn end(self) -> Heard {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

fn check(options: &str) {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let socket = network.path("dpi.sock").display().to_string();
    let policy = format!(
        "Port<0> inside; Port<1> outside; Monitor special;
         Native dpi {{ port: \"memif:{socket}\", delivers: streams, sets: {{ class: 3 }} }};
         pipelet {{
           inside <-> dpi;
           dpi [dpi.class == 5] <-> special [dpi.class == 5] <-> outside;
           dpi <-> outside;
         }}"
    );
    let rivulet = network.up(&policy, options);
    let program = Listener::start(&socket);
    rivulet.wait_for_line("is up");
    let page: String = (0..60_000).map(|line| format!("line {line}\n")).collect();
    fs::write(network.path("page"), &page).unwrap();
    let folder = network.dir.path().display().to_string();
    let _server = network.outside.serve(&format!("python3 -m http.server --bind 0.0.0.0 -d {folder} 80"), 80);
    network.inside.ping("-c 2 -i 0.05 -W 2 10.7.0.2");
    let url = "http://10.7.0.2/page";
    assert_eq!(network.inside.run(&format!("curl -sSf -m 60 {url}")), page);
    // The program answers long before the client, which reads slowly, has the whole page.
    let slowly = "--limit-rate 200k";
    let refused = network.inside.output(&format!("curl -sS {slowly} -m 6 -o /dev/null {url}?forbidden"));
    assert_eq!(refused.status.code(), Some(28), "the program refuses it");
    // Packets of the flow take another edge once the program has answered.
    network.inside.run(&format!("curl -sSf {slowly} -m 60 -o /dev/null {url}?special"));

    // A connection by hand, with segments out of order. The kernel does not know it.
    let silent = "add table ip t; add chain ip t o { type filter hook output priority 0; }; \
                  add rule ip t o tcp sport 4321 tcp flags rst drop";
    fs::write(network.path("silent.nft"), silent.replace("; add", "\nadd")).unwrap();
    network.inside.run(&format!("nft -f {folder}/silent.nft"));
    fs::write(network.path("speak.py"), SPEAK).unwrap();
    fs::write(network.path("store.py"), STORE).unwrap();
    let said: Vec<u8> = (0..24_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(network.path("said"), &said).unwrap();
    let stored = format!("python3 {folder}/store.py {folder}/stored");
    let _store = network.outside.serve(&stored, 90);
    network.inside.run(&format!("python3 {folder}/speak.py {folder}/said"));
    wait_until("the server has it", || network.path("stored").exists());
    assert!(fs::read(network.path("stored")).unwrap() == said, "the kernel agrees");
    wait_until("the program has heard it", || {
        let heard = program.heard.lock().unwrap();
        heard.of_server(90, false).iter().any(|heard| heard.len() == said.len())
    });
    let report = rivulet.end();
    let heard = program.end();
    assert!(heard.of_server(90, false) == [&said[..]], "each byte once and in order");
    let pages = heard.of_server(80, true);
    let is_page = |stream: &&&[u8]| stream.ends_with(page.as_bytes());
    assert_eq!(pages.iter().filter(is_page).count(), 2, "one was refused");
    let function = |name: &str| {
        let functions = report["functions"].as_array().unwrap();
        functions.iter().find(|function| function["name"] == name).unwrap().clone()
    };
    assert!(function("special")["packets"].as_u64().unwrap() > 0, "{report}");
    assert!(function("dpi")["counters"]["packets_refused"].as_u64().unwrap() > 0, "{report}");
    assert!(report["drops"]["function"].as_u64().unwrap() > 0, "{report}");
    let node = &report["programs"]["dpi"];
    let count = |name: &str| node[name].as_u64().unwrap();
    assert!(node["up"] == 1 && count("answers") > 0 && count("bad_answers") > 0, "{node}");
    assert_eq!(report["events"], 0);
}

#[test]
fn native_program_hears_streams() {
    check("");
}

#[test]
fn native_program_hears_streams_of_all_workers() {
    check("--workers 2");
}
