//! The forms of a graph that must all do the same.

use std::fmt;

/// A form of a graph of the same functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphForm {
    /// Known flows follow cached rules.
    pub consolidates: bool,
    /// The line is a graph that could have branches, and packets follow routes.
    pub branches: bool,
}

impl fmt::Display for GraphForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.consolidates, self.branches) {
            (false, false) => "plain",
            (true, false) => "consolidated",
            (false, true) => "routed",
            (true, true) => "routed and consolidated",
        })
    }
}
