//! External endpoints as numbered items of the port pool.
//!
//! Items are numbered densely by protocol class, address and port, except for ports that static
//! rules use. After them come items without a port; protocols without ports use those as names.

use nf::pool::PoolRange;
use packet::parse::protocol;

use super::net::PortRange;

/// Protocols with a port space of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PortClass {
    /// TCP; DCCP shares its ports.
    Tcp = 0,
    /// UDP; UDP-Lite shares its ports.
    Udp = 1,
    /// ICMP queries: identifiers.
    Icmp = 2,
    /// Protocols without rewritable ports: SCTP, GRE, ESP and so on.
    Other = 3,
}

/// Number of classes with ports.
pub const PORT_CLASSES: usize = 3;

/// Maximum number of concurrent flows of [`PortClass::Other`].
pub const OTHER_MAX: u32 = 65_536;

impl PortClass {
    /// Returns the class of an IP protocol.
    pub fn of(number: u8) -> PortClass {
        match number {
            protocol::TCP | protocol::DCCP => PortClass::Tcp,
            protocol::UDP | protocol::UDP_LITE => PortClass::Udp,
            protocol::ICMP | protocol::ICMPV6 => PortClass::Icmp,
            _ => PortClass::Other,
        }
    }

    /// Classes with ports.
    pub const WITH_PORTS: [PortClass; PORT_CLASSES] = [PortClass::Tcp, PortClass::Udp, PortClass::Icmp];
}

/// The external port of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalPort {
    pub class: PortClass,
    /// Number of the external address.
    pub address: usize,
    pub port: u16,
}

/// All external endpoints.
pub struct PortSpace {
    addresses: Vec<u32>,
    /// Sorted by class, address and port, and therefore by item.
    segments: Vec<PortSegment>,
    /// Index of the first segment of each class and address, followed by the number of segments.
    starts: Vec<usize>,
    ports: u32,
}

/// Consecutive ports with consecutive items.
#[derive(Clone, Copy, Debug)]
struct PortSegment {
    class: PortClass,
    address: usize,
    ports: PortRange,
    first_item: u32,
}

impl PortSpace {
    /// Builds the space of these addresses (sorted, without duplicates) and ports. `statics` lists,
    /// in ascending order, the ports of a class and address to leave out.
    pub fn new(
        addresses: Vec<u32>,
        ports: PortRange,
        statics: impl Fn(PortClass, u32) -> Vec<u16>,
    ) -> PortSpace {
        let mut space = PortSpace { addresses, segments: Vec::new(), starts: vec![0], ports: 0 };
        for class in PortClass::WITH_PORTS {
            for number in 0..space.addresses.len() {
                let mut first = u32::from(ports.first);
                for gap in statics(class, space.addresses[number]) {
                    if ports.contains(gap) {
                        space.add(class, number, first, u32::from(gap));
                        first = u32::from(gap) + 1;
                    }
                }
                space.add(class, number, first, u32::from(ports.last) + 1);
                space.starts.push(space.segments.len());
            }
        }
        space
    }

    /// Returns the number of items.
    pub fn size(&self) -> u32 {
        self.ports + if self.addresses.is_empty() { 0 } else { OTHER_MAX }
    }

    /// Returns the external addresses, sorted.
    pub fn addresses(&self) -> &[u32] {
        &self.addresses
    }

    /// Returns the number of an external address.
    pub fn number_of(&self, address: u32) -> Option<usize> {
        self.addresses.binary_search(&address).ok()
    }

    /// Returns the item of this port, if the pool has it.
    pub fn item_at(&self, place: ExternalPort) -> Option<u32> {
        let segments = self.segments_of(place.class, place.address);
        let segment = &segments[segments.partition_point(|s| s.ports.last < place.port)..].first()?;
        segment.ports.contains(place.port).then(|| segment.item(place.port))
    }

    /// Returns the port of an item; none for an item without a port.
    pub fn place_of(&self, item: u32) -> Option<ExternalPort> {
        if item >= self.ports {
            return None;
        }
        let segment = &self.segments[self.segments.partition_point(|s| s.first_item <= item) - 1];
        let port = segment.ports.first + (item - segment.first_item) as u16;
        Some(ExternalPort { class: segment.class, address: segment.address, port })
    }

