//! The packet that is being read: its owner, the decision about it, and what it met.

use nf::MemoryShortage;
use nf::record::RecordHeader;
use packet::DropReason;

use super::lists::Owner;
use super::normalize::Difference;
use super::{MemoryOf, ShortOf, StreamCounters, StreamOptions, WhenMemoryFull};

/// The state of the current packet, with the options and counters that apply to all packets.
pub(super) struct Current {
    options: StreamOptions,
    pub counters: StreamCounters,
    owner: Owner,
    /// The reason to drop the packet.
    drop: Option<DropReason>,
    /// The memory shortage that the packet met.
    short: Option<ShortOf>,
    /// The difference between the packet and what was sent before.
    difference: Option<Difference>,
}

impl Current {
    /// Creates the state before the first packet.
    pub fn new(options: StreamOptions) -> Current {
        Current {
            options,
            counters: StreamCounters::default(),
            owner: Owner::default(),
            drop: None,
            short: None,
            difference: None,
        }
    }

    /// The next packet belongs to the flow with this header.
    #[inline]
    pub fn own(&mut self, header: &RecordHeader) {
        self.owner = Owner::of(header);
    }

    /// Begins to read a packet.
    #[inline]
    pub fn begin(&mut self) {
        (self.drop, self.short) = (None, None);
    }

    /// Returns the options.
    #[inline]
    pub fn options(&self) -> &StreamOptions {
        &self.options
    }

    /// Returns the owner of the packet.
    #[inline]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Drops the packet, inline.
    pub fn keep_out(&mut self, reason: DropReason) {
        if self.options.inline {
            self.drop = Some(reason);
        }
    }

    /// Drops the packet, inline or not.
    pub fn refuse(&mut self, reason: Option<DropReason>) {
        self.drop = reason.or(self.drop);
    }

    /// Returns the reason to drop the packet.
    #[inline]
    pub fn drop_reason(&self) -> Option<DropReason> {
        self.drop
    }

    /// Counts a memory shortage that the packet met.
    #[cold]
    pub fn run_short(&mut self, memory: MemoryOf, kind: MemoryShortage) {
        self.short = Some(ShortOf { memory, kind });
        self.counters.over_share += u64::from(kind == MemoryShortage::Share);
        match memory {
            MemoryOf::Early => self.counters.gave_up += 1,
            MemoryOf::Sent => self.counters.unrecorded += 1,
        }
    }

    /// Returns the memory shortage that the packet met.
    #[inline]
    pub fn shortage(&self) -> Option<ShortOf> {
        self.short
    }

    /// Returns true if segments are dropped for which there is no memory.
    pub fn refuses_when_full(&self) -> bool {
        self.options.inline && self.options.when_full == WhenMemoryFull::Drop
    }

    /// Notes whether the packet differs from what was sent before.
    #[cold]
    pub fn note_difference(&mut self, difference: Option<Difference>) {
        self.difference = difference;
    }

    /// Takes the difference that was noted.
    pub fn take_difference(&mut self) -> Option<Difference> {
        self.difference.take()
    }
}
