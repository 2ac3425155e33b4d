//! Scratch memory of evaluations, and the steps of packets and flows.

use std::ops::RangeInclusive;

use crate::VARIABLES_MAX;
use crate::inspect::backtrack::Backtracks;
use crate::inspect::budget::{Budget, STEPS_MAX};

/// Maximum steps of all evaluations of a packet, as delimited by
/// [`InspectionScratch::begin_packet`].
pub const PACKET_STEPS_MAX: usize = 4 * STEPS_MAX;
/// Maximum steps of a flow.
pub const FLOW_STEPS_MAX: usize = 100 * STEPS_MAX;
/// Steps that a flow regains with each packet.
pub const FLOW_STEPS_PER_PACKET: usize = 100;

/// Scratch memory of evaluations: variables, decoded data, places to return to. One serves any
/// number of rules, one after the other. Once it has grown, evaluations do not allocate.
#[derive(Clone, Debug, Default)]
pub struct InspectionScratch {
    pub(crate) variables: Values,
    /// The output of `base64_decode`.
    pub(crate) decoded: Vec<u8>,
    /// The output of transforms.
    pub(crate) transformed: Vec<u8>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) failed: Vec<Failed>,
    pub(crate) backtracks: Backtracks,
    pub(crate) exhausted: u64,
    /// The remaining steps of packet and flow, if limited.
    left: Option<RemainingSteps>,
    steps: u64,
}

/// Remaining steps.
#[derive(Clone, Copy, Debug)]
struct RemainingSteps {
    packet: usize,
    flow: usize,
}

impl InspectionScratch {
    /// Creates an empty scratch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a rule: clears variables and decoded data. Must be called before the first of a
    /// rule's buffers is evaluated.
    pub fn begin(&mut self) {
        self.variables = Values::default();
        self.decoded.clear();
    }

    /// Begins a packet of a flow that has used `spent` steps: the following evaluations share
    /// [`PACKET_STEPS_MAX`], and those of the flow share [`FLOW_STEPS_MAX`].
    pub fn begin_packet(&mut self, spent: u32) {
        let spent = (spent as usize).saturating_sub(FLOW_STEPS_PER_PACKET);
        self.left =
            Some(RemainingSteps { packet: PACKET_STEPS_MAX, flow: FLOW_STEPS_MAX.saturating_sub(spent) });
    }

    /// Returns the steps that the flow has used, including this packet.
    pub fn spent(&self) -> u32 {
        self.left.map_or(0, |left| (FLOW_STEPS_MAX - left.flow) as u32)
    }

    /// Returns the number of evaluations that ran out of steps.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// Returns the steps used beyond reading buffers once.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the budget of an evaluation that reads a buffer of `bytes` up to `times` times.
    pub(crate) fn budget(&self, times: usize, bytes: usize) -> Budget {
        let steps = self.left.map_or(STEPS_MAX, |left| STEPS_MAX.min(left.packet).min(left.flow));
        Budget::new(times, bytes, steps)
    }

    /// Ends the evaluation and accounts for its steps.
    pub(crate) fn settle(&mut self, budget: Budget) {
        self.exhausted += u64::from(budget.is_spent());
        let steps = budget.steps_taken();
        if steps > 0 {
            self.steps += steps as u64;
            if let Some(left) = &mut self.left {
                left.packet = left.packet.saturating_sub(steps);
                left.flow = left.flow.saturating_sub(steps);
            }
        }
    }
}

/// The values of a rule's variables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Values([u64; VARIABLES_MAX]);

impl Values {
    pub fn get(&self, variable: crate::ByteVariable) -> Option<u64> {
        self.0.get(usize::from(variable.0)).copied()
    }

    /// Sets a variable; false if it does not exist.
    pub fn set(&mut self, variable: crate::ByteVariable, value: u64) -> bool {
        let place = self.0.get_mut(usize::from(variable.0));
        place.map(|place| *place = value).is_some()
    }

    /// Resolves an operand; `None` if the value does not fit.
    pub fn resolve<N: Copy + TryFrom<u64>>(&self, operand: crate::Operand<N>) -> Option<N> {
        match operand {
            crate::Operand::Value(value) => Some(value),
            crate::Operand::Variable(variable) => N::try_from(self.get(variable)?).ok(),
        }
    }
}

/// A match with possible further places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// Index of the step.
    pub step: usize,
    /// The start of the input that an expression sees.
    pub base: usize,
    /// The start of the search, the next place, and the last one.
    pub first: usize,
    pub next: usize,
    pub last: usize,
}

/// A range of places of a step from which the next steps are known to fail; initially empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    from: usize,
    /// The first place after the range.
    to: usize,
}

impl Failed {
    pub const NOTHING: Self = Self { from: 0, to: 0 };

    /// Returns the first place from `first` on that is not known to fail.
    pub fn skip(self, first: usize) -> usize {
        if (self.from..self.to).contains(&first) { self.to } else { first }
    }

    /// Adds places. Of two separate ranges, only the new one is kept.
    pub fn add(&mut self, places: RangeInclusive<usize>) {
        let (from, to) = (*places.start(), places.end().saturating_add(1));
        let touches = from <= self.to && self.from <= to && self.from < self.to;
        *self = match touches {
            true => Self { from: from.min(self.from), to: to.max(self.to) },
            false => Self { from, to },
        };
    }
}
