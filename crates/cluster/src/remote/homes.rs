//! The other dispatchers of a cluster, each of which is the home of a share of the flows.
//!
//! A flow's home follows from its affinity group, or from the hash of its key. A packet that
//! arrives at another dispatcher is passed on to it, in the order of arrival. A flow whose packets
//! have another key behind a function has an *alias*: its dispatcher claims the alias at all
//! others, and the packet that created it leaves once they have granted it, so that no answer
//! arrives where nobody knows the flow. If two claim the same key, the later claim holds, at all of
//! them: claims have times of a logical clock, and of equal ones the higher dispatcher's is later.
//!
//! A dispatcher that cannot be reached keeps its share: its packets are dropped until it is back.

use std::collections::{HashMap, VecDeque};

use nf::AffinityGroup;
use packet::{FlowKey, Packet};
use runtime::transport::{Elsewhere, Passage};

use crate::peers::PeerId;
use crate::policies::NumberedDigest;
use crate::wire::KeyClaim;

use super::accounts::{Account, PassedTotals};

/// Limit on the dispatchers of a cluster.
pub const HOMES_MAX: usize = 64;
/// Limit on packets that wait for a link to another dispatcher, and on those that have come from
/// others and are not dispatched. Further ones are dropped.
pub(super) const PASSED_MAX: usize = 4096;
/// Flows whose first fragments were passed on, and are remembered at least.
const FRAGMENTED_MAX: usize = 1024;

/// The dispatchers of a cluster.
#[derive(Default)]
pub(crate) struct Homes {
    /// The number of this one.
    own: usize,
    /// By number.
    all: Vec<Home>,
    /// Keys of other dispatchers' flows, and the claims that hold.
    claimed: HashMap<FlowKey, HeldClaim>,
    /// Aliases that this dispatcher has claimed, and when.
    own_claims: HashMap<FlowKey, u64>,
    /// Claims so far.
    claims: u64,
    /// The logical clock (Lamport's): the time of the latest claim that is known.
    clock: u64,
    /// Homes of flows with fragments: later ones do not show their group. Two generations.
    fragmented: [HashMap<FlowKey, usize>; 2],
    /// Keys that flows of other dispatchers have taken, and that were not looked at.
    pub taken: VecDeque<FlowKey>,
    /// Links of other dispatchers, by number and with their policies, whose first datagram has not
    /// come: until then it is not known that the other end has the link.
    early: Vec<(usize, PeerId, NumberedDigest)>,
    /// Packets from other dispatchers.
    pub arrived: VecDeque<(Packet, Passage)>,
    pub held: Held,
    /// Packets taken over from others, and those of them that could not be read.
    pub taken_over: u64,
    pub unreadable: u64,
    /// Links to dispatchers that have said that they end.
    pub parting: Vec<PeerId>,
    /// This dispatcher ends, and takes over no more packets.
    pub is_closed: bool,
    /// Since then it has waited for the others' word, and since then they have had its last one.
    pub closed_ns: Option<u64>,
    pub parted_ns: Option<u64>,
}

/// A claim that holds. The order is that of claims: the last one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HeldClaim {
    time: u64,
    /// The dispatcher, by number.
    owner: usize,
}

/// A dispatcher.
#[derive(Debug)]
pub(crate) struct Home {
    pub name: String,
    pub address: String,
    pub link: Option<PeerId>,
    /// The policy that it runs, while it is there.
    pub policy: Option<NumberedDigest>,
    /// The last claim that it has granted.
    pub granted: u64,
    pub account: Account,
    /// The fault of the last attempt to connect.
    pub fault: String,
}

/// Another dispatcher, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherDispatcher {
    /// Its name.
    pub name: String,
    /// The address of its handshakes.
    pub address: String,
    /// There is a link to it.
    pub is_connected: bool,
    /// The policy that it runs, while it is there.
    pub policy: Option<NumberedDigest>,
    /// Why it is not there; empty if that is not known.
    pub reason: String,
    /// Time since it was heard last, if nothing is heard from it and it is not given up.
    pub silent_ns: Option<u64>,
}

/// Packets that leave once other dispatchers have granted the claims before them.
#[derive(Default)]
pub(crate) struct Held {
    /// Packets of the latest report, whose claims may follow.
    latest: Vec<Packet>,
    /// Packets, and the claim that must be granted.
    waiting: VecDeque<(u64, Vec<Packet>)>,
    pub count: usize,
}

