//! The parts of a packet's way from host to host, each timed on its own: a burst is classified,
//! written and sealed, sent over loopback, received and opened, by the code of a cluster.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cluster::network::DatagramSocket;
use cluster::wire::write_input;
use link::{Config, LinkKeys, PeerLink};
use packet::{FlowHasher, LinkType, Packet, PacketPool, Parser};
use protocol::message::{FlowId, Handover, Stamp};
use runtime::transport::ToUnit;

/// Packets of a burst.
const BURST: usize = 256;
/// Silence after which a link is dead.
const SILENCE_NS: u64 = 60_000_000_000;
/// Longest wait for what was sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// The times of a packet's parts, in ns; of a burst, their sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartTimes {
    /// Into a buffer, parsed and hashed.
    pub classify: f64,
    /// Written as a message with its stamp, put into datagrams and encrypted; and what the sender
    /// does with acknowledgements.
    pub seal: f64,
    /// Sent by the kernel, which on loopback queues it at the receiver.
    pub send: f64,
    /// Taken from the kernel.
    pub receive: f64,
    /// Decrypted, put in order and acknowledged.
    pub open: f64,
}

/// A link between two sockets of this thread.
pub struct LinkParts {
    ends: [PeerLink; 2],
    sockets: [DatagramSocket; 2],
    receiver: SocketAddr,
    began: Instant,
    parser: Parser,
    pool: PacketPool,
    message: Vec<u8>,
    datagrams: Vec<u8>,
    /// Packets so far.
    sent: u64,
    taken: u64,
}

impl LinkParts {
    /// Opens sockets and a link.
    ///
    /// # Errors
    ///
    /// If a socket cannot be opened.
    pub fn open() -> Result<LinkParts, String> {
        let keys = LinkKeys { send: [1; 32], receive: [2; 32] };
        // Others are measured in between: silence is no fault.
        let config = Config {
            heartbeat_ns: SILENCE_NS,
            silence_max_ns: SILENCE_NS,
            up_within_ns: SILENCE_NS,
            ..Config::default()
        };
        let end = |keys: &LinkKeys| PeerLink::new(config.clone(), keys, 0).map_err(|error| error.to_string());
        let socket = || DatagramSocket::bind(([127, 0, 0, 1], 0).into()).map_err(|error| error.to_string());
        let sockets = [socket()?, socket()?];
        Ok(LinkParts {
            ends: [end(&keys)?, end(&keys.reversed())?],
            receiver: sockets[1].address().map_err(|error| error.to_string())?,
            sockets,
            began: Instant::now(),
            parser: Parser::new(FlowHasher::new(1)),
            pool: PacketPool::new(2 * BURST),
            message: Vec::new(),
            datagrams: Vec::new(),
            sent: 0,
            taken: 0,
        })
    }

    /// Carries bursts of frames that `next` writes, and returns each part's time, per packet: the
    /// median over bursts.
    ///
    /// # Errors
    ///
    /// If a frame does not arrive.
    pub fn run(&mut self, bursts: usize, mut next: impl FnMut(&mut Vec<u8>)) -> Result<PartTimes, String> {
        let mut frames = vec![Vec::new(); BURST];
        let mut of_bursts = Vec::new();
        for _ in 0..bursts {
            frames.iter_mut().for_each(&mut next);
            of_bursts.push(self.carry(&frames)?);
        }
        let of = |part: &dyn Fn(&PartTimes) -> f64| {
            crate::statistics::median(&mut of_bursts.iter().map(part).collect::<Vec<_>>()) / BURST as f64
        };
        Ok(PartTimes {
            classify: of(&|times| times.classify),
            seal: of(&|times| times.seal),
            send: of(&|times| times.send),
            receive: of(&|times| times.receive),
            open: of(&|times| times.open),
        })
    }

