//! Searches for a packet that meets conditions: a witness.
//!
//! Conditions are met one by one; at an alternative, each part is tried in turn. The values that
//! remain for each variable form a box, which shrinks with every condition.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::formula::{FilterField, Formula, Values, Variable};
use crate::ast::FilterSide;
use crate::filter::{Fields, FilterAddressSet, FilterNumberField, NumberSet};

/// Limit on the steps of all searches of an analysis.
pub(super) const STEPS_MAX: u64 = 10_000_000;

/// Limit on alternatives within each other.
const DEPTH_MAX: usize = 1_000;

/// The outcome of a search.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Search {
    /// A packet meets the conditions. Fields have the values before any NF wrote them.
    Found(Box<Fields>),
    /// No packet does.
    Impossible,
    /// Too many steps.
    GaveUp,
}

/// Searches, with a common limit on steps.
pub(super) struct Solver {
    steps: u64,
}

/// Values left for a variable; `None`: it is absent.
type Space = BTreeMap<Variable, Option<Values>>;

/// A kind of packet: fields that it lacks, and limits on the fields that it has.
#[derive(Clone, Copy)]
struct PacketKind {
    /// `None`: no IP packet.
    is_v4: Option<bool>,
    /// Its protocols, if it is an IP packet.
    protocols: &'static [(u64, u64)],
    has_ports: bool,
    has_flags: bool,
}

const KINDS: [PacketKind; 7] = {
    const fn kind(is_v4: bool, protocols: &'static [(u64, u64)], ports: bool, flags: bool) -> PacketKind {
        PacketKind { is_v4: Some(is_v4), protocols, has_ports: ports, has_flags: flags }
    }
    const TCP: &[(u64, u64)] = &[(6, 6)];
    const PORTS: &[(u64, u64)] = &[(17, 17), (132, 132)];
    const OTHERS: &[(u64, u64)] = &[(0, 5), (7, 16), (18, 131), (133, 255)];
    [
        kind(true, TCP, true, true),
        kind(true, PORTS, true, false),
        kind(true, OTHERS, false, false),
        kind(false, TCP, true, true),
        kind(false, PORTS, true, false),
        kind(false, OTHERS, false, false),
        PacketKind { is_v4: None, protocols: &[], has_ports: false, has_flags: false },
    ]
};

impl Solver {
    pub fn new() -> Solver {
        Solver { steps: 0 }
    }

    /// Searches for a packet that meets all conditions.
    pub fn search(&mut self, conditions: &[&Formula]) -> Search {
        for kind in &KINDS {
            let mut pending = conditions.to_vec();
            pending.reverse();
            match self.meet(kind, Space::new(), pending, Vec::new(), 0) {
                Some(space) => return Search::Found(Box::new(witness(kind, &space))),
                None if self.steps >= STEPS_MAX => return Search::GaveUp,
                None => {}
            }
        }
        Search::Impossible
    }

    /// Meets the pending conditions, the last one first, then the alternatives. Returns the space
    /// that is left.
    fn meet<'f>(
        &mut self,
        kind: &PacketKind,
        mut space: Space,
        mut pending: Vec<&'f Formula>,
        mut alternatives: Vec<&'f [Formula]>,
        depth: usize,
    ) -> Option<Space> {
        while let Some(condition) = pending.pop() {
            self.steps += 1;
            if self.steps >= STEPS_MAX || depth >= DEPTH_MAX {
                self.steps = STEPS_MAX;
                return None;
            }
            match condition {
                Formula::Constant(true) => {}
                Formula::Constant(false) => return None,
                Formula::All(parts) => pending.extend(parts),
                Formula::Any(parts) => {
                    // Alternatives wait until everything else has narrowed the space.
                    let mut possible = parts.iter().filter(|part| kind.allows(part));
                    match (possible.next(), possible.next()) {
                        (None, _) => return None,
                        (Some(only), None) => pending.push(only),
                        _ => alternatives.push(parts),
                    }
                }
                Formula::Absent(variable) => {
                    if !kind.may_lack(variable) || matches!(space.get(variable), Some(Some(_))) {
                        return None;
                    }
                    space.insert(variable.clone(), None);
                }
                Formula::In(variable, values) => {
                    let left = match space.get(variable) {
                        Some(None) => return None,
                        Some(Some(left)) => left.intersection(values)?,
                        None => kind.narrow(variable, values)?,
                    };
                    space.insert(variable.clone(), Some(left));
                }
            }
        }
        let Some(parts) = alternatives.pop() else { return Some(space) };
        parts
            .iter()
            .find_map(|part| self.meet(kind, space.clone(), vec![part], alternatives.clone(), depth + 1))
    }
}

