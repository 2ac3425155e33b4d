//! Accounts of sources: how much of a bounded thing each source holds, and whether that is more
//! than its share.

use packet::memory::{OutOfMemory, Zeroed};
use packet::{Addr, split_mix};

/// The fewest accounts of a table: so many that few sources meet.
pub const ACCOUNTS_MIN: u64 = 4096;

/// How much each source holds, by a keyed hash of its address. Sources whose hashes meet have one
/// account: that matters only to those that meet a source above its share.
pub struct SourceAccounts {
    held: Zeroed<u32>,
    mask: u64,
    seed: u64,
    share: u32,
    /// Accounts above the share.
    over: u32,
}

impl SourceAccounts {
    /// A table of at least so many accounts, each of which may hold a share.
    pub fn new(accounts: u64, share: u32, seed: u64) -> Result<SourceAccounts, OutOfMemory> {
        let len = accounts.next_power_of_two().max(ACCOUNTS_MIN);
        let held = Zeroed::new(len as usize)?;
        Ok(SourceAccounts { held, mask: len - 1, seed: seed ^ 0x736f_7572_6365, share, over: 0 })
    }

    /// Brings the table into memory: see [`Zeroed::prefault`].
    pub fn prefault(&mut self) {
        self.held.prefault();
    }

    /// A source's account.
    pub fn account(&self, source: Addr) -> u32 {
        let bytes = source.to_u128();
        let mut state = self.seed ^ (bytes >> 64) as u64;
        state = split_mix(&mut state) ^ bytes as u64;
        (split_mix(&mut state) & self.mask) as u32
    }

    /// How many accounts there are.
    pub fn accounts(&self) -> usize {
        self.held.len()
    }

    /// The account holds so much more.
    pub fn add(&mut self, account: u32, amount: u32) {
        self.change(account, |held| held.saturating_add(amount));
    }

    /// The account holds so much less.
    pub fn remove(&mut self, account: u32, amount: u32) {
        self.change(account, |held| held.saturating_sub(amount));
    }

    fn change(&mut self, account: u32, change: impl FnOnce(u32) -> u32) {
        let Some(held) = self.held.get_mut(account as usize) else { return };
        let was_over = *held > self.share;
        *held = change(*held);
        let is_over = *held > self.share;
        self.over = self.over + u32::from(is_over) - u32::from(was_over);
    }

    /// How much the account holds.
    pub fn held(&self, account: u32) -> u32 {
        self.held.get(account as usize).copied().unwrap_or(0)
    }

    /// How much more the account may hold.
    pub fn left(&self, account: u32) -> u32 {
        self.share.saturating_sub(self.held(account))
    }

    /// Whether the account holds more than its share.
    pub fn is_over(&self, account: u32) -> bool {
        self.over > 0 && self.held(account) > self.share
    }

    /// Whether any account does.
    pub fn is_any_over(&self) -> bool {
        self.over > 0
    }
}

/// Between two reports of one kind about one source.
const REPORT_EVERY_S: u64 = 60;
/// Reports of one kind in a second.
const REPORTS_PER_SECOND: u32 = 10;

/// How often sources are reported for each of some kinds of things: once in a minute, and ten of a
/// kind in a second.
pub struct ReportLimit<const KINDS: usize> {
    /// When each account was last reported, by kind: seconds, and one.
    reported_s: Zeroed<u32>,
    /// The second of the last reports of each kind, and how many there were.
    reports: [(u64, u32); KINDS],
}

impl<const KINDS: usize> ReportLimit<KINDS> {
    /// For so many accounts.
    pub fn new(accounts: usize) -> Result<ReportLimit<KINDS>, OutOfMemory> {
        Ok(ReportLimit { reported_s: Zeroed::new(accounts * KINDS)?, reports: [(0, 0); KINDS] })
    }

    /// Whether it is time to report this kind of an account; then it is taken for reported.
    pub fn is_due(&mut self, kind: usize, account: u32, now_ns: u64) -> bool {
        let now_s = now_ns / 1_000_000_000;
        let last = self.reported_s.get_mut(account as usize * KINDS + kind);
        let (Some((second, reports)), Some(last)) = (self.reports.get_mut(kind), last) else { return false };
        if *second != now_s {
            (*second, *reports) = (now_s, 0);
        }
        let is_recent = *last != 0 && now_s.abs_diff(u64::from(*last - 1)) < REPORT_EVERY_S;
        if is_recent || *reports == REPORTS_PER_SECOND {
            return false;
        }
        *reports += 1;
        *last = (now_s as u32).saturating_add(1);
        true
    }
}

/// The part of an address by which sources are told apart: of IPv6, the first 64 bits, as one host
/// can have all of a /64.
pub fn source_of(addr: Addr) -> Addr {
    if addr.is_v4() { addr } else { Addr::from_u128(addr.to_u128() >> 64 << 64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_above_their_share_are_counted() {
        let mut sources = SourceAccounts::new(1, 10, 7).unwrap();
        let account = sources.account(Addr::from_v4_bytes([192, 0, 2, 1]));
        sources.add(account, 10);
        assert_eq!((sources.left(account), sources.is_any_over()), (0, false));
        sources.add(account, 5);
        assert!(sources.is_over(account) && sources.is_any_over());
        sources.remove(account, 5);
        assert_eq!((sources.held(account), sources.is_any_over()), (10, false));
        sources.remove(account, 11);
        assert_eq!(sources.held(account), 0);
    }

    #[test]
    fn reports_are_seldom() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut limit = ReportLimit::<2>::new(2_000).unwrap();
        let mut due = |account: u32, kind: usize, at_s: u64| limit.is_due(kind, account, at_s * SECOND_NS);
        assert!(due(1, 0, 0) && !due(1, 0, 59) && due(1, 1, 59));
        assert!(due(1, 0, 60) && due(2, 0, 60) && !due(1, 2, 60) && !due(2_000, 0, 60));
        let reports = (0..1_000).filter(|account| due(1_000 + account, 0, 61)).count();
        assert_eq!(reports as u32, REPORTS_PER_SECOND);
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let addr = |low: u128| Addr::from_u128((0x2001_0db8_0001_0002 << 64) | low);
        assert_eq!(source_of(addr(1)), source_of(addr(u128::from(u64::MAX))));
        assert_ne!(source_of(addr(1)), source_of(Addr::from_u128((0x2001_0db8_0001_0003 << 64) | 1)));
    }
}
