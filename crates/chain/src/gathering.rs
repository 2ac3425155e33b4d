//! When a group of packets must end, so that processing it function by function is processing it packet by packet.

use packet::Side;

/// Which flows have packets in the group, by the side that these entered by.
///
/// Functions see a group's packets from inside before those from outside. So a flow's packets of both sides do not meet
/// in a group, nor do any from both sides that come to functions that share sets or meters.
pub(crate) struct Gathering {
    /// For each side, one bit for each of the flows that have a packet in the group, by the low bits of their number.
    flows: [[u64; WORDS]; 2],
    /// Whether there is a packet of this side that comes to all functions.
    sides: [bool; 2],
    /// Whether what a packet from one side does may matter to another flow's packet from the other.
    sides_apart: bool,
}

/// Bits for flows, in words: enough for few to share one among [`crate::GROUP_MAX`].
const WORDS: usize = 16;

impl Gathering {
    pub fn new(sides_apart: bool) -> Gathering {
        Gathering { flows: [[0; WORDS]; 2], sides: [false; 2], sides_apart }
    }

    /// A packet of this flow joins the group; false if the group must be processed before. `to_all`: whether it comes to all
    /// functions.
    #[inline(always)]
    pub fn add(&mut self, record: u32, side: Side, to_all: bool) -> bool {
        let (side, other) = (side as usize, side.other() as usize);
        let (word, bit) = (record as usize / 64 % WORDS, 1 << (record % 64));
        if self.flows[other][word] & bit != 0 || self.sides[other] && self.sides_apart && to_all {
            return false;
        }
        self.flows[side][word] |= bit;
        self.sides[side] |= to_all;
        true
    }

    /// The next group begins.
    #[inline]
    pub fn clear(&mut self) {
        self.flows = [[0; WORDS]; 2];
        self.sides = [false; 2];
    }
}
