//! Messages between two sockets of one thread over loopback: a link, TLS 1.3 over TCP, and TCP
//! alone: `cargo bench -p cluster --bench transports`.
//!
//! A link is encrypted and authenticated as TLS is, with the same cipher, and its 1,024 streams do
//! not wait for each other. Both ends are on one thread, so a time covers both. Results are medians
//! of interleaved rounds.
#![allow(clippy::unwrap_used)] // A bench fails by panicking.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use cluster::addresses::Endpoints;
use cluster::identity::Authority;
use cluster::network::DatagramSocket;
use link::{Config, LinkKeys, PeerLink};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

const ROUNDS: usize = 15;
/// Messages offered before they are carried.
const BURST: usize = 256;
/// Limit on the bytes of a stream that wait to be sent.
const WAITING_MAX: usize = 256 * 1024;

/// A transport for messages from one end to the other.
trait Transport {
    /// Returns false if there is no room now.
    fn send(&mut self, number: usize, message: &[u8]) -> bool;
    /// Carries the sent messages. Returns the number of received ones.
    fn carry(&mut self) -> usize;
}

struct Link {
    ends: [PeerLink; 2],
    sockets: [DatagramSocket; 2],
    addresses: [Endpoints; 2],
    began: Instant,
    out: Vec<u8>,
}

impl Link {
    fn new() -> Link {
        let keys = LinkKeys { send: [1; 32], receive: [2; 32] };
        // Others are measured in between, so silence is no fault.
        let long_ns = 600_000_000_000;
        let config = Config {
            heartbeat_ns: long_ns,
            silence_max_ns: long_ns,
            up_within_ns: long_ns,
            ..Config::default()
        }
        .with_fixed_mtu(1_452);
        let end = |keys: &LinkKeys| PeerLink::new(config.clone(), keys, 0).unwrap();
        let sockets = [(); 2].map(|()| DatagramSocket::bind(([127, 0, 0, 1], 0).into()).unwrap());
        let addresses =
            [0, 1].map(|at: usize| Endpoints { local: None, remote: sockets[at].address().unwrap() });
        let ends = [end(&keys), end(&keys.reversed())];
        Link { ends, sockets, addresses, began: Instant::now(), out: Vec::new() }
    }
}

impl Transport for Link {
    fn send(&mut self, number: usize, message: &[u8]) -> bool {
        self.ends[0].send_message(number as u16 & 1_023, message).is_ok()
    }

    fn carry(&mut self) -> usize {
        let mut come = 0;
        for from in [0, 1] {
            let now_ns = self.began.elapsed().as_nanos() as u64;
            let end = &mut self.ends[from];
            if end.next_timeout_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                end.handle_timeout(now_ns);
            }
            self.out.clear();
            while let Some(transmit) = end.poll_transmit(now_ns, &mut self.out) {
                let datagrams = &self.out[..transmit.len];
                self.sockets[from].send(self.addresses[1 - from], datagrams, transmit.segment);
                self.out.clear();
            }
            let to = &mut self.ends[1 - from];
            let mut take = |_, datagram: &mut [u8]| to.handle_datagram(now_ns, datagram).unwrap();
            while self.sockets[1 - from].receive(&mut take) {}
            while to.poll_message().is_some() {
                come += 1;
            }
        }
        come
    }
}

/// Counts messages in a stream: each has its length before it.
#[derive(Default)]
struct Splitter(Vec<u8>);

impl Splitter {
    fn take(&mut self, bytes: &[u8]) -> usize {
        self.0.extend_from_slice(bytes);
        let (mut count, mut rest) = (0, self.0.as_slice());
        while let Some((len, after)) = rest.split_first_chunk()
            && let Some((_, next)) = after.split_at_checked(u32::from_be_bytes(*len) as usize)
        {
            (count, rest) = (count + 1, next);
        }
        let left = rest.len();
        self.0.drain(..self.0.len() - left);
        count
    }
}

/// Two ends of a connection.
fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    for stream in [&one, &other] {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    (one, other)
}

/// Returns the bytes of a call, 0 if it would block.
fn done(call: std::io::Result<usize>) -> usize {
    match call {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        call => call.unwrap(),
    }
}

/// Appends a message to a stream. Returns false if it is full.
fn push(stream: &mut Vec<u8>, message: &[u8]) -> bool {
    let has_room = stream.len() < WAITING_MAX;
    if has_room {
        stream.extend_from_slice(&(message.len() as u32).to_be_bytes());
        stream.extend_from_slice(message);
    }
    has_room
}

struct Tcp {
    ends: (TcpStream, TcpStream),
    out: Vec<u8>,
    splitter: Splitter,
    buffer: Vec<u8>,
}

