//! An oracle that watches a NAT from both sides, and checks its behaviour without knowing its code.
//!
//! The oracle sees each IPv4 packet sent, and the output for it. It learns mappings from them, and
//! checks:
//! - An external endpoint belongs to one inside endpoint at a time, and is not reused before the
//!   mapping expires.
//! - An inside endpoint has one external endpoint while that lives, as the configured mapping
//!   behaviour requires.
//! - Ports keep parity and range; external addresses are those configured.
//! - A packet from outside reaches the mapping's host if and only if the filter admits its sender.
//! - Hairpins are translated at both ends, fragments like their datagram, and quotations in ICMP
//!   errors back.
//! - Nothing else in a packet changes, and every checksum is right.
//!
//! Lifetimes are known from outside only within bounds: a mapping lives at least as long as its
//! timeout after a packet from inside, and at most [`Rules::slack_ns`] longer.
#![allow(dead_code)] // Each test file uses a part of it.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use packet::Side;

use crate::nat_support::{End, ICMP, RST, SECOND, SYN, Seen, TCP, UDP, see};

/// Configuration of the NAT.
#[derive(Clone, Debug)]
pub struct Rules {
    pub external: BTreeSet<Ipv4Addr>,
    pub mapping: Dependence,
    pub filtering: Dependence,
    pub parity: bool,
    /// Ports may run out, so that packets from inside may be dropped.
    pub scarce: bool,
    pub slack_ns: u64,
}

/// Dependence of a mapping or filter on the remote endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependence {
    Nothing,
    Address,
    Endpoint,
}

impl Dependence {
    /// Returns the significant part of the remote endpoint.
    fn part(self, remote: End) -> Option<End> {
        match self {
            Dependence::Nothing => None,
            Dependence::Address => Some((remote.0, 0)),
            Dependence::Endpoint => Some(remote),
        }
    }
}

/// An inside endpoint with the remote endpoint that its mapping depends on.
type Name = (u8, End, Option<End>);

#[derive(Clone, Debug)]
struct Mapping {
    internal: End,
    /// Time of the last packet from inside that certainly refreshed the mapping.
    used_ns: u64,
    /// Time of the last such packet to each remote endpoint.
    remotes: BTreeMap<End, u64>,
    /// The same for packets that may have refreshed it.
    kept_ns: u64,
    kept_remotes: BTreeMap<End, u64>,
}

pub struct Oracle {
    rules: Rules,
    by_external: BTreeMap<(u8, End), Mapping>,
    by_name: BTreeMap<Name, End>,
    /// All inside endpoints that have had each external endpoint.
    owners: BTreeSet<(u8, End, End)>,
    /// Translation of the first fragment of a datagram: the addresses before and after.
    datagrams: BTreeMap<(Ipv4Addr, Ipv4Addr, u8, u16), (Ipv4Addr, Ipv4Addr)>,
    /// Time of the last packet from an outside host to an inside one: while its mapping expires,
    /// the answer may be dropped.
    received: BTreeMap<(u8, End, End), u64>,
    pub forwarded: u64,
    pub hairpinned: u64,
    pub refused: u64,
}

impl Oracle {
    pub fn new(rules: Rules) -> Oracle {
        Oracle {
            rules,
            by_external: BTreeMap::new(),
            by_name: BTreeMap::new(),
            owners: BTreeSet::new(),
            datagrams: BTreeMap::new(),
            received: BTreeMap::new(),
            forwarded: 0,
            hairpinned: 0,
            refused: 0,
        }
    }

    /// Returns the external endpoints seen so far, with their protocols: targets for the tester.
    pub fn externals(&self) -> Vec<(u8, End)> {
        self.by_external.keys().copied().collect()
    }

    /// Checks a packet sent at `now_ns` and its output, if any.
    pub fn saw(&mut self, now_ns: u64, side: Side, into: &[u8], out: Option<(Side, &[u8])>) {
        let sent = see(into);
        match out {
            Some((out_side, bytes)) => {
                let got = see(bytes);
                nothing_else_changed(&sent, into, &got, bytes);
                self.came_out(now_ns, side, &sent, out_side, &got);
                self.forwarded += 1;
            }
            None => {
                self.did_not(now_ns, side, &sent);
                self.refused += 1;
            }
        }
    }

