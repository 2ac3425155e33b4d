//! A backtracking matcher, for expressions with look-around, references and atomic groups.
//!
//! Such an expression has no automaton: it is a program of few instructions, which tries its
//! alternatives one after the other. It matches bytes as PCRE2 does without `UTF`. Each instruction
//! is charged to the budget of its evaluation, so that no expression can run for long.

mod program;
mod run;

use regex_automata::Span;

use crate::Pcre;
use crate::inspect::budget::Budget;
use crate::inspect::unsupported::UnsupportedReason;

use program::Program;
pub(crate) use run::{Backtracks, INSTRUCTION_BYTES};

/// A compiled expression of the backtracking matcher.
#[derive(Clone, Debug)]
pub(crate) struct Backtracker {
    program: Program,
}

impl Backtracker {
    pub fn new(pcre: &Pcre) -> Result<Self, UnsupportedReason> {
        let syntax = pcre.backtracking().map_err(UnsupportedReason::Expression)?;
        Program::new(&syntax).map(|program| Self { program })
    }

    /// Returns whether matches after a place do not depend on the bytes before it.
    pub fn looks_forward_only(&self) -> bool {
        self.program.looks_forward_only()
    }

    /// Returns the leftmost match at or after `first`, in the input that begins at `base`; none if
    /// the budget is spent before.
    pub fn find(
        &self,
        bytes: &[u8],
        base: usize,
        first: usize,
        backtracks: &mut Backtracks,
        budget: &mut Budget,
    ) -> Option<Span> {
        let input = bytes.get(base..)?;
        budget.charge(0);
        for start in first - base..=input.len() {
            if start > 0 && !self.program.starts.may_begin(input.get(start).copied()) {
                if self.program.starts.is_at_base_only() {
                    return None;
                }
                budget.spend(1);
                continue;
            }
            let end = backtracks.run(&self.program, input, start, budget);
            if budget.is_spent() {
                return None;
            }
            if let Some(end) = end {
                return Some(Span { start: base + start, end: base + end });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
