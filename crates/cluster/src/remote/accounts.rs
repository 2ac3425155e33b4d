//! Accounts of the packets that two dispatchers pass on to each other.
//!
//! The sender counts a packet as passed on once the receiver has said that it took it over. What a
//! lost link still carried is settled by the first word on the next one, which says how many
//! packets of this process the other has taken over: the sender counts the rest as dropped. Of a
//! process that has crashed nobody knows what it took over, and no report has it: the sender counts
//! that as dropped, too, once another process is there. Until then it is unaccounted for.

/// Packets of another dispatcher after which it hears how many were taken over.
const TAKEN_MAX: u64 = 64;
/// Limit on the time for which it does not hear of a packet that was taken over.
const TAKEN_NS: u64 = 5_000_000;

/// The account with another dispatcher.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The process at the other end; none before the first link.
    incarnation: Option<u64>,
    /// Packets passed on to that process, but for those that are known to be lost.
    passed: u64,
    /// Those that it has taken over, by its word.
    confirmed: u64,
    /// Packets passed on to it before the present link.
    passed_before: u64,
    word: Word,
    /// Packets taken over from it, and its knowledge of them.
    taken: u64,
    said: u64,
    said_ns: u64,
    totals: PassedTotals,
}

/// Packets passed on so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedTotals {
    /// The others have taken them over.
    pub passed_on: u64,
    /// They were lost on their way.
    pub lost: u64,
}

/// Counts that the other end has said on the present link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Word {
    /// Nothing yet.
    #[default]
    None,
    /// Packets that it has taken over.
    Count,
    /// Something else: its version does not count, and takes over what is sent.
    Never,
}

impl Account {
    /// A link to this process of the other dispatcher begins.
    pub fn begin(&mut self, incarnation: u64) {
        if self.incarnation != Some(incarnation) {
            let totals = PassedTotals { lost: self.totals.lost + self.open(), ..self.totals };
            *self = Account { incarnation: Some(incarnation), totals, ..Account::default() };
        }
        self.passed_before = self.passed;
        self.word = Word::None;
    }

    /// A packet is passed on.
    pub fn pass(&mut self) {
        self.passed += 1;
        if self.word == Word::Never {
            self.confirm(self.passed);
        }
    }

    /// A packet was taken over.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// The other end says how many packets it has taken over. With `is_last`, it takes no more.
    pub fn hear(&mut self, taken: u64, is_last: bool) {
        let sent = match (self.word, is_last) {
            (_, true) => self.passed,
            (Word::None, false) => self.passed_before,
            (Word::Count | Word::Never, false) => self.confirmed,
        };
        self.word = Word::Count;
        let lost = sent.saturating_sub(taken.max(self.confirmed));
        self.passed -= lost;
        self.totals.lost += lost;
        self.confirm(taken.min(self.passed));
    }

    /// The other end says something else.
    pub fn hear_other(&mut self) {
        if self.word == Word::None {
            self.word = Word::Never;
            self.confirm(self.passed);
        }
    }

    fn confirm(&mut self, taken: u64) {
        self.totals.passed_on += taken.saturating_sub(self.confirmed);
        self.confirmed = self.confirmed.max(taken);
    }

    /// Returns the number of packets of which nobody knows yet whether the other end took them
    /// over.
    pub fn open(&self) -> u64 {
        self.passed - self.confirmed
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> PassedTotals {
        self.totals
    }

    /// Returns the number of packets taken over from the other process, for it. On a new link that
    /// comes before anything else.
    pub fn say(&mut self, now_ns: u64) -> u64 {
        (self.said, self.said_ns) = (self.taken, now_ns);
        self.taken
    }

    /// Returns true if the other end should hear of more packets.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let unsaid = self.taken - self.said;
        unsaid >= TAKEN_MAX || unsaid > 0 && now_ns.saturating_sub(self.said_ns) >= TAKEN_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_passed(packets: u64) -> Account {
        let mut account = Account::default();
        account.begin(1);
        account.hear(0, false);
        (0..packets).for_each(|_| account.pass());
        account
    }

    fn counts(account: &Account) -> (u64, u64, u64) {
        (account.totals().passed_on, account.totals().lost, account.open())
    }

    #[test]
    fn what_a_lost_link_carried_is_settled_by_the_first_word_on_the_next() {
        let mut account = with_passed(10);
        account.hear(4, false);
        assert_eq!(counts(&account), (4, 0, 6));
        account.begin(1);
        (0..3).for_each(|_| account.pass());
        account.hear(7, false);
        assert_eq!(counts(&account), (7, 3, 3));
        account.hear(10, false);
        assert_eq!(counts(&account), (10, 3, 0));
    }

    /// A link that only one end has seen.
    #[test]
    fn a_link_that_the_other_end_never_had_loses_its_packets() {
        let mut account = with_passed(2);
        account.begin(1);
        (0..5).for_each(|_| account.pass());
        account.begin(1);
        account.hear(2, false);
        assert_eq!(counts(&account), (2, 5, 0));
    }

    #[test]
    fn a_crashed_process_takes_what_nobody_knows_with_it() {
        let mut account = with_passed(10);
        account.hear(4, false);
        account.take();
        account.begin(2);
        assert_eq!(counts(&account), (4, 6, 0));
        assert_eq!(account.say(0), 0, "counts begin again");
        account.pass();
        account.hear(0, false);
        account.hear(1, false);
        assert_eq!(counts(&account), (5, 6, 0));
    }

    #[test]
    fn a_dispatcher_that_ends_says_what_it_does_not_take() {
        let mut account = with_passed(10);
        account.hear(8, true);
        assert_eq!(counts(&account), (8, 2, 0));
    }

    #[test]
    fn a_version_that_does_not_count_takes_what_is_sent() {
        let mut account = Account::default();
        account.begin(1);
        account.pass();
        assert_eq!(counts(&account), (0, 0, 1));
        account.hear_other();
        account.pass();
        assert_eq!(counts(&account), (2, 0, 0));
    }

    /// A peer may say anything.
    #[test]
    fn wrong_counts_change_no_sum() {
        let mut account = with_passed(10);
        for (taken, is_last) in [(u64::MAX, false), (3, false), (0, true), (u64::MAX, true)] {
            account.hear(taken, is_last);
            let (passed_on, lost, open) = counts(&account);
            assert_eq!(passed_on + lost + open, 10, "{taken}");
        }
    }

    #[test]
    fn the_other_end_hears_after_many_packets_or_some_time() {
        let mut account = with_passed(0);
        assert!(!account.is_due(u64::MAX));
        account.take();
        assert!(!account.is_due(TAKEN_NS - 1) && account.is_due(TAKEN_NS));
        assert_eq!(account.say(TAKEN_NS), 1);
        (0..TAKEN_MAX).for_each(|_| account.take());
        assert!(account.is_due(TAKEN_NS));
    }
}
