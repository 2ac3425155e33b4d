//! Links: arrival times, losses and repetitions.

use protocol::message::UnitId;

use crate::random::Random;
use crate::scenario::{self, LinkSettings, MessageFaults};

/// All links of a simulation.
#[derive(Clone, Debug)]
pub struct Links {
    dispatcher_to_unit: Lanes,
    unit_to_unit: Lanes,
    /// Replicas keep their order; pulled states overtake them.
    copies: Lanes,
    unit_to_router: Lanes,
    unit_to_store: Lanes,
    store_to_unit: Lanes,
    units: usize,
    messages: MessageFaults,
    copy_ns: u64,
    bandwidth_bps: u64,
    /// End of each unit's transmission of states.
    sending_until_ns: Vec<u64>,
    random: Random,
}

/// Links of one class.
#[derive(Clone, Debug)]
struct Lanes {
    link: LinkSettings,
    /// Latest arrival on each link; later messages do not arrive before it.
    last_ns: Vec<u64>,
}

/// Arrival times of a unit's message: once, twice or not at all.
pub type Arrivals = [Option<u64>; 2];

/// The payload of a message between units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cargo {
    /// No state.
    None,
    /// Bytes of a state that was pulled.
    State(usize),
    /// Bytes of a replica.
    Copy(usize),
}

/// Fate of a packet on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// It arrives then.
    At(u64),
    /// It is lost.
    Lost,
}

impl Links {
    /// Creates the links of this many units.
    pub fn new(links: &scenario::Links, units: u16, seed: u64) -> Links {
        let units = usize::from(units);
        let lanes = |link, count| Lanes { link, last_ns: vec![0; count] };
        Links {
            dispatcher_to_unit: lanes(links.dispatcher_to_unit, units),
            unit_to_unit: lanes(links.unit_to_unit, units * units),
            copies: lanes(links.unit_to_unit, units * units),
            unit_to_router: lanes(links.unit_to_router, units),
            unit_to_store: lanes(links.unit_to_store, units),
            store_to_unit: lanes(links.unit_to_store, units),
            units,
            messages: links.messages,
            copy_ns: links.copy_time.0,
            bandwidth_bps: links.bandwidth.0,
            sending_until_ns: vec![0; units],
            random: Random::new(seed, "links"),
        }
    }

    /// Returns the fate of a packet from the dispatcher to a unit.
    #[inline]
    pub fn packet(&mut self, now_ns: u64, to: UnitId) -> Carried {
        self.dispatcher_to_unit.packet(now_ns, to.index(), &mut self.random)
    }

    /// Returns the fate of a packet from a unit to another.
    pub fn packet_between(&mut self, now_ns: u64, from: UnitId, to: UnitId) -> Carried {
        self.unit_to_unit.packet(now_ns, from.index() * self.units + to.index(), &mut self.random)
    }

    /// Returns the arrival of a message from the dispatcher to a unit.
    pub fn message(&mut self, now_ns: u64, to: UnitId) -> u64 {
        self.dispatcher_to_unit.message(now_ns, to.index(), &mut self.random)
    }

    /// Returns the arrivals of a message from a unit to the dispatcher.
    pub fn message_to_dispatcher(&mut self, now_ns: u64, from: UnitId) -> Arrivals {
        let arrives_ns = self.unit_to_router.message(now_ns, from.index(), &mut self.random);
        self.spoilt(arrives_ns)
    }

    /// Returns the arrival of a request from a unit at the store.
    pub fn request(&mut self, now_ns: u64, from: UnitId) -> u64 {
        self.unit_to_store.message(now_ns, from.index(), &mut self.random)
    }

    /// Returns the arrival of the store's answer at a unit.
    pub fn answer(&mut self, now_ns: u64, to: UnitId) -> u64 {
        self.store_to_unit.message(now_ns, to.index(), &mut self.random)
    }

    /// Returns the arrivals of a message from a unit to another.
    ///
    /// States leave a unit one after the other. Then a pulled state takes as long as any message,
    /// so that a pull and its answer take a round trip (the tail of S93). It overtakes replicas,
    /// which have their own latency (S64).
    pub fn message_between(&mut self, now_ns: u64, from: UnitId, to: UnitId, cargo: Cargo) -> Arrivals {
        let lane = from.index() * self.units + to.index();
        let arrives_ns = match cargo {
            Cargo::None => self.unit_to_unit.message(now_ns, lane, &mut self.random),
            Cargo::State(bytes) => {
                let sent_ns = self.sent_ns(now_ns, from, bytes);
                self.unit_to_unit.message(sent_ns, lane, &mut self.random)
            }
            Cargo::Copy(bytes) => {
                let arrives_ns = self.sent_ns(now_ns, from, bytes) + self.copy_ns;
                self.copies.in_order(lane, arrives_ns)
            }
        };
        self.spoilt(arrives_ns)
    }

    /// Returns the time at which all bytes of a state have left a unit.
    fn sent_ns(&mut self, now_ns: u64, from: UnitId, bytes: usize) -> u64 {
        let sending = &mut self.sending_until_ns[from.index()];
        let send_ns = (u128::from(bytes as u64) * 8_000_000_000 / u128::from(self.bandwidth_bps)) as u64;
        *sending = now_ns.max(*sending) + send_ns;
        *sending
    }

