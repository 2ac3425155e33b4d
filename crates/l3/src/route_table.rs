//! The next hops of a port, by the longest prefix of the destination.

use std::net::IpAddr;

use packet::Addr;

use crate::interface_address::InterfaceAddress;

/// Limit on the static routes of a port.
pub const ROUTES_MAX: usize = 4_096;

/// A static route of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticRoute {
    to: Block,
    next_hop: Addr,
}

impl StaticRoute {
    /// Returns a route to the first `length` bits of an address; `None` if the address is shorter.
    pub fn new(to: IpAddr, length: u8, next_hop: IpAddr) -> Option<StaticRoute> {
        let bits = if to.is_ipv4() { 32 } else { 128 };
        let to = (length <= bits).then(|| Block::of(to.into(), length + (128 - bits)))?;
        Some(StaticRoute { to, next_hop: next_hop.into() })
    }

    /// Returns the destinations: their first address, and the prefix length of its IP version.
    pub fn destination(&self) -> (IpAddr, u8) {
        let first = Addr::from_u128(self.to.first);
        let is_v4 = self.next_hop.is_v4();
        (first.ip(), if is_v4 { self.to.length - 96 } else { self.to.length })
    }

    /// Returns the next hop.
    pub fn next_hop(&self) -> Addr {
        self.next_hop
    }

    /// Checks for an address that the route leads to.
    pub fn contains(&self, address: Addr) -> bool {
        self.to.contains(address.to_u128()) && address.is_v4() == self.next_hop.is_v4()
    }
}

/// The place of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop {
    /// The destination itself is on the link.
    Destination,
    /// It is reached through this neighbour.
    Neighbour(Addr),
}

/// All addresses in ranges with the same next hop.
#[derive(Debug)]
pub(crate) struct RouteTable {
    /// The first address of each range, ascending from 0, and the next hop, if there is one.
    ranges: Vec<(u128, Option<NextHop>)>,
}

impl RouteTable {
    /// Makes the table of these networks, static routes and gateways. Of equal prefixes, the
    /// network counts, then the route.
    pub fn new<'a>(
        networks: impl Iterator<Item = &'a InterfaceAddress> + Clone,
        routes: &[StaticRoute],
        gateways: &[IpAddr],
    ) -> RouteTable {
        let hosts = networks.clone().flat_map(|network| network.broadcasts());
        let broadcasts = hosts.map(|address| (Block::of(address, 128), None));
        let on_link = networks
            .map(|network| (Block::of(network.address, network.prefix_len()), Some(NextHop::Destination)));
        let routed = routes.iter().map(|route| (route.to, Some(NextHop::Neighbour(route.next_hop))));
        let beyond = gateways.iter().map(|&gateway| {
            let everything = if gateway.is_ipv4() { IPV4 } else { ALL };
            (everything, Some(NextHop::Neighbour(gateway.into())))
        });
        let nowhere = [(IPV4, None), (ALL, None)];
        RouteTable::of(broadcasts.chain(on_link).chain(routed).chain(beyond).chain(nowhere).collect())
    }

    /// Divides all addresses by nested blocks. Of equal ones, the first counts.
    fn of(mut blocks: Vec<(Block, Option<NextHop>)>) -> RouteTable {
        blocks.sort_by_key(|(block, _)| *block);
        blocks.dedup_by_key(|(block, _)| *block);
        let mut ranges: Vec<(u128, Option<NextHop>)> = Vec::with_capacity(2 * blocks.len());
        let mut add = |first, hop| match ranges.last_mut() {
            Some(last) if last.0 == first => last.1 = hop,
            _ => ranges.push((first, hop)),
        };
        // The blocks around the current one, the innermost last.
        let mut around: Vec<(Block, Option<NextHop>)> = Vec::new();
        for &(block, hop) in &blocks {
            while let Some((ended, _)) = around.pop_if(|(outer, _)| !outer.contains(block.first)) {
                if let Some((_, outer_hop)) = around.last() {
                    add(ended.last() + 1, *outer_hop);
                }
            }
            add(block.first, hop);
            around.push((block, hop));
        }
        while let Some((ended, _)) = around.pop() {
            if let Some(((_, outer_hop), next)) = around.last().zip(ended.last().checked_add(1)) {
                add(next, *outer_hop);
            }
        }
        RouteTable { ranges }
    }

    /// Returns the next hop to a destination.
    pub fn find(&self, destination: Addr) -> Option<NextHop> {
        let number = destination.to_u128();
        let after = self.ranges.partition_point(|&(first, _)| first <= number);
        self.ranges[..after].last()?.1
    }
}

