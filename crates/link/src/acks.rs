//! Acknowledgements to send: which datagrams arrived, and when the peer must know.

use crate::frames::push_ack;
use crate::replay::NumberWindow;

/// Datagrams after which an acknowledgement is not delayed.
pub const ACK_EVERY: u32 = 4;

/// The datagrams received, and what the peer does not know about them.
#[derive(Debug)]
pub(crate) struct AckState {
    pub(crate) window: NumberWindow,
    top_at_ns: u64,
    /// Datagrams to acknowledge since the last acknowledgement.
    pending: u32,
    /// The time of the first of them.
    pending_since_ns: u64,
    is_urgent: bool,
    /// The time of the last acknowledgement, pending or not.
    last_sent_ns: Option<u64>,
    delay_ns: u64,
    heartbeat_ns: u64,
}

impl AckState {
    pub(crate) fn new(delay_ns: u64, heartbeat_ns: u64) -> AckState {
        AckState {
            window: NumberWindow::new(),
            top_at_ns: 0,
            pending: 0,
            pending_since_ns: 0,
            is_urgent: false,
            last_sent_ns: None,
            delay_ns,
            heartbeat_ns,
        }
    }

    /// Notes a datagram's number; returns whether one before it is missing.
    #[inline]
    pub(crate) fn note(&mut self, now_ns: u64, number: u64) -> bool {
        let expected = self.window.top().saturating_add(1);
        if number >= expected {
            self.top_at_ns = now_ns;
        }
        self.window.note(number);
        number != expected
    }

    /// Notes that the last datagram must be acknowledged, at once if others are missing.
    #[inline]
    pub(crate) fn expect(&mut self, now_ns: u64, is_reordered: bool) {
        if self.pending == 0 {
            self.pending_since_ns = now_ns;
        }
        self.pending += 1;
        self.is_urgent |= is_reordered || self.pending >= ACK_EVERY;
    }

    /// Makes an acknowledgement urgent.
    #[inline]
    pub(crate) fn hurry(&mut self) {
        self.is_urgent = true;
    }

    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0 || self.is_urgent
    }

    /// Returns whether an acknowledgement must be sent now: a datagram has waited long enough, or a
    /// heartbeat is needed.
    #[inline]
    pub(crate) fn is_expected(&self, now_ns: u64) -> bool {
        self.next_timeout_ns() <= now_ns
    }

    /// Returns the time of the next acknowledgement.
    #[inline]
    pub(crate) fn next_timeout_ns(&self) -> u64 {
        let heartbeat_ns = self.last_sent_ns.map_or(0, |at_ns| at_ns.saturating_add(self.heartbeat_ns));
        match (self.is_urgent, self.pending) {
            (true, _) => 0,
            (false, 0) => heartbeat_ns,
            (false, _) => heartbeat_ns.min(self.pending_since_ns.saturating_add(self.delay_ns)),
        }
    }

    /// Writes the acknowledgement.
    pub(crate) fn write(&self, now_ns: u64, granted: u64, out: &mut Vec<u8>) {
        push_ack(out, now_ns.saturating_sub(self.top_at_ns), granted, self.window.ranges());
    }

    /// Notes that it was sent.
    pub(crate) fn note_sent(&mut self, now_ns: u64) {
        (self.pending, self.is_urgent, self.last_sent_ns) = (0, false, Some(now_ns));
    }
}
