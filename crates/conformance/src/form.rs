//! The forms of a graph that must not differ.

use std::fmt;

/// A form of a graph of the same functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphForm {
    /// Known flows take the fast path.
    pub consolidates: bool,
    /// The line of functions, as a graph.
    pub shape: LineShape,
}

/// The shape of a line of functions. It does not change what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineShape {
    /// A graph without branches.
    #[default]
    Line,
    /// A graph that could have branches: packets carry routes.
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
