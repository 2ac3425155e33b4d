//! The classifier: which flow does a packet belong to?
//!
//! It parses packets, numbers them, and names each one's flow by its key. Three kinds of packets do
//! not carry their flow's key themselves: a later fragment has no ports and follows the first
//! fragment of its datagram ([`crate::fragments`]); an ICMP error belongs to the flow of the packet
//! that it quotes, if that flow is known; a frame that is not IP belongs to none.
//!
//! A dispatcher needs no more than this: a classifier holds no flows, and knows no functions.

use std::collections::VecDeque;

use packet::{DropReason, FlowHasher, FlowKey, Packet, PacketClass, PacketPool, Parser, parse, sanity};

use crate::fragments::{Datagram, Displaced, First, Fragments, Refused};
use crate::{Counters, Guards, NotIp, Options};

/// The flow of a packet, derived from the packet alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowLookup {
    /// The flow with this key.
    Flow {
        /// The key.
        key: FlowKey,
        /// Its hash.
        hash: u64,
    },
    /// The flow with the key in the packet's metadata if it is known, otherwise the one with this
    /// key: an ICMP error.
    Either {
        /// The key.
        key: FlowKey,
        /// Its hash.
        hash: u64,
    },
    /// None: see [`Classifier::process_aside`].
    Aside,
}

/// The outcome for a later fragment.
pub(crate) enum LaterFragment {
    /// It has its flow's key now.
    Follows(Packet),
    /// It waits for the first fragment of its datagram.
    Held,
    /// It must be dropped.
    Refused(Packet, DropReason),
}

/// Parses packets, numbers them, and finds the key of each one's flow.
pub struct Classifier {
    parser: Parser,
    guards: Guards,
    not_ip: NotIp,
    /// Frames that are not IP pass under [`NotIp::AsFunctions`].
    forwards_unclassified: bool,
    fragments: Fragments,
    fragment_timeout_ns: u64,
    /// Packets of the last batch that could not be parsed, by number, in order of arrival.
    refused: VecDeque<(u64, DropReason)>,
    counters: Counters,
    now_ns: u64,
    /// Expired or displaced fragments that must still be dropped.
    given_up: Vec<(Packet, DropReason)>,
    /// Memory that is reused.
    late: Vec<Packet>,
}

impl Classifier {
    /// Creates a classifier. It passes frames that are not IP, and drops no packet for its
    /// addresses, unless the options or [`Classifier::set_passes_unjudged`] say otherwise.
    pub fn new(options: &Options) -> Classifier {
        Classifier {
            parser: Parser {
                hasher: FlowHasher::new(options.seed),
                inner: options.inner,
                tunnel_ports: options.tunnel_ports,
                offloaded: options.offloaded,
                sanity: options.guards.sanity(false),
                verify_ipv4_checksum: options.verify_ipv4_checksum,
                ignore_vlans: options.ignore_vlans,
            },
            guards: options.guards,
            not_ip: options.not_ip,
            forwards_unclassified: true,
            fragments: Fragments::new(options.fragments_max, options.fragment_timeout_ns),
            fragment_timeout_ns: options.fragment_timeout_ns,
            refused: VecDeque::new(),
            counters: Counters::default(),
            now_ns: 0,
            given_up: Vec::new(),
            late: Vec::new(),
        }
    }

    /// Sets whether the functions after this classifier pass packets that they cannot judge
    /// ([`nf::NetworkFunction::forwards_unclassified`]).
    pub fn set_passes_unjudged(&mut self, forwards_unclassified: bool) {
        self.forwards_unclassified = forwards_unclassified;
        self.parser.sanity = self.guards.sanity(!forwards_unclassified);
    }

    /// Accepts segments that a capturing host's network card was to cut: their IPv4 total length
    /// is 0.
    pub fn expect_offloaded(&mut self) {
        self.parser.offloaded = true;
    }

    /// Holds no fragments from now on: the caller knows which flow they follow.
    pub fn hold_no_fragments(&mut self) {
        self.fragments = Fragments::new(0, self.fragment_timeout_ns);
    }

    /// Parses and numbers packets in order of arrival, and calls `prefetch` with the hash of each
    /// one's flow key. Returns their bytes.
    ///
    /// The receiver must have set the metadata that [`Parser::parse`] needs.
    #[inline(always)]
    pub fn classify(&mut self, batch: &mut [Packet], prefetch: impl Fn(u64)) -> u64 {
        let (first, mut bytes) = (self.counters.packets_in, 0);
        // A copy, which no store to a packet can change.
        let parser = self.parser;
        self.refused.clear();
        for (packet, sequence) in batch.iter_mut().zip(first..) {
            bytes += packet.len() as u64;
            packet.meta_mut().transit.sequence = sequence;
            if let Err(reason) = parser.parse(packet) {
                self.refused.push_back((sequence, reason));
            }
            prefetch(packet.meta().hash);
        }
        self.counters.packets_in += batch.len() as u64;
        self.counters.bytes_in += bytes;
        bytes
    }

