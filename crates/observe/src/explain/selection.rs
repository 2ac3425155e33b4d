//! Selection of the packets to show.

use std::collections::BTreeMap;

use packet::parse::{self, protocol};
use packet::{Packet, PacketClass};
use policy::{Fields, Filter, FilterNumberField, Scalar};
use runtime::{Assembly, Runner};

use super::tracer::{PacketOutcome, PacketTrace};

/// Conditions on a packet. All must hold.
#[derive(Default)]
pub struct Selection {
    /// Only the packets of this flow.
    pub flow: Option<u64>,
    /// Only this packet.
    pub packet: Option<u64>,
    /// Only packets that were dropped.
    pub dropped: bool,
    filter: Option<Filter>,
    /// Number in the policy, which filters use, of each function of the graph.
    numbers: Vec<usize>,
}

impl Selection {
    /// Selects the packets that match a filter; `known` are the names of the policy's functions in
    /// the order of their numbers, which the filter uses.
    pub fn matching(filter: Filter, known: &[String], assembly: &Assembly) -> Selection {
        let number = |name: &String| known.iter().position(|other| other == name).unwrap_or(usize::MAX);
        let numbers = assembly.names.iter().map(number).collect();
        Selection { filter: Some(filter), numbers, ..Selection::default() }
    }

    /// Returns whether no later packet can be selected.
    pub fn is_past(&self, number: u64) -> bool {
        self.packet == Some(number)
    }

    /// Returns whether this packet is selected.
    pub fn takes(&self, trace: &PacketTrace, runner: &Runner) -> bool {
        let dropped = matches!(trace.outcome, PacketOutcome::Dropped(_)) && !trace.is_midstream;
        self.flow.is_none_or(|flow| trace.flow == Some(flow))
            && self.packet.is_none_or(|packet| trace.number == Some(packet))
            && (dropped || !self.dropped)
            && self.filter.as_ref().is_none_or(|filter| self.passes(filter, trace, runner))
    }

    fn passes(&self, filter: &Filter, trace: &PacketTrace, runner: &Runner) -> bool {
        let Some(arrived) = &trace.arrived else { return false };
        let mut fields = fields(arrived);
        // Attributes are complete after the last function.
        let last = trace.steps.iter().rev().find_map(|step| step.after.as_ref());
        if let Some(last) = last {
            let stages = runner.assembly().graph.stages().iter().enumerate();
            for ((place, stage), &number) in stages.zip(&self.numbers) {
                // Functions on other paths have their attributes in the same bits.
                let visited = trace.steps.iter().any(|step| step.stage == place);
                for (i, attribute) in stage.descriptor().attributes.iter().enumerate() {
                    let tags = if visited { last.meta().transit.tags } else { 0 };
                    let value = stage.tags().get(tags, i);
                    let key = (number, attribute.name.to_owned());
                    fields.attributes.insert(key, Scalar::Number(value.into()));
                }
            }
        }
        filter.matches(&fields)
    }
}

/// Returns the fields that filters read.
fn fields(packet: &Packet) -> Fields {
    let meta = packet.meta();
    if meta.version == 0 {
        return Fields::default();
    }
    let (source, destination) = parse::ends(packet);
    let mut numbers = BTreeMap::from([
        (FilterNumberField::Proto, meta.protocol.into()),
        (FilterNumberField::Tenant, meta.key.tenant().into()),
    ]);
    let has_ports = matches!(meta.protocol, protocol::TCP | protocol::UDP | protocol::SCTP);
    if has_ports && meta.class != PacketClass::LaterFragment {
        numbers.insert(FilterNumberField::SrcPort, source.port.into());
        numbers.insert(FilterNumberField::DstPort, destination.port.into());
    }
    if let Some(vlan) = meta.key.scope.vlan() {
        numbers.insert(FilterNumberField::Vlan, vlan.into());
    }
    if let Some(&[a, b]) = packet.data().get(meta.l3 as usize..).and_then(|ip| ip.first_chunk()) {
        let traffic_class = if meta.version == 4 { b } else { a << 4 | b >> 4 };
        numbers.insert(FilterNumberField::Dscp, (traffic_class >> 2).into());
    }
    Fields {
        src_ip: Some(source.addr.ip()),
        dst_ip: Some(destination.addr.ip()),
        numbers,
        tcp_flags: (meta.protocol == protocol::TCP && meta.has_transport()).then_some(meta.tcp_flags),
        attributes: BTreeMap::new(),
    }
}
