//! When a group of packets must end, so that processing it function by function is processing it packet by packet.

use packet::Side;

/// What the packets of the group are, as far as it matters to the next one.
///
/// Functions see a group's packets from inside before those from outside. So a flow's packets of both sides do not meet
/// in a group, nor do any from both sides if functions share sets. And what a packet says about how long its flow is
/// kept is heeded when the group is through: no group takes longer than the shortest that a flow can be kept.
pub(crate) struct Gathering {
    /// For each side, one bit for each of the flows that have a packet in the group, by the low bits of their number.
    flows: [[u64; WORDS]; 2],
    /// Whether there is a packet of this side.
    sides: [bool; 2],
    /// The group must be through before this time.
    until_ns: u64,
    /// How long a group may take.
    span_ns: u64,
    /// Whether what a packet from one side does may matter to another flow's packet from the other.
    sides_apart: bool,
}

/// Bits for flows, in words: enough for few to share one among [`crate::GROUP_MAX`].
const WORDS: usize = 16;

impl Gathering {
    pub fn new(span_ms: u32, sides_apart: bool) -> Gathering {
        Gathering {
            flows: [[0; WORDS]; 2],
            sides: [false; 2],
            until_ns: u64::MAX,
            span_ns: u64::from(span_ms) * 1_000_000,
            sides_apart,
        }
    }

    /// Whether the group must be processed before a packet of this flow joins it.
    #[inline(always)]
    pub fn ends_before(&self, record: u32, side: Side, now_ns: u64) -> bool {
        let other = side.other() as usize;
        let (word, bit) = place(record);
        now_ns >= self.until_ns
            || self.sides[other] && (self.sides_apart || self.flows[other][word] & bit != 0)
    }

    /// A packet of this flow joins the group.
    #[inline(always)]
    pub fn add(&mut self, record: u32, side: Side, now_ns: u64) {
        let (word, bit) = place(record);
        self.flows[side as usize][word] |= bit;
        self.sides[side as usize] = true;
        if self.until_ns == u64::MAX {
            self.until_ns = now_ns.saturating_add(self.span_ns);
        }
    }

    /// The group is to be processed, and the next one begins.
    #[inline]
    pub fn clear(&mut self) {
        self.flows = [[0; WORDS]; 2];
        self.sides = [false; 2];
        self.until_ns = u64::MAX;
    }
}

#[inline(always)]
fn place(record: u32) -> (usize, u64) {
    (record as usize / 64 % WORDS, 1 << (record % 64))
}
