//! Pipelets, and the ports and NFs that they connect.

use std::ops::RangeInclusive;

use crate::filter::Filter;
use crate::source::Span;
use crate::value::Value;

/// Largest port number.
pub const PORT_MAX: u16 = u16::MAX;

/// One or several ports with one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// The name.
    pub name: String,
    /// The port numbers; no two ports of a policy share one.
    pub numbers: RangeInclusive<u16>,
    /// An object, empty if there is none.
    pub config: Value,
    /// Position of the name.
    pub span: Span,
    pub(crate) numbers_span: Span,
}

/// An NF instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Nf {
    /// The NF type; the language does not know which types exist.
    pub type_name: String,
    /// Name of the instance.
    pub name: String,
    /// An object, empty if there is none.
    pub config: Value,
    /// Position of the name.
    pub span: Span,
    /// Position of the type.
    pub type_span: Span,
    /// Attributes that the program sets, if the instance delivers streams.
    pub sets: Vec<NodeAttribute>,
}

impl Nf {
    /// The type of instances that deliver streams to a program: [`Nf::delivers_streams`].
    pub const NATIVE: &'static str = "Native";

    /// Returns true if the instance delivers streams to the program of a native node, which gets no
    /// packets (E23).
    pub fn delivers_streams(&self) -> bool {
        self.type_name == Nf::NATIVE
    }
}

/// An attribute that the program of an external node sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAttribute {
    /// The part after the dot in `box.safe`.
    pub name: String,
    /// Width of the value, 1 to 16 bits.
    pub bits: u8,
}

/// The path of one class of traffic: an acyclic graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipelet {
    /// The optional name.
    pub name: Option<String>,
    /// Edges in the order of the text; for a graph of `<->`, the forward edges first.
    pub edges: Vec<Edge>,
    /// Position of the name, or of the word `pipelet`.
    pub span: Span,
}

/// A connection that takes packets of `from` that pass the filter to `to`.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The source.
    pub from: Node,
    /// The target.
    pub to: Node,
    /// The filter; [`Filter::Always`] if none is written.
    pub filter: Filter,
    /// Position of the filter, if one is written.
    pub filter_span: Option<Span>,
    /// Forward or reverse.
    pub direction: EdgeDirection,
    /// Position of the arrow.
    pub span: Span,
}

/// One end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// Index in [`Policy::ports`](crate::Policy::ports).
    Port(usize),
    /// Index in [`Policy::nfs`](crate::Policy::nfs).
    Nf(usize),
    /// The sink of dropped packets.
    Drop,
}

/// The direction of an edge: `a <-> b` is a forward edge from a to b and a reverse edge from b to
/// a. Packets stay on edges of their first direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeDirection {
    /// As written.
    Forward,
    /// The way back of `<->`, with its filter mirrored.
    Reverse,
}
