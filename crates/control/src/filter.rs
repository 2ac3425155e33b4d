//! Filters of flows: the policy's language, over a flow's key.

use std::net::IpAddr;

use packet::FlowKey;
use policy::{AttributeValue, Colour, Filter, FilterInput, FilterNumberField, FilterSide, Policy};

use crate::problem::Problem;

/// Limit on a filter's length, in bytes.
pub const FILTER_MAX: usize = 4096;

/// A policy without names for filters.
const NO_NAMES: &str = "Port<0> inside; Port<1> outside; pipelet all { inside <-> outside; }";

/// A filter of flows.
#[derive(Clone, Debug)]
pub(crate) struct FlowFilter(Filter);

impl FlowFilter {
    /// Reads a filter.
    pub fn read(text: &str) -> Result<FlowFilter, Problem> {
        let invalid = |detail: String| Problem::invalid(("filter", detail));
        if text.len() > FILTER_MAX {
            return Err(invalid(format!("the filter has {} bytes; expected up to {FILTER_MAX}", text.len())));
        }
        let mut no_files = |_: &str| Err("filters read no files".to_owned());
        let read = Policy::read_with_filter(("policy", NO_NAMES), ("filter", text), &mut no_files);
        let (_, filter) = read.map_err(|report| invalid(report.render(Colour::Off)))?;
        if reads_packets(&filter) {
            let detail = "flows have addresses, ports, protocol, VLAN and tenant; flags, DSCP and attributes \
                          are those of packets";
            return Err(invalid(detail.to_owned()));
        }
        Ok(FlowFilter(filter))
    }

    /// Returns true if packets of one of the flow's directions match.
    pub fn matches(&self, key: &FlowKey) -> bool {
        [false, true].into_iter().any(|reversed| self.0.passes(&Direction { key, reversed }))
    }
}

/// Returns true if the filter reads a field that differs between packets of a flow.
fn reads_packets(filter: &Filter) -> bool {
    match filter {
        Filter::Not(inner) => reads_packets(inner),
        Filter::All(parts) | Filter::Any(parts) => parts.iter().any(reads_packets),
        Filter::Number { field, .. } => *field == FilterNumberField::Dscp,
        Filter::TcpFlags { .. } | Filter::Attribute { .. } => true,
        Filter::Always(_) | Filter::Address { .. } => false,
    }
}

/// A direction of a flow.
struct Direction<'a> {
    key: &'a FlowKey,
    reversed: bool,
}

impl FilterInput for Direction<'_> {
    fn address(&self, side: FilterSide) -> Option<IpAddr> {
        let (source, destination) = self.key.ends(self.reversed);
        let end = match side {
            FilterSide::Src => source,
            FilterSide::Dst => destination,
        };
        Some(end.addr.ip())
    }

    fn number(&self, field: FilterNumberField) -> Option<u64> {
        let (source, destination) = self.key.ends(self.reversed);
        // TCP, UDP and SCTP; the ends of others have identifiers of echoes or SPIs, if any.
        let has_ports = matches!(self.key.protocol, 6 | 17 | 132);
        match field {
            FilterNumberField::SrcPort => has_ports.then_some(source.port.into()),
            FilterNumberField::DstPort => has_ports.then_some(destination.port.into()),
            FilterNumberField::Proto => Some(self.key.protocol.into()),
            FilterNumberField::Vlan => self.key.scope.vlan().map(u64::from),
            FilterNumberField::Tenant => Some(self.key.tenant().into()),
            FilterNumberField::Dscp => None,
        }
    }

    fn tcp_flags(&self) -> Option<u8> {
        None
    }

    fn attribute(&self, _nf: usize, _name: &str) -> Option<AttributeValue<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use packet::{Addr, Endpoint, Scope};

    use super::*;

    #[test]
    fn a_flow_matches_if_a_direction_does() {
        let end = |host, port| Endpoint::new(Addr::from_v4_bytes([10, 0, 0, host]), port);
        let scope = Scope::default().with_vlan(7);
        let (key, _) = FlowKey::new(end(1, 40_000), end(2, 443), 6, 4, scope, 0);
        for (text, expected) in [
            ("dst port 443", true),
            ("src port 443", true),
            ("dst port 443 && src ip 10.0.0.1", true),
            ("dst port 443 && dst ip 10.0.0.1", false),
            ("port 443", true),
            ("net 10.0.0.0/24", true),
            ("net 10.0.1.0/24", false),
            ("proto tcp", true),
            ("proto udp", false),
            ("vlan 7", true),
            ("vlan 8 || tenant 0", true),
        ] {
            let filter = FlowFilter::read(text).unwrap_or_else(|problem| panic!("{}", problem.detail));
            assert_eq!(filter.matches(&key), expected, "{text}");
        }
    }

    #[test]
    fn filters_of_packets_and_nonsense_are_refused() {
        let long = format!("port {}", "1".repeat(FILTER_MAX));
        for (text, expected) in [
            ("", "expected"),
            ("dst prt 443", "filter"),
            ("dscp 46", "packets"),
            ("not (port 1 || tcp flags syn)", "packets"),
            ("n.blocked", "filter"),
            (&long, "4096"),
        ] {
            let problem = FlowFilter::read(text).unwrap_err();
            assert_eq!((problem.status, problem.field.as_deref()), (422, Some("filter")), "{text}");
            assert!(problem.detail.contains(expected), "{text}: {}", problem.detail);
        }
    }
}
