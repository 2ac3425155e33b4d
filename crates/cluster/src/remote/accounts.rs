//! Accounts of the packets that two dispatchers pass on to each other.
//!
//! The sender counts a packet as passed on once the receiver has acknowledged that it took it over.
//! Packets that a lost link still carried are settled by the first acknowledgement on the next
//! link, which has the receiver's total: the sender counts the rest as dropped. If the receiver has
//! crashed, its total is unknown and missing in all reports: the sender counts the unacknowledged
//! packets as dropped once the next process connects. Until then they are unaccounted for.

/// Limit on unacknowledged packets of another dispatcher.
const TAKEN_MAX: u64 = 64;
/// Limit on the delay of an acknowledgement.
const TAKEN_NS: u64 = 5_000_000;

/// The account with another dispatcher.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The process at the other end; none before the first link.
    incarnation: Option<u64>,
    /// Packets passed on to that process, without those known to be lost.
    passed: u64,
    /// Packets that it has acknowledged.
    confirmed: u64,
    /// Packets passed on before the present link.
    passed_before: u64,
    peer_acks: PeerAcks,
    /// Packets taken over, and the total and time of the latest acknowledgement.
    taken: u64,
    acknowledged: u64,
    acknowledged_ns: u64,
    totals: PassedTotals,
}

/// Totals of packets passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedTotals {
    /// Packets that the others have taken over.
    pub passed_on: u64,
    /// Packets lost between the dispatchers.
    pub lost: u64,
}

/// Acknowledgements of the other end on the present link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PeerAcks {
    /// None yet.
    #[default]
    None,
    /// It acknowledges packets.
    Count,
    /// It has sent other frames first: its version does not count, and takes over all packets.
    Never,
}

impl Account {
    /// Begins a link to this process of the other dispatcher.
    pub fn begin(&mut self, incarnation: u64) {
        if self.incarnation != Some(incarnation) {
            let totals = PassedTotals { lost: self.totals.lost + self.open(), ..self.totals };
            *self = Account { incarnation: Some(incarnation), totals, ..Account::default() };
        }
        self.passed_before = self.passed;
        self.peer_acks = PeerAcks::None;
    }

    /// Counts a packet that is passed on.
    pub fn pass(&mut self) {
        self.passed += 1;
        if self.peer_acks == PeerAcks::Never {
            self.confirm(self.passed);
        }
    }

    /// Counts a packet that is taken over.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// Takes an acknowledgement: the other end's total. With `is_last`, it takes over no more.
    pub fn receive_ack(&mut self, taken: u64, is_last: bool) {
        let sent = match (self.peer_acks, is_last) {
            (_, true) => self.passed,
            (PeerAcks::None, false) => self.passed_before,
            (PeerAcks::Count | PeerAcks::Never, false) => self.confirmed,
        };
        self.peer_acks = PeerAcks::Count;
        let lost = sent.saturating_sub(taken.max(self.confirmed));
        self.passed -= lost;
        self.totals.lost += lost;
        self.confirm(taken.min(self.passed));
    }

    /// Takes any other frame of the other end.
    pub fn receive_other(&mut self) {
        if self.peer_acks == PeerAcks::None {
            self.peer_acks = PeerAcks::Never;
            self.confirm(self.passed);
        }
    }

    fn confirm(&mut self, taken: u64) {
        self.totals.passed_on += taken.saturating_sub(self.confirmed);
        self.confirmed = self.confirmed.max(taken);
    }

    /// Returns the number of packets that are neither acknowledged nor known to be lost.
    pub fn open(&self) -> u64 {
        self.passed - self.confirmed
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> PassedTotals {
        self.totals
    }

    /// Returns the total of packets taken over, as an acknowledgement. It is the first message on a
    /// new link.
    pub fn acknowledge(&mut self, now_ns: u64) -> u64 {
        (self.acknowledged, self.acknowledged_ns) = (self.taken, now_ns);
        self.taken
    }

    /// Returns true if an acknowledgement must be sent.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let unacknowledged = self.taken - self.acknowledged;
        unacknowledged >= TAKEN_MAX
            || unacknowledged > 0 && now_ns.saturating_sub(self.acknowledged_ns) >= TAKEN_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_passed(packets: u64) -> Account {
        let mut account = Account::default();
        account.begin(1);
        account.receive_ack(0, false);
        (0..packets).for_each(|_| account.pass());
        account
    }

    fn counts(account: &Account) -> (u64, u64, u64) {
        (account.totals().passed_on, account.totals().lost, account.open())
    }

    #[test]
    fn what_a_lost_link_carried_is_settled_by_the_first_ack_on_the_next() {
        let mut account = with_passed(10);
        account.receive_ack(4, false);
        assert_eq!(counts(&account), (4, 0, 6));
        account.begin(1);
        (0..3).for_each(|_| account.pass());
        account.receive_ack(7, false);
        assert_eq!(counts(&account), (7, 3, 3));
        account.receive_ack(10, false);
        assert_eq!(counts(&account), (10, 3, 0));
    }

    /// A link that only one end has seen.
    #[test]
    fn a_link_that_the_other_end_never_had_loses_its_packets() {
        let mut account = with_passed(2);
        account.begin(1);
        (0..5).for_each(|_| account.pass());
        account.begin(1);
        account.receive_ack(2, false);
        assert_eq!(counts(&account), (2, 5, 0));
    }

    #[test]
    fn unacknowledged_packets_of_a_crashed_process_are_lost() {
        let mut account = with_passed(10);
        account.receive_ack(4, false);
        account.take();
        account.begin(2);
        assert_eq!(counts(&account), (4, 6, 0));
        assert_eq!(account.acknowledge(0), 0, "counts begin again");
        account.pass();
        account.receive_ack(0, false);
        account.receive_ack(1, false);
        assert_eq!(counts(&account), (5, 6, 0));
    }

    #[test]
    fn a_dispatcher_that_ends_settles_its_account() {
        let mut account = with_passed(10);
        account.receive_ack(8, true);
        assert_eq!(counts(&account), (8, 2, 0));
    }

    #[test]
    fn a_version_that_does_not_count_takes_what_is_sent() {
        let mut account = Account::default();
        account.begin(1);
        account.pass();
        assert_eq!(counts(&account), (0, 0, 1));
        account.receive_other();
        account.pass();
        assert_eq!(counts(&account), (2, 0, 0));
    }

    /// A faulty peer may send any value.
    #[test]
    fn wrong_counts_change_no_sum() {
        let mut account = with_passed(10);
        for (taken, is_last) in [(u64::MAX, false), (3, false), (0, true), (u64::MAX, true)] {
            account.receive_ack(taken, is_last);
            let (passed_on, lost, open) = counts(&account);
            assert_eq!(passed_on + lost + open, 10, "{taken}");
        }
    }

    #[test]
    fn acks_are_due_after_many_packets_or_some_time() {
        let mut account = with_passed(0);
        assert!(!account.is_due(u64::MAX));
        account.take();
        assert!(!account.is_due(TAKEN_NS - 1) && account.is_due(TAKEN_NS));
        assert_eq!(account.acknowledge(TAKEN_NS), 1);
        (0..TAKEN_MAX).for_each(|_| account.take());
        assert!(account.is_due(TAKEN_NS));
    }
}