impl Tcp {
    fn new() -> Tcp {
        Tcp { ends: streams(), out: Vec::new(), splitter: Splitter::default(), buffer: vec![0; 256 * 1024] }
    }
}

impl Transport for Tcp {
    fn send(&mut self, _: usize, message: &[u8]) -> bool {
        push(&mut self.out, message)
    }

    fn carry(&mut self) -> usize {
        let sent = if self.out.is_empty() { 0 } else { done(self.ends.0.write(&self.out)) };
        self.out.drain(..sent);
        let received = done(self.ends.1.read(&mut self.buffer));
        self.splitter.take(&self.buffer[..received])
    }
}

struct Tls {
    ends: (TcpStream, TcpStream),
    client: ClientConnection,
    server: ServerConnection,
    out: Vec<u8>,
    splitter: Splitter,
    buffer: Vec<u8>,
}

impl Tls {
    fn new() -> Tls {
        let authority = Authority::new("bench").unwrap();
        let issued = authority.issue(&"unit:there".parse().unwrap(), 1).unwrap();
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate(authority.certificate())).unwrap();
        let suites = vec![ring::cipher_suite::TLS13_AES_256_GCM_SHA384]; // As for a link.
        let provider = Arc::new(CryptoProvider { cipher_suites: suites, ..ring::default_provider() });
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let client = client.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider);
        let server = server.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![certificate(&issued.certificate)], key).unwrap();
        let name = ServerName::try_from("there").unwrap();
        let mut tls = Tls {
            ends: streams(),
            client: ClientConnection::new(Arc::new(client), name).unwrap(),
            server: ServerConnection::new(Arc::new(server)).unwrap(),
            out: Vec::new(),
            splitter: Splitter::default(),
            buffer: vec![0; 256 * 1024],
        };
        tls.client.set_buffer_limit(None);
        while tls.client.is_handshaking() || tls.server.is_handshaking() {
            tls.carry();
            while tls.server.wants_write() {
                tls.server.write_tls(&mut tls.ends.1).unwrap();
            }
            if done(tls.client.read_tls(&mut tls.ends.0)) > 0 {
                tls.client.process_new_packets().unwrap();
            }
        }
        tls
    }
}

impl Transport for Tls {
    fn send(&mut self, _: usize, message: &[u8]) -> bool {
        push(&mut self.out, message)
    }

    fn carry(&mut self) -> usize {
        if !self.client.wants_write() && !self.client.is_handshaking() {
            // All at once, in as few records as possible.
            self.client.writer().write_all(&self.out).unwrap();
            self.out.clear();
        }
        while self.client.wants_write() && done(self.client.write_tls(&mut self.ends.0)) > 0 {}
        let mut come = 0;
        while done(self.server.read_tls(&mut self.ends.1)) > 0 {
            self.server.process_new_packets().unwrap();
            loop {
                let read = done(self.server.reader().read(&mut self.buffer));
                if read == 0 {
                    break;
                }
                come += self.splitter.take(&self.buffer[..read]);
            }
        }
        come
    }
}

/// Returns the time of a message, in ns.
fn time(transport: &mut dyn Transport, message: &[u8], count: usize) -> f64 {
    let began = Instant::now();
    let (mut sent, mut come) = (0, 0);
    while come < count {
        let until = count.min(sent + BURST);
        while sent < until && transport.send(sent, message) {
            sent += 1;
        }
        come += transport.carry();
    }
    began.elapsed().as_nanos() as f64 / count as f64
}

fn main() {
    println!("{:>6} {:>10} {:>9} {:>8} {:>14}", "bytes", "by", "M/s", "ns", "x a link's ns");
    for len in [64, 1_000, 16_384] {
        let (message, count) = (vec![7; len], (20_000_000 / (len + 64)).max(100));
        let mut ways: [(&str, Box<dyn Transport>); 3] =
            [("link", Box::new(Link::new())), ("TLS", Box::new(Tls::new())), ("TCP", Box::new(Tcp::new()))];
        let mut times = [const { Vec::new() }; 3];
        for round in 0..=ROUNDS {
            for ((_, way), times) in ways.iter_mut().zip(&mut times) {
                let taken = time(way.as_mut(), &message, count);
                // The first round warms up.
                times.extend((round > 0).then_some(taken));
            }
        }
        let medians = times.map(|mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        });
        for ((name, _), ns) in ways.iter().zip(medians) {
            println!("{len:>6} {name:>10} {:>9.2} {ns:>8.0} {:>14.2}", 1e3 / ns, ns / medians[0]);
        }
    }
}
