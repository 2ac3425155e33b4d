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
    /// An attribute set on the packet by an NF or the program of an external node. False if none
    /// set it.
    Attribute {
        /// Instances that may have set the attribute, as indices in [`crate::Policy::nfs`], or
        /// after those, in [`crate::Policy::externals`]; any suffices.
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

/// The value of a packet's attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeValue<'a> {
    /// A number; 1 and 0 for true and false.
    Number(u64),
    /// A string.
    Text(&'a str),
}

impl AttributeValue<'_> {
    /// Returns true if it is neither 0 nor an empty string.
    fn is_set(self) -> bool {
        self != AttributeValue::Number(0) && self != AttributeValue::Text("")
    }
}

impl Scalar {
    fn value(&self) -> AttributeValue<'_> {
        match self {
            Self::Number(number) => AttributeValue::Number(*number),
            Self::Text(text) => AttributeValue::Text(text),
        }
    }
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

/// The fields of a packet that filters read.
pub trait FilterInput {
    /// Returns an address of an IP packet.
    fn address(&self, side: FilterSide) -> Option<IpAddr>;
    /// Returns a numeric field, if the packet has it.
    fn number(&self, field: FilterNumberField) -> Option<u64>;
    /// Returns the flags octet of a TCP header.
    fn tcp_flags(&self) -> Option<u8>;
    /// Returns the value of an attribute, if the NF has set it.
    fn attribute(&self, nf: usize, name: &str) -> Option<AttributeValue<'_>>;
}

impl FilterInput for Fields {
    fn address(&self, side: FilterSide) -> Option<IpAddr> {
        match side {
            FilterSide::Src => self.src_ip,
            FilterSide::Dst => self.dst_ip,
        }
    }

    fn number(&self, field: FilterNumberField) -> Option<u64> {
        self.numbers.get(&field).copied()
    }

    fn tcp_flags(&self) -> Option<u8> {
        self.tcp_flags
    }

    fn attribute(&self, nf: usize, name: &str) -> Option<AttributeValue<'_>> {
        self.attributes.get(&(nf, name.to_owned())).map(Scalar::value)
    }
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
        self.passes(packet)
    }

    /// Checks if a packet passes the filter, test by test.
    pub fn passes(&self, packet: &impl FilterInput) -> bool {
        match self {
            Self::Always(value) => *value,
            Self::Not(inner) => !inner.passes(packet),
            Self::All(parts) => parts.iter().all(|p| p.passes(packet)),
            Self::Any(parts) => parts.iter().any(|p| p.passes(packet)),
            Self::Address { side, set } => packet.address(*side).is_some_and(|a| set.contains(a)),
            Self::Number { field, set } => packet.number(*field).is_some_and(|n| set.contains(n)),
            Self::TcpFlags { set, clear } => {
                packet.tcp_flags().is_some_and(|f| f & set == *set && f & clear == 0)
            }
            Self::Attribute { nfs, name, test } => nfs.iter().any(|nf| {
                packet.attribute(*nf, name).is_some_and(|found| match test {
                    Some((compare, value)) => compare.holds(found, value.value()),
                    None => found.is_set(),
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
    /// All fields.
    pub const ALL: [FilterNumberField; 6] =
        [Self::SrcPort, Self::DstPort, Self::Proto, Self::Vlan, Self::Tenant, Self::Dscp];

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
    fn holds(self, left: AttributeValue<'_>, right: AttributeValue<'_>) -> bool {
        use AttributeValue::Number;
        match (self, left, right) {
            (Self::Eq, _, _) => left == right,
            (Self::Ne, _, _) => left != right,
            (Self::Lt, Number(a), Number(b)) => a < b,
            (Self::Le, Number(a), Number(b)) => a <= b,
            (Self::Gt, Number(a), Number(b)) => a > b,
            (Self::Ge, Number(a), Number(b)) => a >= b,
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

    /// Returns the numbers up to `max` that are not in the set.
    pub(crate) fn complement(&self, max: u64) -> Self {
        let mut free = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for &(first, last) in &self.0 {
            if let Some(next) = next.filter(|next| *next < first) {
                free.push((next, (first - 1).min(max)));
            }
            next = last.checked_add(1);
        }
        free.extend(next.map(|next| (next, max)));
        Self::new(free)
    }

    /// Returns the numbers that are in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self(intersection(&self.0, &other.0))
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

    /// Returns the addresses of both families that are not in the set.
    pub fn complement(&self) -> Self {
        let mut free = Vec::with_capacity(self.0.len() + 2);
        for [first, last] in [[[0; 4].into(), [255; 4].into()], [[0u16; 8].into(), [0xffff; 8].into()]] {
            let of_family = |range: &&(IpAddr, IpAddr)| range.0.is_ipv4() == IpAddr::is_ipv4(&first);
            let mut next = Some(first);
            for &(begin, end) in self.0.iter().filter(of_family) {
                if let Some(next) = next.filter(|next| *next < begin) {
                    free.extend(neighbour(begin, -1).map(|before| (next, before)));
                }
                next = neighbour(end, 1);
            }
            free.extend(next.map(|next| (next, last)));
        }
        Self::new(free)
    }

    /// Returns the addresses that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(intersection(&self.0, &other.0))
    }

    /// Checks if the set contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < address);
        self.0.get(at).is_some_and(|(first, _)| *first <= address)
    }
}

/// Returns the parts that two lists of ascending, disjoint ranges have in common.
fn intersection<T: Copy + Ord>(left: &[(T, T)], right: &[(T, T)]) -> Vec<(T, T)> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let mut common = Vec::new();
    while let (Some(&&(a, b)), Some(&&(c, d))) = (left.peek(), right.peek()) {
        let (first, last) = (a.max(c), b.min(d));
        if first <= last {
            common.push((first, last));
        }
        if b < d {
            left.next()
        } else {
            right.next()
        };
    }
    common
}

/// Returns the next or the previous address of the family, if there is one.
fn neighbour(address: IpAddr, step: i8) -> Option<IpAddr> {
    let forward = step > 0;
    match address {
        IpAddr::V4(a) => {
            let bits = a.to_bits();
            let bits = if forward { bits.checked_add(1) } else { bits.checked_sub(1) };
            bits.map(|bits| IpAddr::V4(bits.into()))
        }
        IpAddr::V6(a) => {
            let bits = a.to_bits();
            let bits = if forward { bits.checked_add(1) } else { bits.checked_sub(1) };
            bits.map(|bits| IpAddr::V6(bits.into()))
        }
    }
}
