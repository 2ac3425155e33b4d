//! Sets of addresses and ports in rule headers and variables.
//!
//! A group is `any`, an element, `!` before a group, or a list `[...]` of groups. A list is the
//! union of its plain elements (or everything, if all are negated) minus its negated elements. So
//! `[10.0.0.0/8,!10.1.0.0/16]` is a difference, and `![a,b]` is the complement of both. The order
//! does not matter.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::RuleError;
use crate::interval::Intervals;
use crate::text::{ParseResult, Piece};

/// Maximum nesting of lists and variables.
pub const GROUP_DEPTH_MAX: usize = 16;
/// Maximum ranges of a group.
pub const GROUP_RANGES_MAX: usize = 65_536;

/// A set of IPv4 and IPv6 addresses, resolved: equal sets are equal values, however written.
///
/// In text: `any`, `192.0.2.1`, `192.0.2.0/24`, `192.0.2.1-192.0.2.9`, the same for IPv6, `$NAME`,
/// `!` and lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddressSet {
    v4: Intervals<u32>,
    v6: Intervals<u128>,
}

impl AddressSet {
    /// Returns the set of all addresses.
    pub fn any() -> Self {
        Self { v4: Intervals::all(), v6: Intervals::all() }
    }

    /// Returns whether the set contains every address.
    pub fn is_any(&self) -> bool {
        self.v4.is_all() && self.v6.is_all()
    }

    /// Returns whether the set contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.contains(address.into()),
            IpAddr::V6(address) => self.v6.contains(address.into()),
        }
    }

    /// Returns the inclusive ranges of IPv4 addresses, sorted, neither overlapping nor adjacent.
    pub fn v4(&self) -> impl ExactSizeIterator<Item = (Ipv4Addr, Ipv4Addr)> {
        self.v4.ranges().iter().map(|(low, high)| ((*low).into(), (*high).into()))
    }

    /// Returns the inclusive ranges of IPv6 addresses, sorted, neither overlapping nor adjacent.
    pub fn v6(&self) -> impl ExactSizeIterator<Item = (Ipv6Addr, Ipv6Addr)> {
        self.v6.ranges().iter().map(|(low, high)| ((*low).into(), (*high).into()))
    }
}

/// A set of ports, resolved: equal sets are equal values.
///
/// In text: `any`, `80`, `1024:2048`, `1024:` (and above), `:1023` (and below), `$NAME`, `!` and
/// lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortSet(Intervals<u16>);

impl PortSet {
    /// Returns the set of all ports.
    pub fn any() -> Self {
        Self(Intervals::all())
    }

    /// Returns whether the set contains every port.
    pub fn is_any(&self) -> bool {
        self.0.is_all()
    }

    /// Returns whether the set contains the port.
    pub fn contains(&self, port: u16) -> bool {
        self.0.contains(port)
    }

    /// Returns the inclusive ranges, sorted, neither overlapping nor adjacent.
    pub fn ranges(&self) -> &[(u16, u16)] {
        self.0.ranges()
    }
}

/// A set that rules can name: [`AddressSet`] or [`PortSet`].
pub(crate) trait Group: Clone {
    /// The kind in error messages.
    const KIND: &'static str;

    fn any() -> Self;
    fn is_empty(&self) -> bool;
    fn union(groups: Vec<Self>) -> Self;
    fn minus(&self, other: &Self) -> Self;
    fn size(&self) -> usize;
    /// Parses one element: not a list, a negation or a variable.
    fn element(piece: Piece<'_>) -> ParseResult<Self>;
}

impl Group for AddressSet {
    const KIND: &'static str = "a group of addresses";

    fn any() -> Self {
        AddressSet::any()
    }

    fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    fn union(groups: Vec<Self>) -> Self {
        let (v4, v6): (Vec<_>, Vec<_>) = groups.into_iter().map(|group| (group.v4, group.v6)).unzip();
        Self { v4: Intervals::union(v4), v6: Intervals::union(v6) }
    }

    fn minus(&self, other: &Self) -> Self {
        Self { v4: self.v4.minus(&other.v4), v6: self.v6.minus(&other.v6) }
    }

