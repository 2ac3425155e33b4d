//! Programs for predictions: the rules of many flows share a few shapes, so that no program is
//! written for each flow.

use super::program::{PROGRAMS_MAX, ProgramId};

/// The known shapes with their programs; `None` if a shape makes none.
#[derive(Default)]
pub(crate) struct Shapes(Vec<(Vec<u32>, Option<ProgramId>)>);

impl Shapes {
    /// Returns the program made of this shape, if it is known.
    #[inline]
    pub fn find(&self, shape: &[u32]) -> Option<Option<ProgramId>> {
        self.0.iter().find(|(known, _)| known == shape).map(|&(_, program)| program)
    }

    /// Notes the program of a shape, up to the maximum number of programs.
    pub fn learn(&mut self, shape: &[u32], program: Option<ProgramId>) {
        if self.0.len() < PROGRAMS_MAX {
            self.0.push((shape.to_vec(), program));
        }
    }
}
