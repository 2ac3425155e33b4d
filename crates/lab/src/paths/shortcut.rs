//! The alternative to a chain: a table of each flow's final header actions.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use graph::Graph;
use packet::{End, FlowHasher, FlowKey, NewEnds, Packet, PacketClass, PacketPool, Parser, Side, parse};

use super::Path;

/// A table of header actions, by the packets' keys, in front of a plain chain, which decides about
/// packets that are not in it.
///
/// It knows the changes of a packet's headers, and repeats them for the flow's next packets of that
/// direction: no function sees or counts them, and no flow is kept for them. Packets with SYN, FIN
/// or RST, fragments and ICMP errors go through the chain, and what is known of their flow goes
/// with FIN and RST.
///
/// - A cache, as those of software switches are (B35): it learns from the packets that it sees, and
///   forgets everything with each command.
/// - A synthesis of the chain made in advance: what is in it was learned before, and stays; it
///   counts each flow's packets, bytes and time, which is all that the monitor and the load
///   balancer do apart from headers. It does not know of removed servers.
pub struct Shortcut {
    parser: Parser,
    graph: Box<Graph>,
    known: HashMap<Known, Treatment, BuildHasherDefault<Prehashed>>,
    /// Its counters of flows, if it counts.
    counts: Option<Vec<Counts>>,
    single: Vec<Packet>,
    hits: u64,
}

/// Common part of a flow's packets: key and direction. The hash is at hand.
#[derive(PartialEq, Eq)]
struct Known {
    key: FlowKey,
    reversed: bool,
    side: Side,
    hash: u64,
}

/// Treatment of such packets.
#[derive(Clone, Copy)]
struct Treatment {
    action: Action,
    /// Index of their counters.
    counts: u32,
}

#[derive(Clone, Copy)]
enum Action {
    Send(NewEnds),
    Drop,
}

/// Counters of packets that are treated alike.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: u64,
    bytes: u64,
    last_ns: u64,
}

impl Shortcut {
    /// A cache in front of this chain.
    pub fn cache(graph: Box<Graph>) -> Shortcut {
        Shortcut {
            parser: Parser::new(FlowHasher::new(1)),
            graph,
            known: HashMap::default(),
            counts: None,
            single: Vec::new(),
            hits: 0,
        }
    }

    /// A synthesis of this chain: it is to see the traffic once before anything is measured.
    pub fn synthesis(graph: Box<Graph>) -> Shortcut {
        Shortcut { counts: Some(Vec::new()), ..Shortcut::cache(graph) }
    }

    #[cfg(test)]
    /// Packets that it counted, and that went through the chain.
    pub fn counted(&self) -> u64 {
        let counted: u64 = self.counts.iter().flatten().map(|counts| counts.packets).sum();
        counted + self.graph.counters().packets_in
    }

    /// Treats a packet as others of its flow; gives it back if it is to go through the chain.
    #[inline]
    fn follow(&mut self, mut packet: Packet, out: &mut Vec<Packet>, pool: &mut PacketPool) -> Option<Packet> {
        let (meta, ip_len) = (packet.meta(), packet.ip_len());
        let known = Known::of(&packet);
        let is_ordinary = meta.class == PacketClass::Whole && meta.tcp_flags & CHANGING == 0;
        let Some(treatment) = self.known.get(&known).filter(|_| is_ordinary) else { return Some(packet) };
        let counts = self.counts.as_mut().and_then(|counts| counts.get_mut(treatment.counts as usize));
        if let Some(counts) = counts {
            counts.packets += 1;
            counts.bytes += ip_len as u64;
            counts.last_ns = packet.meta().transit.timestamp_ns;
        }
        self.hits += 1;
        match treatment.action {
            Action::Send(ends) if packet.set_ends(&ends, true).is_ok() => {
                let side = &mut packet.meta_mut().transit.side;
                *side = side.other();
                out.push(packet);
            }
            _ => pool.give(packet),
        }
        None
    }

    /// Takes a packet through the chain, and learns from it.
    #[inline(never)]
    fn learn(&mut self, packet: Packet, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let meta = packet.meta();
        let (class, flags, is_plain) = (meta.class, meta.tcp_flags, meta.is_plain());
        let (key, side, known) = (meta.key, meta.transit.side, Known::of(&packet));
        let (ends, before) = (parse::ends(&packet), out.len());
        self.single.push(packet);
        self.graph.process(&mut self.single, out, pool);
        if flags & OVER != 0 {
            // Of the other direction, too, if its packets have the same key.
            for (reversed, side) in [(false, side), (true, side), (false, side.other()), (true, side.other())]
            {
                self.known.remove(&Known { key, reversed, side, hash: known.hash });
            }
        }
        if class != PacketClass::Whole || flags & CHANGING != 0 || !is_plain {
            return;
        }
        let action = match &out[before..] {
            [] => Action::Drop,
            [sent] if sent.meta().transit.side == side.other() => {
                let (source, destination) = parse::ends(sent);
                Action::Send(NewEnds::new(ends, [(End::Source, source), (End::Destination, destination)]))
            }
            _ => return, // It was turned back, or brought others with it.
        };
        let counts = self.counts.as_mut().map_or(0, |counts| {
            counts.push(Counts::default());
            counts.len() as u32 - 1
        });
        self.known.insert(known, Treatment { action, counts });
    }
}

/// TCP flags of packets that take the chain: FIN, SYN, RST; and of packets that end a connection.
const CHANGING: u8 = 7;
const OVER: u8 = 5;

impl Path for Shortcut {
    fn process(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        for mut packet in batch.drain(..) {
            let unknown = match self.parser.parse(&mut packet) {
                Ok(()) => self.follow(packet, out, pool),
                Err(_) => Some(packet),
            };
            if let Some(packet) = unknown {
                self.learn(packet, out, pool);
            }
        }
    }

    fn clear(&mut self) {
        Path::clear(&mut self.graph);
    }

    fn end_flows(&mut self, pool: &mut PacketPool) {
        if self.counts.is_none() {
            self.known.clear();
        }
        self.graph.end_flows(pool);
    }

    fn command(&mut self, function: usize, command: &str) -> Result<(), String> {
        if self.counts.is_none() {
            self.known.clear();
        }
        self.graph.command(function, command)
    }

    fn followed(&self) -> u64 {
        self.hits
    }
}

impl Known {
    #[inline(always)]
    fn of(packet: &Packet) -> Known {
        let meta = packet.meta();
        Known { key: meta.key, reversed: meta.reversed, side: meta.transit.side, hash: meta.hash }
    }
}

impl Hash for Known {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.hash);
    }
}

/// The hash computed before.
#[derive(Default)]
struct Prehashed(u64);

impl Hasher for Prehashed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