impl PacketKind {
    fn has(&self, field: FilterField) -> bool {
        match field {
            FilterField::Address(_) => self.is_v4.is_some(),
            FilterField::TcpFlags => self.has_flags,
            FilterField::Number(FilterNumberField::SrcPort | FilterNumberField::DstPort) => self.has_ports,
            FilterField::Number(FilterNumberField::Proto | FilterNumberField::Dscp) => self.is_v4.is_some(),
            FilterField::Number(FilterNumberField::Vlan | FilterNumberField::Tenant) => true,
        }
    }

    /// Returns whether some packets of the kind do not have the variable.
    fn may_lack(&self, variable: &Variable) -> bool {
        match variable {
            Variable::Attribute(..)
            | Variable::Field(FilterField::Number(FilterNumberField::Vlan | FilterNumberField::Tenant), _) => {
                true
            }
            Variable::Field(field, _) => !self.has(*field),
        }
    }

    /// Returns false for a condition that no packet of the kind meets.
    fn allows(&self, condition: &Formula) -> bool {
        match condition {
            Formula::Constant(value) => *value,
            Formula::Absent(variable) => self.may_lack(variable),
            Formula::In(Variable::Field(field, _), _) => self.has(*field),
            _ => true,
        }
    }

    /// Returns the values that packets of the kind can have, among these.
    fn narrow(&self, variable: &Variable, values: &Values) -> Option<Values> {
        let Variable::Field(field, _) = variable else { return values.intersection(values) };
        if !self.has(*field) {
            return None;
        }
        match field {
            FilterField::Address(_) => values.intersection(&Values::Addresses(family(self.is_v4?))),
            FilterField::Number(FilterNumberField::Proto) => {
                values.intersection(&Values::Numbers(NumberSet::new(self.protocols.to_vec())))
            }
            FilterField::Number(number) => {
                values.intersection(&Values::Numbers(NumberSet::new(vec![(0, (*number).max())])))
            }
            FilterField::TcpFlags => values.intersection(values),
        }
    }
}

fn family(is_v4: bool) -> FilterAddressSet {
    FilterAddressSet::new(vec![match is_v4 {
        true => ([0; 4].into(), [255; 4].into()),
        false => ([0u16; 8].into(), [0xffff; 8].into()),
    }])
}

/// Returns a packet of the space, with usual values where all are possible.
fn witness(kind: &PacketKind, space: &Space) -> Fields {
    let mut packet = Fields::default();
    let left = |field| space.get(&Variable::Field(field, 0));
    if let Some(is_v4) = kind.is_v4 {
        let address = |side, v4: [u8; 4], v6: Ipv6Addr| match left(FilterField::Address(side)) {
            Some(Some(Values::Addresses(set))) => {
                let usual = if is_v4 { IpAddr::V4(Ipv4Addr::from(v4)) } else { IpAddr::V6(v6) };
                let first = set.ranges().first().map_or(usual, |range| range.0);
                if set.contains(usual) { usual } else { host_in(first, set) }
            }
            _ if is_v4 => IpAddr::V4(Ipv4Addr::from(v4)),
            _ => IpAddr::V6(v6),
        };
        packet.src_ip =
            Some(address(FilterSide::Src, [10, 0, 0, 1], Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)));
        packet.dst_ip =
            Some(address(FilterSide::Dst, [192, 0, 2, 1], Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1)));
    }
    let usual = |field| match field {
        FilterNumberField::SrcPort => 40_000,
        FilterNumberField::DstPort => 443,
        FilterNumberField::Proto => {
            kind.protocols.first().map_or(0, |range| if range.0 == 0 { 1 } else { range.0 })
        }
        FilterNumberField::Vlan | FilterNumberField::Tenant | FilterNumberField::Dscp => 0,
    };
    for field in FilterNumberField::ALL {
        let is_optional = matches!(field, FilterNumberField::Vlan | FilterNumberField::Tenant);
        let value = match left(FilterField::Number(field)) {
            Some(None) => continue,
            Some(Some(Values::Numbers(set))) if set.contains(usual(field)) && !is_optional => usual(field),
            Some(Some(Values::Numbers(set))) => set.ranges().first().map_or(0, |range| range.0),
            _ if is_optional || !kind.has(FilterField::Number(field)) => continue,
            _ => usual(field),
        };
        packet.numbers.insert(field, value);
    }
    if kind.has_flags {
        packet.tcp_flags = Some(match left(FilterField::TcpFlags) {
            Some(Some(Values::Flags(set, clear))) => set | (0x10 & !clear),
            _ => 0x10,
        });
    }
    for (variable, values) in space {
        if let (Variable::Attribute(nf, name), Some(Values::Scalars(set))) = (variable, values) {
            packet.attributes.insert((*nf, name.clone()), set.pick());
        }
    }
    packet
}

/// Returns the address after the first one of a range, which is often a network's own, if the set
/// has it.
fn host_in(first: IpAddr, set: &FilterAddressSet) -> IpAddr {
    let next = match first {
        IpAddr::V4(address) => address.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(address) => address.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    };
    next.filter(|next| set.contains(*next)).unwrap_or(first)
}