    fn size(&self) -> usize {
        self.v4.ranges().len() + self.v6.ranges().len()
    }

    fn element(piece: Piece<'_>) -> ParseResult<Self> {
        const EXPECTED: &str = "an address, a network such as `192.0.2.0/24`, a range of addresses, or `any`";
        if let Ok(address) = piece.text.parse() {
            return Ok(span(address, address));
        }
        if let Some((network, length)) = piece.cut("/") {
            let network: IpAddr = network.trim().text.parse().map_err(|_| piece.wrong(EXPECTED))?;
            let bits = if network.is_ipv4() { 32 } else { 128 };
            return Ok(prefix(network, length.trim().number(0..=bits)?));
        }
        if let Some((low, high)) = piece.cut("-")
            && let (Ok(low), Ok(high)) = (low.trim().text.parse(), high.trim().text.parse())
        {
            let range = span(low, high);
            return match range.is_empty() {
                true => Err(piece.wrong("a range from a lower to a higher address of one family")),
                false => Ok(range),
            };
        }
        Err(piece.wrong(EXPECTED))
    }
}

impl Group for PortSet {
    const KIND: &'static str = "a group of ports";

    fn any() -> Self {
        PortSet::any()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn union(groups: Vec<Self>) -> Self {
        Self(Intervals::union(groups.into_iter().map(|group| group.0)))
    }

    fn minus(&self, other: &Self) -> Self {
        Self(self.0.minus(&other.0))
    }

    fn size(&self) -> usize {
        self.0.ranges().len()
    }

    fn element(piece: Piece<'_>) -> ParseResult<Self> {
        const ALL: std::ops::RangeInclusive<u16> = 0..=u16::MAX;
        let Some((low, high)) = piece.cut(":") else {
            let port = piece.number(ALL).map_err(|_| {
                piece.wrong("a port, a range such as `1024:2048`, `1024:` or `:1023`, or `any`")
            })?;
            return Ok(Self(Intervals::range(port, port)));
        };
        let (low, high) = (low.trim(), high.trim());
        if low.is_empty() && high.is_empty() {
            return Err(piece.wrong("a range of ports with at least one end"));
        }
        let low = if low.is_empty() { 0 } else { low.number(ALL)? };
        let high = if high.is_empty() { u16::MAX } else { high.number(ALL)? };
        match low <= high {
            true => Ok(Self(Intervals::range(low, high))),
            false => Err(piece.wrong("a range from a lower to a higher port")),
        }
    }
}

/// Parses a group. `find` resolves a `$NAME`; a group that is just a variable shares its value.
pub(crate) fn read<G: Group>(
    piece: Piece<'_>,
    find: &mut dyn FnMut(Piece<'_>) -> ParseResult<Arc<G>>,
) -> ParseResult<Arc<G>> {
    let group = nested(piece, GROUP_DEPTH_MAX, find)?;
    match group.is_empty() {
        true => Err(piece.error(RuleError::NeverMatches { why: format!("`{}` is empty", piece.text) })),
        false => Ok(group),
    }
}

fn nested<G: Group>(
    piece: Piece<'_>,
    depth: usize,
    find: &mut dyn FnMut(Piece<'_>) -> ParseResult<Arc<G>>,
) -> ParseResult<Arc<G>> {
    let piece = piece.trim();
    if depth == 0 {
        return Err(piece.error(RuleError::TooMany { what: "nested groups", limit: GROUP_DEPTH_MAX }));
    }
    if let (true, rest) = piece.negation() {
        return Ok(Arc::new(G::any().minus(&*nested(rest, depth - 1, find)?)));
    }
    if let Some(name) = piece.strip("$") {
        return find(name);
    }
    if let Some(rest) = piece.strip("[") {
        let Some(inner) = rest.text.strip_suffix(']') else {
            return Err(piece.error(RuleError::Malformed { what: "a `[` without its `]`" }));
        };
        return list(rest.part(0, inner.len()), depth - 1, find);
    }
    match piece.text.eq_ignore_ascii_case("any") {
        true => Ok(Arc::new(G::any())),
        false => G::element(piece).map(Arc::new),
    }
}

fn list<G: Group>(
    piece: Piece<'_>,
    depth: usize,
    find: &mut dyn FnMut(Piece<'_>) -> ParseResult<Arc<G>>,
) -> ParseResult<Arc<G>> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for element in elements(piece)? {
        let (negated, rest) = element.negation();
        let group = nested(rest, depth, find)?;
        if negated { &mut without } else { &mut with }.push((*group).clone());
    }
    let with = if with.is_empty() { G::any() } else { G::union(with) };
    let group = if without.is_empty() { with } else { with.minus(&G::union(without)) };
    match group.size() > GROUP_RANGES_MAX {
        true => Err(piece.error(RuleError::TooMany { what: "ranges in a group", limit: GROUP_RANGES_MAX })),
        false => Ok(Arc::new(group)),
    }
}

/// Splits a list at the commas outside inner lists.
fn elements(piece: Piece<'_>) -> ParseResult<Vec<Piece<'_>>> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0usize);
    for (at, byte) in piece.text.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' if depth == 0 => {
                return Err(piece.from(at).error(RuleError::Malformed { what: "a `]` without its `[`" }));
            }
            b']' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(piece.part(from, at).trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(piece.from(from).trim());
    Ok(parts)
}

fn span(low: IpAddr, high: IpAddr) -> AddressSet {
    let mut addresses = AddressSet { v4: Intervals::default(), v6: Intervals::default() };
    match (low, high) {
        (IpAddr::V4(low), IpAddr::V4(high)) => addresses.v4 = Intervals::range(low.into(), high.into()),
        (IpAddr::V6(low), IpAddr::V6(high)) => addresses.v6 = Intervals::range(low.into(), high.into()),
        _ => {}
    }
    addresses
}

fn prefix(network: IpAddr, length: u32) -> AddressSet {
    match network {
        IpAddr::V4(network) => {
            let host = u32::MAX.checked_shr(length).unwrap_or(0);
            let low = u32::from(network) & !host;
            span(Ipv4Addr::from(low).into(), Ipv4Addr::from(low | host).into())
        }
        IpAddr::V6(network) => {
            let host = u128::MAX.checked_shr(length).unwrap_or(0);
            let low = u128::from(network) & !host;
            span(Ipv6Addr::from(low).into(), Ipv6Addr::from(low | host).into())
        }
    }
}

/// Prints the shortest form: `any`, an element, a list, or `!` and one of those.
impl fmt::Display for AddressSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str("any");
        }
        let not = AddressSet::any().minus(self);
        let (sign, set) = if not.size() < self.size() { ("!", &not) } else { ("", self) };
        let v4 = set.v4().map(|(low, high)| {
            let host = u32::from(low) ^ u32::from(high);
            show(low, high, (u32::from(low) & host == 0).then(|| length(host.into(), 32)).flatten())
        });
        let v6 = set.v6().map(|(low, high)| {
            let host = u128::from(low) ^ u128::from(high);
            show(low, high, (u128::from(low) & host == 0).then(|| length(host, 128)).flatten())
        });
        write!(f, "{sign}{}", bracketed(v4.chain(v6).collect()))
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str("any");
        }
        let not = PortSet::any().minus(self);
        let (sign, set) = if not.size() < self.size() { ("!", &not) } else { ("", self) };
        let parts = set.ranges().iter().map(|(low, high)| match (*low, *high) {
            (low, high) if low == high => low.to_string(),
            (low, u16::MAX) => format!("{low}:"),
            (low, high) => format!("{low}:{high}"),
        });
        write!(f, "{sign}{}", bracketed(parts.collect()))
    }
}

/// Returns the length of a prefix with these host bits, if they are a run from the lowest bit.
fn length(host: u128, bits: u32) -> Option<u32> {
    (host & host.wrapping_add(1) == 0).then(|| bits - host.count_ones())
}

fn show<A: fmt::Display + PartialEq>(low: A, high: A, length: Option<u32>) -> String {
    match length {
        _ if low == high => low.to_string(),
        Some(length) => format!("{low}/{length}"),
        None => format!("{low}-{high}"),
    }
}

fn bracketed(parts: Vec<String>) -> String {
    match &parts[..] {
        [one] => one.clone(),
        _ => format!("[{}]", parts.join(",")),
    }
}
