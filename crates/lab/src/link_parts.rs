//! The parts of a packet's way from host to host and back, each timed on its own: a burst is
//! classified, numbered, sent over a link, parsed as by a unit, and sent back, by the code of a
//! cluster.

use std::time::{Duration, Instant};

use cluster::addresses::Endpoints;
use cluster::network::{DatagramSocket, Handover};
use cluster::wire::{ArrivedFrame, begin_output, read_frame, read_output, write_output, write_packet_input};
use graph::Graph;
use link::{Config, LinkKeys, PeerLink};
use packet::{FlowHasher, LinkType, Packet, PacketPool, Parser};
use protocol::dispatcher::{Dispatched, Dispatcher, DispatcherOutput, PacketArrival};
use protocol::message::Stamp;

use crate::hosts::{ChainMaker, of_flows};

/// Packets of a burst: as many as hosts have on their way.
const BURST: usize = 1_024;
/// Packets that are classified and numbered at once.
const BATCH: usize = 32;
/// Silence after which a link is dead.
const SILENCE_NS: u64 = 60_000_000_000;
/// Longest wait for what was sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Length of datagrams: hosts are joined by Ethernet, and not by a loopback.
const MTU: usize = 1_452;

/// The ends of a link.
pub const DISPATCHER: usize = 0;
pub const UNIT: usize = 1;

/// The times of a packet's parts at one end, in ns; of a burst, their sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartTimes {
    /// Into a buffer, parsed and hashed: at the dispatcher.
    pub classify: f64,
    /// Its flow found, numbered and stamped: at the dispatcher.
    pub number: f64,
    /// Written as a message, put into datagrams and encrypted; and acknowledgements handled.
    pub seal: f64,
    /// Sent by the kernel, which on loopback queues it at the receiver.
    pub send: f64,
    /// Taken from the kernel.
    pub receive: f64,
    /// Decrypted, put in order and acknowledged.
    pub open: f64,
    /// Taken from the link, read into a buffer, and at the unit parsed.
    pub read: f64,
}

/// A link between two sockets of this thread.
pub struct LinkParts {
    ends: [PeerLink; 2],
    sockets: [DatagramSocket; 2],
    addresses: [Endpoints; 2],
    began: Instant,
    parser: Parser,
    dispatcher: Dispatcher,
    /// The unit's graph, which parses.
    graph: Box<Graph>,
    pool: PacketPool,
    datagrams: Vec<u8>,
}

impl LinkParts {
    /// Opens sockets and a link between a dispatcher and a unit of this chain.
    ///
    /// # Errors
    ///
    /// If a socket cannot be opened.
    pub fn open(chain: ChainMaker) -> Result<LinkParts, String> {
        let keys = LinkKeys { send: [1; 32], receive: [2; 32] };
        // Others are measured in between: silence is no fault.
        let config = Config {
            heartbeat_ns: SILENCE_NS,
            silence_max_ns: SILENCE_NS,
            up_within_ns: SILENCE_NS,
            ..Config::default()
        }
        .with_fixed_mtu(MTU);
        let end = |keys: &LinkKeys| PeerLink::new(config.clone(), keys, 0).map_err(|error| error.to_string());
        let socket = || DatagramSocket::bind(([127, 0, 0, 1], 0).into()).map_err(|error| error.to_string());
        let sockets = [socket()?, socket()?];
        let address = |at: usize| -> Result<Endpoints, String> {
            let remote = sockets[at].address().map_err(|error| error.to_string())?;
            Ok(Endpoints { local: None, remote })
        };
        let graph = chain()?.graph;
        let dispatcher = Dispatcher::new(of_flows(1).dispatcher_of_threads(graph.options()));
        Ok(LinkParts {
            ends: [end(&keys)?, end(&keys.reversed())?],
            addresses: [address(DISPATCHER)?, address(UNIT)?],
            sockets,
            began: Instant::now(),
            parser: Parser::new(FlowHasher::new(1)),
            dispatcher: dispatcher.map_err(|error| error.to_string())?,
            graph,
            pool: PacketPool::new(2 * BURST),
            datagrams: Vec::new(),
        })
    }

    /// Carries bursts of frames that `next` writes there and back, and returns each part's time, in
    /// ns of a packet, at the dispatcher and at the unit: the median over bursts.
    ///
    /// # Errors
    ///
    /// If a frame does not arrive.
    pub fn run(
        &mut self,
        bursts: usize,
        mut next: impl FnMut(&mut Vec<u8>),
    ) -> Result<[PartTimes; 2], String> {
        let mut frames = vec![Vec::new(); BURST];
        let mut of_bursts = Vec::new();
        for _ in 0..bursts {
            frames.iter_mut().for_each(&mut next);
            of_bursts.push(self.carry(&frames)?);
        }
        Ok([DISPATCHER, UNIT].map(|end| {
            let of = |part: fn(&PartTimes) -> f64| {
                let mut all: Vec<f64> = of_bursts.iter().map(|ends| part(&ends[end])).collect();
                crate::statistics::median(&mut all) / BURST as f64
            };
            PartTimes {
                classify: of(|times| times.classify),
                number: of(|times| times.number),
                seal: of(|times| times.seal),
                send: of(|times| times.send),
                receive: of(|times| times.receive),
                open: of(|times| times.open),
                read: of(|times| times.read),
            }
        }))
    }