    fn came_out(&mut self, now_ns: u64, side: Side, sent: &Seen, out_side: Side, got: &Seen) {
        let turned = side == out_side;
        assert!(!turned || side == Side::Inside, "only packets from inside turn back");
        if sent.fragment & 0x1fff != 0 {
            return self.later_fragment(sent, got);
        }
        if sent.fragment != 0 {
            let before = (sent.source.0, sent.destination.0, sent.protocol, sent.id);
            self.datagrams.insert(before, (got.source.0, got.destination.0));
        }
        if let (Some(before), Some(after)) = (&sent.quoted, &got.quoted) {
            return self.error(side, turned, (sent, before), (got, after));
        }
        assert_eq!(turned, side == Side::Inside && self.is_external(sent.destination), "hairpin or not");
        match side {
            Side::Inside if turned => self.hairpinned(now_ns, sent, got),
            Side::Inside => {
                assert!(same(sent.protocol, got.destination, sent.destination), "the destination stays");
                self.sends(now_ns, sent, got.source);
            }
            Side::Outside => {
                assert!(same(sent.protocol, got.source, sent.source), "the source stays");
                self.receives(now_ns, sent, sent.source, got.destination);
                self.received
                    .insert((sent.protocol, got.destination, far(sent.protocol, sent.source)), now_ns);
            }
        }
    }

    fn hairpinned(&mut self, now_ns: u64, sent: &Seen, got: &Seen) {
        self.hairpinned += 1;
        if sent.protocol == ICMP {
            // The identifier is the receiver's; the sender's own external identifier is not
            // visible.
            assert!(self.is_external(got.source), "the source is an external address");
            let mapping = self.by_external.get(&(ICMP, sent.destination));
            if let Some(mapping) = mapping.filter(|mapping| now_ns <= mapping.used_ns + at_least_ns(ICMP)) {
                assert!(sent.kind != 8 || mapping.internal == got.destination, "it reaches the right host");
            }
            return;
        }
        self.sends(now_ns, sent, got.source);
        self.receives(now_ns, sent, got.source, got.destination);
        // A hairpin is one flow: once the peer has answered, each host's packets refresh both
        // mappings.
        if let Some(mapping) = self.by_external.get_mut(&(sent.protocol, sent.destination))
            && mapping.kept_remotes.contains_key(&got.source)
        {
            mapping.kept_ns = now_ns;
            mapping.kept_remotes.insert(got.source, now_ns);
        }
    }

    /// Checks that a packet to an external endpoint reaches its owner.
    fn receives(&mut self, now_ns: u64, sent: &Seen, remote: End, reached: End) {
        let mapping = self.by_external.get(&(sent.protocol, sent.destination));
        let lives = mapping.is_some_and(|mapping| now_ns <= mapping.used_ns + at_least_ns(sent.protocol));
        if sent.protocol == ICMP && !lives {
            // A hairpin may own it now; its mapping is not visible outside otherwise.
            self.owners.insert((sent.protocol, sent.destination, reached));
            return;
        }
        let mapping = mapping.unwrap_or_else(|| panic!("it never stood for anybody: {sent:?}"));
        assert_eq!(mapping.internal, reached, "it reaches the right host");
        let most_ns = self.at_most_ns(sent.protocol);
        assert!(now_ns <= mapping.kept_ns + most_ns, "the mapping had expired: {sent:?}");
        if let Some(part) = self.rules.filtering.part(far(sent.protocol, remote)) {
            let heard = mapping
                .kept_remotes
                .iter()
                .any(|(&to, &at)| self.rules.filtering.part(to) == Some(part) && now_ns <= at + most_ns);
            assert!(heard, "the filter admits only whom the host sends to: {sent:?}");
        }
    }

