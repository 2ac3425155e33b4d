//! When a group of packets must end, so that processing it function by function is processing it
//! packet by packet.

use nf::AnswerScope;
use nf::stage::Stage;
use packet::parse::protocol;
use packet::{Meta, Side};

use crate::cache::Course;

/// Packets of known flows that are processed together at most: what fits the first-level cache with
/// its records.
pub const GROUP_MAX: usize = 32;

/// Which packets of known flows are groups of their own, as a function may answer them: what it
/// makes has to go through the functions before the next packet does.
#[derive(Clone, Copy)]
pub(crate) struct Apart {
    answers: AnswerScope,
    /// Whether there may be any such packet.
    pub is_any: bool,
}

impl Apart {
    /// Of these functions. Of one alone, answers come to no other.
    pub fn of(stages: &[Box<dyn Stage>]) -> Apart {
        let answers = stages.iter().map(|stage| stage.answers()).fold(AnswerScope::NONE, AnswerScope::or);
        let answers = if stages.len() > 1 { answers } else { AnswerScope::NONE };
        Apart { answers, is_any: answers != AnswerScope::NONE }
    }

    /// Whether a whole packet is one.
    #[inline(always)]
    pub fn has(&self, meta: &Meta, len: usize) -> bool {
        const SYN: u8 = 2;
        let AnswerScope { all, openings, longer_than } = self.answers;
        let opens = match meta.protocol {
            protocol::TCP => meta.tcp_flags & SYN != 0,
            protocol => protocol != protocol::UDP,
        };
        all || openings && opens || len.saturating_sub(usize::from(meta.outer_l3)) > longer_than as usize
    }
}

/// Which flows have packets in the group, by the side that these entered by.
///
/// Functions see a group's packets from inside before those from outside. So a flow's packets of
/// both sides do not meet in a group, nor do any from both sides that come to functions that share
/// sets or meters.
pub(crate) struct Gathering {
    /// For each side, one bit for each of the flows that have a packet in the group, by the low
    /// bits of their number.
    flows: [[u64; WORDS]; 2],
    /// Whether there is a packet of this side that comes to all functions.
    sides: [bool; 2],
    /// Whether what a packet from one side does may matter to another flow's packet from the other.
    sides_apart: bool,
}

/// Bits for flows, in words: enough for few to share one among [`GROUP_MAX`].
const WORDS: usize = 16;

impl Gathering {
    pub fn new(sides_apart: bool) -> Gathering {
        Gathering { flows: [[0; WORDS]; 2], sides: [false; 2], sides_apart }
    }

    /// A packet of this flow joins the group; false if the group must be processed before.
    /// `to_all`: whether it comes to all functions.
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

/// Which course the packets of each flow take that are in the group, flows by the low bits of their
/// number.
///
/// Of a group with several courses, the packets of each go through together, and those that walk
/// last. So a flow's packets take one course, and then may walk, but not the other way round.
#[derive(Default)]
pub(crate) struct FlowCourses {
    /// Flows with a packet of the first packet's course, and with one of another.
    first: u64,
    others: u64,
}

/// The last course of each flow that has a packet of another course than the first one; memory that
/// is used again.
pub(crate) type OtherCourses = [Course; 64];

impl FlowCourses {
    /// Whether a packet of the flow is to walk. The group's first packet takes the course `first`.
    #[inline]
    pub fn walks(&self, record: u32, first: Course, of_others: &OtherCourses) -> bool {
        let (bit, place) = (1 << (record % 64), record as usize % 64);
        first == Course::WALK && self.first & bit != 0
            || self.others & bit != 0 && of_others[place] == Course::WALK
    }

    /// A packet of this flow joins the group; false if the group must be processed before.
    #[inline(always)]
    pub fn add(&mut self, record: u32, course: Course, first: Course, of_others: &mut OtherCourses) -> bool {
        let bit = 1 << (record % 64);
        if course == first {
            self.first |= bit;
            return self.others & bit == 0;
        }
        let of_flow = &mut of_others[record as usize % 64];
        let is_known = self.first & bit != 0 || self.others & bit != 0 && *of_flow != course;
        self.others |= bit;
        *of_flow = course;
        !is_known || course == Course::WALK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_takes_one_course_and_may_walk_then() {
        let [a, b, walk] = [Course::RECORD, Course::REVIEW, Course::WALK]; // Any three.
        for (first, courses) in [(a, [b, a]), (a, [a, b]), (a, [walk, a]), (walk, [walk, a]), (a, [walk, b])]
        {
            let (mut group, others) = (FlowCourses::default(), &mut [walk; 64]);
            assert!(group.add(1, first, first, others));
            assert!(group.add(2, courses[0], first, others));
            assert!(!group.add(2, courses[1], first, others), "{first:?} {courses:?}");
            assert!(FlowCourses::default().add(2, courses[1], courses[1], others));
        }
        let (mut group, others) = (FlowCourses::default(), &mut [walk; 64]);
        for (flow, course) in [(1, a), (2, b), (2, b), (1, a), (1, walk), (2, walk), (66, walk)] {
            assert!(group.add(flow, course, a, others), "{flow}");
        }
        assert!(group.walks(1, a, others) && group.walks(2, a, others) && !group.walks(3, a, others));
    }
}
