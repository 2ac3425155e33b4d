//! Filters after the names in them are resolved, and what they mean: [`Filter::matches`] is the
//! reference that every compiled form of a filter has to agree with.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::ast::{Comparison, FilterSide};

/// A boolean expression over one packet. Requirement E2.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// All packets or none.
    Always(bool),
    /// What the inner filter does not let pass.
    Not(Box<Filter>),
    /// Every one of them has to hold.
    All(Vec<Filter>),
    /// At least one of them has to hold.
    Any(Vec<Filter>),
    /// An address is in a set. False for a packet without IP addresses.
    Address {
        /// Which of the two addresses.
        side: FilterSide,
        /// The set.
        set: AddressSet,
    },
    /// A number is in a set. False for a packet that lacks the field.
    Number {
        /// Which number.
        field: NumberField,
        /// The set.
        set: NumberSet,
    },
    /// TCP flags: all bits of `set` are one and all bits of `clear` are zero. False for what is not
    /// TCP.
    TcpFlags {
        /// Bits of the header's flags octet that have to be one.
        set: u8,
        /// Bits that have to be zero.
        clear: u8,
    },
    /// An attribute that a network function gave to the packet. False if none of them gave it.
    Attribute {
        /// The instances whose attribute it may be, as indices of [`crate::Policy::nfs`]; one is
        /// enough.
        nfs: Arc<[usize]>,
        /// The attribute.
        name: String,
        /// What it has to be; `None`: present, and neither zero nor an empty text.
        test: Option<(Comparison, Scalar)>,
    },
}

/// A field of a packet that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NumberField {
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
    /// A number; truth is 1 and 0.
    Number(u64),
    /// A text.
    Text(String),
}

/// What a filter knows of a packet. `None`: the packet does not have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of `Filter`")]
pub struct Fields {
    pub src_ip: Option<IpAddr>,
    pub dst_ip: Option<IpAddr>,
    pub numbers: BTreeMap<NumberField, u64>,
    /// The flags octet of a TCP header.
    pub tcp_flags: Option<u8>,
    /// Attributes by the index of the instance that gave them, and name.
    pub attributes: BTreeMap<(usize, String), Scalar>,
}

/// A set of numbers: ranges that neither overlap nor touch, in rising order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberSet(Vec<(u64, u64)>);

/// A set of addresses of both families: ranges that do not overlap, in rising order, IPv4 first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet(Vec<(IpAddr, IpAddr)>);

impl Filter {
    /// Whether a packet passes.
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

    /// The filter for the answers to the packets that this one lets pass: source and destination
    /// change places.
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

impl NumberField {
    /// The largest value that the field can have.
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

impl Comparison {
    /// Whether the comparison holds. A number and a text are only ever unequal, and texts have no
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
    /// The set of all numbers in the ranges (first, last).
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

    /// The ranges (first, last) in rising order.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Whether the number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < number);
        self.0.get(at).is_some_and(|(first, _)| *first <= number)
    }
}

impl AddressSet {
    /// The set of all addresses in the ranges (first, last), each within one family.
    pub fn new(mut ranges: Vec<(IpAddr, IpAddr)>) -> Self {
        ranges.retain(|(first, last)| first <= last && first.is_ipv4() == last.is_ipv4());
        ranges.sort_unstable();
        let mut merged: Vec<(IpAddr, IpAddr)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                // IPv4 addresses come before all IPv6 ones: an overlap is within one family.
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// The ranges (first, last) in rising order.
    pub fn ranges(&self) -> &[(IpAddr, IpAddr)] {
        &self.0
    }

    /// Whether the address is in the set.
    pub fn contains(&self, address: IpAddr) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < address);
        self.0.get(at).is_some_and(|(first, _)| *first <= address)
    }
}
