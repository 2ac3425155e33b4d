//! The budget of an evaluation.

/// Maximum steps of one evaluation beyond trying one place and reading the buffer once for each
/// match. A step is a place that is tried, or [`STEP_BYTES`] that are searched. When they are used
/// up, the buffer does not match, and [`super::InspectionScratch::exhausted`] counts it.
pub const STEPS_MAX: usize = 10_000;
/// Bytes searched in one step of [`STEPS_MAX`].
pub const STEP_BYTES: usize = 256;

/// The remaining work, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: i64,
    /// The part beyond reading the buffer.
    beyond: i64,
}

impl Budget {
    /// Creates the budget of an evaluation with these steps beyond reading the buffer.
    pub fn new(times: usize, bytes: usize, steps: usize) -> Self {
        let reading = times.saturating_mul(bytes.saturating_add(STEP_BYTES));
        let beyond = steps * STEP_BYTES; // No more than `STEPS_MAX`.
        let left = i64::try_from(reading.saturating_add(beyond)).unwrap_or(i64::MAX);
        Self { left, beyond: beyond as i64 }
    }

    /// Charges one place, with the bytes searched for it.
    pub fn charge(&mut self, bytes: usize) {
        self.spend(bytes.saturating_add(STEP_BYTES));
    }

    /// Charges bytes that were compared.
    pub fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Uses up all of it.
    pub fn use_up(&mut self) {
        self.left = -1;
    }

    pub fn is_spent(self) -> bool {
        self.left < 0
    }

    /// Returns the steps used beyond reading the buffer.
    pub fn steps_taken(self) -> usize {
        let work = self.beyond.saturating_sub(self.left.max(0));
        usize::try_from(work).unwrap_or(0).div_ceil(STEP_BYTES)
    }
}
