//! Watches a NAT from both sides and knows what it must and must not do, without knowing how it
//! does it.
//!
//! The oracle is told of each IPv4 packet that went in and of what came out for it. It learns
//! mappings from what it sees and holds the NAT to them:
//! - an external endpoint stands for one inside endpoint at a time, and is not given to another
//!   before its time is over;
//! - one inside endpoint has one external endpoint while that lives (by the mapping behaviour it is
//!   told);
//! - ports keep parity and range; external addresses are those configured;
//! - what comes from outside reaches the host that the mapping stands for, if the filter admits the
//!   sender, and only then;
//! - hairpins are translated at both ends; fragments as their datagram; what ICMP errors quote,
//!   back;
//! - nothing else in a packet changes, and every checksum is right.
//!
//! Lifetimes are known from outside only within bounds: a mapping lives at least as long as its
//! timeout after a packet from inside, and at most [`Rules::slack_ns`] longer.
#![allow(dead_code)] // Each test file uses a part.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use packet::Side;

use crate::nat_support::{End, ICMP, RST, SECOND, SYN, Seen, TCP, UDP, see};

/// What the NAT was told to do.
#[derive(Clone, Debug)]
pub struct Rules {
    pub external: BTreeSet<Ipv4Addr>,
    pub mapping: Dependence,
    pub filtering: Dependence,
    pub parity: bool,
    /// Whether ports may run out, so that packets from inside may be dropped.
    pub scarce: bool,
    pub slack_ns: u64,
}

/// What something depends on beside the inside endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependence {
    Nothing,
    Address,
    Endpoint,
}

impl Dependence {
    /// The part of the remote endpoint that counts.
    fn part(self, remote: End) -> Option<End> {
        match self {
            Dependence::Nothing => None,
            Dependence::Address => Some((remote.0, 0)),
            Dependence::Endpoint => Some(remote),
        }
    }
}

/// An inside endpoint with what its mapping depends on.
type Name = (u8, End, Option<End>);

#[derive(Clone, Debug)]
struct Mapping {
    internal: End,
    /// Last packet from inside that it carried and that surely kept it.
    used_ns: u64,
    /// When the inside endpoint last sent such a packet to each remote endpoint.
    remotes: BTreeMap<End, u64>,
    /// The same for packets that may have kept it.
    kept_ns: u64,
    kept_remotes: BTreeMap<End, u64>,
}

pub struct Oracle {
    rules: Rules,
    by_external: BTreeMap<(u8, End), Mapping>,
    by_name: BTreeMap<Name, End>,
    /// Who ever had which external endpoint.
    owners: BTreeSet<(u8, End, End)>,
    /// What was done to the first fragment of a datagram: the addresses before and after.
    datagrams: BTreeMap<(Ipv4Addr, Ipv4Addr, u8, u16), (Ipv4Addr, Ipv4Addr)>,
    /// When an outside host last sent to an inside one: while its mapping dies, the answer may be
    /// dropped.
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

    /// External endpoints seen so far, with their protocols: where a tester may send to.
    pub fn externals(&self) -> Vec<(u8, End)> {
        self.by_external.keys().copied().collect()
    }

