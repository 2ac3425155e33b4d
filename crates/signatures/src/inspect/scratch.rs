//! What an evaluation needs to write on.

use std::ops::RangeInclusive;

use crate::VARIABLES_MAX;

/// The most steps of one evaluation beyond trying one place and reading the buffer once for each
/// match: a place that is tried, or [`STEP_BYTES`] that are searched. Where they do not suffice,
/// the buffer does not hold, and [`Scratch::exhausted`] counts it.
pub const STEPS_MAX: usize = 10_000;
/// The same of all evaluations of a packet, where [`Scratch::begin_packet`] says what that is.
pub const PACKET_STEPS_MAX: usize = 4 * STEPS_MAX;
/// The same of a flow.
pub const FLOW_STEPS_MAX: usize = 100 * STEPS_MAX;
/// Steps that a flow gets back with each packet.
pub const FLOW_STEPS_PER_PACKET: usize = 100;
/// The bytes that are searched in one step of [`STEPS_MAX`].
pub const STEP_BYTES: usize = 256;

/// What an evaluation needs to write on: variables, what was decoded, places to go back to. One
/// serves any number of rules one after the other; when it has grown to what they need, an
/// evaluation allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    pub(crate) variables: Values,
    /// What `base64_decode` gave.
    pub(crate) decoded: Vec<u8>,
    /// What transforms gave.
    pub(crate) transformed: Vec<u8>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) failed: Vec<Failed>,
    pub(crate) exhausted: u64,
    /// What is left of the packet's and the flow's steps, if they are bounded.
    left: Option<Left>,
    steps: u64,
}

/// Steps that are left.
#[derive(Clone, Copy, Debug)]
struct Left {
    packet: usize,
    flow: usize,
}

impl Scratch {
    /// One that has not grown yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a rule: variables and what was decoded are those of no rule any more. To be called
    /// before the first of a rule's buffers is evaluated.
    pub fn begin(&mut self) {
        self.variables = Values::default();
        self.decoded.clear();
    }

    /// Evaluations from now on are of one packet of a flow that has spent so many steps: together
    /// they have [`PACKET_STEPS_MAX`], and the flow's have [`FLOW_STEPS_MAX`].
    pub fn begin_packet(&mut self, spent: u32) {
        let spent = (spent as usize).saturating_sub(FLOW_STEPS_PER_PACKET);
        self.left = Some(Left { packet: PACKET_STEPS_MAX, flow: FLOW_STEPS_MAX.saturating_sub(spent) });
    }

    /// How many steps the flow has spent, those of this packet included.
    pub fn spent(&self) -> u32 {
        self.left.map_or(0, |left| (FLOW_STEPS_MAX - left.flow) as u32)
    }

    /// How many evaluations ran out of steps, since this was made.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// How many steps evaluations took beyond reading buffers once, since this was made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The work that an evaluation of so many matches on so many bytes may take.
    pub(crate) fn budget(&self, matches: usize, bytes: usize) -> Budget {
        let steps = self.left.map_or(STEPS_MAX, |left| STEPS_MAX.min(left.packet).min(left.flow));
        Budget::new(matches, bytes, steps)
    }

    /// The evaluation is over.
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
    pub fn get(&self, variable: crate::Variable) -> Option<u64> {
        self.0.get(usize::from(variable.0)).copied()
    }

    /// Whether there is such a variable.
    pub fn set(&mut self, variable: crate::Variable, value: u64) -> bool {
        let place = self.0.get_mut(usize::from(variable.0));
        place.map(|place| *place = value).is_some()
    }

    /// The number, if it fits.
    pub fn resolve<N: Copy + TryFrom<u64>>(&self, operand: crate::Operand<N>) -> Option<N> {
        match operand {
            crate::Operand::Value(value) => Some(value),
            crate::Operand::Variable(variable) => N::try_from(self.get(variable)?).ok(),
        }
    }
}

/// A match that was found in one place and may be in another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// Which step.
    pub step: usize,
    /// Where the part begins that an expression sees.
    pub base: usize,
    /// Where the search began, where it goes on, and the last place.
    pub first: usize,
    pub next: usize,
    pub last: usize,
}

/// Places of a step from which the steps behind it are known to fail; a range, empty at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    from: usize,
    /// The first that is not known to.
    to: usize,
}

impl Failed {
    pub const NOTHING: Self = Self { from: 0, to: 0 };

    /// The first place from `first` on that is not known to fail.
    pub fn skip(self, first: usize) -> usize {
        if (self.from..self.to).contains(&first) { self.to } else { first }
    }

    /// Adds places. Of two ranges that do not touch, only the new one is kept.
    pub fn add(&mut self, places: RangeInclusive<usize>) {
        let (from, to) = (*places.start(), places.end().saturating_add(1));
        let touches = from <= self.to && self.from <= to && self.from < self.to;
        *self = match touches {
            true => Self { from: from.min(self.from), to: to.max(self.to) },
            false => Self { from, to },
        };
    }
}

/// How much work is left, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: i64,
    /// Of these, the steps beyond reading the buffer.
    beyond: i64,
}

impl Budget {
    /// That of an evaluation of so many matches on so many bytes, with these steps beyond reading
    /// them.
    pub fn new(matches: usize, bytes: usize, steps: usize) -> Self {
        let reading = matches.saturating_mul(bytes.saturating_add(STEP_BYTES));
        let beyond = steps * STEP_BYTES; // No more than `STEPS_MAX`.
        let left = i64::try_from(reading.saturating_add(beyond)).unwrap_or(i64::MAX);
        Self { left, beyond: beyond as i64 }
    }

    /// A place was tried, and so many bytes were searched for it.
    pub fn charge(&mut self, bytes: usize) {
        self.spend(bytes.saturating_add(STEP_BYTES));
    }

    /// So many bytes were compared.
    pub fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn is_spent(self) -> bool {
        self.left < 0
    }

    /// How many steps beyond reading the buffer were taken.
    fn steps_taken(self) -> usize {
        let work = self.beyond.saturating_sub(self.left.max(0));
        usize::try_from(work).unwrap_or(0).div_ceil(STEP_BYTES)
    }
}
