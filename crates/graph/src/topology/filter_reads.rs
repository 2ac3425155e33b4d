//! The fields that filters read.

use policy::{Filter, FilterNumberField};

/// The fields that filters read and that may differ between packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterReads {
    /// TCP flags.
    pub tcp_flags: bool,
    /// The DSCP.
    pub dscp: bool,
    /// VLAN identifiers.
    pub vlan: bool,
    /// Attributes.
    pub attributes: bool,
}

impl FilterReads {
    /// Adds the fields that a filter reads.
    pub(super) fn add(&mut self, filter: &Filter) {
        match filter {
            Filter::Always(_) | Filter::Address { .. } => {}
            Filter::Not(inner) => self.add(inner),
            Filter::All(parts) | Filter::Any(parts) => parts.iter().for_each(|part| self.add(part)),
            Filter::Number { field: FilterNumberField::Dscp, .. } => self.dscp = true,
            Filter::Number { field: FilterNumberField::Vlan, .. } => self.vlan = true,
            Filter::Number { .. } => {}
            Filter::TcpFlags { .. } => self.tcp_flags = true,
            Filter::Attribute { .. } => self.attributes = true,
        }
    }

    /// Returns the fields of both.
    pub(super) fn or(self, other: FilterReads) -> FilterReads {
        FilterReads {
            tcp_flags: self.tcp_flags || other.tcp_flags,
            dscp: self.dscp || other.dscp,
            vlan: self.vlan || other.vlan,
            attributes: self.attributes || other.attributes,
        }
    }

    /// Returns true if any is read.
    pub fn is_any(self) -> bool {
        self != FilterReads::default()
    }
}

/// Returns true if a filter reads attributes and nothing else.
pub(super) fn reads_attributes_only(filter: &Filter) -> bool {
    match filter {
        Filter::Always(_) | Filter::Attribute { .. } => true,
        Filter::Not(inner) => reads_attributes_only(inner),
        Filter::All(parts) | Filter::Any(parts) => parts.iter().all(reads_attributes_only),
        Filter::Address { .. } | Filter::Number { .. } | Filter::TcpFlags { .. } => false,
    }
}
