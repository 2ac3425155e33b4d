//! The requests without a response yet.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maximum unanswered requests with a remembered method. Further ones are taken as ordinary
/// (neither HEAD nor CONNECT) and reported as
/// [`HttpAnomaly::PipelineFull`](crate::http::HttpAnomaly::PipelineFull).
pub const PIPELINE_MAX: usize = 32;

/// The kinds of requests that the framing of responses distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Ordinary,
    Head,
    Connect,
    /// HTTP/0.9.
    Simple,
}

/// The unanswered requests: a queue of [`PIPELINE_MAX`] entries of four bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct UnansweredRequests {
    /// The oldest entry is in the low bits of the first word.
    entries: [u64; 2],
    /// Requests that did not fit, after those in the queue.
    untracked: u32,
    /// Entries in use.
    used: u32,
    /// Number of the next request.
    next: u32,
    reserved: [u8; 4],
}

/// Entry bit: the request has Upgrade.
const WANTS_UPGRADE: u64 = 4;

impl UnansweredRequests {
    pub(crate) fn len(&self) -> u32 {
        self.used().saturating_add(self.untracked)
    }

    /// Returns the number of the next request.
    pub(crate) fn next_number(&self) -> u32 {
        self.next
    }

    /// Appends a request; returns false if the queue is full.
    pub(crate) fn push(&mut self, asked: RequestKind) -> bool {
        self.next = self.next.wrapping_add(1);
        let at = self.used();
        // Order is kept: nothing is remembered after an untracked request.
        if at as usize == PIPELINE_MAX || self.untracked > 0 {
            self.untracked = self.untracked.saturating_add(1);
            return false;
        }
        let entry = asked as u64;
        self.entries[(at / 16) as usize] &= !(0xf << (at % 16 * 4));
        self.entries[(at / 16) as usize] |= entry << (at % 16 * 4);
        self.used = at + 1;
        true
    }

    /// Marks the newest request as asking for an upgrade, unless it has been answered.
    pub(crate) fn newest_wants_upgrade(&mut self) {
        let Some(at) = self.used().checked_sub(1).filter(|_| self.untracked == 0) else { return };
        self.entries[(at / 16) as usize] |= WANTS_UPGRADE << (at % 16 * 4);
    }

    /// Returns the oldest request: its kind, whether it has Upgrade, its number.
    pub(crate) fn oldest(&self) -> Option<(RequestKind, bool, u32)> {
        if self.len() == 0 {
            return None;
        }
        let number = self.next.wrapping_sub(self.len());
        if self.used() == 0 {
            return Some((RequestKind::Ordinary, false, number));
        }
        let asked = match self.entries[0] & 3 {
            0 => RequestKind::Ordinary,
            1 => RequestKind::Head,
            2 => RequestKind::Connect,
            _ => RequestKind::Simple,
        };
        Some((asked, self.entries[0] & WANTS_UPGRADE != 0, number))
    }

    /// Removes the oldest request, which was answered.
    pub(crate) fn pop(&mut self) {
        if self.used() == 0 {
            self.untracked = self.untracked.saturating_sub(1);
            return;
        }
        self.entries[0] = self.entries[0] >> 4 | self.entries[1] << 60;
        self.entries[1] >>= 4;
        self.used = self.used() - 1;
    }

    /// Removes all but the newest request, because responses were lost.
    pub(crate) fn keep_newest(&mut self) {
        while self.used() > 0 && self.len() > 1 {
            self.pop();
        }
        self.untracked = self.untracked.min(1);
    }

    /// Returns the entries in use; valid for any state.
    fn used(&self) -> u32 {
        self.used.min(PIPELINE_MAX as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_in_their_order() {
        let mut queue = UnansweredRequests::default();
        let kinds = [RequestKind::Ordinary, RequestKind::Head, RequestKind::Connect, RequestKind::Simple];
        for i in 0..PIPELINE_MAX {
            assert!(queue.push(kinds[i % 4]));
        }
        queue.newest_wants_upgrade();
        assert!(!queue.push(RequestKind::Head));
        assert_eq!(queue.len(), PIPELINE_MAX as u32 + 1);
        for i in 0..PIPELINE_MAX {
            assert_eq!(queue.oldest(), Some((kinds[i % 4], i + 1 == PIPELINE_MAX, i as u32)));
            queue.pop();
        }
        assert!(!queue.push(RequestKind::Head), "behind one that is not remembered");
        assert_eq!(queue.oldest(), Some((RequestKind::Ordinary, false, 32)));
        queue.pop();
        queue.pop();
        assert_eq!(queue.oldest(), None);
        assert!(queue.push(RequestKind::Head));
        assert_eq!(queue.oldest(), Some((RequestKind::Head, false, 34)));
    }

    #[test]
    fn the_newest_is_kept() {
        let mut queue = UnansweredRequests::default();
        queue.push(RequestKind::Connect);
        queue.push(RequestKind::Head);
        queue.keep_newest();
        assert_eq!(queue.oldest(), Some((RequestKind::Head, false, 1)));
    }
}