    /// Carries a burst.
    fn carry(&mut self, frames: &[Vec<u8>]) -> Result<PartTimes, String> {
        let mut times = PartTimes::default();
        let began = Instant::now();
        let packets = frames.iter().map(|frame| self.classify(frame)).collect::<Option<Vec<_>>>();
        let packets = packets.ok_or("a frame cannot be classified")?;
        times.classify = ns(began);
        let began = Instant::now();
        for packet in packets {
            self.write(packet)?;
        }
        times.seal = ns(began);
        let until = Instant::now() + PATIENCE;
        while self.taken < self.sent {
            self.transmit(&mut times)?;
            self.receive(&mut times);
            self.acknowledge(&mut times)?;
            if Instant::now() > until {
                return Err("a packet does not arrive".to_owned());
            }
        }
        Ok(times)
    }

    fn classify(&mut self, frame: &[u8]) -> Option<Packet> {
        let mut packet = self.pool.take(frame)?;
        let meta = packet.meta_mut();
        meta.transit.timestamp_ns = self.sent + 1;
        (meta.link, meta.wire_len) = (LinkType::Ethernet, frame.len() as u32);
        self.parser.parse(&mut packet).ok()?;
        Some(packet)
    }

    fn write(&mut self, packet: Packet) -> Result<(), String> {
        self.sent += 1;
        let flow = FlowId { index: self.sent as u32 % 1_024, generation: 1 };
        let handover = Handover::None;
        let stamp = Stamp { flow, seq: self.sent, epoch: 1, handover, targets: None };
        let input = ToUnit::Packet(self.sent, stamp, packet);
        self.message.clear();
        write_input(&mut self.message, &input);
        self.ends[0].send_message(0, &self.message).map_err(|error| error.to_string())?;
        if let ToUnit::Packet(.., packet) = input {
            self.pool.give(packet);
        }
        Ok(())
    }

    /// Seals and sends all that may be sent.
    fn transmit(&mut self, times: &mut PartTimes) -> Result<(), String> {
        loop {
            let began = Instant::now();
            let now_ns = self.now_ns();
            if self.ends[0].next_timeout_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                self.ends[0].handle_timeout(now_ns);
            }
            let transmit = self.ends[0].poll_transmit(now_ns, &mut self.datagrams);
            times.seal += ns(began);
            let Some(transmit) = transmit else { return Ok(()) };
            let began = Instant::now();
            if !self.sockets[0].send(self.receiver, &self.datagrams[..transmit.len], transmit.segment) {
                return Err("the kernel takes no more".to_owned());
            }
            times.send += ns(began);
        }
    }

    /// Receives and opens all that is there.
    fn receive(&mut self, times: &mut PartTimes) {
        let now_ns = self.now_ns();
        loop {
            let (end, mut open) = (&mut self.ends[1], 0.0);
            let began = Instant::now();
            let has_received = self.sockets[1].receive(|_, datagram| {
                let began = Instant::now();
                // What is refused is sent again.
                let _ = end.handle_datagram(now_ns, datagram);
                open += ns(began);
            });
            if !has_received {
                return;
            }
            times.receive += ns(began) - open;
            let began = Instant::now();
            while let Some(message) = end.poll_message() {
                black_box(message.bytes);
                self.taken += 1;
            }
            times.open += open + ns(began);
        }
    }

    /// Brings acknowledgements back, without sockets.
    fn acknowledge(&mut self, times: &mut PartTimes) -> Result<(), String> {
        let now_ns = self.now_ns();
        loop {
            let began = Instant::now();
            let transmit = self.ends[1].poll_transmit(now_ns, &mut self.datagrams);
            times.open += ns(began);
            let Some(transmit) = transmit else { return Ok(()) };
            let began = Instant::now();
            for datagram in self.datagrams[..transmit.len].chunks_mut(transmit.segment) {
                let taken = self.ends[0].handle_datagram(now_ns, datagram);
                taken.map_err(|refusal| format!("an acknowledgement is refused: {refusal:?}"))?;
            }
            times.seal += ns(began);
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

fn ns(began: Instant) -> f64 {
    began.elapsed().as_nanos() as f64
}
