//! The dispatchers of a cluster. Each is the *home* of a share of the flows.
//!
//! A flow's home is a function of its affinity group, or of the hash of its key. A packet that
//! arrives at another dispatcher is passed on to its home, in the order of arrival. An NF can give
//! a flow's packets another key, the flow's *alias*. The flow's dispatcher claims the alias at all
//! others, and the packet that created it leaves once they have granted it, so that no reply
//! arrives at a dispatcher without the claim. If two dispatchers claim the same key, the later
//! claim holds at all of them: claims have times of a logical clock, and of equal times, the one of
//! the higher dispatcher is later.
//!
//! An unreachable dispatcher keeps its share: its packets are dropped until it is back.

use std::collections::{HashMap, VecDeque};

use nf::AffinityGroup;
use packet::{FlowKey, Packet};
use runtime::transport::{Redirect, RouteStage};

use crate::peers::PeerId;
use crate::policies::NumberedDigest;
use crate::wire::KeyClaim;

use super::accounts::{Account, PassedTotals};

/// Limit on the dispatchers of a cluster.
pub const HOMES_MAX: usize = 64;
/// Limit on packets that wait for a link to another dispatcher, and on received packets before
/// their dispatch. Further ones are dropped.
pub(super) const PASSED_MAX: usize = 4096;
/// Least number of fragmented flows with a remembered home.
const FRAGMENTED_MAX: usize = 1024;

/// The dispatchers of a cluster.
#[derive(Default)]
pub(crate) struct HomeTable {
    /// The number of this dispatcher.
    own: usize,
    /// By number.
    all: Vec<Home>,
    /// Claims of other dispatchers, by key.
    claimed: HashMap<FlowKey, HeldClaim>,
    /// Aliases that this dispatcher has claimed, with the times of the claims.
    own_claims: HashMap<FlowKey, u64>,
    /// Claims so far.
    claims: u64,
    /// The logical clock (Lamport's): the latest known time of a claim.
    clock: u64,
    /// Homes of fragmented flows: later fragments do not show their group. Two generations.
    fragmented: [HashMap<FlowKey, usize>; 2],
    /// Keys that other dispatchers have claimed, for
    /// [`poll_claimed`](runtime::transport::Federation::poll_claimed).
    pub taken: VecDeque<FlowKey>,
    /// New links of other dispatchers, by number and with their policies, that have carried no
    /// datagram yet: the other end may not have the link.
    early: Vec<(usize, PeerId, NumberedDigest)>,
    /// Packets received from other dispatchers.
    pub arrived: VecDeque<(Packet, RouteStage)>,
    pub held: Held,
    /// Packets taken over from others, and malformed ones among them.
    pub taken_over: u64,
    pub unreadable: u64,
    /// Links to dispatchers that have announced their end.
    pub parting: Vec<PeerId>,
    /// This dispatcher ends, and takes over no more packets.
    pub is_closed: bool,
    /// Time since which it has waited for the others' acknowledgements, and since which it has sent
    /// its last ones.
    pub closed_ns: Option<u64>,
    pub parted_ns: Option<u64>,
}

/// A claim that holds. Claims are ordered; the greatest one holds.
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
    /// The policy that it runs, while connected.
    pub policy: Option<NumberedDigest>,
    /// The last claim that it has granted.
    pub granted: u64,
    pub account: Account,
    /// The error of the last attempt to connect.
    pub fault: String,
}

/// Another dispatcher, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherDispatcher {
    /// Its name.
    pub name: String,
    /// The address of its handshakes.
    pub address: String,
    /// True while there is a link to it.
    pub is_connected: bool,
    /// The policy that it runs, while connected.
    pub policy: Option<NumberedDigest>,
    /// The error of the last attempt to connect; empty if there is none.
    pub reason: String,
    /// Length of its silence, if it is suspect.
    pub silent_ns: Option<u64>,
}

/// Packets that wait until other dispatchers have granted earlier claims.
#[derive(Default)]
pub(crate) struct Held {
    /// Packets of the latest report; their claims may follow.
    latest: Vec<Packet>,
    /// Packets, with the claim that must be granted.
    waiting: VecDeque<(u64, Vec<Packet>)>,
    pub count: usize,
}