    /// One packet went in at `now_ns`, and this came out, or nothing.
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
            // The one identifier is the receiver's; the sender's own external one is not to be
            // seen.
            assert!(self.is_external(got.source), "the source is an external address");
            let mapping = self.by_external.get(&(ICMP, sent.destination));
            if let Some(mapping) = mapping.filter(|mapping| now_ns <= mapping.used_ns + at_least_ns(ICMP)) {
                assert!(sent.kind != 8 || mapping.internal == got.destination, "it reaches the right host");
            }
            return;
        }
        self.sends(now_ns, sent, got.source);
        self.receives(now_ns, sent, got.source, got.destination);
        // A hairpin is one flow: once the peer has answered, each host's packets keep both
        // mappings.
        if let Some(mapping) = self.by_external.get_mut(&(sent.protocol, sent.destination))
            && mapping.kept_remotes.contains_key(&got.source)
        {
            mapping.kept_ns = now_ns;
            mapping.kept_remotes.insert(got.source, now_ns);
        }
    }

    /// A packet to an external endpoint reaches the host that it stands for.
    fn receives(&mut self, now_ns: u64, sent: &Seen, remote: End, reached: End) {
        let mapping = self.by_external.get(&(sent.protocol, sent.destination));
        let lives = mapping.is_some_and(|mapping| now_ns <= mapping.used_ns + at_least_ns(sent.protocol));
        if sent.protocol == ICMP && !lives {
            // A hairpin may have it now, whose mapping does not show outside but by this.
            self.owners.insert((sent.protocol, sent.destination, reached));
            return;
        }
        let mapping = mapping.unwrap_or_else(|| panic!("it never stood for anybody: {sent:?}"));
        assert_eq!(mapping.internal, reached, "it reaches the right host");
        let most_ns = self.at_most_ns(sent.protocol);
        assert!(now_ns <= mapping.kept_ns + most_ns, "the mapping was over: {sent:?}");
        if let Some(part) = self.rules.filtering.part(far(sent.protocol, remote)) {
            let heard = mapping
                .kept_remotes
                .iter()
                .any(|(&to, &at)| self.rules.filtering.part(to) == Some(part) && now_ns <= at + most_ns);
            assert!(heard, "the filter admits only whom the host sends to: {sent:?}");
        }
    }

    /// A packet from inside makes or uses a mapping.
    fn sends(&mut self, now_ns: u64, sent: &Seen, external: End) {
        let (protocol, internal, remote) = (sent.protocol, sent.source, far(sent.protocol, sent.destination));
        assert!(self.is_external(external), "{external:?} is not one of ours");
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
        // Where mappings depend on the remote endpoint, answers leave by the one that was spoken
        // to.
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

    /// What must not be dropped.
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
            // Whether a hairpin's peer admits the sender is not to be seen unless it passes.
            let heard =
                self.received.get(&(sent.protocol, sent.source, far(sent.protocol, sent.destination)));
            let answers = heard.is_some_and(|&at| now_ns <= at + UNANSWERED_NS);
            let excused = answers || self.is_external(sent.destination);
            return assert!(excused, "a packet from inside was dropped: {sent:?}");
        }
        let Some(mapping) = self.by_external.get(&(sent.protocol, sent.destination)) else { return };
        let (least_ns, sender) = (at_least_ns(sent.protocol), far(sent.protocol, sent.source));
        let admitted = match self.rules.filtering {
            // With several mappings, two of one host may lead the same sender to it: then only one
            // of them can.
            _ if self.rules.mapping != Dependence::Nothing => {
                mapping.remotes.get(&sender).is_some_and(|&at| now_ns <= at + least_ns)
            }
            Dependence::Nothing => now_ns <= mapping.used_ns + least_ns,
            part => mapping
                .remotes
                .iter()
                .any(|(&to, &at)| part.part(to) == part.part(sender) && now_ns <= at + least_ns),
        };
        assert!(!admitted, "it was to be let in: {sent:?} {mapping:?}");
    }

    fn later_fragment(&self, sent: &Seen, got: &Seen) {
        let before = (sent.source.0, sent.destination.0, sent.protocol, sent.id);
        let after = self.datagrams.get(&before).expect("its first fragment came out");
        assert_eq!((got.source.0, got.destination.0), *after, "as its first fragment");
    }

    /// What an error quotes is what its receiver sent; the error comes from, or goes to, where that
    /// was sent.
    fn error(&self, side: Side, turned: bool, (sent, before): (&Seen, &Seen), (got, after): (&Seen, &Seen)) {
        // Errors about packets of a mapping that is over still come.
        let owned_by =
            |external: End, internal: End| self.owners.contains(&(before.protocol, external, internal));
        // Of a hairpinned query, neither end's identifier is that of the other.
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

/// How long an unanswered flow from outside is kept, and some.
const UNANSWERED_NS: u64 = 31 * SECOND;

/// How long a mapping lives at least after a packet from inside.
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

/// Whether two ends are the same; of queries the address only, as their identifier stands for the
/// inside host.
fn same(protocol: u8, a: End, b: End) -> bool {
    if protocol == ICMP { a.0 == b.0 } else { a == b }
}

/// A remote end; of a query without the identifier, which is the inside host's.
fn far(protocol: u8, end: End) -> End {
    if protocol == ICMP { (end.0, 0) } else { end }
}

/// All bytes but addresses, ports and checksums are as they were.
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

/// The packet with what a NAT may change set to zero: checksums, addresses, ports.
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
