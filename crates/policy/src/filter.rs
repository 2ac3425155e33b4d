//! Filters with all names resolved, and their meaning: [`Filter::matches`] is the reference for
//! every compiled form.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::ast::{FilterComparison, FilterSide};

/// A boolean expression over one packet (E2).
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// All packets or none.
    Always(bool),
    /// Negation.
    Not(Box<Filter>),
    /// Conjunction.
    All(Vec<Filter>),
    /// Disjunction.
    Any(Vec<Filter>),
    /// An address is in a set. False for packets without IP addresses.
    Address {
        /// Source or destination.
        side: FilterSide,
        /// The set.
        set: FilterAddressSet,
    },
    /// A number is in a set. False for packets without the field.
    Number {
        /// The field.
        field: FilterNumberField,
        /// The set.
        set: NumberSet,
    },
    /// TCP flags: all bits of `set` are 1 and all bits of `clear` are 0. False for packets other
    /// than TCP.
    TcpFlags {
        /// Bits of the header's flags octet that must be 1.
        set: u8,
        /// Bits that must be 0.
        clear: u8,
    },
    /// An attribute set on the packet by an NF. False if none set it.
    Attribute {
        /// Instances that may have set the attribute, as indices in [`crate::Policy::nfs`]; any
        /// suffices.
        nfs: Arc<[usize]>,
        /// The attribute.
        name: String,
        /// The comparison; `None` requires presence and neither 0 nor an empty string.
        test: Option<(FilterComparison, Scalar)>,
    },
}

/// A numeric field of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilterNumberField {
    /// Source port of TCP, UDP or SCTP.
    SrcPort,
    /// Destination port of TCP, UDP or SCTP.
    DstPort,
    /// IP protocol; for IPv6 the last next header.
    Proto,
    /// Outermost VLAN identifier.
    Vlan,
    /// Tenant number.
    Tenant,
    /// Differentiated services code point.
    Dscp,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A number; 1 and 0 for true and false.
    Number(u64),
    /// A string.
    Text(String),
}

/// A packet's fields as filters see them. `None` for absent ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of `Filter`")]
pub struct Fields {
    pub src_ip: Option<IpAddr>,
    pub dst_ip: Option<IpAddr>,
    pub numbers: BTreeMap<FilterNumberField, u64>,
    /// The flags octet of a TCP header.
    pub tcp_flags: Option<u8>,
    /// Attributes by name and the index of the instance that set them.
    pub attributes: BTreeMap<(usize, String), Scalar>,
}

/// A set of numbers: disjoint, non-adjacent ranges in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberSet(Vec<(u64, u64)>);

/// A set of addresses of both families: disjoint ranges in ascending order, IPv4 first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterAddressSet(Vec<(IpAddr, IpAddr)>);

impl Filter {
    /// Checks if a packet matches.
    pub fn matches(&self, packet: &Fields) -> bool {
        match self {
            Self::Always(value) => *value,
            Self::Not(inner) => !inner.matches(packet),
            Self::All(parts) => parts.iter().all(|p| p.matches(packet)),
            Self::Any(parts) => parts.iter().any(|p| p.matches(packet)),
            Self::Address { side: FilterSide::Src, set } => packet.src_ip.is_some_and(|a| set.contains(a)),
            Self::Address { side: FilterSide::Dst, set } => packet.dst_ip.is_some_and(|a| set.contains(a)),
            Self::Number { field, set } => packet.numbers.get(field).is_some_and(|n| set.contains(*n)),
            Self::TcpFlags { set, clear } => {
                packet.tcp_flags.is_some_and(|f| f & set == *set && f & clear == 0)
            }
            Self::Attribute { nfs, name, test } => nfs.iter().any(|nf| {
                packet.attributes.get(&(*nf, name.clone())).is_some_and(|found| match test {
                    Some((compare, value)) => compare.holds(found, value),
                    None => *found != Scalar::Number(0) && *found != Scalar::Text(String::new()),
                })
            }),
        }
    }

    /// Returns the filter for replies to matching packets: source and destination are swapped.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        let all = |parts: &[Self]| parts.iter().map(Self::mirrored).collect();
        match self {
            Self::Not(inner) => Self::Not(Box::new(inner.mirrored())),
            Self::All(parts) => Self::All(all(parts)),
            Self::Any(parts) => Self::Any(all(parts)),
            Self::Address { side, set } => Self::Address { side: side.mirrored(), set: set.clone() },
            Self::Number { field, set } => Self::Number { field: field.mirrored(), set: set.clone() },
            Self::Always(_) | Self::TcpFlags { .. } | Self::Attribute { .. } => self.clone(),
        }
    }
}

impl FilterNumberField {
    /// Returns the field's largest value.
    pub fn max(self) -> u64 {
        match self {
            Self::SrcPort | Self::DstPort => u16::MAX.into(),
            Self::Proto => u8::MAX.into(),
            Self::Vlan => 4095,
            Self::Tenant => u32::MAX.into(),
            Self::Dscp => 63,
        }
    }

    fn mirrored(self) -> Self {
        match self {
            Self::SrcPort => Self::DstPort,
            Self::DstPort => Self::SrcPort,
            other => other,
        }
    }
}

impl FilterComparison {
    /// Evaluates the comparison. A number and a string are always unequal, and strings have no
    /// order.
    fn holds(self, left: &Scalar, right: &Scalar) -> bool {
        match (self, left, right) {
            (Self::Eq, _, _) => left == right,
            (Self::Ne, _, _) => left != right,
            (Self::Lt, Scalar::Number(a), Scalar::Number(b)) => a < b,
            (Self::Le, Scalar::Number(a), Scalar::Number(b)) => a <= b,
            (Self::Gt, Scalar::Number(a), Scalar::Number(b)) => a > b,
            (Self::Ge, Scalar::Number(a), Scalar::Number(b)) => a >= b,
            _ => false,
        }
    }
}

impl NumberSet {
    /// Returns the union of the ranges (first, last).
    pub fn new(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Returns the ranges (first, last) in ascending order.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Checks if the set contains the number.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < number);
        self.0.get(at).is_some_and(|(first, _)| *first <= number)
    }
}

impl FilterAddressSet {
    /// Returns the union of the ranges (first, last), each within one family.
    pub fn new(mut ranges: Vec<(IpAddr, IpAddr)>) -> Self {
        ranges.retain(|(first, last)| first <= last && first.is_ipv4() == last.is_ipv4());
        ranges.sort_unstable();
        let mut merged: Vec<(IpAddr, IpAddr)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                // IPv4 addresses sort before all IPv6 ones: ranges overlap only within a family.
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Returns the ranges (first, last) in ascending order.
    pub fn ranges(&self) -> &[(IpAddr, IpAddr)] {
        &self.0
    }

    /// Checks if the set contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < address);
        self.0.get(at).is_some_and(|(first, _)| *first <= address)
    }
}