    /// Checks a packet from inside, which creates or uses a mapping.
    fn sends(&mut self, now_ns: u64, sent: &Seen, external: End) {
        let (protocol, internal, remote) = (sent.protocol, sent.source, far(sent.protocol, sent.destination));
        assert!(self.is_external(external), "{external:?} is not an external address");
        if protocol != ICMP {
            assert!(
                !self.rules.parity || external.1 % 2 == internal.1 % 2,
                "parity: {internal:?} {external:?}"
            );
            assert_eq!(external.1 < 1024, internal.1 < 1024, "range: {internal:?} {external:?}");
        }
        let name = (protocol, internal, self.rules.mapping.part(remote));
        let living = |mapping: &Mapping| now_ns <= mapping.used_ns + at_least_ns(protocol);
        if let Some(mapping) = self.by_external.get(&(protocol, external)) {
            let whose = mapping.internal;
            assert!(
                whose == internal || !living(mapping),
                "{external:?} is {whose:?}'s, and now {internal:?}'s"
            );
            if whose != internal {
                self.by_external.remove(&(protocol, external));
            }
        }
        // Where mappings depend on the remote endpoint, an answer leaves by the mapping that it
        // answers.
        if self.rules.mapping == Dependence::Nothing
            && let Some(&old) = self.by_name.get(&name)
            && old != external
            && let Some(mapping) = self.by_external.get(&(protocol, old))
        {
            assert!(
                mapping.internal != internal || !living(mapping),
                "{internal:?} had {old:?}, has {external:?}"
            );
        }
        self.by_name.insert(name, external);
        self.owners.insert((protocol, external, internal));
        let entry = self.by_external.entry((protocol, external));
        let mapping = entry.or_insert_with(|| Mapping {
            internal,
            used_ns: now_ns,
            remotes: BTreeMap::new(),
            kept_ns: now_ns,
            kept_remotes: BTreeMap::new(),
        });
        mapping.kept_ns = now_ns;
        mapping.kept_remotes.insert(remote, now_ns);
        if !is_reset(sent) {
            mapping.used_ns = now_ns;
            mapping.remotes.insert(remote, now_ns);
        }
    }

    /// Checks that the packet was dropped for a reason.
    fn did_not(&self, now_ns: u64, side: Side, sent: &Seen) {
        let opens = match sent.protocol {
            TCP => sent.kind & (SYN | RST | 16) == SYN,
            ICMP => sent.kind == 8,
            _ => true,
        };
        if sent.fragment != 0 || sent.quoted.is_some() || !opens || self.rules.scarce {
            return;
        }
        if side == Side::Inside {
            // It is not visible whether a hairpin's peer admits the sender, unless the packet
            // passes.
            let heard =
                self.received.get(&(sent.protocol, sent.source, far(sent.protocol, sent.destination)));
            let answers = heard.is_some_and(|&at| now_ns <= at + UNANSWERED_NS);
            let excused = answers || self.is_external(sent.destination);
            return assert!(excused, "a packet from inside was dropped: {sent:?}");
        }
        let Some(mapping) = self.by_external.get(&(sent.protocol, sent.destination)) else { return };
        let (least_ns, sender) = (at_least_ns(sent.protocol), far(sent.protocol, sent.source));
        let admitted = match self.rules.filtering {
            // With several mappings, two of one host may lead the same sender to it: only one of
            // them can work then.
            _ if self.rules.mapping != Dependence::Nothing => {
                mapping.remotes.get(&sender).is_some_and(|&at| now_ns <= at + least_ns)
            }
            Dependence::Nothing => now_ns <= mapping.used_ns + least_ns,
            part => mapping
                .remotes
                .iter()
                .any(|(&to, &at)| part.part(to) == part.part(sender) && now_ns <= at + least_ns),
        };
        assert!(!admitted, "it must be admitted: {sent:?} {mapping:?}");
    }

    fn later_fragment(&self, sent: &Seen, got: &Seen) {
        let before = (sent.source.0, sent.destination.0, sent.protocol, sent.id);
        let after = self.datagrams.get(&before).expect("its first fragment came out");
        assert_eq!((got.source.0, got.destination.0), *after, "the same as its first fragment");
    }