impl Held {
    /// Takes all packets, whether their claims are granted or not.
    pub fn take_all(&mut self) -> impl Iterator<Item = Packet> + use<> {
        self.count = 0;
        let waiting = std::mem::take(&mut self.waiting).into_iter().flat_map(|(_, packets)| packets);
        waiting.chain(std::mem::take(&mut self.latest))
    }
}

impl Homes {
    /// Creates those of a cluster with these dispatchers, by name and address; the number of each
    /// follows from its name. There is one without others if the list is empty.
    pub fn new(own: &str, dispatchers: &[(String, String)]) -> Homes {
        let mut all: Vec<Home> = dispatchers
            .iter()
            .map(|(name, address)| Home {
                name: name.clone(),
                address: address.clone(),
                link: None,
                policy: None,
                granted: 0,
                account: Account::default(),
                fault: String::new(),
            })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let own = all.iter().position(|home| home.name == own).unwrap_or_default();
        Homes { own, all, ..Homes::default() }
    }

    /// Returns true if there are others.
    pub fn has_others(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns the others, in the order of their names. `silent_ns` returns the time since one that
    /// is suspect was heard last.
    pub fn others(&self, silent_ns: impl Fn(PeerId) -> Option<u64>) -> Vec<OtherDispatcher> {
        let others = self.all.iter().enumerate().filter(|(number, _)| *number != self.own);
        let other = |home: &Home| OtherDispatcher {
            name: home.name.clone(),
            address: home.address.clone(),
            is_connected: home.link.is_some(),
            policy: home.policy,
            reason: if home.link.is_none() { home.fault.clone() } else { String::new() },
            silent_ns: home.link.and_then(&silent_ns),
        };
        others.map(|(_, home)| other(home)).collect()
    }

    /// Returns the first dispatcher by name, if that is another one.
    pub fn first(&self) -> Option<&str> {
        self.all.first().filter(|_| self.own > 0).map(|home| &*home.name)
    }

    /// Returns the name of this dispatcher; empty if it is the only one.
    pub fn own_name(&self) -> &str {
        self.all.get(self.own).map_or("", |home| &*home.name)
    }

    /// Returns true if all dispatchers that are there run this policy at least.
    pub fn all_run(&self, policy: NumberedDigest) -> bool {
        let there = self.all.iter().filter(|home| home.link.is_some());
        there.filter_map(|home| home.policy).all(|runs| runs.number >= policy.number)
    }

    /// Another dispatcher runs this policy.
    pub fn set_policy(&mut self, peer: PeerId, policy: NumberedDigest) {
        if let Some(number) = self.at(peer) {
            self.all[number].policy = Some(policy);
        }
    }

    /// Returns the names of all dispatchers as one text, which all of them must agree on.
    pub fn scope(&self) -> String {
        self.all.iter().map(|home| home.name.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Returns the dispatchers that this one connects to: of two, the later one by name connects.
    pub fn to_connect(&self) -> impl Iterator<Item = &Home> {
        self.all.iter().take(self.own)
    }

    /// Returns the number of the dispatcher with this name, if it is another one.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|home| home.name == name).filter(|&number| number != self.own)
    }

    /// Returns the number of the dispatcher at the other end of a link.
    pub fn at(&self, peer: PeerId) -> Option<usize> {
        self.all.iter().position(|home| home.link == Some(peer))
    }

    /// Returns a dispatcher.
    pub fn get_mut(&mut self, number: usize) -> &mut Home {
        &mut self.all[number]
    }

    /// Returns the links to the others that are there.
    pub fn links(&self) -> impl Iterator<Item = PeerId> {
        self.all.iter().filter_map(|home| home.link)
    }

    /// Returns the link to a dispatcher, if it is there.
    pub fn link(&self, number: u16) -> Option<PeerId> {
        self.all.get(usize::from(number))?.link
    }

    /// Returns the packets passed on to others so far, and those whose arrival is not known.
    pub fn passed(&self) -> (PassedTotals, u64) {
        let totals = self.all.iter().fold(PassedTotals::default(), |sum, home| PassedTotals {
            passed_on: sum.passed_on + home.account.totals().passed_on,
            lost: sum.lost + home.account.totals().lost,
        });
        (totals, self.all.iter().map(|home| home.account.open()).sum())
    }

    /// Returns true if a dispatcher that is there has not said of all packets that it took them.
    pub fn has_open(&self) -> bool {
        self.all.iter().any(|home| home.link.is_some() && home.account.open() > 0)
    }

    /// Returns the links to others that should hear how many packets were taken over from them, and
    /// how many; with `is_last`, all others.
    pub fn due(&mut self, now_ns: u64, is_last: bool) -> Vec<(PeerId, u64)> {
        let due = self.all.iter_mut().filter(|home| is_last || home.account.is_due(now_ns));
        due.filter_map(|home| Some((home.link?, home.account.say(now_ns)))).collect()
    }

    /// A dispatcher that runs this policy has connected.
    pub fn add_early(&mut self, number: usize, peer: PeerId, policy: NumberedDigest) {
        self.early.push((number, peer, policy));
    }

    /// A link that has begun is in use. Returns the number of its dispatcher, and its policy.
    pub fn take_early(&mut self, peer: PeerId) -> Option<(usize, NumberedDigest)> {
        let at = self.early.iter().position(|(_, early, _)| *early == peer)?;
        let (number, _, policy) = self.early.swap_remove(at);
        Some((number, policy))
    }

    /// A link that has begun is not used. Returns true if there was one.
    pub fn forget_early(&mut self, peer: PeerId) -> bool {
        self.take_early(peer).is_some()
    }

    /// A dispatcher is there. Returns the claims that it must know: it has granted all once it
    /// grants these, which have the number of the last one. In turn it claims all its own ones
    /// again, so that none is left that it has released in the meantime.
    pub fn connected(&mut self, number: usize, peer: PeerId) -> Vec<KeyClaim> {
        self.claimed.retain(|_, claim| claim.owner != number);
        let granted = if self.own_claims.is_empty() { self.claims } else { 0 };
        let home = &mut self.all[number];
        (home.link, home.granted) = (Some(peer), granted);
        let number = self.claims;
        let mut claims: Vec<_> =
            self.own_claims.iter().map(|(&key, &time)| KeyClaim { number, time, key }).collect();
        claims.sort_unstable_by_key(|claim| claim.time);
        claims
    }

    /// A link is lost. What waits for the dispatcher's grants does no longer: its process is gone,
    /// or hears of all claims before it takes packets again.
    pub fn lost(&mut self, peer: PeerId) -> Option<(String, String)> {
        let own = self.own;
        let (number, home) = self.all.iter_mut().enumerate().find(|(_, home)| home.link == Some(peer))?;
        (home.link, home.policy) = (None, None);
        (number < own).then(|| (home.name.clone(), home.address.clone()))
    }

    fn home_of(&self, hash: u64) -> usize {
        // As among workers: not the bits by which tables look flows up.
        (((hash >> 32) * self.all.len() as u64) >> 32) as usize
    }

    /// Returns the dispatcher that tracks a datagram of this hash, if it is another one.
    pub fn datagram_elsewhere(&self, hash: u64) -> Option<u16> {
        Some(self.home_of(hash)).filter(|&home| home != self.own).map(|home| home as u16)
    }

    /// Returns the dispatcher that a packet must go to, if it is another one, and the way that it
    /// has come then. This dispatcher does not know its flow.
    pub fn elsewhere(
        &mut self,
        key: &FlowKey,
        hash: u64,
        group: Option<AffinityGroup>,
        passage: Passage,
    ) -> Option<Elsewhere> {
        if let Some(claim) = self.claimed.get(key).filter(|_| passage < Passage::Owner) {
            return Some((claim.owner as u16, Passage::Owner));
        }
        let next = match passage {
            Passage::Arrived | Passage::Datagram => Passage::Home,
            // The flow has ended before the packet came.
            Passage::Owner => Passage::Returned,
            Passage::Home | Passage::Returned => return None,
        };
        let remembered = || self.fragmented.iter().find_map(|homes| homes.get(key)).copied();
        let home = match group {
            Some(group) => group.index() % self.all.len(),
            None => remembered().unwrap_or_else(|| self.home_of(hash)),
        };
        (home != self.own).then_some((home as u16, next))
    }

    /// Notes that the first fragment of a datagram of this flow went to a dispatcher.
    pub fn remember(&mut self, key: FlowKey, home: u16) {
        if self.fragmented[0].len() >= FRAGMENTED_MAX {
            self.fragmented.swap(0, 1);
            self.fragmented[0].clear();
        }
        self.fragmented[0].insert(key, home.into());
    }

    /// Claims an alias of an own flow, which another dispatcher loses if it has claimed it before.
    pub fn claim(&mut self, alias: FlowKey) -> KeyClaim {
        self.claims += 1;
        self.clock = self.clock.saturating_add(1);
        self.own_claims.insert(alias, self.clock);
        self.claimed.remove(&alias);
        KeyClaim { number: self.claims, time: self.clock, key: alias }
    }

    /// Gives an alias up. Returns false if it was not claimed.
    pub fn release(&mut self, alias: &FlowKey) -> bool {
        self.own_claims.remove(alias).is_some()
    }

    /// Returns true if an own flow has claimed this alias.
    pub fn has_claimed(&self, alias: &FlowKey) -> bool {
        self.own_claims.contains_key(alias)
    }

    /// Another dispatcher claims a key. A later claim that is known holds.
    pub fn claimed_by(&mut self, owner: usize, time: u64, key: FlowKey) {
        self.clock = self.clock.max(time);
        let claim = HeldClaim { time, owner };
        let own = self.own_claims.get(&key).map(|&time| HeldClaim { time, owner: self.own });
        let of_other = self.claimed.get(&key).copied().filter(|other| other.owner != owner);
        if own.max(of_other) > Some(claim) {
            return;
        }
        self.claimed.insert(key, claim);
        self.own_claims.remove(&key);
        self.taken.push_back(key);
    }

    /// Another dispatcher gives a key up.
    pub fn released_by(&mut self, number: usize, key: &FlowKey) {
        if self.claimed.get(key).is_some_and(|claim| claim.owner == number) {
            self.claimed.remove(key);
        }
    }

    /// Notes packets of the latest report. Its claims may follow.
    pub fn hold(&mut self, packets: &mut Vec<Packet>) {
        self.held.count += packets.len();
        self.held.latest.append(packets);
    }

    /// Moves packets to `out` whose claims are granted, in order.
    pub fn release_held(&mut self, out: &mut Vec<Packet>) {
        let granted = self.all.iter().filter(|home| home.link.is_some()).map(|home| home.granted).min();
        let granted = granted.unwrap_or(u64::MAX);
        let held = &mut self.held;
        while let Some((claim, packets)) = held.waiting.front_mut().filter(|(claim, _)| *claim <= granted) {
            debug_assert!(*claim <= self.claims);
            held.count -= packets.len();
            out.append(packets);
            held.waiting.pop_front();
        }
        if held.latest.is_empty() {
            return;
        }
        if held.waiting.is_empty() && self.claims <= granted {
            held.count -= held.latest.len();
            out.append(&mut held.latest);
        } else {
            held.waiting.push_back((self.claims, std::mem::take(&mut held.latest)));
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::{Addr, Endpoint, Scope};

    use super::*;

    fn key(port: u16) -> FlowKey {
        let end = |host| Endpoint::new(Addr::from_v4_bytes([10, 0, 0, host]), port);
        FlowKey::new(end(1), end(2), 17, 4, Scope::default(), 0).0
    }

    fn homes(own: &str) -> Homes {
        let all = ["c", "a", "b"].map(|name| (name.to_owned(), format!("{name}:1")));
        Homes::new(own, &all)
    }

    #[test]
    fn all_agree_on_homes_and_each_way_leads_on() {
        let mut all = ["a", "b", "c"].map(homes);
        for hash in (0..300u64).map(|n| n << 55 | n << 32) {
            let of_each: Vec<_> =
                all.iter_mut().map(|homes| homes.elsewhere(&key(1), hash, None, Passage::Arrived)).collect();
            let at_home = of_each.iter().position(Option::is_none).unwrap();
            let others = of_each.iter().enumerate().filter(|(number, _)| *number != at_home);
            assert!(others.into_iter().all(|(_, to)| *to == Some((at_home as u16, Passage::Home))));
            assert_eq!(all[at_home].elsewhere(&key(1), hash, None, Passage::Home), None);
        }
        all[1].claimed_by(2, 1, key(7));
        assert_eq!(all[1].elsewhere(&key(7), 0, None, Passage::Home), Some((2, Passage::Owner)));
        // The owner does not know it any more: it goes home, and no further.
        assert_eq!(all[2].elsewhere(&key(7), 0, None, Passage::Owner), Some((0, Passage::Returned)));
        all[0].claimed_by(2, 1, key(7));
        assert_eq!(all[0].elsewhere(&key(7), 0, None, Passage::Returned), None);
        all[1].released_by(0, &key(7));
        assert!(all[1].elsewhere(&key(7), 0, None, Passage::Home).is_some(), "another one has it");
        // What it has released while the link was lost is not left.
        all[1].connected(2, PeerId::at(1));
        assert_eq!(all[1].elsewhere(&key(7), u64::MAX >> 1, None, Passage::Home), None);
    }

    /// Claims may arrive in any order.
    #[test]
    fn all_agree_on_the_claim_that_holds() {
        for order in [[0, 1], [1, 0]] {
            for (earlier, later) in [(0, 1), (1, 0)] {
                let mut all = ["a", "b", "c"].map(homes);
                // One of them has heard of more claims.
                all[later].claimed_by(2, 5, key(9));
                let claims = [0, 1].map(|at: usize| all[at].claim(key(7)));
                for from in order {
                    let KeyClaim { time, key, .. } = claims[from];
                    all[1 - from].claimed_by(from, time, key);
                    all[2].claimed_by(from, time, key);
                }
                assert_eq!([earlier, later].map(|at| all[at].has_claimed(&key(7))), [false, true]);
                for at in [earlier, 2] {
                    let to = all[at].elsewhere(&key(7), 0, None, Passage::Arrived);
                    assert_eq!(to, Some((later as u16, Passage::Owner)));
                }
                assert_eq!((all[earlier].taken.pop_front(), all[later].taken.len()), (Some(key(7)), 1));
            }
        }
        let mut all = ["a", "b"].map(homes);
        let claims = [0, 1].map(|at: usize| all[at].claim(key(7)));
        assert_eq!(claims[0].time, claims[1].time);
        all[0].claimed_by(1, claims[1].time, key(7));
        all[1].claimed_by(0, claims[0].time, key(7));
        assert_eq!([0, 1].map(|at: usize| all[at].has_claimed(&key(7))), [false, true]);
        // Who takes it back is the later one.
        let again = all[0].claim(key(7));
        all[1].claimed_by(0, again.time, key(7));
        assert_eq!([0, 1].map(|at: usize| all[at].has_claimed(&key(7))), [true, false]);
        // No time is too late.
        all[0].claimed_by(1, u64::MAX, key(8));
        assert_eq!(all[0].claim(key(8)).time, u64::MAX);
    }

    #[test]
    fn later_fragments_follow_the_first_one() {
        let mut homes = homes("a");
        let group = AffinityGroup(4);
        let first = homes.elsewhere(&key(1), 0, Some(group), Passage::Datagram);
        assert_eq!(first, Some((1, Passage::Home)));
        homes.remember(key(1), 1);
        for port in 100..100 + FRAGMENTED_MAX as u16 {
            homes.remember(key(port), 2);
        }
        assert_eq!(homes.elsewhere(&key(1), 0, None, Passage::Datagram), first);
    }

    #[test]
    fn packets_leave_in_order_once_their_claims_are_granted() {
        let (mut homes, mut out) = (homes("a"), Vec::new());
        let packet = |byte: u8| Packet::from_bytes(&[byte; 60]);
        let bytes = |out: &[Packet]| out.iter().map(|packet| packet.data()[0]).collect::<Vec<_>>();
        let peers = [PeerId::at(1), PeerId::at(2)];
        for (number, peer) in (1..).zip(peers) {
            assert_eq!(homes.connected(number, peer), []);
        }
        let report = |homes: &mut Homes, byte, out: &mut Vec<Packet>| {
            homes.hold(&mut vec![packet(byte)]);
            homes.release_held(out);
        };
        report(&mut homes, 1, &mut out);
        assert_eq!(bytes(&out), [1], "no claim is before it");
        homes.hold(&mut vec![packet(2)]);
        let claim = homes.claim(key(1));
        assert_eq!(claim, KeyClaim { number: 1, time: 1, key: key(1) });
        homes.release_held(&mut out);
        report(&mut homes, 3, &mut out);
        homes.get_mut(1).granted = 1;
        homes.release_held(&mut out);
        assert_eq!((bytes(&out), homes.held.count), (vec![1], 2), "one has not granted it");
        homes.lost(peers[1]);
        homes.release_held(&mut out);
        assert_eq!((bytes(&out), homes.held.count), (vec![1, 2, 3], 0));
        // Back again, it hears of all claims before anything else.
        assert_eq!(homes.connected(2, peers[1]), [claim]);
    }
}
