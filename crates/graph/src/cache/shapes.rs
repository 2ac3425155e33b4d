//! The programs made of functions' predictions: many flows' rules by the same few shapes,
//! without a program being written for each.

use super::program::{PROGRAMS_MAX, ProgramId};

/// The shapes that are known, and what is made of each; none: nothing can be.
#[derive(Default)]
pub(crate) struct Shapes(Vec<(Vec<u32>, Option<ProgramId>)>);

impl Shapes {
    /// Returns the program made of this shape, if it is known.
    #[inline]
    pub fn find(&self, shape: &[u32]) -> Option<Option<ProgramId>> {
        self.0.iter().find(|(known, _)| known == shape).map(|&(_, program)| program)
    }

    /// Notes what is made of it. Beyond as many as there can be programs, none is noted.
    pub fn learn(&mut self, shape: &[u32], program: Option<ProgramId>) {
        if self.0.len() < PROGRAMS_MAX {
            self.0.push((shape.to_vec(), program));
        }
    }
}
