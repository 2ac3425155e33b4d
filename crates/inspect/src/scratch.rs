//! What an evaluation needs to write on.

use std::ops::RangeInclusive;

use rules::MAX_VARIABLES;

/// The most steps of one evaluation beyond reading the buffer once for each match: a place that is tried, or
/// [`STEP_BYTES`] that are searched. Where they do not suffice, the buffer does not hold, and
/// [`Scratch::exhausted`] counts it.
pub const MAX_STEPS: usize = 10_000;
/// The bytes that are searched in one step of [`MAX_STEPS`].
pub const STEP_BYTES: usize = 256;

/// What an evaluation needs to write on: variables, what was decoded, places to go back to. One serves any number of rules
/// one after the other; when it has grown to what they need, an evaluation allocates nothing.
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
}

impl Scratch {
    /// One that has not grown yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a rule: variables and what was decoded are those of no rule any more. To be called before the first of a
    /// rule's buffers is evaluated.
    pub fn begin(&mut self) {
        self.variables = Values::default();
        self.decoded.clear();
    }

    /// How many evaluations ended at [`MAX_STEPS`], since this was made.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }
}

/// The values of a rule's variables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Values([u64; MAX_VARIABLES]);

impl Values {
    pub fn get(&self, variable: rules::Variable) -> Option<u64> {
        self.0.get(usize::from(variable.0)).copied()
    }

    /// Whether there is such a variable.
    pub fn set(&mut self, variable: rules::Variable, value: u64) -> bool {
        let place = self.0.get_mut(usize::from(variable.0));
        place.map(|place| *place = value).is_some()
    }

    /// The number, if it fits.
    pub fn resolve<N: Copy + TryFrom<u64>>(&self, operand: rules::Operand<N>) -> Option<N> {
        match operand {
            rules::Operand::Value(value) => Some(value),
            rules::Operand::Variable(variable) => N::try_from(self.get(variable)?).ok(),
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
pub(crate) struct Budget(i64);

impl Budget {
    /// That of an evaluation of so many steps on so many bytes.
    pub fn new(steps: usize, bytes: usize) -> Self {
        let work = steps.saturating_mul(bytes).saturating_add(MAX_STEPS * STEP_BYTES);
        Self(i64::try_from(work).unwrap_or(i64::MAX))
    }

    /// A place was tried, and so many bytes were searched for it.
    pub fn charge(&mut self, bytes: usize) {
        self.spend(bytes.saturating_add(STEP_BYTES));
    }

    /// So many bytes were compared.
    pub fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn is_spent(self) -> bool {
        self.0 < 0
    }
}