    /// Parses and numbers one packet.
    ///
    /// # Errors
    /// If it must be dropped.
    pub fn classify_one(&mut self, packet: &mut Packet) -> Result<(), DropReason> {
        packet.meta_mut().transit.sequence = self.counters.packets_in;
        self.counters.packets_in += 1;
        self.counters.bytes_in += packet.len() as u64;
        self.parser.parse(packet)
    }

    /// Returns true if the packet could not be parsed. Check the packets of a batch in order.
    pub fn is_refused(&self, packet: &Packet) -> bool {
        self.refused.front().is_some_and(|&(sequence, _)| sequence == packet.meta().transit.sequence)
    }

    /// Finds the flow of a classified packet. A later fragment gets its flow's key.
    pub fn flow_of(&mut self, packet: &mut Packet, pool: &mut PacketPool) -> FlowLookup {
        let meta = packet.meta();
        match meta.class {
            PacketClass::Whole | PacketClass::FirstFragment => {
                FlowLookup::Flow { key: meta.key, hash: meta.hash }
            }
            PacketClass::IcmpError => {
                let (key, _) = parse::portless_key(packet);
                FlowLookup::Either { key, hash: self.parser.hasher.hash(&key) }
            }
            PacketClass::LaterFragment => {
                self.handle_timeout(meta.transit.timestamp_ns, pool);
                match self.fragments.get(&Datagram::of(packet)) {
                    Some(&First::Passed { key, reversed }) => {
                        let hash = self.set_key(packet, (key, reversed));
                        FlowLookup::Flow { key, hash }
                    }
                    Some(First::Dropped | First::Missing(_)) | None => FlowLookup::Aside,
                }
            }
            PacketClass::NotIp => FlowLookup::Aside,
        }
    }

    /// Processes a packet without a flow: not parsed, not IP, or a later fragment without its first
    /// one, which was dropped or has not arrived. Packets must come in order of arrival.
    ///
    /// For a classifier without functions; otherwise see [`crate::Graph::process_without_flow`].
    pub fn process_aside(&mut self, packet: Packet, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        if let Err(reason) = self.take_refusal(&packet) {
            return self.discard(packet, reason, pool);
        }
        self.handle_timeout(packet.meta().transit.timestamp_ns, pool);
        let packet = match packet.meta().class {
            PacketClass::LaterFragment => match self.place_fragment(packet) {
                LaterFragment::Follows(packet) => packet,
                LaterFragment::Held => return self.drop_given_up(pool),
                LaterFragment::Refused(packet, reason) => return self.discard(packet, reason, pool),
            },
            PacketClass::NotIp if !self.passes_not_ip(&packet) => {
                return self.discard(packet, DropReason::NotIp, pool);
            }
            _ => packet,
        };
        self.send(packet, out);
    }

    /// Drops a classified packet; with a first fragment, the fragments that wait for it.
    pub fn discard(&mut self, packet: Packet, reason: DropReason, pool: &mut PacketPool) {
        if packet.meta().class == PacketClass::FirstFragment {
            let mut waited = Vec::new();
            self.learn_first(Datagram::of(&packet), None, self.now_ns, &mut waited);
            for packet in waited {
                self.discard(packet, DropReason::FragmentOfDropped, pool);
            }
        }
        self.counters.drops[reason.index()] += 1;
        pool.give(packet);
    }

    /// Records the outcome for the first fragment of a datagram: it passed at `at_ns` as a packet
    /// of the flow with this key, or was dropped. Fragments that waited for it are added to
    /// `waited`.
    pub fn learn_first(
        &mut self,
        datagram: Datagram,
        passed: Option<(FlowKey, bool)>,
        at_ns: u64,
        waited: &mut Vec<Packet>,
    ) {
        let first = passed.map_or(First::Dropped, |(key, reversed)| First::Passed { key, reversed });
        let before = waited.len();
        self.fragments.first(datagram, first, at_ns, waited);
        self.counters.packets_pending -= (waited.len() - before) as u64;
    }

    /// Records that this first fragment is processed elsewhere; [`Classifier::flow_of`] sends the
    /// later ones after it. Fragments that waited for it are added to `waited`.
    pub fn learn_elsewhere(&mut self, packet: &Packet, waited: &mut Vec<Packet>) {
        let meta = packet.meta();
        let at_ns = self.now_ns.max(meta.transit.timestamp_ns);
        self.learn_first(Datagram::of(packet), Some((meta.key, meta.reversed)), at_ns, waited);
    }

    /// Returns the hash that all fragments of this one's datagram have in common.
    pub fn datagram_hash(&self, packet: &Packet) -> u64 {
        Datagram::of(packet).mixed(&self.parser.hasher)
    }

    /// Returns the hash of a flow's key, as that of packets.
    pub fn hash_of(&self, key: &FlowKey) -> u64 {
        self.parser.hasher.hash(key)
    }

    /// Advances the time to `now_ns` and drops expired fragments, which have no first fragment.
    pub fn handle_timeout(&mut self, now_ns: u64, pool: &mut PacketPool) {
        self.give_up_fragments(now_ns);
        self.drop_given_up(pool);
    }

