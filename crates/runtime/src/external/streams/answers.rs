//! Answers of a program about flows, which wait for the flows' next packets.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::frame::{ANSWER_LEN, HEAD_LEN, STREAM_ETHER_TYPE, VERSION};

/// Limit on flows with pending answers. A flow's answer may displace that of another flow, which
/// keeps its earlier values.
pub const ANSWERS_MAX: usize = 65_536;

/// Bits of an attribute value, and the bits of a place that say what it has.
const VALUE_BITS: u32 = 16;
const HAS_VALUE: u64 = 1 << VALUE_BITS;
const IS_REFUSAL: u64 = HAS_VALUE << 1;
/// Lowest bit of the flow's number.
const NUMBER_AT: u32 = VALUE_BITS + 2;
/// Limit on the numbers of flows.
const NUMBER_MAX: u64 = u64::MAX >> NUMBER_AT;

/// Kinds of answers.
const SET: u8 = 1;
const REFUSE: u8 = 2;

/// The answer of a program about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowAnswer {
    /// The flow's number.
    pub flow: u64,
    /// Values of the attributes that the program sets, the first one lowest.
    pub value: Option<u16>,
    /// True if packets of the flow are dropped from now on.
    pub is_refusal: bool,
}

impl FlowAnswer {
    /// Reads a frame of the program; `None` if it is no answer.
    pub fn parse(frame: &[u8]) -> Option<FlowAnswer> {
        let body = frame.get(HEAD_LEN..HEAD_LEN + ANSWER_LEN)?;
        let is_own = frame[12..HEAD_LEN] == STREAM_ETHER_TYPE.to_be_bytes() && body[0] == VERSION;
        let (flow, value) = body[8..].split_first_chunk::<8>()?;
        let (flow, value) = (u64::from_be_bytes(*flow), u64::from_be_bytes(*value.first_chunk()?));
        if !is_own || !(1..=NUMBER_MAX).contains(&flow) {
            return None;
        }
        match body[1] {
            SET => Some(FlowAnswer { flow, value: Some(u16::try_from(value).ok()?), is_refusal: false }),
            REFUSE => Some(FlowAnswer { flow, value: None, is_refusal: true }),
            _ => None,
        }
    }
}

/// Answers by the low bits of the flows' numbers.
pub(super) struct AnswerBoard {
    next: AtomicU64,
    is_up: AtomicBool,
    answers: AtomicU64,
    bad: AtomicU64,
    places: Box<[AtomicU64]>,
}

impl fmt::Debug for AnswerBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBoard").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Default for AnswerBoard {
    fn default() -> AnswerBoard {
        AnswerBoard {
            next: AtomicU64::new(1),
            is_up: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            places: (0..ANSWERS_MAX).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl AnswerBoard {
    /// Returns the number of a flow that is new to the program.
    pub fn next_number(&self) -> u64 {
        // 2^46 flows take two years at a million per second.
        self.next.fetch_add(1, Ordering::Relaxed) & NUMBER_MAX
    }

    fn place(&self, flow: u64) -> &AtomicU64 {
        &self.places[flow as usize % ANSWERS_MAX]
    }

    /// Notes that the link to the program is up or down.
    pub fn set_link(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    /// Counts a frame that is no answer.
    pub fn count_bad(&self) {
        self.bad.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns 1 if the link is up, the number of answers, and that of frames that are none.
    pub fn figures(&self) -> (u64, u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (self.is_up.load(Ordering::Relaxed).into(), count(&self.answers), count(&self.bad))
    }

    /// Takes an answer. A refusal is not taken back.
    pub fn post(&self, answer: FlowAnswer) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let place = self.place(answer.flow);
        let of = |before: u64| {
            let kept = if before >> NUMBER_AT == answer.flow { before } else { answer.flow << NUMBER_AT };
            let kept = kept | if answer.is_refusal { IS_REFUSAL } else { 0 };
            match answer.value {
                Some(value) => kept & !(HAS_VALUE - 1) | HAS_VALUE | u64::from(value),
                None => kept,
            }
        };
        let _ = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(of(before)));
    }

    /// Returns the answer about a flow.
    #[inline]
    pub fn of(&self, flow: u64) -> Option<FlowAnswer> {
        let bits = self.place(flow).load(Ordering::Relaxed);
        let is_its = bits >> NUMBER_AT == flow && flow != 0;
        is_its.then_some(FlowAnswer {
            flow,
            value: (bits & HAS_VALUE != 0).then_some(bits as u16),
            is_refusal: bits & IS_REFUSAL != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_wait_for_their_flow() {
        let board = AnswerBoard::default();
        assert_eq!(board.of(0), None);
        let set = |flow, value| FlowAnswer { flow, value: Some(value), is_refusal: false };
        let refuse = |flow| FlowAnswer { flow, value: None, is_refusal: true };
        board.post(set(7, 3));
        assert_eq!(board.of(7), Some(set(7, 3)));
        board.post(refuse(7));
        board.post(set(7, 0xffff));
        assert_eq!(board.of(7), Some(FlowAnswer { is_refusal: true, ..set(7, 0xffff) }));
        assert_eq!(board.of(7 + ANSWERS_MAX as u64), None);
        board.post(refuse(7 + ANSWERS_MAX as u64));
        assert_eq!(board.of(7), None);
        assert_eq!(board.of(7 + ANSWERS_MAX as u64), Some(refuse(7 + ANSWERS_MAX as u64)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..60), kind: u8, flow: u64) {
            let whole = bytes.len() >= HEAD_LEN + ANSWER_LEN;
            prop_assert!(whole || FlowAnswer::parse(&bytes).is_none());
            let head = [&[0; 12][..], &STREAM_ETHER_TYPE.to_be_bytes(), &[VERSION, kind]].concat();
            let frame = [&head[..], &[0; 6], &flow.to_be_bytes(), &[0, 0, 0, 0, 0, 0, 1, 2]].concat();
            let is_valid = (1..=2).contains(&kind) && flow > 0 && flow <= NUMBER_MAX;
            prop_assert_eq!(FlowAnswer::parse(&frame).is_some(), is_valid);
        }
    }
}