impl Held {
    /// Takes all packets, granted or not.
    pub fn take_all(&mut self) -> impl Iterator<Item = Packet> + use<> {
        self.count = 0;
        let waiting = std::mem::take(&mut self.waiting).into_iter().flat_map(|(_, packets)| packets);
        waiting.chain(std::mem::take(&mut self.latest))
    }
}

impl HomeTable {
    /// Creates the table of a cluster with these dispatchers, by name and address, numbered in the
    /// order of their names. An empty list means that there are no others.
    pub fn new(own: &str, dispatchers: &[(String, String)]) -> HomeTable {
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
        HomeTable { own, all, ..HomeTable::default() }
    }

    /// Returns true if there are other dispatchers.
    pub fn has_others(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns the other dispatchers, by name. `silent_ns` returns the length of a suspect node's
    /// silence.
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

    /// Returns true if all connected dispatchers run this policy or a later one.
    pub fn all_run(&self, policy: NumberedDigest) -> bool {
        let there = self.all.iter().filter(|home| home.link.is_some());
        there.filter_map(|home| home.policy).all(|runs| runs.number >= policy.number)
    }

    /// Sets the policy of another dispatcher.
    pub fn set_policy(&mut self, peer: PeerId, policy: NumberedDigest) {
        if let Some(number) = self.at(peer) {
            self.all[number].policy = Some(policy);
        }
    }

    /// Returns the names of all dispatchers as one text, on which all must agree.
    pub fn scope(&self) -> String {
        self.all.iter().map(|home| home.name.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Returns the dispatchers that this one connects to. Of two dispatchers, the later one by name
    /// connects.
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

    /// Returns the links to the connected ones.
    pub fn links(&self) -> impl Iterator<Item = PeerId> {
        self.all.iter().filter_map(|home| home.link)
    }

    /// Returns the link to a dispatcher, if connected.
    pub fn link(&self, number: u16) -> Option<PeerId> {
        self.all.get(usize::from(number))?.link
    }

    /// Returns the totals of packets passed on, and the number of unacknowledged ones.
    pub fn passed(&self) -> (PassedTotals, u64) {
        let totals = self.all.iter().fold(PassedTotals::default(), |sum, home| PassedTotals {
            passed_on: sum.passed_on + home.account.totals().passed_on,
            lost: sum.lost + home.account.totals().lost,
        });
        (totals, self.all.iter().map(|home| home.account.open()).sum())
    }

    /// Returns true if a connected dispatcher has not acknowledged all packets.
    pub fn has_open(&self) -> bool {
        self.all.iter().any(|home| home.link.is_some() && home.account.open() > 0)
    }

    /// Returns the links that need an acknowledgement, with the totals to acknowledge; with
    /// `is_last`, all links.
    pub fn due(&mut self, now_ns: u64, is_last: bool) -> Vec<(PeerId, u64)> {
        let due = self.all.iter_mut().filter(|home| is_last || home.account.is_due(now_ns));
        due.filter_map(|home| Some((home.link?, home.account.acknowledge(now_ns)))).collect()
    }

    /// Adds a new link to a dispatcher that runs this policy.
    pub fn add_early(&mut self, number: usize, peer: PeerId, policy: NumberedDigest) {
        self.early.push((number, peer, policy));
    }

    /// Takes a new link that is in use now. Returns the number of its dispatcher, and its policy.
    pub fn take_early(&mut self, peer: PeerId) -> Option<(usize, NumberedDigest)> {
        let at = self.early.iter().position(|(_, early, _)| *early == peer)?;
        let (number, _, policy) = self.early.swap_remove(at);
        Some((number, policy))
    }

    /// Forgets a new link. Returns true if there was one.
    pub fn forget_early(&mut self, peer: PeerId) -> bool {
        self.take_early(peer).is_some()
    }

    /// Puts a link to a dispatcher into use. Returns the claims to send: they have the number of
    /// the last claim, so granting them grants all. The dispatcher sends its own claims likewise,
    /// so claims that it has released in the meantime are forgotten here.
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

    /// Handles the loss of a link. Packets no longer wait for the dispatcher's grants: its process
    /// has ended, or will receive all claims before it takes packets again. Returns its name and
    /// address if this dispatcher must reconnect.
    pub fn lost(&mut self, peer: PeerId) -> Option<(String, String)> {
        let own = self.own;
        let (number, home) = self.all.iter_mut().enumerate().find(|(_, home)| home.link == Some(peer))?;
        (home.link, home.policy) = (None, None);
        (number < own).then(|| (home.name.clone(), home.address.clone()))
    }

    fn home_of(&self, hash: u64) -> usize {
        // Uses other bits of the hash than the tables do, as the workers' shares do.
        (((hash >> 32) * self.all.len() as u64) >> 32) as usize
    }

    /// Returns the dispatcher that tracks datagrams of this hash, if it is another one.
    pub fn redirect_datagram(&self, hash: u64) -> Option<u16> {
        Some(self.home_of(hash)).filter(|&home| home != self.own).map(|home| home as u16)
    }

    /// Returns the dispatcher that a packet of an unknown flow must go to, if it is another one,
    /// and the stage of its route.
    pub fn redirect(
        &mut self,
        key: &FlowKey,
        hash: u64,
        group: Option<AffinityGroup>,
        stage: RouteStage,
    ) -> Option<Redirect> {
        if let Some(claim) = self.claimed.get(key).filter(|_| stage < RouteStage::Owner) {
            return Some(Redirect { dispatcher: claim.owner as u16, stage: RouteStage::Owner });
        }
        let next = match stage {
            RouteStage::Arrived | RouteStage::Datagram => RouteStage::Home,
            // The flow has ended before the packet arrived.
            RouteStage::Owner => RouteStage::Returned,
            RouteStage::Home | RouteStage::Returned => return None,
        };
        let remembered = || self.fragmented.iter().find_map(|homes| homes.get(key)).copied();
        let home = match group {
            Some(group) => group.index() % self.all.len(),
            None => remembered().unwrap_or_else(|| self.home_of(hash)),
        };
        (home != self.own).then_some(Redirect { dispatcher: home as u16, stage: next })
    }

    /// Remembers the dispatcher that the first fragment of this flow's datagram went to.
    pub fn remember(&mut self, key: FlowKey, home: u16) {
        if self.fragmented[0].len() >= FRAGMENTED_MAX {
            self.fragmented.swap(0, 1);
            self.fragmented[0].clear();
        }
        self.fragmented[0].insert(key, home.into());
    }

    /// Claims an alias of an own flow, and revokes another dispatcher's earlier claim.
    pub fn claim(&mut self, alias: FlowKey) -> KeyClaim {
        self.claims += 1;
        self.clock = self.clock.saturating_add(1);
        self.own_claims.insert(alias, self.clock);
        self.claimed.remove(&alias);
        KeyClaim { number: self.claims, time: self.clock, key: alias }
    }

    /// Releases an alias. Returns false if it was not claimed.
    pub fn release(&mut self, alias: &FlowKey) -> bool {
        self.own_claims.remove(alias).is_some()
    }

    /// Returns true if an own flow has claimed this alias.
    pub fn has_claimed(&self, alias: &FlowKey) -> bool {
        self.own_claims.contains_key(alias)
    }

    /// Takes another dispatcher's claim, unless a later one is known.
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

    /// Takes another dispatcher's release of a key.
    pub fn released_by(&mut self, number: usize, key: &FlowKey) {
        if self.claimed.get(key).is_some_and(|claim| claim.owner == number) {
            self.claimed.remove(key);
        }
    }

    /// Holds packets of the latest report. Its claims may follow.
    pub fn hold(&mut self, packets: &mut Vec<Packet>) {
        self.held.count += packets.len();
        self.held.latest.append(packets);
    }

    /// Moves packets with granted claims to `out`, in order.
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

    fn redirect(dispatcher: usize, stage: RouteStage) -> Option<Redirect> {
        Some(Redirect { dispatcher: dispatcher as u16, stage })
    }

    fn homes(own: &str) -> HomeTable {
        let all = ["c", "a", "b"].map(|name| (name.to_owned(), format!("{name}:1")));
        HomeTable::new(own, &all)
    }

    #[test]
    fn all_agree_on_homes_and_each_way_leads_on() {
        let mut all = ["a", "b", "c"].map(homes);
        for hash in (0..300u64).map(|n| n << 55 | n << 32) {
            let of_each: Vec<_> = all
                .iter_mut()
                .map(|homes| homes.redirect(&key(1), hash, None, RouteStage::Arrived))
                .collect();
            let at_home = of_each.iter().position(Option::is_none).unwrap();
            let others = of_each.iter().enumerate().filter(|(number, _)| *number != at_home);
            assert!(others.into_iter().all(|(_, to)| *to == redirect(at_home, RouteStage::Home)));
            assert_eq!(all[at_home].redirect(&key(1), hash, None, RouteStage::Home), None);
        }
        all[1].claimed_by(2, 1, key(7));
        assert_eq!(all[1].redirect(&key(7), 0, None, RouteStage::Home), redirect(2, RouteStage::Owner));
        // The owner no longer knows it: it goes to its home, and no further.
        assert_eq!(all[2].redirect(&key(7), 0, None, RouteStage::Owner), redirect(0, RouteStage::Returned));
        all[0].claimed_by(2, 1, key(7));
        assert_eq!(all[0].redirect(&key(7), 0, None, RouteStage::Returned), None);
        all[1].released_by(0, &key(7));
        assert!(all[1].redirect(&key(7), 0, None, RouteStage::Home).is_some(), "another one has it");
        // A key that it has released during the loss of the link is forgotten.
        all[1].connected(2, PeerId::at(1));
        assert_eq!(all[1].redirect(&key(7), u64::MAX >> 1, None, RouteStage::Home), None);
    }

    /// Claims may arrive in any order.
    #[test]
    fn all_agree_on_the_claim_that_holds() {
        for order in [[0, 1], [1, 0]] {
            for (earlier, later) in [(0, 1), (1, 0)] {
                let mut all = ["a", "b", "c"].map(homes);
                // One dispatcher has received more claims.
                all[later].claimed_by(2, 5, key(9));
                let claims = [0, 1].map(|at: usize| all[at].claim(key(7)));
                for from in order {
                    let KeyClaim { time, key, .. } = claims[from];
                    all[1 - from].claimed_by(from, time, key);
                    all[2].claimed_by(from, time, key);
                }
                assert_eq!([earlier, later].map(|at| all[at].has_claimed(&key(7))), [false, true]);
                for at in [earlier, 2] {
                    let to = all[at].redirect(&key(7), 0, None, RouteStage::Arrived);
                    assert_eq!(to, redirect(later, RouteStage::Owner));
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
        // Claiming it again makes that claim the later one.
        let again = all[0].claim(key(7));
        all[1].claimed_by(0, again.time, key(7));
        assert_eq!([0, 1].map(|at: usize| all[at].has_claimed(&key(7))), [true, false]);
        // The clock saturates.
        all[0].claimed_by(1, u64::MAX, key(8));
        assert_eq!(all[0].claim(key(8)).time, u64::MAX);
    }

    #[test]
    fn later_fragments_follow_the_first_one() {
        let mut homes = homes("a");
        let group = AffinityGroup(4);
        let first = homes.redirect(&key(1), 0, Some(group), RouteStage::Datagram);
        assert_eq!(first, redirect(1, RouteStage::Home));
        homes.remember(key(1), 1);
        for port in 100..100 + FRAGMENTED_MAX as u16 {
            homes.remember(key(port), 2);
        }
        assert_eq!(homes.redirect(&key(1), 0, None, RouteStage::Datagram), first);
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
        let report = |homes: &mut HomeTable, byte, out: &mut Vec<Packet>| {
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
        // After a reconnection, it receives all claims first.
        assert_eq!(homes.connected(2, peers[1]), [claim]);
    }
}
