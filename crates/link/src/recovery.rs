//! Datagrams in flight: which ones arrived, which ones are lost, when to probe (RFC 9002 6).

use std::collections::VecDeque;

use crate::congestion::CongestionWindow;
use crate::frames::{AckFrame, Malformed};
use crate::reordering::{LostDatagram, LostDatagrams, Reordering};
use crate::rtt::RttEstimate;
use crate::sending::Piece;
use crate::sent::Sent;

/// Datagrams in flight, at most.
pub const IN_FLIGHT_MAX: usize = 8_192;

/// Later datagrams that must arrive before one counts as lost (RFC 9002 6.1.1), unless the path has
/// reordered datagrams lately: then time alone decides.
pub const PACKET_THRESHOLD: u64 = 3;

/// Doublings of the probe timeout, at most.
pub const PROBE_DOUBLINGS_MAX: u32 = 6;

/// Datagrams that a probe timeout sends (RFC 9002 6.2.4).
const PROBES: u32 = 2;

/// Probe timeouts of silence after which the congestion window collapses (RFC 9002 7.6.1).
const PERSISTENT_TIMEOUTS: u64 = 3;

/// Probe timeouts after which the loss of a datagram is final.
const FINAL_TIMEOUTS: u64 = 3;

/// A datagram in flight is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Acked,
    Lost,
    /// It counted as lost, and has arrived.
    Late,
}

/// The datagrams that the peer should acknowledge, in order of their numbers.
#[derive(Debug)]
pub(crate) struct Recovery {
    sent: VecDeque<Sent>,
    lost: LostDatagrams,
    reordering: Reordering,
    in_flight: u64,
    largest_acked: u64,
    loss_time_ns: Option<u64>,
    last_sent_ns: u64,
    timeouts: u32,
    probes: u32,
    ack_delay_ns: u64,
    pub(crate) rtt: RttEstimate,
    pub(crate) congestion: CongestionWindow,
}

impl Recovery {
    pub(crate) fn new(mtu: usize, initial_rtt_ns: u64, ack_delay_ns: u64) -> Recovery {
        Recovery {
            sent: VecDeque::new(),
            lost: LostDatagrams::new(),
            reordering: Reordering::new(),
            in_flight: 0,
            largest_acked: 0,
            loss_time_ns: None,
            last_sent_ns: 0,
            timeouts: 0,
            probes: 0,
            ack_delay_ns,
            rtt: RttEstimate::new(initial_rtt_ns),
            congestion: CongestionWindow::new(mtu),
        }
    }

