//! The forms of a graph that must all do the same.

use std::fmt;

/// A form of a graph of the same functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphForm {
    /// Known flows follow cached rules.
    pub consolidates: bool,
    /// The line of functions, as a graph.
    pub shape: LineShape,
}

/// The shape of a line of functions. None changes what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineShape {
    /// A graph without branches.
    #[default]
    Line,
    /// A graph that could have branches: packets follow routes.
    Routed,
    /// A parallel branch of the same functions, which no packet takes.
    Branch,
}

impl fmt::Display for GraphForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = match self.shape {
            LineShape::Line => "",
            LineShape::Routed => "routed, ",
            LineShape::Branch => "branch, ",
        };
        write!(f, "{shape}{}", if self.consolidates { "consolidated" } else { "plain" })
    }
}