    /// Returns the items to search for a free port of `class` and `address` within `within`. The
    /// search begins at `wanted`, wraps around, and advances by `step` (2 keeps the parity of
    /// `wanted`).
    pub fn choices(
        &self,
        class: PortClass,
        address: usize,
        within: PortRange,
        wanted: u16,
        step: u32,
    ) -> impl Iterator<Item = PoolRange> {
        let segments = self.segments_of(class, address);
        let start = segments.partition_point(|s| s.ports.last < wanted);
        let (behind, from_there) = segments.split_at(start);
        from_there.iter().chain(behind).filter_map(move |segment| {
            let ports = segment.ports.overlap(within)?;
            let mut from = if ports.contains(wanted) { wanted } else { ports.first };
            if step == 2 && (from ^ wanted) & 1 == 1 {
                from = from.checked_add(1).filter(|from| *from <= ports.last)?;
            }
            let (first, from) = (segment.item(ports.first), segment.item(from));
            Some(PoolRange { first, count: ports.count(), from, step })
        })
    }

    /// Returns the items to search for one without a port.
    pub fn other_choice(&self, random: u64) -> PoolRange {
        let from = self.ports + (random % u64::from(OTHER_MAX)) as u32;
        PoolRange { first: self.ports, count: OTHER_MAX, from, step: 1 }
    }

    /// Adds a segment of the ports from `first` up to, but excluding, `end`; does nothing if empty.
    fn add(&mut self, class: PortClass, address: usize, first: u32, end: u32) {
        if first < end {
            let ports = PortRange { first: first as u16, last: (end - 1) as u16 };
            self.segments.push(PortSegment { class, address, ports, first_item: self.ports });
            self.ports += ports.count();
        }
    }

    fn segments_of(&self, class: PortClass, address: usize) -> &[PortSegment] {
        let at = class as usize * self.addresses.len() + address;
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(&start), Some(&end)) if address < self.addresses.len() => &self.segments[start..end],
            _ => &[],
        }
    }
}

impl PortSegment {
    fn item(&self, port: u16) -> u32 {
        self.first_item + u32::from(port - self.ports.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn space() -> PortSpace {
        let ports = PortRange { first: 1000, last: 1099 };
        PortSpace::new(vec![10, 20], ports, |class, address| match (class, address) {
            (PortClass::Tcp, 20) => [5, 1000].into_iter().chain(1050..1060).collect(),
            _ => Vec::new(),
        })
    }

    #[test]
    fn items_and_external_ports_correspond() {
        let space = space();
        assert_eq!(space.size(), 6 * 100 - 11 + OTHER_MAX);
        for item in 0..space.size() - OTHER_MAX {
            let place = space.place_of(item).unwrap();
            assert_eq!(space.item_at(place), Some(item));
        }
        assert_eq!(space.place_of(space.size() - OTHER_MAX), None);
        assert_eq!(space.item_at(ExternalPort { class: PortClass::Tcp, address: 1, port: 1055 }), None);
        assert_eq!(space.item_at(ExternalPort { class: PortClass::Tcp, address: 1, port: 1100 }), None);
        assert_eq!(space.item_at(ExternalPort { class: PortClass::Other, address: 1, port: 1001 }), None);
        assert_eq!(space.item_at(ExternalPort { class: PortClass::Icmp, address: 2, port: 1001 }), None);
    }

    proptest! {
        /// Choices contain all wanted ports of the wanted parity, and no others.
        #[test]
        fn choices_cover_the_range(first in 990u16..1100, len in 0u16..60, at in 0u16..60, step in 1u32..3) {
            let space = space();
            let within = PortRange { first, last: first + len };
            let wanted = first + at.min(len);
            let mut seen = std::collections::BTreeSet::new();
            for choice in space.choices(PortClass::Tcp, 1, within, wanted, step) {
                prop_assert!(choice.from >= choice.first && choice.from < choice.first + choice.count);
                let residue = (choice.from - choice.first) % choice.step;
                for item in (choice.first + residue..choice.first + choice.count).step_by(step as usize) {
                    let place = space.place_of(item).unwrap();
                    prop_assert_eq!((place.class, place.address), (PortClass::Tcp, 1));
                    prop_assert!(seen.insert(place.port));
                }
            }
            let expected: std::collections::BTreeSet<u16> = (within.first..=within.last)
                .filter(|p| (1001..1100).contains(p) && !(1050..1060).contains(p))
                .filter(|p| step == 1 || (p ^ wanted) & 1 == 0)
                .collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