    /// Carries a burst there and back.
    fn carry(&mut self, frames: &[Vec<u8>]) -> Result<[PartTimes; 2], String> {
        let mut times = [PartTimes::default(); 2];
        for batch in frames.chunks(BATCH) {
            let (now_ns, began) = (self.now_ns(), Instant::now());
            let packets = batch.iter().map(|frame| self.classify(now_ns, frame)).collect::<Option<Vec<_>>>();
            let packets = packets.ok_or("a frame cannot be classified")?;
            times[DISPATCHER].classify += ns(began);
            let began = Instant::now();
            let stamps = self.number(&packets)?;
            times[DISPATCHER].number += ns(began);
            let began = Instant::now();
            for (stamp, packet) in stamps.iter().zip(packets) {
                self.write(DISPATCHER, |out| write_packet_input(out, stamp, &packet))?;
                self.pool.give(packet);
            }
            times[DISPATCHER].seal += ns(began);
        }
        let packets = self.transport(DISPATCHER, &mut times)?;
        let began = Instant::now();
        for packet in packets {
            self.write(UNIT, |out| {
                begin_output(out);
                write_output(out, &packet);
            })?;
            self.pool.give(packet);
        }
        times[UNIT].seal += ns(began);
        let mut packets = self.transport(UNIT, &mut times)?;
        self.pool.give_all(&mut packets);
        Ok(times)
    }

    fn classify(&mut self, now_ns: u64, frame: &[u8]) -> Option<Packet> {
        let mut packet = self.pool.take(frame)?;
        let meta = packet.meta_mut();
        meta.transit.timestamp_ns = now_ns;
        (meta.link, meta.wire_len) = (LinkType::Ethernet, frame.len() as u32);
        self.parser.parse(&mut packet).ok()?;
        Some(packet)
    }

    fn number(&mut self, packets: &[Packet]) -> Result<Vec<Stamp>, String> {
        let (dispatcher, mut outputs) = (&mut self.dispatcher, Vec::<DispatcherOutput>::new());
        let guesses: Vec<_> = packets.iter().map(|packet| dispatcher.guess(packet.meta().hash)).collect();
        let numbered = packets.iter().zip(guesses).map(|(packet, guess)| {
            let meta = packet.meta();
            let arrival = PacketArrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
            let now_ns = meta.transit.timestamp_ns;
            if let Some(numbered) = dispatcher.number_next(now_ns, arrival, guess) {
                return Ok(dispatcher.stamp_numbered(&numbered));
            }
            match dispatcher.handle_packet_of(now_ns, arrival, None, &mut outputs) {
                Dispatched::To { stamp, .. } => Ok(stamp),
                Dispatched::Refused | Dispatched::NoUnit | Dispatched::Waits(_) => {
                    Err("a flow is refused".to_owned())
                }
            }
        });
        numbered.collect()
    }

    fn write(&mut self, from: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        self.ends[from].write_message(0, write).map_err(|error| error.to_string())
    }

    /// Carries what one end has written to the other, until a burst has arrived.
    fn transport(&mut self, from: usize, times: &mut [PartTimes; 2]) -> Result<Vec<Packet>, String> {
        let (to, until) = (1 - from, Instant::now() + PATIENCE);
        let mut arrived = Vec::with_capacity(BURST);
        while arrived.len() < BURST {
            for at in [from, to] {
                self.transmit(at, &mut times[at])?;
                self.receive(1 - at, &mut times[1 - at], &mut arrived)?;
            }
            if Instant::now() > until {
                return Err("a packet does not arrive".to_owned());
            }
        }
        Ok(arrived)
    }

    /// Seals and sends all that an end may send.
    fn transmit(&mut self, at: usize, times: &mut PartTimes) -> Result<(), String> {
        loop {
            let began = Instant::now();
            let now_ns = self.now_ns();
            let end = &mut self.ends[at];
            if end.next_timeout_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                end.handle_timeout(now_ns);
            }
            let transmit = end.poll_transmit(now_ns, &mut self.datagrams);
            times.seal += ns(began);
            let Some(transmit) = transmit else { return Ok(()) };
            let began = Instant::now();
            let datagrams = &self.datagrams[..transmit.len];
            match self.sockets[at].send(self.addresses[1 - at], datagrams, transmit.segment) {
                Handover::Taken => {}
                Handover::Busy => return Err("the kernel takes no more".to_owned()),
                Handover::TooLarge(_) => return Err("the loopback's MTU is below 1,500".to_owned()),
            }
            times.send += ns(began);
        }
    }

    /// Receives, opens and reads all that is there for an end.
    fn receive(&mut self, at: usize, times: &mut PartTimes, arrived: &mut Vec<Packet>) -> Result<(), String> {
        let now_ns = self.now_ns();
        loop {
            let (end, mut open_ns) = (&mut self.ends[at], 0.0);
            let began = Instant::now();
            let has_received = self.sockets[at].receive(|_, datagram| {
                let began = Instant::now();
                // What is refused is sent again.
                let _ = end.handle_datagram(now_ns, datagram);
                open_ns += ns(began);
            });
            if !has_received {
                return Ok(());
            }
            times.receive += ns(began) - open_ns;
            times.open += open_ns;
            let began = Instant::now();
            while let Some(message) = end.poll_message() {
                let packet = match read_frame(message.bytes, now_ns, |_| 0) {
                    Ok(ArrivedFrame::Packet(packet)) => packet.into_packet(0, &self.graph, &mut self.pool),
                    Ok(ArrivedFrame::Output(mut rest)) => {
                        read_output(&mut rest, |frame| self.pool.take(frame)).ok()
                    }
                    _ => None,
                };
                arrived.push(packet.ok_or("a packet cannot be read")?);
            }
            times.read += ns(began);
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

fn ns(began: Instant) -> f64 {
    began.elapsed().as_nanos() as f64
}