    /// Applies the faults of messages to an arrival.
    fn spoilt(&mut self, arrives_ns: u64) -> Arrivals {
        let MessageFaults { loss, again, late, late_by } = self.messages;
        let later_ns = |random: &mut Random| arrives_ns + random.below(late_by.0 + 1);
        let again = self.random.happens(again.0).then(|| later_ns(&mut self.random));
        let first = if self.random.happens(late.0) { later_ns(&mut self.random) } else { arrives_ns };
        let is_lost = self.random.happens(loss.0);
        [Some(first).filter(|_| !is_lost), again]
    }
}

impl Lanes {
    #[inline]
    fn packet(&mut self, now_ns: u64, lane: usize, random: &mut Random) -> Carried {
        if random.happens(self.link.loss.0) {
            return Carried::Lost;
        }
        if random.happens(self.link.reorder.0) {
            return Carried::At(self.arrival_ns(now_ns, random) + self.link.reorder_by.0);
        }
        Carried::At(self.message(now_ns, lane, random))
    }

    #[inline]
    fn message(&mut self, now_ns: u64, lane: usize, random: &mut Random) -> u64 {
        let arrives_ns = self.arrival_ns(now_ns, random);
        self.in_order(lane, arrives_ns)
    }

    #[inline]
    fn arrival_ns(&self, now_ns: u64, random: &mut Random) -> u64 {
        let jitter_ns = self.link.jitter.0;
        let late_ns = if jitter_ns == 0 { 0 } else { random.below(jitter_ns + 1) };
        now_ns + self.link.latency.0 + late_ns
    }

    /// Delays an arrival until that of the message before.
    #[inline]
    fn in_order(&mut self, lane: usize, arrives_ns: u64) -> u64 {
        let last = &mut self.last_ns[lane];
        *last = arrives_ns.max(*last);
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::{Nanos, PositiveBitRate, Share};

    fn links(link: LinkSettings) -> Links {
        let links = scenario::Links {
            dispatcher_to_unit: link,
            bandwidth: PositiveBitRate(8_000_000),
            copy_time: Nanos(1_000),
            ..scenario::Links::default()
        };
        Links::new(&links, 3, 1)
    }

    #[test]
    fn what_is_sent_arrives_in_order_whatever_the_jitter() {
        let mut links = links(LinkSettings { jitter: Nanos(10_000), ..LinkSettings::default() });
        let mut last = 0;
        for now in (0..100_000).step_by(100) {
            let arrives = links.message(now, UnitId(1));
            assert!(arrives >= last && (65_000..=75_000).contains(&(arrives - now)));
            last = arrives;
        }
    }

    #[test]
    fn packets_are_lost_and_overtaken_as_often_as_is_said() {
        let mut links =
            links(LinkSettings { loss: Share(0.1), reorder: Share(0.2), ..LinkSettings::default() });
        let carried: Vec<_> = (0..10_000).map(|now| links.packet(now, UnitId(0))).collect();
        let lost = carried.iter().filter(|&&carried| carried == Carried::Lost).count();
        let late = carried.iter().enumerate().filter(|&(i, &c)| c == Carried::At(i as u64 + 115_000)).count();
        assert!((900..1_100).contains(&lost) && (1_700..1_900).contains(&late), "{lost} {late}");
    }

    #[test]
    fn states_leave_a_unit_one_behind_the_other() {
        let mut links = links(LinkSettings::default());
        let (a, b, c) = (UnitId(0), UnitId(1), UnitId(2));
        assert_eq!(links.message_between(0, a, b, Cargo::Copy(10)), [Some(11_000), None]);
        assert_eq!(links.message_between(0, a, c, Cargo::Copy(10)), [Some(21_000), None]);
        assert_eq!(
            links.message_between(0, a, c, Cargo::State(10)),
            [Some(95_000), None],
            "30 us, and its latency"
        );
        assert_eq!(links.message_between(0, b, c, Cargo::None), [Some(65_000), None]);
        assert_eq!(links.message_between(0, b, c, Cargo::Copy(10)), [Some(11_000), None]);
    }

    #[test]
    fn messages_of_units_are_lost_late_and_repeated_as_often_as_is_said() {
        let faults =
            MessageFaults { loss: Share(0.1), again: Share(0.2), late: Share(0.3), late_by: Nanos(1_000) };
        let all = scenario::Links { messages: faults, ..scenario::Links::default() };
        let mut links = Links::new(&all, 3, 1);
        let came: Vec<_> = (0..10_000).map(|_| links.message_to_dispatcher(0, UnitId(0))).collect();
        let count = |is: &dyn Fn(&Arrivals) -> bool| came.iter().filter(|came| is(came)).count();
        assert!((900..1_100).contains(&count(&|came| came[0].is_none())));
        assert!((1_800..2_200).contains(&count(&|came| came[1].is_some())));
        assert!((2_500..2_900).contains(&count(&|came| came[0].is_some_and(|ns| ns > 65_000))));
        assert!(came.iter().flatten().flatten().all(|ns| (65_000..=66_000).contains(ns)));
        assert_eq!(links.message(0, UnitId(0)), 65_000, "what the dispatcher says arrives");
    }
}
