//! Accounts of sources: how much of a bounded resource each source holds, and whether it exceeds
//! its share.

use packet::memory::{OutOfMemory, Zeroed};
use packet::{Addr, split_mix};

/// Minimum number of accounts, so that few sources collide.
pub const ACCOUNTS_MIN: u64 = 4096;

/// Amounts held per source, by a keyed hash of its address. Colliding sources share an account,
/// which matters only when one of them exceeds its share.
pub struct SourceAccounts {
    held: Zeroed<u32>,
    mask: u64,
    seed: u64,
    share: u32,
    /// Number of accounts above the share.
    over: u32,
}

impl SourceAccounts {
    /// Returns at least `accounts` accounts with a limit of `share` each.
    ///
    /// # Errors
    /// Memory lacks.
    pub fn new(accounts: u64, share: u32, seed: u64) -> Result<SourceAccounts, OutOfMemory> {
        let len = accounts.next_power_of_two().max(ACCOUNTS_MIN);
        let held = Zeroed::new(len as usize)?;
        Ok(SourceAccounts { held, mask: len - 1, seed: seed ^ 0x736f_7572_6365, share, over: 0 })
    }

    /// Prefaults the table, see [`Zeroed::prefault`].
    pub fn prefault(&mut self) {
        self.held.prefault();
    }

    /// Returns the number of a source's account.
    pub fn account(&self, source: Addr) -> u32 {
        let bytes = source.to_u128();
        let mut state = self.seed ^ (bytes >> 64) as u64;
        state = split_mix(&mut state) ^ bytes as u64;
        (split_mix(&mut state) & self.mask) as u32
    }

    /// Returns the number of accounts.
    pub fn accounts(&self) -> usize {
        self.held.len()
    }

    /// Adds to an account.
    pub fn add(&mut self, account: u32, amount: u32) {
        self.change(account, |held| held.saturating_add(amount));
    }

    /// Subtracts from an account.
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

    /// Returns the amount that an account holds.
    pub fn held(&self, account: u32) -> u32 {
        self.held.get(account as usize).copied().unwrap_or(0)
    }

    /// Returns the amount left to an account's share.
    pub fn left(&self, account: u32) -> u32 {
        self.share.saturating_sub(self.held(account))
    }

    /// Checks if an account exceeds its share.
    pub fn is_over(&self, account: u32) -> bool {
        self.over > 0 && self.held(account) > self.share
    }

    /// Checks if any account exceeds its share.
    pub fn is_any_over(&self) -> bool {
        self.over > 0
    }
}

/// Seconds between two reports of one kind about one source.
const REPORT_EVERY_S: u64 = 60;
/// Reports of one kind per second.
const REPORTS_PER_SECOND: u32 = 10;

/// A rate limit on reports about sources: one per source and kind in a minute, ten per kind in a
/// second.
pub struct ReportLimit<const KINDS: usize> {
    /// Second of each account's last report plus one, by kind.
    reported_s: Zeroed<u32>,
    /// Second of the latest reports of each kind, and their number.
    reports: [(u64, u32); KINDS],
}

impl<const KINDS: usize> ReportLimit<KINDS> {
    /// Returns a limit for this many accounts.
    ///
    /// # Errors
    /// Memory lacks.
    pub fn new(accounts: usize) -> Result<ReportLimit<KINDS>, OutOfMemory> {
        Ok(ReportLimit { reported_s: Zeroed::new(accounts * KINDS)?, reports: [(0, 0); KINDS] })
    }

    /// Checks if a report of this kind about an account may be sent now, and counts it.
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

/// Returns the part of an address that identifies a source: of IPv6 the first 64 bits, as one host
/// may have all of a /64.
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
    fn ipv6_network_is_one_source() {
        let addr = |low: u128| Addr::from_u128((0x2001_0db8_0001_0002 << 64) | low);
        assert_eq!(source_of(addr(1)), source_of(addr(u128::from(u64::MAX))));
        assert_ne!(source_of(addr(1)), source_of(Addr::from_u128((0x2001_0db8_0001_0003 << 64) | 1)));
    }
}