    /// Same, but leaves the expired fragments in [`Classifier::given_up`], until
    /// [`Classifier::drop_given_up`].
    pub(crate) fn give_up_fragments(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if self.fragments.is_empty() {
            return;
        }
        let mut late = std::mem::take(&mut self.late);
        self.fragments.expire(self.now_ns, &mut late);
        self.given_up.extend(late.drain(..).map(|packet| (packet, DropReason::FragmentTimeout)));
        self.late = late;
        self.give_up_displaced();
    }

    /// Moves the fragments of displaced datagrams to `given_up`.
    fn give_up_displaced(&mut self) {
        while let Some(packet) = self.fragments.take_dropped() {
            self.given_up.push((packet, DropReason::FragmentTableFull));
        }
    }

    /// Returns the fragments that expired or gave way without a first fragment.
    pub(crate) fn given_up(&mut self) -> &mut [(Packet, DropReason)] {
        &mut self.given_up
    }

    /// Drops the fragments that expired or gave way without a first fragment.
    pub(crate) fn drop_given_up(&mut self, pool: &mut PacketPool) {
        for (packet, reason) in self.given_up.drain(..) {
            self.counters.packets_pending -= 1;
            self.counters.drops[reason.index()] += 1;
            pool.give(packet);
        }
    }

    /// Returns when fragments expire next.
    pub fn next_timeout_ns(&self) -> u64 {
        self.fragments.next_timeout_ns()
    }

    /// Returns the counters of arrived packets, and of packets that this classifier dropped, holds
    /// or sent. All other counters are zero.
    pub fn counters(&self) -> Counters {
        let Displaced { table, source } = self.fragments.displaced();
        Counters {
            fragments_displaced: table,
            fragments_displaced_by_source: source,
            ..self.counters.clone()
        }
    }

    /// Returns the counters, without displaced datagrams.
    pub(crate) fn counted(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn parser(&self) -> &Parser {
        &self.parser
    }

    /// Returns true if no packet of the last batch is left that could not be parsed.
    pub(crate) fn refuses_none(&self) -> bool {
        self.refused.is_empty()
    }

    /// Forgets the packets of the last batch that could not be parsed.
    pub(crate) fn forget_refusals(&mut self) {
        self.refused.clear();
    }

    /// Returns the result of parsing the packet, which must be the next one of its batch.
    pub(crate) fn take_refusal(&mut self, packet: &Packet) -> Result<(), DropReason> {
        match self.refused.front() {
            Some(&(sequence, reason)) if sequence == packet.meta().transit.sequence => {
                self.refused.pop_front();
                Err(reason)
            }
            _ => Ok(()),
        }
    }

    /// Gives an ICMP error the key of a flow of its own.
    pub(crate) fn set_portless_key(&self, packet: &mut Packet) {
        let key = parse::portless_key(packet);
        self.set_key(packet, key);
    }

    /// Decides whether a frame that is not IP passes, and counts it if so.
    pub(crate) fn passes_not_ip(&mut self, packet: &Packet) -> bool {
        let is_link_control = sanity::is_link_control_frame(packet);
        let passes = match self.not_ip {
            NotIp::AsFunctions => is_link_control || self.forwards_unclassified,
            NotIp::Pass => true,
            NotIp::Drop => false,
        };
        self.counters.not_ip_passed += u64::from(passes);
        self.counters.link_control_passed += u64::from(passes && is_link_control);
        passes
    }

    /// Gives a later fragment its flow's key, or holds it until the first fragment arrives.
    /// Others may give way to it, see [`Classifier::given_up`].
    pub(crate) fn place_fragment(&mut self, mut packet: Packet) -> LaterFragment {
        let datagram = Datagram::of(&packet);
        match self.fragments.get(&datagram) {
            Some(&First::Passed { key, reversed }) => {
                self.set_key(&mut packet, (key, reversed));
                LaterFragment::Follows(packet)
            }
            Some(First::Dropped) => LaterFragment::Refused(packet, DropReason::FragmentOfDropped),
            Some(First::Missing(_)) | None => match self.fragments.wait(datagram, packet, self.now_ns) {
                Ok(()) => {
                    self.counters.packets_pending += 1;
                    self.give_up_displaced();
                    LaterFragment::Held
                }
                Err((packet, Refused::TooMany)) => {
                    LaterFragment::Refused(packet, DropReason::FragmentTooMany)
                }
                Err((packet, Refused::TableFull)) => {
                    LaterFragment::Refused(packet, DropReason::FragmentTableFull)
                }
            },
        }
    }

    /// Sets the packet's flow key; returns its hash.
    pub(crate) fn set_key(&self, packet: &mut Packet, (key, reversed): (FlowKey, bool)) -> u64 {
        let (meta, hash) = (packet.meta_mut(), self.parser.hasher.hash(&key));
        (meta.key, meta.reversed, meta.hash) = (key, reversed, hash);
        hash
    }

    fn send(&mut self, mut packet: Packet, out: &mut Vec<Packet>) {
        self.counters.packets_out += 1;
        self.counters.bytes_out += packet.len() as u64;
        let transit = &mut packet.meta_mut().transit;
        transit.side = transit.side.other();
        out.push(packet);
    }
}