/// The addresses that share their first bits. An order by first address, then by length, has those
/// around a block before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    first: u128,
    length: u8,
}

/// All addresses.
const ALL: Block = Block { first: 0, length: 0 };

/// All IPv4 addresses.
const IPV4: Block = Block { first: 0xffff_0000_0000, length: 96 };

impl Block {
    /// Returns the block of an address with this length out of 128 bits.
    fn of(address: Addr, length: u8) -> Block {
        let block = Block { first: address.to_u128(), length };
        Block { first: block.first & !block.host_mask(), length }
    }

    fn host_mask(self) -> u128 {
        u128::MAX.checked_shr(self.length.into()).unwrap_or(0)
    }

    fn last(self) -> u128 {
        self.first | self.host_mask()
    }

    fn contains(self, number: u128) -> bool {
        (self.first..=self.last()).contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addr(text: &str) -> Addr {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn the_longest_prefix_decides() {
        let networks = ["10.2.0.1/24", "fd02::1/64"].map(|text| text.parse::<InterfaceAddress>().unwrap());
        let route = |to: &str, length, hop: &str| {
            StaticRoute::new(to.parse().unwrap(), length, hop.parse().unwrap()).unwrap()
        };
        let routes = [
            route("10.0.0.0", 8, "10.2.0.8"),
            route("10.9.0.0", 16, "10.2.0.16"),
            route("10.2.0.77", 32, "10.2.0.32"),
            route("2001:db8::", 32, "fe80::1"),
        ];
        let table = RouteTable::new(networks.iter(), &routes, &["10.2.0.254".parse().unwrap()]);
        let neighbour = |text| Some(NextHop::Neighbour(addr(text)));
        for (destination, hop) in [
            ("10.9.255.255", neighbour("10.2.0.16")),
            ("10.10.0.0", neighbour("10.2.0.8")),
            ("10.2.0.76", Some(NextHop::Destination)),
            ("10.2.0.77", neighbour("10.2.0.32")),
            ("10.2.0.78", Some(NextHop::Destination)),
            ("10.2.0.255", None),
            ("10.2.0.0", None),
            ("10.2.1.0", neighbour("10.2.0.8")),
            ("255.255.255.254", neighbour("10.2.0.254")),
            ("0.0.0.1", neighbour("10.2.0.254")),
            ("2001:db8::1", neighbour("fe80::1")),
            ("fd02::ffff", Some(NextHop::Destination)),
            ("fd02:0:0:1::", None),
            ("::1", None),
            ("ffff::1", None),
        ] {
            assert_eq!(table.find(addr(destination)), hop, "{destination}");
        }
    }

    /// Few different bits at both ends, so that blocks nest.
    fn block() -> impl Strategy<Value = Block> {
        let number = (0_u128..8, 0_u128..8).prop_map(|(high, low)| high << 125 | low);
        (number, prop_oneof![0_u8..5, 124_u8..=128])
            .prop_map(|(number, length)| Block::of(Addr::from_u128(number), length))
    }

    proptest! {
        #[test]
        fn a_scan_of_all_blocks_agrees(
            blocks in proptest::collection::vec((block(), proptest::option::of(0_u128..4)), 0..12),
            near in proptest::collection::vec((block(), -1_i128..=1, any::<bool>()), 40),
        ) {
            let hop = |number: Option<u128>| number.map(|at| NextHop::Neighbour(Addr::from_u128(at)));
            let entries = blocks.iter().map(|&(block, number)| (block, hop(number)));
            let table = RouteTable::of(entries.chain([(ALL, None)]).collect());
            let ends = blocks.iter().map(|(block, _)| *block).zip(&near);
            let others = near.iter().map(|near| (near.0, near));
            for (block, &(_, offset, at_end)) in ends.chain(others) {
                let end = if at_end { block.last() } else { block.first };
                let number = end.wrapping_add_signed(offset);
                let bits_of = |length: u8, number: u128| (0..length).map(move |bit| number << bit >> 127);
                let mut longest: Option<(u8, Option<u128>)> = None;
                for (block, hop) in &blocks {
                    if bits_of(block.length, block.first).eq(bits_of(block.length, number))
                        && longest.is_none_or(|(length, _)| block.length > length)
                    {
                        longest = Some((block.length, *hop));
                    }
                }
                let expected = hop(longest.and_then(|(_, hop)| hop));
                prop_assert_eq!(table.find(Addr::from_u128(number)), expected, "{:x}", number);
            }
        }
    }
}