    /// Returns whether a datagram may be sent that the peer acknowledges.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.probes > 0 || (self.congestion.allows(self.in_flight) && self.sent.len() < IN_FLIGHT_MAX)
    }

    /// Returns whether a probe must be sent, whatever it carries.
    #[inline]
    pub(crate) fn must_probe(&self) -> bool {
        self.probes > 0
    }

    /// Returns the bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Notes a datagram that the peer acknowledges.
    #[inline]
    pub(crate) fn note_sent(&mut self, now_ns: u64, number: u64, piece: Option<Piece>, size: usize) {
        self.sent.push_back(Sent { number, at_ns: now_ns, piece, size: size as u32 });
        self.in_flight += size as u64;
        self.last_sent_ns = now_ns;
        self.probes = self.probes.saturating_sub(1);
    }

    /// Starts again with the shortest timeout, at the first datagram of the peer.
    pub(crate) fn reset_backoff(&mut self) {
        self.timeouts = 0;
    }

    /// Takes back the datagrams from this number on: they have not left.
    pub(crate) fn take_back(&mut self, number: u64, mut take: impl FnMut(Sent)) {
        let start = self.sent.partition_point(|sent| sent.number < number);
        for sent in self.sent.drain(start..) {
            self.in_flight -= u64::from(sent.size);
            take(sent);
        }
    }

    /// Returns the probe timeouts since the last acknowledgement.
    pub(crate) fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Returns the time after which an acknowledgement is missing.
    pub(crate) fn probe_timeout_ns(&self) -> u64 {
        self.rtt.probe_timeout_ns(self.ack_delay_ns)
    }

    /// Evaluates an acknowledgement. `decide` is called for each datagram that it decides.
    pub(crate) fn note_ack(
        &mut self,
        now_ns: u64,
        ack: AckFrame<'_>,
        mut decide: impl FnMut(Sent, Fate),
    ) -> Result<(), Malformed> {
        let (mut newest, mut has_late) = (None, false);
        let (before, smoothed_ns) = (self.largest_acked, self.rtt.smoothed_ns());
        for range in ack.ranges() {
            let (first, last) = range?;
            if !self.lost.is_empty() {
                let (congestion, reordering) = (&mut self.congestion, &mut self.reordering);
                self.lost.take_acked((first, last), |lost| {
                    has_late = true;
                    congestion.note_late(lost.reduction);
                    reordering.note(now_ns, (now_ns - lost.sent.at_ns).saturating_sub(smoothed_ns));
                    decide(lost.sent, Fate::Late);
                });
            }
            let mut at = self.position(first);
            while let Some(sent) = self.sent.get_mut(at)
                && sent.number <= last
            {
                at += 1;
                if sent.size == 0 {
                    continue;
                }
                let decided = *sent;
                sent.size = 0;
                let size = u64::from(decided.size);
                self.in_flight -= size;
                self.congestion.note_acked(size, decided.at_ns);
                newest = newest.max(Some((decided.number, decided.at_ns)));
                if decided.number < before {
                    let late_ns = (now_ns - decided.at_ns).saturating_sub(smoothed_ns);
                    self.reordering.note(now_ns, late_ns);
                }
                decide(decided, Fate::Acked);
            }
        }
        self.largest_acked = self.largest_acked.max(ack.largest);
        if let Some((number, at_ns)) = newest {
            if number == ack.largest {
                let delay_ns = u64::from(ack.delay_ns).min(self.ack_delay_ns);
                self.rtt.sample(now_ns - at_ns, delay_ns);
                self.congestion.note_rtt(self.rtt.smoothed_ns());
            }
            self.find_losses(now_ns, decide);
        }
        if newest.is_some() || has_late {
            (self.timeouts, self.probes) = (0, 0);
        }
        Ok(())
    }

    /// Returns the position of the first datagram from this number on. Numbers of acknowledgements
    /// are missing in the queue, so the difference of numbers is an upper bound.
    #[inline]
    fn position(&self, number: u64) -> usize {
        let Some(front) = self.sent.front() else { return 0 };
        let guess = (number.saturating_sub(front.number)).min(self.sent.len() as u64) as usize;
        if self.sent.get(guess).is_some_and(|sent| sent.number == number) {
            return guess;
        }
        self.sent.partition_point(|sent| sent.number < number)
    }

    /// Finds datagrams that are lost because later ones arrived (RFC 9002 6.1).
    fn find_losses(&mut self, now_ns: u64, mut decide: impl FnMut(Sent, Fate)) {
        let window_ns = self.reordering.window_ns(now_ns, self.rtt.smoothed_ns());
        let delay_ns = self.rtt.loss_delay_ns(window_ns.unwrap_or(0));
        let threshold = if window_ns.is_none() { PACKET_THRESHOLD } else { u64::MAX };
        self.loss_time_ns = None;
        while let Some(lost) = self.lost.pop_final(now_ns) {
            self.congestion.note_final(lost.reduction);
        }
        let final_ns = FINAL_TIMEOUTS * self.rtt.probe_timeout_ns(self.ack_delay_ns);
        let mut run: Option<(u64, u64)> = None;
        let mut is_collapsed = false;
        let persistent_ns = PERSISTENT_TIMEOUTS * self.rtt.probe_timeout_ns(self.ack_delay_ns);
        for sent in &mut self.sent {
            if sent.number >= self.largest_acked {
                break;
            }
            if sent.size == 0 {
                run = None;
                continue;
            }
            let is_lost = sent.number.saturating_add(threshold) <= self.largest_acked
                || sent.lost_at_ns(delay_ns) <= now_ns;
            if !is_lost {
                self.loss_time_ns = Some(sent.lost_at_ns(delay_ns));
                break;
            }
            let began_ns = run.map_or(sent.at_ns, |(began_ns, _)| began_ns);
            run = Some((began_ns, sent.at_ns));
            is_collapsed |= sent.at_ns - began_ns >= persistent_ns;
            let decided = *sent;
            sent.size = 0;
            self.in_flight -= u64::from(decided.size);
            let reduction = self.congestion.note_lost(now_ns, decided.at_ns, self.rtt.smoothed_ns());
            let lost = LostDatagram { sent: decided, reduction, until_ns: now_ns.saturating_add(final_ns) };
            if let Some(forgotten) = self.lost.push(lost) {
                self.congestion.note_final(forgotten.reduction);
            }
            decide(decided, Fate::Lost);
        }
        if is_collapsed {
            self.congestion.note_collapse();
        }
        while self.sent.front().is_some_and(|sent| sent.size == 0) {
            self.sent.pop_front();
        }
    }

    /// Returns when [`Recovery::handle_timeout`] has something to do.
    #[inline]
    pub(crate) fn next_timeout_ns(&self) -> Option<u64> {
        self.loss_time_ns.or_else(|| {
            let timeout_ns = self.rtt.probe_timeout_ns(self.ack_delay_ns) << self.timeouts;
            (self.in_flight > 0).then(|| self.last_sent_ns.saturating_add(timeout_ns))
        })
    }

    /// Declares datagrams lost by their age, or requests probes.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64, decide: impl FnMut(Sent, Fate)) {
        if self.loss_time_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.find_losses(now_ns, decide);
        }
        if self.next_timeout_ns().is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        self.timeouts = (self.timeouts + 1).min(PROBE_DOUBLINGS_MAX);
        self.probes = PROBES;
        self.last_sent_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{Frame, next_frame, push_ack};

    const RTT_NS: u64 = 1_000_000;

    /// Acknowledges these ranges at this time; returns what is decided.
    fn ack(recovery: &mut Recovery, now_ns: u64, ranges: &[(u64, u64)]) -> Vec<(u64, Fate)> {
        let (mut out, mut decided) = (Vec::new(), Vec::new());
        push_ack(&mut out, 0, 0, ranges.iter().copied());
        let Ok(Some(Frame::Ack(ack))) = next_frame(&mut &out[..]) else { panic!("an acknowledgement") };
        assert_eq!(recovery.note_ack(now_ns, ack, |sent, fate| decided.push((sent.number, fate))), Ok(()));
        decided
    }

    fn sent(numbers: impl Iterator<Item = u64>) -> Recovery {
        let mut recovery = Recovery::new(1_000, RTT_NS, 0);
        numbers.for_each(|number| recovery.note_sent(number, number, None, 100));
        recovery
    }

    // RFC 9002 6.1.1.
    #[test]
    fn three_later_datagrams_make_one_lost() {
        let mut recovery = sent(1..=5);
        assert_eq!(ack(&mut recovery, RTT_NS, &[(3, 3)]), [(3, Fate::Acked)]);
        assert_eq!(ack(&mut recovery, RTT_NS, &[(3, 4)]), [(4, Fate::Acked), (1, Fate::Lost)]);
        assert_eq!(ack(&mut recovery, RTT_NS, &[(5, 5), (3, 3)]), [(5, Fate::Acked), (2, Fate::Lost)]);
        assert_eq!((recovery.in_flight(), recovery.next_timeout_ns()), (0, None));
    }

    // RFC 9002 6.1.2.
    #[test]
    fn age_makes_a_datagram_lost_if_a_later_one_arrived() {
        let mut recovery = sent(1..=2);
        assert_eq!(ack(&mut recovery, 2 + RTT_NS, &[(2, 2)]), [(2, Fate::Acked)]);
        let lost_ns = 1 + RTT_NS + RTT_NS / 8;
        assert_eq!(recovery.next_timeout_ns(), Some(lost_ns));
        let mut lost = Vec::new();
        recovery.handle_timeout(lost_ns - 1, |sent, _| lost.push(sent.number));
        recovery.handle_timeout(lost_ns, |sent, _| lost.push(sent.number));
        assert_eq!(lost, [1]);
    }

    // RFC 9002 6.2.1: the timeout doubles, up to a limit.
    #[test]
    fn probes_back_off() {
        let mut recovery = sent([10].into_iter());
        let mut last_ns = 10;
        for doublings in [0, 1, 2, 3, 4, 5, 6, 6, 6] {
            let timeout_ns = recovery.next_timeout_ns().unwrap_or(0);
            assert_eq!(timeout_ns - last_ns, (3 * RTT_NS) << doublings);
            recovery.handle_timeout(timeout_ns, |sent, _| panic!("{} is not lost", sent.number));
            assert!(recovery.must_probe());
            recovery.note_sent(timeout_ns, timeout_ns, None, 100);
            last_ns = timeout_ns;
        }
        assert!(recovery.may_send());
        ack(&mut recovery, last_ns, &[(10, 10)]);
        assert!(!recovery.must_probe());
    }

    #[test]
    fn a_timeout_of_two_causes_is_handled_at_once() {
        let mut recovery = sent(1..=4);
        ack(&mut recovery, RTT_NS, &[(2, 2)]);
        let late_ns = 100 * RTT_NS;
        let mut lost = Vec::new();
        recovery.handle_timeout(late_ns, |sent, _| lost.push(sent.number));
        assert_eq!(lost, [1]);
        assert!(recovery.must_probe(), "3 and 4 are unanswered as well");
        assert!(recovery.next_timeout_ns() > Some(late_ns));
    }

    // RFC 9002 7.6.
    #[test]
    fn a_long_loss_of_everything_collapses_the_window() {
        let mut recovery = sent([1].into_iter());
        ack(&mut recovery, RTT_NS, &[(1, 1)]);
        for (number, at_ns) in [(2, 2 * RTT_NS), (3, 20 * RTT_NS), (4, 21 * RTT_NS)] {
            recovery.note_sent(at_ns, number, None, 100);
        }
        recovery.note_sent(22 * RTT_NS, 7, None, 100);
        assert!(recovery.congestion.window() > 5_000);
        let decided = ack(&mut recovery, 23 * RTT_NS, &[(7, 7)]);
        assert_eq!(decided, [(7, Fate::Acked), (2, Fate::Lost), (3, Fate::Lost), (4, Fate::Lost)]);
        assert_eq!(recovery.congestion.window(), 2_000);
    }

    #[test]
    fn numbers_without_acknowledgement_are_gaps() {
        let mut recovery = sent([1, 2, 50, 51, 90].into_iter());
        assert_eq!(ack(&mut recovery, RTT_NS, &[(50, 89), (2, 2)]).len(), 4);
        assert_eq!(ack(&mut recovery, RTT_NS, &[(60, 95)]), [(90, Fate::Acked)]);
        assert_eq!(recovery.in_flight(), 0);
    }
}
