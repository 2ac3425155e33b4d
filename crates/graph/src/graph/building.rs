//! Building a graph: records, routing, and the objects that use them.

use nf::record::RecordLayout;
use nf::stage::Stage;

use super::arrivals::Arrivals;
use super::{Graph, GraphError};
use crate::Options;
use crate::classifier::Classifier;
use crate::flow_table::Joining;
use crate::flows::{FlowTransfer, Flows};
use crate::groups::Groups;
use crate::pipeline::Pipeline;
use crate::reassembly::Reassembly;
use crate::routing::Routing;
use crate::stages::Stages;
use crate::topology::Topology;

/// Builds a graph of these functions: a line without a topology.
pub(super) fn build(
    mut stages: Vec<Box<dyn Stage>>,
    topology: Option<Topology>,
    options: Options,
) -> Result<Graph, GraphError> {
    let changes_flows = stages.iter().map(|stage| stage.descriptor()).find(|d| d.changes_flows);
    if let Some(descriptor) = changes_flows.filter(|_| stages.len() > 1) {
        return Err(GraphError::NotAlone(descriptor.name));
    }
    let (mut layout, mut tag_bit) = (RecordLayout::default(), 0);
    let reassembly = Reassembly::new(&stages, &mut layout, options.streams, options.seed)?;
    stages.iter_mut().for_each(|stage| stage.set_on_panic(options.on_panic));
    let (lead_len, routing);
    if let Some(topology) = topology {
        let placed = Routing::place(topology, &mut stages, &mut layout, options.timeouts)
            .map_err(GraphError::TooManyTags)?;
        lead_len = placed.0.routes().lead_len();
        (routing, tag_bit) = (Some(Box::new(placed.0)), placed.1);
    } else {
        (lead_len, routing) = (layout.len(), None);
        for (number, stage) in stages.iter_mut().enumerate() {
            let name = stage.descriptor().name;
            tag_bit =
                stage.place(number as u16, &mut layout, tag_bit).ok_or(GraphError::TooManyTags(name))?;
        }
    }
    let joining = Joining {
        timeouts: options.timeouts,
        keeps_flows: stages.iter().any(|stage| stage.descriptor().keeps_flows),
        tags: tag_bit > 0,
        has_aliases: changes_flows.is_none(),
    };
    // A packet's timeout applies once its group is through. So no group spans more time than the
    // shortest timeout.
    let group_span_ns = match joining.keeps_flows {
        true => 1_000_000,
        false => u64::from(options.timeouts.shortest_ms()) * 1_000_000,
    };
    let is_order_sensitive = stages.iter().any(|stage| stage.shared().is_order_sensitive());
    let stages = Stages::new(stages, options.cycles);
    let mut classifier = Classifier::new(&options);
    classifier.set_passes_unjudged(stages.pass_unjudged());
    let hasher = classifier.parser().hasher;
    let mut groups = Groups::new(group_span_ns, is_order_sensitive);
    if let Some(routing) = &routing {
        let streams = stages.all.iter().filter(|stage| stage.descriptor().stream).count();
        groups.branch(routing.topology().reads().is_any(), streams > 1);
    }
    let flows = Flows::new(&stages, layout, (reassembly, routing), joining, (&options, hasher))?;
    let transfer = FlowTransfer::new(&stages, &flows, lead_len);
    Ok(Graph {
        options,
        arrivals: Arrivals::new(classifier),
        groups,
        pipeline: Pipeline::new(stages, flows, transfer),
    })
}
