//! Measurements of a graph, and its branches.

use super::Graph;
use crate::cache::{FastPath, FlowCache};
use crate::pipeline::Pipeline;
use crate::routing::{AttributeField, EdgeCounters, Routing};
use crate::stages::{Stages, Walked};
use crate::topology::Topology;

/// Measurements of a graph ([`Graph::report`]). [`Graph::counters`] has its counters.
#[derive(Clone, Copy)]
pub struct GraphReport<'g> {
    pipeline: &'g Pipeline,
}

/// The branches of a graph ([`Graph::branches`]).
#[derive(Clone, Copy)]
pub struct Branches<'g> {
    routing: &'g Routing,
    stages: &'g Stages,
}

impl Graph {
    /// Returns the measurements.
    pub fn report(&self) -> GraphReport<'_> {
        GraphReport { pipeline: &self.pipeline }
    }

    /// Returns the branches; `None` for a line.
    pub fn branches(&self) -> Option<Branches<'_>> {
        let routing = self.pipeline.flows().routing.as_deref()?;
        Some(Branches { routing, stages: self.pipeline.stages() })
    }
}

impl<'g> GraphReport<'g> {
    /// Returns the counters of the fast path.
    pub fn fast_path(self) -> FastPath {
        self.pipeline.flows().cache.as_ref().map(FlowCache::counters).unwrap_or_default()
    }

    /// Returns true if packets of known flows may take the fast path.
    pub fn consolidates(self) -> bool {
        self.pipeline.flows().cache.is_some()
    }

    /// Returns true if a function subscribes to TCP streams.
    pub fn has_streams(self) -> bool {
        self.pipeline.flows().reassembly.is_some()
    }

    /// Returns the processor cycles spent in each function, if [`crate::Options::cycles`] is set.
    pub fn cycles(self) -> &'g [u64] {
        self.pipeline.stages().cycles()
    }

    /// Returns the part of the cycles that was spent on the slow path. The rest was spent in state
    /// functions, on the fast path.
    pub fn walked(self) -> &'g [Walked] {
        self.pipeline.stages().walked()
    }
}

impl<'g> Branches<'g> {
    /// Returns the topology.
    pub fn topology(self) -> &'g Topology {
        self.routing.topology()
    }

    /// Returns the counters of the edges, in the order of [`Topology::edges`].
    pub fn counters(self) -> &'g [EdgeCounters] {
        self.routing.edges()
    }

    /// Returns the place in packets' tags of an attribute of an NF or of an external node's
    /// program; `owner` as in [`policy::TravellingAttribute::owner`]. `None` if the graph does not
    /// use the attribute.
    pub fn attribute_field(self, owner: usize, name: &str) -> Option<AttributeField> {
        self.routing.brought().field(self.routing.topology(), (owner, name), &self.stages.all)
    }
}