    /// Checks an error: the quoted packet is as its receiver sent it, and the error travels between
    /// the endpoints of that packet.
    fn error(&self, side: Side, turned: bool, (sent, before): (&Seen, &Seen), (got, after): (&Seen, &Seen)) {
        // Errors about packets of an expired mapping still arrive.
        let owned_by =
            |external: End, internal: End| self.owners.contains(&(before.protocol, external, internal));
        // In a hairpinned query, the identifiers of both ends differ.
        let hairpinned_query = turned && before.protocol == ICMP;
        if (side == Side::Outside || turned) && !hairpinned_query {
            assert!(owned_by(before.source, after.source), "the quoted source is the host's own");
        }
        if side == Side::Outside || turned {
            assert_eq!(got.destination.0, after.source.0, "the error goes to who sent the quoted packet");
        }
        if side == Side::Inside {
            assert!(
                hairpinned_query || owned_by(after.destination, before.destination),
                "the quoted destination is as it was sent: {before:?} {after:?}"
            );
            assert_eq!(
                got.source.0, after.destination.0,
                "the error comes from where the quoted packet went"
            );
        } else {
            assert_eq!(got.source, sent.source);
            assert!(same(before.protocol, after.destination, before.destination));
        }
        if side == Side::Inside && !turned {
            assert_eq!(got.destination, sent.destination);
            assert!(same(before.protocol, after.source, before.source));
        }
    }

    fn is_external(&self, end: End) -> bool {
        self.rules.external.contains(&end.0)
    }

    fn at_most_ns(&self, protocol: u8) -> u64 {
        let timeout_ns = if protocol == TCP { 7440 * SECOND } else { at_least_ns(protocol) };
        timeout_ns + self.rules.slack_ns
    }
}

/// Timeout of an unanswered flow from outside, with a margin.
const UNANSWERED_NS: u64 = 31 * SECOND;

/// Returns the minimum lifetime of a mapping after a packet from inside.
fn at_least_ns(protocol: u8) -> u64 {
    match protocol {
        TCP => 240 * SECOND,
        UDP => 300 * SECOND,
        _ => 60 * SECOND,
    }
}

fn is_reset(seen: &Seen) -> bool {
    seen.protocol == TCP && seen.kind & RST != 0
}

/// Returns whether two ends are equal; for queries only the address, because their identifier is
/// the inside host's.
fn same(protocol: u8, a: End, b: End) -> bool {
    if protocol == ICMP { a.0 == b.0 } else { a == b }
}

/// Returns the remote end; for a query without the identifier, which is the inside host's.
fn far(protocol: u8, end: End) -> End {
    if protocol == ICMP { (end.0, 0) } else { end }
}

/// Checks that only addresses, ports and checksums differ.
fn nothing_else_changed(sent: &Seen, into: &[u8], got: &Seen, out: &[u8]) {
    assert_eq!(into.len(), out.len(), "the length stays");
    assert_eq!((sent.protocol, sent.kind, sent.id), (got.protocol, got.kind, got.id));
    if sent.quoted.is_none() {
        assert_eq!(blank(into), blank(out), "all else stays");
    } else {
        assert_eq!(into[20..22], out[20..22], "type and code stay");
        assert_eq!(into[24..28], out[24..28], "the error's own word stays");
        assert_eq!(blank(&into[28..]), blank(&out[28..]), "all else that is quoted stays");
    }
}

/// Returns the packet with zeros in the fields that a NAT may change: checksums, addresses, ports.
fn blank(bytes: &[u8]) -> Vec<u8> {
    let later = u16::from_be_bytes([bytes[6], bytes[7]]) & 0x1fff != 0;
    #[allow(clippy::single_range_in_vec_init, reason = "one range is meant")]
    let transport: &[std::ops::Range<usize>] = match bytes[9] {
        _ if later => &[],
        UDP => &[20..24, 26..28],
        TCP => &[20..24, 36..38],
        ICMP => &[22..26],
        _ => &[],
    };
    let mut bytes = bytes.to_vec();
    let header = 10..20;
    for range in std::iter::once(&header).chain(transport) {
        for at in range.clone() {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = 0;
            }
        }
    }
    bytes
}
